/* config.json, typed: every key a model reads is marked, and what nobody read can be listed.
 *
 * Keys may name alternatives, "num_experts|num_local_experts"; the first that is there counts, null is absent.
 * The first error is kept until moec_cfg_end(); accessors go on with harmless values. */
#ifndef MOEC_MODELS_CONFIG_H
#define MOEC_MODELS_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

typedef struct moec_config moec_config;

/* |sets|: n texts "KEY=VALUE" that overrule the file; KEY may be dotted, VALUE is JSON or else a string. */
moec_status *moec_config_open(const char *path, size_t n, const char *const *sets, moec_config **out) MOEC_MUST_USE;
void moec_config_close(moec_config *c); /* NULL is fine */
/* The object under |key|, which shares marks and errors; NULL when absent. Closed with its parent. */
moec_config *moec_cfg_sub(moec_config *c, const char *key);
moec_status *moec_cfg_end(moec_config *c) MOEC_MUST_USE; /* the first error, handed out */
void moec_cfg_fail(moec_config *c, moec_status *s);

bool moec_cfg_has(const moec_config *c, const char *keys); /* there and not null; marks nothing */
int64_t moec_cfg_int(moec_config *c, const char *keys);    /* required, 1 .. 2^31-1 */
int64_t moec_cfg_int_or(moec_config *c, const char *keys, int64_t dflt); /* 0 .. 2^31-1 */
double moec_cfg_num(moec_config *c, const char *keys);     /* required, finite */
double moec_cfg_num_or(moec_config *c, const char *keys, double dflt);
bool moec_cfg_bool_or(moec_config *c, const char *keys, bool dflt);
const char *moec_cfg_str_or(moec_config *c, const char *keys, const char *dflt);
/* Lists: the number of elements (0 when absent), and one of them. */
size_t moec_cfg_list(moec_config *c, const char *keys);
const char *moec_cfg_list_str(moec_config *c, const char *keys, size_t i);
/* true counts as 1 */
int64_t moec_cfg_list_int(moec_config *c, const char *keys, size_t i);

/* What transformers takes for a key that a file leaves out (|null_too|: or has as null): JSON texts, ended by a NULL.
 * They count as read. */
typedef struct moec_cfg_default {
  const char *key, *value;
  bool null_too;
} moec_cfg_default;
void moec_cfg_defaults(moec_config *c, const moec_cfg_default *d);

/* The value must be |want| where it is given; anything else is refused by name. */
void moec_cfg_want_str(moec_config *c, const char *keys, const char *want);
void moec_cfg_want_bool(moec_config *c, const char *keys, bool want);
void moec_cfg_want_num(moec_config *c, const char *keys, double want);
/* Marks keys, separated by spaces, that change nothing in a forward pass. */
void moec_cfg_ignore(moec_config *c, const char *keys);

/* One line naming the keys nobody read, appended to |out|; nothing when there are none. */
void moec_cfg_unread(const moec_config *c, moec_buf *out);

#endif
