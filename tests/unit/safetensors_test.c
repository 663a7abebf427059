#include "base/safetensors.h"

#include "base/buf.h"
#include "tests/unit/unit.h"

/* Opens a file of this header (its length is put in front) and |data| bytes. */
static moec_status *open_raw(const char *header, size_t size, size_t data, moec_safetensors **out) {
  char *dir = unit_folder(), path[256];
  unit_path(path, dir, "a.safetensors");
  moec_buf b = {0};
  for (int i = 0; i < 8; i++) moec_buf_putc(&b, (char)(size >> 8 * i & 255));
  moec_buf_write(&b, header, size);
  for (size_t i = 0; i < data; i++) moec_buf_putc(&b, (char)i);
  UNIT_OK(moec_write_file(path, b.data, b.size, 0644));
  moec_buf_fini(&b);
  moec_status *s = moec_safetensors_open(path, out);
  unit_remove(dir); /* an open mapping does not mind */
  return s;
}

static void refuses(const char *header, size_t data, moec_code code, const char *text) {
  moec_safetensors *st;
  UNIT_FAILS(open_raw(header, strlen(header), data, &st), code, text);
  ck_assert_ptr_null(st);
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define B "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}"
#define E "\"e\":{\"dtype\":\"I64\",\"shape\":[0,4],\"data_offsets\":[8,8]}"

START_TEST(reads_in_file_order) {
  static const char header[] = "{\"__metadata__\":{\"x\":\"y\"}," B "," E "," A "}  ";
  moec_safetensors *st;
  UNIT_OK(open_raw(header, sizeof header - 1, 11, &st));
  ck_assert_uint_eq(moec_safetensors_count(st), 3);
  ck_assert_str_eq(moec_safetensors_at(st, 0)->name, "a");
  ck_assert_str_eq(moec_safetensors_at(st, 1)->name, "e");
  ck_assert_str_eq(moec_safetensors_at(st, 2)->name, "b");
  ck_assert_ptr_null(moec_safetensors_at(st, 3));
  const moec_st_entry *b = moec_safetensors_find(st, "b");
  ck_assert_int_eq(b->tensor.dtype, MOEC_U8);
  ck_assert_uint_eq(b->file_offset, 8 + sizeof header - 1 + 8);
  ck_assert_uint_eq(((unsigned char *)b->tensor.data)[0], 8);
  ck_assert_ptr_null(moec_safetensors_find(st, "c"));
  ck_assert_ptr_null(moec_safetensors_find(st, "__metadata__"));
  moec_safetensors_close(st);
  moec_safetensors_close(NULL);
}
END_TEST

START_TEST(accepts_no_tensors_and_scalars) {
  moec_safetensors *st;
  UNIT_OK(open_raw("{}", 2, 0, &st));
  ck_assert_uint_eq(moec_safetensors_count(st), 0);
  ck_assert_ptr_null(moec_safetensors_find(st, "a"));
  moec_safetensors_close(st);
  static const char scalar[] = "{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}";
  UNIT_OK(open_raw(scalar, sizeof scalar - 1, 8, &st));
  ck_assert_int_eq(moec_tensor_numel(&moec_safetensors_at(st, 0)->tensor), 1);
  moec_safetensors_close(st);
}
END_TEST

START_TEST(refuses_ranges) {
  refuses("{" A "}", 9, MOEC_INVALID_MODEL, "end at byte");
  refuses("{" A "}", 7, MOEC_INVALID_MODEL, "inside the file");
  refuses("{}", 1, MOEC_INVALID_MODEL, "end at byte");
  refuses("{" B "}", 11, MOEC_INVALID_MODEL, "a hole");
  refuses("{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12,
          MOEC_INVALID_MODEL, "an overlap");
  refuses("{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
          MOEC_INVALID_MODEL, "an overlap");
  refuses("{" A ",\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}", 8,
          MOEC_INVALID_MODEL, "overlap");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, MOEC_INVALID_MODEL,
          "inside the file");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, MOEC_INVALID_MODEL,
          "fit dtype and shape");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8,
          MOEC_INVALID_MODEL, "inside the file");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775807]}}", 8,
          MOEC_INVALID_MODEL, "inside the file");
}
END_TEST

START_TEST(refuses_shapes) {
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
          MOEC_INVALID_MODEL, "integers >= 0");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8,
          MOEC_INVALID_MODEL, "integers >= 0");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
          MOEC_INVALID_MODEL, "fit dtype and shape");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]}}",
          0, MOEC_INVALID_MODEL, "fit dtype and shape");
  refuses(
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
      MOEC_UNSUPPORTED, "12 dims");
  refuses("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
          MOEC_UNSUPPORTED, "F8_E4M3");
}
END_TEST

