/* What training does with arrays: the emitted kernels against the processor, of any number of elements and in any type,
 * where an element has one result to the last bit. */
#include "tests/support/fake_device.h"
#include "tests/unit/train_sample.h"

#include <math.h>

#include "runtime/model.h"

#undef UNIT_BEFORE
#define UNIT_BEFORE \
  if (!emulation_possible()) return puts("skipped: no C++ compiler"), 77;

enum { MOST = MOEC_RT_SQUARES + 77, GUARD = 64 };
static const int64_t sizes[] = {1, 8, 15, 2053, MOST};
static const moec_dtype types[] = {MOEC_F32, MOEC_BF16, MOEC_F16};
enum { SIZES = sizeof sizes / sizeof *sizes, TYPES = sizeof types / sizeof *types };

static train_setup files;
static moec_model *models[2]; /* the processor's, a device's */
static uint8_t *files_of[2];

/* Elements of |type|, the same each time; behind them a guard. */
typedef struct array {
  moec_dtype type;
  _Alignas(64) uint8_t data[(MOST + GUARD) * sizeof(float)];
} array;

static void fill(array *a, moec_dtype type, int seed, bool positive) {
  a->type = type;
  memset(a->data, 0x5a, sizeof a->data);
  for (size_t i = 0; i < MOST; i++) {
    double v = (double)((i * 7919 + (size_t)seed * 104729) % 2003) / 1000 - (positive ? 0 : 1);
    moec_store_f64(type, a->data, i, v);
  }
}

static void same(const array *a, const array *b) { UNIT_TRUE(!memcmp(a->data, b->data, sizeof a->data)); }

static const moec_rt_train_ops *ops(int k) { return models[k]->device->train; }

START_TEST(sums) {
  static array to[2], from;
  const moec_cuda_scale scale = {.scale = 0.3f};
  for (int how = 0; how < 4 * TYPES * SIZES; how++) {
    int64_t n = sizes[how / 4 / TYPES];
    fill(&from, types[how / 4 % TYPES], how, false);
    for (int k = 0; k < 2; k++) {
      fill(&to[k], MOEC_F32, 1, false);
      float *data = (float *)(void *)to[k].data;
      UNIT_OK(ops(k)->add(models[k], data, how & 1, from.type, from.data, how & 2 ? &scale : NULL, n));
    }
    same(&to[0], &to[1]);
  }
}
END_TEST

START_TEST(scaled_in_place) {
  static array a[2];
  const moec_cuda_scale scale = {.scale = -0.7f};
  for (int s = 0; s < SIZES; s++) {
    for (int k = 0; k < 2; k++) {
      float *data = (float *)(void *)a[k].data;
      fill(&a[k], MOEC_F32, s, false);
      UNIT_OK(ops(k)->add(models[k], data, false, MOEC_F32, data, &scale, sizes[s]));
    }
    same(&a[0], &a[1]);
  }
}
END_TEST

START_TEST(narrowed) {
  static array to[2], from;
  fill(&from, MOEC_F32, 3, false);
  for (int how = 0; how < TYPES * SIZES; how++) {
    moec_dtype type = types[how % TYPES];
    for (int k = 0; k < 2; k++) {
      fill(&to[k], type, 1, false);
      UNIT_OK(ops(k)->narrow(models[k], type, to[k].data, (const float *)(const void *)from.data, sizes[how / TYPES]));
    }
    same(&to[0], &to[1]);
  }
}
END_TEST

