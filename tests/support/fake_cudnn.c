/* A cuDNN for tests: any graph of the operations that runtime/cudnn.c makes is computed op by op on the processor, in
 * doubles, as its descriptors say. So graphs are tested, not what is known of them. Everything is counted in the fake
 * driver. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda.h"

enum { OK, BAD = 2000, UNSUPPORTED = 3000, MOST = 32 };
enum { F32 = 0, F16 = 2, BF16 = 9 };

typedef struct descriptor descriptor;

typedef struct attribute {
  int name;
  int64_t n;
  union {
    int64_t i[MOST];
    descriptor *d[MOST];
    void *p[MOST];
  } v;
} attribute;

struct descriptor {
  int type, references;
  bool done;
  attribute attributes[10];
  int n;
  double *values; /* of a tensor while the graph runs */
};

void cudnnGetLastErrorString(char *out, size_t size);
int cudnnCreate(void **out);
int cudnnDestroy(void *handle);
int cudnnSetStream(void *handle, void *stream);
int cudnnBackendCreateDescriptor(int type, descriptor **out);
int cudnnBackendDestroyDescriptor(descriptor *d);
int cudnnBackendFinalize(descriptor *d);
int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t n, const void *values);
int cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t most, int64_t *n, void *values);
int cudnnBackendExecute(void *handle, descriptor *plan, descriptor *pack);

static char the_handle;

void cudnnGetLastErrorString(char *out, size_t size) { strncpy(out, "the fake says no", size); }
int cudnnCreate(void **out) { return *out = &the_handle, fake_cuda_get()->live++, OK; }
int cudnnDestroy(void *handle) { return fake_cuda_get()->live--, handle == &the_handle ? OK : BAD; }
int cudnnSetStream(void *handle, void *stream) { return handle && stream ? OK : BAD; }

/* ---- descriptors ------------------------------------------------------------------------- */

int cudnnBackendCreateDescriptor(int type, descriptor **out) {
  *out = calloc(1, sizeof **out);
  if (!*out) return BAD;
  (*out)->type = type, (*out)->references = 1;
  fake_cuda_get()->live++;
  return OK;
}

enum { KIND_BOOL = 2, KIND_I64 = 3, KIND_DESCRIPTOR = 15 };

static attribute *find(descriptor *d, int name) {
  for (int i = 0; d && i < d->n; i++)
    if (d->attributes[i].name == name) return &d->attributes[i];
  return NULL;
}

static bool holds_descriptors(int name) {
  static const int names[] = {201, 401, 750, 751, 752, 753, 758, 801, 1520, 1521, 1522, 1523,
                              1610, 1611, 1612, 2200, 2201, 4};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i] == name) return true;
  return false;
}

int cudnnBackendDestroyDescriptor(descriptor *d) {
  if (--d->references) return OK;
  for (int i = 0; i < d->n; i++)
    for (int64_t k = 0; holds_descriptors(d->attributes[i].name) && k < d->attributes[i].n; k++)
      cudnnBackendDestroyDescriptor(d->attributes[i].v.d[k]);
  fake_cuda_get()->live--;
  free(d);
  return OK;
}

int cudnnBackendFinalize(descriptor *d) { return d->done ? BAD : (d->done = true, OK); }

int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t n, const void *values) {
  if (d->done || n < 1 || n > MOST || d->n == 10 || find(d, name)) return BAD;
  attribute *a = &d->attributes[d->n++];
  a->name = name, a->n = n;
  for (int64_t i = 0; i < n; i++) {
    switch (type) {
      case KIND_BOOL: a->v.i[i] = ((const bool *)values)[i]; break;
      case KIND_I64: a->v.i[i] = ((const int64_t *)values)[i]; break;
      case KIND_DESCRIPTOR:
        a->v.d[i] = ((descriptor *const *)values)[i];
        if (!a->v.d[i] || !a->v.d[i]->done) return BAD;
        a->v.d[i]->references++;
        break;
      case 0:
      case 6: a->v.p[i] = ((void *const *)values)[i]; break;
      default: a->v.i[i] = ((const int *)values)[i];
    }
  }
  return OK;
}

/* The choice of an engine: one, or none while the test wants none. Its graph is the only thing it knows. */
int cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t most, int64_t *n, void *values) {
  enum { CHOICE = 202, WORKSPACE = 402, GRAPH_OF_CONFIG = 4 };
  if (!d->done || most < 1) return BAD;
  *n = 0;
  if (name == WORKSPACE && type == KIND_I64) return *n = 1, *(int64_t *)values = 1000, OK;
  if (name != CHOICE) return BAD;
  if (fake_cuda_get()->no_engine) return OK;
  descriptor *config = *(descriptor **)values, *graph = find(d, 201)->v.d[0];
  int status = cudnnBackendSetAttribute(config, GRAPH_OF_CONFIG, KIND_DESCRIPTOR, 1, &graph);
  *n = 1;
  return status ? status : cudnnBackendFinalize(config);
}

