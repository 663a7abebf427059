/* How the threads of a team share the work of a row. Innermost loops are shared out, or a loop around a short one
 * when its iterations don't meet in a temporary: neighbouring threads then read neighbouring elements. How many
 * threads a row is worth follows from the longest of these loops. */
#include "codegen/emit_cuda.h"

enum {
  LONG = 1 << 30,     /* a size that is not known */
  SHORT = 32,         /* a loop of fewer iterations leaves lanes of a warp idle */
  ALONE = 8,          /* a row with no longer loops is worth one thread */
  WARP = 1024,        /* and with no longer ones a warp */
  BLOCK = 256,        /* threads of a block */
  HUGE_ROW = 16384,   /* worth the largest block */
  SHARED = 40 * 1024, /* bytes of row temporaries in shared memory */
  LOCAL = 2 * 1024
};

typedef struct finder {
  moec_arena *a;
  const moec_kernel *k;
  moec_lanes *l;
} finder;

static bool has_var(const moec_ktemp *t, uint32_t var) {
  for (uint32_t i = 0; i < t->n_vars; i++)
    if (t->vars[i] == var) return true;
  return false;
}

static bool writes_temp(moec_kstmt_kind kind) {
  return kind == MOEC_KSTMT_SAVE || kind == MOEC_KSTMT_RESET || kind == MOEC_KSTMT_GATHER;
}

/* ---- which loops ---------------------------------------------------------------------------- */

static int64_t extent(const moec_kernel *k, const moec_kstmt *loop) {
  const moec_kvar *v = &k->vars[loop->id];
  int64_t n;
  if (v->kind == MOEC_KVAR_LANE) return MOEC_KERNEL_LANES;
  if (v->kind == MOEC_KVAR_CHUNK_ROW) return k->chunk;
  if (v->kind != MOEC_KVAR_LOOP || !moec_dim_is_const(k->m, moec_dim_sub(k->m, v->hi, v->lo), &n))
    return LONG;
  return n;
}

/* Whether iterations over |var| write no temporary elements but their own. */
static bool apart(const moec_kernel *k, const moec_kstmts *body, uint32_t var) {
  for (size_t i = 0; i < body->n; i++) {
    const moec_kstmt *st = &body->v[i];
    if (writes_temp(st->kind) && !has_var(&k->temps[st->id], var)) return false;
    if (st->kind == MOEC_KSTMT_LOOP && !apart(k, &st->body, var)) return false;
  }
  return true;
}

/* The longest innermost loop of |body|. */
static int64_t longest(const moec_kernel *k, const moec_kstmts *body) {
  int64_t most = 0;
  for (size_t i = 0; i < body->n; i++) {
    const moec_kstmt *st = &body->v[i];
    if (st->kind != MOEC_KSTMT_LOOP) continue;
    int64_t n = st->simd ? extent(k, st) : longest(k, &st->body);
    if (n > most) most = n;
  }
  return most;
}

static bool is_parallel_index(moec_kvar_kind kind) {
  return kind == MOEC_KVAR_ROW || kind == MOEC_KVAR_BLOCK || kind == MOEC_KVAR_CHUNK;
}

static void choose(finder *f, const moec_kstmts *body) {
  for (size_t i = 0; i < body->n; i++) {
    const moec_kstmt *st = &body->v[i];
    if (st->kind != MOEC_KSTMT_LOOP) continue;
    bool can = !is_parallel_index(f->k->vars[st->id].kind) && apart(f->k, &st->body, st->id);
    int64_t inner = st->simd ? 0 : longest(f->k, &st->body);
    if (can && (st->simd || (inner < SHORT && inner < extent(f->k, st))))
      MOEC_PUSH(f->a, f->l->loops, f->l->n_loops, f->l->cap_loops, st);
    else
      choose(f, &st->body);
  }
}

bool moec_lanes_share(const moec_lanes *l, const moec_kstmt *loop) {
  for (size_t i = 0; i < l->n_loops; i++)
    if (l->loops[i] == loop) return true;
  return false;
}

/* ---- temporaries ---------------------------------------------------------------------------- */

/* A temporary is its threads' own where every use of it is in a loop over one variable it has, shared out: the same
 * thread then has the same elements each time. |var|: by temporary, that variable and 1, 0 so far none. */
static void find_own(finder *f, const moec_kstmts *body, const moec_kstmt *shared, uint32_t *var) {
  for (size_t i = 0; i < body->n; i++) {
    const moec_kstmt *st = &body->v[i];
    if (st->kind == MOEC_KSTMT_LOOP) {
      find_own(f, &st->body, moec_lanes_share(f->l, st) ? st : shared, var);
    } else if (writes_temp(st->kind) || st->kind == MOEC_KSTMT_RECALL) {
      bool own = shared && has_var(&f->k->temps[st->id], shared->id);
      own = own && (!var[st->id] || var[st->id] == shared->id + 1);
      if (own) var[st->id] = shared->id + 1;
      f->l->temps[st->id].own = f->l->temps[st->id].own && own;
    }
  }
}

