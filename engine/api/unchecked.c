/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls of functions that are registered at the callee only. Any application thread, and handlers. */
#include "api/rref.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* A function that takes any arguments. The hash 0 of its signature makes the callee choose the overload. */
struct unchecked {
	struct function fn;
	struct typed_call call;
};

static enum far_status look_up(struct unchecked *u, const char *to, const char *function, struct far_err *err)
{
	const struct far_val *args = u->call.args;
	size_t n = u->call.args_n;
	char text[SIGNATURE_NAME_MAX + 16 * FAR_ARGS_MAX];
	int rank = agent_find_worker(u->call.agent, to, err);
	if (rank < 0)
		return FAR_UNKNOWN_WORKER;
	if (!function || strlen(function) >= SIGNATURE_NAME_MAX || n > FAR_ARGS_MAX)
		return err_set(err, FAR_INVALID,
			       "an unchecked call has a name of at most %d bytes, and at most %d arguments",
			       SIGNATURE_NAME_MAX - 1, FAR_ARGS_MAX);
	int at = snprintf(text, sizeof text, "%s(", function);
	for (size_t i = 0; i < n; i++) {
		if (args[i].kw)
			return err_set(err, FAR_BAD_ARGS,
				       "%s: argument %zu has the keyword '%.64s', but the names of its parameters are "
				       "known to the callee only; pass it by position",
				       function, i + 1, args[i].kw);
		at += snprintf(text + at, sizeof text - (size_t)at, "%sAny a%zu", i ? ", " : "", i);
	}
	snprintf(text + at, sizeof text - (size_t)at, ") -> Any");
	enum far_status status = signature_parse(text, &u->fn.signature, err);
	if (!status && strcmp(u->fn.signature.name, function) != 0)
		status = err_set(err, FAR_INVALID, "\"%s\" is not the name of a function", function);
	u->fn.signature.canonical_hash = 0;
	u->call.fn = &u->fn;
	u->call.to = (struct far_to){rank, -1};
	return status;
}

enum far_status far_rpc_sync_unchecked(struct far_agent *a, const char *to, const char *function,
				       const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				       struct far_val *out, struct far_err *err)
{
	struct unchecked u = {.call = {.agent = a, .args = args, .args_n = args_n, .opts = opts}};
	enum far_status status = agent_may_wait("far_rpc_sync_unchecked", err);
	if (!status)
		status = look_up(&u, to, function, err);
	return status ? status : typed_call_sync(&u.call, out, err);
}

enum far_status far_rpc_async_unchecked(struct far_agent *a, const char *to, const char *function,
					const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
					struct far_future **out, struct far_err *err)
{
	struct unchecked u = {.call = {.agent = a, .args = args, .args_n = args_n, .opts = opts}};
	if (!out)
		return err_set(err, FAR_INVALID, "far_rpc_async_unchecked: `out`, for the future, must not be NULL");
	enum far_status status = look_up(&u, to, function, err);
	return status ? status : typed_call_async(&u.call, out, err);
}

enum far_status far_remote_unchecked(struct far_agent *a, const char *to, const char *function,
				     const struct far_val *args, size_t args_n, const struct far_call_opts *opts,
				     struct far_rref **out, struct far_err *err)
{
	struct unchecked u = {.call = {.agent = a, .args = args, .args_n = args_n, .opts = opts}};
	enum far_status status = look_up(&u, to, function, err);
	return status ? status : typed_call_make(&u.call, out, err);
}
