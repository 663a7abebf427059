/* Progress: on a terminal one line with a bar, elsewhere a plain line now and then. */
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/cli_train.h"

enum { WIDEST_BAR = 40, LINE = 160 };

void moec_rt_bar_start(moec_rt_bar *b, FILE *to, double now) {
  struct winsize size;
  int fd = fileno(to);
  b->to = to;
  b->start = now;
  b->drawn = -1;
  b->terminal = fd >= 0 && isatty(fd);
  b->columns = b->terminal && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

/* "1:02:03", or "2:03" below an hour. */
static void duration(double seconds, char out[32]) {
  int64_t s = seconds < 0 ? 0 : seconds > 1e9 ? 1000000000 : (int64_t)(seconds + 0.5);
  if (s < 3600) snprintf(out, 32, "%" PRId64 ":%02d", s / 60, (int)(s % 60));
  else snprintf(out, 32, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
}

/* What both kinds of lines say behind the number of steps. */
static void figures(const moec_rt_bar *b, int64_t step, double loss, double now, char out[LINE]) {
  char left[32];
  double made = (double)(step - b->from), spent = now - b->start;
  duration(made > 0 ? spent / made * (double)(b->until - step) : 0, left);
  snprintf(out, LINE, "loss %.4f  %.0f tokens/s  %s left", loss,
           spent > 0 ? made * (double)b->tokens / spent : 0, left);
}

static void draw(const moec_rt_bar *b, int64_t step, const char *text) {
  char bar[WIDEST_BAR + 1], count[64];
  int digits = snprintf(count, sizeof count, "%" PRId64, b->until);
  snprintf(count, sizeof count, "%*" PRId64 "/%" PRId64, digits, step, b->until);
  int room = b->columns - 1 - (int)(strlen(text) + strlen(count) + 6);
  int width = room > WIDEST_BAR ? WIDEST_BAR : room < 0 ? 0 : room;
  int full = (int)(step * width / b->until);
  memset(bar, '=', (size_t)full);
  memset(bar + full, ' ', (size_t)(width - full));
  if (full < width) bar[full] = '>';
  bar[width] = 0;
  fprintf(b->to, "\r\033[K");
  if (width > 0) fprintf(b->to, "[%s]  ", bar);
  fprintf(b->to, "%.*s", b->columns - 1, count);
  if (room >= 0) fprintf(b->to, "  %s", text);
  fflush(b->to);
}

void moec_rt_bar_step(moec_rt_bar *b, int64_t step, double loss, double now) {
  const double often = 0.1; /* seconds */
  char text[LINE];
  bool last = step == b->until;
  figures(b, step, loss, now, text);
  if (b->terminal) {
    if (!last && b->drawn >= 0 && now - b->drawn < often) return;
    draw(b, step, text);
  } else {
    if (!last && step % b->every && step != b->from + 1) return;
    fprintf(b->to, "step %" PRId64 "/%" PRId64 "  %s\n", step, b->until, text);
    fflush(b->to);
  }
  b->drawn = now;
}

void moec_rt_bar_end(moec_rt_bar *b) {
  if (b->terminal && b->drawn >= 0) fputc('\n', b->to);
  b->drawn = -1;
}
