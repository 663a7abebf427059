/* ---- products of experts on Hopper's matrix units ------------------------------------------------
 * bf16 operands, sums in f32. A block stays on its multiprocessor and takes tile after tile: whichever is next, since
 * some take longer. One thread fills a ring of stages in shared memory by TMA, running ahead; two warpgroups multiply,
 * 64 of the tile's 128 rows each. An operand's stage is made of boxes of 64 x 64 elements, rows of 128 bytes, swizzled
 * as wgmma reads them:
 *
 *   DOT_T   y = rows[n, k] * w[e][m, k]^T     both operands lie along k
 *   DOT     y = rows[n, k] * w[e][k, m]       w lies across: wgmma transposes it
 *   OUTER   y[e] = dy[n, m]^T * x[n, k]       both lie across; k of the product is the rows of an expert
 *
 * Where the rows of an expert end is read here, from the offsets. DOT reads on into the next expert's rows and stores
 * none of them; OUTER sets what it read of them to zero. A tile may be made of two pieces of the result, as wide as
 * each other and as far apart as its halves, for what is made of both (grouped_activation.cu). Tiles of one expert
 * follow each other, so that what blocks read at the same time is in the cache. Two blocks that load the right operand
 * for each other, a cluster, were not faster where experts have many rows, and slower where tiles are not full. */

enum { MOEC_WG_DOT_T, MOEC_WG_DOT, MOEC_WG_OUTER };
enum {
  MOEC_WG_ROWS = 128,
  MOEC_WG_COLUMNS = 256,
  MOEC_WG_BOX = 64 * 64 * 2,
  MOEC_WG_STAGES = 4,
  MOEC_WG_SLOTS = 2, /* boxes of 16 x 64 results that a warp may have under way */
  MOEC_WG_SLOT = 16 * 64 * 2,
  MOEC_WG_EXPERTS = 512,
  MOEC_WG_HIGH = 16, /* tiles, one below the other, that come before those beside them */
  MOEC_WG_HIGH_OUTER = 4,
  MOEC_WG_STAGE = 6 * MOEC_WG_BOX, /* two boxes of the left operand, four of the right */
  MOEC_WG_THREADS = 384
};

typedef struct __align__(64) moec_cuda_tensor_map {
  uint64_t words[16];
} moec_cuda_tensor_map;

/* A tile: |rows| rows from |row| of y (of expert |e|'s matrix for OUTER), columns from |column|, |depth| elements of
 * the product's depth from |from| (rows of the operands for OUTER); -1: there are no more tiles. */
typedef struct moec_wg_tile {
  int32_t e, row, rows, column, from, depth;
} moec_wg_tile;

/* A stage that begins a tile comes with it; one of no depth has a stage all the same. */
typedef struct moec_wg_shared {
  uint8_t stages[MOEC_WG_STAGES][MOEC_WG_STAGE];
  uint8_t slots[8][MOEC_WG_SLOTS][MOEC_WG_SLOT];
  uint64_t full[MOEC_WG_STAGES], empty[MOEC_WG_STAGES];
  moec_wg_tile tiles[MOEC_WG_STAGES];
  int32_t offsets[MOEC_WG_EXPERTS + 1];
} moec_wg_shared;
static_assert(sizeof(moec_wg_shared) <= 231680, "MOEC_CUDA_WGMMA_SHARED of include/cuda_abi.h");

extern __shared__ __align__(1024) uint8_t moec_wg_memory[];

/* ---- instructions --------------------------------------------------------------------------- */

