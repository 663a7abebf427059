/* moec import: config.json and weights in, an ONNX file out. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "models/family.h"
#include "models/models.h"

typedef struct family {
  const char *type, *object;
  void (*write)(moec_llm *m);
} family;

static const family families[] = {
#define FAMILY(type, object, fn) {type, object, moec_model_##fn},
#include "models/families.def"
#undef FAMILY
};
enum { N_FAMILIES = sizeof families / sizeof *families };

static moec_status *find_family(moec_config *c, const family **out) {
  const char *type = moec_cfg_str_or(c, "model_type", NULL);
  moec_buf known = {0};
  MOEC_TRY(moec_cfg_end(c));
  if (!type) return moec_error(MOEC_INVALID_MODEL, "config.json: model_type is missing");
  for (size_t i = 0; i < N_FAMILIES; i++) {
    if (strcmp(type, families[i].type) == 0) {
      *out = &families[i];
      moec_buf_fini(&known);
      return NULL;
    }
    moec_buf_printf(&known, "%s%s", i ? ", " : "", families[i].type);
  }
  moec_status *s = moec_error(MOEC_UNSUPPORTED, "config.json: model_type: expected one of %s, got \"%.60s\"",
                              moec_buf_str(&known), type);
  moec_buf_fini(&known);
  return s;
}

/* dtype of fresh weights. */
static moec_status *init_dtype(moec_config *c, moec_dtype *out) {
  static const struct { const char *name; moec_dtype t; } names[] = {
      {"float32", MOEC_F32}, {"bfloat16", MOEC_BF16}, {"float16", MOEC_F16}};
  const char *name = moec_cfg_str_or(c, "dtype|torch_dtype", "float32");
  MOEC_TRY(moec_cfg_end(c));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i].name) == 0) {
      *out = names[i].t;
      return NULL;
    }
  return moec_error(MOEC_UNSUPPORTED, "config.json: dtype: expected float32, bfloat16 or float16, got \"%.60s\"", name);
}

/* Where the text model lies among the tensors of a checkpoint: models that see images have it below a module. */
static void find_root(moec_llm *m) {
  static const char *const roots[][2] = {
      {"model", "lm_head"}, {"model.language_model", "lm_head"}, {"language_model.model", "language_model.lm_head"}};
  size_t i = sizeof roots / sizeof *roots;
  while (--i && !moec_ck_has(m->ck, moec_arena_printf(m->arena, "%s.embed_tokens.weight", roots[i][0]))) continue;
  m->stored_root = roots[i][0], m->stored_head = roots[i][1];
}

/* Runs the family's function over |ck|; saves the model when |path| is given. */
static moec_status *write_model(const family *f, moec_config *top, moec_config *c, moec_checkpoint *ck,
                                const char *path, moec_buf *remarks) {
  moec_writer *w = moec_writer_create();
  moec_llm m = {.w = w, .c = c, .ck = ck, .remarks = remarks, .arena = moec_writer_arena(w)};
  if (c != top) {
    moec_l_ignore_common(top);
    m.tied = moec_cfg_bool_or(top, "tie_word_embeddings", false);
  }
  find_root(&m);
  f->write(&m);
  moec_status *s = moec_cfg_end(c);
  if (s) moec_status_free(moec_writer_end(w)); /* what a wrong value led to says less than the value */
  if (!s) s = moec_writer_end(w);
  if (!s && path) s = moec_writer_save(w, path, f->type);
  moec_writer_destroy(w);
  return s;
}

/* The folder and plain name of fresh weights: OUT.safetensors for OUT.onnx. */
static const char *init_path(moec_arena *a, const char *output) {
  size_t n = strlen(output);
  if (n > 5 && strcmp(output + n - 5, ".onnx") == 0) n -= 5;
  return moec_arena_printf(a, "%.*s.safetensors", (int)n, output);
}

/* Models in the checkpoint's folder may be replaced, its other files not. */
static moec_status *spare(const char *dir, const char *path) {
  char real[PATH_MAX];
  const char *names[2] = {path, realpath(path, real)}, *end = strrchr(path, '.');
  if (!names[1] || (end && strcmp(end, ".onnx") == 0)) return NULL;
  for (int i = 0; i < 2; i++) {
    char folder[PATH_MAX];
    struct stat of_file, of_dir;
    const char *slash = strrchr(names[i], '/');
    snprintf(folder, sizeof folder, "%.*s.", slash ? (int)(slash - names[i]) + 1 : 0, names[i]);
    if (stat(folder, &of_file) || stat(dir, &of_dir)) continue;
    if (of_file.st_dev != of_dir.st_dev || of_file.st_ino != of_dir.st_ino) continue;
    return moec_error(MOEC_INVALID_ARGUMENT, "%s: expected another file than those of the checkpoint", path);
  }
  return NULL;
}

