/* SPDX-License-Identifier: BSD-3-Clause */
/** Collects the metrics and debug information of an agent. Any thread but handlers. */
#include "agent/metrics.h"

#include "base/error.h"
#include "core/blocking.h"
#include "core/call_unsent.h"
#include "features/metrics/collect.h"
#include "features/references/rref.h"
#include "transport/transport.h"

#include <farcall/memory.h>
#include <farcall/rref.h>
#include <farcall/version.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEBUG_EVENTS 64u

/* clang-format off */
/* The counters that a shard, a worker and the metrics have under the same name. */
#define COUNTERS(X) \
	X(calls_sent) X(calls_completed) X(calls_failed) X(calls_timed_out) X(calls_retried) X(hedges_sent) X(hedges_won) \
	X(requests_received) X(requests_active) X(requests_duplicate) X(replies_sent) X(replies_late) \
	X(bytes_sent) X(bytes_received) X(packets_dropped) X(busy_refusals) X(wakeups) \
	X(oneways_sent) X(oneways_received) X(oneways_dropped) \
	X(rendezvous_sent) X(rendezvous_received) X(rendezvous_active) X(bytes_by_reference)
/* clang-format on */

void agent_counters_add(const struct shard *s, struct far_counters *out)
{
	const struct shard_counters *c = &s->counters;
	uint64_t calls_ended = atomic_load_explicit(&c->calls_ended, memory_order_relaxed);
	uint64_t waiting = atomic_load_explicit(&c->calls_waiting, memory_order_relaxed);
#define ADD(name) out->name += atomic_load_explicit(&c->name, memory_order_relaxed);
	COUNTERS(ADD)
#undef ADD
	out->calls_active += waiting + atomic_load_explicit(&c->calls_sent, memory_order_relaxed) - calls_ended;
}

void agent_nic_stats(const struct far_agent *a, unsigned port, struct far_nic_stats *out)
{
	struct nic_stats st = {0};
	struct transport_stats tr;
	struct nic_addr addr;
	const struct nic_port *p = a->ports.at[port];
	p->ops->stats(p, &st);
	transport_stats_read(p, &tr);
	p->ops->address(p, &addr);
	*out = (struct far_nic_stats){.only_self = port >= a->ports.published,
				      .rx_packets = st.rx_packets,
				      .tx_packets = st.tx_packets,
				      .rx_bytes = st.rx_bytes,
				      .tx_bytes = st.tx_bytes,
				      .rx_unexpected = st.rx_unexpected,
				      .rx_malformed = st.rx_malformed + tr.malformed,
				      .rx_missed = st.rx_missed,
				      .tx_dropped = st.tx_dropped,
				      .kicks = st.kicks,
				      .resent = tr.resent,
				      .duplicates = tr.duplicates,
				      .crc_errors = tr.crc_errors,
				      .refused = st.refused + tr.refused,
				      .timeouts = tr.timeouts,
				      .tail_loss_probes = tr.tail_loss_probes,
				      .spurious_retransmits = tr.spurious_retransmits,
				      .unknown_connection_drops = tr.unknown_connection_drops,
				      .closed_connection_drops = tr.closed_connection_drops,
				      .no_memory = tr.no_memory,
				      .handshake_backlog_drops = tr.handshake_backlog_drops,
				      .grant_retransmits = tr.grant_retransmits,
				      .path_migrations = tr.path_migrations,
				      .read_bytes = tr.read_bytes};
	snprintf(out->driver, sizeof out->driver, "%s", p->ops->name);
	p->ops->address_text(&addr, out->address, sizeof out->address);
}

