/* include/moec.h: weights back in the layout they came in. A weights file is copied from the mapping it is read
 * through, and where a piece of an updated parameter lies, the parameter's values go instead. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/outfile.h"
#include "base/safetensors.h"
#include "runtime/model.h"
#include "runtime/pieces.h"

/* ---- one piece --------------------------------------------------------------------------- */

/* A piece of a parameter that may have changed. */
typedef struct change {
  uint64_t offset, size; /* in its file */
  const moec_plan_piece *piece;
  const moec_rt_leaf *leaf;
  uint32_t param;
} change;

static size_t stored_size(const moec_plan_piece *x) {
  size_t n = moec_dtype_get((moec_dtype)x->dtype)->bytes;
  for (uint32_t a = 0; a < x->rank; a++) n *= (size_t)x->shape[a]; /* checked on opening */
  return n;
}

/* The leaf of parameter |i| where it was updated, else NULL: its bytes are still those of the file. */
static const moec_rt_leaf *updated(const moec_model *m, uint32_t i) {
  uint32_t k = m->train.leaf_of[i];
  return k != MOEC_NONE && m->train.leaves[k].master ? &m->train.leaves[k] : NULL;
}

/* Values of updated leaves in the host's memory: those asked for last, since files have the pieces of two or three
 * stacked parameters by turns. */
typedef struct values {
  struct {
    const moec_rt_leaf *leaf;
    float *data;
    uint64_t used;
  } of[4];
  uint64_t tick;
} values;

static void values_fini(values *v) {
  for (int i = 0; i < 4; i++) free(v->of[i].data);
}

static moec_status *get_values(const moec_model *m, const moec_rt_leaf *l, values *v, const float **out) {
  int at = 0;
  *out = l->master;
  if (m->device->in_host) return NULL;
  for (int i = 0; i < 4; i++) {
    if (v->of[i].leaf == l) return v->of[i].used = ++v->tick, *out = v->of[i].data, NULL;
    if (v->of[i].used < v->of[at].used) at = i;
  }
  free(v->of[at].data);
  float *data = malloc((size_t)l->n * sizeof *data + 1);
  v->of[at].leaf = data ? l : NULL, v->of[at].data = data, v->of[at].used = ++v->tick;
  if (!data) return moec_rt_no_memory("weights", (uint64_t)l->n * sizeof *data);
  *out = data;
  return moec_rt_leaf_values(m, l, data);
}

static moec_status *store(const moec_model *m, const change *c, values *v, void *bytes) {
  const moec_rt_plan *p = &m->plan;
  const float *from;
  MOEC_TRY(get_values(m, c->leaf, v, &from));
  moec_rt_piece_store(p, c->piece, &p->tensors[p->params[c->param].tensor], MOEC_F32, from, bytes);
  return NULL;
}

/* ---- weights files ----------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b) {
  const change *x = a, *y = b;
  return x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
                                : (x->size > y->size) - (x->size < y->size);
}

/* The changes of file |file|, by offset. */
static moec_status *collect(const moec_model *m, uint32_t file, change *out, size_t *out_n) {
  const moec_rt_plan *p = &m->plan;
  size_t n = 0;
  for (uint32_t i = 0; i < p->n_params; i++) {
    const moec_rt_leaf *l = updated(m, i);
    for (uint32_t k = 0; l && k < p->params[i].n_pieces; k++) {
      const moec_plan_piece *x = &p->pieces[p->params[i].pieces + k];
      if (x->file != file || !stored_size(x)) continue;
      out[n++] = (change){x->offset, stored_size(x), x, l, i};
    }
  }
  qsort(out, n, sizeof *out, by_offset);
  *out_n = 0;
  for (size_t i = 0; i < n; i++) { /* tied parameters may name the same bytes */
    const change *last = *out_n ? &out[*out_n - 1] : NULL;
    if (last && last->offset == out[i].offset && last->size == out[i].size) continue;
    if (last && out[i].offset < last->offset + last->size) {
      return moec_error(MOEC_UNSUPPORTED, "%s: parameters %s and %s share some of their bytes",
                        moec_rt_str(p, p->files[file].name),
                        moec_rt_str(p, p->params[last->param].name),
                        moec_rt_str(p, p->params[out[i].param].name));
    }
    out[(*out_n)++] = out[i];
  }
  return NULL;
}

