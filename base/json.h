/* JSON from files nobody vouches for, through jansson. */
#ifndef MOEC_BASE_JSON_H
#define MOEC_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* Parses |size| bytes of strict JSON: valid UTF-8, no duplicate keys, no NUL in strings,
 * nothing behind the value, at most 64 levels and 4,000,000 values. Objects iterate in the
 * order of the text. *out is the caller's: json_decref(). Error messages say what is wrong
 * and where in the text; the caller adds the file's name with moec_context(). */
moec_status *moec_json_parse(const void *text, size_t size, json_t **out) MOEC_MUST_USE;

#endif
