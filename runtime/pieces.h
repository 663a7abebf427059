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

/* Whether |piece| is stored one behind the other in the parameter |t|, in the same order: from element *first on. */
bool moec_rt_piece_is_run(const moec_rt_plan *p, const moec_plan_piece *piece, const moec_plan_tensor *t,
                          int64_t *first);

/* ---- pieces_made.c: from a file or a seed ---------------------------------------------------- */

/* Whether it has no bytes, but is made from a seed. */
static inline bool moec_rt_piece_made(const moec_rt_params *x, const moec_plan_piece *piece) {
  return piece->file != MOEC_NONE && !x->paths[piece->file];
}
/* Temporary memory that getting it needs: 0 where it has bytes. */
uint64_t moec_rt_piece_room(const moec_rt_params *x, const moec_plan_piece *piece);
/* As moec_rt_piece_load(). */
void moec_rt_piece_get(const moec_rt_plan *p, const moec_rt_params *x, const moec_plan_piece *piece,
                       const moec_plan_tensor *t, void *parameter, void *room);
/* Its bytes as they are stored, made or copied. */
void moec_rt_piece_read(const moec_rt_plan *p, const moec_rt_params *x, const moec_plan_piece *piece, void *out);
/* Whether all of parameter |i| is made, and can be so a run of elements at a time. */
bool moec_rt_param_streams(const moec_rt_plan *p, const moec_rt_params *x, uint32_t i);
/* Such a parameter, made by the device in its buffer there, or on all threads, little at a time, and written to it. */
struct moec_model;
moec_status *moec_rt_param_stream(struct moec_model *m, uint32_t i) MOEC_MUST_USE;

/* Where |piece|, which has bytes, was read from. (params.c) */
const uint8_t *moec_rt_piece_bytes(const moec_rt_plan *p, const moec_rt_params *x,
                                   const moec_plan_piece *piece);

#endif
