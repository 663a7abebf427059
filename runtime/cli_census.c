#include "runtime/cli_census.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "runtime/cli_stages.h"
#include "runtime/model.h"

/* ---- rows -------------------------------------------------------------------------------- */

static moec_rt_kind kind_of(const moec_rt_plan *p, const moec_plan_step *s) {
  if (s->op == MOEC_STEP_KERNEL) return MOEC_RT_GENERATED;
  if (s->op == MOEC_STEP_COPY) return MOEC_RT_COPYING;
  return moec_rt_stage_of(p, s) ? MOEC_RT_MOE : MOEC_RT_LIBRARY;
}

/* "bf16[32768, 2048], i32[129] -> bf16[32768, 1536]"; of a kernel what the compiler says. The caller's, NULL: no
 * memory. */
static char *text_of(const moec_model *m, const moec_plan_step *s) {
  const moec_rt_plan *p = &m->plan;
  moec_buf b = {0};
  if (s->op == MOEC_STEP_KERNEL) return strdup(moec_rt_str(p, p->kernels[s->kernel].what));
  for (uint32_t i = 0; i < s->n_in + s->n_out; i++) {
    char shape[MOEC_RT_SHAPE_TEXT];
    moec_tensor t;
    const char *between = i == s->n_in ? i ? " -> " : "-> " : i ? ", " : "";
    if (p->pool[s->args + i] == MOEC_NONE) continue;
    moec_rt_tensor_view(m, m->bound, p->pool[s->args + i], &t);
    moec_buf_printf(&b, "%s%s", between, moec_rt_shape_text(t.dtype, t.rank, t.dims, shape, sizeof shape));
  }
  char *text = strdup(moec_buf_str(&b));
  moec_buf_fini(&b);
  return text;
}

static moec_status *row_of(const moec_model *m, const moec_plan_step *s, moec_rt_row *out) {
  const moec_rt_plan *p = &m->plan;
  const char *stage = moec_rt_stage_of(p, s);
  int64_t flops = m->bound->values[s->flops];
  *out = (moec_rt_row){.what = text_of(m, s), .kind = kind_of(p, s), .steps = 1};
  if (!out->what) return moec_rt_no_memory("the table of kernels", 0);
  out->name = stage ? stage : moec_rt_op_get(s->op)->text;
  if (s->op == MOEC_STEP_KERNEL) out->name = moec_rt_str(p, p->kernels[s->kernel].name);
  out->function = s->call == MOEC_NONE ? "" : moec_rt_str(p, p->functions[p->calls[s->call].function].name);
  out->bytes = moec_rt_operand_bytes(m, m->bound, s);
  out->flops = flops > 0 ? (uint64_t)flops : 0;
  return NULL;
}

static void add(moec_rt_row *to, const moec_rt_row *x) {
  to->steps += x->steps, to->ns += x->ns, to->bytes += x->bytes, to->flops += x->flops;
  to->launches.kernels += x->launches.kernels, to->launches.copies += x->launches.copies;
  to->launches.fills += x->launches.fills, to->launches.others += x->launches.others;
}

/* |x| joins the row it belongs to, or is a new one; its text is taken. */
static void join(moec_rt_table *t, moec_rt_row *x) {
  for (size_t i = 0; i < t->n; i++) {
    moec_rt_row *r = &t->rows[i];
    if (strcmp(r->name, x->name) || strcmp(r->function, x->function) || strcmp(r->what, x->what)) continue;
    add(r, x);
    free(x->what);
    return;
  }
  t->rows[t->n++] = *x;
}

static int by_time(const void *a, const void *b) {
  const moec_rt_row *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? 1 : -1;
  int order = strcmp(x->function, y->function);
  if (!order) order = strcmp(x->name, y->name);
  return order ? order : strcmp(x->what, y->what);
}

static moec_status *fill(moec_model *m, moec_schedule program, int runs, const moec_rt_launches *launches,
                         moec_rt_table *out) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t i = p->schedule_begin[program]; i < p->schedule_begin[program + 1]; i++) {
    moec_rt_row row;
    MOEC_TRY(row_of(m, &p->steps[i], &row));
    row.ns = runs > 0 ? m->ns[i] / (uint64_t)runs : 0;
    row.launches = launches[i];
    join(out, &row);
  }
  if (out->n) qsort(out->rows, out->n, sizeof *out->rows, by_time);
  return NULL;
}

