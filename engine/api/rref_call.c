/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions on the values of references: far_rref_call() and its relatives. Application threads and handlers. A call
 * is one of far::rref_call (builtin/rref_call.c) on the shard of the value. */
#include "builtin/rref_call.h"
#include "api/rref.h"
#include "base/error.h"

#include <stdio.h>

struct on_value {
	struct typed_call call;
	struct far_val args[3];
};

static enum far_status prepare(struct far_rref *r, const char *function, const struct far_val *args, size_t n,
			       const struct far_call_opts *opts, struct on_value *c, struct far_err *err)
{
	if (!r || !function)
		return rref_null("far_rref_call, or the function's name", err);
	const struct shard *home = rref_home(r, err);
	if (!home)
		return FAR_SHUTDOWN;
	if (n >= FAR_ARGS_MAX)
		return err_set(err, FAR_BAD_ARGS, "%s: %zu arguments; %d are the maximum, with the value", function,
			       n + 1, FAR_ARGS_MAX);
	for (size_t i = 0; i < n; i++)
		if (args[i].kw)
			return err_set(err, FAR_BAD_ARGS,
				       "%s: argument %zu has the keyword '%.64s', but the owner chooses the overload; "
				       "pass it by position",
				       function, i + 2, args[i].kw);
	struct far_agent *a = home->config.agent;
	c->call = (struct typed_call){.agent = a,
				      .fn = agent_find_function(a, rref_call_name, err),
				      .to = far_rref_owner(r),
				      .args = c->args,
				      .args_n = 3,
				      .opts = opts};
	c->args[0] = far_rref_val(r);
	c->args[1] = far_str(function);
	c->args[2] = far_list(args, n);
	return FAR_OK;
}

enum far_status far_rref_call(struct far_rref *r, const char *function, const struct far_val *args, size_t args_n,
			      const struct far_call_opts *opts, struct far_val *out, struct far_err *err)
{
	struct on_value c;
	enum far_status status = agent_may_wait("far_rref_call", err);
	if (!status)
		status = prepare(r, function, args, args_n, opts, &c, err);
	return status ? status : typed_call_sync(&c.call, out, err);
}

enum far_status far_rref_call_async(struct far_rref *r, const char *function, const struct far_val *args, size_t args_n,
				    const struct far_call_opts *opts, struct far_future **out, struct far_err *err)
{
	struct on_value c;
	if (!out)
		return err_set(err, FAR_INVALID, "far_rref_call_async: `out`, for the future, must not be NULL");
	enum far_status status = prepare(r, function, args, args_n, opts, &c, err);
	return status ? status : typed_call_async(&c.call, out, err);
}

enum far_status far_rref_call_remote(struct far_rref *r, const char *function, const struct far_val *args,
				     size_t args_n, const struct far_call_opts *opts, struct far_rref **out,
				     struct far_err *err)
{
	struct on_value c;
	enum far_status status = prepare(r, function, args, args_n, opts, &c, err);
	return status ? status : typed_call_make(&c.call, out, err);
}
