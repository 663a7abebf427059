/* How the threads of a team share the work of a row. Innermost loops are shared out, or a loop around a short one
 * when its iterations don't meet in a temporary: neighbouring threads then read neighbouring elements. How many
 * threads a row is worth follows from the longest of these loops: few, so that sums need no barrier and several rows
 * are on their way at once, while what a thread has of a row fits in its registers. Sums over the rows of a chunk, or
 * down a column, are split again: slices of the team add up some rows each, and meet at the end. */
#include "codegen/emit_cuda.h"

enum {
  LONG = 1 << 30,     /* a size that is not known */
  SHORT = 32,         /* a loop of fewer iterations leaves lanes of a warp idle */
  ALONE = 8,          /* a row with no longer loops is worth one thread */
  WARP = 2048,        /* and with no longer ones a warp */
  LEAST = 4,          /* threads of a team of several */
  TURNS = 2,          /* wide accesses of a thread to a row, at least */
  BLOCK = 256,        /* threads of a block */
  HUGE_ROW = 16384,   /* worth the largest block */
  LARGEST = 1024,     /* threads of one */
  SHARED = 40 * 1024, /* bytes of row temporaries in shared memory */
  LOCAL = 2 * 1024,
  UNROLLED = 16,      /* turns of a loop */
  MINE = 64,          /* elements of a row that a thread has in registers */
  KEPT = 128          /* registers for that, and for what is loaded once and needed by several loops */
};

typedef struct finder {
  moec_arena *a;
  const moec_kernel *k;
  moec_lanes *l;
} finder;

