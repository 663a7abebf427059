#include "runtime/cli_io.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"
#include "base/status.h"
#include "runtime/convert.h"

/* ---- inputs ------------------------------------------------------------------------------ */

static bool is_integer(moec_dtype t) {
  char cls = moec_dtype_get(t)->cls;
  return cls == 'I' || cls == 'U';
}

/* Whether value |i| of |from| is the same number in |to|. */
static bool same_number(const moec_tensor *from, const moec_tensor *to, size_t i) {
  int64_t a = moec_load_i64(from->dtype, from->data, i), b = moec_load_i64(to->dtype, to->data, i);
  bool sign_changes = a < 0 && (moec_dtype_get(from->dtype)->cls != moec_dtype_get(to->dtype)->cls);
  return a == b && !sign_changes;
}

/* |t| as |dtype|: integers where every value survives, f32 to the types .npy files have no
 * room for. Anything else stays as it is, for moec_input_borrow() to refuse. */
static moec_status *convert_input(const char *name, moec_dtype dtype, moec_tensor *t) {
  bool integers = is_integer(dtype) && is_integer(t->dtype);
  bool narrow = t->dtype == MOEC_F32 && (dtype == MOEC_BF16 || dtype == MOEC_F16);
  if (t->dtype == dtype || (!integers && !narrow)) return NULL;
  moec_tensor to;
  MOEC_TRY(moec_tensor_init(&to, dtype, t->rank, t->dims));
  int64_t n = moec_tensor_numel(t);
  moec_rt_convert(dtype, to.data, 1, t->dtype, t->data, 1, n);
  for (int64_t i = 0; integers && i < n; i++) {
    if (same_number(t, &to, (size_t)i)) continue;
    moec_tensor_fini(&to);
    int64_t v = moec_load_i64(t->dtype, t->data, (size_t)i);
    bool huge = v < 0 && moec_dtype_get(t->dtype)->cls == 'U';
    return moec_wrong("input \"%s\": expected %s, got the %s value %s%" PRIu64 ", which is none",
                      name, moec_dtype_get(dtype)->text, moec_dtype_get(t->dtype)->text,
                      v < 0 && !huge ? "-" : "", v < 0 && !huge ? 0 - (uint64_t)v : (uint64_t)v);
  }
  moec_tensor_fini(t);
  *t = to;
  return NULL;
}

static moec_status *read_input(moec_model *m, const char *argument, unsigned programs,
                               moec_tensor *tensors) {
  char name[MOEC_RT_NAME];
  const char *file;
  uint32_t i;
  moec_description d;
  MOEC_TRY(moec_rt_split("--input", argument, name, sizeof name, &file));
  MOEC_TRY(moec_find(m, MOEC_INPUTS, name, &i));
  MOEC_TRY(moec_describe(m, MOEC_INPUTS, i, &d));
  if (!(d.programs & programs))
    return moec_wrong("input \"%s\": this command does not read it", name);
  if (tensors[i].dtype != MOEC_DTYPE_NONE) return moec_wrong("input \"%s\" was given twice", name);
  MOEC_TRY(moec_context(moec_npy_read(file, &tensors[i]), "input \"%s\"", name));
  MOEC_TRY(convert_input(name, (moec_dtype)d.dtype, &tensors[i]));
  moec_tensor *t = &tensors[i];
  moec_view v = {.data = t->data, .dtype = (int)t->dtype, .rank = t->rank};
  memcpy(v.dims, t->dims, sizeof v.dims);
  return moec_input_borrow(m, i, &v);
}

moec_status *moec_rt_read_inputs(moec_model *m, const moec_rt_list *arguments, unsigned programs,
                                 moec_tensor **out) {
  *out = calloc((size_t)moec_count(m, MOEC_INPUTS) + 1, sizeof **out);
  if (!*out) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for inputs");
  for (size_t k = 0; k < arguments->n; k++) {
    MOEC_TRY(read_input(m, arguments->items[k], programs, *out));
  }
  for (uint32_t i = 0; i < moec_count(m, MOEC_INPUTS); i++) {
    moec_description d;
    if ((*out)[i].dtype != MOEC_DTYPE_NONE) continue;
    MOEC_TRY(moec_describe(m, MOEC_INPUTS, i, &d));
    if (!(d.programs & programs) || d.has_default) continue;
    return moec_wrong("input \"%s\": expected --input %s=FILE.npy, got none", d.name, d.name);
  }
  return NULL;
}

