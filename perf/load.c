/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `--rate N,...` of `farcall perf latency`, `rate`, `bandwidth`, `fanout` and `rref`: latency against load. Messages,
 * typed calls, fan-outs or calls of a method begin at fixed times whether or not earlier ones are answered, and the
 * time of each counts from when it should have begun (an open loop). The measuring thread.
 */
#include "load.h"
#include "cell.h"
#include "peer.h"
#include "rounds.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WARM_NS  UINT64_C(100000000)
#define DRAIN_NS (5 * FAR_SEC)
/* Small calls in flight at most: fewer than a session has credits, since those beyond wait in the session's queue and
 * leave by the general path. Others stay due. */
#define INFLIGHT 128u

/* One rate. */
struct step {
	uint64_t rate;         /* calls a second that should begin */
	uint64_t bytes, depth; /* of a request; calls in flight at most */
	uint64_t due, calls;   /* calls that should have begun; those that were answered in time */
	uint64_t unsent;       /* of `due`: there was no room for them in twice the time */
	double calls_per_s;    /* answered */
	uint64_t p50, p90, p99, p999, max;
	double noise; /* spread of the medians of ROUNDS parts of the time */
};

struct load {
	const struct perf_opts *o;
	enum load_kind kind;
	struct peer peer;
	struct hist calls, part; /* all; those of this part of the time */
	double medians[ROUNDS];  /* ns, of each part */
	unsigned parts;          /* that have ended */
	const struct step *step;
	unsigned char *request; /* of a message; else the elements of the tensor `t`, twice an argument */
	struct far_tensor t;
	struct far_rref *cell;                      /* LOAD_METHOD: the object */
	struct far_target target[PERF_TARGETS_MAX]; /* LOAD_FANOUT */
	size_t targets;
	uint64_t sent, done, end_ns, in_time; /* calls; those answered; end of the time; calls answered before it */
	bool failed;
	struct far_err err;
	struct slot {
		struct load *load;
		struct slot *next; /* free ones, or those that this pass answered */
		uint64_t due_ns;   /* when the call should have begun */
	} slots[PEER_INFLIGHT_MAX], *free, *answered;
};

static void done(struct slot *slot, enum far_status status, const struct far_err *err)
{
	struct load *l = slot->load;
	if (status != FAR_OK && !l->failed) {
		l->err = *err;
		l->failed = true;
	}
	slot->next = l->answered;
	l->answered = slot;
}

/* Calls that were answered count until the end of the pass that answered them: one reading of the clock for all. */
static void record_answered(struct load *l, uint64_t now)
{
	for (struct slot *slot; (slot = l->answered);) {
		l->answered = slot->next;
		hist_record(&l->part, now - slot->due_ns);
		l->done++;
		l->in_time += now < l->end_ns;
		slot->next = l->free;
		l->free = slot;
	}
}

static void on_message(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	static const struct far_err other = {.status = FAR_PROTOCOL, .text = "the reply is not the request"};
	const struct slot *slot = user;
	const struct load *l = slot->load;
	bool echo = l->kind == LOAD_ECHO && status == FAR_OK;
	if (echo && (len != l->step->bytes || memcmp(data, &slot->due_ns, sizeof slot->due_ns) != 0))
		done(user, FAR_PROTOCOL, &other);
	else
		done(user, status, err);
}

static void on_future(struct far_future *f, void *user)
{
	struct far_err err;
	enum far_status status = far_future_value(f, NULL, &err);
	far_future_free(f);
	done(user, status, &err);
}

static enum far_status start_future(struct load *l, struct slot *slot, struct far_err *err)
{
	struct far_future *f;
	enum far_status status;
	if (l->kind == LOAD_CALL)
		status = far_rpc_async_to(l->peer.agent, peer_to(&l->peer, 0), "far::add", FAR_ARGS(&l->t, &l->t), NULL,
					  &f, err);
	else if (l->kind == LOAD_METHOD)
		status = far_rref_rpc_async(l->cell, "add", FAR_ARGS(&l->t, &l->t), NULL, &f, err);
	else
		status = far_rpc_fanout(l->peer.agent, "far::add", FAR_ARGS(&l->t, &l->t), l->target, l->targets, NULL,
					NULL, &f, err);
	if (status)
		return status;
	status = far_future_on_done(f, on_future, slot, err); /* frees it: a fan-out without a reference is cancelled */
	if (status)
		far_future_free(f);
	return status;
}

static enum far_status start(struct load *l, struct slot *slot, struct far_err *err)
{
	if (l->kind == LOAD_CALL || l->kind == LOAD_METHOD || l->kind == LOAD_FANOUT)
		return start_future(l, slot, err);
	if (l->kind == LOAD_ECHO)
		memcpy(l->request, &slot->due_ns, sizeof slot->due_ns);
	return far_msg_send(l->peer.agent, peer_to(&l->peer, 0), l->kind == LOAD_ECHO ? SERVER_ECHO : SERVER_SINK,
			    l->request, l->step->bytes, NULL, on_message, slot, err);
}

