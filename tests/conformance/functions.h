/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions that the workers of a test offer, and what their bodies see of them.
 * Handlers: shard threads, fibers and threads of the agent. */
#ifndef CONFORM_FUNCTIONS_H
#define CONFORM_FUNCTIONS_H

#include "run.h"

/* One that answers within itself. */
#define HANDLER(name)                                                                                                  \
	enum far_status name(struct far_req *req, const struct far_val *args __attribute__((unused)),                  \
			     size_t n __attribute__((unused)), void *user __attribute__((unused)))

far_fn nested_within, to_here_within, nested_rpc, nested_raise, nested_nothing, multi_layer, future_in_rpc,
	callback_in_rpc, return_future, heavy;
far_fn rref_sum, to_here, local, confirmed, is_owner, nested_remote, nested_rref, remote_there, forward_chain,
	local_rrefs, fetch_all, keep_global, clear_global;
far_fn async_add, async_add_ctor, async_add_chained, async_add_nested, async_multi_chained, async_multi_fanout,
	async_raise, async_raise_later, async_no_answer, async_other_type, async_static_add, async_class_add;
far_fn ps_push, ps_train, assorted;
far_fn ops, op_add, op_sub, async_op_add, server_enter, server_exit, server_events;
far_fn add, my_function, sum_nested, no_result, raise_error, slow_add, set_value, where, count, box_make, box_add,
	box_class_add;

/** a + b, for ints, f32 tensors and sparse matrices of the same places. To be finished. */
struct sum {
	struct far_val value, items[3];
};
enum far_status sum_of(struct sum *s, const struct far_val *a, const struct far_val *b);
void sum_fini(struct sum *s);
enum far_status answer_sum(struct far_req *req, const struct far_val *a, const struct far_val *b);

/** What c::set_value was given, as a future; NULL: no memory. */
struct far_future *functions_wait_for_value(void);
/** The sum of what c::count was given here, and layers of c::multi_layer that ran here. */
int64_t functions_counted(void);
void functions_count(void);

/** What travels as c::Box. */
struct box {
	int64_t a;
};
extern _Atomic int boxes_encoded, boxes_decoded;

/** The ranges of c::ops, in the flow that calls. */
void functions_ops(bool forward);
/** Parks the calling fiber for `ns`; an error: the wait was ended before. */
enum far_status functions_park(uint64_t ns);
/** The worker's rank. */
int functions_rank(struct far_req *req);
/** Passes an error on. */
enum far_status fail_with(struct far_req *req, enum far_status status, const struct far_err *e);
/** Answers with a value, and finishes it. */
enum far_status answer_with(struct far_req *req, struct far_val *v);

#endif
