/* DLPack: what crosses without a copy, what is refused, and who ends what when. */
#include "tests/unit/train_sample.h"

#include "include/moec.h"
#include "runtime/dlpack.h"

static train_setup files;

/* A tensor of another library that counts how often it is ended. */
typedef struct theirs {
  DLManagedTensorVersioned versioned;
  DLManagedTensor unversioned;
  int64_t shape[2], strides[2];
  float data[2 * TRAIN_MOST];
  int ended;
} theirs;

static void end_versioned(DLManagedTensorVersioned *t) { ((theirs *)t->manager_ctx)->ended++; }
static void end_unversioned(DLManagedTensor *t) { ((theirs *)t->manager_ctx)->ended++; }

static void make(theirs *t, int64_t n) {
  *t = (theirs){.shape = {n}, .strides = {1}};
  for (int i = 0; i < 2 * TRAIN_MOST; i++) t->data[i] = (float)(i % 7);
  const DLTensor x = {.data = t->data,
                      .device = {MOEC_DL_CPU, 0},
                      .ndim = 1,
                      .dtype = {MOEC_DL_FLOAT, 32, 1},
                      .shape = t->shape,
                      .strides = t->strides};
  t->versioned = (DLManagedTensorVersioned){
      .version = {1, 1}, .manager_ctx = t, .deleter = end_versioned, .dl_tensor = x};
  t->unversioned = (DLManagedTensor){.manager_ctx = t, .deleter = end_unversioned, .dl_tensor = x};
}

static void check_output(moec_model *m, const float *x, int64_t n) {
  moec_view y;
  train_want r = train_reference(n, train_w, train_v, x, x, NULL);
  UNIT_OK(moec_forward(m));
  UNIT_OK(moec_output(m, 0, &y));
  for (int64_t i = 0; i < n; i++) UNIT_TRUE(((float *)y.data)[i] == (float)r.y[i]);
}

START_TEST(test_inputs) {
  uint8_t *file;
  moec_model *m = train_open(&files, train_build(), 1, &file);
  theirs a, b, c;
  make(&a, 8), make(&b, 8), make(&c, 8);
  b.versioned.dl_tensor.strides = NULL;
  b.versioned.dl_tensor.byte_offset = 4 * sizeof(float);
  UNIT_OK(moec_input_dlpack(m, 0, &a.versioned));
  check_output(m, a.data, 8);
  a.data[3] = 100; /* not a copy */
  check_output(m, a.data, 8);
  ck_assert_int_eq(a.ended, 0);
  UNIT_OK(moec_input_dlpack(m, 0, &b.versioned));
  ck_assert_int_eq(a.ended, 1);
  check_output(m, b.data + 4, 8);
  UNIT_OK(moec_input_dlpack_unversioned(m, 0, &c.unversioned));
  check_output(m, c.data, 8);
  moec_close(m);
  UNIT_TRUE(a.ended == 1 && b.ended == 1 && c.ended == 1);
  free(file);
}
END_TEST

START_TEST(test_refused_inputs) {
  uint8_t *file;
  moec_model *m = train_open(&files, train_build(), 1, &file);
  theirs t;
  make(&t, 8);
  t.versioned.version.major = 2;
  UNIT_FAILS(moec_input_dlpack(m, 0, &t.versioned), MOEC_UNSUPPORTED, "expected version 1, got");
  make(&t, 8);
  t.versioned.dl_tensor.device.device_type = 2;
  UNIT_FAILS(moec_input_dlpack(m, 0, &t.versioned), MOEC_UNSUPPORTED,
             "input \"x\": expected a tensor in host memory, DLPack device 1, got 2");
  make(&t, 8);
  t.strides[0] = 2;
  UNIT_FAILS(moec_input_dlpack(m, 0, &t.versioned), MOEC_UNSUPPORTED, "expected a dense row-major");
  make(&t, 8);
  t.versioned.dl_tensor.dtype.lanes = 4;
  UNIT_FAILS(moec_input_dlpack(m, 0, &t.versioned), MOEC_UNSUPPORTED, "32 bits and 4 lanes");
  make(&t, 8);
  t.versioned.dl_tensor.dtype.bits = 64;
  UNIT_FAILS(moec_input_dlpack(m, 0, &t.versioned), MOEC_INVALID_ARGUMENT,
             "input \"x\": expected f32 of rank 1, got f64");
  make(&t, 8);
  t.versioned.dl_tensor.byte_offset = 1;
  UNIT_FAILS(moec_input_dlpack(m, 0, &t.versioned), MOEC_INVALID_ARGUMENT, "aligned to 4 bytes");
  UNIT_FAILS(moec_input_dlpack(m, 9, &t.versioned), MOEC_INVALID_ARGUMENT, "an index below 3");
  ck_assert_int_eq(t.ended, 0); /* still the caller's */
  moec_close(m);
  free(file);
}
END_TEST

