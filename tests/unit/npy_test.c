#include <unistd.h>

#include "base/tensor.h"
#include "tests/unit/unit.h"

/* Reads a file of the given magic, header and data. */
static moec_status *read_raw(const char *magic, size_t magic_size, const char *header, size_t data,
                             moec_tensor *out) {
  char *dir = unit_folder(), path[256], bytes[1024] = {0};
  size_t n = strlen(header);
  memcpy(bytes, magic, magic_size);
  memcpy(bytes + magic_size, header, n);
  memset(bytes + magic_size + n, 3, data);
  unit_path(path, dir, "a.npy");
  UNIT_OK(moec_write_file(path, bytes, magic_size + n + data, 0644));
  moec_status *s = moec_npy_read(path, out);
  unit_remove(dir);
  return s;
}

static moec_status *read_v1(const char *header, size_t data, moec_tensor *out) {
  char magic[11] = "\x93NUMPY\x01\x00";
  magic[8] = (char)(strlen(header) & 255);
  magic[9] = (char)(strlen(header) >> 8);
  return read_raw(magic, 10, header, data, out);
}

static void accepts(const char *header, size_t data, moec_dtype dtype, uint32_t rank) {
  moec_tensor t;
  UNIT_OK(read_v1(header, data, &t));
  ck_assert_int_eq(t.dtype, dtype);
  ck_assert_uint_eq(t.rank, rank);
  moec_tensor_fini(&t);
}

static void refuses(const char *header, size_t data, moec_code code, const char *text) {
  moec_tensor t;
  UNIT_FAILS(read_v1(header, data, &t), code, text);
  ck_assert_ptr_null(t.data);
}

START_TEST(accepts_what_numpy_writes) {
  accepts("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", 24, MOEC_F32, 2);
  accepts("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }\n", 3, MOEC_BOOL, 1);
  accepts("{'descr': '<i8', 'fortran_order': False, 'shape': (), }\n", 8, MOEC_I64, 0);
  accepts("{'descr': '<u2', 'fortran_order': False, 'shape': (0, 7)}\n", 0, MOEC_U16, 2);
  accepts("{\"shape\":(1,2,),\"fortran_order\":False,\"descr\":\"<f2\"}\n", 4, MOEC_F16, 2);
}
END_TEST

START_TEST(accepts_versions_2_and_3) {
  static const char header[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }\n";
  for (char v = 1; v < 6; v++) {
    char magic[13] = {'\x93', 'N', 'U', 'M', 'P', 'Y', v, 0, sizeof header - 1, 0, 0, 0};
    moec_tensor t;
    moec_status *s = read_raw(magic, v == 1 ? 10 : 12, header, 5, &t);
    if (v > 3)
      UNIT_FAILS(s, MOEC_UNSUPPORTED, "version");
    else
      UNIT_OK(s);
    moec_tensor_fini(&t);
  }
}
END_TEST

START_TEST(bools_become_0_or_1) {
  moec_tensor t;
  UNIT_OK(read_v1("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }\n", 2, &t));
  ck_assert_uint_eq(((unsigned char *)t.data)[1], 1);
  moec_tensor_fini(&t);
}
END_TEST

START_TEST(refuses_other_kinds) {
  refuses("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }\n", 4, MOEC_UNSUPPORTED,
          ">f4");
  refuses("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", 8, MOEC_UNSUPPORTED, "|O");
  refuses("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", 4,
          MOEC_UNSUPPORTED, "records");
  refuses("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n", 16, MOEC_UNSUPPORTED,
          "fortran");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1), }\n", 4,
          MOEC_UNSUPPORTED, "12");
}
END_TEST

START_TEST(refuses_bad_headers) {
  static const char *const headers[] = {
      "",
      "\n",
      "{}\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': [1], }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (01,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1L,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (0x1,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905,), }\n",
      "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }\n",
      "{'descr': '<f4', 'fortran_order': Falsey, 'shape': (1,), }\n",
      "{'descr': '<f4', 'shape': (1,), }\n",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}\n",
      "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}\n",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)\n",
      "{'descr\n",
      "{'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa': 1}\n",
      "{'d\\x65scr': '<f4', 'fortran_order': False, 'shape': (1,)}\n"};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    refuses(headers[i], 4, MOEC_INVALID_MODEL, "expected");
  }
}
END_TEST

