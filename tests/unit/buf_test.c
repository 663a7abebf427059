#include "base/buf.h"

#include "tests/unit/unit.h"

START_TEST(empty_reads_as_empty) {
  moec_buf b = {0};
  ck_assert_str_eq(moec_buf_str(&b), "");
  moec_buf_puts(&b, "");
  ck_assert_str_eq(moec_buf_str(&b), "");
  ck_assert_uint_eq(b.size, 0);
  moec_buf_fini(&b);
  moec_buf_fini(&b);
}
END_TEST

START_TEST(all_writers_append) {
  moec_buf b = {0};
  moec_buf_putc(&b, 'a');
  moec_buf_puts(&b, "bc");
  moec_buf_write(&b, "de", 2);
  moec_buf_printf(&b, "%03d", 7);
  ck_assert_str_eq(moec_buf_str(&b), "abcde007");
  ck_assert_uint_eq(b.size, 8);
  moec_buf_fini(&b);
}
END_TEST

START_TEST(grows_and_holds_nul) {
  moec_buf b = {0};
  for (int i = 0; i < 20000; i++) moec_buf_printf(&b, "%05d ", i);
  ck_assert_uint_eq(b.size, 120000);
  ck_assert_int_eq(strncmp(moec_buf_str(&b) + 6 * 19999, "19999 ", 7), 0);
  moec_buf_write(&b, "\0x", 2);
  ck_assert_uint_eq(b.size, 120002);
  ck_assert_int_eq(b.data[120001], 'x');
  moec_buf_fini(&b);
}
END_TEST

UNIT_MAIN("buf", empty_reads_as_empty, all_writers_append, grows_and_holds_nul)
