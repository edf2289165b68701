/* SPDX-License-Identifier: BSD-3-Clause */
/** What the files of an operation share. The thread that has the operation. */
#ifndef PSV_OP_H
#define PSV_OP_H

#include "psv_client.h"

/* psv_number.c */

/** Numbers the chunks of a round. `again`: 0, or the token of the change that is repeated. */
enum far_status psv_number(struct psv_op *op, uint64_t again, struct far_err *err);
/** The change is not pending any more. */
void psv_number_end(struct psv_op *op);

/* psv_fill.c */

/** Fills the gradients or rows of all requests. INVALID: one that is not finite; RESOURCE. */
enum far_status psv_op_numbers(const struct psv_op *op, struct far_err *err);
enum far_status psv_op_no_room(const struct psv_op *op, struct far_err *err);

/* psv_take.c */

/** Bytes of a request on n keys, and of a reply to it that is no view. */
size_t psv_op_request_bytes(const struct psv_op *op, uint32_t n);
size_t psv_op_reply_bytes(const struct psv_op *op, uint32_t n);
/** Takes the answer to chunk c over. The keys of an answer with a newer view stay open. */
void psv_take(struct psv_op *op, uint32_t c);
/** Copies the rows of this round to all their positions. */
void psv_scatter(struct psv_op *op);
void psv_put_fallback(const struct psv_op *op, float *to);

#endif
