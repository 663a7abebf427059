/* Each case of tests/passes gives exactly the text it expects. MOEC_UPDATE=1 rewrites the expectations. */
#include "passes/pass.h"
#include "tests/unit/pass_cases.h"

static void update(const pass_case *c, const char *got) {
  FILE *f = fopen(c->file, "w");
  ck_assert_ptr_nonnull(f);
  fprintf(f, "%s%s; expect:\n%s", c->head, c->input, got);
  ck_assert_int_eq(fclose(f), 0);
}

static void check_text(pass_case *c) {
  moec_module *m = pass_case_parse(c);
  pass_case_run(c, m);
  moec_buf b = {0};
  moec_print(&b, m);
  const char *got = moec_buf_str(&b);
  bool same = strcmp(got, c->expect) == 0;
  if (!same && getenv("MOEC_UPDATE")) update(c, got);
  else if (!same) ck_abort_msg("%s: expected\n%s\ngot\n%s", c->file, c->expect, got);
  moec_buf_fini(&b);
  moec_module_destroy(m);
}

START_TEST(every_case_gives_its_text) { pass_case_each(check_text); }
END_TEST

UNIT_MAIN("pass_golden", every_case_gives_its_text)