moec_status *moec_rt_table_take(moec_model *m, moec_program program, int runs, moec_rt_table *out) {
  moec_schedule schedule = (moec_schedule)(MOEC_AT_STEP + program);
  uint32_t n = m->plan.schedule_begin[schedule + 1] - m->plan.schedule_begin[schedule];
  *out = (moec_rt_table){.counted = m->device->count_begin != NULL};
  moec_rt_launches *launches = calloc((size_t)m->plan.n_steps + 1, sizeof *launches);
  out->rows = calloc((size_t)n + 1, sizeof *out->rows);
  moec_status *s = launches && out->rows ? NULL : moec_rt_no_memory("the table of kernels", n);
  if (!s && out->counted) s = moec_rt_census(m, schedule, launches);
  if (!s) s = fill(m, schedule, runs, launches, out);
  free(launches);
  return s;
}

void moec_rt_table_fini(moec_rt_table *t) {
  for (size_t i = 0; i < t->n; i++) free(t->rows[i].what);
  free(t->rows);
  *t = (moec_rt_table){0};
}

/* ---- the report -------------------------------------------------------------------------- */

static double rate(uint64_t amount, uint64_t ns, double unit) {
  return ns ? (double)amount / (double)ns * 1e9 / unit : 0;
}

void moec_rt_table_print(const moec_rt_table *t) {
  uint64_t all = 0;
  for (size_t i = 0; i < t->n; i++) all += t->rows[i].ns;
  printf("%9s %5s %5s %7s %7s %7s  %-16s %s\n", "ms", "%", "steps", "kernels", "GB/s", "TFLOP/s", "function",
         "kernel");
  for (size_t i = 0; i < t->n; i++) {
    const moec_rt_row *r = &t->rows[i];
    printf("%9.3f %5.1f %5" PRIu64 " %7u %7.0f %7.1f  %-16s %s: %s\n", (double)r->ns / 1e6,
           all ? 100 * (double)r->ns / (double)all : 0, r->steps, r->launches.kernels, rate(r->bytes, r->ns, 1e9),
           rate(r->flops, r->ns, 1e12), r->function, r->name, r->what);
  }
  printf("%9.3f in all\n", (double)all / 1e6);
}

static const char *const kinds[MOEC_RT_KINDS] = {"generated", "library", "moe", "copy"};

static moec_rt_row total(const moec_rt_table *t, int kind) {
  moec_rt_row sum = {0};
  for (size_t i = 0; i < t->n; i++)
    if (kind == MOEC_RT_KINDS || (int)t->rows[i].kind == kind) add(&sum, &t->rows[i]);
  return sum;
}

void moec_rt_census_print(const moec_rt_table *t) {
  if (!t->counted) return;
  moec_rt_row all = total(t, MOEC_RT_KINDS);
  printf("launches per step: %u kernels", all.launches.kernels);
  for (int k = 0; k < MOEC_RT_COPYING; k++) {
    moec_rt_row x = total(t, k);
    printf("%s %s %u (%.3f ms)", k ? "," : ":", kinds[k], x.launches.kernels, (double)x.ns / 1e6);
  }
  printf("; %u copies, %u fills, %u others\n", all.launches.copies, all.launches.fills, all.launches.others);
}

static json_t *row_json(const moec_rt_row *r) {
  return json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "steps", (json_int_t)r->steps, "ms",
                   (double)r->ns / 1e6, "kernels", (json_int_t)r->launches.kernels, "copies",
                   (json_int_t)r->launches.copies, "fills", (json_int_t)r->launches.fills, "others",
                   (json_int_t)r->launches.others, "operand_bytes", (json_int_t)r->bytes, "flops",
                   (json_int_t)r->flops);
}

json_t *moec_rt_table_json(const moec_rt_table *t) {
  json_t *list = json_array();
  for (size_t i = 0; i < t->n; i++) {
    json_t *o = row_json(&t->rows[i]);
    json_object_set_new(o, "name", json_string(t->rows[i].name));
    json_object_set_new(o, "what", json_string(t->rows[i].what));
    json_object_set_new(o, "function", json_string(t->rows[i].function));
    json_object_set_new(o, "kind", json_string(kinds[t->rows[i].kind]));
    json_array_append_new(list, o);
  }
  return list;
}

json_t *moec_rt_census_json(const moec_rt_table *t) {
  json_t *o = json_object();
  for (int k = 0; k <= MOEC_RT_KINDS; k++) {
    moec_rt_row x = total(t, k);
    json_object_set_new(o, k == MOEC_RT_KINDS ? "all" : kinds[k], row_json(&x));
  }
  json_object_set_new(o, "counted", json_boolean(t->counted));
  return o;
}