void agent_rref_counts(const struct far_agent *a, struct far_rref_counts *out)
{
	*out = (struct far_rref_counts){0};
	for (unsigned i = 0; i < a->shards_n; i++) {
		const struct rref_shard *rs = a->shards[i]->rrefs;
		out->owned += atomic_load_explicit(&rs->owned_n, memory_order_relaxed);
		out->held += atomic_load_explicit(&rs->users_n, memory_order_relaxed);
		out->forks += atomic_load_explicit(&rs->forks_n, memory_order_relaxed);
		out->unconfirmed += atomic_load_explicit(&rs->unknown_n, memory_order_relaxed);
		out->pending += atomic_load_explicit(&rs->msgs_n, memory_order_relaxed);
	}
}

/* ---- the shards ---- */

/* What each shard reports; NULL: it did not answer. */
struct collection {
	unsigned silent;
	struct metrics_shard *of[FAR_SHARDS_MAX];
};

static void collection_free(const struct far_agent *a, struct collection *c)
{
	for (unsigned i = 0; i < a->shards_n; i++)
		metrics_shard_free(c->of[i]);
}

static enum far_status collect(const struct far_agent *a, bool debug, struct collection *c, struct far_err *err)
{
	bool lacks = false;
	uint64_t until = clock_now(&clock_monotonic) + METRICS_WAIT_NS;
	*c = (struct collection){0};
	for (unsigned i = 0; i < a->shards_n; i++) {
		bool here = a->stepped || shard_held(a->shards[i]);
		c->of[i] = here ? metrics_collect_here(a->shards[i], debug) : metrics_request(a->shards[i], debug);
		lacks |= !c->of[i];
	}
	for (unsigned i = 0; i < a->shards_n; i++) {
		bool here = a->stepped || shard_held(a->shards[i]);
		if (!c->of[i] || here || metrics_await(c->of[i], until))
			continue;
		c->of[i] = NULL;
		c->silent++;
	}
	if (!lacks)
		return FAR_OK;
	collection_free(a, c);
	return err_set(err, FAR_RESOURCE, "out of memory for the metrics of %u shards", a->shards_n);
}

/* ---- metrics ---- */

static const char *state_word(const struct far_agent *a)
{
	static const char *const words[] = {[CTL_JOINING] = "joining",
					    [CTL_READY] = "ready",
					    [CTL_LEAVING] = "leaving",
					    [CTL_LEFT] = "left",
					    [CTL_FAILED] = "failed"};
	return words[ctl_state(a->ctl)];
}

static void add_counters(struct metrics_report *r, const struct far_agent *a)
{
	struct far_counters all = {0};
	struct far_metrics *m = &r->sum;
	for (unsigned i = 0; i < a->shards_n; i++) {
		agent_counters_add(a->shards[i], &r->shards[i].counters);
		agent_counters_add(a->shards[i], &all);
	}
#define COPY(name) m->name = all.name;
	COUNTERS(COPY)
	COPY(calls_active)
#undef COPY
}

static void add_peers(struct metrics_report *r, const struct far_agent *a, const struct metrics_shard *of)
{
	static_assert((int)SESSION_ERRORS == (int)FAR_ERROR_CLASSES &&
			      (int)SESSION_ERROR_HANDLER == (int)FAR_ERROR_HANDLER,
		      "the same classes");
	for (unsigned w = 0; w < r->peers_n; w++) {
		const struct metrics_peer *p = &of->peers[w];
		struct far_peer_metrics *out = &r->peers[w];
		out->sessions_up += p->up;
		out->calls += p->calls;
		out->calls_active += p->calls_active;
		out->requests += p->counters.requests;
		out->requests_active += p->requests_open;
		out->bytes_sent += p->bytes_sent;
		out->bytes_received += p->counters.bytes_received;
		for (unsigned k = 0; k < FAR_ERROR_CLASSES; k++)
			out->errors[k] += p->counters.errors[k];
	}
	for (unsigned p = 0; p < a->ports.n; p++)
		r->nic_sessions[p] += of->sessions_port[p];
}

