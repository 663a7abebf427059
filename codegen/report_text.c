/* The report for a terminal: at most 100 columns; what is equal is said once. */
#include <string.h>

#include "codegen/report_lines.h"

/* ---- the model ---------------------------------------------------------------------------- */

static void draw_interface(const json_t *root, const char *key, moec_buf *b) {
  const json_t *list = json_object_get(root, key);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *v = json_array_get(list, i);
    moec_report_label(b, i ? "" : key);
    moec_report_clean(b, moec_report_text(v, "name"), 40);
    moec_buf_puts(b, "  ");
    moec_report_clean(b, moec_report_text(v, "type"), 40);
    if (json_object_get(v, "default")) {
      moec_buf_puts(b, ", may be left out: ");
      moec_report_clean(b, moec_report_text(v, "default"), 20);
    }
    moec_report_end_line(b);
  }
}

static void draw_parameters(const json_t *root, moec_buf *b) {
  const json_t *p = json_object_get(root, "parameters"), *expert = json_object_get(p, "expert");
  moec_report_label(b, "parameters");
  moec_report_human(b, moec_report_int(p, "elements"), "");
  moec_buf_puts(b, " (");
  moec_report_human_bytes(b, moec_report_int(p, "bytes"));
  moec_buf_printf(b, ") in %lld tensors", (long long)moec_report_int(p, "count"));
  if (moec_report_int(expert, "count")) {
    moec_buf_puts(b, "; ");
    moec_report_human(b, moec_report_int(expert, "elements"), "");
    moec_buf_puts(b, " in experts; active for one token ");
    moec_report_human(b, moec_report_int(p, "active"), "");
  }
  moec_report_end_line(b);
}

void moec_report_sizes_line(const json_t *root, moec_buf *b) {
  const json_t *list = json_object_get(root, "symbols");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *s = json_array_get(list, i);
    moec_buf_puts(b, i ? ", " : " at ");
    moec_report_clean(b, moec_report_text(s, "name"), 20);
    moec_buf_printf(b, " %lld", (long long)moec_report_int(s, "value"));
  }
}

static void draw_totals(const json_t *root, moec_buf *b) {
  const json_t *t = json_object_get(root, "totals");
  static const struct { const char *key, *one, *before; } counts[] = {{"kernel_launches", "kernel call", ""},
      {"gemms", "GEMM", ", "},
      {"expert_regions", "expert region", ", "}, {"library_steps", "other library step", ", "}};
  moec_report_label(b, "compiled");
  moec_report_many(b, moec_report_int(t, "kernels"), "kernel");
  moec_buf_puts(b, ", ");
  moec_report_many(b, moec_report_int(t, "functions"), "function");
  moec_buf_puts(b, " called ");
  moec_report_many(b, moec_report_int(t, "calls"), "time");
  moec_report_end_line(b);
  moec_report_label(b, "a step");
  for (size_t i = 0; i < 4; i++) {
    moec_buf_puts(b, counts[i].before);
    moec_report_many(b, moec_report_int(t, counts[i].key), counts[i].one);
  }
  moec_report_end_line(b);
  moec_report_label(b, "");
  moec_report_human(b, moec_report_value(t, "flops"), "FLOP");
  moec_buf_puts(b, ", ");
  moec_report_human_bytes(b, moec_report_value(t, "bytes"));
  moec_buf_puts(b, " through memory");
  moec_report_sizes_line(root, b);
  moec_report_end_line(b);
}

static void draw_constraints(const json_t *root, moec_buf *b) {
  const json_t *list = json_object_get(root, "constraints");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *c = json_array_get(list, i);
    moec_report_label(b, i ? "" : "needs");
    moec_report_clean(b, moec_report_text(c, "text"), 76);
    moec_report_end_line(b);
  }
}

/* ---- blocks ------------------------------------------------------------------------------- */

static void draw_run(const json_t *root, const json_t *run, moec_buf *b) {
  const json_t *blocks = json_object_get(run, "blocks"), *all = json_object_get(root, "blocks");
  size_t n = json_array_size(blocks);
  long long count = moec_report_int(run, "count");
  if (n > 1 && count > 1) moec_buf_putc(b, '(');
  for (size_t i = 0; i < n; i++)
    moec_buf_printf(
        b, "%s%s", i ? " " : "",
        moec_report_text(json_array_get(all, (size_t)json_integer_value(json_array_get(blocks, i))), "name"));
  if (n > 1 && count > 1) moec_buf_putc(b, ')');
  if (count > 1) moec_buf_printf(b, " x%lld", count);
}

static void draw_blocks(const json_t *root, moec_buf *b) {
  const json_t *blocks = json_object_get(root, "blocks"), *runs = json_object_get(root, "runs");
  const json_t *fns = json_object_get(root, "functions");
  if (!json_array_size(blocks)) return;
  moec_report_heading(b, "Decoder blocks");
  moec_report_label(b, "order");
  for (size_t i = 0; i < json_array_size(runs); i++) {
    if (i) moec_buf_puts(b, ", ");
    if (moec_report_column(b) > 84) moec_report_end_line(b), moec_report_label(b, "");
    draw_run(root, json_array_get(runs, i), b);
  }
  moec_report_end_line(b);
  for (size_t i = 0; i < json_array_size(blocks); i++) {
    const json_t *x = json_array_get(blocks, i), *list = json_object_get(x, "functions");
    char name[48];
    snprintf(name, sizeof name, "block %.30s", moec_report_text(x, "name"));
    moec_report_label(b, name);
    moec_buf_printf(b, "x%-4lld", (long long)moec_report_int(x, "count"));
    for (size_t k = 0; k < json_array_size(list); k++) {
      if (k) moec_buf_puts(b, " + ");
      moec_report_clean(
          b, moec_report_text(json_array_get(fns, (size_t)json_integer_value(json_array_get(list, k))), "name"), 30);
    }
    moec_report_end_line(b);
  }
}

