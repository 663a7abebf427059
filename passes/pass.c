/* The pass manager: runs the lines of passes.def; the module is compacted and verified after each. */
#include "passes/pass.h"

#include <stdarg.h>
#include <string.h>

typedef struct pass_entry {
  const char *name;
  moec_pass_fn run;
} pass_entry;

static const pass_entry pass_table[] = {
#define PASS(name, what) {#name, moec_pass_##name},
#include "passes/passes.def"
#undef PASS
};

void moec_remark(moec_pass_ctx *cx, moec_module *m, const char *fmt, ...) {
  moec_buf b = {0};
  va_list args;
  va_start(args, fmt);
  moec_buf_vprintf(&b, fmt, args);
  va_end(args);
  moec_remarks *r = &cx->remarks;
  MOEC_PUSH(m->arena, r->lines, r->n, r->cap, moec_arena_strdup(m->arena, moec_buf_str(&b)));
  moec_buf_fini(&b);
}

static moec_status *run_checked(moec_module *m, const pass_entry *p, moec_pass_ctx *cx) {
  MOEC_TRY(moec_context(p->run(m, cx), "pass %s", p->name));
  moec_compact_all(m);
  MOEC_TRY(moec_context(moec_verify(m), "pass %s left a broken module", p->name));
  return cx->after ? moec_context(cx->after(cx->user, p->name, m), "after pass %s", p->name) : NULL;
}

moec_status *moec_run_passes(moec_module *m, moec_pass_ctx *cx) {
  for (size_t i = 0; i < sizeof pass_table / sizeof *pass_table; i++) MOEC_TRY(run_checked(m, &pass_table[i], cx));
  return NULL;
}

moec_status *moec_run_pass(moec_module *m, const char *name, moec_pass_ctx *cx) {
  for (size_t i = 0; i < sizeof pass_table / sizeof *pass_table; i++)
    if (strcmp(pass_table[i].name, name) == 0) return run_checked(m, &pass_table[i], cx);
  return moec_error(MOEC_INVALID_ARGUMENT, "expected the name of a pass, got \"%s\"", name);
}
