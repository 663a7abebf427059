/* Training in the text view. */
#include <string.h>

#include "codegen/report_lines.h"

/* ---- all of the model ------------------------------------------------------------------------ */

static void draw_loss(const json_t *t, moec_buf *b) {
  const json_t *loss = json_object_get(t, "loss");
  static const struct { const char *key, *text; } parts[] = {
      {"aux", "the load balancing loss"}, {"z", "the z-loss"}};
  moec_report_label(b, "loss");
  moec_report_clean(b, moec_report_text(loss, "name"), 40);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    double x = json_number_value(json_object_get(loss, parts[i].key));
    if (x != 0) moec_buf_printf(b, ", and %g times %s", x, parts[i].text);
  }
  moec_report_end_line(b);
  const char *chunk = moec_report_text(loss, "chunk");
  if (!*chunk) return;
  moec_report_label(b, "");
  moec_buf_puts(b, "logits of ");
  moec_report_clean(b, chunk, 60);
  moec_buf_puts(b, " tokens are in memory at a time");
  moec_report_end_line(b);
}

static void draw_parameters(const json_t *t, moec_buf *b) {
  const json_t *p = json_object_get(t, "parameters"), *without = json_object_get(p, "without_gradient");
  moec_report_label(b, "trained");
  moec_report_human(b, moec_report_int(p, "elements"), "");
  moec_buf_puts(b, " in ");
  moec_report_many(b, moec_report_int(p, "trainable"), "tensor");
  if (moec_report_int(p, "frozen")) moec_buf_printf(b, "; %lld frozen", (long long)moec_report_int(p, "frozen"));
  moec_buf_puts(b, "; gradients ");
  moec_report_human_bytes(b, moec_report_int(p, "gradient_bytes"));
  moec_buf_puts(b, ", AdamW's moments ");
  moec_report_human_bytes(b, moec_report_int(p, "adamw_bytes"));
  moec_report_end_line(b);
  for (size_t i = 0; i < json_array_size(without); i++) {
    moec_report_label(b, i ? "" : "not reached");
    moec_report_clean(b, moec_report_text_at(without, i), 60);
    moec_buf_puts(b, i ? "" : ": no gradient path");
    moec_report_end_line(b);
  }
}

static void draw_modes(const json_t *root, const json_t *t, moec_buf *b) {
  const json_t *modes = json_object_get(t, "modes");
  for (size_t i = 0; i < json_array_size(modes); i++) {
    const json_t *m = json_array_get(modes, i);
    bool chosen = strcmp(moec_report_text(m, "recompute"), moec_report_text(t, "recompute")) == 0;
    moec_report_label(b, i ? "" : "planned peak");
    moec_report_human_bytes(b, moec_report_int(m, "peak"));
    moec_report_pad(b, REPORT_LABEL + 11);
    moec_buf_puts(b, "with recompute ");
    moec_report_clean(b, moec_report_text(m, "recompute"), 8);
    moec_report_pad(b, REPORT_LABEL + 34);
    moec_report_human_bytes(b, moec_report_int(m, "saved"));
    moec_buf_puts(b, " of it saved by functions");
    if (chosen) moec_buf_puts(b, " (this one)");
    moec_report_end_line(b);
  }
  moec_report_label(b, "");
  moec_buf_puts(b, "activations of the program train");
  moec_report_sizes_line(root, b);
  moec_report_end_line(b);
}

static void draw_programs(const json_t *t, moec_buf *b) {
  const json_t *list = json_object_get(t, "programs");
  moec_buf_puts(b, "\n  program        steps      kernel calls    FLOP          planned peak\n");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *p = json_array_get(list, i);
    moec_report_label(b, moec_report_text(p, "name"));
    moec_report_pad(b, 17);
    moec_buf_printf(b, "%-11lld%-16lld", (long long)moec_report_int(p, "steps"),
                    (long long)moec_report_int(p, "kernels"));
    moec_report_human(b, moec_report_int(p, "flops"), "");
    moec_report_pad(b, 58);
    moec_report_human_bytes(b, moec_report_int(p, "peak"));
    moec_report_end_line(b);
  }
}

