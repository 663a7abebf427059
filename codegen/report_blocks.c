/* Decoder blocks: the half-blocks that main calls, grouped; and the pattern in which blocks repeat. */
#include <string.h>

#include "codegen/report_internal.h"

typedef struct builder {
  const report *r;
  report_block *blocks;       /* distinct */
  size_t n_blocks, cap_blocks;
  uint32_t *sequence;         /* index into blocks */
  size_t n_sequence, cap_sequence;
} builder;

static uint32_t intern(builder *b, const report_block *x) {
  for (uint32_t i = 0; i < b->n_blocks; i++)
    if (b->blocks[i].n == x->n && memcmp(b->blocks[i].fns, x->fns, x->n * sizeof *x->fns) == 0) return i;
  report_block copy = {x->n, moec_arena_copy(b->r->arena, x->fns, x->n * sizeof *x->fns), 0};
  MOEC_PUSH(b->r->arena, b->blocks, b->n_blocks, b->cap_blocks, copy);
  return (uint32_t)b->n_blocks - 1;
}

static void end_block(builder *b, report_block *open) {
  if (!open->n) return;
  uint32_t i = intern(b, open);
  b->blocks[i].count++;
  MOEC_PUSH(b->r->arena, b->sequence, b->n_sequence, b->cap_sequence, i);
  open->n = 0;
}

/* ---- runs --------------------------------------------------------------------------------- */

static bool repeats(const uint32_t *s, size_t at, size_t period) {
  return memcmp(s + at, s + at + period, period * sizeof *s) == 0;
}

/* The period whose repetition covers most of what follows |at|; the shortest of equals. */
static size_t best_period(const builder *b, size_t at, size_t *count) {
  enum { LONGEST = 16 };
  size_t best = 1, left = b->n_sequence - at;
  *count = 0;
  for (size_t p = 1; p <= LONGEST && p <= left; p++) {
    size_t n = 1;
    while ((n + 1) * p <= left && repeats(b->sequence, at + (n - 1) * p, p)) n++;
    if ((n > 1 || p == 1) && n * p > *count * best) best = p, *count = n;
  }
  return best;
}

static json_t *runs_json(const builder *b) {
  json_t *list = moec_report_array();
  for (size_t at = 0; at < b->n_sequence;) {
    size_t count, period = best_period(b, at, &count);
    json_t *o = moec_report_object(), *blocks = moec_report_array();
    for (size_t i = 0; i < period; i++) moec_report_add(blocks, json_integer(b->sequence[at + i]));
    moec_report_set_int(o, "first", (json_int_t)at);
    moec_report_set(o, "blocks", blocks);
    moec_report_set_int(o, "count", (json_int_t)count);
    moec_report_add(list, o);
    at += period * count;
  }
  return list;
}

/* ---- JSON --------------------------------------------------------------------------------- */

/* A, B ... Z, AA, AB ... */
static json_t *block_name(uint32_t i) {
  char text[8], *p = text + sizeof text - 1;
  *p = 0;
  for (uint32_t k = i + 1; k; k = (k - 1) / 26) *--p = (char)('A' + (k - 1) % 26);
  return moec_report_str(p);
}

static json_t *blocks_json(const builder *b) {
  json_t *list = moec_report_array();
  for (uint32_t i = 0; i < b->n_blocks; i++) {
    json_t *o = moec_report_object(), *fns = moec_report_array();
    for (uint32_t k = 0; k < b->blocks[i].n; k++) moec_report_add(fns, json_integer(b->blocks[i].fns[k]));
    moec_report_set(o, "name", block_name(i));
    moec_report_set(o, "functions", fns);
    moec_report_set_int(o, "count", b->blocks[i].count);
    moec_report_add(list, o);
  }
  return list;
}

uint32_t *moec_report_blocks(const report *r, json_t *out) {
  const report_fn *top = &r->fns[0];
  builder b = {.r = r};
  report_block open = {0, MOEC_NEW_ARRAY(r->arena, uint32_t, top->n_regions + 1), 0};
  uint32_t *block_of = MOEC_NEW_ARRAY(r->arena, uint32_t, top->g->n_nodes);
  for (size_t i = 0; i < top->g->n_nodes; i++) block_of[i] = REPORT_NONE;
  for (uint32_t i = 0; i < top->n_regions; i++) {
    if (top->regions[i].kind != REPORT_CALL) continue;
    moec_node n = top->regions[i].node;
    uint32_t fn = r->index_of[MOEC_ATTRS(top->g, n, CALL)->fn.i];
    if (moec_half_starts_block(r->fns[fn].half)) end_block(&b, &open);
    open.fns[open.n++] = fn;
    block_of[n.i] = (uint32_t)b.n_sequence;
  }
  end_block(&b, &open);
  json_t *sequence = moec_report_array();
  for (size_t i = 0; i < b.n_sequence; i++) moec_report_add(sequence, json_integer(b.sequence[i]));
  moec_report_set(out, "blocks", blocks_json(&b));
  moec_report_set(out, "sequence", sequence);
  moec_report_set(out, "runs", runs_json(&b));
  return block_of;
}