/* The model names its weights by plain names: `moec compile` finds them beside it, or where --weights says. */
static void note_folder(const char *dir, const char *output, moec_buf *remarks) {
  char folder[PATH_MAX], real[2][PATH_MAX];
  const char *slash = strrchr(output, '/');
  snprintf(folder, sizeof folder, "%.*s.", slash ? (int)(slash - output) + 1 : 0, output);
  if (!realpath(folder, real[0]) || !realpath(dir, real[1]) || strcmp(real[0], real[1]) == 0) return;
  moec_buf_printf(remarks, "%s lies outside of %s: to compile it, say --weights %s\n", output, dir, dir);
}

/* The first of two runs tells which tensors there are; the second reads what was written for them. */
static moec_status *write_file(const family *f, moec_config *top, moec_config *c, moec_dtype dtype,
                               const moec_ck_fresh *fresh, const char *path) {
  moec_buf ignored = {0};
  moec_checkpoint *plan = moec_checkpoint_plan(dtype);
  moec_status *s = write_model(f, top, c, plan, NULL, &ignored);
  if (!s) s = moec_ck_write_fresh(plan, path, fresh);
  moec_buf_fini(&ignored);
  moec_checkpoint_close(plan);
  return s;
}

/* The checkpoint of a model from config.json alone: a new file beside the output, or none. */
static moec_status *make_fresh(const char *dir, const family *f, moec_config *top, moec_config *c,
                               const moec_checkpoint_options *o, moec_arena *a, moec_checkpoint **out) {
  moec_dtype dtype;
  MOEC_TRY(init_dtype(c, &dtype));
  moec_ck_fresh fresh = {o->seed, moec_cfg_num_or(c, "initializer_range", 0.02), o->zeros};
  MOEC_TRY(moec_cfg_end(c));
  if (o->seeded) {
    *out = moec_checkpoint_made(dtype, fresh.seed, fresh.deviation);
    return NULL;
  }
  const char *path = init_path(a, o->output);
  MOEC_TRY(spare(dir, path));
  MOEC_TRY(write_file(f, top, c, dtype, &fresh, path));
  return moec_checkpoint_open_file(path, out);
}

static moec_status *import_config(const char *dir, const moec_checkpoint_options *o, moec_config *top, moec_arena *a,
                                  moec_buf *remarks) {
  const family *f;
  moec_checkpoint *ck;
  MOEC_TRY(find_family(top, &f));
  moec_config *c = *f->object ? moec_cfg_sub(top, f->object) : top;
  MOEC_TRY(moec_cfg_end(top));
  if (!c) return moec_error(MOEC_INVALID_MODEL, "config.json: %s is missing", f->object);
  MOEC_TRY(spare(dir, o->output));
  if (o->init) {
    MOEC_TRY(make_fresh(dir, f, top, c, o, a, &ck));
  } else {
    if (moec_cfg_has(top, "quantization_config"))
      return moec_error(
          MOEC_UNSUPPORTED,
          "config.json: quantization_config: quantised weights are not supported; expected f32, bf16 or f16");
    MOEC_TRY(moec_checkpoint_open(dir, &ck));
  }
  moec_status *s = write_model(f, top, c, ck, o->output, remarks);
  if (!s) moec_ck_unused(ck, remarks);
  if (!s && !o->init) note_folder(dir, o->output, remarks);
  if (!s) moec_cfg_unread(top, remarks);
  moec_checkpoint_close(ck);
  return s;
}

moec_status *moec_import_checkpoint(const char *dir, const moec_checkpoint_options *o, moec_buf *remarks) {
  moec_config *top;
  moec_arena *a = moec_arena_create();
  moec_status *s = moec_config_open(moec_arena_printf(a, "%s/config.json", dir), o->n_sets, o->sets, &top);
  if (!s) {
    s = import_config(dir, o, top, a, remarks);
    moec_config_close(top);
  }
  moec_arena_destroy(a);
  return moec_context(s, "import of %s", dir);
}