/* ---- functions ------------------------------------------------------------------------------- */

/* "moe.select, dot x2": the work with a count under |key|; false: there is none. */
static bool put_work(const json_t *f, const char *key, moec_buf *line) {
  const json_t *work = json_object_get(f, "work");
  bool any = false;
  for (size_t i = 0; i < json_array_size(work); i++) {
    const json_t *w = json_array_get(work, i);
    long long n = moec_report_int(w, key);
    if (!n) continue;
    moec_buf_printf(line, "%s%s", any ? ", " : "", moec_report_text(w, "what"));
    if (n > 1) moec_buf_printf(line, " x%lld", n);
    any = true;
  }
  return any;
}

static void draw_line(const char *label, const char *text, moec_buf *b) {
  moec_buf_puts(b, "    ");
  moec_buf_puts(b, label);
  moec_report_pad(b, REPORT_LABEL + 2);
  moec_report_wrap(b, text, REPORT_LABEL + 2);
  moec_report_end_line(b);
}

static void draw_saved(const json_t *f, moec_buf *b) {
  const json_t *saved = json_object_get(f, "saved");
  moec_buf line = {0};
  moec_report_human_bytes(&line, moec_report_value(f, "saved_bytes"));
  moec_buf_puts(&line, " a call");
  for (size_t i = 0; i < json_array_size(saved); i++) {
    const json_t *v = json_array_get(saved, i);
    moec_buf_printf(&line, "%s%s of %s", i ? ", " : ": ", moec_report_text(v, "type"), moec_report_text(v, "from"));
  }
  draw_line("saves", moec_buf_str(&line), b);
  moec_buf_fini(&line);
}

static void draw_function(const json_t *f, moec_buf *b) {
  static const struct { const char *key, *label; } fates[] = {{"again", "again"}, {"left_out", "leaves out"}};
  moec_buf_puts(b, "\n  ");
  moec_report_clean(b, moec_report_text(f, "name"), 30);
  moec_buf_puts(b, ": ");
  moec_report_clean(b, moec_report_text(f, "forward"), 30);
  moec_buf_printf(b, " x%lld, ", (long long)moec_report_int(f, "calls"));
  moec_report_clean(b, moec_report_text(f, "backward"), 30);
  moec_buf_printf(b, " x%lld\n", (long long)moec_report_int(f, "backward_calls"));
  draw_saved(f, b);
  for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) {
    moec_buf line = {0};
    if (!put_work(f, fates[i].key, &line)) moec_buf_puts(&line, "nothing");
    draw_line(fates[i].label, moec_buf_str(&line), b);
    moec_buf_fini(&line);
  }
  if (!*moec_report_text(f, "reader")) return;
  moec_buf line = {0};
  moec_buf_printf(&line, "moe.combine: %s reads its value", moec_report_text(f, "reader"));
  draw_line("has to keep", moec_buf_str(&line), b);
  moec_buf_fini(&line);
}

void moec_report_text_training(const json_t *root, moec_buf *b) {
  const json_t *t = json_object_get(root, "training"), *fns = json_object_get(t, "functions");
  if (!t) return;
  moec_report_heading(b, "Training");
  draw_loss(t, b);
  moec_report_label(b, "recompute");
  moec_report_clean(b, moec_report_text(t, "recompute"), 20);
  moec_buf_puts(b, ", skip combine: ");
  moec_report_clean(b, moec_report_text(t, "skip_combine"), 20);
  moec_report_end_line(b);
  draw_parameters(t, b);
  draw_modes(root, t, b);
  draw_programs(t, b);
  for (size_t i = 0; i < json_array_size(fns); i++) draw_function(json_array_get(fns, i), b);
}
