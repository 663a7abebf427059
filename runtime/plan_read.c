/* From bytes to sections: the footer, the hash, and where each table lies. */
#include "runtime/plan_read.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stddef.h>
#include <string.h>

#include "runtime/sizes.h"

enum { DATA_ALIGN = 64 };

static moec_status *invalid(const char *fmt, ...) MOEC_PRINTF(1, 2);
static moec_status *invalid(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INVALID_MODEL, fmt, args);
  va_end(args);
  return s;
}

static bool inside(uint64_t offset, uint64_t size, uint64_t total) {
  return offset <= total && size <= total - offset;
}

static moec_status *check_part(const char *what, uint64_t offset, uint64_t size, uint64_t align,
                               uint64_t total) {
  if (offset % align || !inside(offset, size, total)) {
    return invalid("footer: expected the %s inside the %" PRIu64
                   " bytes of payload at a multiple of %" PRIu64 ", got %" PRIu64
                   " bytes at %" PRIu64,
                   what, total, align, size, offset);
  }
  return NULL;
}

static moec_status *check_hash(const moec_footer *f, const uint8_t *bytes, size_t size) {
  uint8_t got[32];
  moec_sha256(bytes, size - sizeof *f + offsetof(moec_footer, sha256), got);
  if (!memcmp(f->sha256, got, sizeof got)) return NULL;
  return invalid(
      "expected a file with the sha256 of its footer, %02x%02x%02x%02x..., got "
      "%02x%02x%02x%02x...: the file was edited",
      f->sha256[0], f->sha256[1], f->sha256[2], f->sha256[3], got[0], got[1], got[2], got[3]);
}

static moec_status *read_footer(moec_rt_plan *p, const uint8_t *bytes, size_t size, bool trust) {
  moec_footer *f = &p->footer; /* a copy: nothing aligns the end of a file */
  if (size >= sizeof *f) memcpy(f, bytes + size - sizeof *f, sizeof *f);
  if (size < sizeof *f || memcmp(f->magic, MOEC_FOOTER_MAGIC, sizeof f->magic)) {
    return invalid(
        "expected a compiled model, which ends with a %zu-byte moec footer, got %zu "
        "bytes without one: the file is something else, cut or stripped",
        sizeof *f, size);
  }
  if (f->version != MOEC_PLAN_VERSION) {
    return invalid("expected a model of format version %u, got version %u: compile it again",
                   MOEC_PLAN_VERSION, f->version);
  }
  uint64_t room = size - sizeof *f;
  if (f->payload_offset % MOEC_PAGE || f->payload_offset > room ||
      f->payload_size != room - f->payload_offset) {
    return invalid(
        "footer: expected the payload between a multiple of %u and the footer at %" PRIu64
        ", got %" PRIu64 " bytes at %" PRIu64 ": the file was cut",
        MOEC_PAGE, room, f->payload_size, f->payload_offset);
  }
  MOEC_TRY(check_part("plan", 0, f->plan_size, 1, f->payload_size));
  MOEC_TRY(check_part("kernels", f->kernels_offset, f->kernels_size, MOEC_PAGE, f->payload_size));
  MOEC_TRY(check_part("data", f->data_offset, f->data_size, DATA_ALIGN, f->payload_size));
  MOEC_TRY(check_part("report", f->report_offset, f->report_size, 1, f->payload_size));
  p->payload = bytes + f->payload_offset;
  if (f->kernels_size) p->kernel_object = p->payload + f->kernels_offset;
  p->data = p->payload + f->data_offset;
  return trust ? NULL : check_hash(f, bytes, size);
}

static moec_status *read_section(const moec_rt_plan *p, const char *name, moec_plan_section at,
                                 size_t size, size_t align, const void **out, uint32_t *out_n) {
  const moec_plan_header *h = p->header;
  if (at.count >= MOEC_NONE || at.offset % align || at.offset < sizeof *h ||
      !inside(at.offset, at.count * size, h->size)) {
    return invalid("section %s: expected records of %zu bytes inside the %" PRIu64
                   " bytes of the plan, got %" PRIu64 " at %" PRIu64,
                   name, size, h->size, at.count, at.offset);
  }
  *out = (const uint8_t *)h + at.offset;
  *out_n = (uint32_t)at.count;
  return NULL;
}

