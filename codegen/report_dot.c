/* The report for Graphviz: a cluster a function, boxes for kernels, ellipses for library calls, the
 * expert region as a shaded cluster of its stages; the decoder blocks as a chain, equal ones once. */
#include <string.h>

#include "codegen/report_internal.h"

/* Quoted: names come from files. */
static void quoted(moec_buf *b, const char *s) {
  for (; *s; s++) {
    if (*s == '"' || *s == '\\') moec_buf_putc(b, '\\');
    moec_buf_putc(b, (unsigned char)*s < 32 || *s == 127 ? ' ' : *s);
  }
}

/* Lines of at most about 30 characters, for labels of edges. */
static void wrapped(moec_buf *b, const char *s) {
  size_t line = 0;
  while (*s) {
    size_t word = strcspn(s, " ");
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)(word < 60 ? word : 60), s);
    if (line && line + word > 30) moec_buf_puts(b, "\\n"), line = 0;
    moec_buf_puts(b, line ? " " : "");
    quoted(b, text);
    line += word + 1;
    s += word + strspn(s + word, " ");
  }
}

static const struct { const char *kind, *style; } styles[] = {
    {"kernel", "shape=box, style=\"filled,rounded\", fillcolor=\"#dbe9ff\""},
    {"attention", "shape=box, style=\"filled,rounded\", fillcolor=\"#bcd4ff\", penwidth=2"},
    {"gemm", "shape=ellipse, style=filled, fillcolor=\"#e9e6df\""},
    {"library", "shape=ellipse, style=\"filled,dashed\", fillcolor=\"#f4f2ee\""},
};

static const char *style_of(const char *kind) {
  for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
    if (strcmp(styles[i].kind, kind) == 0) return styles[i].style;
  return "shape=box";
}

static void cost(moec_buf *b, const json_t *o) {
  moec_buf_puts(b, "\\n");
  moec_report_human(b, moec_report_value(o, "flops"), "FLOP");
  moec_buf_puts(b, ", ");
  moec_report_human_bytes(b, moec_report_value(o, "bytes"));
}

static bool is_kind(const json_t *region, const char *kind) {
  return strcmp(moec_report_text(region, "kind"), kind) == 0;
}

/* ---- regions ------------------------------------------------------------------------------ */

/* Stages inside; the cluster's first and last stage take the edges. */
static void draw_expert(const json_t *region, size_t f, size_t i, moec_buf *b) {
  const json_t *stages = json_object_get(json_object_get(region, "expert"), "stages");
  moec_buf_printf(b,
                  "    subgraph cluster_f%zu_r%zu {\n      style=\"filled,rounded\"; fillcolor=\"#ffe3c2\"; "
                  "color=\"#c9701a\"; label=\"opaque expert region\\n",
                  f, i);
  quoted(b, moec_report_text(region, "title"));
  moec_buf_puts(b, "\";\n");
  long long previous = -1;
  for (size_t s = 0; s < json_array_size(stages); s++) {
    const json_t *x = json_array_get(stages, s);
    if (moec_report_int(x, "region") >= 0) continue;
    moec_buf_printf(b, "      f%zu_r%zu_s%zu [%s, label=\"", f, i, s,
                    style_of(json_array_size(json_object_get(x, "ops")) ? "kernel" : "library"));
    quoted(b, moec_report_text(x, "stage"));
    moec_buf_puts(b, "\"];\n");
    if (previous >= 0) moec_buf_printf(b, "      f%zu_r%zu_s%lld -> f%zu_r%zu_s%zu;\n", f, i, previous, f, i, s);
    previous = (long long)s;
  }
  moec_buf_puts(b, "    }\n");
}

static void draw_region(const json_t *region, size_t f, size_t i, moec_buf *b) {
  if (is_kind(region, "call")) return;
  if (is_kind(region, "expert")) {
    draw_expert(region, f, i, b);
    return;
  }
  moec_buf_printf(b, "    f%zu_r%zu [%s, label=\"", f, i, style_of(moec_report_text(region, "kind")));
  wrapped(b, moec_report_text(region, "title"));
  cost(b, region);
  moec_buf_puts(b, "\"];\n");
}

/* The node that stands for region |i|: the first or last stage of an expert region, a block for calls. */
static void node_name(const json_t *regions, size_t f, long long i, bool from, moec_buf *b) {
  const json_t *region = json_array_get(regions, (size_t)i);
  const json_t *stages = json_object_get(json_object_get(region, "expert"), "stages");
  size_t n = json_array_size(stages), first = 0;
  while (first + 1 < n && moec_report_int(json_array_get(stages, first), "region") >= 0) first++;
  moec_buf_printf(b, "f%zu_r%lld", f, i);
  if (is_kind(region, "expert") && n) moec_buf_printf(b, "_s%zu", from ? n - 1 : first);
}

