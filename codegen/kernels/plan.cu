/* ---- moe.plan --------------------------------------------------------------------------------------
 * A stable counting sort of assignments by expert. Each block has |per_block| of them, in order, and each of its 32
 * warps a 32nd of these. Blocks count their experts in counts[block][expert]; then every block adds up what stands
 * before it, sees how many its own warps have, and hands out rows in order. Of a single block, which knows all
 * counts, the second launch is enough. */

enum {
  MOEC_PLAN_THREADS = 1024,
  MOEC_PLAN_GROUP = 256, /* experts at a time: their tables fit shared memory */
};

/* The expert of assignment |a|, inside the table whatever was chosen; -1 behind the last. */
MOEC_INLINE int32_t moec_expert_of(const int64_t *experts_of, int64_t a, int64_t end, int64_t experts) {
  if (a >= end) return -1;
  const int64_t e = experts_of[a];
  return (int32_t)(e < 0 ? 0 : e < experts ? e : experts - 1);
}

/* Lanes of the warp with the same expert as this one: how many in all and in lower lanes. */
typedef struct moec_peers {
  int32_t all, before;
} moec_peers;
MOEC_INLINE moec_peers moec_peers_of(int32_t e) {
  const uint32_t same = __match_any_sync(0xffffffffu, e);
  return {__popc(same), __popc(same & ((1u << threadIdx.x % 32) - 1))};
}

extern "C" __global__ void __launch_bounds__(1024)
moec_plan_count(const int64_t *experts_of, int64_t n, int64_t experts, int64_t per_block, int32_t *counts) {
  __shared__ int32_t own[MOEC_PLAN_GROUP];
  const int64_t begin = blockIdx.x * per_block, end = moec_least(begin + per_block, n);
  for (int64_t first = 0; first < experts; first += MOEC_PLAN_GROUP) {
    if (threadIdx.x < MOEC_PLAN_GROUP) own[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t a = begin + threadIdx.x; a < end; a += MOEC_PLAN_THREADS) {
      const int64_t e = moec_expert_of(experts_of, a, end, experts) - first;
      if (e >= 0 && e < MOEC_PLAN_GROUP) atomicAdd(&own[e], 1);
    }
    __syncthreads();
    const int64_t e = first + threadIdx.x;
    if (threadIdx.x < MOEC_PLAN_GROUP && e < experts) counts[blockIdx.x * experts + e] = own[threadIdx.x];
    __syncthreads();
  }
}

/* Adds to all[e] what the blocks counted, to before[e] what those before this one did; here: experts of the group. */
MOEC_INLINE void moec_plan_totals(const int32_t *counts, int64_t experts, int32_t here, int32_t *all, int32_t *before) {
  const int32_t across = here <= 128 ? 128 : MOEC_PLAN_GROUP, e = threadIdx.x % across;
  int32_t sum = 0, earlier = 0;
  if (e >= here || gridDim.x == 1) return;
#pragma unroll 8
  for (uint32_t b = threadIdx.x / across; b < gridDim.x; b += MOEC_PLAN_THREADS / across) {
    const int32_t count = counts[b * experts + e];
    sum += count;
    if (b < blockIdx.x) earlier += count;
  }
  atomicAdd(&all[e], sum);
  atomicAdd(&before[e], earlier);
}

/* One warp: before[e] becomes the first row of the block, for each expert of the group. Gives the rows so far. */
MOEC_INLINE int32_t moec_plan_rows(int32_t so_far, int32_t here, const int32_t *all, int32_t *before,
                                   int32_t *offsets) {
  for (int32_t e = threadIdx.x; e - (int32_t)threadIdx.x < here; e += 32) {
    const int32_t own = e < here ? all[e] : 0;
    int32_t sum = own;
    for (int d = 1; d < 32; d *= 2) {
      const int32_t other = __shfl_up_sync(0xffffffffu, sum, d);
      if ((int)threadIdx.x >= d) sum += other;
    }
    if (e < here) before[e] += so_far + sum - own;
    if (e < here && blockIdx.x == 0) offsets[e] = so_far + sum - own;
    so_far += __shfl_sync(0xffffffffu, sum, 31);
  }
  return so_far;
}

