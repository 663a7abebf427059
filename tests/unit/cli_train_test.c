/* The parts of the command train: text as tokens, the loss curve and its files, progress. */
#include <math.h>

#include "runtime/cli_train.h"
#include "tests/unit/unit.h"

static char path[256], *dir;

static const char *file(const char *text) {
  UNIT_OK(moec_write_file(unit_path(path, dir, "file"), text, strlen(text), 0644));
  return path;
}

/* ---- text ---------------------------------------------------------------------------------------- */

START_TEST(a_text_knows_its_entropy) {
  moec_rt_text t;
  UNIT_OK(moec_rt_text_open(file("aabbccdd"), &t));
  ck_assert_double_eq_tol(t.entropy, log(4), 1e-12);
  moec_rt_text_close(&t);
  UNIT_OK(moec_rt_text_open(file("aaaa"), &t));
  ck_assert_double_eq_tol(t.entropy, 0, 1e-12);
  moec_rt_text_close(&t);
  UNIT_OK(moec_rt_text_open(file(""), &t));
  UNIT_FAILS(moec_rt_text_check(&t, "x", 256, 2), MOEC_INVALID_ARGUMENT, "x: expected at least --seq 2 bytes, got 0");
  moec_rt_text_close(&t);
}
END_TEST

START_TEST(bytes_must_be_tokens) {
  moec_rt_text t;
  UNIT_OK(moec_rt_text_open(file("ab\377c"), &t));
  UNIT_OK(moec_rt_text_check(&t, "x", 256, 4));
  UNIT_FAILS(moec_rt_text_check(&t, "x", 255, 4), MOEC_INVALID_ARGUMENT, "x: byte 2 is 255: expected bytes below 255");
  UNIT_FAILS(moec_rt_text_check(&t, "x", 256, 5), MOEC_INVALID_ARGUMENT, "at least --seq 5 bytes, got 4");
  moec_rt_text_close(&t);
}
END_TEST

/* Every place is drawn, about as often as any other, and a window by itself is what it is in a row. */
START_TEST(windows_are_uniform_and_counted) {
  enum { SIZE = 20, SEQ = 11, PLACES = SIZE - SEQ + 1, N = 20000 };
  moec_rt_text t;
  int seen[PLACES] = {0}, equal = 0;
  UNIT_OK(moec_rt_text_open(file("abcdefghijklmnopqrst"), &t));
  for (uint64_t i = 0; i < N; i++) {
    uint64_t at = moec_rt_text_window(&t, 5, i, SEQ);
    UNIT_TRUE(at < PLACES);
    seen[at]++;
    equal += at == moec_rt_text_window(&t, 6, i, SEQ);
  }
  for (int i = 0; i < PLACES; i++) ck_assert_int_lt(abs(seen[i] - N / PLACES), N / PLACES / 8);
  ck_assert_int_lt(abs(equal - N / PLACES), N / PLACES / 8); /* another seed: other windows */
  ck_assert_uint_eq(moec_rt_text_window(&t, 5, 7, SIZE), 0);
  t.map.size = (size_t)1 << 40; /* also of places that need more than 24 bits */
  uint64_t ones = 0, zeros = 0;
  for (uint64_t i = 0; i < 100; i++) {
    uint64_t at = moec_rt_text_window(&t, 5, i, SEQ);
    UNIT_TRUE(at <= t.map.size - SEQ);
    ones |= at, zeros |= ~at;
  }
  ck_assert_uint_eq(ones & zeros & (((uint64_t)1 << 40) - 1), ((uint64_t)1 << 40) - 1);
  t.map.size = SIZE;
  moec_rt_text_close(&t);
}
END_TEST

/* ---- the curve ------------------------------------------------------------------------------------- */

static void fill(moec_rt_curve *c, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double x = (double)i;
    UNIT_OK(moec_rt_curve_add(c, (moec_rt_point){5 / (1 + x) + 1.0 / 3, 1e-7 * x / 7, 3e-4}));
  }
}

START_TEST(csv_comes_back_to_the_last_byte) {
  char first[256], second[256];
  moec_rt_curve a = {0}, b = {0};
  moec_map x, y;
  fill(&a, 700);
  UNIT_OK(moec_rt_curve_write_csv(&a, unit_path(first, dir, "a.csv")));
  UNIT_OK(moec_rt_curve_read_csv(&b, first, 700));
  UNIT_OK(moec_rt_curve_write_csv(&b, unit_path(second, dir, "b.csv")));
  UNIT_OK(moec_map_user_file(first, &x));
  UNIT_OK(moec_map_user_file(second, &y));
  ck_assert(x.size == y.size && !memcmp(x.data, y.data, x.size));
  moec_unmap(&x), moec_unmap(&y);
  moec_rt_curve_fini(&b);
  UNIT_OK(moec_rt_curve_read_csv(&b, first, 3)); /* rows that the state does not know */
  ck_assert_uint_eq(b.n, 3);
  ck_assert_double_eq_tol(moec_rt_curve_mean(&b, 2), (b.points[1].loss + b.points[2].loss) / 2, 1e-12);
  ck_assert_double_eq_tol(moec_rt_curve_mean(&b, 9), (5 + 2.5 + 5.0 / 3) / 3 + 1.0 / 3, 1e-6);
  moec_rt_curve_fini(&a), moec_rt_curve_fini(&b);
}
END_TEST