/* ---- tensors ----------------------------------------------------------------------------- */

static int64_t number(descriptor *d, int name) {
  attribute *a = find(d, name);
  return a ? a->v.i[0] : 0;
}

static const int64_t *dims(descriptor *t) { return find(t, 902)->v.i; }
static const int64_t *strides(descriptor *t) { return find(t, 903)->v.i; }

static int64_t count(descriptor *t) { return dims(t)[0] * dims(t)[1] * dims(t)[2] * dims(t)[3]; }

static double bits_to_double(uint16_t bits, int type) {
  if (type == BF16) {
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return (double)f;
  }
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double v = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  return bits & 0x8000 ? -v : v;
}

/* Only bf16 is written, and rounded to nearest; tests need no f16. */
static uint16_t double_to_bf16(double v) {
  float f = (float)v;
  uint32_t wide;
  memcpy(&wide, &f, sizeof f);
  return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

static int64_t offset_of(descriptor *t, int64_t i) {
  const int64_t *n = dims(t), *s = strides(t);
  return i % n[3] * s[3] + i / n[3] % n[2] * s[2] + i / n[3] / n[2] % n[1] * s[1] + i / n[3] / n[2] / n[1] * s[0];
}

static void *address_of(descriptor *pack, descriptor *t) {
  attribute *ids = find(pack, 1000), *pointers = find(pack, 1001);
  for (int64_t i = 0; i < ids->n && i < pointers->n; i++)
    if (ids->v.i[i] == number(t, 906)) return pointers->v.p[i];
  return NULL;
}

/* The values of |t|: read when it is first asked for, unless an op wrote them. */
static double *values_of(descriptor *pack, descriptor *t, bool read) {
  if (t->values) return t->values;
  t->values = calloc((size_t)count(t) + 1, sizeof *t->values);
  if (number(t, 907) || !read || !t->values) return t->values;
  const char *at = address_of(pack, t);
  for (int64_t i = 0; at && i < count(t); i++) {
    int64_t k = offset_of(t, i), type = number(t, 901);
    t->values[i] = type == F32 ? (double)((const float *)(const void *)at)[k]
                               : bits_to_double(((const uint16_t *)(const void *)at)[k], (int)type);
  }
  if (!at) free(t->values), t->values = NULL;
  return t->values;
}

static bool write_back(descriptor *pack, descriptor *t) {
  char *at = number(t, 907) ? NULL : address_of(pack, t);
  if (number(t, 907)) return true;
  if (!at || number(t, 901) == F16) return false;
  for (int64_t i = 0; i < count(t); i++) {
    int64_t k = offset_of(t, i);
    if (number(t, 901) == F32) ((float *)(void *)at)[k] = (float)t->values[i];
    else ((uint16_t *)(void *)at)[k] = double_to_bf16(t->values[i]);
  }
  return true;
}

/* Position in |t| of element |i| of a tensor of dims |of|: axes of size 1 repeat, fewer heads are shared. */
static int64_t shared(descriptor *t, const int64_t *of, int64_t i) {
  const int64_t *n = dims(t);
  int64_t at[4] = {i / of[3] / of[2] / of[1], i / of[3] / of[2] % of[1], i / of[3] % of[2], i % of[3]}, out = 0;
  for (int a = 0; a < 4; a++) out = out * n[a] + at[a] * n[a] / of[a];
  return out;
}

/* ---- operations -------------------------------------------------------------------------- */

static bool run_pointwise(descriptor *op, descriptor *pack) {
  descriptor *how = find(op, 750)->v.d[0], *x = find(op, 751)->v.d[0], *y = find(op, 753)->v.d[0];
  descriptor *b = find(op, 752) ? find(op, 752)->v.d[0] : NULL, *t = find(op, 758) ? find(op, 758)->v.d[0] : NULL;
  const int64_t *n = dims(y), axis = number(how, 9), mode = number(how, 0);
  double *in = mode == 501 ? NULL : values_of(pack, x, true), *with = b ? values_of(pack, b, true) : NULL;
  double *choose = t ? values_of(pack, t, true) : NULL, *out = values_of(pack, y, false);
  if (!out || (mode != 501 && !in) || (b && !with) || (t && !choose)) return false;
  for (int64_t i = 0; i < count(y); i++) {
    double u = in ? in[shared(x, n, i)] : 0, v = with ? with[shared(b, n, i)] : 0;
    switch (mode) {
      case 0: out[i] = u + v; break;
      case 1: out[i] = u * v; break;
      case 6: out[i] = u / v; break;
      case 9: out[i] = u - v; break;
      case 13: out[i] = exp(u); break;
      case 15: out[i] = log(u); break;
      case 21: out[i] = u; break;
      case 303: out[i] = u >= v; break;
      case 501: out[i] = (double)(axis == 2 ? i / n[3] % n[2] : i % n[3]); break;
      case 601: out[i] = choose[shared(t, n, i)] != 0 ? u : v; break;
      default: return false;
    }
  }
  return write_back(pack, y);
}

static bool run_matmul(descriptor *op, descriptor *pack) {
  descriptor *a = find(op, 1520)->v.d[0], *b = find(op, 1521)->v.d[0], *y = find(op, 1522)->v.d[0];
  const int64_t *n = dims(y), inner = dims(a)[3];
  const int64_t of_a[4] = {n[0], n[1], n[2], inner}, of_b[4] = {n[0], n[1], inner, n[3]};
  double *left = values_of(pack, a, true), *right = values_of(pack, b, true), *out = values_of(pack, y, false);
  if (!left || !right || !out || inner != dims(b)[2] || dims(a)[2] != n[2] || dims(b)[3] != n[3]) return false;
  for (int64_t i = 0; i < count(y); i++) {
    int64_t matrix = i / n[3] / n[2];
    double sum = 0;
    for (int64_t k = 0; k < inner; k++)
      sum += left[shared(a, of_a, (matrix * n[2] + i / n[3] % n[2]) * inner + k)] *
             right[shared(b, of_b, (matrix * inner + k) * n[3] + i % n[3])];
    out[i] = sum;
  }
  return write_back(pack, y);
}

static bool run_reduction(descriptor *op, descriptor *pack) {
  descriptor *how = find(op, 1612)->v.d[0], *x = find(op, 1610)->v.d[0], *y = find(op, 1611)->v.d[0];
  double *in = values_of(pack, x, true), *out = values_of(pack, y, false);
  bool max = number(how, 1600) == 3;
  if (!in || !out) return false;
  for (int64_t i = 0; i < count(y); i++) out[i] = max ? -INFINITY : 0;
  for (int64_t i = 0; i < count(x); i++) {
    double *to = &out[shared(y, dims(x), i)];
    *to = max ? fmax(*to, in[i]) : *to + in[i];
  }
  return write_back(pack, y);
}

/* The last two axes change places. */
static bool run_reshape(descriptor *op, descriptor *pack) {
  descriptor *x = find(op, 2200)->v.d[0], *y = find(op, 2201)->v.d[0];
  const int64_t *n = dims(y);
  double *in = values_of(pack, x, true), *out = values_of(pack, y, false);
  if (!in || !out || dims(x)[2] != n[3] || dims(x)[3] != n[2]) return false;
  for (int64_t i = 0; i < count(y); i++) out[i] = in[(i / n[3] / n[2] * n[3] + i % n[3]) * n[2] + i / n[3] % n[2]];
  return write_back(pack, y);
}

static bool run(descriptor *op, descriptor *pack) {
  switch (op->type) {
    case 13: return run_pointwise(op, pack);
    case 19: return run_matmul(op, pack);
    case 22: return run_reduction(op, pack);
    case 31: return run_reshape(op, pack);
    default: return false;
  }
}

static void forget(descriptor *op) {
  for (int i = 0; i < op->n; i++) {
    attribute *a = &op->attributes[i];
    if (!holds_descriptors(a->name) || a->v.d[0]->type != 17) continue;
    free(a->v.d[0]->values);
    a->v.d[0]->values = NULL;
  }
}

int cudnnBackendExecute(void *handle, descriptor *plan, descriptor *pack) {
  fake_cuda *fake = fake_cuda_get();
  descriptor *graph = find(find(plan, 401)->v.d[0], 4)->v.d[0];
  attribute *ops = find(graph, 801);
  bool fine = handle == &the_handle && plan->done && pack->done;
  if (fine && fake->recording) return fake->graph[0]++, OK;
  for (int64_t i = 0; i < ops->n && fine; i++) fine = run(ops->v.d[i], pack);
  for (int64_t i = 0; i < ops->n; i++) forget(ops->v.d[i]);
  fake->attentions += fine;
  return fine ? OK : BAD;
}
