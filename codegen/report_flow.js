'use strict';
// One panel for a function: regions in ranks from top to bottom, wires between them, an inspector.

// ---- ranks: a region stands below everything it reads ------------------------------------------
function ranks(f) {
  const rank = f.regions.map(() => 0);
  // cuts point forward: regions are in an order of execution
  for (const c of [...f.cuts].sort((a, b) => a.to - b.to))
    if (c.from >= 0 && c.to >= 0) rank[c.to] = Math.max(rank[c.to], rank[c.from] + 1);
  // what reads nothing of this function stands right above its first reader
  const reads = new Set(f.cuts.map(c => c.to)), first = new Map();
  for (const c of f.cuts)
    if (c.to >= 0) first.set(c.from, Math.min(first.get(c.from) ?? Infinity, rank[c.to]));
  f.regions.forEach((r, i) => {
    if (r.kind !== 'call' && !reads.has(i) && first.has(i)) rank[i] = Math.max(0, first.get(i) - 1);
  });
  const rows = [];
  let lastCall = null;
  f.regions.forEach((r, i) => {
    if (r.kind === 'call') {  // the calls of main stand in one cell
      if (lastCall !== null) {
        rank[i] = lastCall;
        return;
      }
      lastCall = rank[i];
    }
  });
  if (lastCall !== null) {  // and what follows them comes right after
    const after = new Map();
    f.regions.forEach((r, i) => {
      if (r.kind !== 'call' && rank[i] > lastCall) after.set(rank[i], 0);
    });
    [...after.keys()].sort((a, b) => a - b).forEach((k, i) => after.set(k, lastCall + 1 + i));
    f.regions.forEach((r, i) => {
      if (r.kind !== 'call' && after.has(rank[i])) rank[i] = after.get(rank[i]);
    });
  }
  f.regions.forEach((r, i) => {
    (rows[rank[i]] = rows[rank[i]] || []).push(i);
  });
  return rows.filter(Boolean);
}

// ---- cards --------------------------------------------------------------------------------
function cost(o, most) {
  const bar = (cls, x, of) =>
      h('u' + cls, {}, h('s', { style: { width: (of ? Math.max(2, 100 * x / of) : 0) + '%' } }));
  return h(
      'span.cost', {}, h('span', {}, human(val(o.flops), 'FLOP')), h('span', {}, bytes(val(o.bytes))),
      bar('', val(o.flops), most.flops), bar('.mem', val(o.bytes), most.bytes));
}
// What a query (row) sees of the keys (columns).
function maskGlyph(m) {
  const n = 9, window = m.window ? Math.max(2, Math.min(4, m.window)) : n + 1;
  const g = svg('svg', { class: 'glyph', viewBox: `0 0 ${n} ${n}`, 'aria-hidden': 'true' });
  for (let i = 0; i < n; i++)
    for (let j = 0; j < n; j++) {
      const on = (!m.causal || j <= i) && (!m.window || j > i - window);
      g.append(
          svg('rect', { x: j + 0.08, y: i + 0.08, width: 0.84, height: 0.84, rx: 0.15, class: on ? 'on' : 'off' }));
    }
  return g;
}
function variant(a) {
  const m = a.mask, words = [
    m.kind === 'none' && !m.causal ?
        'no mask' :
        [m.causal && 'causal', m.window && 'window ' + m.window].filter(Boolean).join(', ') || m.kind + ' mask'
  ];
  if (a.rope) words.push('rope on ' + a.rope.size.text);
  if (a.sinks) words.push('sinks');
  return words.join('; ');
}
const dims = g => (g.batch.text === '1' ? '' : g.batch.text + ' \u00b7 ') +
    [g.m, g.n, g.k].map(s => s.value === null ? s.text : s.value).join(' \u00d7 ');