void moec_rt_free_inputs(const moec_model *m, moec_tensor *inputs) {
  for (uint32_t i = 0; inputs && i < moec_count(m, MOEC_INPUTS); i++) moec_tensor_fini(&inputs[i]);
  free(inputs);
}

/* ---- outputs ----------------------------------------------------------------------------- */

static moec_status *grow(moec_rt_bag *b) {
  if (b->n < b->room) return NULL;
  size_t room = b->room ? 2 * b->room : 64;
  char **names = realloc(b->names, room * sizeof *names);
  if (names) b->names = names;
  moec_tensor *tensors = realloc(b->tensors, room * sizeof *tensors);
  if (tensors) b->tensors = tensors;
  if (!names || !tensors) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for results");
  b->room = room;
  return NULL;
}

moec_status *moec_rt_bag_add(moec_rt_bag *b, const char *prefix, const char *name,
                             const moec_view *view, moec_dtype dtype) {
  moec_tensor from = moec_rt_as_tensor(view), to;
  if (dtype == MOEC_DTYPE_NONE) dtype = from.dtype;
  MOEC_TRY(grow(b));
  MOEC_TRY(moec_tensor_init(&to, dtype, from.rank, from.dims));
  moec_rt_convert(dtype, to.data, 1, from.dtype, from.data, 1, moec_tensor_numel(&from));
  if (asprintf(&b->names[b->n], "%s%s", prefix, name) < 0) {
    moec_tensor_fini(&to);
    return moec_error(MOEC_OUT_OF_MEMORY, "no memory for results");
  }
  b->tensors[b->n++] = to;
  return NULL;
}

moec_status *moec_rt_bag_add_outputs(moec_rt_bag *b, const moec_model *m, moec_program ran,
                                     const char *prefix) {
  for (uint32_t i = 0; i < moec_count(m, MOEC_OUTPUTS); i++) {
    moec_description d;
    moec_view v;
    MOEC_TRY(moec_describe(m, MOEC_OUTPUTS, i, &d));
    if (!(d.programs >> ran & 1)) continue;
    MOEC_TRY(moec_output(m, i, &v));
    MOEC_TRY(moec_rt_bag_add(b, prefix, d.name, &v, MOEC_DTYPE_NONE));
  }
  return NULL;
}

static moec_status *add_route(moec_rt_bag *b, uint32_t layer, const char *what, moec_view v,
                              moec_dtype dtype) {
  char prefix[40];
  if (v.dtype == MOEC_DTYPE_NONE) return NULL;
  moec_tensor t = moec_rt_as_tensor(&v);
  int64_t k = v.rank ? v.dims[v.rank - 1] : 1;
  v.rank = 2, v.dims[0] = k ? moec_tensor_numel(&t) / k : 0, v.dims[1] = k;
  snprintf(prefix, sizeof prefix, "route.%u.", layer);
  return moec_rt_bag_add(b, prefix, what, &v, dtype);
}

moec_status *moec_rt_bag_add_routes(moec_rt_bag *b, const moec_model *m) {
  for (uint32_t i = 0; i < moec_route_count(m); i++) {
    moec_layer_routes l;
    MOEC_TRY(moec_route(m, i, &l));
    MOEC_TRY(add_route(b, i, "indices", l.indices, MOEC_I64));
    MOEC_TRY(add_route(b, i, "weights", l.weights, MOEC_F32));
  }
  return NULL;
}

moec_status *moec_rt_bag_write(const moec_rt_bag *b, const char *path) {
  return moec_safetensors_write(path, b->n, (const char *const *)b->names, b->tensors);
}

void moec_rt_bag_fini(moec_rt_bag *b) {
  for (size_t i = 0; i < b->n; i++) {
    free(b->names[i]);
    moec_tensor_fini(&b->tensors[i]);
  }
  free(b->names);
  free(b->tensors);
  *b = (moec_rt_bag){0};
}
