/* The report as one HTML page: the template codegen/report.html with its style, its scripts and the
 * data filled in. Nothing is loaded from anywhere else. */
#include <string.h>

#include "codegen/embedded.h"
#include "codegen/report_internal.h"

static void escaped(moec_buf *b, const char *s) {
  for (; *s; s++) {
    switch (*s) {
      case '&': moec_buf_puts(b, "&amp;"); break;
      case '<': moec_buf_puts(b, "&lt;"); break;
      case '>': moec_buf_puts(b, "&gt;"); break;
      case '"': moec_buf_puts(b, "&quot;"); break;
      case '\'': moec_buf_puts(b, "&#39;"); break;
      default: moec_buf_putc(b, *s); break;
    }
  }
}

static void put_file(moec_buf *b, const char *name) {
  const moec_embedded_file *f = moec_embedded_find(name);
  if (f) moec_buf_write(b, f->begin, f->size);
}

static void put_title(const json_t *root, moec_buf *b) { escaped(b, moec_report_text(root, "model")); }

static void put_style(const json_t *root, moec_buf *b) {
  put_file(b, "report.css");
  if (json_object_get(root, "training")) put_file(b, "report_train.css");
}

static void put_script(const json_t *root, moec_buf *b) {
  put_file(b, "report_flow.js");
  if (json_object_get(root, "training")) put_file(b, "report_train.js");
  put_file(b, "report.js");
}

static void put_text(const json_t *root, moec_buf *b) {
  moec_buf text = {0};
  moec_report_view_text(root, &text);
  escaped(b, moec_buf_str(&text));
  moec_buf_fini(&text);
}

/* Inside strings, where alone these letters occur, JSON may spell them as escapes: then no name
 * can end the script element or start a comment. */
static void put_data(const json_t *root, moec_buf *b) {
  char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
  if (!text) moec_die_out_of_memory();
  for (const char *p = text; *p; p++) {
    if (*p == '<' || *p == '>' || *p == '&')
      moec_buf_printf(b, "\\u%04x", (unsigned)*p);
    else
      moec_buf_putc(b, *p);
  }
  free(text);
}

static const struct { const char *mark; void (*put)(const json_t *root, moec_buf *b); } parts[] = {
    {"@TITLE@", put_title}, {"@STYLE@", put_style}, {"@SCRIPT@", put_script}, {"@TEXT@", put_text},
        {"@DATA@", put_data},
};

void moec_report_view_html(const json_t *root, moec_buf *out) {
  const moec_embedded_file *page = moec_embedded_find("report.html");
  for (const char *p = page ? page->begin : ""; *p;) {
    size_t i = 0, n = sizeof parts / sizeof *parts;
    while (i < n && strncmp(p, parts[i].mark, strlen(parts[i].mark)) != 0) i++;
    if (i == n) {
      moec_buf_putc(out, *p++);
      continue;
    }
    parts[i].put(root, out);
    p += strlen(parts[i].mark);
  }
}