function card(f, i, most, look) {
  const r = f.regions[i], tag = r.stage ? r.stage + ' \u00b7 ' : '';
  const inner =
      [h('span.kind', {}, h('span', {}, tag + (r.kind === 'gemm' ? 'GEMM ' + dims(r.gemm) : r.kind)),
         h('span', {}, r.at === 'step' ? 'r' + i : 'at ' + r.at))];
  if (r.attention)
    inner.push(
        h('span.split', {}, maskGlyph(r.attention.mask),
          h('span', {}, h('span.title', {}, r.title), h('span.variant', {}, variant(r.attention)))));
  else
    inner.push(h('span.title', {}, r.title));
  inner.push(cost(r, most));
  return h('button.region.' + r.kind, { 'data-r': i, on: { click: () => look(i) } }, inner);
}
function expertDots(e) {
  const shown = Math.min(e.experts, 256), picked = new Set();
  for (let k = 0; k < e.k; k++) picked.add(Math.floor((k * 0.618034 % 1) * shown));  // any k of them
  return h(
      'div.dots', { role: 'img', 'aria-label': `${e.experts} experts, ${e.k} a token` },
      Array.from({ length: shown }, (_, i) => h(picked.has(i) ? 'i.picked' : 'i', {})));
}
function expertCard(f, i, most, look) {
  const e = f.regions[i].expert, r = f.regions[i];
  const chip = (s, k) =>
      h('button.stage' + (s.ops.length ? '.soft' : ''),
        { title: s.why, 'data-stage': k, on: { click: () => look(i, s, k) } }, h('b', {}, s.stage),
        h('em', {}, val(s.flops) ? human(val(s.flops)) : bytes(val(s.bytes))));
  return h(
      'div.expert', {},
      h('button.region.x', { 'data-r': i, on: { click: () => look(i) } },
        h('span.kind', {}, h('span', {}, 'opaque expert region'), h('span', {}, 'r' + i)),
        h('span.title', {},
          r.title + `, ${e.hidden.text} \u2192 ${e.intermediate.text} \u2192 ${e.hidden.text}` +
              (e.gated ? ', gated' : '') + (e.bias ? ', bias' : ''))),
      expertDots(e), h('div.stages', {}, e.stages.map((s, k) => s.region < 0 && chip(s, k))),
      h('div', { style: { 'margin-top': '.6rem' } }, cost(r, most)));
}
function callsCard(f, list) {
  return h(
      'div.region.calls', { 'data-r': list[0], tabindex: -1 },
      h('span.kind', {}, h('span', {}, 'calls'), h('span', {}, `r${list[0]}\u2013r${list[list.length - 1]}`)),
      h('span.title', {},
        `${many(R.sequence.length, 'decoder block')}, ${many(list.length, 'call')} of ${
            many(FN.length - 1, 'function')}`),
      strip(false));
}

// ---- cuts: one note for each reason and source ---------------------------------------------------
function notes(f, from, look) {
  const groups = new Map();
  f.cuts
      .filter(
          c => c.from === from &&
              !(from >= 0 && f.regions[from].kind === 'call' && c.to >= 0 && f.regions[c.to].kind === 'call'))
      .forEach(c => {
        if (!groups.has(c.why)) groups.set(c.why, { why: c.why, from, to: [], values: new Map() });
        const g = groups.get(c.why);
        if (!g.to.includes(c.to)) g.to.push(c.to);
        g.values.set(c.type, c.bytes);
      });
  const name = t => t < 0 ? 'the end' : 'r' + t;
  return [...groups.values()].map(g => {
    const to = g.to.length > 4 ? `${g.to.length} regions` : g.to.map(name).join(', ');
    return h(
        'button.cut',
        { 'data-from': from, 'data-to': g.to.join(' '), on: { click: e => look(null, g, e.currentTarget) } }, g.why,
        ' ', h('span.to', {}, to));
  });
}

// ---- the inspector ------------------------------------------------------------------------
const pair = (k, v) => v !== null && v !== undefined && v !== '' && v !== false ?
    [h('dt', {}, k), h('dd', {}, v === true ? 'yes' : v)] :
    null;
