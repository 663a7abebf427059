/* What is told of a differentiated function: for each kind of work in it, how much is saved for the backward function,
 * how much that computes again, and how much it leaves out. Leaves and movement are no work. */
#include <string.h>

#include "passes/grad.h"

/* ---- the two products of experts ------------------------------------------------------------ */

/* Marks in |down| the last grouped products before each moe.combine, found backwards through what is done to their
 * rows: fc2; the others are fc1. */
static void find_down(const moec_graph *g, uint32_t n_f, uint8_t *down, uint8_t *rows) {
  for (uint32_t n = n_f; n-- > 1;) {
    const moec_node_info *p = &g->nodes[n];
    bool read = false;
    for (uint32_t i = 0; i < p->n_out; i++) read |= rows[g->edges[p->out + i].i];
    bool first_only = p->op == MOEC_OP_MOE_COMBINE || p->op == MOEC_OP_MOE_WEIGHT;
    if (read && p->op == MOEC_OP_MOE_GROUPED_DOT) down[n] = 1;
    if (down[n] || (!read && p->op != MOEC_OP_MOE_COMBINE)) continue;
    for (uint32_t i = 0; i < (first_only ? 1 : p->n_in); i++) rows[g->edges[p->in + i].i] = 1;
  }
  rows[0] = 0;
}

static const char *what_of(const moec_graph *g, uint32_t n, const uint8_t *down) {
  moec_op op = g->nodes[n].op;
  if (op != MOEC_OP_MOE_GROUPED_DOT) return moec_op_get(op)->text;
  return down[n] ? "fc2" : "fc1";
}

/* ---- the list ------------------------------------------------------------------------------- */

static moec_replay_work *work_of(moec_replay *s, moec_arena *a, const char *what) {
  for (size_t i = 0; i < s->n_work; i++)
    if (strcmp(s->work[i].what, what) == 0) return &s->work[i];
  MOEC_PUSH(a, s->work, s->n_work, s->cap_work, ((moec_replay_work){.what = what}));
  return &s->work[s->n_work - 1];
}

static void add_node(moec_replay *s, const moec_graph *g, uint32_t n, const char *what, const uint8_t *saved,
                     const uint8_t *needed) {
  const moec_node_info *p = &g->nodes[n];
  bool kept = false, live = false;
  for (uint32_t i = 0; i < p->n_out; i++) {
    uint32_t v = g->edges[p->out + i].i;
    kept |= saved[v] != 0;
    live |= needed[v] && !saved[v];
  }
  moec_replay_work *w = work_of(s, g->m->arena, what);
  *(live ? &w->again : kept ? &w->saved : &w->left_out) += 1;
}

void moec_grad_note(moec_replay replay, const moec_graph *g, uint32_t n_f, const uint8_t *saved,
                    const uint8_t *needed) {
  moec_module *m = g->m;
  uint8_t *down = MOEC_NEW_ARRAY(m->arena, uint8_t, g->n_nodes);
  uint8_t *rows = MOEC_NEW_ARRAY(m->arena, uint8_t, g->n_values);
  find_down(g, n_f, down, rows);
  for (uint32_t n = 1; n < n_f; n++) {
    moec_op op = g->nodes[n].op;
    if (op == MOEC_OP_NONE || moec_op_cls(op) == MOEC_CLASS_LEAF || moec_op_cls(op) == MOEC_CLASS_MOVE) continue;
    add_node(&replay, g, n, what_of(g, n, down), saved, needed);
  }
  MOEC_PUSH(m->arena, m->replays, m->n_replays, m->cap_replays, replay);
}