/* How many of its assignments, for the experts of the group at |first|, this warp has. */
MOEC_INLINE void moec_plan_own(const int64_t *experts_of, int64_t begin, int64_t end, int64_t experts, int64_t first,
                               int32_t here, int32_t *own, int32_t *fault) {
  for (int64_t at = begin; at < end; at += 32) {
    const int64_t a = at + threadIdx.x % 32;
    const int32_t e = moec_expert_of(experts_of, a, end, experts);
    const moec_peers peers = moec_peers_of(e);
    if (e >= 0 && e != experts_of[a]) *fault = 1;
    if (e >= first && e - first < here && peers.before == 0) own[e - first] += peers.all;
    __syncwarp();
  }
}

/* Gives rows to the assignments of this warp: begins[e] of the block, next[e] in front of the warp's next. */
MOEC_INLINE void moec_plan_hand_out(const int64_t *experts_of, int64_t begin, int64_t end, int64_t experts,
                                    int64_t first, int32_t here, const int32_t *begins, int32_t *next, int32_t *perm,
                                    int32_t *inv) {
  for (int64_t at = begin; at < end; at += 32) {
    const int64_t a = at + threadIdx.x % 32;
    const int32_t e = moec_expert_of(experts_of, a, end, experts);
    const moec_peers peers = moec_peers_of(e);
    const bool mine = e >= first && e - first < here;
    const int32_t row = mine ? begins[e - first] + next[e - first] + peers.before : 0;
    __syncwarp();
    if (mine && peers.before == 0) next[e - first] += peers.all;
    if (mine) perm[row] = (int32_t)a, inv[a] = row;
    __syncwarp();
  }
}

extern "C" __global__ void __launch_bounds__(1024)
moec_plan_fill(const int64_t *experts_of, int64_t n, int64_t experts, int64_t per_block, const int32_t *counts,
               int32_t *perm, int32_t *inv, int32_t *offsets, int32_t *fault) {
  __shared__ int32_t next[32][MOEC_PLAN_GROUP], all[MOEC_PLAN_GROUP], before[MOEC_PLAN_GROUP];
  const int warp = threadIdx.x / 32;
  const int64_t begin = moec_least(blockIdx.x * per_block + warp * (per_block / 32), n);
  const int64_t end = moec_least(begin + per_block / 32, n);
  int32_t so_far = 0;
  for (int64_t first = 0; first < experts; first += MOEC_PLAN_GROUP) {
    const int32_t here = (int32_t)moec_least(experts - first, MOEC_PLAN_GROUP);
    for (int32_t i = threadIdx.x; i < 32 * MOEC_PLAN_GROUP; i += MOEC_PLAN_THREADS)
      next[i / MOEC_PLAN_GROUP][i % MOEC_PLAN_GROUP] = 0;
    if (threadIdx.x < MOEC_PLAN_GROUP) all[threadIdx.x] = before[threadIdx.x] = 0;
    __syncthreads();
    moec_plan_own(experts_of, begin, end, experts, first, here, next[warp], fault);
    moec_plan_totals(counts + first, experts, here, all, before);
    __syncthreads();
    if (threadIdx.x < here) {
      int32_t sum = 0;
#pragma unroll
      for (int w = 0; w < 32; w++) {
        const int32_t count = next[w][threadIdx.x];
        next[w][threadIdx.x] = sum, sum += count;
      }
      if (gridDim.x == 1) all[threadIdx.x] = sum;
    }
    __syncthreads();
    if (warp == 0) so_far = moec_plan_rows(so_far, here, all, before, offsets + first);
    __syncthreads();
    moec_plan_hand_out(experts_of, begin, end, experts, first, here, before, next[warp], perm, inv);
    __syncthreads();
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) offsets[experts] = so_far;
}