/* False: no room; the call stays due. */
static bool send_due(struct load *l, uint64_t due_ns)
{
	struct slot *slot = l->free;
	struct far_err err;
	if (!slot || l->sent - l->done >= l->step->depth)
		return false;
	*slot = (struct slot){.load = l, .next = slot->next, .due_ns = due_ns};
	l->free = slot->next;
	enum far_status status = start(l, slot, &err);
	if (status == FAR_OK)
		return true;
	slot->next = l->free;
	l->free = slot;
	if (status != FAR_BUSY) {
		l->err = err;
		l->failed = true;
	}
	return false;
}

static void end_part(struct load *l)
{
	if (l->part.count && l->parts < ROUNDS)
		l->medians[l->parts++] = (double)hist_quantile(&l->part, 0.5);
	hist_merge(&l->calls, &l->part);
	hist_reset(&l->part);
}

static void prepare_step(struct load *l, const struct step *s, uint64_t end_ns)
{
	l->step = s;
	hist_reset(&l->calls);
	hist_reset(&l->part);
	l->parts = 0;
	l->sent = l->done = l->in_time = 0;
	l->end_ns = end_ns;
}

static int run(struct load *l, struct step *s, uint64_t ns)
{
	uint64_t begin = floor_now(), now = begin, part_ns = ns / ROUNDS, next = begin + part_ns;
	double each = 1e9 / (double)s->rate; /* ns */
	s->due = (uint64_t)((double)ns / each);
	prepare_step(l, s, begin + ns);
	while (!l->failed && (l->sent < s->due || l->done < l->sent) && now < l->end_ns + ns + DRAIN_NS) {
		uint64_t due_ns = begin + (uint64_t)((double)l->sent * each);
		bool more = l->sent < s->due && due_ns <= now && now < l->end_ns + ns;
		if (more && send_due(l, due_ns)) {
			l->sent++;
			continue;
		}
		if (l->sent < s->due && now >= l->end_ns + ns && l->done == l->sent)
			break;
		far_shard_poll(l->peer.agent);
		now = floor_now();
		record_answered(l, now);
		if (now >= next && next < l->end_ns) {
			end_part(l);
			next += part_ns;
		}
	}
	if (!l->failed && l->done < l->sent) {
		l->failed = true;
		l->err = (struct far_err){.status = FAR_TIMEOUT, .text = "calls in flight were never answered"};
	}
	if (l->failed)
		return peer_complain(l->o, &l->err);
	s->unsent = s->due - l->sent;
	for (; l->sent < s->due; l->sent++) /* at least so long */
		hist_record(&l->part, now - begin - (uint64_t)((double)l->sent * each));
	end_part(l);
	return 0;
}

static void take(struct load *l, struct step *s)
{
	s->calls = l->in_time;
	s->calls_per_s = (double)l->in_time * 1e9 / (double)l->o->duration_ns;
	s->p50 = hist_quantile(&l->calls, 0.5);
	s->p90 = hist_quantile(&l->calls, 0.9);
	s->p99 = hist_quantile(&l->calls, 0.99);
	s->p999 = hist_quantile(&l->calls, 0.999);
	s->max = l->calls.max;
	s->noise = perf_noise(l->medians, l->parts);
}

static void print_step(const struct load *l, const struct step *s)
{
	FILE *out = perf_human(l->o);
	if (l->kind == LOAD_LARGE) {
		perf_print_size(out, s->bytes);
		fprintf(out, " %6" PRIu64 " ", s->depth);
	}
	fprintf(out, "%12" PRIu64 " %12.0f %10.2f %10.2f %10.2f %10.2f %10.2f %8s", s->rate, s->calls_per_s,
		(double)s->p50 / 1e3, (double)s->p90 / 1e3, (double)s->p99 / 1e3, (double)s->p999 / 1e3,
		(double)s->max / 1e3, perf_noise_text(s->noise).text);
	if (l->kind == LOAD_LARGE)
		fprintf(out, " %10.1f", s->calls_per_s * (double)s->bytes / 1e6);
	fprintf(out, "%s\n", s->unsent ? "  saturated" : "");
	fflush(out);
}

static const char *const names[] = {"message", "rpc", "fanout", "method", "echo", "message"};

static void print_json(const struct load *l, const struct step *steps, unsigned n, const char *nic)
{
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "load");
	json_string(&j, "api", names[l->kind]);
	if (l->targets)
		json_u64(&j, "targets", l->targets);
	json_string(&j, "nic", nic);
	json_u64(&j, "peers", l->o->peers);
	json_double(&j, "seconds", (double)l->o->duration_ns / 1e9);
	json_array(&j, "results");
	for (unsigned i = 0; i < n; i++) {
		const struct step *s = &steps[i];
		json_object(&j, NULL);
		json_u64(&j, "rate", s->rate);
		json_u64(&j, "bytes", s->bytes);
		if (l->kind == LOAD_LARGE) {
			json_u64(&j, "depth", s->depth);
			json_double(&j, "bytes_per_s", s->calls_per_s * (double)s->bytes);
		}
		json_double(&j, "calls_per_s", s->calls_per_s);
		json_u64(&j, "calls", s->calls);
		json_u64(&j, "due", s->due);
		json_u64(&j, "unsent", s->unsent);
		json_u64(&j, "p50_ns", s->p50);
		json_u64(&j, "p90_ns", s->p90);
		json_u64(&j, "p99_ns", s->p99);
		json_u64(&j, "p999_ns", s->p999);
		json_u64(&j, "max_ns", s->max);
		json_double(&j, "noise", s->noise);
		json_close(&j);
	}
	json_close(&j);
	json_end(&j);
}

