/* One function in the text view: its regions from top to bottom, and below each why it ends there. */
#include <string.h>

#include "codegen/report_lines.h"

enum { KIND = 7, TITLE = 18, FLOPS = 78, BYTES = 89, DETAIL = 18, STAGE = 29 };

static void numbers(moec_buf *b, const json_t *o) {
  moec_report_pad(b, FLOPS);
  moec_report_human(b, moec_report_value(o, "flops"), "");
  moec_report_pad(b, BYTES);
  moec_report_human_bytes(b, moec_report_value(o, "bytes"));
  moec_report_end_line(b);
}

static const char *size_text(const json_t *o, const char *key) {
  return moec_report_text(json_object_get(o, key), "text");
}

static void detail(moec_buf *b, const char *text) {
  moec_report_pad(b, DETAIL);
  moec_report_wrap(b, text, DETAIL);
  moec_report_end_line(b);
}

/* ---- what is special to a kind ------------------------------------------------------------- */

static void draw_ops(const json_t *region, moec_buf *b) {
  const json_t *ops = json_object_get(region, "ops");
  moec_buf line = {0};
  for (size_t i = 0; i < json_array_size(ops); i++) {
    const json_t *o = json_array_get(ops, i);
    long long count = moec_report_int(o, "count");
    moec_buf_printf(&line, "%s%s", i ? ", " : "", moec_report_text(o, "op"));
    if (count > 1) moec_buf_printf(&line, " x%lld", count);
  }
  if (line.size) detail(b, moec_buf_str(&line));
  moec_buf_fini(&line);
}

static void draw_gemm(const json_t *g, moec_buf *b) {
  moec_buf line = {0};
  const char *batch = size_text(g, "batch");
  moec_buf_printf(&line, "M = %s, N = %s, K = %s", size_text(g, "m"), size_text(g, "n"), size_text(g, "k"));
  if (strcmp(batch, "1") != 0) moec_buf_printf(&line, ", batch %s", batch);
  detail(b, moec_buf_str(&line));
  moec_buf_fini(&line);
}

static void draw_attention(const json_t *a, moec_buf *b) {
  const json_t *mask = json_object_get(a, "mask"), *rope = json_object_get(a, "rope");
  moec_buf line = {0};
  moec_buf_printf(&line, "%s queries on %s keys", size_text(a, "queries"), size_text(a, "keys"));
  if (strcmp(size_text(a, "head_size"), size_text(a, "value_size")) != 0)
    moec_buf_printf(&line, ", value size %s", size_text(a, "value_size"));
  if (json_is_true(json_object_get(mask, "causal"))) moec_buf_puts(&line, ", causal");
  if (moec_report_int(mask, "window"))
    moec_buf_printf(&line, ", window %lld", (long long)moec_report_int(mask, "window"));
  if (json_is_true(json_object_get(a, "sinks"))) moec_buf_puts(&line, ", sinks");
  if (rope && !json_is_null(rope)) moec_buf_printf(&line, ", rope on %s", size_text(rope, "size"));
  detail(b, moec_buf_str(&line));
  moec_buf_fini(&line);
  if (!*moec_report_text(mask, "text")) return;
  moec_buf_printf(&line, "mask (%s): %s", moec_report_text(mask, "kind"), moec_report_text(mask, "text"));
  detail(b, moec_buf_str(&line));
  moec_buf_fini(&line);
}

/* Stage |i|; those before the opaque region say only where they are, equal ones on one line. Gives the next one. */
static size_t draw_stage(const json_t *stages, size_t i, moec_buf *b) {
  const json_t *s = json_array_get(stages, i);
  moec_report_pad(b, DETAIL);
  moec_report_clean(b, moec_report_text(s, "stage"), 12);
  moec_report_pad(b, STAGE);
  if (moec_report_int(s, "region") < 0) {
    moec_report_clean(b, moec_report_text(s, "title"), 22);
    moec_report_pad(b, STAGE + 23);
    moec_report_clean(b, moec_report_text(s, "type"), 25);
    numbers(b, s);
    return i + 1;
  }
  const char *stage = moec_report_text(s, "stage");
  for (bool first = true; i < json_array_size(stages); i++, first = false) {
    s = json_array_get(stages, i);
    if (moec_report_int(s, "region") < 0 || strcmp(stage, moec_report_text(s, "stage")) != 0) break;
    moec_buf_printf(b, "%sr%lld", first ? "in " : ", ", (long long)moec_report_int(s, "region"));
  }
  moec_report_end_line(b);
  return i;
}

static void draw_expert(const json_t *e, moec_buf *b) {
  const json_t *stages = json_object_get(e, "stages"), *shared = json_object_get(e, "shared_expert");
  moec_buf line = {0};
  moec_buf_printf(&line, "hidden %s, intermediate %s%s%s%s", size_text(e, "hidden"), size_text(e, "intermediate"),
                  json_is_true(json_object_get(e, "gated")) ? ", gated" : "",
                  json_is_true(json_object_get(e, "bias")) ? ", bias" : "",
                  json_is_true(json_object_get(e, "adds_residual")) ? ", adds the residual" : "");
  if (shared && !json_is_null(shared))
    moec_buf_printf(&line, "; a shared expert of %s beside it%s", size_text(shared, "intermediate"),
                    json_is_true(json_object_get(shared, "gated")) ? ", gated" : "");
  detail(b, moec_buf_str(&line));
  moec_buf_fini(&line);
  for (size_t i = 0; i < json_array_size(stages);) i = draw_stage(stages, i, b);
}

/* ---- cuts --------------------------------------------------------------------------------- */

static bool same_cut(const json_t *a, const json_t *c) {
  return moec_report_int(a, "from") == moec_report_int(c, "from") &&
         strcmp(moec_report_text(a, "why"), moec_report_text(c, "why")) == 0;
}