bool moec_lanes_has_var(const moec_ktemp *t, uint32_t var) {
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
    if (writes_temp(st->kind) && !moec_lanes_has_var(&k->temps[st->id], var)) return false;
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
      bool own = shared && moec_lanes_has_var(&f->k->temps[st->id], shared->id);
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
  find_own(f, &f->k->body, NULL, var);
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
    if (t->registers) continue;
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

/* Bytes of all temporaries of constant size that have no registers. */
static int64_t constant_bytes(const finder *f) {
  int64_t total = 0, n;
  for (size_t i = 0; i < f->k->n_temps; i++)
    if (!f->l->temps[i].registers && moec_dim_is_const(f->k->m, size_of(f->k, &f->k->temps[i]), &n)) total += n;
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

/* A loop over |var| that is shared out, NULL: none. */
static const moec_kstmt *loop_over(const finder *f, uint32_t var) {
  for (size_t i = 0; i < f->l->n_loops; i++)
    if (f->l->loops[i]->id == var) return f->l->loops[i];
  return NULL;
}

static void find_shares(finder *f) {
  for (uint32_t var = 0; var < f->k->n_vars; var++)
    if (!f->l->operand && loop_over(f, var))
      f->l->shares[var].v = moec_vector_of(f->a, f->k, f->l->loops, f->l->n_loops, var);
}

/* Whether all loops over |var| are innermost and of a size that is known. */
static bool can_unroll(const finder *f, uint32_t var, int64_t *n) {
  moec_kvar_kind kind = f->k->vars[var].kind;
  if (f->l->operand || (kind != MOEC_KVAR_LOOP && kind != MOEC_KVAR_LANE)) return false;
  for (size_t i = 0; i < f->l->n_loops; i++)
    if (f->l->loops[i]->id == var && !f->l->loops[i]->simd) return false;
  *n = extent(f->k, loop_over(f, var));
  return *n < LONG;
}

/* What a thread of a team of this width takes. */
static void find_turns(finder *f) {
  for (uint32_t var = 0; var < f->k->n_vars; var++) {
    moec_cuda_share *s = &f->l->shares[var];
    int64_t n, turn = (int64_t)f->l->width * s->v;
    s->trips = 0, s->exact = false;
    if (!loop_over(f, var) || !can_unroll(f, var, &n)) continue;
    if (f->k->vars[var].kind == MOEC_KVAR_LANE) n = f->l->width;
    int64_t trips = (n + turn - 1) / turn;
    if (trips > UNROLLED || trips * s->v > MINE) continue;
    s->trips = (uint32_t)trips;
    s->exact = n % turn == 0 && f->k->vars[var].kind != MOEC_KVAR_LANE;
  }
  for (size_t i = 0; i < f->k->n_temps; i++) {
    const moec_ktemp *t = &f->k->temps[i];
    f->l->temps[i].registers = f->l->temps[i].own && t->n_vars == 1 && f->l->shares[t->vars[0]].trips > 0;
  }
}

/* Tries a team; whether what its threads share of a row has a place. */
static bool set_team(finder *f, uint32_t threads, uint32_t width) {
  moec_lanes *l = f->l;
  l->threads = threads, l->width = width, l->teams = threads / width, l->slices = 1;
  if (width > 1) find_turns(f);
  return constant_bytes(f) <= SHARED / l->teams;
}

static bool in_blocks(const moec_kernel *k) {
  for (size_t i = 0; i < k->n_vars; i++)
    if (k->vars[i].kind == MOEC_KVAR_BLOCK) return true;
  return false;
}

/* The fewest threads that a row of |n| elements, |v| at a time, keeps busy. */
static uint32_t few_threads(int64_t n, uint32_t v) {
  uint32_t width = LEAST;
  while (width < 32 && (int64_t)width * v * TURNS < n) width *= 2;
  return width;
}

static void choose_team(finder *f) {
  int64_t most = 0;
  uint32_t v = 1;
  bool rows = false;
  for (size_t i = 0; i < f->l->n_loops; i++) {
    const moec_kstmt *loop = f->l->loops[i];
    int64_t n = extent(f->k, loop);
    rows = rows || f->k->vars[loop->id].kind == MOEC_KVAR_CHUNK_ROW;
    if (n > most) most = n, v = f->l->shares[loop->id].v;
  }
  if (in_blocks(f->k)) {
    set_team(f, MOEC_KERNEL_LANES, MOEC_KERNEL_LANES);
    return;
  }
  if (most <= ALONE && constant_bytes(f) <= LOCAL) {
    set_team(f, BLOCK, 1);
    return;
  }
  if (most <= WARP && !rows && set_team(f, BLOCK, few_threads(most, v))) return;
  if (most >= HUGE_ROW && most != LONG) set_team(f, LARGEST, LARGEST);
  else set_team(f, BLOCK, BLOCK);
}

/* ---- slices --------------------------------------------------------------------------------- */

/* Notes which temporaries |body| gathers in and which begin anew in it. False: it writes one not in registers. */
static bool look_into(const finder *f, const moec_kstmts *body, bool *gathers, bool *begins) {
  for (size_t i = 0; i < body->n; i++) {
    const moec_kstmt *st = &body->v[i];
    if (st->kind == MOEC_KSTMT_LOOP && !look_into(f, &st->body, gathers, begins)) return false;
    if (!writes_temp(st->kind)) continue;
    if (!f->l->temps[st->id].registers) return false;
    if (st->kind == MOEC_KSTMT_GATHER) gathers[st->id] = true;
    else begins[st->id] = true;
  }
  return true;
}

/* The one loop in |team|, the loop over chunks or blocks, that isn't shared out itself. */
static const moec_kstmt *sliceable(const finder *f, const moec_kstmt *team) {
  const moec_kstmt *found = NULL;
  for (size_t i = 0; i < team->body.n; i++) {
    const moec_kstmt *st = &team->body.v[i];
    if (st->kind != MOEC_KSTMT_LOOP || moec_lanes_share(f->l, st)) continue;
    if (found) return NULL;
    found = st;
  }
  return found;
}

static const moec_kstmt *team_loop(const moec_kernel *k) {
  for (size_t i = 0; i < k->body.n; i++) {
    const moec_kstmt *st = &k->body.v[i];
    if (st->kind != MOEC_KSTMT_LOOP) continue;
    if (k->vars[st->id].kind == MOEC_KVAR_CHUNK || k->vars[st->id].kind == MOEC_KVAR_BLOCK) return st;
  }
  return NULL;
}

/* Makes the team one of slices, where its sums allow that. */
static void find_slices(finder *f) {
  moec_lanes *l = f->l;
  const moec_kstmt *team = team_loop(f->k), *loop = team ? sliceable(f, team) : NULL;
  bool blocks = in_blocks(f->k), any = false;
  bool *gathers = MOEC_NEW_ARRAY(f->a, bool, f->k->n_temps + 1);
  bool *begins = MOEC_NEW_ARRAY(f->a, bool, f->k->n_temps + 1);
  if (!loop || l->width == 1) return;
  if (blocks) set_team(f, 32, 32);
  bool can = l->width <= 32 && look_into(f, &loop->body, gathers, begins);
  for (size_t i = 0; i < f->k->n_temps; i++) {
    can = can && l->temps[i].registers;
    any = any || (gathers[i] && !begins[i]);
  }
  if (!can || !(any || loop->n_accs)) {
    if (blocks) choose_team(f);
    return;
  }
  for (size_t i = 0; i < f->k->n_temps; i++) l->temps[i].of_slices = gathers[i] && !begins[i];
  l->sliced = loop, l->threads = blocks ? LARGEST : BLOCK, l->slices = l->threads / l->width, l->teams = 1;
}

/* ---- what stays in registers ------------------------------------------------------------------ */

/* A load in a loop whose threads take the same each time. */
typedef struct row_load {
  moec_kx x;
  uint32_t var, uses;
} row_load;
typedef struct row_loads {
  row_load *v;
  size_t n, cap;
} row_loads;

/* Finds |x| among those before it, or becomes one of them. */
static row_load *same_load(finder *f, row_loads *all, moec_kx x, uint32_t var) {
  const moec_cuda_share *mine = &f->l->shares[var];
  f->l->same[x.i] = (moec_cuda_same){x, 0};
  for (size_t i = 0; i < all->n; i++) {
    const moec_cuda_share *s = &f->l->shares[all->v[i].var];
    int64_t by = 0, turn = (int64_t)f->l->width * s->v;
    bool again = all->v[i].x.i == x.i;
    if (!again) {
      if (!s->exact || !mine->exact || s->v != mine->v) continue;
      if (!moec_vector_again(f->k, x, var, all->v[i].x, all->v[i].var, &by) || by < 0 || by % turn) continue;
      if (by / turn + mine->trips > s->trips) continue;
    }
    f->l->same[x.i] = (moec_cuda_same){all->v[i].x, (uint32_t)(by / turn)};
    return &all->v[i];
  }
  MOEC_PUSH(f->a, all->v, all->n, all->cap, ((row_load){x, var, 0}));
  return &all->v[all->n - 1];
}

/* The registers of temporaries. */
static int64_t registers_of_temps(const finder *f) {
  int64_t n = 0;
  for (size_t i = 0; i < f->k->n_temps; i++) {
    const moec_cuda_share *s = &f->l->shares[f->k->temps[i].vars[0]];
    if (f->l->temps[i].registers) n += (int64_t)s->trips * s->v;
  }
  return n;
}

static void find_kept(finder *f) {
  moec_lanes *l = f->l;
  row_loads all = {0};
  int64_t registers = registers_of_temps(f);
  for (size_t i = 0; i < l->n_loops; i++) {
    uint32_t var = l->loops[i]->id;
    const moec_cuda_share *s = &l->shares[var];
    moec_kx *loads;
    if (!s->trips || s->v == 1) continue;
    size_t n = moec_vector_loads(f->a, f->k, l->loops[i], &loads);
    for (size_t j = 0; j < n; j++) {
      const moec_kx_node *x = &f->k->nodes[loads[j].i];
      bool shared = x->vars == UINT64_C(1) << var; /* by all rows */
      if (!moec_vector_load(f->k, loads[j], var, s->v)) continue;
      row_load *load = same_load(f, &all, loads[j], var);
      const moec_cuda_share *first = &l->shares[load->var];
      int64_t size = (int64_t)moec_dtype_get(f->k->bufs[x->id].dtype)->bytes * first->v * first->trips / 4;
      if (++load->uses < 2) continue;
      if (load->uses == 2 && !shared && registers + size <= KEPT) registers += size, l->keep[load->x.i] = true;
      l->again[loads[j].i] = l->again[load->x.i] = true;
    }
  }
  l->registers = (uint32_t)registers;
}

/* A row of a thread's own that is one element of a dense result: several rows at a time. */
static void find_row(finder *f) {
  for (size_t i = 0; i < f->k->body.n; i++) {
    const moec_kstmt *st = &f->k->body.v[i];
    if (st->kind != MOEC_KSTMT_LOOP || !st->simd || f->k->vars[st->id].kind != MOEC_KVAR_ROW || st->n_accs) continue;
    f->l->shares[st->id].v = moec_vector_of(f->a, f->k, &st, 1, st->id);
    MOEC_PUSH(f->a, f->l->loops, f->l->n_loops, f->l->cap_loops, st);
  }
}

static moec_lanes *new_lanes(moec_arena *a, const moec_kernel *k, bool operand) {
  moec_lanes *l = MOEC_NEW(a, moec_lanes);
  *l = (moec_lanes){.a = a, .operand = operand, .slices = 1};
  l->shares = MOEC_NEW_ARRAY(a, moec_cuda_share, k->n_vars + 1);
  l->keep = MOEC_NEW_ARRAY(a, bool, k->n_nodes + 1);
  l->same = MOEC_NEW_ARRAY(a, moec_cuda_same, k->n_nodes + 1);
  l->again = MOEC_NEW_ARRAY(a, bool, k->n_nodes + 1);
  l->kept = MOEC_NEW_ARRAY(a, uint32_t, k->n_nodes + 1);
  l->kept_at = MOEC_NEW_ARRAY(a, int, k->n_nodes + 1);
  for (size_t i = 0; i < k->n_vars; i++) l->shares[i].v = 1;
  return l;
}

moec_lanes *moec_lanes_of(moec_arena *a, const moec_kernel *k, bool operand) {
  moec_lanes *l = new_lanes(a, k, operand);
  finder f = {a, k, l};
  choose(&f, &k->body);
  find_temps(&f);
  find_shares(&f);
  if (operand) {
    set_team(&f, 32, 32);
  } else {
    choose_team(&f);
    find_slices(&f);
  }
  if (l->width == 1) {
    l->n_loops = 0;
    for (size_t i = 0; i < k->n_vars; i++) l->shares[i] = (moec_cuda_share){.v = 1};
    find_row(&f);
  }
  for (size_t i = 0; (operand || l->width == 1) && i < k->n_temps; i++) {
    if (operand && !l->temps[i].own) l->n_loops = 0; /* its temporaries are local: every thread does everything */
    if (l->width == 1) l->temps[i].own = true;
  }
  find_kept(&f);
  place_temps(&f);
  return l;
}
