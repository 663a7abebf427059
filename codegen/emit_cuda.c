/* Kernels as CUDA: a team of threads works on a row, and goes on to the next of its rows (codegen/emit_cuda.h). */
#include "codegen/emit_cuda.h"

#include <stdio.h>
#include <string.h>

#include "codegen/embedded.h"
#include "codegen/kernel_attention.h"

/* More registers of a row and the compiler must be told to leave some for a second block. */
enum { SPARE = 40 };

static bool shared_out(const moec_emit *e, const moec_kstmt *loop) {
  return moec_lanes_share(e->lanes, loop);
}

/* ---- loops ---------------------------------------------------------------------------------- */

/* A loop over rows, blocks of rows or chunks of rows: every n_teams-th. */
static void team_loop(moec_emit *e, moec_kvar_kind kind) {
  const moec_lanes *l = e->lanes;
  if (kind == MOEC_KVAR_ROW) {
    moec_emit_line(e, "for (int64_t row = team; row < n_rows; row += n_teams) {");
  } else if (kind == MOEC_KVAR_BLOCK) {
    moec_emit_line(e,
                   "for (int64_t block = team * %u; block < n_rows * %u; block += n_teams * %u) {",
                   l->width, l->width, l->width);
    moec_emit_indent(e);
    moec_buf_puts(e->b, "  const int64_t lanes = moec_least(");
    moec_emit_dim(e, e->k->range);
    moec_buf_printf(e->b, " - block, %u);\n", l->width);
  } else {
    long long chunk = (long long)e->k->chunk;
    moec_emit_line(e, "for (int64_t chunk = team; chunk < n_rows; chunk += n_teams) {");
    moec_emit_indent(e);
    moec_buf_printf(e->b, "  const int64_t rows = moec_least(chunk * %lld + %lld, ", chunk, chunk);
    moec_emit_dim(e, moec_emit_chunked_rows(e->k));
    moec_buf_puts(e->b, ");\n");
  }
}

/* Where an inner loop begins and ends, printed. */
void moec_cuda_bounds(moec_emit *e, uint32_t var, moec_buf *lo, moec_buf *hi) {
  const moec_kvar *v = &e->k->vars[var];
  moec_buf *b = e->b;
  if (v->kind == MOEC_KVAR_CHUNK_ROW) {
    moec_buf_printf(lo, "chunk * %lld", (long long)e->k->chunk);
    moec_buf_puts(hi, "rows");
  } else if (v->kind == MOEC_KVAR_LANE) {
    moec_buf_puts(lo, "0");
    moec_buf_puts(hi, "lanes");
  } else if (v->kind == MOEC_KVAR_KEY) {
    moec_buf_puts(lo, "j0");
    moec_buf_puts(hi, "j1");
  } else {
    e->b = lo;
    moec_emit_dim(e, v->lo);
    e->b = hi;
    moec_emit_dim(e, v->hi);
    e->b = b;
  }
}

/* A loop in which thread or slice number |who| of |many| takes every |many|-th iteration; NULL: all of them. */
static void inner_loop(moec_emit *e, uint32_t var, const char *who, uint32_t many) {
  moec_buf lo = {0}, hi = {0};
  moec_cuda_bounds(e, var, &lo, &hi);
  moec_emit_indent(e);
  moec_buf_puts(e->b, "for (int64_t ");
  moec_emit_var(e, var);
  if (!who)
    moec_buf_printf(e->b, " = %s; ", moec_buf_str(&lo));
  else if (strcmp(moec_buf_str(&lo), "0") == 0)
    moec_buf_printf(e->b, " = %s; ", who);
  else
    moec_buf_printf(e->b, " = %s + %s; ", moec_buf_str(&lo), who);
  moec_emit_var(e, var);
  moec_buf_printf(e->b, " < %s; ", moec_buf_str(&hi));
  moec_emit_var(e, var);
  if (who)
    moec_buf_printf(e->b, " += %u) {\n", many);
  else
    moec_buf_puts(e->b, "++) {\n");
  moec_buf_fini(&lo);
  moec_buf_fini(&hi);
}

static bool is_team_loop(const moec_emit *e, const moec_kstmt *st) {
  moec_kvar_kind kind = e->k->vars[st->id].kind;
  return kind == MOEC_KVAR_ROW || kind == MOEC_KVAR_BLOCK || kind == MOEC_KVAR_CHUNK;
}