static void add_shard(struct metrics_report *r, const struct far_agent *a, const struct metrics_shard *of,
		      uint64_t *on_fibers)
{
	struct far_metrics *m = &r->sum;
	m->latency_n += of->n;
	m->latency_sum_ns += of->sum_ns;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		r->latency[i] += of->bucket[i];
	m->fibers_max += of->fibers_max;
	m->fibers_active += of->fibers_active;
	m->calls_waiting += of->calls_waiting;
	m->sessions_up += of->sessions[SESSION_UP];
	m->sessions_connecting += of->sessions[SESSION_CONNECTING];
	m->sessions_lost += of->sessions[SESSION_DEAD];
	*on_fibers += of->requests_fiber;
	add_peers(r, a, of);
}

static void add_process(struct metrics_report *r, const struct far_agent *a)
{
	struct far_metrics *m = &r->sum;
	struct far_rref_counts rrefs;
	struct far_memory memory;
	struct blocking_pool *pool =
		atomic_load_explicit(&((struct far_agent *)(uintptr_t)a)->blocking, memory_order_acquire);
	agent_rref_counts(a, &rrefs);
	m->rrefs_owned = rrefs.owned;
	m->rrefs_held = rrefs.held;
	m->rrefs_unconfirmed = rrefs.unconfirmed;
	m->rrefs_forks = rrefs.forks;
	m->rrefs_pending = rrefs.pending;
	far_memory_stats(&memory);
	m->memory_reserved = memory.reserved;
	m->memory_committed = memory.committed;
	m->memory_slab_used = memory.slab_used;
	m->memory_large_used = memory.large_used;
	m->memory_retained = memory.retained;
	if (pool)
		blocking_counts(pool, &m->threads, &m->threads_idle, &m->threads_queued);
}

static uint64_t thread_cpu_ns(pthread_t thread)
{
	clockid_t clock;
	struct timespec ts;
	if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * FAR_SEC + (uint64_t)ts.tv_nsec;
}

static void name_peers(struct metrics_report *r, const struct far_agent *a)
{
	for (unsigned w = 0; w < r->peers_n; w++) {
		const struct ctl_member *m = &a->members[w];
		struct ctl_route route;
		bool alive = atomic_load_explicit(&((struct ctl_member *)(uintptr_t)m)->alive, memory_order_acquire);
		bool named = alive || (ctl_state(a->ctl) != CTL_JOINING && ctl_state(a->ctl) != CTL_FAILED);
		r->peers[w].rank = (int32_t)w;
		r->sum.members_alive += alive;
		if (named && *m->name)
			snprintf(r->peers[w].name, sizeof r->peers[w].name, "%s", m->name);
		else
			snprintf(r->peers[w].name, sizeof r->peers[w].name, "rank %u", w);
		if (ctl_member_route(m, &route))
			snprintf(r->peers[w].nic, sizeof r->peers[w].nic, "%s", route.nic);
	}
}

enum far_status agent_report(struct far_agent *a, struct metrics_report **out, struct far_err *err)
{
	struct collection c;
	uint64_t on_fibers = 0;
	size_t peers = (size_t)a->world * sizeof(struct far_peer_metrics);
	struct metrics_report *r = calloc(1, sizeof *r + peers);
	if (!r)
		return err_set(err, FAR_RESOURCE, "out of memory for the metrics of %d workers", a->world);
	r->peers = (struct far_peer_metrics *)(void *)(r + 1);
	enum far_status status = collect(a, false, &c, err);
	if (status) {
		free(r);
		return status;
	}
	r->added = &a->added;
	r->worker = a->name;
	r->group = ctl_group(a->ctl);
	r->state = state_word(a);
	r->rank = a->rank;
	r->pid = (long)getpid();
	r->peers_n = (unsigned)a->world;
	r->shards_n = a->shards_n;
	r->nics_n = a->ports.n;
	for (unsigned p = 0; p < a->ports.n; p++)
		agent_nic_stats(a, p, &r->nics[p]);
	for (unsigned i = 0; i < a->pollers_n; i++)
		r->shards[i].cpu_ns = thread_cpu_ns(a->pollers[i]);
	add_counters(r, a);
	add_process(r, a);
	name_peers(r, a);
	for (unsigned i = 0; i < a->shards_n; i++)
		if (c.of[i])
			add_shard(r, a, c.of[i], &on_fibers);
	struct far_metrics *m = &r->sum;
	m->members = (uint64_t)a->world;
	m->shards = a->shards_n;
	m->shards_silent = c.silent;
	m->uptime_ns = clock_now(a->clock) - a->started_ns;
	m->latency_every = a->shards[0]->config.sample_every;
	uint64_t busy = on_fibers + m->threads - m->threads_idle + m->threads_queued;
	m->requests_deferred = m->requests_active > busy ? m->requests_active - busy : 0;
	m->latency_p50_ns = metrics_percentile(r->latency, m->latency_n, 500);
	m->latency_p90_ns = metrics_percentile(r->latency, m->latency_n, 900);
	m->latency_p99_ns = metrics_percentile(r->latency, m->latency_n, 990);
	m->latency_p999_ns = metrics_percentile(r->latency, m->latency_n, 999);
	collection_free(a, &c);
	*out = r;
	return FAR_OK;
}

