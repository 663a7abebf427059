/* ---- conv ------------------------------------------------------------------------------------------
 * A thread makes one element, summed in f32 (f64 for f64) over channels and taps in order. */
#ifndef MOEC_CUDA_CONV
#define MOEC_CUDA_CONV
typedef struct moec_cuda_conv {
  int64_t n, channels, m, groups, axes;
  int64_t in[10], kernel[10], out[10], stride[10], pad[10], dilation[10];
} moec_cuda_conv;
#endif

extern "C" __global__ void __launch_bounds__(256)
NAME(conv)(const T *__restrict__ x, const T *__restrict__ w, T *__restrict__ y,
           const __grid_constant__ moec_cuda_conv c) {
  int64_t plane = 1, in_plane = 1, taps = 1;
  for (int64_t d = 0; d < c.axes; d++) plane *= c.out[d], in_plane *= c.in[d], taps *= c.kernel[d];
  const int64_t each = c.channels / c.groups;
  for (int64_t i = MOEC_FIRST; i < c.n * c.m * plane; i += MOEC_STEP) {
    const int64_t o = i % plane, channel = i / plane % c.m, sample = i / plane / c.m;
    const T *weights = w + channel * each * taps;
    const T *from = x + (sample * c.channels + channel / (c.m / c.groups) * each) * in_plane;
    SUM sum = 0;
    for (int64_t k = 0; k < each; k++)
      for (int64_t tap = 0; tap < taps; tap++) {
        int64_t place = o, left = tap, at = 0, scale = 1;
        bool inside = true;
        for (int64_t d = c.axes - 1; d >= 0; d--) {
          const int64_t p = place % c.out[d] * c.stride[d] + left % c.kernel[d] * c.dilation[d] - c.pad[d];
          inside = inside && p >= 0 && p < c.in[d];
          at += p * scale, scale *= c.in[d];
          place /= c.out[d], left /= c.kernel[d];
        }
        if (inside) sum += LOAD(weights[k * taps + tap]) * LOAD(from[k * in_plane + at]);
      }
    y[i] = STORE(sum);
  }
}