/* Layers that differ in nothing but their place and names make one line. */
static bool same_layer(const json_t *a, const json_t *c) {
  static const char *const ints[] = {"function", "region", "experts", "k"};
  for (size_t i = 0; i < 4; i++)
    if (moec_report_int(a, ints[i]) != moec_report_int(c, ints[i])) return false;
  return true;
}

static void draw_layers(const json_t *root, moec_buf *b) {
  const json_t *list = json_object_get(root, "moe_layers"), *fns = json_object_get(root, "functions");
  size_t n = json_array_size(list), end;
  if (!n) return;
  moec_report_heading(b, "MoE layers");
  moec_buf_puts(b, "  layer      block      function    experts    k    hidden    inner    FLOP        weights\n");
  for (size_t i = 0; i < n; i = end) {
    const json_t *x = json_array_get(list, i);
    for (end = i + 1; end < n && same_layer(x, json_array_get(list, end));) end++;
    const json_t *last = json_array_get(list, end - 1);
    moec_buf_puts(b, "  ");
    moec_report_range(b, moec_report_int(x, "layer"), moec_report_int(last, "layer"), 13);
    moec_report_range(b, moec_report_int(x, "block"), moec_report_int(last, "block"), 24);
    moec_report_clean(b, moec_report_text(json_array_get(fns, (size_t)moec_report_int(x, "function")), "name"), 11);
    moec_report_pad(b, 36);
    moec_buf_printf(b, "%-11lld%-5lld", (long long)moec_report_int(x, "experts"), (long long)moec_report_int(x, "k"));
    moec_buf_printf(b, "%-10s%-9s", moec_report_text(json_object_get(x, "hidden"), "text"),
                    moec_report_text(json_object_get(x, "intermediate"), "text"));
    moec_report_human(b, moec_report_value(x, "flops"), "");
    moec_report_pad(b, 83);
    moec_report_clean(b, moec_report_text(x, "fc1"), 17);
    moec_report_end_line(b);
  }
}

/* ---- the rest ----------------------------------------------------------------------------- */

static bool same_work(const json_t *a, const json_t *c) {
  static const char *const texts[] = {"at", "title", "type"};
  for (size_t i = 0; i < 3; i++)
    if (strcmp(moec_report_text(a, texts[i]), moec_report_text(c, texts[i])) != 0) return false;
  return moec_report_int(a, "function") == moec_report_int(c, "function");
}

/* One line for equal work of one function: what happens, how often, what it makes. */
static void draw_work(const json_t *root, const json_t *list, size_t i, moec_buf *b) {
  const json_t *x = json_array_get(list, i),
               *fn = json_array_get(json_object_get(root, "functions"), (size_t)moec_report_int(x, "function"));
  long long n = 0;
  for (size_t k = 0; k < i; k++)
    if (same_work(x, json_array_get(list, k))) return;
  for (size_t k = i; k < json_array_size(list); k++) n += same_work(x, json_array_get(list, k));
  moec_report_label(b, moec_report_text(fn, "name"));
  moec_buf_printf(b, "r%-4lld", (long long)moec_report_int(x, "region"));
  moec_report_clean(b, moec_report_text(x, "title"), 30);
  if (n > 1) moec_buf_printf(b, " x%lld", n);
  moec_report_pad(b, 58);
  moec_report_clean(b, moec_report_text(x, "type"), 40);
  moec_report_end_line(b);
}

static void draw_hoisted(const json_t *root, moec_buf *b) {
  static const struct { const char *at, *title; } times[] = {
      {"load", "Once, when weights are loaded or updated"}, {"bind", "Once for each set of sizes"}};
  const json_t *list = json_object_get(root, "hoisted");
  for (size_t t = 0; t < 2; t++) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
      if (strcmp(moec_report_text(json_array_get(list, i), "at"), times[t].at) != 0) continue;
      if (!any) moec_report_heading(b, times[t].title);
      any = true;
      draw_work(root, list, i, b);
    }
  }
}

static void draw_lines(const json_t *root, const char *key, const char *title, moec_buf *b) {
  const json_t *list = json_object_get(root, key);
  if (!json_array_size(list)) return;
  moec_report_heading(b, title);
  for (size_t i = 0; i < json_array_size(list); i++) {
    moec_buf_puts(b, "  ");
    moec_report_wrap(b, moec_report_text_at(list, i), 4);
    moec_report_end_line(b);
  }
}

void moec_report_view_text(const json_t *root, moec_buf *out) {
  const json_t *fns = json_object_get(root, "functions");
  moec_report_clean(out, moec_report_text(root, "model"), 98);
  moec_report_end_line(out);
  draw_interface(root, "inputs", out);
  draw_interface(root, "outputs", out);
  draw_parameters(root, out);
  draw_totals(root, out);
  draw_constraints(root, out);
  draw_lines(root, "notes", "Notes", out);
  draw_blocks(root, out);
  draw_layers(root, out);
  draw_hoisted(root, out);
  moec_report_text_training(root, out);
  moec_report_heading(out, "Functions, from top to bottom; ~> where a value goes and why the region ends there");
  moec_report_pad(out, 78);
  moec_buf_puts(out, "FLOP       memory");
  for (size_t i = 0; i < json_array_size(fns); i++) moec_report_text_function(root, json_array_get(fns, i), out);
  draw_lines(root, "remarks", "Remarks", out);
}