static void loop_head(moec_emit *e, const moec_kstmt *st) {
  moec_lanes *l = e->lanes;
  const moec_cuda_share *s = &l->shares[st->id];
  bool shared = shared_out(e, st);
  if (shared && (s->v > 1 || s->trips)) {
    moec_wide_begin(e, st);
  } else if (is_team_loop(e, st)) {
    team_loop(e, e->k->vars[st->id].kind);
  } else if (st == l->sliced) {
    if (e->k->vars[st->id].kind == MOEC_KVAR_LOOP) moec_buf_puts(e->b, "#pragma unroll 8\n"); /* down a column */
    inner_loop(e, st->id, "slice", l->slices);
    l->in_slice = true;
  } else {
    inner_loop(e, st->id, shared ? "self" : NULL, l->width);
  }
}

static void loop_end(moec_emit *e, const moec_kstmt *st) {
  moec_lanes *l = e->lanes;
  if (l->open) {
    moec_wide_end(e);
  } else {
    if (l->behind && is_team_loop(e, st)) {
      moec_emit_line(e, "}");
      e->indent--, l->behind = false;
    }
    moec_emit_line(e, "}");
  }
  if (st == l->sliced) l->in_slice = false;
  moec_wide_forget(e);
}

/* ---- partial results ------------------------------------------------------------------------ */

/* |count| elements at |place| of every slice become, in the first, what |n| makes of all of them. */
static void join_slices(moec_emit *e, const char *place, uint32_t count, const moec_kx_node *n, bool local) {
  const moec_lanes *l = e->lanes;
  moec_emit_indent(e);
  moec_buf_printf(e->b, "MOEC_SLICES_JOIN(%s, %s, %u, %u, %u, ",
                  local ? moec_emit_accumulator_of(n).type : moec_emit_ctype(n->dtype), place, count, l->width,
                  l->slices);
  moec_emit_join(e, "mine", n, "other", local);
  moec_buf_puts(e->b, ")\n");
}

static void join(moec_emit *e, const moec_kstmt *st, const char *acc, const moec_kx_node *n) {
  const moec_lanes *l = e->lanes;
  char place[24];
  if (st == l->sliced) {
    snprintf(place, sizeof place, "&%s", acc);
    join_slices(e, place, 1, n, true);
  }
  if (!shared_out(e, st)) return;
  moec_emit_indent(e);
  moec_buf_printf(e->b, "MOEC_%s_JOIN(%s, %s, ", l->width <= 32 ? "LANES" : "BLOCK",
                  moec_emit_accumulator_of(n).type, acc);
  moec_emit_join(e, acc, n, "other", true);
  moec_buf_printf(e->b, ", %u)\n", l->width <= 32 ? l->width : l->width / 32);
}

/* The reduction that |body| gathers in temporary |temp|, 0: none. */
static moec_kx gathered(const moec_kstmts *body, uint32_t temp) {
  for (size_t i = 0; i < body->n; i++) {
    const moec_kstmt *st = &body->v[i];
    if (st->kind == MOEC_KSTMT_GATHER && st->id == temp) return st->e;
    moec_kx e = st->kind == MOEC_KSTMT_LOOP ? gathered(&st->body, temp) : (moec_kx){0};
    if (e.i) return e;
  }
  return (moec_kx){0};
}

/* The elements of register temporary |i| that a thread has, and how many of them slices join at a time. */
static uint32_t elements(const moec_emit *e, uint32_t i) {
  const moec_lanes *l = e->lanes;
  const moec_cuda_share *s = &l->shares[e->k->temps[i].vars[0]];
  return s->trips * s->v;
}
static uint32_t piece(const moec_emit *e, uint32_t i) {
  const moec_lanes *l = e->lanes;
  const moec_cuda_share *s = &l->shares[e->k->temps[i].vars[0]];
  return s->v > 1 ? s->v : s->trips;
}

/* Behind the sliced loop. */
static void leave_slices(moec_emit *e, const moec_kstmt *st) {
  moec_lanes *l = e->lanes;
  for (uint32_t i = 0; i < e->k->n_temps; i++) {
    char place[48];
    if (!l->temps[i].of_slices) continue;
    const moec_kx_node *n = &e->k->nodes[gathered(&st->body, i).i];
    snprintf(place, sizeof place, "w%u + i", i);
    moec_buf_puts(e->b, "#pragma unroll\n");
    moec_emit_line(e, "for (int i = 0; i < %u; i += %u) {", elements(e, i), piece(e, i));
    e->indent++;
    join_slices(e, place, piece(e, i), n, false);
    e->indent--;
    moec_emit_line(e, "}");
  }
  moec_emit_line(e, "if (slice == 0) {");
  e->indent++, l->behind = true;
}