function opChips(ops) {
  return h('div.chips', {}, ops.map(o => h('span.chip', {}, o.op + (o.count > 1 ? ' \u00d7' + o.count : ''))));
}
function particulars(r) {
  const g = r.gemm, a = r.attention, e = r.expert;
  if (g)
    return [
      pair('M', sized(g.m)), pair('N', sized(g.n)), pair('K', sized(g.k)),
      pair('batch', g.batch.text !== '1' && sized(g.batch)), pair('second operand', g.weight ? 'a weight' : 'computed'),
      pair('adds in place', g.accumulates)
    ];
  if (a)
    return [
      pair('heads', a.heads.text), pair('key/value heads', a.kv_heads.text), pair('head size', a.head_size.text),
      pair('value size', a.value_size.text), pair('queries', sized(a.queries)), pair('keys', sized(a.keys)),
      pair('mask', variant(a)), pair('mask is', a.mask.kind),
      pair('visible where', a.mask.text && h('code', {}, a.mask.text)), pair('scale', a.scale.toPrecision(4)),
      pair('softcap', a.softcap || ''), pair('rope', a.rope && (a.rope.interleaved ? 'interleaved pairs' : 'halves')),
      pair('sinks', a.sinks)
    ];
  if (e)
    return [
      pair('experts', e.experts), pair('a token takes', e.k), pair('hidden', e.hidden.text),
      pair('intermediate', e.intermediate.text), pair('gated', e.gated), pair('bias', e.bias),
      pair('adds the residual', e.adds_residual),
      pair(
          'shared expert',
          e.shared_expert && `of ${e.shared_expert.intermediate.text}` + (e.shared_expert.gated ? ', gated' : ''))
    ];
  return [];
}
function source(f, o) {
  if (o.from === 'region') return 'r' + o.index;
  return o.from === 'input' ? (f.kind === 'main' ? 'input of the model' : (f.inputs[o.index] || {}).role || 'input') :
                              o.from;
}
function regionDetails(f, i) {
  const r = f.regions[i], flops = val(r.flops), mem = val(r.bytes), why = f.cuts.filter(c => c.from === i);
  const reasons = [...new Set(why.map(c => c.why))];
  return [
    h('h4', {}, r.title),
    h('p', {}, `r${i}, ` + ({
                 kernel: 'one generated kernel',
                 attention: 'one generated kernel',
                 gemm: 'library call',
                 library: 'library step',
                 expert: 'opaque region: one eager call'
               }[r.kind] || r.kind),
      r.at === 'step' ? '' : `; runs at ${r.at}, not at every step`),
    r.what && h('p', {}, h('code', {}, r.what)),
    h('dl', {}, pair('FLOP', human(flops)), pair('memory', bytes(mem)),
      pair('FLOP a byte', mem ? (flops / mem).toFixed(flops / mem < 10 ? 2 : 0) : ''),
      pair('rows', r.rows && sized(r.rows)), particulars(r)),
    r.ops.length > 0 && [h('h5', {}, 'ops inside'), opChips(r.ops)],
    r.expert && r.expert.stages.some(s => s.region >= 0) &&
        [
          h('h5', {}, 'routing before it'),
          h('ul', {},
            r.expert.stages.filter(s => s.region >= 0)
                .map(s => h('li', {}, s.stage, ' ', h('small', {}, `r${s.region}: ${s.title}`))))
        ],
    reasons.length > 0 && [h('h5', {}, 'why it ends here'), reasons.map(x => h('p.why', {}, x))], h('h5', {}, 'reads'),
    h('ul', {},
      r.inputs.slice(0, 40).map(
          o => h('li', {}, h('code', {}, o.type), ' ', h('small', {}, `${source(f, o)}, ${bytes(val(o.bytes))}`)))),
    h('h5', {}, 'writes'),
    h('ul', {}, r.outputs.map(o => h('li', {}, h('code', {}, o.type), ' ', h('small', {}, bytes(val(o.bytes))))))
  ];
}
function stageDetails(s) {
  return [
    h('h4', {}, s.stage), h('p', {}, s.title),
    h('dl', {}, pair('FLOP', human(val(s.flops))), pair('memory', bytes(val(s.bytes))),
      pair('result', h('code', {}, s.type))),
    s.ops.length > 0 && [h('h5', {}, 'ops inside'), opChips(s.ops)], h('h5', {}, 'why it is a step'),
    h('p.why', {}, s.why)
  ];
}
function cutDetails(c) {
  return [
    h('h4', {}, 'A cut'), h('p.why', {}, c.why),
    h('dl', {}, pair('from', c.from < 0 ? 'outside' : 'r' + c.from),
      pair(
          'to',
          c.to.slice(0, 8).map(t => t < 0 ? 'the end' : 'r' + t).join(', ') + (c.to.length > 8 ? ', \u2026' : '')),
      [...c.values].map(([type, size]) => [pair('value', h('code', {}, type)), pair('bytes', bytes(val(size)))]))
  ];
}
// The regions with most operations.
function work(f) {
  const sum = val(f.flops),
        top = f.regions.map((r, i) => [val(r.flops), i, r])
                  .filter(x => x[0] > 0 && x[2].at === 'step' && x[2].kind !== 'call')
                  .sort((a, b) => b[0] - a[0])
                  .slice(0, 5);
  return top.length > 1 && [
    h('h5', {}, 'most of the work'),
    h('ul', {},
      top.map(
          ([x, i, r]) =>
              h('li.work', {}, h('span', {}, `r${i} ${r.title}`), h('small', {}, pct(x / sum)),
                h('u', {}, h('s', { style: { width: 100 * x / sum + '%' } })))))
  ];
}
function overview(f) {
  const roles = {};
  f.inputs.forEach(x => {
    roles[x.role] = (roles[x.role] || 0) + 1;
  });
  const n = f.counts;
  return [
    h('h4', {}, f.name),
    h('p', {},
      f.kind === 'main' ? (FN.length > 1 ? 'what lies around the blocks' : 'the whole model') :
                          `one half of a decoder block; called ${many(f.calls, 'time')}`),
    h('dl', {}, pair('kernels', n.kernel + n.attention), pair('GEMMs', n.gemm), pair('expert regions', n.expert || ''),
      pair('other library steps', n.library || ''), pair('views', n.views || ''), pair('FLOP', human(val(f.flops))),
      pair('memory', bytes(val(f.bytes))), pair('parameters', human(f.parameters.elements)),
      pair('active for one token', f.parameters.active !== f.parameters.elements && human(f.parameters.active))),
    work(f), h('h5', {}, 'takes'), h('ul', {}, Object.entries(roles).map(([r, k]) => h('li', {}, `${k} \u00d7 ${r}`))),
    h('p', {}, 'Select a region or a note to look inside.')
  ];
}