static void find_temps(finder *f) {
  f->l->temps = MOEC_NEW_ARRAY(f->a, moec_cuda_temp, f->k->n_temps + 1);
  uint32_t *var = MOEC_NEW_ARRAY(f->a, uint32_t, f->k->n_temps + 1);
  for (size_t i = 0; i < f->k->n_temps; i++) f->l->temps[i].own = true;
  if (f->l->width > 1) find_own(f, &f->k->body, NULL, var);
}

static moec_dim size_of(const moec_kernel *k, const moec_ktemp *t) {
  moec_dim line = moec_dim_const(k->m, 16),
           bytes = moec_dim_const(k->m, (int64_t)moec_dtype_get(t->dtype)->bytes);
  moec_dim size = moec_dim_mul(k->m, t->count, bytes);
  return moec_dim_mul(k->m, moec_dim_ceildiv(k->m, size, line), line);
}

/* Constant sizes go to shared memory, or to registers and local memory of a team of one, while there is room. */
static void place_temps(finder *f) {
  moec_module *m = f->k->m;
  int64_t room = f->l->width == 1 ? LOCAL : SHARED / f->l->teams, n;
  f->l->scratch = moec_dim_const(m, 0);
  for (size_t i = 0; i < f->k->n_temps; i++) {
    moec_dim size = size_of(f->k, &f->k->temps[i]);
    moec_cuda_temp *t = &f->l->temps[i];
    t->offset = f->l->scratch;
    if (moec_dim_is_const(m, size, &n) && (n <= room || f->l->operand)) {
      t->local = f->l->width == 1 || f->l->operand, t->shared = !t->local;
      room -= n;
    } else {
      f->l->scratch = moec_dim_add(m, f->l->scratch, size);
    }
  }
  moec_dim line = moec_dim_const(m, 64); /* teams don't share lines */
  f->l->scratch = moec_dim_mul(m, moec_dim_ceildiv(m, f->l->scratch, line), line);
}

/* Bytes of all temporaries of constant size. */
static int64_t constant_bytes(const moec_kernel *k) {
  int64_t total = 0, n;
  for (size_t i = 0; i < k->n_temps; i++)
    if (moec_dim_is_const(k->m, size_of(k, &k->temps[i]), &n)) total += n;
  return total;
}

bool moec_lanes_publish(const moec_lanes *l, const moec_kstmt *st) {
  if (writes_temp(st->kind)) return !l->temps[st->id].own;
  if (st->kind != MOEC_KSTMT_LOOP || !moec_lanes_share(l, st)) return false;
  for (size_t i = 0; i < st->body.n; i++) {
    const moec_kstmt *in = &st->body.v[i];
    if (writes_temp(in->kind) ? !l->temps[in->id].own
                              : in->kind == MOEC_KSTMT_LOOP && moec_lanes_publish(l, in))
      return true;
  }
  return false;
}

/* ---- the team ------------------------------------------------------------------------------- */

static void set_team(moec_lanes *l, uint32_t threads, uint32_t width) {
  l->threads = threads, l->width = width, l->teams = threads / width;
}

static bool in_blocks(const moec_kernel *k) {
  for (size_t i = 0; i < k->n_vars; i++)
    if (k->vars[i].kind == MOEC_KVAR_BLOCK) return true;
  return false;
}

static void choose_team(finder *f) {
  int64_t most = 0;
  for (size_t i = 0; i < f->l->n_loops; i++) {
    int64_t n = extent(f->k, f->l->loops[i]);
    if (n > most) most = n;
  }
  int64_t bytes = constant_bytes(f->k);
  if (in_blocks(f->k))
    set_team(f->l, MOEC_KERNEL_LANES, MOEC_KERNEL_LANES);
  else if (most <= ALONE && bytes <= LOCAL)
    set_team(f->l, BLOCK, 1);
  else if (most <= WARP && bytes <= SHARED / (BLOCK / 32))
    set_team(f->l, BLOCK, 32);
  else if (most >= HUGE_ROW && most != LONG)
    set_team(f->l, 1024, 1024);
  else
    set_team(f->l, BLOCK, BLOCK);
}

moec_lanes *moec_lanes_of(moec_arena *a, const moec_kernel *k, bool operand) {
  moec_lanes *l = MOEC_NEW(a, moec_lanes);
  finder f = {a, k, l};
  *l = (moec_lanes){.operand = operand};
  choose(&f, &k->body);
  if (operand)
    set_team(l, 32, 32);
  else
    choose_team(&f);
  if (l->width == 1) l->n_loops = 0;
  find_temps(&f);
  for (size_t i = 0; operand && i < k->n_temps; i++)
    if (!l->temps[i].own)
      l->n_loops = 0; /* its temporaries are local: every thread does everything */
  place_temps(&f);
  return l;
}
