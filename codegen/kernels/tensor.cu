#ifndef MOEC_TENSOR
#define MOEC_TENSOR
/* ---- tensor cores ---------------------------------------------------------------------------- */

/* Tiles of 16-bit numbers in the registers of a warp, as mma.sync has them: of 8 x 8, lane l has elements 2 (l % 4) and
 * the next of row l / 4. */
#ifndef MOEC_EMULATED /* tests/support/cuda_shim.h has its own */
MOEC_INLINE uint32_t moec_shared_address(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }
/* Four tiles from shared memory; lane l gives row l % 8 of tile l / 8, at a multiple of 16 bytes. */
MOEC_INLINE void moec_load_tiles(uint32_t *r, const uint16_t *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(moec_shared_address(row))
               : "memory");
}
/* The same, each tile transposed. */
MOEC_INLINE void moec_load_tiles_across(uint32_t *r, const uint16_t *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(moec_shared_address(row))
               : "memory");
}
/* c[16 x 8] += a[16 x 16] b[16 x 8]. a: tiles of rows 0 and 8 of columns 0, then of columns 8; b: of rows 0 and 8,
 * transposed; c: rows 0, then 8. */
MOEC_INLINE void moec_multiply_bf16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
MOEC_INLINE void moec_multiply_f16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* 16 bytes from memory to shared memory, or zeros; there after moec_copies_wait(). */
MOEC_INLINE void moec_copy_16(uint16_t *to, const uint16_t *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(moec_shared_address(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
MOEC_INLINE void moec_copies_wait(void) { asm volatile("cp.async.wait_all;" : : : "memory"); }
#endif
#endif