START_TEST(test_outputs_outlive_the_model) {
  uint8_t *file;
  moec_model *m = train_open(&files, train_build(), 2, &file);
  DLManagedTensorVersioned *y, *w;
  DLManagedTensor *old;
  train_io t;
  moec_view v;
  train_fill(&t, 1);
  train_give(m, "x", t.x, 8);
  check_output(m, t.x, 8);
  UNIT_OK(moec_output(m, 0, &v));
  UNIT_OK(moec_dlpack(m, &v, &y));
  UNIT_OK(moec_dlpack_unversioned(m, &v, &old));
  UNIT_TRUE(y->dl_tensor.data == v.data && old->dl_tensor.data == v.data && y->flags == 0);
  UNIT_TRUE(y->version.major == 1 && y->dl_tensor.ndim == 1 && y->dl_tensor.shape[0] == 8);
  UNIT_TRUE(y->dl_tensor.dtype.code == MOEC_DL_FLOAT && y->dl_tensor.dtype.bits == 32);
  UNIT_OK(moec_parameter(m, 2, &v));
  UNIT_OK(moec_dlpack(m, &v, &w));
  UNIT_TRUE(w->flags == MOEC_DL_READ_ONLY && w->dl_tensor.ndim == 2);
  check_output(m, t.x, 8); /* the same sizes: no memory moves */
  train_give(m, "x", t.x, 48);
  UNIT_FAILS(moec_forward(m), MOEC_INVALID_ARGUMENT, "other libraries hold to be released");
  old->deleter(old);
  w->deleter(w);
  UNIT_FAILS(moec_forward(m), MOEC_INVALID_ARGUMENT, "other libraries hold to be released");
  float first = ((float *)y->dl_tensor.data)[0];
  moec_close(m);
  UNIT_TRUE(((float *)y->dl_tensor.data)[0] == first); /* the memory is there still */
  y->deleter(y);
  free(file);
}
END_TEST

START_TEST(test_every_type_has_a_code) {
  static const struct {
    int dtype;
    uint8_t code, bits;
  } want[] = {{MOEC_DTYPE_F16, 2, 16}, {MOEC_DTYPE_BF16, 4, 16}, {MOEC_DTYPE_F64, 2, 64},
              {MOEC_DTYPE_I64, 0, 64}, {MOEC_DTYPE_U8, 1, 8},    {MOEC_DTYPE_BOOL, 6, 8}};
  uint8_t *file;
  moec_model *m = train_open(&files, train_build(), 1, &file);
  float data[2] = {0};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    DLManagedTensorVersioned *t;
    const moec_view v = {data, want[i].dtype, 1, {1}};
    UNIT_OK(moec_dlpack(m, &v, &t));
    UNIT_TRUE(t->dl_tensor.dtype.code == want[i].code && t->dl_tensor.dtype.bits == want[i].bits);
    t->deleter(t);
  }
  moec_close(m);
  free(file);
}
END_TEST

static void setup(void) { files = train_start(); }
static void teardown(void) { train_stop(&files); }

int main(void) {
  Suite *suite = suite_create("dlpack");
  TCase *tcase = tcase_create("dlpack");
  const TTest *const tests[] = {test_inputs, test_refused_inputs, test_outputs_outlive_the_model,
                                test_every_type_has_a_code};
  tcase_set_timeout(tcase, 0); /* ctest has one */
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