// ---- a panel ------------------------------------------------------------------------------
function functionPanel(index) {
  const f = FN[index], rows = ranks(f), inner = h('div.inner', { 'aria-live': 'polite' });
  const own = f.regions.filter(r => r.kind !== 'call'),
        most = { flops: Math.max(...own.map(r => val(r.flops)), 0), bytes: Math.max(...own.map(r => val(r.bytes)), 0) };
  const flow = h('div.flow', {});
  const look = (i, part, from) => {
    flow.querySelectorAll('.on').forEach(e => e.classList.remove('on'));
    inner.replaceChildren(...put(
                              h('div', {}),
                              i === null ? cutDetails(part) :
                                  part   ? stageDetails(part) :
                                           regionDetails(f, i))
                              .childNodes);
    if (i === null) {
      from.classList.add('on');
      light(flow, part);
    } else if (part)
      flow.querySelector(`[data-r="${i}"]`).parentElement.querySelector(`[data-stage="${from}"]`).classList.add('on');
    else
      flow.querySelector(`[data-r="${i}"]`).classList.add('on');
    if (matchMedia('(max-width: 900px)').matches) inner.scrollIntoView({ block: 'nearest' });
  };
  put(inner, overview(f));
  const end = (text, from) =>
      h('div.rank', {},
        h('div.cell', { style: { 'align-items': 'center' } },
          h('span.end', { 'data-r': from === undefined ? 'out' : 'in' }, text),
          from === undefined ? null : h('div.cuts', {}, notes(f, -1, look))));
  put(flow, [
    svg('svg', { class: 'wires', 'aria-hidden': 'true' }),
    end(f.kind === 'main' ? 'inputs of the model' : 'residual stream', -1),
    rows.map(row => h('div.rank', {}, cells(f, row, most, look))),
    end(f.kind === 'main' ? 'outputs of the model' : 'residual stream, to the next half-block')
  ]);
  return h(
      'article.fn.panel', { id: 'fn' + index, style: tone(index), 'data-fn': index },
      h('header', {},
        h('h3', {}, index ? f.name : FN.length > 1 ? 'main: around the blocks' : 'main', f.calls > 1 && h('span.times', {}, '\u00d7' + f.calls)),
        h('span.meta', {}, h('span', {}, human(val(f.flops), 'FLOP')), h('span', {}, bytes(val(f.bytes))),
          f.parameters.count > 0 && h('span', {}, human(f.parameters.elements) + ' parameters'),
          h('code', { title: 'structural hash' }, f.hash))),
      h('div.body', {}, f.regions.length > 80 ? h('div.long', { tabindex: 0 }, flow) : flow,
        h('aside.look', { 'aria-label': 'Details of ' + f.name }, inner)));
}
function cells(f, row, most, look) {
  const calls = row.filter(i => f.regions[i].kind === 'call');
  const out = row.filter(i => f.regions[i].kind !== 'call').map(i => {
    const expert = f.regions[i].kind === 'expert';
    return h(
        expert ? 'div.cell.wide' : 'div.cell', {}, expert ? expertCard(f, i, most, look) : card(f, i, most, look),
        h('div.cuts', {}, notes(f, i, look)));
  });
  if (calls.length)
    out.push(
        h('div.cell.wide', {}, callsCard(f, calls), h('div.cuts', {}, calls.slice(-1).map(i => notes(f, i, look)))));
  return out;
}

