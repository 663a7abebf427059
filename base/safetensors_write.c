#include <stdlib.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/outfile.h"
#include "base/safetensors.h"
#include "base/size.h"

/* One header member; *at is where its data begins, and is moved behind it. */
static moec_status *add_entry(json_t *header, const char *name, const moec_tensor *t, size_t *at) {
  size_t bytes, end;
  MOEC_TRY(moec_shape_bytes(t->dtype, t->rank, t->dims, &bytes));
  if (!moec_add_size(*at, bytes, &end) || end > INT64_MAX) {
    return moec_error(MOEC_INVALID_ARGUMENT, "expected less than 2^63 bytes in all, got more");
  }
  if (json_object_get(header, name)) {
    return moec_error(MOEC_INVALID_ARGUMENT, "expected names of tensors once each, got one again");
  }
  json_t *shape = json_array();
  for (uint32_t i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer(t->dims[i]));
  json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", moec_dtype_get(t->dtype)->safetensors,
                            "shape", shape, "data_offsets", (json_int_t)*at, (json_int_t)end);
  *at = end;
  if (json_object_set_new(header, name, entry) == 0) return NULL;
  return moec_error(MOEC_INVALID_ARGUMENT, "expected a name in UTF-8, got something else");
}

/* The header's text, padded with blanks so that the data begins at a multiple of 64. */
static moec_status *header_text(size_t n, const char *const *names, const moec_tensor *tensors,
                                moec_buf *out) {
  /* Loaders of the Hugging Face libraries insist on this entry. */
  json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
  moec_status *s = header ? NULL : moec_error(MOEC_OUT_OF_MEMORY, "out of memory");
  size_t at = 0;
  for (size_t i = 0; i < n && !s; i++) {
    s = moec_context(add_entry(header, names[i], &tensors[i], &at), "tensor '%.200s'", names[i]);
  }
  char *text = s ? NULL : json_dumps(header, JSON_COMPACT);
  if (!s && !text) s = moec_error(MOEC_OUT_OF_MEMORY, "out of memory");
  if (!s) {
    moec_buf_write(out, "\0\0\0\0\0\0\0", 8);
    moec_buf_puts(out, text);
    while (out->size % 64) moec_buf_putc(out, ' ');
    uint64_t length = out->size - 8;
    for (int i = 0; i < 8; i++) out->data[i] = (char)(length >> 8 * i & 255);
  }
  free(text);
  json_decref(header);
  return s;
}

moec_status *moec_safetensors_write_each(const char *path, size_t n, const char *const *names,
                                         const moec_tensor *tensors, moec_st_data data, void *ctx) {
  moec_buf header = {0};
  moec_outfile *f = NULL;
  moec_status *s = moec_context(header_text(n, names, tensors, &header), "writing %s", path);
  if (!s) s = moec_outfile_begin(path, 0644, &f);
  if (!s) {
    s = moec_outfile_write(f, header.data, header.size);
    for (size_t i = 0; i < n && !s; i++) {
      const void *bytes = NULL;
      s = data(ctx, i, &bytes);
      if (!s) s = moec_outfile_write(f, bytes, moec_tensor_bytes(&tensors[i]));
    }
    s = moec_outfile_end(f, s);
  }
  moec_buf_fini(&header);
  return s;
}

static moec_status *data_of(void *ctx, size_t i, const void **out) {
  const moec_tensor *tensors = ctx;
  *out = tensors[i].data;
  return NULL;
}

moec_status *moec_safetensors_write(const char *path, size_t n, const char *const *names,
                                    const moec_tensor *tensors) {
  for (size_t i = 0; i < n; i++) {
    size_t bytes;
    MOEC_TRY(moec_shape_bytes(tensors[i].dtype, tensors[i].rank, tensors[i].dims, &bytes));
    if (bytes && !tensors[i].data)
      return moec_error(MOEC_INVALID_ARGUMENT, "writing %s: tensor '%.200s': expected a tensor with data, got none",
                        path, names[i]);
  }
  return moec_safetensors_write_each(path, n, names, tensors, data_of, (void *)(uintptr_t)tensors);
}
