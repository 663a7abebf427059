#include "base/first_fit.h"

#include "tests/unit/unit.h"

static bool meet(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end) { return a < b_end && b < a_end; }

/* No two that are alive together share memory; the total is the end of the highest. */
static void check_placed(const moec_interval *v, uint32_t n, uint64_t total) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (v[i].offset + v[i].size > end) end = v[i].offset + v[i].size;
    if (i) ck_assert_uint_ge(v[i].offset, v[i - 1].offset);
    for (uint32_t k = 0; k < i; k++)
      if (meet(v[i].first, (uint64_t)v[i].last + 1, v[k].first, (uint64_t)v[k].last + 1))
        ck_assert(!meet(v[i].offset, v[i].offset + v[i].size, v[k].offset, v[k].offset + v[k].size));
  }
  ck_assert_uint_eq(total, end);
}

static uint64_t offset_of(const moec_interval *v, uint32_t n, uint32_t id) {
  for (uint32_t i = 0; i < n; i++)
    if (v[i].id == id) return v[i].offset;
  ck_abort_msg("no interval %u", id);
}

START_TEST(a_small_case) {
  moec_interval v[] = {{0, 0, 1, 64, 0}, {1, 1, 2, 128, 0}, {2, 2, 3, 64, 0}, {3, 3, 3, 192, 0}, {4, 0, 3, 0, 0}};
  moec_interval placed[5];
  uint64_t total;
  ck_assert(moec_first_fit(v, placed, 5, &total));
  check_placed(placed, 5, total);
  ck_assert_uint_eq(offset_of(placed, 5, 3), 0);   /* the largest */
  ck_assert_uint_eq(offset_of(placed, 5, 1), 0);   /* gone before 3 begins */
  ck_assert_uint_eq(offset_of(placed, 5, 0), 128); /* beside 1; before 2, which is as large */
  ck_assert_uint_eq(offset_of(placed, 5, 2), 192); /* beside 1 and 3 */
  ck_assert_uint_eq(total, 256);
}
END_TEST

START_TEST(fills_gaps) {
  /* 1 lies over 0; 2, alive with 1 and not with 0, goes below 1 */
  moec_interval v[] = {{0, 0, 4, 300, 0}, {1, 0, 9, 200, 0}, {2, 5, 9, 100, 0}, {3, 5, 9, 90, 0}, {4, 5, 9, 120, 0}};
  moec_interval placed[5];
  uint64_t total;
  ck_assert(moec_first_fit(v, placed, 5, &total));
  check_placed(placed, 5, total);
  ck_assert_uint_eq(offset_of(placed, 5, 1), 300);
  ck_assert_uint_eq(offset_of(placed, 5, 4), 0);
  ck_assert_uint_eq(offset_of(placed, 5, 2), 120);
  ck_assert_uint_eq(offset_of(placed, 5, 3), 500); /* the 80 that are left are too few */
}
END_TEST

START_TEST(whatever_the_order) {
  enum { N = 60 };
  uint32_t seed = 1;
  for (int round = 0; round < 200; round++) {
    moec_interval v[N], again[N], placed[N], placed_again[N];
    uint64_t total, total_again;
    for (uint32_t i = 0; i < N; i++) {
      uint32_t r[3];
      for (int k = 0; k < 3; k++) r[k] = (seed = seed * 1664525u + 1013904223u) >> 16;
      v[i] = (moec_interval){i, r[0] % 40, 0, (uint64_t)(r[2] % 9) * 64, 0};
      v[i].last = r[1] % 16 == 0 ? UINT32_MAX : v[i].first + r[1] % 12;
      again[N - 1 - i] = v[i];
    }
    ck_assert(moec_first_fit(v, placed, N, &total));
    ck_assert(moec_first_fit(again, placed_again, N, &total_again));
    check_placed(placed, N, total);
    ck_assert_uint_eq(total, total_again);
    for (uint32_t i = 0; i < N; i++)
      ck_assert_uint_eq(offset_of(placed, N, i), offset_of(placed_again, N, i));
  }
}
END_TEST

START_TEST(too_large) {
  moec_interval v[] = {{0, 0, 1, UINT64_MAX - 10, 0}, {1, 1, 1, 20, 0}}, placed[2];
  uint64_t total;
  ck_assert(!moec_first_fit(v, placed, 2, &total));
  v[0] = (moec_interval){0, 0, 0, UINT64_MAX - 10, 0}, v[1] = (moec_interval){1, 1, 1, 20, 0};
  ck_assert(moec_first_fit(v, placed, 2, &total)); /* never together */
  ck_assert_uint_eq(total, UINT64_MAX - 10);
  ck_assert(moec_first_fit(v, placed, 0, &total));
  ck_assert_uint_eq(total, 0);
}
END_TEST

UNIT_MAIN("first_fit", a_small_case, fills_gaps, whatever_the_order, too_large)
