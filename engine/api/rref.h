/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls whose arguments hold references: another kind of request, so that others cost nothing more. */
#ifndef FAR_API_RREF_H
#define FAR_API_RREF_H

#include "agent/agent.h"
#include "features/references/rref.h"

/** What is called: a function, or the first overload of a method and its object. */
struct rref_target {
	const struct function *fn;
	struct far_rref *object; /* NULL: a function */
	struct far_to to;
};

/** The home of a reference; NULL: its agent is shut down. */
struct shard *rref_home(const struct far_rref *r, struct far_err *err);
/** Why it cannot be used; FAR_OK: it can, or it is not known yet. */
enum far_status rref_failed(struct far_rref *r, struct far_err *err);
enum far_status rref_none(const char *what, struct far_err *err);
/** The value of a reference to an object, on its owner; FAR_PENDING: it is none, whatever was said. object.c */
enum far_status object_local_value(struct far_rref *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err);
/** The value of a handle that is its record. */
enum far_status rref_own_value(struct far_rref *r, uint64_t timeout_ns, struct far_val *out, struct far_err *err);
/** A question to the owner, RREF_FETCH or RREF_TYPE, with a future for its answer. */
enum far_status rref_fetch_start(struct far_rref *r, enum rref_message message, uint64_t timeout_ns,
				 struct call_start *start, struct rref_fetch *fetch, struct shard **s,
				 struct far_future **f, struct far_err *err);
/** Calls in the general form: any arguments, an object that is not known to be there. */
enum far_status rref_target_async(struct far_agent *a, const struct rref_target *t, const struct far_val *args,
				  size_t n, const struct far_call_opts *opts, struct far_future **out,
				  struct far_err *err);
enum far_status rref_target_sync(struct far_agent *a, const struct rref_target *t, const struct far_val *args, size_t n,
				 const struct far_call_opts *opts, struct far_val *out, struct far_err *err);
enum far_status rref_target_make(struct far_agent *a, const struct rref_target *t, const struct far_val *args, size_t n,
				 const struct far_call_opts *opts, struct far_rref **out, struct far_err *err);

/** As far_rpc_async_to() and far_rpc_sync_to(), which have found references among the arguments. */
enum far_status rref_rpc_async(struct far_agent *a, struct far_to to, const char *function, const struct far_val *args,
			       size_t n, const struct far_call_opts *opts, struct far_future **out,
			       struct far_err *err);
enum far_status rref_rpc_sync(struct far_agent *a, struct far_to to, const char *function, const struct far_val *args,
			      size_t n, const struct far_call_opts *opts, struct far_val *out, struct far_err *err);

struct rref_pins;
/**
 * The same as one of a fan-out: prepares the request to one worker through shard `via` and hands it to `take`, which
 * may use it until it returns. On FAR_OK `*pins` are the caller's, to be kept until the call has ended.
 */
enum far_status rref_prepare(struct far_agent *a, const struct shard *via, struct far_to to, const char *function,
			     const struct far_val *args, size_t n, const struct far_call_opts *opts,
			     struct rref_pins **pins, agent_take_call *take, void *ctx, struct far_err *err);

#endif