/* ---- who writes, and when others may read --------------------------------------------------- */

const char *moec_cuda_guard(moec_emit *e, const moec_kstmt *st) {
  const moec_lanes *l = e->lanes;
  if (l->operand || l->width == 1 || (st->kind != MOEC_KSTMT_STORE && l->temps[st->id].registers)) return "";
  if (l->slices > 1 && !l->in_slice && !l->behind) return l->inside ? "if (slice == 0) " : "if (threadIdx.x == 0) ";
  return l->inside ? "" : "if (self == 0) ";
}

static void barrier(moec_emit *e, const moec_kstmt *st) {
  const moec_lanes *l = e->lanes;
  if (l->inside || l->width == 1 || l->operand || !moec_lanes_publish(l, st)) return;
  moec_emit_line(e, l->width <= 32 ? "__syncwarp(mates);" : "__syncthreads();");
}

/* In front of a write others may still be reading what was there. */
static void enter(moec_emit *e, const moec_kstmt *st) {
  moec_lanes *l = e->lanes;
  barrier(e, st);
  if (st->kind == MOEC_KSTMT_LOOP && shared_out(e, st)) l->inside++;
}

static void leave(moec_emit *e, const moec_kstmt *st) {
  moec_lanes *l = e->lanes;
  if (st->kind == MOEC_KSTMT_LOOP && shared_out(e, st)) l->inside--;
  barrier(e, st);
  if (st == l->sliced) leave_slices(e, st);
}

/* ---- declarations --------------------------------------------------------------------------- */

static void temp(moec_emit *e, uint32_t i) {
  const moec_lanes *l = e->lanes;
  const moec_ktemp *t = &e->k->temps[i];
  const char *type = moec_emit_ctype(t->dtype);
  moec_emit_indent(e);
  if (l->temps[i].registers) {
    moec_buf_printf(e->b, "%s w%u[%u];\n", type, i, elements(e, i));
  } else if (l->temps[i].local) {
    moec_buf_printf(e->b, "%s w%u[", type, i);
    moec_emit_dim(e, t->count);
    moec_buf_puts(e->b, "];\n");
  } else if (l->temps[i].shared) {
    moec_buf_printf(e->b, "__shared__ %s all%u[%u][", type, i, l->teams);
    moec_emit_dim(e, t->count);
    moec_buf_printf(e->b, "];\n  %s *const w%u = all%u[", type, i, i);
    if (l->teams > 1) moec_buf_printf(e->b, "threadIdx.x / %u];\n", l->width);
    else moec_buf_puts(e->b, "0];\n");
  } else {
    moec_buf_printf(e->b, "%s *const w%u = (%s *)((char *)a->scratch + team * ", type, i, type);
    moec_emit_dim(e, l->scratch);
    moec_buf_puts(e->b, " + ");
    moec_emit_dim(e, l->temps[i].offset);
    moec_buf_puts(e->b, ");\n");
  }
}

/* Words of 8 bytes through which slices join. */
static uint32_t words(const moec_emit *e) {
  const moec_lanes *l = e->lanes;
  uint32_t most = 1;
  for (uint32_t i = 0; i < e->k->n_temps; i++) {
    if (!l->temps[i].of_slices) continue;
    uint32_t bytes = piece(e, i) * (moec_dtype_get(e->k->temps[i].dtype)->bytes > 4 ? 8 : 4);
    if (most < (bytes + 7) / 8) most = (bytes + 7) / 8;
  }
  return most * l->threads;
}

static void temps(moec_emit *e) {
  const moec_lanes *l = e->lanes;
  if (l->operand) {
    moec_emit_line(e, "const int self = threadIdx.x %% 32;");
    moec_emit_line(e, "const uint32_t mates = 0xffffffffu;");
  } else if (l->slices > 1) {
    moec_emit_line(e, "MOEC_SLICED_TEAM(%u, %u)", l->width, words(e));
  } else if (l->width > 32) {
    moec_emit_line(e, "MOEC_BLOCK_TEAM");
  } else if (l->width > 1) {
    moec_emit_line(e, "MOEC_LANES_TEAM(%u)", l->width);
  } else {
    moec_emit_line(e, "MOEC_THREAD_TEAM");
  }
  for (uint32_t i = 0; i < e->k->n_temps; i++) temp(e, i);
}

