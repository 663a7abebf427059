'use strict';
// Draws the report in #data. Names come from model files: they only ever become text nodes.
const R = JSON.parse(document.getElementById('data').textContent);
const FN = R.functions;

// ---- making elements ----------------------------------------------------------------------
function put(e, kids) {
  for (const k of kids.flat(9))
    if (k !== null && k !== undefined && k !== false) e.append(k);
  return e;
}
function h(spec, attrs, ...kids) {
  const [tag, ...cls] = spec.split('.');
  const e = document.createElement(tag);
  if (cls.length) e.className = cls.join(' ');
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k === 'on')
      for (const [n, f] of Object.entries(v)) e.addEventListener(n, f);
    else if (k === 'style')
      for (const [n, x] of Object.entries(v)) e.style.setProperty(n, x);
    else
      e.setAttribute(k, v);
  }
  return put(e, kids);
}
function svg(tag, attrs, ...kids) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  return put(e, kids);
}

// ---- numbers ------------------------------------------------------------------------------
function scaled(v, step, prefixes, unit) {
  if (v === null || v === undefined) return '?';
  let i = 0;
  while (v >= step * 0.9995 && i < prefixes.length - 1) {
    v /= step;
    i++;
  }
  const digits = i === 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
  return (v.toFixed(digits) + ' ' + prefixes[i] + unit).trim();
}
const human = (v, unit = '') => scaled(v, 1000, ['', 'k', 'M', 'G', 'T', 'P', 'E'], unit);
const bytes = v => scaled(v, 1024, ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'], 'B');
const val = s => (s && s.value) || 0;
const many = (n, one, more) => n.toLocaleString('en') + ' ' + (n === 1 ? one : more || one + 's');
const pct = x => (100 * x).toFixed(x > 0.0995 || x === 0 ? 0 : 1) + ' %';
const sized = s =>
    s.value === null || s.text === String(s.value) ? s.text : s.text + ' = ' + s.value.toLocaleString('en');

// ---- colours: a hue for each distinct function, near its kind's ------------------------------
const HUES = {
  attention: [214, 190, 238, 172],
  mixer: [276, 302, 254, 324],
  moe: [28, 8, 44, 350],
  mlp: [150, 122, 92, 168],
  main: [222]
};
const seen = {};
const hue = FN.map(f => {
  const list = HUES[f.kind] || [330, 60], i = seen[f.kind] = (seen[f.kind] ?? -1) + 1;
  return list[i % list.length] + Math.floor(i / list.length) * 11;
});
const tone = f =>
    ({ '--h': hue[f], '--fn-s': f === 0 ? '9%' : 'var(--s0)', '--tint-s': f === 0 ? '12%' : 'var(--s1)' });

// ---- header -------------------------------------------------------------------------------
function values(list) {
  return list.map((v, i) => [i ? ', ' : '', h('code', {}, v.name || '(unnamed)'), ' ' + v.type]);
}
function fact(number, ...text) {
  const [big, unit] = number.split(' ');
  return h('div.fact', {}, h('b', {}, big, unit && h('small', {}, ' ' + unit)), h('span', {}, text));
}
function header() {
  const p = R.parameters, t = R.totals, at = R.symbols.map(s => s.name + ' ' + s.value).join(', ');
  const moe = R.moe_layers, same = moe.every(l => l.experts === (moe[0] || {}).experts && l.k === moe[0].k);
  return h(
      'header', {}, h('div.eyebrow', {}, 'moec partition report'), h('h1', {}, R.model || 'model'),
      h('div.io', {}, h('span', {}, 'in: ', values(R.inputs)), h('span', {}, 'out: ', values(R.outputs))),
      h('div.facts', {},
        p.count > 0 && fact(human(p.elements), 'parameters in ' + bytes(p.bytes)),
        p.count > 0 && moe.length > 0 && fact(human(p.active), 'active a token, ' + pct(p.active / p.elements)),
        R.sequence.length > 0 &&
            fact(many(R.sequence.length, 'block'), `of ${many(t.functions, 'distinct half', 'distinct halves')}`),
        moe.length > 0 &&
            fact(moe.length + ' MoE', (moe.length > 1 ? 'layers' : 'layer') + (same ? ` of ${moe[0].experts} experts, ${moe[0].k} a token` : '')),
        fact(many(t.kernels, 'kernel'), `compiled, ${t.kernel_launches.toLocaleString('en')} launches a step`),
        fact(human(t.flops.value, 'FLOP'), 'a step' + (at ? ' at ' + at : '')),
        fact(bytes(t.bytes.value), 'through memory a step')),
      R.notes.map(n => h('p.note', {}, n)));
}

// ---- blocks -------------------------------------------------------------------------------
function go(f) {
  const e = document.getElementById('fn' + f);
  e.scrollIntoView();
  e.querySelector('.region').focus({ preventScroll: true });
}
function strip(live) {
  const few = R.sequence.length <= 12;
  const s =
      h(few ? 'div.strip.few' : 'div.strip',
        live ? { role: 'group', 'aria-label': 'Decoder blocks; arrow keys move, Enter shows the function' } :
               { 'aria-hidden': 'true' });
  R.sequence.forEach((b, i) => {
    const halves = R.blocks[b].functions.map((f, k) => {
      const cls = FN[f].kind === 'moe' ? '.half.moe' : '.half';
      if (!live) return h('span' + cls, { style: tone(f) });
      const label = `block ${i} (${R.blocks[b].name}): ${FN[f].name}`;
      return h('button' + cls, {
        style: tone(f),
        title: label,
        'aria-label': label,
        tabindex: i || k ? -1 : 0,
        'data-f': f,
        on: { click: () => go(f) }
      });
    });
    s.append(h('span.block', {}, halves, live && h('i', {}, few || i % 4 === 0 ? i : '')));
  });
  if (live) s.addEventListener('keydown', e => walk(s, e));
  return s;
}
// One stop of the tab key; the arrows move inside.
function walk(s, e) {
  const all = [...s.querySelectorAll('.half')], here = document.activeElement.closest('.block');
  const column = [...s.children], i = column.indexOf(here), k = [...here.children].indexOf(document.activeElement);
  let to = null;
  if (e.key === 'ArrowRight' || e.key === 'ArrowLeft') to = column[i + (e.key === 'ArrowRight' ? 1 : -1)]?.children[k];
  if (e.key === 'ArrowDown' || e.key === 'ArrowUp') to = here.children[k + (e.key === 'ArrowDown' ? 1 : -1)];
  if (e.key === 'Home' || e.key === 'End') to = e.key === 'Home' ? all[0] : all[all.length - 1];
  if (!to || !to.matches('.half')) return;
  e.preventDefault();
  all.forEach(x => {
    x.tabIndex = -1;
  });
  to.tabIndex = 0;
  to.focus();
}
function order() {
  const text = R.runs.map(r => {
    const names = r.blocks.map(b => R.blocks[b].name).join(' ');
    return r.count === 1 ? names : (r.blocks.length > 1 ? `(${names})` : names) + ' \u00d7' + r.count;
  });
  return 'order: ' + text.slice(0, 12).join(', ') + (text.length > 12 ? ', \u2026' : '');
}
function legend(s) {
  const light = f => s.querySelectorAll('.half').forEach(x => x.classList.toggle('on', x.dataset.f === String(f)));
  const keys = FN.map(
      (f, i) => i > 0 &&
          h('button.key',
            {
              style: tone(i),
              on: {
                click: () => go(i),
                mouseenter: () => {
                  light(i);
                  s.classList.add('dim');
                },
                mouseleave: () => s.classList.remove('dim'),
                focus: () => {
                  light(i);
                  s.classList.add('dim');
                },
                blur: () => s.classList.remove('dim')
              }
            },
            h('span.swatch', {}), f.name, h('em', {}, '\u00d7' + f.calls)));
  return h('div.legend', {}, keys, h('span.order', {}, order()));
}
function shares() {
  const rows = [
    ['operations', f => val(f.flops) * f.calls, v => human(v, 'FLOP')],
    ['memory traffic', f => val(f.bytes) * f.calls, bytes],
    ['parameters', f => f.parameters.elements * f.calls, human, R.parameters.elements]
  ];
  return h('div.shares', {}, rows.map(([name, get, show, total]) => {
    const parts = FN.map(get), sum = parts.reduce((a, b) => a + b, 0);
    const bar = parts.map(
        (x, i) => x > 0 &&
            h('span', { style: {...tone(i), flex: x / sum }, title: `${FN[i].name}: ${show(x)}, ${pct(x / sum)}` }));
    return [
      h('span', {}, name), h('b', {}, show(total ?? sum)),
      h('div.bar',
        { role: 'img', 'aria-label': parts.map((x, i) => `${FN[i].name} ${pct(sum ? x / sum : 0)}`).join(', ') }, bar)
    ];
  }));
}
function blocks() {
  const s = strip(true);
  return h(
      'section', {}, h('h2', {}, R.sequence.length ? 'Decoder blocks' : 'Where the work is'),
      h('p.lead', {},
        R.sequence.length ?
            'Each column is a block, each cell one half of it. Cells of one colour are one function: compiled once, called with other weights.' :
            ''),
      h('div.panel.strip-wrap', {}, R.sequence.length ? [s, legend(s)] : null, shares()));
}

// ---- tables -------------------------------------------------------------------------------
function table(heads, rows) {
  return h(
      'div.panel.scroll', { tabindex: 0 },
      h('table', {}, h('thead', {}, h('tr', {}, heads.map(([t, c]) => h(c ? 'th.' + c : 'th', { scope: 'col' }, t)))),
        h('tbody', {},
          rows.map(r => h('tr', {}, r.map((x, i) => h(heads[i][1] ? 'td.' + heads[i][1] : 'td', {}, x)))))));
}
const fnKey = f => h('button.key', { style: tone(f), on: { click: () => go(f) } }, h('span.swatch', {}), FN[f].name);
function layers() {
  if (!R.moe_layers.length) return null;
  return h(
      'section', {}, h('h2', {}, 'MoE layers'), h('p.lead', {}, 'In the order in which they run.'),
      table(
          [
            ['layer', 'num'], ['block', 'num'], ['function'], ['experts', 'num'], ['k', 'num'], ['hidden', 'num'],
            ['intermediate', 'num'], ['FLOP', 'num'], ['expert weights', 'name']
          ],
          R.moe_layers.map(
              l =>
                  [l.layer, l.block < 0 ? '' : l.block, fnKey(l.function), l.experts, l.k, l.hidden.text,
                   l.intermediate.text, human(l.flops.value), h('code', {}, l.fc1 || '')])));
}
function hoisted() {
  if (!R.hoisted.length) return null;
  const equal = new Map();
  for (const x of R.hoisted) {
    const key = [x.function, x.at, x.title, x.type].join('\n');
    equal.set(key, [x, (equal.get(key) || [x, 0])[1] + 1]);
  }
  const when = { load: 'once, when weights are loaded or updated', bind: 'once for each set of sizes' };
  return h(
      'section', {}, h('h2', {}, 'Hoisted out of the step'),
      h('p.lead', {}, 'What depends on weights or sizes only does not run at every step.'),
      table(
          [['what'], ['where'], ['runs'], ['result', 'name']],
          [...equal.values()].map(
              ([x, n]) =>
                  [x.title + (n > 1 ? ' \u00d7' + n : ''), fnKey(x.function), when[x.at] || x.at,
                   h('code', {}, x.type)])));
}
function parameters() {
  const p = R.parameters, most = 400;
  const rows = p.list.map(x => ({ x, text: (x.name + ' ' + x.group + ' ' + x.type).toLowerCase() }));
  const box = h('div', {}),
        find =
            h('input',
              { type: 'search', placeholder: 'Filter by name, type or group', 'aria-label': 'Filter parameters' });
  const show = () => {
    const hit = rows.filter(r => r.text.includes(find.value.toLowerCase()));
    box.replaceChildren(
        table(
            [['parameter', 'name'], ['type'], ['stored'], ['elements', 'num'], ['bytes', 'num'], ['used in'], ['', '']],
            hit.slice(0, most).map(
                ({ x }) =>
                    [h('code', {}, x.name), h('code', {}, x.type), x.storage, human(x.elements), bytes(x.bytes),
                     fnKey(x.function),
                     [x.group === 'expert' && 'expert', x.tied && 'tied']
                         .filter(Boolean)
                         .join(', ')])),
        h('p.lead', {}, hit.length > most ? `the first ${most} of ${hit.length}` : many(hit.length, 'parameter')));
  };
  find.addEventListener('input', show);
  show();
  const part = (o, f) => o.elements > 0 && h('span', { style: { '--h': f, flex: o.elements } });
  return h(
      'section', {}, h('h2', {}, 'Parameters'),
      h('div.panel.split-bar', {}, h('div.bar', { 'aria-hidden': 'true' }, part(p.dense, 214), part(p.expert, 28)),
        h('div.note-line', {}, h('span', {}, 'dense ', h('b', {}, human(p.dense.elements)), ' in ' + p.dense.count),
          h('span', {}, 'experts ', h('b', {}, human(p.expert.elements)), ' in ' + p.expert.count),
          h('span', {}, 'active for one token ', h('b', {}, human(p.active))),
          p.unused.count > 0 && h('span', {}, 'never read ', h('b', {}, String(p.unused.count))))),
      h('p', {}, find), box);
}
function remarks() {
  const needs = R.constraints.map(c => `needs ${c.text}` + (c.what ? ` (${c.what})` : ''));
  const list = [...needs, ...R.remarks];
  if (!list.length) return null;
  return h(
      'section', {}, h('h2', {}, 'Remarks'), h('div.panel', {}, h('ul.remarks', {}, list.map(r => h('li', {}, r)))));
}

// ---- page ---------------------------------------------------------------------------------
function page() {
  const app = document.getElementById('app');
  put(app, [
    h('main', {}, header(), blocks(), R.training ? training() : null,
      h('section', { id: 'functions' }, h('h2', {}, 'Functions'),
        h('p.lead', {},
          'From top to bottom: generated kernels (square), library GEMMs (round), the opaque expert region (dashed). The notes between them say why a region ends there. Select anything for details.'),
        FN.map((f, i) => functionPanel(i))),
      layers(), hoisted(), parameters(), remarks()),
    h('footer', {}, 'Sizes are evaluated at ',
      R.symbols.map(s => `${s.name} = ${s.value}`).join(', ') || 'fixed shapes',
      '. FLOP and bytes count each value once a region; attention counts all pairs.')
  ]);
  app.hidden = false;
  drawWires();
  new ResizeObserver(drawWires).observe(app);
}
page();
