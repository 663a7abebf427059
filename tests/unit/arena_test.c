#include "base/arena.h"

#include "base/size.h"
#include "tests/unit/unit.h"

START_TEST(memory_is_zeroed_and_aligned) {
  moec_arena *a = moec_arena_create();
  for (size_t n = 0; n < 3000; n += 7) {
    unsigned char *p = moec_arena_alloc(a, n);
    ck_assert_uint_eq((uintptr_t)p % 16, 0);
    for (size_t i = 0; i < n; i++) UNIT_TRUE(p[i] == 0);
    memset(p, 0xff, n);
  }
  moec_arena_destroy(a);
  moec_arena_destroy(NULL);
}
END_TEST

START_TEST(big_allocations_keep_the_small_chunk) {
  moec_arena *a = moec_arena_create();
  char *small = moec_arena_alloc(a, 16);
  char *big = moec_arena_alloc(a, 10 << 20);
  char *next = moec_arena_alloc(a, 16);
  memset(big, 1, 10 << 20);
  ck_assert(next > small && next - small < 64);
  ck_assert_uint_eq(moec_arena_bytes(a), (10 << 20) + 32);
  moec_arena_destroy(a);
}
END_TEST

START_TEST(strings) {
  moec_arena *a = moec_arena_create();
  ck_assert_str_eq(moec_arena_strdup(a, ""), "");
  ck_assert_str_eq(moec_arena_printf(a, "%s-%d", "x", 12), "x-12");
  ck_assert_str_eq(moec_arena_copy(a, "ab", 3), "ab");
  ck_assert_ptr_nonnull(moec_arena_copy(a, NULL, 0));
  moec_arena_destroy(a);
}
END_TEST

START_TEST(pushed_elements_stay) {
  moec_arena *a = moec_arena_create();
  int *v = NULL;
  uint32_t n = 0;
  size_t cap = 0;
  for (int i = 0; i < 100000; i++) MOEC_PUSH(a, v, n, cap, i);
  ck_assert_uint_eq(n, 100000);
  ck_assert_uint_ge(cap, n);
  for (int i = 0; i < 100000; i++) UNIT_TRUE(v[i] == i);
  ck_assert_ptr_eq(moec_arena_grow(a, v, &cap, cap, sizeof *v), v);
  ck_assert_ptr_nonnull(MOEC_NEW_ARRAY(a, double, 0));
  moec_arena_destroy(a);
}
END_TEST

START_TEST(checked_sizes) {
  size_t n = 5;
  int64_t i = 5;
  ck_assert(!moec_add_size(SIZE_MAX, 1, &n) && !moec_mul_size(SIZE_MAX, 2, &n) && n == 5);
  ck_assert(!moec_add_i64(INT64_MAX, 1, &i) && !moec_mul_i64(INT64_MIN, -1, &i) && i == 5);
  ck_assert(moec_mul_size(3, 4, &n) && n == 12);
  ck_assert_int_eq(moec_floordiv(-7, 2), -4);
  ck_assert_int_eq(moec_floordiv(7, -2), -4);
  ck_assert_int_eq(moec_floordiv(-8, 2), -4);
  ck_assert_int_eq(moec_floormod(-7, 2), 1);
  ck_assert_int_eq(moec_floormod(7, -2), -1);
  ck_assert_uint_eq(moec_align_up(65, 64), 128);
  ck_assert_uint_eq(moec_size_mul_or_die(6, 7), 42);
}
END_TEST

UNIT_MAIN("arena", memory_is_zeroed_and_aligned, big_allocations_keep_the_small_chunk, strings,
          pushed_elements_stay, checked_sizes)
