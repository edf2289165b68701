/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers that are given references, and that return some.
 * Handlers: shard threads, fibers and threads of the agent. */
#include "functions.h"

HANDLER(rref_sum)
{
	struct far_val a, b = {0};
	struct far_err e;
	enum far_status status = far_rref_to_here(args[0].u.rref, 0, &a, &e);
	if (status)
		return fail_with(req, status, &e);
	status = far_rref_to_here(args[1].u.rref, 0, &b, &e);
	status = status ? fail_with(req, status, &e) : answer_sum(req, &a, &b);
	far_val_fini(&a);
	far_val_fini(&b);
	return status;
}

HANDLER(to_here)
{
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_to_here(args[0].u.rref, 0, &v, &e);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

HANDLER(local)
{
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_local_value(args[0].u.rref, 0, &v, &e);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

HANDLER(confirmed)
{
	struct far_val v = far_bool(far_rref_confirmed_by_owner(args[0].u.rref));
	return far_return(req, &v);
}

HANDLER(is_owner)
{
	struct far_val v = far_bool(far_rref_is_owner(args[0].u.rref));
	return far_return(req, &v);
}

/* Made there, fetched here. */
HANDLER(nested_remote)
{
	struct far_rref *r;
	struct far_val v;
	struct far_err e;
	enum far_status status =
		far_remote(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), NULL, &r, &e);
	if (status)
		return fail_with(req, status, &e);
	status = far_rref_to_here(r, 0, &v, &e);
	far_rref_free(r);
	return status ? fail_with(req, status, &e) : answer_with(req, &v);
}

/* Two references to values of a third: x + a, and x + b. */
HANDLER(nested_rref)
{
	struct far_rref *r[2] = {NULL, NULL};
	struct far_err e;
	enum far_status status = FAR_OK;
	for (int i = 0; i < 2 && !status; i++)
		status = far_remote(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2 + i]),
				    NULL, &r[i], &e);
	if (status) {
		far_rref_free(r[0]);
		return fail_with(req, status, &e);
	}
	struct far_val v = FAR_LIST(r[0], r[1]);
	status = far_return(req, &v);
	far_rref_free(r[0]);
	far_rref_free(r[1]);
	return status;
}

HANDLER(remote_there)
{
	struct far_rref *r;
	struct far_err e;
	enum far_status status =
		far_remote(far_req_agent(req), args[0].u.s.data, "c::add", FAR_ARGS(args[1], args[2]), NULL, &r, &e);
	if (status)
		return fail_with(req, status, &e);
	struct far_val v = far_rref_val(r);
	status = far_return(req, &v);
	far_rref_free(r);
	return status;
}

/* Hands the reference on to the next worker; the answer is a list of the reference to what that one answers. */
HANDLER(forward_chain)
{
	struct far_rref *r;
	struct far_err e;
	int32_t to = (int32_t)args[0].u.i;
	if (args[2].u.i == 0)
		return to_here(req, &args[1], 1, NULL);
	enum far_status status =
		far_remote_to(far_req_agent(req), (struct far_to){to, -1}, "c::forward_chain",
			      FAR_ARGS((to + 1) % WORLD, args[1].u.rref, args[2].u.i - 1), NULL, &r, &e);
	if (status)
		return fail_with(req, status, &e);
	struct far_val v = FAR_LIST(r);
	status = far_return(req, &v);
	far_rref_free(r);
	return status;
}

/* References to values of this worker's own. */
HANDLER(local_rrefs)
{
	enum { MOST = 16 };
	struct far_rref *r[MOST] = {NULL};
	struct far_val items[MOST];
	struct far_err e;
	int64_t want = args[0].u.i;
	enum far_status status = want < 0 || want > MOST ? far_fail(req, FAR_BAD_ARGS, 0, "too many") : FAR_OK;
	for (int i = 0; i < want && !status; i++) {
		status = far_remote_to(far_req_agent(req), (struct far_to){functions_rank(req), -1}, "far::identity",
				       FAR_ARGS(i), NULL, &r[i], &e);
		items[i] = far_rref_val(r[i]);
	}
	struct far_val v = far_list(items, (size_t)want);
	if (!status)
		status = far_return(req, &v);
	for (int i = 0; i < MOST; i++)
		far_rref_free(r[i]);
	return status;
}

HANDLER(fetch_all)
{
	int64_t sum = 0;
	struct far_err e;
	for (size_t i = 0; i < far_len(&args[0]); i++) {
		struct far_val v;
		enum far_status status = far_rref_to_here(far_list_get(&args[0], i)->u.rref, 0, &v, &e);
		if (status)
			return fail_with(req, status, &e);
		sum += v.u.i;
		far_val_fini(&v);
	}
	struct far_val v = far_int(sum);
	return far_return(req, &v);
}

static struct far_rref *_Atomic global;

HANDLER(keep_global)
{
	far_rref_free(atomic_exchange(&global, far_rref_ref(args[0].u.rref)));
	return far_return(req, NULL);
}

HANDLER(clear_global)
{
	far_rref_free(atomic_exchange(&global, NULL));
	return far_return(req, NULL);
}
