/* Recognisers say why they left something alone: the lines "; remark: TEXT" above "; run:" in tests/passes/raise_* and
 * loss_chunk are the remarks of that case, one line each remark (or several equal ones), and there are no others. */
#include "passes/pass.h"
#include "tests/unit/pass_cases.h"

static bool head_names(const char *head, const char *remark) {
  for (const char *line = strstr(head, "; remark: "); line; line = strstr(line + 1, "; remark: ")) {
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line + 10, "\n"), line + 10);
    if (strstr(remark, text)) return true;
  }
  return false;
}

static void check_remarks(pass_case *c) {
  if (strncmp(c->pass, "raise_", 6) != 0 && strcmp(c->pass, "loss_chunk") != 0) return;
  moec_module *m = pass_case_parse(c);
  moec_compile_options options = {.target = c->cuda ? MOEC_TARGET_CUDA : MOEC_TARGET_CPU,
                                  .precision = MOEC_PRECISION_F32};
  moec_pass_ctx cx = {.options = &options};
  UNIT_OK(moec_run_pass(m, c->pass, &cx));
  size_t wanted = 0;
  for (const char *line = strstr(c->head, "; remark: "); line; line = strstr(line + 1, "; remark: ")) wanted++;
  if (wanted && !cx.remarks.n) ck_abort_msg("%s: expected a remark", c->file);
  for (size_t i = 0; i < cx.remarks.n; i++)
    if (!head_names(c->head, cx.remarks.lines[i])) ck_abort_msg("%s: remark \"%s\"", c->file, cx.remarks.lines[i]);
  moec_module_destroy(m);
}

START_TEST(every_case_gives_its_remarks) { pass_case_each(check_remarks); }
END_TEST

UNIT_MAIN("raise_remarks", every_case_gives_its_remarks)
