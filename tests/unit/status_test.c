#include "base/status.h"

#include "tests/unit/unit.h"

START_TEST(null_is_ok) {
  ck_assert_int_eq(moec_status_code(NULL), MOEC_OK);
  ck_assert_str_eq(moec_status_message(NULL), "ok");
  ck_assert_int_eq(moec_status_exit(NULL), 0);
  ck_assert_ptr_null(moec_context(NULL, "x"));
  moec_status_free(NULL);
}
END_TEST

START_TEST(context_goes_in_front) {
  moec_status *s = moec_error(MOEC_UNSUPPORTED, "expected %d, got %d", 1, 2);
  s = moec_context(s, "node %d", 7);
  s = moec_context(s, "model.onnx");
  ck_assert_str_eq(moec_status_message(s), "model.onnx: node 7: expected 1, got 2");
  ck_assert_int_eq(moec_status_code(s), MOEC_UNSUPPORTED);
  moec_status_free(s);
}
END_TEST

START_TEST(exit_statuses) {
  struct {
    moec_code code;
    int exit;
  } const cases[] = {{MOEC_INVALID_MODEL, 2}, {MOEC_UNSUPPORTED, 2}, {MOEC_INVALID_ARGUMENT, 2},
                     {MOEC_OUT_OF_MEMORY, 1}, {MOEC_IO, 1},          {MOEC_DEVICE, 1},
                     {MOEC_INTERNAL, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    moec_status *s = moec_error(cases[i].code, "x");
    ck_assert_int_eq(moec_status_exit(s), cases[i].exit);
    moec_status_free(s);
  }
}
END_TEST

START_TEST(ok_is_no_error_code) { UNIT_FAILS(moec_error(MOEC_OK, "x"), MOEC_INTERNAL, "x"); }
END_TEST

START_TEST(bug_names_its_place) { UNIT_FAILS(MOEC_BUG("broken"), MOEC_INTERNAL, "status_test.c:"); }
END_TEST

START_TEST(message_is_one_printable_line) {
  moec_status *s = moec_error(MOEC_IO, "a%sb", "\n\x1b[31m\t\x7f");
  ck_assert_str_eq(moec_status_message(s), "a ?[31m ?b");
  s = moec_context(s, "x\ny");
  ck_assert_str_eq(moec_status_message(s), "x y: a ?[31m ?b");
  moec_status_free(s);
}
END_TEST

START_TEST(long_message_is_cut) {
  size_t n = 1 << 20;
  char *text = malloc(n + 1);
  memset(text, 'x', n);
  text[n] = 0;
  moec_status *s = moec_error(MOEC_IO, "%s", text);
  ck_assert_uint_eq(strlen(moec_status_message(s)), 1 << 16);
  ck_assert_str_eq(moec_status_message(s) + (1 << 16) - 3, "...");
  moec_status_free(s);
  free(text);
}
END_TEST

static moec_status *twice(int *calls, moec_status *first) {
  ++*calls;
  MOEC_TRY(first);
  ++*calls;
  return NULL;
}

START_TEST(try_returns_early) {
  int calls = 0;
  UNIT_FAILS(twice(&calls, moec_error(MOEC_IO, "x")), MOEC_IO, "x");
  ck_assert_int_eq(calls, 1);
  UNIT_OK(twice(&calls, NULL));
  ck_assert_int_eq(calls, 3);
}
END_TEST

UNIT_MAIN("status", null_is_ok, context_goes_in_front, exit_statuses, ok_is_no_error_code,
          bug_names_its_place, message_is_one_printable_line, long_message_is_cut,
          try_returns_early)
