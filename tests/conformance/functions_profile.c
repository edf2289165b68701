/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers with ranges, and the profile of a server. Handlers: shard threads, fibers and threads of the agent. */
#include "functions.h"

enum { SERVERS = 8 };

static struct far_profile *servers[SERVERS];
static int servers_n;

/* A range with nothing in it, as an operator. */
static void op(const char *name)
{
	far_range_begin(name);
	far_range_end();
}

void functions_ops(bool forward)
{
	if (forward)
		far_range_begin("##forward##");
	op("op::ones");
	op("op::add");
	op("op::mul");
	if (forward)
		far_range_end();
}

HANDLER(ops)
{
	struct far_val v = far_int(3);
	functions_ops(args[0].u.b);
	return far_return(req, &v);
}

HANDLER(op_add)
{
	op("op::add");
	return answer_sum(req, &args[0], &args[1]);
}

HANDLER(op_sub)
{
	struct far_val v = far_int(args[0].u.i - args[1].u.i);
	op("op::sub");
	return far_return(req, &v);
}

HANDLER(server_enter)
{
	struct far_profile_opts opts = {.server = far_req_agent(req)};
	struct far_err e;
	if (servers_n == SERVERS)
		return far_fail(req, FAR_RESOURCE, 0, "too many profiles");
	enum far_status status = far_profile_begin(&opts, &servers[servers_n], &e);
	struct far_val v = far_int(servers_n++);
	return status ? fail_with(req, status, &e) : far_return(req, &v);
}

HANDLER(server_exit)
{
	struct far_err e;
	enum far_status status = far_profile_end(servers[args[0].u.i], &e);
	return status ? fail_with(req, status, &e) : far_return(req, NULL);
}

/* The outermost ranges of all requests; the profile is given back. */
HANDLER(server_events)
{
	struct far_val names[64];
	size_t spans_n, found = 0;
	struct far_profile *p = servers[args[0].u.i];
	const struct far_span *spans = far_profile_spans(p, far_req_agent(req), &spans_n);
	for (size_t i = 0; spans && i < spans_n && found < 64; i++)
		if (spans[i].kind == FAR_SPAN_RANGE && spans[spans[i].parent].kind == FAR_SPAN_HANDLER)
			names[found++] = far_str(spans[i].name);
	struct far_val v = far_list(names, found);
	enum far_status status = far_return(req, &v);
	far_profile_free(p);
	return status;
}
