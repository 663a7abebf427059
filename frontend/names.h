/* Names of one graph or local function and what they mean. */
#ifndef MOEC_FRONTEND_NAMES_H
#define MOEC_FRONTEND_NAMES_H

#include "frontend/import.h"

void moec_scope_init(moec_scope *s, moec_arena *a);
moec_entry *moec_scope_find(const moec_scope *s, const char *name); /* NULL when absent; valid until the next add */
/* A new entry; NULL when the name is taken. |name| must outlive the scope. */
moec_entry *moec_scope_add(moec_scope *s, moec_arena *a, const char *name);

#endif
