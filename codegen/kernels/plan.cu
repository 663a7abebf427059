/* ---- moe.plan --------------------------------------------------------------------------------------
 * A stable counting sort of assignments by expert. Each block, one warp, has |per_block| of them, in order. First the
 * blocks count their experts in counts[expert][block]; the scan turns that into where the rows of each block begin;
 * then the blocks go through their assignments again and hand out rows. Nobody but its block touches a count. */

/* The expert of assignment |a|, inside the table whatever was chosen; -1 behind the last. */
MOEC_INLINE int64_t moec_expert_of(const int64_t *experts_of, int64_t a, int64_t end, int64_t experts) {
  if (a >= end) return -1;
  int64_t e = experts_of[a];
  return e < 0 ? 0 : e < experts ? e : experts - 1;
}

/* Lanes of the warp with the same expert as this one: how many in all and in lower lanes; whether it is the lowest. */
typedef struct moec_peers {
  int32_t all, before;
} moec_peers;
MOEC_INLINE moec_peers moec_peers_of(int64_t e) {
  uint32_t same = __match_any_sync(0xffffffffu, (int32_t)e);
  return {__popc(same), __popc(same & ((1u << threadIdx.x) - 1))};
}

extern "C" __global__ void __launch_bounds__(32)
moec_plan_count(const int64_t *experts_of, int64_t n, int64_t experts, int64_t per_block, int32_t *counts,
                int32_t *fault) {
  const int64_t begin = blockIdx.x * per_block, end = moec_least(begin + per_block, n), blocks = gridDim.x;
  for (int64_t e = threadIdx.x; e < experts; e += 32) counts[e * blocks + blockIdx.x] = 0;
  __syncwarp();
  for (int64_t at = begin; at < end; at += 32) {
    const int64_t a = at + threadIdx.x, e = moec_expert_of(experts_of, a, end, experts);
    const moec_peers peers = moec_peers_of(e);
    if (e >= 0 && e != experts_of[a]) *fault = 1;
    if (e >= 0 && peers.before == 0) counts[e * blocks + blockIdx.x] += peers.all;
    __syncwarp();
  }
}

/* Sums over what comes before, in place; one block. */
extern "C" __global__ void __launch_bounds__(1024)
moec_plan_scan(int32_t *counts, int64_t experts, int64_t blocks, int32_t *offsets) {
  __shared__ int32_t sums[32];
  const int64_t n = experts * blocks;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t carry = 0;
  for (int64_t at = 0; at < n; at += 1024) {
    const int64_t i = at + threadIdx.x;
    const int32_t own = i < n ? counts[i] : 0;
    int32_t sum = own;
    for (int d = 1; d < 32; d *= 2) {
      int32_t other = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int32_t before = carry, total = 0;
    for (int w = 0; w < 32; w++) {
      if (w < warp) before += sums[w];
      total += sums[w];
    }
    if (i < n) {
      counts[i] = before + sum - own;
      if (i % blocks == 0) offsets[i / blocks] = before + sum - own;
    }
    carry += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) offsets[experts] = carry;
}

extern "C" __global__ void __launch_bounds__(32)
moec_plan_fill(const int64_t *experts_of, int64_t n, int64_t experts, int64_t per_block, int32_t *counts, int32_t *perm,
               int32_t *inv) {
  const int64_t begin = blockIdx.x * per_block, end = moec_least(begin + per_block, n), blocks = gridDim.x;
  for (int64_t at = begin; at < end; at += 32) {
    const int64_t a = at + threadIdx.x, e = moec_expert_of(experts_of, a, end, experts);
    const moec_peers peers = moec_peers_of(e);
    int32_t row = 0;
    if (e >= 0) row = counts[e * blocks + blockIdx.x] + peers.before;
    __syncwarp();
    if (e >= 0 && peers.before == 0) counts[e * blocks + blockIdx.x] = row + peers.all;
    if (e >= 0) perm[row] = (int32_t)a, inv[a] = row;
    __syncwarp();
  }
}
