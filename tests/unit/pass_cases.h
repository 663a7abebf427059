/* tests/passes/<pass>/<behaviour>.ir, one case a file:
 *
 *     ; what it shows
 *     ; run: simplify               or "fuse on cuda": for that target
 *     module "..." { ... }          the input
 *     fn @"main"(...) ...
 *     ; expect:
 *     module "..." { ... }          what the pass makes of it, byte for byte */
#ifndef MOEC_TESTS_PASS_CASES_H
#define MOEC_TESTS_PASS_CASES_H

#include <glob.h>

#include "passes/pass.h"
#include "tests/unit/unit.h"

typedef struct pass_case {
  const char *file;
  char *text; /* of the whole file */
  char *head; /* the two comment lines */
  char *pass, *input, *expect;
  bool cuda;
} pass_case;

/* Cuts the file into its parts. */
static inline void pass_case_read(pass_case *c, const char *file) {
  moec_map map = {0};
  UNIT_OK(moec_map_user_file(file, &map));
  *c = (pass_case){.file = file, .text = malloc(map.size + 1)};
  ck_assert_ptr_nonnull(c->text);
  memcpy(c->text, map.data, map.size);
  c->text[map.size] = 0;
  moec_unmap(&map);
  char *run = strstr(c->text, "\n; run: "), *expect = strstr(c->text, "\n; expect:\n");
  if (!run || !expect) ck_abort_msg("%s: expected '; run: PASS' in line 2 and a line '; expect:'", file);
  c->head = strndup(c->text, (size_t)(strchr(run + 1, '\n') + 1 - c->text));
  c->pass = strndup(run + 8, strcspn(run + 8, "\n"));
  char *target = strstr(c->pass, " on cuda");
  c->cuda = target != NULL;
  if (target) *target = 0;
  c->input = strchr(run + 1, '\n') + 1;
  expect[1] = 0; /* ends the input behind its last newline */
  c->expect = expect + strlen("\n; expect:\n");
}

static inline void pass_case_free(pass_case *c) {
  free(c->text);
  free(c->head);
  free(c->pass);
}

static inline moec_module *pass_case_parse(const pass_case *c) {
  moec_module *m = NULL;
  UNIT_OK(moec_context(moec_parse(c->input, &m), "%s", c->file));
  UNIT_OK(moec_context(moec_verify(m), "%s", c->file));
  return m;
}

static inline void pass_case_run(const pass_case *c, moec_module *m) {
  moec_compile_options options = {.target = c->cuda ? MOEC_TARGET_CUDA : MOEC_TARGET_CPU,
                                  .precision = MOEC_PRECISION_F32};
  moec_pass_ctx cx = {.options = &options};
  UNIT_OK(moec_context(moec_run_pass(m, c->pass, &cx), "%s", c->file));
}

/* Calls |check| for every case; none is a failure. MOEC_CASE=TEXT: only files whose name holds TEXT. */
static inline void pass_case_each(void (*check)(pass_case *c)) {
  glob_t g;
  const char *only = getenv("MOEC_CASE");
  size_t n = 0;
  ck_assert_int_eq(glob("tests/passes/*/*.ir", 0, NULL, &g), 0);
  for (size_t i = 0; i < g.gl_pathc; i++) {
    if (only && !strstr(g.gl_pathv[i], only)) continue;
    pass_case c;
    pass_case_read(&c, g.gl_pathv[i]);
    check(&c);
    pass_case_free(&c);
    n++;
  }
  globfree(&g);
  ck_assert_uint_gt(n, 0);
}

#endif
