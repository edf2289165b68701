/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf latency`: one call at a time, the clock read before the call and after the wait.
 * Main thread of each process. */
#include "load.h"
#include "rounds.h"
#include <stdlib.h>
#include <string.h>

struct latency {
	struct far_agent *agent; /* these three: of the present measurement */
	struct far_to to;
	const char *name;
	uint16_t id;
	unsigned char *request, *reply;
	uint64_t n;
	struct far_tensor a, b;
};

static enum far_status call_message(struct rounds *r, struct latency *l, struct far_err *err)
{
	size_t len = 0;
	uint64_t back = 0;
	memcpy(l->request, &l->n, sizeof l->n);
	enum far_status status =
		far_msg_call(l->agent, l->to, l->id, l->request, r->o->bytes, NULL, l->reply, r->o->bytes, &len, err);
	memcpy(&back, l->reply, sizeof back);
	if (status == FAR_OK && (len != r->o->bytes || back != l->n)) {
		*err = (struct far_err){.status = FAR_PROTOCOL, .text = "the reply is not the request"};
		return FAR_PROTOCOL;
	}
	return status;
}

static enum far_status call_rpc(struct rounds *r, struct latency *l, struct far_err *err)
{
	struct far_val out = far_none();
	float x = (float)(l->n & 0xffff);
	(void)r;
	memcpy(l->request, &x, sizeof x);
	enum far_status status = far_rpc_sync(l->agent, l->name, "far::add", FAR_ARGS(&l->a, &l->b), NULL, &out, err);
	if (status == FAR_OK && (out.type != FAR_TYPE_TENSOR || *(const float *)out.u.t.data != x + 1)) {
		*err = (struct far_err){.status = FAR_PROTOCOL, .text = "far::add gave a wrong sum"};
		status = FAR_PROTOCOL;
	}
	far_val_fini(&out);
	return status;
}

/* Who calls whom: a hand-over is made by an agent of its own, while this thread holds no shard. */
static int prepare(struct rounds *r, struct latency *l)
{
	struct peer *p = &r->peer;
	bool handed = p->handed && !r->base_now;
	int handler = r->base_now ? PERF_HANDLER_INLINE : r->o->handler;
	l->agent = handed ? p->handed : p->agent;
	l->to = peer_to(p, 0);
	l->name = p->name;
	l->id = (uint16_t)(SERVER_ECHO + 2 * handler);
	if (handed && r->o->to_self) {
		struct far_worker_info me;
		far_worker_self(p->handed, &me);
		l->to.worker = me.rank;
		l->name = p->handed_name;
	}
	return peer_can_hold(p, r->o) ? peer_hold(p, r->o, !handed) : 0;
}

static int measure(struct rounds *r, uint64_t ns, void *ctx)
{
	struct latency *l = ctx;
	struct far_err err;
	bool rpc = r->o->api == PERF_API_RPC;
	int rc = prepare(r, l);
	if (rc)
		return rc;
	uint64_t start = floor_now(), after = start;
	while (after - start < ns) {
		l->n++;
		uint64_t before = floor_now();
		enum far_status status = rpc ? call_rpc(r, l, &err) : call_message(r, l, &err);
		after = floor_now();
		if (status != FAR_OK)
			return peer_complain(r->o, &err);
		hist_record(&r->round, after - before);
		r->calls_n++;
	}
	r->busy_ns += after - start;
	return 0;
}

static double ratio(const struct rounds *r, uint64_t calls, uint64_t ns)
{
	(void)calls;
	(void)ns;
	return (double)hist_quantile(&r->round, 0.5) / r->rtt_ns[r->n];
}

int perf_latency(const struct perf_opts *given)
{
	static struct rounds r; /* its histograms are large for a stack */
	struct perf_opts o = *given;
	if (o.bytes == 0)
		o.bytes = o.api == PERF_API_RPC ? 8 : 32;
	if (o.rates.n)
		return perf_load(&o, o.api == PERF_API_RPC ? LOAD_CALL : LOAD_ECHO);
	struct latency l = {.request = calloc(1, o.bytes), .reply = calloc(1, o.bytes)};
	int rc = 1;
	r.o = &o;
	r.base = o.compare_via ? "direct" : o.handler != PERF_HANDLER_INLINE ? "inline" : NULL;
	if (!l.request || !l.reply) {
		fprintf(stderr, "%s: out of memory for %llu bytes\n", o.what, (unsigned long long)o.bytes);
		goto free_buffers;
	}
	if (o.api == PERF_API_RPC)
		for (size_t i = 0; i < o.bytes / sizeof(float); i++)
			((float *)(void *)l.reply)[i] = 1;
	l.a = far_tensor_1d(FAR_F32, l.request, o.bytes / sizeof(float));
	l.b = far_tensor_1d(FAR_F32, l.reply, o.bytes / sizeof(float));
	rc = peer_open(&r.peer, &o);
	if (rc)
		goto free_buffers;
	rc = rounds_run(&r, false, measure, ratio, &l);
	if (rc == 0)
		rounds_report(&r, false);
	int close_rc = peer_close(&r.peer, &o);
	rc = rc ? rc : close_rc;
free_buffers:
	free(l.request);
	free(l.reply);
	return rc;
}