MOEC_INLINE uint32_t moec_wg_address(const void *shared) {
  uint32_t a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(shared));
  return a;
}
MOEC_INLINE void moec_wg_barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
MOEC_INLINE void moec_wg_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}
MOEC_INLINE void moec_wg_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
MOEC_INLINE void moec_wg_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
MOEC_INLINE void moec_wg_load(uint32_t to, const moec_cuda_tensor_map *map, uint32_t barrier, int32_t x, int32_t y,
                              int32_t z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
               "[%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
               : "memory");
}
MOEC_INLINE void moec_wg_store(const moec_cuda_tensor_map *map, uint32_t from, int32_t x, int32_t y, int32_t z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y), "r"(z)
               : "memory");
}
/* What this thread stored, but the newest |n|, has left shared memory. */
#define MOEC_WG_STORES_LEFT(n) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(n) : "memory")
MOEC_INLINE void moec_wg_store_end(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/* Ordinary writes to shared memory come before what TMA and wgmma read. */
MOEC_INLINE void moec_wg_publish(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
MOEC_INLINE void moec_wg_group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }
MOEC_INLINE void moec_wg_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
MOEC_INLINE void moec_wg_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define MOEC_WG_PENDING(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")

/* Where an operand begins, for wgmma: rows of 128 bytes, swizzled; 8 rows are 1024 bytes. Of one that lies across, the
 * next 64 columns are a box away. */
MOEC_INLINE uint64_t moec_wg_operand(uint32_t address) {
  return (uint64_t)(address >> 4) | (uint64_t)(MOEC_WG_BOX >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

#define MOEC_WG_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MOEC_WG_D8(i) MOEC_WG_D4(i), MOEC_WG_D4(i + 4)
/* d = (add ? d : 0) + a * b, 64 x 256, 16 deep. */
#define MOEC_WG_MULTIPLY(name, across_a, across_b)                                                                 \
  MOEC_INLINE void name(float *d, uint64_t a, uint64_t b, int add) {                                               \
    asm volatile(                                                                                                  \
        "{ .reg .pred p; setp.ne.b32 p, %130, 0;\n"                                                                \
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"                                                  \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"   \
        "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53," \
        "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,"     \
        "%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,"     \
        "%124,%125,%126,%127}, %128, %129, p, 1, 1, " across_a ", " across_b "; }"                                 \
        : MOEC_WG_D8(0), MOEC_WG_D8(8), MOEC_WG_D8(16), MOEC_WG_D8(24), MOEC_WG_D8(32), MOEC_WG_D8(40),            \
          MOEC_WG_D8(48), MOEC_WG_D8(56), MOEC_WG_D8(64), MOEC_WG_D8(72), MOEC_WG_D8(80), MOEC_WG_D8(88),          \
          MOEC_WG_D8(96), MOEC_WG_D8(104), MOEC_WG_D8(112), MOEC_WG_D8(120)                                        \
        : "l"(a), "l"(b), "r"(add));                                                                               \
  }
MOEC_WG_MULTIPLY(moec_wg_multiply_dot_t, "0", "0")
MOEC_WG_MULTIPLY(moec_wg_multiply_dot, "0", "1")
MOEC_WG_MULTIPLY(moec_wg_multiply_outer, "1", "1")

/* 16 more of the product's depth; |k|: which 16 of a stage. */
MOEC_INLINE void moec_wg_multiply(const int form, float *d, uint64_t a, uint64_t b, int k, int add) {
  const int along = 16 * 2 >> 4, across = 16 * 128 >> 4;
  if (form == MOEC_WG_DOT_T) moec_wg_multiply_dot_t(d, a + k * along, b + k * along, add);
  if (form == MOEC_WG_DOT) moec_wg_multiply_dot(d, a + k * along, b + k * across, add);
  if (form == MOEC_WG_OUTER) moec_wg_multiply_outer(d, a + k * across, b + k * across, add);
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* What a kernel is asked for. Of the result y[.., rows, columns]; |depth| is 0 for OUTER. */
typedef struct moec_wg_task {
  const moec_cuda_tensor_map *a, *b, *y_map;
  const void *bias;
  void *y;
  int32_t *turn;
  int32_t bias_dtype, y_dtype;
  int64_t experts, rows, columns, depth;
  int64_t half; /* columns of a half, where a tile has the same columns of both; else 0 */
} moec_wg_task;

/* What a tile's columns are counted in: columns, or pairs of them. */
MOEC_INLINE int32_t moec_wg_side(const moec_wg_task *t) { return t->half ? MOEC_WG_COLUMNS / 2 : MOEC_WG_COLUMNS; }
MOEC_INLINE int32_t moec_wg_end(const moec_wg_task *t) { return (int32_t)(t->half ? t->half : t->columns); }
/* The columns behind the middle of a tile are so much further than they would be if it were in one piece. */
MOEC_INLINE int32_t moec_wg_gap(const moec_wg_task *t) { return t->half ? (int32_t)t->half - MOEC_WG_COLUMNS / 2 : 0; }

/* Where in the list of tiles. */
typedef struct moec_wg_place {
  int64_t tile, before; /* before: tiles of the experts in front of e */
  int32_t e, down;      /* tiles of e, one below the other */
} moec_wg_place;

#define MOEC_WG_SHARED ((moec_wg_shared *)moec_wg_memory)

/* Tile number p->tile, which is not before the last one; 0: there are not so many. */
MOEC_INLINE int moec_wg_find(const int form, const moec_wg_task *t, moec_wg_place *p, moec_wg_tile *out) {
  const int32_t side = MOEC_WG_ROWS, *offsets = MOEC_WG_SHARED->offsets;
  const int32_t across = (moec_wg_end(t) + moec_wg_side(t) - 1) / moec_wg_side(t);
  for (;; p->e++, p->before += (int64_t)p->down * across) {
    if (p->e >= t->experts) return 0;
    const int32_t rows = form == MOEC_WG_OUTER ? (int32_t)t->rows : offsets[p->e + 1] - offsets[p->e];
    p->down = (rows + side - 1) / side;
    if (p->tile < p->before + (int64_t)p->down * across) break;
  }
  const int32_t many = form == MOEC_WG_OUTER ? MOEC_WG_HIGH_OUTER : MOEC_WG_HIGH;
  const int32_t at = (int32_t)(p->tile - p->before), first = at / (many * across) * many, in = at - first * across;
  const int32_t high = p->down - first < many ? p->down - first : many, row = (first + in % high) * side;
  const int32_t begin = offsets[p->e], n = offsets[p->e + 1] - begin;
  const int32_t left = (form == MOEC_WG_OUTER ? (int32_t)t->rows : n) - row;
  out->e = p->e;
  out->row = form == MOEC_WG_OUTER ? row : begin + row;
  out->rows = left < side ? left : side;
  out->column = in / high * moec_wg_side(t);
  out->from = form == MOEC_WG_OUTER ? begin : 0;
  out->depth = form == MOEC_WG_OUTER ? n : (int32_t)t->depth;
  return 1;
}

/* ---- loading -------------------------------------------------------------------------------- */

/* A box of 64 rows of an operand, or of 64 columns of one that lies |across|. */
MOEC_INLINE void moec_wg_load_box(uint32_t to, const moec_cuda_tensor_map *map, uint32_t barrier, const int across,
                                  int32_t along, int32_t depth, int32_t z) {
  moec_wg_load(to, map, barrier, across ? along : depth, across ? depth : along, z);
}

MOEC_INLINE void moec_wg_advance(uint32_t *s, uint32_t *round) {
  if (++*s == MOEC_WG_STAGES) *s = 0, ++*round;
}

/* Stage |s| of tile |w|, from |at| of its depth on. */
MOEC_INLINE void moec_wg_fill(const int form, const moec_wg_task *t, const moec_wg_tile *w, int32_t at, uint32_t s) {
  const uint32_t to = moec_wg_address(MOEC_WG_SHARED->stages[s]), barrier = moec_wg_address(&MOEC_WG_SHARED->full[s]);
  const int across_a = form == MOEC_WG_OUTER, across_b = form != MOEC_WG_DOT_T, boxes = w->rows > 64 ? 2 : 1; /* of a */
  moec_wg_expect(barrier, (4 + boxes) * MOEC_WG_BOX);
  for (int i = 0; i < boxes; i++)
    moec_wg_load_box(to + i * MOEC_WG_BOX, t->a, barrier, across_a, w->row + 64 * i, w->from + at, 0);
  for (int i = 0; i < 4; i++)
    moec_wg_load_box(to + (2 + i) * MOEC_WG_BOX, t->b, barrier, across_b,
                     w->column + 64 * i + (i < 2 ? 0 : moec_wg_gap(t)), w->from + at, form == MOEC_WG_OUTER ? 0 : w->e);
}

/* One thread. Which tile is next is asked for a tile ahead. The last block leaves |turn| as it was found. */
MOEC_INLINE void moec_wg_produce(const int form, const moec_wg_task *t) {
  moec_wg_place p = {blockIdx.x, 0, 0, 0};
  uint32_t s = 0, round = 0;
  for (;;) {
    moec_wg_tile w;
    const int32_t next = (int32_t)gridDim.x + atomicAdd(&t->turn[0], 1);
    if (!moec_wg_find(form, t, &p, &w)) w.depth = -1;
    for (int32_t at = 0; at < w.depth || at == 0; at += 64) {
      moec_wg_wait(moec_wg_address(&MOEC_WG_SHARED->empty[s]), (round & 1) ^ 1);
      if (at == 0) MOEC_WG_SHARED->tiles[s] = w;
      if (w.depth > 0) moec_wg_fill(form, t, &w, at, s);
      else moec_wg_arrive(moec_wg_address(&MOEC_WG_SHARED->full[s]));
      moec_wg_advance(&s, &round);
    }
    if (w.depth < 0) break;
    p.tile = next;
  }
  __threadfence();
  if (atomicAdd(&t->turn[1], 1) == (int32_t)gridDim.x - 1) t->turn[0] = 0, t->turn[1] = 0;
}

/* ---- multiplying ---------------------------------------------------------------------------- */

/* Rows |from|.. of what group |g| reads of a stage become zero. */
MOEC_INLINE void moec_wg_clear(uint8_t *stage, int g, int32_t from) {
  const int rows = 64 - from, self = threadIdx.x % 128;
  for (int i = self; i < rows * 5 * 8; i += 128) {
    const int box = i / 8 % 5 ? i / 8 % 5 + 1 : g, row = from + i / 40;
    *(uint4 *)(stage + box * MOEC_WG_BOX + row * 128 + i % 8 * 16) = make_uint4(0, 0, 0, 0);
  }
  moec_wg_publish();
  moec_wg_group_sync(g);
}

MOEC_INLINE void moec_wg_release(uint32_t stage) {
  if (threadIdx.x % 32 == 0) moec_wg_arrive(moec_wg_address(&MOEC_WG_SHARED->empty[stage]));
}

/* The compiler has to see that the threads of a warp go the same way, or it lets wgmma wait. */
#define MOEC_WG_SAME(v) __shfl_sync(0xffffffffu, v, 0)

/* The stage a consumer is at. */
typedef struct moec_wg_ring {
  uint32_t s, round;
} moec_wg_ring;

MOEC_INLINE void moec_wg_await(const moec_wg_ring *r) {
  moec_wg_wait(moec_wg_address(&MOEC_WG_SHARED->full[r->s]), r->round & 1);
}

/* Read by the thread that says for its warp that the stage may be filled again. */
MOEC_INLINE moec_wg_tile moec_wg_tile_of(uint32_t stage) {
  moec_wg_tile w = {};
  if (threadIdx.x % 32 == 0) w = MOEC_WG_SHARED->tiles[stage];
  w.column = MOEC_WG_SAME(w.column), w.row = MOEC_WG_SAME(w.row), w.rows = MOEC_WG_SAME(w.rows);
  w.e = MOEC_WG_SAME(w.e), w.from = MOEC_WG_SAME(w.from), w.depth = MOEC_WG_SAME(w.depth);
  return w;
}

/* Stages of which nothing is needed. */
MOEC_INLINE void moec_wg_skip(int32_t depth, moec_wg_ring *r) {
  for (int32_t at = 0; at < depth || at == 0; at += 64) {
    moec_wg_await(r);
    moec_wg_release(r->s);
    moec_wg_advance(&r->s, &r->round);
  }
}

/* d = a tile's product, the part of group |g|. What is read of a stage is known to be over when the next one's products
 * are under way. */
MOEC_INLINE void moec_wg_tile_product(const int form, int32_t depth, int g, moec_wg_ring *r, float *d) {
  const uint32_t stages = moec_wg_address(MOEC_WG_SHARED->stages);
  uint32_t last = 0;
  for (int32_t at = 0; at < depth; at += 64) {
    const uint32_t stage = stages + r->s * MOEC_WG_STAGE;
    const uint64_t a = moec_wg_operand(stage + g * MOEC_WG_BOX), b = moec_wg_operand(stage + 2 * MOEC_WG_BOX);
    moec_wg_await(r);
    if (form == MOEC_WG_OUTER && depth - at < 64) moec_wg_clear(MOEC_WG_SHARED->stages[r->s], g, depth - at);
    moec_wg_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) moec_wg_multiply(form, d, a, b, k, at + k > 0);
    moec_wg_commit();
    MOEC_WG_PENDING(1);
    if (at) moec_wg_release(last);
    last = r->s;
    moec_wg_advance(&r->s, &r->round);
  }
  MOEC_WG_PENDING(0);
  moec_wg_release(last);
}

/* ---- storing -------------------------------------------------------------------------------- */

MOEC_INLINE uint32_t moec_wg_pack(float low, float high) {
  uint32_t v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}

/* A thread has columns 8 j + 2 (lane % 4) and the next, of rows lane / 4 (d[4 j], d[4 j + 1]) and lane / 4 + 8
 * (d[4 j + 2], d[4 j + 3]) of its warp's 16. */
MOEC_INLINE void moec_wg_add_bias(const moec_wg_task *t, const moec_wg_tile *w, float *d) {
  const int64_t first = (int64_t)w->e * t->columns;
#pragma unroll
  for (int j = 0; j < 32; j++) {
    const int32_t c = w->column + 8 * j + 2 * (threadIdx.x % 4) + (j < 16 ? 0 : moec_wg_gap(t));
    if (c >= t->columns) continue;
    const float x = moec_load_f32(t->bias_dtype, t->bias, first + c);
    const float y = moec_load_f32(t->bias_dtype, t->bias, first + c + 1);
    d[4 * j] += x, d[4 * j + 1] += y, d[4 * j + 2] += x, d[4 * j + 3] += y;
  }
}

MOEC_INLINE void moec_wg_store_f32(const moec_wg_task *t, const moec_wg_tile *w, int64_t first, int row, int rows,
                                   const float *d) {
  float *y = (float *)t->y + (first + row) * t->columns;
#pragma unroll
  for (int j = 0; j < 32; j++) {
    const int32_t c = w->column + 8 * j + 2 * (threadIdx.x % 4);
    if (c >= t->columns) break;
    if (row < rows) *(float2 *)(y + c) = make_float2(d[4 * j], d[4 * j + 1]);
    if (row + 8 < rows) *(float2 *)(y + 8 * t->columns + c) = make_float2(d[4 * j + 2], d[4 * j + 3]);
  }
}

/* Where 16 rows of 64 results go: a box of a map, and its |rows| by |columns| first elements in memory. */
typedef struct moec_wg_box {
  const moec_cuda_tensor_map *map;
  int32_t x, y, z, rows, columns;
  uint16_t *at;
  int64_t stride;
} moec_wg_box;

/* A warp's 16 rows of 64 results, packed in pairs as a thread has them, by way of the warp's slot number |use|: by TMA
 * where all rows are the expert's. */
MOEC_INLINE void moec_wg_store_box(const moec_wg_box *box, int use, const uint32_t *v) {
  const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
  const int to = (lane & 7) + (lane & 8), chunk = lane >> 4;
  uint8_t *slot = MOEC_WG_SHARED->slots[warp][use % MOEC_WG_SLOTS];
  const uint32_t address = moec_wg_address(slot);
  if (lane == 0) MOEC_WG_STORES_LEFT(MOEC_WG_SLOTS - 1);
  __syncwarp();
#pragma unroll
  for (int j = 0; j < 8; j += 2)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     address + to * 128 + (((j + chunk) ^ (to & 7)) << 4)),
                 "r"(v[2 * j]), "r"(v[2 * j + 1]), "r"(v[2 * j + 2]), "r"(v[2 * j + 3])
                 : "memory");
  if (box->rows >= 16) {
    moec_wg_publish();
    __syncwarp();
    if (lane == 0) moec_wg_store(box->map, address, box->x, box->y, box->z);
  } else {
    __syncwarp();
    for (int i = lane; i < 128; i += 32) {
      const int r = i / 8, c = i % 8 * 8;
      if (r < box->rows && c < box->columns)
        *(uint4 *)(box->at + r * box->stride + c) = *(const uint4 *)(slot + r * 128 + ((i % 8 ^ (r & 7)) << 4));
    }
  }
  if (lane == 0) moec_wg_store_end();
}

MOEC_INLINE void moec_wg_store_bf16(const int form, const moec_wg_task *t, const moec_wg_tile *w, int64_t first,
                                    int row, int rows, const float *d) {
#pragma unroll
  for (int c = 0; c < 4; c++) {
    const int32_t column = w->column + 64 * c;
    const moec_wg_box box = {t->y_map, column, w->row + row, form == MOEC_WG_OUTER ? w->e : 0,
                             form == MOEC_WG_OUTER ? 16 : rows - row, (int32_t)t->columns - column,
                             (uint16_t *)t->y + (first + row) * t->columns + column, t->columns};
    uint32_t v[16];
#pragma unroll
    for (int i = 0; i < 16; i++) v[i] = moec_wg_pack(d[32 * c + 2 * i], d[32 * c + 2 * i + 1]);
    moec_wg_store_box(&box, c, v);
  }
}

/* An expert without rows: zeros, of the part of group |g|. */
MOEC_INLINE void moec_wg_store_zeros(const moec_wg_task *t, const moec_wg_tile *w, int g) {
  const int32_t rows = w->rows - 64 * g < 64 ? w->rows - 64 * g : 64;
  const int bytes = t->y_dtype == MOEC_F32 ? 4 : 2, pieces = MOEC_WG_COLUMNS * bytes / 16;
  for (int i = threadIdx.x % 128; i < rows * pieces; i += 128) {
    const int32_t column = w->column + i % pieces * (16 / bytes);
    const int64_t row = (int64_t)w->e * t->rows + w->row + 64 * g + i / pieces;
    if (column < t->columns) *(uint4 *)((uint8_t *)t->y + (row * t->columns + column) * bytes) = make_uint4(0, 0, 0, 0);
  }
}

/* The next tile's product of group |g|, of which there is something: 1; 0: there are no more. */
MOEC_INLINE int moec_wg_take(const int form, const moec_wg_task *t, int g, moec_wg_ring *ring, moec_wg_tile *w,
                             float *d) {
  for (;;) {
    moec_wg_await(ring);
    *w = moec_wg_tile_of(ring->s);
    if (w->depth < 0) return 0;
    if (w->rows > 64 * g && w->depth > 0) break;
    if (w->rows > 64 * g) moec_wg_store_zeros(t, w, g);
    moec_wg_skip(w->depth, ring);
  }
  moec_wg_tile_product(form, w->depth, g, ring, d);
  if (form != MOEC_WG_OUTER && t->bias) moec_wg_add_bias(t, w, d);
  return 1;
}

/* Which group of 64 rows this thread multiplies, and the first of its warp's 16 rows in a tile. */
MOEC_INLINE int moec_wg_group(void) { return MOEC_WG_SAME(threadIdx.x / 128 - 1); }
MOEC_INLINE int moec_wg_row(int g) { return 64 * g + 16 * (threadIdx.x / 32 % 4); }

MOEC_INLINE void moec_wg_consume(const int form, const moec_wg_task *t) {
  const int g = moec_wg_group(), row = moec_wg_row(g), lane = threadIdx.x % 32;
  moec_wg_ring ring = {0, 0};
  moec_wg_tile w;
  float d[128];
  while (moec_wg_take(form, t, g, &ring, &w, d)) {
    const int64_t first = form == MOEC_WG_OUTER ? (int64_t)w.e * t->rows + w.row : w.row;
    if (t->y_dtype == MOEC_F32) moec_wg_store_f32(t, &w, first, row + lane / 4, w.rows, d);
    else moec_wg_store_bf16(form, t, &w, first, row, w.rows, d);
  }
  if (lane == 0) MOEC_WG_STORES_LEFT(0);
}

MOEC_INLINE void moec_wg_begin(const moec_wg_task *t, const int32_t *offsets) {
  const int n = (int)t->experts + 1;
  for (int i = threadIdx.x; i < n; i += MOEC_WG_THREADS) MOEC_WG_SHARED->offsets[i] = offsets[i];
  if (threadIdx.x == 0) {
    for (int s = 0; s < MOEC_WG_STAGES; s++) {
      moec_wg_barrier_init(moec_wg_address(&MOEC_WG_SHARED->full[s]), 1);
      moec_wg_barrier_init(moec_wg_address(&MOEC_WG_SHARED->empty[s]), 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    moec_wg_publish();
  }
  __syncthreads();
}

/* Registers go from the warps that load to those that multiply, which do |consume|. */
#define MOEC_WG_RUN(form, t, offsets, consume)                \
  moec_wg_begin(t, offsets);                                  \
  if (threadIdx.x < 128) {                                    \
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");      \
    if (threadIdx.x == 0) moec_wg_produce(form, t);           \
  } else {                                                    \
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");     \
    consume;                                                  \
  }

#define MOEC_WG_DOT_KERNEL(name, form)                                                                               \
  extern "C" __global__ void __launch_bounds__(MOEC_WG_THREADS, 1)                                                   \
  name(const __grid_constant__ moec_cuda_tensor_map rows, const __grid_constant__ moec_cuda_tensor_map w,            \
       const __grid_constant__ moec_cuda_tensor_map y_map, const int32_t *__restrict__ offsets,                      \
       const void *__restrict__ bias, int32_t bias_dtype, void *__restrict__ y, int32_t y_dtype, int64_t experts,    \
       int64_t k, int64_t m, int32_t *turn) {                                                                        \
    const moec_wg_task t = {&rows, &w, &y_map, bias, y, turn, bias_dtype, y_dtype, experts, 0, m, k, 0};             \
    MOEC_WG_RUN(form, &t, offsets, moec_wg_consume(form, &t))                                                        \
  }
MOEC_WG_DOT_KERNEL(moec_wgmma_dot_t, MOEC_WG_DOT_T)
MOEC_WG_DOT_KERNEL(moec_wgmma_dot, MOEC_WG_DOT)

extern "C" __global__ void __launch_bounds__(MOEC_WG_THREADS, 1)
moec_wgmma_outer(const __grid_constant__ moec_cuda_tensor_map dy, const __grid_constant__ moec_cuda_tensor_map x,
                 const __grid_constant__ moec_cuda_tensor_map y_map, const int32_t *__restrict__ offsets,
                 void *__restrict__ y, int32_t y_dtype, int64_t experts, int64_t m, int64_t k, int32_t *turn) {
  const moec_wg_task t = {&dy, &x, &y_map, 0, y, turn, 0, y_dtype, experts, m, k, 0, 0};
  MOEC_WG_RUN(MOEC_WG_OUTER, &t, offsets, moec_wg_consume(MOEC_WG_OUTER, &t))
}
