/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests of api/rref.c: calls whose arguments hold references, calls that keep their value, fetches. Any application
 * thread. A request kind of their own: the path of other calls stays short. */
#ifndef FAR_API_RREF_H
#define FAR_API_RREF_H

#include "agent/agent.h"
#include "features/references/rref.h"

/** The shard of the handle; NULL, with `err` filled: its agent is shut down. */
struct shard *rref_home(const struct far_rref *r, struct far_err *err);
/** The error of a failed reference; FAR_OK: confirmed or pending. */
enum far_status rref_failed(struct far_rref *r, struct far_err *err);
/** FAR_INVALID for a NULL reference passed to `what`. */
enum far_status rref_null(const char *what, struct far_err *err);
/** The value of a reference to an object, on its owner. FAR_PENDING: its owner's record is not an object. object.c */
enum far_status object_local_value(struct far_rref *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err);
/** The value of an owner's record. */
enum far_status rref_own_value(struct rref_record *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err);
/** Prepares a request to the owner, RREF_FETCH or RREF_TYPE, with a future for its reply. */
struct fetch_call {
	struct call_start start;
	struct call_extra seen;
	struct rref_fetch fetch;
	struct shard *shard; /* home of the handle */
	struct far_future *future;
};
enum far_status rref_fetch_start(struct far_rref *r, enum rref_message message, uint64_t timeout_ns,
				 struct fetch_call *c, struct far_err *err);
/** Starts a call that keeps a reference to the handle until it has ended: the application may free its own meanwhile,
 * and a DELETE must not arrive before the request. `look`: called with the reply first; NULL: none. */
enum far_status rref_start_holding(struct shard *s, struct call_start *start, struct far_rref *r,
				   void (*look)(struct far_rref *, const struct completion *), struct far_future *f,
				   struct far_err *err);
/** Calls in the general form: any arguments, references among them, an object that may not be made yet. */
enum far_status typed_call_async(const struct typed_call *c, struct far_future **out, struct far_err *err);
enum far_status typed_call_sync(const struct typed_call *c, struct far_val *out, struct far_err *err);
enum far_status typed_call_make(const struct typed_call *c, struct far_rref **out, struct far_err *err);

struct rref_pins;
/**
 * The same for a target of a fan-out: prepares the request through shard `via` and passes it to `take`, where it is
 * valid. On FAR_OK `*pins` are the caller's; keep them until the call has ended.
 */
enum far_status rref_prepare(const struct typed_call *c, const struct shard *via, struct rref_pins **pins,
			     agent_take_call *take, void *ctx, struct far_err *err);

#endif