// ---- wires --------------------------------------------------------------------------------
function light(flow, c) {
  for (const t of c.to) flow.querySelectorAll(`path[data-wire="${c.from} ${t}"]`).forEach(p => p.classList.add('on'));
}
function place(flow, f, r, end) {
  let e = flow.querySelector(`[data-r="${r < 0 ? end : r}"]`);
  if (!e && r >= 0 && f.regions[r].kind === 'call') e = flow.querySelector('.calls');
  if (!e) return null;
  const o = flow.getBoundingClientRect(), row = e.closest('.rank'), cell = e.closest('.cell').getBoundingClientRect(),
        rows = row.getBoundingClientRect();
  const box = (e.closest('.expert') || e).getBoundingClientRect();
  return {
    x: (box.left + box.right) / 2 - o.left,
    top: box.top - o.top,
    bottom: box.bottom - o.top,
    low: cell.bottom - o.top,
    row,
    rowTop: rows.top - o.top,
    rowBottom: rows.bottom - o.top
  };
}
function wire(a, b, lane) {
  const down = `M${a.x} ${a.bottom} V${a.low}`;
  if (a.row.nextElementSibling === b.row) {  // straight down, around nothing
    const mid = Math.max(10, (b.top - a.low) / 2);
    return `${down} C${a.x} ${a.low + mid} ${b.x} ${b.top - mid} ${b.x} ${b.top}`;
  }
  // through the gap below, along the margin, through the gap above the target
  const x = 9 + lane * 6, y0 = a.rowBottom + 5 + lane * 2, y1 = b.rowTop - 11 + lane * 1.5, r = 7;
  return `${down} V${y0 - r} Q${a.x} ${y0} ${a.x - r} ${y0} H${x + r} Q${x} ${y0} ${x} ${y0 + r} V${y1 - r} Q${x} ${
      y1} ${x + r} ${y1} H${b.x - r} Q${b.x} ${y1} ${b.x} ${Math.min(y1 + r, b.top)} V${b.top}`;
}
function drawWires() {
  document.querySelectorAll('.fn').forEach(panel => {
    const f = FN[panel.dataset.fn], flow = panel.querySelector('.flow'), box = flow.querySelector('.wires');
    const done = new Set(), lanes = new Map(), lit = [...box.querySelectorAll('path.on')].map(p => p.dataset.wire);
    box.replaceChildren();
    for (const c of f.cuts) {
      const a = place(flow, f, c.from, 'in'), b = place(flow, f, c.to, 'out');
      if (!a || !b || a.row === b.row) continue;
      const key = `${Math.round(a.x)} ${Math.round(a.top)} ${Math.round(b.x)} ${Math.round(b.top)}`;
      if (done.has(key)) continue;
      done.add(key);
      if (!lanes.has(c.from)) lanes.set(c.from, lanes.size % 4);
      const p = svg('path', { d: wire(a, b, lanes.get(c.from)), 'data-wire': `${c.from} ${c.to}` });
      if (lit.includes(p.dataset.wire)) p.classList.add('on');
      box.append(p, svg('circle', { class: 'dot', cx: b.x, cy: b.top, r: 2.6 }));
    }
  });
}