void agent_report_free(struct metrics_report *r)
{
	free(r);
}

/* ---- debug information ---- */

/* The handler that runs on a shard that does not answer. Read while its thread may write it: the answer is a hint, and
 * names of handlers stay as long as the agent. */
__attribute__((no_sanitize("thread"))) static const char *running(const struct shard *s)
{
	return *(const char *const volatile *)&s->context.handler;
}

static void put_ms(struct metrics_out *o, const char *name, bool known, int64_t ns)
{
	if (known)
		metrics_put(o, ",\"%s\":%.3f", name, (double)ns / 1e6);
	else
		metrics_put(o, ",\"%s\":null", name);
}

static void put_pending(struct metrics_out *o, const struct far_agent *a, const struct metrics_shard *of,
			const char *peer, const struct metrics_pending *p, uint32_t n)
{
	static const char *const states[] = {[METRICS_CALL_SENT] = "sent",
					     [METRICS_CALL_FRAGMENTS] = "in fragments",
					     [METRICS_CALL_ENDED] = "ended, last packet due",
					     [METRICS_REQUEST_FIBER] = "fiber",
					     [METRICS_REQUEST_DEFERRED] = "thread or deferred",
					     [METRICS_REQUEST_ANSWERED] = "answer to be sent"};
	for (uint32_t i = 0; i < n; i++, p++) {
		metrics_put(o, "%s{\"function\":", i ? "," : "");
		if (p->name)
			metrics_put_quoted(o, p->name);
		else if (p->state <= METRICS_CALL_ENDED)
			metrics_put(o, "\"message %" PRIu32 "\"", p->message);
		else
			metrics_put(o, "null");
		metrics_put(o, ",\"%s\":", peer);
		metrics_put_quoted(o, AGENT_NAME(a, p->worker));
		metrics_put(o, ",\"at\":\"%s\"", states[p->state]);
		put_ms(o, "age_ms", p->since != 0, (int64_t)(of->now - p->since));
		put_ms(o, "left_ms", p->deadline != TIME_NEVER, (int64_t)(p->deadline - of->now));
		metrics_put(o, "}");
	}
}

/* The shard's last rare events, as ages. */
static void put_trace(struct metrics_out *o, const struct far_agent *a, const struct shard *s)
{
	struct trace_event events[DEBUG_EVENTS];
	char name[SIGNATURE_NAME_MAX];
	uint32_t n = trace_read(s->trace, events, DEBUG_EVENTS);
	uint64_t now = clock_now(a->clock);
	metrics_put(o, ",\"events\":[");
	for (uint32_t i = 0; i < n; i++) {
		const struct trace_event *e = &events[i];
		bool failed = e->kind == TRACE_CALL_FAILED || e->kind == TRACE_REQUEST_FAILED;
		metrics_put(o, "%s{\"event\":\"%s\"", i ? "," : "", trace_kind_text(e->kind));
		put_ms(o, "age_ms", true, (int64_t)(now - e->at));
		metrics_put(o, ",\"worker\":");
		metrics_put_quoted(o, AGENT_NAME(a, e->worker));
		if (failed && (e->typed || e->function != UINT16_MAX)) {
			metrics_put(o, ",\"function\":");
			metrics_put_quoted(o, call_name(s, e->typed, e->function, NULL, NULL, name, sizeof name));
		}
		if (failed)
			metrics_put(o, ",\"status\":\"%s\"", far_status_name((enum far_status)e->status));
		metrics_put(o, "}");
	}
	metrics_put(o, "]");
}

