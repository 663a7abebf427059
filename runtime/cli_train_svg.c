/* The loss curve as a drawing: a line of the steps' own losses (many steps share a point, which is then
 * their mean), their running mean above it, the text's unigram entropy across. It is readable on light and
 * on dark ground. */
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "runtime/cli_train.h"

enum { WIDTH = 800, HEIGHT = 440, LEFT = 72, RIGHT = 24, TOP = 64, BOTTOM = 60, MOST_POINTS = 600, TICKS = 6 };

static const char style[] =
    "<style>\n"
    "  svg { background: #ffffff; font: 13px system-ui, sans-serif }\n"
    "  text { fill: #3c4250 } .title { font-size: 17px; font-weight: 600; fill: #14171f }\n"
    "  path { fill: none; stroke-linecap: round; stroke-linejoin: round }\n"
    "  .grid { stroke: #e4e7ec } .axis { stroke: #7a8294 } .steps { stroke: #a8c4f0 }\n"
    "  .mean { stroke: #1d5fd1; stroke-width: 2.5 } .entropy { stroke: #b4480f; stroke-width: 1.5;"
    " stroke-dasharray: 2 5 }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    svg { background: #14171f } text { fill: #b9c0cf } .title { fill: #f2f4f8 }\n"
    "    .grid { stroke: #2b303c } .axis { stroke: #7a8294 } .steps { stroke: #4670b3 }\n"
    "    .mean { stroke: #7fb0ff } .entropy { stroke: #ff9a5c }\n"
    "  }\n"
    "</style>\n";

/* ---- axes -------------------------------------------------------------------------------------- */

/* Values from |low| to |high|, both multiples of |step|. */
typedef struct axis {
  double low, high, step;
} axis;

/* The smallest of 1, 2, 5, 10, 20 ... times a power of ten that makes at most TICKS steps. */
static double tick_step(double span, double least) {
  static const double factors[] = {1, 2, 5};
  for (int exponent = -6;; exponent++)
    for (size_t i = 0; i < 3; i++) {
      double step = factors[i] * pow(10, exponent);
      if (step >= least && span <= step * TICKS) return step;
    }
}

static axis make_axis(double low, double high, double least) {
  double step = tick_step(high - low, least);
  axis a = {floor(low / step) * step, ceil(high / step) * step, step};
  if (a.high <= a.low) a.high = a.low + step;
  return a;
}

static double x_of(const axis *a, double v) {
  return LEFT + (v - a->low) / (a->high - a->low) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const axis *a, double v) {
  return HEIGHT - BOTTOM - (v - a->low) / (a->high - a->low) * (HEIGHT - TOP - BOTTOM);
}

static int ticks(const axis *a) { return (int)floor((a->high - a->low) / a->step + 1e-6); }

static void draw_axes(const axis *x, const axis *y, moec_buf *out) {
  for (int i = 0; i <= ticks(y); i++) {
    double v = y->low + i * y->step;
    moec_buf_printf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y_of(y, v), WIDTH - RIGHT);
    moec_buf_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 10, y_of(y, v) + 4.5,
                    fabs(v) < y->step / 2 ? 0 : v);
  }
  for (int i = 0; i <= ticks(x); i++) {
    double v = x->low + i * x->step;
    moec_buf_printf(out, "<path class=\"axis\" d=\"M%.1f %dv6\"/>", x_of(x, v), HEIGHT - BOTTOM);
    moec_buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.10g</text>\n", x_of(x, v),
                    HEIGHT - BOTTOM + 22, v);
  }
  moec_buf_printf(out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
  moec_buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", (LEFT + WIDTH - RIGHT) / 2,
                  HEIGHT - 14);
  moec_buf_printf(out, "<text x=\"20\" y=\"%d\" transform=\"rotate(-90 20 %d)\" text-anchor=\"middle\">"
                  "loss, nats a byte</text>\n", (TOP + HEIGHT - BOTTOM) / 2, (TOP + HEIGHT - BOTTOM) / 2);
}

/* ---- lines ------------------------------------------------------------------------------------- */

/* What is drawn at one place: the mean of neighbouring steps, the running mean at the last of them. */
typedef struct place {
  double step, loss, mean;
} place;

/* At most MOST_POINTS places; the running mean forgets over about a fiftieth of the steps. */
static size_t make_places(const moec_rt_curve *c, place *out) {
  size_t each = (c->n + MOST_POINTS - 1) / MOST_POINTS, n = 0;
  double keep = 1 - 1 / (1 + (double)c->n / 50), sum = 0, weight = 0;
  for (size_t i = 0; i < c->n; i += each) {
    size_t end = i + each < c->n ? i + each : c->n;
    double total = 0;
    for (size_t k = i; k < end; k++) {
      total += c->points[k].loss;
      sum = keep * sum + c->points[k].loss;
      weight = keep * weight + 1;
    }
    out[n++] = (place){(double)(i + 1 + end) / 2, total / (double)(end - i), sum / weight};
  }
  return n;
}

static void draw_line(const place *p, size_t n, bool mean, const axis *x, const axis *y, moec_buf *out) {
  moec_buf_printf(out, "<path class=\"%s\" d=\"", mean ? "mean" : "steps");
  for (size_t i = 0; i < n; i++)
    moec_buf_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', x_of(x, p[i].step), y_of(y, mean ? p[i].mean : p[i].loss));
  moec_buf_puts(out, "h0\"/>\n"); /* a line of one point is a dot */
}

static void draw_key(double at, const char *kind, const char *text, moec_buf *out) {
  moec_buf_printf(out, "<path class=\"%s\" d=\"M%.0f %dh26\"/>", kind, at, TOP - 19);
  moec_buf_printf(out, "<text x=\"%.0f\" y=\"%d\">%s</text>\n", at + 34, TOP - 14, text);
}

void moec_rt_curve_svg(const moec_rt_curve *c, double entropy, moec_buf *out) {
  place places[MOST_POINTS];
  char text[64];
  size_t n = make_places(c, places);
  double low = entropy, high = entropy;
  for (size_t i = 0; i < n; i++) {
    low = fmin(low, places[i].loss);
    high = fmax(high, places[i].loss);
  }
  axis x = make_axis(0, (double)c->n, 1), y = make_axis(low, high, 0);
  x.high = (double)c->n; /* the curve fills the width; the last tick may lie before it */
  moec_buf_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n",
                  WIDTH, HEIGHT, WIDTH, HEIGHT);
  moec_buf_puts(out, style);
  moec_buf_printf(out, "<text class=\"title\" x=\"%d\" y=\"26\">Loss of %zu training steps</text>\n", LEFT, c->n);
  draw_axes(&x, &y, out);
  draw_line(places, n, false, &x, &y, out);
  moec_buf_printf(out, "<path class=\"entropy\" d=\"M%d %.1fH%d\"/>\n", LEFT, y_of(&y, entropy), WIDTH - RIGHT);
  draw_line(places, n, true, &x, &y, out);
  draw_key(LEFT, "steps", "loss", out);
  moec_snprintf(text, sizeof text, "running mean, now %.3f", places[n - 1].mean);
  draw_key(LEFT + 90, "mean", text, out);
  moec_snprintf(text, sizeof text, "unigram entropy of the text, %.3f", entropy);
  draw_key(LEFT + 310, "entropy", text, out);
  moec_buf_puts(out, "</svg>\n");
}