/* Whether an earlier cut has the same source, reason and target: two values on one way. */
static bool repeated(const json_t *cuts, size_t k) {
  const json_t *c = json_array_get(cuts, k);
  for (size_t i = 0; i < k; i++) {
    const json_t *d = json_array_get(cuts, i);
    if (same_cut(c, d) && moec_report_int(c, "to") == moec_report_int(d, "to")) return true;
  }
  return false;
}

/* "r1, r2" or "r1, r3, r5 ... r97 (48 regions)": what reads a value of |c|'s source for its reason. */
static void draw_targets(const json_t *cuts, const json_t *c, moec_buf *line) {
  enum { MOST = 8, SHOWN = 3 };
  long long n = 0, listed = 0, last = 0;
  for (size_t k = 0; k < json_array_size(cuts); k++) n += same_cut(c, json_array_get(cuts, k)) && !repeated(cuts, k);
  for (size_t k = 0; k < json_array_size(cuts); k++) {
    if (!same_cut(c, json_array_get(cuts, k)) || repeated(cuts, k)) continue;
    last = moec_report_int(json_array_get(cuts, k), "to");
    if (n > MOST && listed >= SHOWN) continue;
    moec_buf_puts(line, listed++ ? ", " : "");
    if (last < 0)
      moec_buf_puts(line, "end");
    else
      moec_buf_printf(line, "r%lld", last);
  }
  if (n > MOST) moec_buf_printf(line, " ... r%lld (%lld regions)", last, n);
}

/* "~> r1, r2: library GEMM reads its operand from memory", each reason once. */
static void draw_cuts(const json_t *cuts, int64_t from, moec_buf *b) {
  for (size_t i = 0; i < json_array_size(cuts); i++) {
    const json_t *c = json_array_get(cuts, i);
    if (moec_report_int(c, "from") != from) continue;
    bool first = true;
    for (size_t k = 0; k < i && first; k++) first = !same_cut(c, json_array_get(cuts, k));
    if (!first) continue;
    moec_buf line = {0};
    draw_targets(cuts, c, &line);
    moec_buf_printf(&line, ": %s", moec_report_text(c, "why"));
    moec_buf_puts(b, "      ~> ");
    moec_report_wrap(b, moec_buf_str(&line), 9);
    moec_report_end_line(b);
    moec_buf_fini(&line);
  }
}

/* ---- regions ------------------------------------------------------------------------------ */

static void draw_region(const json_t *fn, size_t index, moec_buf *b) {
  const json_t *r = json_array_get(json_object_get(fn, "regions"), index), *part;
  moec_buf_printf(b, "  r%zu", index);
  moec_report_pad(b, KIND);
  moec_report_clean(b, moec_report_text(r, "kind"), 10);
  moec_report_pad(b, TITLE);
  moec_report_clean(b, moec_report_text(r, "title"), 48);
  if (strcmp(moec_report_text(r, "at"), "step") != 0) moec_buf_printf(b, "  (at %s)", moec_report_text(r, "at"));
  numbers(b, r);
  if (json_array_size(json_object_get(r, "ops")) > 1) draw_ops(r, b);
  if ((part = json_object_get(r, "gemm"))) draw_gemm(part, b);
  if ((part = json_object_get(r, "attention"))) draw_attention(part, b);
  if ((part = json_object_get(r, "expert"))) draw_expert(part, b);
  draw_cuts(json_object_get(fn, "cuts"), (int64_t)index, b);
}

/* Calls of main stand one after the other: one line for all of them. */
static size_t draw_calls(const json_t *root, const json_t *regions, size_t i, moec_buf *b) {
  size_t first = i, n = json_array_size(regions);
  while (i < n && strcmp(moec_report_text(json_array_get(regions, i), "kind"), "call") == 0) i++;
  if (i == first + 1)
    moec_buf_printf(b, "  r%zu", first);
  else
    moec_buf_printf(b, "  r%zu-r%zu", first, i - 1);
  moec_report_pad(b, TITLE);
  moec_report_many(b, (int64_t)(i - first), "call");
  moec_buf_puts(b, " in ");
  moec_report_many(b, (int64_t)json_array_size(json_object_get(root, "sequence")), "decoder block");
  moec_report_end_line(b);
  return i;
}

static void draw_head(const json_t *fn, moec_buf *b) {
  const json_t *p = json_object_get(fn, "parameters");
  moec_buf_putc(b, '\n');
  moec_report_clean(b, moec_report_text(fn, "name"), 40);
  if (moec_report_int(fn, "calls") > 1) moec_buf_printf(b, "  x%lld", (long long)moec_report_int(fn, "calls"));
  if (moec_report_int(p, "count")) {
    moec_buf_puts(b, "   ");
    moec_report_human(b, moec_report_int(p, "elements"), "");
    moec_buf_puts(b, " parameters");
    moec_buf_puts(b, " (");
    moec_report_human_bytes(b, moec_report_int(p, "bytes"));
    moec_buf_putc(b, ')');
  }
  moec_report_pad(b, FLOPS - 10);
  moec_buf_puts(b, moec_report_int(fn, "calls") > 1 ? "one call" : "");
  numbers(b, fn);
}

void moec_report_text_function(const json_t *root, const json_t *fn, moec_buf *b) {
  const json_t *regions = json_object_get(fn, "regions");
  draw_head(fn, b);
  draw_cuts(json_object_get(fn, "cuts"), -1, b);
  for (size_t i = 0; i < json_array_size(regions);) {
    if (strcmp(moec_report_text(json_array_get(regions, i), "kind"), "call") == 0)
      i = draw_calls(root, regions, i, b);
    else
      draw_region(fn, i++, b);
  }
}
