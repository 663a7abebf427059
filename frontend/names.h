/* Names of one graph or local function and what they mean. */
#ifndef MOEC_FRONTEND_NAMES_H
#define MOEC_FRONTEND_NAMES_H

#include "frontend/import.h"

void moec_scope_init(moec_scope *s, moec_arena *a);
/* In |s| or the scopes around it; NULL when absent; valid until the next add. */
moec_entry *moec_scope_find(const moec_scope *s, const char *name);
/* A new entry of |s| itself; NULL when it has the name already. |name| must outlive the scope. */
moec_entry *moec_scope_add(moec_scope *s, moec_arena *a, const char *name);

#endif
