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

/** True for numbers of f32 alone: they travel as they are. */
static inline bool psv_is_plain(const struct psv_op *op)
{
	return op->wire == PST_F32 && !op->state_floats;
}
/** Finds the numbers of each key: sums of gradients, of rows the last one. Once. RESOURCE, TIMEOUT. */
enum far_status psv_op_sums(struct psv_op *op, struct far_err *err);
/** Checks the numbers and state of all keys. INVALID: one is not finite; RESOURCE, TIMEOUT. */
enum far_status psv_op_check(const struct psv_op *op, struct far_err *err);
/** Fills the numbers and state of a chunk. INVALID: one is not finite; of a plain operation psv_op_check() has found
 * out. */
enum far_status psv_op_numbers(const struct psv_op *op, const struct psv_chunk *c, char *request, struct far_err *err);
enum far_status psv_op_no_room(const struct psv_op *op, struct far_err *err);

/* psv_take.c */

/** Bytes of the request of a chunk, and of a reply to it that is no view. */
size_t psv_op_request_bytes(const struct psv_op *op, const struct psv_chunk *c);
size_t psv_op_reply_bytes(const struct psv_op *op, const struct psv_chunk *c);
/** Takes the answer to chunk c over, by its result. The keys of an answer with a newer view stay open. Of values and
 * CALL `reply` must remain until the round is over. */
void psv_take(struct psv_op *op, uint32_t c, const char *reply);
/** Adds the statistics of a shard. */
void psv_stats_add(struct far_ps_stats *to, const struct psv_stats *s);
/** The status of a key by what a server sent. Every row of a dense table was there. */
static inline uint8_t psv_key_status(bool dense, uint8_t status)
{
	if (dense && status <= FAR_PS_MISSING)
		return FAR_PS_ROW;
	return status <= FAR_PS_REFUSED ? status : (uint8_t)FAR_PS_LOST;
}
/** Copies the rows of keys that come more than once. */
void psv_repeat(const struct psv_op *op);
void psv_put_fallback(const struct psv_op *op, float *to);

/* psv_steps.c */

/** True for a pull that is worth it. The view is set. */
bool psv_has_steps(const struct psv_op *op);
/** The first round of such a pull. On OK the operation belongs to its lanes, unless *over: all of them have ended. */
enum far_status psv_steps_begin(struct psv_op *op, bool *over, struct far_err *err);

/* psv_op.c */

#define PSV_LANE_BYTES ((size_t)4 * FAR_PS_CHUNK_BYTES) /* of a slot, sent at once; an operation of more is large */

/** Keys of a request of an operation that reads and is not large, of `bytes` each, at least 1: half of
 * FAR_PS_CHUNK_BYTES, so that client and server work at the same time, but not so few that a server waits for memory
 * (perf/NOTES.md, 97). */
static inline size_t psv_turn_keys(size_t bytes)
{
	size_t keys = FAR_PS_CHUNK_BYTES / bytes, half = keys / 2;
	keys = keys < FAR_PS_PART_KEYS ? keys : half > FAR_PS_PART_KEYS ? half : FAR_PS_PART_KEYS;
	return keys ? keys : 1;
}

/** TIMEOUT: the deadline has passed. For operations on many keys, before they send. */
enum far_status psv_op_in_time(const struct psv_op *op, struct far_err *err);
/** Room for a reply, which may be a view. */
size_t psv_reply_room(const struct psv_op *op, const struct psv_chunk *c);
/** Fills the request of chunk c of the round, so that it can be sent. INVALID. */
enum far_status psv_op_fill(struct psv_op *op, uint32_t c, struct far_err *err);

/** All requests of the round have ended, and their answers are taken over: begins the next round or ends the operation.
 */
void psv_round_over(struct psv_op *op);

/* psv_lanes.c */

size_t psv_lanes_bytes(uint32_t lanes);
/** Bytes of the largest request of the round. */
size_t psv_lane_bytes(const struct psv_op *op);
/** Where the request and the reply of each chunk from number `from` on are: at *out and *in, which are moved. */
void psv_op_address(struct psv_op *op, uint32_t from, char **out, char **in);
/** Begins a round; `memory` is of its lanes. The operation exists until psv_lanes_end() at least. */
void psv_lanes_begin(struct psv_op *op, void *memory);
/** Sends the requests from chunk `from` of the round on; of a large operation one after the other to each shard. */
void psv_lanes_send(struct psv_op *op, uint32_t from);
/** No more chunks come. True: all lanes have ended; else the operation may be gone, and psv_round_over() follows. */
bool psv_lanes_end(struct psv_op *op);

/* psv_call.c */

/** Begins the results of CALL. */
void psv_call_init(struct psv_op *op);
/** Writes the function's name and the argument. */
void psv_call_fill(const struct psv_op *op, char *to);
/** Takes the statuses of a chunk over, and its values or their reduction. */
void psv_take_call(struct psv_op *op, const struct psv_chunk *c, const char *body);
/** Copies the values of this round to all their positions. */
void psv_call_scatter(struct psv_op *op);
/** Sets the errors of all positions. */
void psv_call_settle(const struct psv_op *op);

/* psv_values.c */

/** Begins the results of GET_VALUES, or room for the last position of each key. False: no memory. */
bool psv_values_init(struct psv_op *op);
/** Finds the last position of each key of PUT_VALUES. */
void psv_values_last(struct psv_op *op);
bool psv_is_values(unsigned kind);
/** Keys of a chunk. */
uint32_t psv_values_keys(const struct psv_op *op);
size_t psv_values_request_bytes(const struct psv_op *op, const struct psv_chunk *c);
/** Writes the lengths and values of a chunk. */
void psv_values_fill(const struct psv_op *op, const struct psv_chunk *c, char *to);
/** Takes an answer to GET_VALUES over. False: it is malformed. */
bool psv_take_values(struct psv_op *op, const struct psv_chunk *c, const char *body, size_t len);
/** Copies the values of this round to all their positions. */
void psv_values_scatter(const struct psv_op *op);

/* psv_bags.c */

/** Numbers the bags of all positions, sets their rows to zeros. False: no memory. */
bool psv_bags_init(struct psv_op *op);
/** Bags with a key in a chunk. */
uint32_t psv_bags_of(const struct psv_op *op, const struct psv_chunk *c);
/** Writes the offsets and weights of a chunk. */
void psv_bags_fill(const struct psv_op *op, const struct psv_chunk *c, char *to);
/** Adds the sums of a chunk to the bags. */
void psv_take_bags(struct psv_op *op, const struct psv_chunk *c, const char *body);
/** Adds fallback rows, divides means, sets statuses; returns the number of bags that were answered. */
size_t psv_bags_settle(struct psv_op *op);

#endif