/* ---- kernels -------------------------------------------------------------------------------- */

static const moec_emit_target target = {.restricted = "__restrict__",
                                        .constant = "alignas(16) static __device__ const",
                                        .cxx = true,
                                        .loop = loop_head,
                                        .join = join,
                                        .temps = temps,
                                        .guard = moec_cuda_guard,
                                        .enter = enter,
                                        .leave = leave,
                                        .close = loop_end,
                                        .load = moec_wide_load,
                                        .store = moec_wide_store,
                                        .place = moec_wide_place};

void moec_emit_cuda_prelude(moec_buf *b) { moec_embedded_write(b, "prelude.cu"); }

static moec_cuda_launch row_kernel(moec_buf *b, moec_arena *a, const moec_kernel *k,
                                   const char *symbol) {
  moec_emit e;
  moec_buf head = {0};
  moec_lanes *l = moec_lanes_of(a, k, false);
  moec_buf_printf(&head,
                  "extern \"C\" __global__ void __launch_bounds__(%u%s)\n"
                  "%s(const __grid_constant__ moec_kernel_args args, int64_t n_rows)",
                  l->threads, l->slices == 1 && l->registers > SPARE ? ", 2" : "", symbol);
  moec_emit_init(&e, k, symbol, b);
  for (size_t i = 0; i < k->n_bufs; i++)
    e.rough = e.rough || k->bufs[i].dtype == MOEC_BF16 || k->bufs[i].dtype == MOEC_F16;
  e.target = &target, e.lanes = l, e.first = "const moec_kernel_args *const a = &args;";
  moec_emit_function(&e, moec_buf_str(&head));
  moec_buf_fini(&head);
  moec_cuda_launch r = {.threads = l->threads, .teams = l->teams, .scratch = l->scratch, .rows = k->range};
  for (size_t i = 0; i < k->n_vars; i++) {
    if (k->vars[i].kind == MOEC_KVAR_BLOCK)
      r.rows = moec_dim_ceildiv(k->m, k->range, moec_dim_const(k->m, l->width));
    else if (k->vars[i].kind == MOEC_KVAR_ROW && l->shares[i].v > 1)
      r.rows = moec_dim_exact_div(k->m, k->range, moec_dim_const(k->m, l->shares[i].v));
  }
  return r;
}

/* ---- attention ------------------------------------------------------------------------------ */

static void *operand_lanes(moec_arena *a, const moec_kernel *operand) {
  return moec_lanes_of(a, operand, true);
}

static moec_status *attention_kernel(moec_buf *b, moec_arena *a, const moec_kernel *k,
                                     const char *symbol, moec_cuda_launch *out) {
  enum { MOST = 227 * 1024 };
  const moec_cuda_attention form = moec_cuda_attention_of(k->m, k->attention);
  if (form.shared > MOST)
    return moec_error(MOEC_UNSUPPORTED,
                      "%s: attention with heads of %lld and %lld: expected at most %d bytes of "
                      "shared memory, got %lld",
                      symbol, (long long)k->attention->d, (long long)k->attention->e, (int)MOST,
                      (long long)form.shared);
  const moec_emit_attention_text text = {.target = &target,
                                         .forward = form.half ? "attention_half.cu" : "attention.cu",
                                         .gradient = form.half ? "attention_grad_half.cu" : "attention_grad.cu",
                                         .operand = "static __device__ void",
                                         .lanes = operand_lanes,
                                         .shared = (uint32_t)form.shared,
                                         .views = form.half};
  moec_emit_attention(b, a, k, symbol, &text);
  *out = (moec_cuda_launch){.rows = form.rows, .threads = form.threads, .teams = 1, .shared = text.shared};
  out->scratch = moec_dim_const(k->m, 0);
  return NULL;
}

moec_status *moec_emit_cuda_kernel(moec_buf *b, moec_arena *a, const moec_kernel *k,
                                   const char *symbol, moec_cuda_launch *out) {
  moec_buf_printf(b, "\n/* %s: %s */\n", symbol, k->what);
  if (k->attention) return attention_kernel(b, a, k, symbol, out);
  *out = row_kernel(b, a, k, symbol);
  return NULL;
}