START_TEST(refuses_json) {
  static const char *const headers[] = {
      "[]",
      " {}",
      "{\"a\":1}",
      "{\"a\":[]}",
      "{\"a\":{}}",
      "{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{}}}",
      "{" A "," A "}",
      "{" A "",
      "{" A "}}",
      "{" A "} x",
      "{\"__metadata__\":{\"x\":1}," A "}",
      "{\"__metadata__\":[]," A "}",
      "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}"};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    refuses(headers[i], 8, MOEC_INVALID_MODEL, "expected");
  }
  moec_safetensors *st;
  UNIT_FAILS(open_raw("{}\0\0", 4, 0, &st), MOEC_INVALID_MODEL, "JSON");
}
END_TEST

START_TEST(refuses_depth_and_number_of_values) {
  moec_buf b = {0};
  moec_buf_puts(&b, "{\"a\":");
  for (int i = 0; i < 100000; i++) moec_buf_putc(&b, '[');
  refuses(b.data, 0, MOEC_INVALID_MODEL, "64 levels");
  moec_buf_fini(&b);
  moec_buf_puts(&b, "{\"a\":[1");
  for (int i = 0; i < 4100000; i++) moec_buf_puts(&b, ",1");
  moec_buf_puts(&b, "]}");
  refuses(b.data, 0, MOEC_INVALID_MODEL, "4000000 values");
  moec_buf_fini(&b);
}
END_TEST

START_TEST(refuses_lengths) {
  char *dir = unit_folder(), path[256];
  unit_path(path, dir, "a");
  static const struct {
    const char *bytes;
    size_t size;
  } files[] = {{"", 0},
               {"\2\0\0\0\0\0\0\0{", 9},
               {"\3\0\0\0\0\0\0\0{}", 10},
               {"\0\0\0\0\0\0\0\0{}", 10},
               {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10},
               {"\1\xe1\xf5\5\0\0\0\0{}", 10}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    moec_safetensors *st;
    UNIT_OK(moec_write_file(path, files[i].bytes, files[i].size, 0644));
    UNIT_FAILS(moec_safetensors_open(path, &st), MOEC_INVALID_MODEL, "expected");
  }
  unit_remove(dir);
}
END_TEST

START_TEST(writes_what_it_reads) {
  char *dir = unit_folder(), path[256];
  unit_path(path, dir, "a.safetensors");
  static const char *const names[] = {"z", "quote\"\\\n", "empty"};
  moec_tensor t[3];
  UNIT_OK(moec_tensor_init(&t[0], MOEC_BF16, 2, (int64_t[]){2, 3}));
  UNIT_OK(moec_tensor_init(&t[1], MOEC_I64, 0, NULL));
  UNIT_OK(moec_tensor_init(&t[2], MOEC_F32, 1, (int64_t[]){0}));
  memset(t[0].data, 7, 12);
  UNIT_OK(moec_safetensors_write(path, 3, names, t));
  moec_safetensors *st;
  UNIT_OK(moec_safetensors_open(path, &st));
  ck_assert_uint_eq(moec_safetensors_count(st), 3);
  ck_assert_uint_eq(moec_safetensors_at(st, 0)->file_offset % 64, 0);
  for (int i = 0; i < 3; i++) {
    const moec_st_entry *e = moec_safetensors_find(st, names[i]);
    ck_assert_ptr_nonnull(e);
    ck_assert(e->tensor.dtype == t[i].dtype && e->tensor.rank == t[i].rank);
    ck_assert_mem_eq(e->tensor.data, t[i].data, moec_tensor_bytes(&t[i]));
  }
  moec_safetensors_close(st);
  static const char *const twice[] = {"a", "a", "b"}, *const reserved[] = {"__metadata__"};
  static const char *const latin[] = {"\xe4"};
  UNIT_FAILS(moec_safetensors_write(path, 3, twice, t), MOEC_INVALID_ARGUMENT, "once");
  UNIT_FAILS(moec_safetensors_write(path, 1, reserved, t), MOEC_INVALID_ARGUMENT, "once");
  UNIT_FAILS(moec_safetensors_write(path, 1, latin, t), MOEC_INVALID_ARGUMENT, "UTF-8");
  for (int i = 0; i < 3; i++) moec_tensor_fini(&t[i]);
  UNIT_FAILS(moec_safetensors_write(path, 1, names, t), MOEC_INVALID_ARGUMENT, "element type");
  UNIT_OK(moec_safetensors_open(path, &st)); /* the old file is whole */
  moec_safetensors_close(st);
  unit_remove(dir);
}
END_TEST

UNIT_MAIN("safetensors", reads_in_file_order, accepts_no_tensors_and_scalars, refuses_ranges,
          refuses_shapes, refuses_json, refuses_depth_and_number_of_values, refuses_lengths,
          writes_what_it_reads)
