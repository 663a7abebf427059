/* What the files of the pass `loss` share. */
#ifndef MOEC_PASSES_LOSS_H
#define MOEC_PASSES_LOSS_H

#include <string.h>

#include "passes/pass.h"

/* Adds |aux| times the load balancing loss and |z| times the z-loss of all routers to output 0 of |g|, a copy of main
 * with the loss; each is a further output, "aux_loss" and "z_loss", without its coefficient. 0: not that one. */
moec_status *moec_loss_of_routers(moec_graph *g, double aux, double z) MOEC_MUST_USE;

#endif