static void print_head(const struct load *l, const char *nic)
{
	FILE *out = perf_human(l->o);
	fprintf(out, "%s: %s", l->o->what, names[l->kind]);
	if (l->targets)
		fprintf(out, " of %zu targets", l->targets);
	fprintf(out, ", nic %s", nic);
	if (l->kind != LOAD_LARGE)
		fprintf(out, ", %" PRIu64 " bytes%s", l->o->bytes,
			l->kind == LOAD_MESSAGE || l->kind == LOAD_ECHO ? "" : " a tensor");
	fprintf(out, ", times from when a call should begin, in us\n");
	if (l->kind == LOAD_LARGE)
		fprintf(out, "%10s %6s ", "size", "depth");
	fprintf(out, "%12s %12s %10s %10s %10s %10s %10s %8s", "calls/s", "answered/s", "p50", "p90", "p99", "p99.9",
		"max", "noise");
	fprintf(out, "%s\n", l->kind == LOAD_LARGE ? "       MB/s" : "");
}

/* All rates of each size and depth. Returns their number. */
static unsigned plan(const struct load *l, struct step *steps)
{
	const struct perf_opts *o = l->o;
	bool large = l->kind == LOAD_LARGE;
	unsigned n = 0;
	for (unsigned size = 0; size < (large ? o->sizes.n : 1); size++)
		for (unsigned depth = 0; depth < (large ? o->depths.n : 1); depth++)
			for (unsigned i = 0; i < o->rates.n; i++)
				steps[n++] = (struct step){.rate = o->rates.value[i],
							   .bytes = large ? o->sizes.value[size] : o->bytes,
							   .depth = large ? o->depths.value[depth] : INFLIGHT};
	return n;
}

static int measure(struct load *l)
{
	static struct step steps[OPTIONS_LIST_MAX * OPTIONS_LIST_MAX * OPTIONS_LIST_MAX];
	struct far_worker_info info = {.nic = "?"};
	unsigned n = plan(l, steps);
	far_worker_by_rank(l->peer.agent, l->peer.to.worker, &info, NULL);
	print_head(l, info.nic);
	for (unsigned i = 0; i < n; i++) {
		struct step warm = steps[i];
		if (run(l, &warm, WARM_NS) || run(l, &steps[i], l->o->duration_ns))
			return 1;
		take(l, &steps[i]);
		print_step(l, &steps[i]);
	}
	if (l->o->json)
		print_json(l, steps, n, info.nic);
	return 0;
}

/* What is called, beside the agent. */
static int prepare(struct load *l)
{
	struct far_err err;
	l->t = far_tensor_1d(FAR_F32, l->request, l->o->bytes / sizeof(float));
	for (size_t i = 0; i < l->targets; i++)
		l->target[i].to = (struct far_to){1 + (int32_t)(i % l->peer.servers), 0};
	if (l->kind != LOAD_METHOD)
		return 0;
	enum far_status status =
		far_remote_to(l->peer.agent, l->peer.to, "perf::Cell", FAR_NOARGS, NULL, &l->cell, &err);
	if (!status)
		status = far_rref_wait(l->cell, 0, &err);
	return status ? peer_complain(l->o, &err) : 0;
}

int perf_load(const struct perf_opts *o, enum load_kind kind)
{
	static struct load l; /* large for a stack */
	l.o = o;
	l.kind = kind;
	l.targets = kind != LOAD_FANOUT ? 0 : o->targets ? (size_t)o->targets : 8;
	uint64_t bytes = o->bytes;
	for (unsigned i = 0; kind == LOAD_LARGE && i < o->sizes.n; i++)
		bytes = o->sizes.value[i] > bytes ? o->sizes.value[i] : bytes;
	l.request = malloc(bytes);
	if (!l.request) {
		fprintf(stderr, "%s: out of memory for %" PRIu64 " bytes\n", o->what, bytes);
		return 1;
	}
	memset(l.request, 0, bytes); /* pages of its own, not the one page of zeros of calloc() */
	for (unsigned i = 0; i < PEER_INFLIGHT_MAX; i++) {
		l.slots[i].next = l.free;
		l.free = &l.slots[i];
	}
	int rc = peer_open(&l.peer, o);
	if (rc == 0) {
		rc = prepare(&l);
		rc = rc ? rc : measure(&l);
		far_rref_free(l.cell);
		int close_rc = peer_close(&l.peer, o);
		rc = rc ? rc : close_rc;
	}
	free(l.request);
	return rc;
}
