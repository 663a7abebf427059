/* Kernels as CUDA: a team of threads works on a row, and goes on to the next of its rows (codegen/emit_cuda.h). */
#include "codegen/emit_cuda.h"

#include <string.h>

#include "codegen/embedded.h"
#include "codegen/kernel_attention.h"

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
    moec_buf_printf(e->b, " - block, %d);\n", MOEC_KERNEL_LANES);
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
static void bounds(moec_emit *e, uint32_t var, moec_buf *lo, moec_buf *hi) {
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

static void loop_head(moec_emit *e, const moec_kstmt *st) {
  moec_kvar_kind kind = e->k->vars[st->id].kind;
  moec_lanes *l = e->lanes;
  if (kind == MOEC_KVAR_ROW || kind == MOEC_KVAR_BLOCK || kind == MOEC_KVAR_CHUNK) {
    team_loop(e, kind);
    return;
  }
  moec_buf lo = {0}, hi = {0};
  bounds(e, st->id, &lo, &hi);
  moec_emit_indent(e);
  moec_buf_puts(e->b, "for (int64_t ");
  moec_emit_var(e, st->id);
  if (!shared_out(e, st))
    moec_buf_printf(e->b, " = %s; ", moec_buf_str(&lo));
  else if (strcmp(moec_buf_str(&lo), "0") == 0)
    moec_buf_puts(e->b, " = self; ");
  else
    moec_buf_printf(e->b, " = %s + self; ", moec_buf_str(&lo));
  moec_emit_var(e, st->id);
  moec_buf_printf(e->b, " < %s; ", moec_buf_str(&hi));
  moec_emit_var(e, st->id);
  if (shared_out(e, st))
    moec_buf_printf(e->b, " += %u) {\n", l->width);
  else
    moec_buf_puts(e->b, "++) {\n");
  moec_buf_fini(&lo);
  moec_buf_fini(&hi);
}

static void join(moec_emit *e, const moec_kstmt *st, const char *acc, const moec_kx_node *n) {
  const moec_lanes *l = e->lanes;
  if (!shared_out(e, st)) return;
  moec_emit_indent(e);
  moec_buf_printf(e->b, "MOEC_%s_JOIN(%s, %s, ", l->width == 32 ? "WARP" : "BLOCK",
                  moec_emit_accumulator_of(n).type, acc);
  moec_emit_join(e, acc, n, "other", true);
  if (l->width != 32) moec_buf_printf(e->b, ", %u", l->width / 32);
  moec_buf_puts(e->b, ")\n");
}

/* ---- who writes, and when others may read --------------------------------------------------- */

static const char *guard(moec_emit *e) {
  const moec_lanes *l = e->lanes;
  return l->inside || l->width == 1 || l->operand ? "" : "if (self == 0) ";
}

static void barrier(moec_emit *e, const moec_kstmt *st) {
  const moec_lanes *l = e->lanes;
  if (l->inside || l->width == 1 || l->operand || !moec_lanes_publish(l, st)) return;
  moec_emit_line(e, l->width == 32 ? "__syncwarp();" : "__syncthreads();");
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
}

/* ---- declarations --------------------------------------------------------------------------- */

static void temp(moec_emit *e, uint32_t i) {
  const moec_lanes *l = e->lanes;
  const moec_ktemp *t = &e->k->temps[i];
  const char *type = moec_emit_ctype(t->dtype);
  moec_emit_indent(e);
  if (l->temps[i].local) {
    moec_buf_printf(e->b, "%s w%u[", type, i);
    moec_emit_dim(e, t->count);
    moec_buf_puts(e->b, "];\n");
  } else if (l->temps[i].shared) {
    moec_buf_printf(e->b, "__shared__ %s all%u[%u][", type, i, l->teams);
    moec_emit_dim(e, t->count);
    moec_buf_printf(e->b, "];\n  %s *const w%u = all%u[%s];\n", type, i, i,
                    l->teams > 1 ? "threadIdx.x / 32" : "0");
  } else {
    moec_buf_printf(e->b, "%s *const w%u = (%s *)((char *)a->scratch + team * ", type, i, type);
    moec_emit_dim(e, l->scratch);
    moec_buf_puts(e->b, " + ");
    moec_emit_dim(e, l->temps[i].offset);
    moec_buf_puts(e->b, ");\n");
  }
}

static void temps(moec_emit *e) {
  const moec_lanes *l = e->lanes;
  if (l->operand)
    moec_emit_line(e, "const int self = threadIdx.x %% 32;");
  else
    moec_emit_line(e, l->width == 1    ? "MOEC_THREAD_TEAM"
                      : l->width == 32 ? "MOEC_WARP_TEAM"
                                       : "MOEC_BLOCK_TEAM");
  for (uint32_t i = 0; i < e->k->n_temps; i++) temp(e, i);
}

/* ---- kernels -------------------------------------------------------------------------------- */

static const moec_emit_target target = {.restricted = "__restrict__",
                                        .constant = "static __device__ const",
                                        .cxx = true,
                                        .loop = loop_head,
                                        .join = join,
                                        .temps = temps,
                                        .guard = guard,
                                        .enter = enter,
                                        .leave = leave};

void moec_emit_cuda_prelude(moec_buf *b) { moec_embedded_write(b, "prelude.cu"); }

static moec_cuda_launch row_kernel(moec_buf *b, moec_arena *a, const moec_kernel *k,
                                   const char *symbol) {
  moec_emit e;
  moec_buf head = {0};
  moec_lanes *l = moec_lanes_of(a, k, false);
  moec_dim lanes = moec_dim_const(k->m, MOEC_KERNEL_LANES);
  moec_buf_printf(&head,
                  "extern \"C\" __global__ void __launch_bounds__(%u)\n"
                  "%s(const __grid_constant__ moec_kernel_args args, int64_t n_rows)",
                  l->threads, symbol);
  moec_emit_init(&e, k, symbol, b);
  e.target = &target, e.lanes = l, e.first = "const moec_kernel_args *const a = &args;";
  moec_emit_function(&e, moec_buf_str(&head));
  moec_buf_fini(&head);
  bool blocks = false;
  for (size_t i = 0; i < k->n_vars; i++) blocks = blocks || k->vars[i].kind == MOEC_KVAR_BLOCK;
  moec_cuda_launch r = {.threads = l->threads, .teams = l->teams, .scratch = l->scratch};
  r.rows = blocks ? moec_dim_ceildiv(k->m, k->range, lanes) : k->range;
  return r;
}

/* ---- attention ------------------------------------------------------------------------------ */

static void *operand_lanes(moec_arena *a, const moec_kernel *operand) {
  return moec_lanes_of(a, operand, true);
}

/* Bytes of the work structs of codegen/kernels/attention.cu and attention_grad.cu. */
static int64_t shared_bytes(const moec_kattention *t) {
  int64_t lines = t->grad ? 32 : 64, masks = !t->operands[MOEC_KOPERAND_MASK]    ? 0
                                             : t->mask_by_head || t->mask_by_row ? lines
                                                                                 : 1;
  int64_t d = t->d | 1, e = t->grad ? t->e | 1 : (t->e + 15) / 16 * 16, floats;
  if (t->grad)
    floats = 2 * 32 * (d + e) + 2 * 32 * 33 + 8 * t->e + 2 * 32;
  else
    floats = (64 + 32) * d + 32 * e + 64 * 33 + 3 * 64;
  return 4 * (floats + 32 * masks);
}

static moec_dim blocks_of(moec_module *m, const moec_kattention *t, moec_dim n, int64_t size) {
  moec_dim pairs = moec_dim_mul(m, t->b, t->g);
  return moec_dim_mul(m, pairs, moec_dim_ceildiv(m, n, moec_dim_const(m, size)));
}

/* The tasks of both texts. */
static moec_dim tasks_of(moec_module *m, const moec_kattention *t) {
  moec_dim lines = moec_dim_mul(m, t->s, moec_dim_floordiv(m, t->h, t->g)),
           n = moec_dim_const(m, 0);
  const uint32_t none = MOEC_NO_BUFFER;
  if (!t->grad) return blocks_of(m, t, lines, 64);
  if (t->results[1] != none || t->results[2] != none) n = blocks_of(m, t, t->t, 32);
  if (t->results[0] != none) n = moec_dim_add(m, n, blocks_of(m, t, lines, 32));
  return t->results[3] != none ? moec_dim_add(m, n, t->h) : n;
}

static moec_status *attention_kernel(moec_buf *b, moec_arena *a, const moec_kernel *k,
                                     const char *symbol, moec_cuda_launch *out) {
  enum { MOST = 227 * 1024 };
  moec_emit_attention_text text = {.target = &target,
                                   .forward = "attention.cu",
                                   .gradient = "attention_grad.cu",
                                   .operand = "static __device__ void",
                                   .lanes = operand_lanes};
  int64_t bytes = shared_bytes(k->attention);
  if (bytes > MOST)
    return moec_error(MOEC_UNSUPPORTED,
                      "%s: attention with heads of %lld and %lld: expected at most %d bytes of "
                      "shared memory, got %lld",
                      symbol, (long long)k->attention->d, (long long)k->attention->e, (int)MOST,
                      (long long)bytes);
  text.shared = (uint32_t)bytes;
  moec_emit_attention(b, a, k, symbol, &text);
  *out = (moec_cuda_launch){
      .rows = tasks_of(k->m, k->attention), .threads = 256, .teams = 1, .shared = text.shared};
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