static void draw_cut(const json_t *cut, const json_t *regions, size_t f, moec_buf *b) {
  long long from = moec_report_int(cut, "from"), to = moec_report_int(cut, "to");
  if (is_kind(json_array_get(regions, (size_t)from), "call") || is_kind(json_array_get(regions, (size_t)to), "call"))
    return;
  moec_buf_puts(b, "    ");
  if (from < 0)
    moec_buf_printf(b, "f%zu_in", f);
  else
    node_name(regions, f, from, true, b);
  moec_buf_puts(b, " -> ");
  if (to < 0)
    moec_buf_printf(b, "f%zu_out", f);
  else
    node_name(regions, f, to, false, b);
  moec_buf_puts(b, " [label=\"");
  wrapped(b, moec_report_text(cut, "why"));
  moec_buf_puts(b, "\", tooltip=\"");
  quoted(b, moec_report_text(cut, "type"));
  moec_buf_puts(b, "\"];\n");
}

/* Regions of main that read inputs of the model. */
static void draw_inputs(const json_t *region, size_t i, moec_buf *b) {
  const json_t *inputs = json_object_get(region, "inputs");
  for (size_t k = 0; k < json_array_size(inputs); k++)
    if (strcmp(moec_report_text(json_array_get(inputs, k), "from"), "input") == 0 && !is_kind(region, "call") &&
        !is_kind(region, "expert"))
      moec_buf_printf(b, "    f0_in -> f0_r%zu;\n", i);
}

static void draw_function(const json_t *fn, size_t f, moec_buf *b) {
  const json_t *regions = json_object_get(fn, "regions"), *cuts = json_object_get(fn, "cuts");
  moec_buf_printf(b, "  subgraph cluster_f%zu {\n    style=rounded; color=\"#888888\"; label=\"", f);
  quoted(b, moec_report_text(fn, "name"));
  if (moec_report_int(fn, "calls") > 1) moec_buf_printf(b, " x%lld", (long long)moec_report_int(fn, "calls"));
  cost(b, fn);
  moec_buf_puts(b, "\";\n");
  moec_buf_printf(b, "    f%zu_in [shape=plaintext, label=\"%s\"];\n    f%zu_out [shape=plaintext, label=\"%s\"];\n", f,
                  f ? "residual stream" : "inputs", f, f ? "residual stream" : "outputs");
  for (size_t i = 0; i < json_array_size(regions); i++) draw_region(json_array_get(regions, i), f, i, b);
  for (size_t i = 0; i < json_array_size(regions) && f == 0; i++) draw_inputs(json_array_get(regions, i), i, b);
  for (size_t i = 0; i < json_array_size(cuts); i++) draw_cut(json_array_get(cuts, i), regions, f, b);
}

/* ---- blocks ------------------------------------------------------------------------------- */

static void draw_run(const json_t *root, size_t i, moec_buf *b) {
  const json_t *run = json_array_get(json_object_get(root, "runs"), i), *blocks = json_object_get(run, "blocks");
  moec_buf_printf(b, "    run%zu [shape=box3d, style=filled, fillcolor=\"#ececf4\", label=\"", i);
  for (size_t k = 0; k < json_array_size(blocks); k++) {
    const json_t *block =
        json_array_get(json_object_get(root, "blocks"), (size_t)json_integer_value(json_array_get(blocks, k)));
    if (k) moec_buf_putc(b, ' ');
    quoted(b, moec_report_text(block, "name"));
  }
  if (moec_report_int(run, "count") > 1) moec_buf_printf(b, "  x%lld", (long long)moec_report_int(run, "count"));
  moec_buf_puts(b, "\"];\n");
  if (i) moec_buf_printf(b, "    run%zu -> run%zu [label=\"the span ends at\\nthe residual add\"];\n", i - 1, i);
}