static moec_status *read_sections(moec_rt_plan *p) {
  const moec_plan_header *h = (const void *)p->payload;
  uint64_t size = p->footer.plan_size;
  if (size < sizeof *h || memcmp(h->magic, MOEC_PLAN_MAGIC, sizeof h->magic)) {
    return invalid("expected a plan that starts with '%s', got %" PRIu64 " other bytes",
                   MOEC_PLAN_MAGIC, size);
  }
  if (h->version != MOEC_PLAN_VERSION || h->header_size != sizeof *h || h->size != size) {
    return invalid("plan: expected version %u, a header of %zu bytes and %" PRIu64
                   " bytes in all, got %u, %u and %" PRIu64,
                   MOEC_PLAN_VERSION, sizeof *h, size, h->version, h->header_size, h->size);
  }
  p->header = h;
  const void *at;
#define READ(field, type)                                                                       \
  MOEC_TRY(read_section(p, #field, h->field, sizeof(type), alignof(type), &at, &p->n_##field)); \
  p->field = at;
  MOEC_PLAN_SECTIONS(READ)
#undef READ
  if (!p->n_strings || p->strings[p->n_strings - 1]) {
    return invalid("section strings: expected text ending with a NUL, got %u bytes without",
                   p->n_strings);
  }
  return NULL;
}

/* The values of all expressions that no size decides. */
static moec_status *evaluate_static(moec_rt_plan *p) {
  int64_t *symbols;
  MOEC_TRY(MOEC_RT_NEW(p->mem, p->static_values, p->n_exprs, "plan"));
  MOEC_TRY(MOEC_RT_NEW(p->mem, symbols, p->n_symbols, "plan"));
  moec_rt_symbols_fixed(p, symbols);
  moec_rt_eval(p, symbols, p->static_values);
  moec_rt_free(p->mem, symbols);
  return NULL;
}

static moec_status *read_all(moec_rt_plan *p, const uint8_t *bytes, size_t size, bool trust) {
  MOEC_TRY(read_footer(p, bytes, size, trust));
  MOEC_TRY(read_sections(p));
  MOEC_TRY(moec_rt_check_records(p));
  MOEC_TRY(evaluate_static(p));
  MOEC_TRY(moec_rt_check_params(p));
  return moec_rt_check_steps(p);
}

static moec_status *open_bytes(moec_rt_memory *mem, const char *name, const uint8_t *bytes,
                               size_t size, bool trust, moec_rt_plan *p) {
  size_t n = strlen(name) + 1;
  moec_status *s = MOEC_RT_NEW(mem, p->file, n, name);
  if (!s) {
    memcpy(p->file, name, n);
    s = moec_context(read_all(p, bytes, size, trust), "%s", name);
  }
  if (s) moec_rt_plan_fini(p);
  return s;
}

moec_status *moec_rt_plan_open(moec_rt_memory *mem, const char *path, bool trust,
                               moec_rt_plan *out) {
  *out = (moec_rt_plan){.mem = mem};
  MOEC_TRY(moec_map_user_file(path, &out->map));
  return open_bytes(mem, path, out->map.data, out->map.size, trust, out);
}

moec_status *moec_rt_plan_open_memory(moec_rt_memory *mem, const void *bytes, size_t size,
                                      bool trust, moec_rt_plan *out) {
  *out = (moec_rt_plan){.mem = mem};
  if ((uintptr_t)bytes % DATA_ALIGN) {
    out->copy = moec_rt_alloc(mem, size, false);
    if (!out->copy) return moec_rt_no_memory("plan", size);
    memcpy(out->copy, bytes, size);
    bytes = out->copy;
  }
  return open_bytes(mem, "model in memory", bytes, size, trust, out);
}

void moec_rt_plan_fini(moec_rt_plan *p) {
  moec_rt_free(p->mem, p->static_values);
  moec_rt_free(p->mem, p->written);
  moec_rt_free(p->mem, p->file);
  moec_rt_free(p->mem, p->copy);
  moec_unmap(&p->map);
  *p = (moec_rt_plan){0};
}