static moec_status *write_changed(const moec_model *m, moec_outfile *f, const moec_map *source,
                                  const change *changes, size_t n, values *v) {
  uint64_t at = 0;
  for (size_t i = 0; i < n; i++) {
    const change *c = &changes[i];
    MOEC_TRY(moec_outfile_write(f, source->data + at, c->offset - at));
    void *bytes = malloc(c->size);
    if (!bytes) return moec_rt_no_memory("a tensor to be written", c->size);
    moec_status *s = store(m, c, v, bytes);
    if (!s) s = moec_outfile_write(f, bytes, c->size);
    free(bytes);
    if (s) return s;
    at = c->offset + c->size;
  }
  return moec_outfile_write(f, source->data + at, source->size - at);
}

static moec_status *save_file(const moec_model *m, const char *dir, uint32_t file, change *room, values *v) {
  char path[PATH_MAX];
  size_t n;
  moec_outfile *f;
  MOEC_TRY(collect(m, file, room, &n));
  snprintf(path, sizeof path, "%s/%s", dir, moec_rt_str(&m->plan, m->plan.files[file].name));
  MOEC_TRY(moec_outfile_begin(path, 0644, &f));
  return moec_outfile_end(f, write_changed(m, f, &m->params.files[file], room, n, v));
}

/* ---- weights that were inside the model's file, or made from a seed ---------------------- */

typedef struct inlined {
  const char **names;
  moec_tensor *tensors;
  size_t n;
} inlined;

static moec_status *add_inlined(const moec_model *m, uint32_t i, const moec_plan_piece *x, values *v,
                                inlined *out) {
  moec_tensor *t = &out->tensors[out->n];
  const moec_rt_leaf *l = updated(m, i);
  MOEC_TRY(moec_tensor_init(t, (moec_dtype)x->dtype, x->rank, x->shape));
  const char *name = moec_rt_str(&m->plan, x->name);
  out->names[out->n++] = *name ? name : moec_rt_str(&m->plan, m->plan.params[i].name);
  const change c = {0, 0, x, l, i};
  if (l) return store(m, &c, v, t->data);
  if (moec_tensor_bytes(t)) moec_rt_piece_read(&m->plan, &m->params, x, t->data);
  return NULL;
}

static bool has_name(const inlined *x, const char *name) {
  for (size_t i = 0; i < x->n; i++) {
    if (!strcmp(x->names[i], name)) return true;
  }
  return false;
}

static moec_status *collect_inlined(const moec_model *m, values *v, inlined *out) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t i = 0; i < p->n_params; i++) {
    for (uint32_t k = 0; k < p->params[i].n_pieces; k++) {
      const moec_plan_piece *x = &p->pieces[p->params[i].pieces + k];
      bool in_file = x->file != MOEC_NONE && !moec_rt_piece_made(&m->params, x);
      if (in_file || has_name(out, moec_rt_str(p, x->name))) continue;
      MOEC_TRY(add_inlined(m, i, x, v, out));
    }
  }
  return NULL;
}

/* "DIR/MODEL.safetensors", or "DIR/MODEL.inline.safetensors" where the former is a weights file. */
static void inlined_path(const moec_model *m, const char *dir, char out[PATH_MAX]) {
  const moec_rt_plan *p = &m->plan;
  const char *model = moec_rt_str(p, p->header->model), *slash = strrchr(model, '/');
  if (slash) model = slash + 1;
  const char *dot = strrchr(model, '.'), *infix = "";
  int length = dot ? (int)(dot - model) : (int)strlen(model);
  for (uint32_t i = 0; i < p->n_files; i++) {
    const char *name = moec_rt_str(p, p->files[i].name);
    if (!strncmp(name, model, (size_t)length) && !strcmp(name + length, ".safetensors"))
      infix = ".inline";
  }
  snprintf(out, PATH_MAX, "%s/%.*s%s.safetensors", dir, length, model, infix);
}

