/* The loss by step, in memory and in a .csv file. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/status.h"
#include "runtime/cli_train.h"

moec_status *moec_rt_curve_add(moec_rt_curve *c, moec_rt_point p) {
  if (c->n == c->room) {
    size_t room = 2 * c->room + 256;
    moec_rt_point *points = realloc(c->points, room * sizeof *points);
    if (!points) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for the losses of %zu steps", room);
    c->points = points;
    c->room = room;
  }
  c->points[c->n++] = p;
  return NULL;
}

double moec_rt_curve_mean(const moec_rt_curve *c, size_t steps) {
  size_t n = steps < c->n ? steps : c->n;
  double sum = 0;
  for (size_t i = c->n - n; i < c->n; i++) sum += c->points[i].loss;
  return n ? sum / (double)n : NAN;
}

void moec_rt_curve_fini(moec_rt_curve *c) {
  free(c->points);
  *c = (moec_rt_curve){0};
}

/* ---- .csv -------------------------------------------------------------------------------------- */

static const char header[] = "step,loss,gradient_norm,lr\n";

moec_status *moec_rt_curve_write_csv(const moec_rt_curve *c, const char *path) {
  moec_buf b = {0};
  moec_buf_puts(&b, header);
  for (size_t i = 0; i < c->n; i++) {
    const moec_rt_point *p = &c->points[i];
    moec_buf_printf(&b, "%zu,%.9g,%.9g,%.9g\n", i + 1, p->loss, p->norm, p->lr);
  }
  moec_status *s = moec_write_file(path, b.data, b.size, 0644);
  moec_buf_fini(&b);
  return s;
}

/* The number at *at, which |end| follows; moves *at behind that. */
static bool number(const char **at, char end, double *out) {
  char *stop;
  if (isspace((unsigned char)**at)) return false;
  *out = moec_strtod(*at, &stop);
  if (stop == *at || *stop != end || !isfinite(*out)) return false;
  *at = stop + 1;
  return true;
}

static moec_status *read_rows(moec_rt_curve *c, const char *text, size_t steps) {
  if (strncmp(text, header, strlen(header)) != 0)
    return moec_error(MOEC_INVALID_ARGUMENT, "expected the first line %.*s", (int)strlen(header) - 1, header);
  text += strlen(header);
  while (c->n < steps) {
    double step;
    moec_rt_point p;
    if (!number(&text, ',', &step) || step != (double)(c->n + 1) || !number(&text, ',', &p.loss) ||
        !number(&text, ',', &p.norm) || !number(&text, '\n', &p.lr)) {
      return moec_error(MOEC_INVALID_ARGUMENT, "expected a row for each of %zu steps, got none for step %zu", steps,
                        c->n + 1);
    }
    MOEC_TRY(moec_rt_curve_add(c, p));
  }
  return NULL;
}

moec_status *moec_rt_curve_read_csv(moec_rt_curve *c, const char *path, size_t steps) {
  moec_map map;
  moec_buf text = {0}; /* ends with a NUL, which the file does not */
  MOEC_TRY(moec_map_user_file(path, &map));
  moec_buf_write(&text, map.data, map.size);
  moec_unmap(&map);
  moec_status *s = read_rows(c, moec_buf_str(&text), steps);
  moec_buf_fini(&text);
  return moec_context(s, "%s", path);
}
