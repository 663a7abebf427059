/* Numbers in text do not follow the locale of the process: here one with a decimal comma, made for this test. */
#include "base/number.h"

#include <locale.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fresh.h"
#include "ir/ir.h"
#include "tests/unit/unit.h"

/* Makes de_DE and chooses it. */
static bool german(void) {
  char dir[] = "/tmp/moec-unit-XXXXXX", command[256], text[8];
  if (!mkdtemp(dir)) return false;
  snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", dir);
  bool made = system(command) == 0 && !setenv("LOCPATH", dir, 1) && setlocale(LC_NUMERIC, "de_DE.UTF-8");
  snprintf(text, sizeof text, "%.1f", 0.5);
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  return !system(command) && made && !strcmp(text, "0,5");
}

#undef UNIT_BEFORE
#define UNIT_BEFORE                                                      \
  if (!german()) {                                                       \
    fprintf(stderr, "skipped: no localedef that makes de_DE.UTF-8\n");   \
    return 77;                                                           \
  }

START_TEST(numbers_have_a_point) {
  char text[32], *end;
  ck_assert_int_eq(moec_snprintf(text, sizeof text, "%.17g", 0.5), 3);
  ck_assert_str_eq(text, "0.5");
  ck_assert(moec_strtod("0.25,", &end) == 0.25 && *end == ',');
  ck_assert(strtod("0,25", &end) == 0.25 && !*end); /* the caller's locale is his again */
}
END_TEST

START_TEST(text_for_files_has_a_point) {
  moec_buf b = {0};
  moec_arena *a = moec_arena_create();
  moec_buf_printf(&b, "%.9g %a", 1.5, 1.5);
  ck_assert_str_eq(moec_buf_str(&b), "1.5 0x1.8p+0");
  ck_assert_str_eq(moec_arena_printf(a, "%g", 1.5), "1.5");
  moec_arena_destroy(a);
  moec_buf_fini(&b);
}
END_TEST

START_TEST(weights_made_from_a_seed_keep_their_name) {
  const moec_fresh f = {MOEC_FRESH_NORMAL, 0.02};
  char name[MOEC_FRESH_TEXT];
  moec_fresh again;
  moec_fresh_print(&f, name);
  ck_assert_str_eq(name, "moec.init:normal:0.02");
  UNIT_OK(moec_fresh_parse(name, &again));
  ck_assert(again.deviation == 0.02);
  UNIT_FAILS(moec_fresh_parse("moec.init:normal:0,02", &again), MOEC_INVALID_MODEL, "normal:DEVIATION");
}
END_TEST

START_TEST(modules_print_and_parse) {
  const char *text = "module \"\" {\n}\nfn @\"main\"(%1 \"x\" : f32[2]) -> (%2 \"y\") {\n"
                     "  %2 = const() {data = f32[2] [0x1.8p+0, 0x1p-1]} : f32[2]\n}\n";
  moec_module *m;
  moec_buf b = {0}, again = {0};
  UNIT_OK(moec_parse(text, &m));
  moec_print(&b, m);
  moec_module_destroy(m);
  ck_assert_ptr_nonnull(strstr(moec_buf_str(&b), "[0x1.8p+0, 0x1p-1]"));
  UNIT_OK(moec_parse(moec_buf_str(&b), &m));
  moec_print(&again, m);
  moec_module_destroy(m);
  ck_assert_str_eq(moec_buf_str(&again), moec_buf_str(&b));
  moec_buf_fini(&b);
  moec_buf_fini(&again);
}
END_TEST

UNIT_MAIN("number", numbers_have_a_point, text_for_files_has_a_point, weights_made_from_a_seed_keep_their_name,
          modules_print_and_parse)