/* There is no such file where no weights were inside. */
static moec_status *save_inlined(const moec_model *m, const char *dir, values *v) {
  inlined x = {0};
  x.names = calloc((size_t)m->plan.n_pieces + 1, sizeof *x.names);
  x.tensors = calloc((size_t)m->plan.n_pieces + 1, sizeof *x.tensors);
  moec_status *s = x.names && x.tensors ? collect_inlined(m, v, &x)
                                        : moec_error(MOEC_OUT_OF_MEMORY, "no memory for weights");
  if (!s && x.n) {
    char path[PATH_MAX];
    inlined_path(m, dir, path);
    s = moec_safetensors_write(path, x.n, x.names, x.tensors);
  }
  for (size_t i = 0; x.tensors && i < x.n; i++) moec_tensor_fini(&x.tensors[i]);
  free(x.names);
  free(x.tensors);
  return s;
}

/* ---- what lies beside -------------------------------------------------------------------- */

/* The folder of a weights file, its symlinks not followed: that is where its .json files are. */
static void folder_of(const char *path, char out[PATH_MAX]) {
  snprintf(out, PATH_MAX, "%s", path);
  char *slash = strrchr(out, '/');
  if (slash)
    slash[slash == out] = 0;
  else
    strcpy(out, ".");
}

static bool same_folder(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static moec_status *copy_json(const char *from, const char *name, const char *dir) {
  char path[PATH_MAX];
  moec_map map;
  if (snprintf(path, sizeof path, "%s/%s", from, name) >= (int)sizeof path) return NULL;
  MOEC_TRY(moec_map_user_file(path, &map));
  snprintf(path, sizeof path, "%s/%s", dir, name);
  moec_status *s = moec_write_file(path, map.data, map.size, 0644);
  moec_unmap(&map);
  return s;
}

/* config.json, the index of sharded weights, tokenizers. */
static moec_status *copy_beside(const char *from, const char *dir) {
  DIR *d = opendir(from);
  if (!d) return moec_error(MOEC_IO, "cannot read %s: %s", from, strerror(errno));
  moec_status *s = NULL;
  for (struct dirent *e = readdir(d); e && !s; e = readdir(d)) {
    size_t n = strlen(e->d_name);
    if (n > 5 && e->d_name[0] != '.' && !strcmp(e->d_name + n - 5, ".json"))
      s = copy_json(from, e->d_name, dir);
  }
  closedir(d);
  return s;
}

static moec_status *save_files(const moec_model *m, const char *dir, values *v) {
  const moec_rt_plan *p = &m->plan;
  char folder[PATH_MAX], done[PATH_MAX] = "";
  change *room = calloc((size_t)p->n_pieces + 1, sizeof *room);
  if (!room) return moec_error(MOEC_OUT_OF_MEMORY, "no memory for weights");
  moec_status *s = NULL;
  for (uint32_t i = 0; !s && i < p->n_files; i++) {
    if (!m->params.paths[i]) continue;
    s = save_file(m, dir, i, room, v);
    folder_of(m->params.paths[i], folder);
    if (s || !strcmp(folder, done)) continue;
    s = copy_beside(folder, dir);
    memcpy(done, folder, sizeof done);
  }
  free(room);
  return s;
}

static moec_status *save(const moec_model *m, const char *dir) {
  char folder[PATH_MAX];
  if (mkdir(dir, 0777) && errno != EEXIST) {
    moec_code code = errno == ENOENT || errno == ENOTDIR ? MOEC_INVALID_ARGUMENT : MOEC_IO;
    return moec_error(code, "cannot make the folder %s: %s", dir, strerror(errno));
  }
  for (uint32_t i = 0; i < m->plan.n_files; i++) {
    if (!m->params.paths[i]) continue;
    folder_of(m->params.paths[i], folder);
    if (!same_folder(folder, dir)) continue;
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "expected another folder than %s, where the weights were read from", dir);
  }
  values v = {0};
  moec_status *s = save_files(m, dir, &v);
  if (!s) s = save_inlined(m, dir, &v);
  values_fini(&v);
  return s;
}

moec_status *moec_save_weights(const moec_model *m, const char *dir) {
  MOEC_TRY(moec_rt_need_training(m));
  if (!dir || !*dir || strlen(dir) > PATH_MAX / 2) {
    return moec_error(MOEC_INVALID_ARGUMENT, "expected the path of a folder for weights, got %s",
                      dir && *dir ? "one that is too long" : "none");
  }
  return moec_context(save(m, dir), "weights");
}
