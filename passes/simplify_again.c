/* Simplify once more: what raising left behind is brought to the same canonical form. */
#include "passes/pass.h"
moec_status *moec_pass_simplify_again(moec_module *m, moec_pass_ctx *cx) { return moec_pass_simplify(m, cx); }