/* What of main lies before and after the blocks, and which functions each run calls. */
static void join_blocks(const json_t *root, moec_buf *b) {
  const json_t *top = json_array_get(json_object_get(root, "functions"), 0), *regions = json_object_get(top, "regions");
  const json_t *runs = json_object_get(root, "runs"), *cuts = json_object_get(top, "cuts");
  size_t n = json_array_size(runs), n_regions = json_array_size(regions);
  for (size_t i = 0; n && i < n_regions; i++) {
    bool before = false, after = false;
    if (is_kind(json_array_get(regions, i), "call")) continue;
    for (size_t k = 0; k < json_array_size(cuts); k++) {
      const json_t *c = json_array_get(cuts, k);
      long long from = moec_report_int(c, "from"), to = moec_report_int(c, "to");
      before = before || (from == (long long)i && to >= 0 && is_kind(json_array_get(regions, (size_t)to), "call"));
      after = after || (to == (long long)i && from >= 0 && is_kind(json_array_get(regions, (size_t)from), "call"));
    }
    moec_buf name = {0};
    node_name(regions, 0, (long long)i, before, &name);
    if (before) moec_buf_printf(b, "    %s -> run0;\n", moec_buf_str(&name));
    if (after) moec_buf_printf(b, "    run%zu -> %s;\n", n - 1, moec_buf_str(&name));
    moec_buf_fini(&name);
  }
  moec_buf_puts(b, "  }\n");
  for (size_t i = 0; i < n; i++) {
    const json_t *blocks = json_object_get(json_array_get(runs, i), "blocks");
    for (size_t k = 0; k < json_array_size(blocks); k++) {
      const json_t *fns = json_object_get(
          json_array_get(json_object_get(root, "blocks"), (size_t)json_integer_value(json_array_get(blocks, k))),
          "functions");
      for (size_t j = 0; j < json_array_size(fns); j++) {
        long long f = json_integer_value(json_array_get(fns, j));
        moec_buf_printf(
            b, "  run%zu -> f%lld_in [lhead=cluster_f%lld, style=dashed, color=\"#888888\", constraint=false];\n", i, f,
            f);
      }
    }
  }
}

/* ---- training ----------------------------------------------------------------------------- */

/* Each function's forward and backward one, and between them what is saved and what the backward one leaves out. */
static void draw_pair(const json_t *f, size_t i, moec_buf *b) {
  const json_t *work = json_object_get(f, "work");
  static const struct { const char *key, *calls, *mark; } ends[] = {
      {"forward", "calls", "fwd"}, {"backward", "backward_calls", "bwd"}};
  for (size_t k = 0; k < 2; k++) {
    moec_buf_printf(b, "    t%zu_%s [shape=box, style=\"filled,rounded\", fillcolor=\"#e6f2e6\", label=\"", i,
                    ends[k].mark);
    quoted(b, moec_report_text(f, ends[k].key));
    moec_buf_printf(b, " x%lld\"];\n", (long long)moec_report_int(f, ends[k].calls));
  }
  moec_buf_printf(b, "    t%zu_fwd -> t%zu_bwd [label=\"saves ", i, i);
  moec_report_human_bytes(b, moec_report_value(f, "saved_bytes"));
  moec_buf_puts(b, " a call");
  bool any = false;
  for (size_t k = 0; k < json_array_size(work); k++) {
    const json_t *w = json_array_get(work, k);
    if (!moec_report_int(w, "left_out")) continue;
    moec_buf_puts(b, any ? "\\n" : "\\nleaves out\\n");
    quoted(b, moec_report_text(w, "what"));
    any = true;
  }
  moec_buf_puts(b, "\"];\n");
}

static void draw_training(const json_t *t, moec_buf *b) {
  const json_t *fns = json_object_get(t, "functions"), *modes = json_object_get(t, "modes");
  if (!t) return;
  moec_buf_puts(b, "  subgraph cluster_training {\n    style=rounded; color=\"#888888\"; label=\"training");
  for (size_t i = 0; i < json_array_size(modes); i++) {
    moec_buf_puts(b, "\\nrecompute ");
    quoted(b, moec_report_text(json_array_get(modes, i), "recompute"));
    moec_buf_puts(b, ": planned peak ");
    moec_report_human_bytes(b, moec_report_int(json_array_get(modes, i), "peak"));
  }
  moec_buf_puts(b, "\";\n");
  for (size_t i = 0; i < json_array_size(fns); i++) draw_pair(json_array_get(fns, i), i, b);
  moec_buf_puts(b, "  }\n");
}

void moec_report_view_dot(const json_t *root, moec_buf *out) {
  const json_t *fns = json_object_get(root, "functions");
  moec_buf_puts(out, "digraph moec {\n  compound=true; newrank=true; fontname=\"Helvetica\"; label=\"");
  quoted(out, moec_report_text(root, "model"));
  moec_buf_puts(out,
                "\"; labelloc=t;\n  node [fontname=\"Helvetica\", fontsize=11];\n  edge [fontname=\"Helvetica\", "
                "fontsize=8, color=\"#555555\"];\n");
  for (size_t f = 0; f < json_array_size(fns); f++) {
    draw_function(json_array_get(fns, f), f, out);
    if (f) {
      moec_buf_puts(out, "  }\n");
      continue;
    }
    for (size_t i = 0; i < json_array_size(json_object_get(root, "runs")); i++) draw_run(root, i, out);
    join_blocks(root, out);
  }
  draw_training(json_object_get(root, "training"), out);
  moec_buf_puts(out, "}\n");
}