START_TEST(csv_that_is_not_ours) {
  static const struct {
    const char *text, *says;
  } cases[] = {{"", "first line"},
               {"step,loss\n", "first line"},
               {"step,loss,gradient_norm,lr\n", "none for step 1"},
               {"step,loss,gradient_norm,lr\n1,2,3,4", "none for step 1"},
               {"step,loss,gradient_norm,lr\n2,2,3,4\n", "none for step 1"},
               {"step,loss,gradient_norm,lr\n1,nan,3,4\n", "none for step 1"},
               {"step,loss,gradient_norm,lr\n1,2,3,4\n2,\n3,4,5\n", "none for step 2"},
               {"step,loss,gradient_norm,lr\n1,2,3,4\n2,1,1,1,1\n", "none for step 2"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    moec_rt_curve c = {0};
    UNIT_FAILS(moec_rt_curve_read_csv(&c, file(cases[i].text), 2), MOEC_INVALID_ARGUMENT, cases[i].says);
    moec_rt_curve_fini(&c);
  }
}
END_TEST

static size_t count(const char *text, const char *what) {
  size_t n = 0;
  for (const char *at = text; (at = strstr(at, what)); at++) n++;
  return n;
}

/* The y coordinates of the path of class |name| lie in the picture; returns how many points there are. */
static size_t points(const char *svg, const char *name, double *last) {
  char open[64];
  size_t n = 0;
  snprintf(open, sizeof open, "<path class=\"%s\" d=\"M", name);
  const char *at = strstr(svg, open);
  ck_assert_ptr_nonnull(at);
  for (at += strlen(open); *at != '"'; n++) {
    double x, y;
    int used = 0;
    if (sscanf(at, "%lf %lf%n", &x, &y, &used) != 2) break;
    UNIT_TRUE(x >= 72 && x <= 776 && y >= 64 && y <= 380);
    *last = y;
    at += used + (at[used] == 'L');
  }
  ck_assert(!strncmp(at, "h0\"", 3));
  return n;
}

START_TEST(drawings_of_any_length) {
  static const size_t lengths[] = {1, 2, 599, 600, 601, 5000};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    moec_rt_curve c = {0};
    moec_buf svg = {0};
    double low, first = 0;
    fill(&c, lengths[i]);
    moec_rt_curve_svg(&c, 3.25, &svg);
    const char *text = moec_buf_str(&svg);
    size_t n = points(text, "steps", &low), most = lengths[i] < 600 ? lengths[i] : 600;
    ck_assert(n <= most && n >= (most + 1) / 2);
    ck_assert_uint_eq(points(text, "mean", &first), n);
    if (lengths[i] > 1) ck_assert(low > 200); /* small losses are at the bottom */
    ck_assert_uint_eq(count(text, "nan") + count(text, "inf"), 0);
    ck_assert_uint_eq(count(text, "unigram entropy of the text, 3.250"), 1);
    ck_assert_uint_eq(count(text, "<text"), count(text, "</text>"));
    ck_assert_uint_eq(count(text, "prefers-color-scheme: dark"), 1);
    ck_assert_uint_lt(svg.size, 40000);
    moec_buf_fini(&svg);
    moec_rt_curve_fini(&c);
  }
}
END_TEST

/* ---- progress -------------------------------------------------------------------------------------- */

START_TEST(plain_lines_in_a_pipe) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  moec_rt_bar b = {.from = 2, .until = 7202, .tokens = 100, .every = 3600};
  moec_rt_bar_start(&b, f, 10);
  for (int64_t i = 3; i <= 7202; i++) moec_rt_bar_step(&b, i, 2.5, 10 + (double)(i - 2));
  moec_rt_bar_end(&b);
  fclose(f);
  ck_assert_str_eq(text,
                   "step 3/7202  loss 2.5000  100 tokens/s  1:59:59 left\n"
                   "step 3600/7202  loss 2.5000  100 tokens/s  1:00:02 left\n"
                   "step 7200/7202  loss 2.5000  100 tokens/s  0:02 left\n"
                   "step 7202/7202  loss 2.5000  100 tokens/s  0:00 left\n");
  free(text);
}
END_TEST

/* One line that fits the terminal, however narrow that is; drawn ten times a second at most. */
START_TEST(a_bar_on_a_terminal) {
  static const int widths[] = {200, 80, 50, 20, 1};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    moec_rt_bar b = {.until = 100, .tokens = 100, .every = 10};
    moec_rt_bar_start(&b, f, 0);
    b.terminal = true;
    b.columns = widths[i];
    for (int64_t step = 1; step <= 100; step++) moec_rt_bar_step(&b, step, 2.5, (double)step / 100);
    moec_rt_bar_end(&b);
    fclose(f);
    size_t drawn = count(text, "\r\033[K");
    ck_assert(drawn >= 9 && drawn <= 12);
    for (char *at = strtok(text, "\r"); at; at = strtok(NULL, "\r")) {
      at[strcspn(at, "\n")] = 0;
      ck_assert_int_lt((int)strlen(at) - 3, widths[i]); /* less the code that clears the line */
      if (widths[i] >= 80) ck_assert(strchr(at, '[') && strstr(at, " left"));
    }
    free(text);
  }
}
END_TEST

static void setup(void) { dir = unit_folder(); }
static void teardown(void) { unit_remove(dir); }

int main(void) {
  const TTest *const tests[] = {a_text_knows_its_entropy, bytes_must_be_tokens,  windows_are_uniform_and_counted,
                                       csv_comes_back_to_the_last_byte, csv_that_is_not_ours, drawings_of_any_length,
                                       plain_lines_in_a_pipe, a_bar_on_a_terminal};
  Suite *suite = suite_create("cli_train");
  TCase *tcase = tcase_create("cli_train");
  tcase_set_timeout(tcase, 0); /* ctest has one */
  tcase_add_unchecked_fixture(tcase, setup, teardown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}
