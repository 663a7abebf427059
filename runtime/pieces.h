/* A piece is a tensor of a file that fills a slice of a parameter, its axes in another order perhaps
 * and its elements of another type. Thread-safe. */
#ifndef MOEC_RUNTIME_PIECES_H
#define MOEC_RUNTIME_PIECES_H

#include "runtime/params.h"

/* Whether |piece|, as it is stored, is all of the parameter |t|. Types may differ. */
bool moec_rt_piece_is_whole(const moec_rt_plan *p, const moec_plan_piece *piece,
                            const moec_plan_tensor *t);
/* |piece|, stored as |bytes| at any address, to its slice of |parameter|, which |t| describes. */
void moec_rt_piece_load(const moec_rt_plan *p, const moec_plan_piece *piece,
                        const moec_plan_tensor *t, void *parameter, const uint8_t *bytes);
/* The inverse: its slice of |parameter|, whose elements are |type|, to |bytes| as it is stored,
 * aligned to its element. */
void moec_rt_piece_store(const moec_rt_plan *p, const moec_plan_piece *piece,
                         const moec_plan_tensor *t, moec_dtype type, const void *parameter,
                         void *bytes);

/* Where |piece| was read from. (params.c) */
const uint8_t *moec_rt_piece_bytes(const moec_rt_plan *p, const moec_rt_params *x,
                                   const moec_plan_piece *piece);

#endif