static void put_shard(struct metrics_out *o, const struct far_agent *a, unsigned i, const struct metrics_shard *of)
{
	const char *handler = of ? NULL : running(a->shards[i]);
	bool held = atomic_load_explicit(&a->shards[i]->progress.token, memory_order_relaxed) != 0;
	metrics_put(o, "%s{\"shard\":%u,\"answers\":%s", i ? "," : "", i, of ? "true" : "false");
	if (!of) {
		metrics_put(o, ",\"held\":%s,\"runs\":", held ? "true" : "false");
		if (handler)
			metrics_put_quoted(o, handler);
		else
			metrics_put(o, "null");
		put_trace(o, a, a->shards[i]);
		metrics_put(o, "}");
		return;
	}
	metrics_put(o, ",\"calls_waiting\":%" PRIu64 ",\"fibers_active\":%" PRIu64 ",\"calls\":[", of->calls_waiting,
		    of->fibers_active);
	put_pending(o, a, of, "to", of->calls, of->calls_n);
	metrics_put(o, "],\"requests\":[");
	put_pending(o, a, of, "from", of->requests, of->requests_n);
	metrics_put(o, "]");
	put_trace(o, a, a->shards[i]);
	metrics_put(o, "}");
}

void agent_info_write(const struct far_agent *a, struct metrics_out *o)
{
	metrics_put(o, "{\"version\":\"" FAR_VERSION "\",\"worker\":");
	metrics_put_quoted(o, a->name);
	metrics_put(o, ",\"group\":");
	metrics_put_quoted(o, ctl_group(a->ctl));
	metrics_put(o, ",\"store\":");
	metrics_put_quoted(o, ctl_store_text(a->ctl));
	metrics_put(o, ",\"rank\":%d,\"world\":%d,\"pid\":%ld,\"state\":\"%s\",\"shards\":%u", a->rank, a->world,
		    (long)getpid(), state_word(a), a->shards_n);
	metrics_put(o, ",\"uptime_ns\":%" PRIu64 ",\"metrics_port\":%u}\n", clock_now(a->clock) - a->started_ns,
		    a->metrics_port);
}

/* Members that have not joined or are lost. */
static void put_absent(struct metrics_out *o, const struct far_agent *a)
{
	bool first = true;
	metrics_put(o, ",\"absent\":[");
	for (int w = 0; w < a->world; w++) {
		const struct ctl_member *m = &a->members[w];
		if (atomic_load_explicit(&((struct ctl_member *)(uintptr_t)m)->alive, memory_order_acquire))
			continue;
		metrics_put(o, "%s%d", first ? "" : ",", w);
		first = false;
	}
	metrics_put(o, "]");
}

enum far_status agent_debug_write(struct far_agent *a, struct metrics_out *o, struct far_err *err)
{
	struct collection c;
	enum far_status status = collect(a, true, &c, err);
	if (status)
		return status;
	metrics_put(o, "{\"info\":");
	agent_info_write(a, o);
	o->len -= !o->failed; /* its newline */
	put_absent(o, a);
	metrics_put(o, ",\"shards\":[");
	for (unsigned i = 0; i < a->shards_n; i++)
		put_shard(o, a, i, c.of[i]);
	metrics_put(o, "]}\n");
	collection_free(a, &c);
	return FAR_OK;
}