/* Sums in f64, in another order. */
START_TEST(norms) {
  static array from;
  for (int how = 0; how < TYPES * SIZES; how++) {
    int64_t n = sizes[how / TYPES], chunks = (n + MOEC_RT_SQUARES - 1) / MOEC_RT_SQUARES;
    double want = 0;
    fill(&from, types[how % TYPES], how, false);
    for (int64_t i = 0; i < n; i++) want += pow(moec_load_f64(from.type, from.data, (size_t)i), 2);
    for (int k = 0; k < 2; k++) {
      double chunk[4] = {-1, -1, -1, -1};
      moec_cuda_scale s = {.scale = -2};
      UNIT_OK(ops(k)->squares(models[k], from.type, from.data, n, chunk));
      UNIT_TRUE(chunk[chunks] == -1);
      UNIT_OK(ops(k)->clip(models[k], chunk, chunks, sqrt(want), &s));
      UNIT_TRUE(fabs(s.norm - 2 * sqrt(want)) <= 1e-12 * s.norm && !s.bad && s.before == -2);
      UNIT_TRUE(want == 0 || fabs((double)s.scale + 1) < 1e-5 + 1e-6 / sqrt(want));
      UNIT_OK(ops(k)->clip(models[k], chunk, chunks, INFINITY, &s));
      UNIT_TRUE(s.before == s.scale);
      chunk[0] = NAN;
      UNIT_OK(ops(k)->clip(models[k], chunk, chunks, 1, &s));
      UNIT_TRUE(s.bad && isnan(s.scale) && isnan(s.norm) && isfinite(s.before));
      float before = s.before;
      UNIT_OK(ops(k)->clip(models[k], chunk, chunks, 1, &s)); /* once more before anybody looked */
      UNIT_TRUE(s.bad && isnan(s.scale) && isnan(s.norm) && s.before == before);
    }
  }
}
END_TEST

static void update_both(moec_rt_update u, array w[2], array first[2], array second[2], array copy[2], const array *g) {
  for (int k = 0; k < 2; k++) {
    fill(&w[k], MOEC_F32, 1, false), fill(&first[k], MOEC_F32, 2, false);
    fill(&second[k], MOEC_F32, 3, true), fill(&copy[k], u.copy_type, 4, false);
    moec_rt_update v = u;
    v.w = (float *)(void *)w[k].data, v.second = (float *)(void *)second[k].data;
    if (u.first) v.first = (float *)(void *)first[k].data;
    if (u.copy) v.copy = copy[k].data;
    v.g = g->data, v.g_type = g->type;
    UNIT_OK(ops(k)->update(models[k], &v));
  }
  same(&w[0], &w[1]), same(&first[0], &first[1]), same(&second[0], &second[1]), same(&copy[0], &copy[1]);
}

START_TEST(updated) {
  static array w[2], first[2], second[2], copy[2], g, before;
  const moec_cuda_update by = {.lr = 0.01f, .keep = 0.999f, .decay = 0.1f, .beta2 = 0.95f, .eps = 1e-8f, .grow1 = 0.1f,
                               .grow2 = 0.05f, .root = 1.7f, .momentum = 0.9f};
  const moec_cuda_scale scale = {.scale = 0.3f}, wild = {.scale = NAN};
  float some;
  for (int how = 0; how < 12 * TYPES * SIZES; how++) {
    moec_rt_update u = {.adamw = how % 3 == 0, .first = how % 3 == 2 ? NULL : &some, .n = sizes[how / 12 / TYPES],
                        .by = &by, .scale = how / 3 & 1 ? &scale : NULL};
    u.copy = how / 6 & 1 ? &some : NULL, u.copy_type = types[1 + how % 2];
    fill(&g, types[how / 12 % TYPES], how, false);
    update_both(u, w, first, second, copy, &g);
    fill(&before, MOEC_F32, 1, false);
    UNIT_TRUE(memcmp(w[0].data, before.data, sizeof w[0].data));
    u.scale = &wild; /* nothing happens */
    update_both(u, w, first, second, copy, &g);
    same(&w[1], &before);
  }
}
END_TEST

static void setup(void) {
  files = train_start();
  fake_load(files.dir);
  models[0] = train_open(&files, train_build(), 2, &files_of[0]);
  models[1] = train_open(&files, fake_target(train_build()), 1, &files_of[1]);
}

static void teardown(void) {
  for (int k = 0; k < 2; k++) moec_close(models[k]), free(files_of[k]);
  fake_unload();
  train_stop(&files);
}

int main(void) {
  UNIT_BEFORE
  const TTest *const tests[] = {sums, scaled_in_place, narrowed, norms, updated};
  Suite *suite = suite_create("runtime_cuda_arrays");
  TCase *tcase = tcase_create("arrays");
  tcase_set_timeout(tcase, 0);
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
