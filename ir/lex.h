/* Tokens of the text form. Whatever is wrong becomes one error with line and column; after it
 * every call does nothing and returns "nothing", so parsing code needs no checks of its own. */
#ifndef MOEC_IR_LEX_H
#define MOEC_IR_LEX_H

#include "ir/ir.h"

typedef struct moec_lexer {
  moec_module *m;
  const char *text, *at, *end; /* *end is the NUL */
  moec_status *error; /* owned */
} moec_lexer;

void moec_lex_fail(moec_lexer *l, const char *fmt, ...) MOEC_PRINTF(2, 3);
bool moec_lex_take(moec_lexer *l, const char *token); /* takes it if it comes next; words take whole words */
bool moec_lex_sees(moec_lexer *l, char c); /* c comes next */
void moec_lex_expect(moec_lexer *l, const char *token);
bool moec_lex_end(moec_lexer *l); /* end of the text, or an error */

/* Each gives "" or 0 after an error. Strings live in the module's arena. */
const char *moec_lex_string(moec_lexer *l);        /* "quoted", with \xHH */
const char *moec_lex_word(moec_lexer *l);          /* letters, digits, bytes from 128 on, _ and . */
int64_t moec_lex_int(moec_lexer *l);
uint32_t moec_lex_u32(moec_lexer *l);
uint64_t moec_lex_u64(moec_lexer *l);
double moec_lex_float(moec_lexer *l);              /* hexadecimal or decimal, inf, nan */
bool moec_lex_bool(moec_lexer *l);
moec_dtype moec_lex_dtype(moec_lexer *l);          /* "none" is NONE */
/* A dim expression up to the next ',' ']' '}' '=' or word "at" outside parentheses. */
moec_dim moec_lex_dim(moec_lexer *l);
moec_type moec_lex_type(moec_lexer *l);
moec_ints moec_lex_ints(moec_lexer *l);            /* [1, 2] */
moec_dims moec_lex_dims(moec_lexer *l);
const moec_const *moec_lex_const(moec_lexer *l);

#endif
