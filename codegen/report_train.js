// ---- training -----------------------------------------------------------------------------
const known = v => v < 0 ? null : v;
function trainedFacts(t) {
  const p = t.parameters, extra = [[t.loss.aux, 'load balancing'], [t.loss.z, 'z-loss']].filter(x => x[0] !== 0);
  const lost = p.without_gradient.length, part = t.loss.chunk && `; logits of ${t.loss.chunk} tokens at a time`;
  return h(
      'div.facts', {},
      fact(t.loss.name, 'loss', extra.map(([c, name]) => `, and ${c} times the ${name}${name === 'z-loss' ? '' : ' loss'}`), part),
      fact(human(p.elements), `trained in ${many(p.trainable, 'tensor')}` + (p.frozen ? `, ${p.frozen} frozen` : '')),
      fact(bytes(p.gradient_bytes), 'of gradients'), fact(bytes(p.adamw_bytes), 'of moments with AdamW'),
      lost > 0 && fact(many(lost, 'tensor'), 'without a gradient path: ' + p.without_gradient.slice(0, 3).join(', ') +
                                                  (lost > 3 ? ', \u2026' : '')));
}
// The planned memory of both modes, to one scale.
function modes(t) {
  const most = Math.max(1, ...t.modes.map(m => m.peak)), wide = x => (100 * Math.max(0, x) / most).toFixed(2) + '%';
  const bar = m =>
      h('div.bar',
        {
          role: 'img',
          'aria-label': `recompute ${m.recompute}: ${bytes(known(m.peak))}, ${bytes(known(m.saved))} of it saved by functions`
        },
        h('span', { style: { '--h': 214, width: wide(Math.min(m.saved, m.peak)) } }),
        h('span.rest', { style: { width: wide(m.peak - m.saved) } }));
  const key = (cls, text) => h('span', {}, h('span.swatch' + cls, { style: { '--h': 214 } }), text);
  return h(
      'div.panel.modes', {},
      h('div.shares', {},
        t.modes.map(m => [h(m.recompute === t.recompute ? 'span.chosen' : 'span', {}, 'recompute ' + m.recompute), bar(m),
                          h('b', {}, bytes(known(m.peak))),
                          h('small', {}, m.recompute === t.recompute ? 'this one' : '')])),
      h('div.note-line', {}, h('span', {}, 'planned memory of one step'), key('', 'saved by forward functions'),
        key('.rest', 'what else lives with it')));
}
function programs(t) {
  return table(
      [['program'], ['steps', 'num'], ['kernel calls', 'num'], ['FLOP', 'num'], ['planned memory', 'num']],
      t.programs.map(
          p => [p.name, p.steps.toLocaleString('en'), p.kernels.toLocaleString('en'), human(known(p.flops)),
                bytes(known(p.peak))]));
}
// A function with its forward and its backward one.
function twin(f) {
  const work = key => f.work.filter(w => w[key] > 0).map(w => [w.what, w[key]]);
  const chips = (list, cls) => list.length ?
      h('div.chips', {}, list.map(([what, n]) => h('span.chip' + cls, {}, what + (n > 1 ? ' \u00d7' + n : '')))) :
      h('span.none', {}, 'nothing');
  const saved = f.saved.length ?
      h('ul', {}, f.saved.map(v => h('li', {}, h('code', {}, v.type), v.from, h('span', {}, bytes(v.bytes.value))))) :
      h('span.none', {}, 'nothing');
  return h(
      'article.panel.twin', { style: f.function === undefined ? { '--h': 222, '--fn-s': '9%' } : tone(f.function) },
      h('header', {}, h('h3', {}, f.name),
        h('span', {}, `${f.forward} \u00d7${f.calls}, ${f.backward} \u00d7${f.backward_calls}`)),
      h('dl', {}, h('dt', {}, 'saved by a call ', h('b', {}, bytes(f.saved_bytes.value))), h('dd', {}, saved),
        h('dt', {}, 'computed again by backward'), h('dd', {}, chips(work('again'), '')),
        h('dt', {}, 'left out: nothing in backward reads it'), h('dd', {}, chips(work('left_out'), '.out')),
        f.reader && [h('dt', {}, 'has to keep moe.combine'), h('dd.why', {}, f.reader + ' reads its value')]));
}
function training() {
  const t = R.training;
  if (!t) return null;
  return h(
      'section', { id: 'training' }, h('h2', {}, 'Training'),
      h('p.lead', {},
        'Each function becomes two: the forward one saves what the backward one cannot do without, and the backward one computes the rest again. With recompute block that is the routing alone, beside the inputs of the functions; the replay leaves out what only the output of the span needed.'),
      trainedFacts(t), modes(t), programs(t), h('div.twins', {}, t.functions.map(twin)));
}