START_TEST(refuses_sizes_that_do_not_fit) {
  static const char good[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  refuses(good, 7, MOEC_INVALID_MODEL, "7 bytes");
  refuses(good, 9, MOEC_INVALID_MODEL, "9 bytes");
  refuses(good, 0, MOEC_INVALID_MODEL, "0 bytes");
  moec_tensor t;
  UNIT_FAILS(read_raw("\x93NUMPY\x01\x00\xff\xff", 10, good, 8, &t), MOEC_INVALID_MODEL, "65535");
  UNIT_FAILS(read_raw("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12, good, 8, &t), MOEC_INVALID_MODEL,
             "4294967295");
  UNIT_FAILS(read_raw("\x93NUMPY\x02\x00\x01\x00", 10, "", 0, &t), MOEC_INVALID_MODEL, "header");
  UNIT_FAILS(read_raw("\x93NUMPX\x01\x00\x01\x00", 10, good, 8, &t), MOEC_INVALID_MODEL, ".npy");
  UNIT_FAILS(read_raw("", 0, "", 0, &t), MOEC_INVALID_MODEL, ".npy");
  UNIT_FAILS(moec_npy_read("/nowhere/x.npy", &t), MOEC_INVALID_ARGUMENT, "/nowhere/x.npy");
}
END_TEST

START_TEST(every_type_reads_back) {
  char *dir = unit_folder(), path[256];
  unit_path(path, dir, "a.npy");
  for (int d = 1; d < MOEC_DTYPE_COUNT; d++) {
    moec_tensor t, back;
    UNIT_OK(moec_tensor_init(&t, (moec_dtype)d, 2, (int64_t[]){3, 5}));
    for (size_t i = 0; i < 15; i++) moec_store_i64(t.dtype, t.data, i, (int64_t)i);
    UNIT_OK(moec_npy_write(path, &t));
    UNIT_OK(moec_npy_read(path, &back));
    bool half = d == MOEC_F16 || d == MOEC_BF16;
    ck_assert_int_eq(back.dtype, half ? MOEC_F32 : d);
    ck_assert(back.rank == 2 && back.dims[0] == 3 && back.dims[1] == 5);
    for (size_t i = 0; i < 15; i++) {
      ck_assert_double_eq(moec_load_f64(back.dtype, back.data, i),
                          moec_load_f64(t.dtype, t.data, i));
    }
    moec_tensor_fini(&t);
    moec_tensor_fini(&back);
  }
  unit_remove(dir);
}
END_TEST

START_TEST(writes_scalars_empty_and_long_tensors) {
  char *dir = unit_folder(), path[256];
  unit_path(path, dir, "a.npy");
  static const int64_t shapes[3][2] = {{0, 0}, {4, 0}, {10001, 3}};
  for (uint32_t i = 0; i < 3; i++) {
    moec_tensor t, back;
    UNIT_OK(moec_tensor_init(&t, MOEC_BF16, i == 0 ? 0 : 2, shapes[i]));
    for (size_t k = 0; k < (size_t)moec_tensor_numel(&t); k++) {
      moec_store_i64(MOEC_BF16, t.data, k, (int64_t)(k % 251));
    }
    UNIT_OK(moec_npy_write(path, &t));
    UNIT_OK(moec_npy_read(path, &back));
    ck_assert_int_eq(moec_tensor_numel(&back), moec_tensor_numel(&t));
    for (size_t k = 0; k < (size_t)moec_tensor_numel(&t); k++) {
      ck_assert_double_eq((double)((float *)back.data)[k], (double)(k % 251));
    }
    moec_tensor_fini(&t);
    moec_tensor_fini(&back);
  }
  moec_tensor none = {.dtype = MOEC_F32, .rank = 1, .dims = {4}};
  UNIT_FAILS(moec_npy_write(path, &none), MOEC_INVALID_ARGUMENT, "data");
  unit_remove(dir);
}
END_TEST

UNIT_MAIN("npy", accepts_what_numpy_writes, accepts_versions_2_and_3, bools_become_0_or_1,
          refuses_other_kinds, refuses_bad_headers, refuses_sizes_that_do_not_fit,
          every_type_reads_back, writes_scalars_empty_and_long_tensors)
