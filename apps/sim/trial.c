/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Runs one scenario with one seed: builds the cluster, drives it, applies the checkers. The thread of the simulation.
 */
#include "sim/trial.h"

#include "agent/agent.h"
#include "apps/sim/cluster.h"
#include "base/must.h"
#include "features/audit/audit.h"
#include "memory/buf.h"
#include "sim/disturb.h"
#include "sim/load.h"
#include "sync/future.h"
#include "transport/audit.h"
#include "transport/audit_ends.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_NS  (60 * FAR_SEC)
#define LOOK_NS  (20 * FAR_MS)  /* between two walks over the engines at most */
#define REST_NS  (60 * FAR_SEC) /* for what callers have given up to end */
#define LEASE_NS (10 * FAR_SEC) /* after which streams of a host without power are given up: sim_streams_config */
#define LEAVE_NS (20 * FAR_SEC)
#define ACKED_NS (400 * FAR_MS) /* the last acknowledgements have come */
#define QUIET_NS (3 * FAR_SEC)  /* for a quiet moment in between */
/* When that is: most workloads are done soon, if nothing disturbs them. */
#define QUIET_WITHIN_NS (2 * FAR_MS)
/* Packets per worker between two walks: a wrong acknowledgement is seen only while its packets are out. */
#define LOOK_PACKETS    48u
#define STEP_NS         (100 * FAR_US)
#define FINDINGS_MAX    32 /* more of them show nothing new */
#define INCIDENTS_SHOWN 20 /* incidents */

struct trial {
	const struct scenario *scenario;
	struct cluster *cluster;
	struct history history;
	struct load load;
	struct disturb disturb;
	enum checker finding;
	char port_args[64];
	bool working;                  /* the applications have begun */
	uint64_t idle;                 /* fibers that wait for nothing that is under way */
	const struct nic_port **ports; /* of all workers, for look() */
};

/* ---- the cluster ---- */

static void on_opts(void *ctx, unsigned rank, struct far_opts *opts)
{
	struct trial *t = ctx;
	load_opts(&t->load.workers[rank], cluster_incarnations(cluster_worker(t->cluster, rank)) + 1, opts);
}

static void work(struct trial *t, struct cluster_worker *w)
{
	struct load_worker *lw = &t->load.workers[cluster_rank(w)];
	struct load_incarnation *incarnation =
		load_begin(lw, cluster_agent(w), cluster_host(w), cluster_incarnations(w));
	for (unsigned i = load_callers(lw); i; i--)
		if (cluster_spawn(w, -1, load_run, incarnation) < 0)
			lw->busy--;
}

/* Those that come back go on where the process before was. */
static void on_state(void *ctx, struct cluster_worker *w, enum cluster_state state)
{
	struct trial *t = ctx;
	if (state == CLUSTER_READY)
		history_ready(&t->history, cluster_rank(w), cluster_now(t->cluster));
	if (state == CLUSTER_READY && t->working)
		work(t, w);
}

static void configure(struct cluster_config *config, const struct scenario *s, uint64_t seed, struct trial *t)
{
	static const enum sim_topology_kind kinds[] = {
		[TOPOLOGY_PAIR] = SIM_PAIR, [TOPOLOGY_STAR] = SIM_STAR, [TOPOLOGY_LEAF_SPINE] = SIM_LEAF_SPINE};
	cluster_config_init(config, seed);
	struct sim_topology *net = &config->sim.topology;
	config->sim.lose = disturb_lose;
	config->sim.again = disturb_again;
	config->sim.lose_ctx = &t->disturb;
	if (s->disturbance.stale_mails) {
		config->mail_again = disturb_mail;
		config->mail_ctx = &t->disturb;
	}
	net->kind = kinds[s->topology];
	net->rails = s->rails;
	net->host.rate_bps = net->fabric.rate_bps = s->rate;
	net->host.delay_ns = net->fabric.delay_ns = s->delay_ns;
	net->host.mtu = net->fabric.mtu = (uint32_t)s->packet;
	net->leaves = net->spines = 2;
	if (s->queue)
		net->buffer_bytes = s->queue;
	unsigned n = 0;
	if (s->receive_ring)
		n += (unsigned)snprintf(t->port_args + n, sizeof t->port_args - n, ",rx=%u", s->receive_ring);
	if (s->send_ring)
		n += (unsigned)snprintf(t->port_args + n, sizeof t->port_args - n, ",tx=%u", s->send_ring);
	if (s->zero_copy)
		n += (unsigned)snprintf(t->port_args + n, sizeof t->port_args - n, ",hold");
	if (n)
		config->port_args = t->port_args + 1;
	config->workers = s->workers;
	config->opts_of = on_opts;
	config->on_state = on_state;
	config->ctx = t;
}

/* ---- looking ---- */

static void on_finding(void *ctx, const char *text)
{
	struct trial *t = ctx;
	if (t->history.findings_n < FINDINGS_MAX)
		history_finding(&t->history, t->finding, "at %" PRIu64 " us: %s", cluster_now(t->cluster) / 1000, text);
}

static struct far_agent *agent_of(const struct trial *t, unsigned rank)
{
	struct cluster_worker *w = cluster_worker(t->cluster, rank);
	return cluster_state(w) == CLUSTER_READY ? cluster_agent(w) : NULL;
}

static void look(struct trial *t)
{
	unsigned n = 0;
	t->finding = CHECK_CONSERVED;
	for (unsigned i = 0; i < t->scenario->workers; i++) {
		struct far_agent *a = agent_of(t, i);
		for (unsigned k = 0; a && k < a->shards_n; k++)
			audit_shard(a->shards[k], on_finding, t);
		for (unsigned k = 0; a && k < a->ports.n; k++) {
			transport_audit_port(a->ports.at[k], on_finding, t);
			t->ports[n++] = a->ports.at[k];
		}
	}
	for (unsigned i = 0; i < n; i++)
		transport_audit_ends(t->ports[i], t->ports, n, on_finding, t);
}

static uint64_t packets_sent(const struct trial *t)
{
	struct sim_stats stats;
	sim_stats(cluster_sim(t->cluster), &stats);
	return stats.sent;
}

static uint64_t level_sum(const struct audit_level *l)
{
	return l->calls + l->waiting + l->deferred + l->fibers + l->paused + l->backpressured + l->rendezvous_in +
	       l->rendezvous_out + l->oneways + l->fanouts + l->submitted + l->rrefs + l->rref_msgs;
}

static uint64_t in_use(const struct trial *t)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < t->scenario->workers; i++) {
		struct far_agent *a = agent_of(t, i);
		for (unsigned k = 0; a && k < a->shards_n; k++) {
			struct audit_level l;
			audit_level_read(a->shards[k], &l);
			sum += level_sum(&l);
		}
	}
	return sum;
}

static void print_level(struct trial *t, unsigned rank, const struct audit_level *l)
{
	char text[288];
	if (level_sum(l) == 0)
		return;
	snprintf(text, sizeof text,
		 "worker %u has left: %" PRIu64 " calls, %" PRIu64 " waiting, %" PRIu64 " open requests, %" PRIu64
		 " fibers, %" PRIu64 " parked, %" PRIu64 " + %" PRIu64 " long messages, %" PRIu64 " one-ways, %" PRIu64
		 " fan-outs, %" PRIu64 " references, %" PRIu64 " words about some",
		 rank, l->calls, l->waiting, l->deferred, l->fibers, l->paused, l->rendezvous_in, l->rendezvous_out,
		 l->oneways, l->fanouts, l->rrefs, l->rref_msgs);
	on_finding(t, text);
}

/* Nothing is under way: both ends of every session must agree. */
static void look_at_pairs(struct trial *t)
{
	unsigned n = t->scenario->workers;
	t->finding = CHECK_CONSERVED;
	for (unsigned i = 0; i < n * n; i++) {
		struct far_agent *a = agent_of(t, i / n), *b = i / n == i % n ? NULL : agent_of(t, i % n);
		for (unsigned k = 0; a && b && k < a->shards_n * b->shards_n; k++)
			audit_pair(a->shards[k / b->shards_n], i / n, b->shards[k % b->shards_n], i % n, on_finding, t);
	}
}

static void look_at_levels(struct trial *t)
{
	t->finding = CHECK_LEVEL;
	for (unsigned i = 0; i < t->scenario->workers; i++) {
		struct far_agent *a = agent_of(t, i);
		for (unsigned k = 0; a && k < a->shards_n; k++) {
			struct audit_level l;
			audit_level_read(a->shards[k], &l);
			print_level(t, i, &l);
		}
	}
}

/* Runs until nothing but `idle` fibers is in use, and then until acknowledgements have come. false: it never was. */
static bool settle(struct trial *t, uint64_t most_ns, uint64_t step_ns)
{
	uint64_t until = cluster_now(t->cluster) + most_ns;
	while (in_use(t) > t->idle && !cluster_failure(t->cluster) && cluster_now(t->cluster) < until)
		cluster_run_until(t->cluster, cluster_now(t->cluster) + step_ns);
	cluster_run_until(t->cluster, cluster_now(t->cluster) + ACKED_NS);
	return in_use(t) <= t->idle;
}

/* In the middle of the work callers hold on, so that there is a moment without anything under way. Where calls take too
 * long, or something is just being disturbed, there is none. */
static void pause_and_look(struct trial *t)
{
	t->load.hold = true;
	load_let_go(&t->load);
	for (unsigned i = 0; i < t->scenario->workers; i++)
		t->idle += agent_of(t, i) ? t->load.workers[i].busy : 0;
	if (settle(t, QUIET_NS, FAR_MS) && t->disturb.under_way == 0)
		look_at_pairs(t);
	t->idle = 0;
	t->load.hold = false;
}

/* Has a fault been so long that members may have given each other up for good, or do not know yet who is dead. */
static bool parted(const struct trial *t)
{
	for (size_t k = 0; k < t->history.incidents_n; k++) {
		const struct history_incident *i = &t->history.incidents[k];
		bool lasted = i->until == HISTORY_TIME_NONE || i->until - i->from >= t->scenario->peer_limit_ns / 4 * 3;
		if (i->kind == INCIDENT_CRASH ? i->power && i->until == HISTORY_TIME_NONE
					      : i->kind != INCIDENT_OUTAGE && lasted)
			return true;
	}
	return false;
}

/* Handlers whose callers have given up go on for a while, and so do acknowledgements. */
static void come_to_rest(struct trial *t)
{
	/* Calls that ended early leave handlers at work, and references control messages that are repeated. */
	const struct workload *w = &t->scenario->workload;
	uint64_t began = cluster_now(t->cluster);
	uint64_t bound = t->scenario->late_ns + 2 * t->scenario->peer_limit_ns + w->depth * w->work.max + ACKED_NS;
	settle(t, REST_NS, 5 * LOOK_NS);
	if (!parted(t) && cluster_now(t->cluster) - began > bound)
		history_finding(&t->history, CHECK_LATE,
				"the workers came to rest after %" PRIu64 " ms, not within %" PRIu64,
				(cluster_now(t->cluster) - began) / FAR_MS, bound / FAR_MS);
	cluster_run_until(t->cluster, cluster_now(t->cluster) + FAR_SEC);
	look(t);
	look_at_levels(t);
	look_at_pairs(t);
}

/* Until the callers are done, the disturbances over, or the time has come. */
static void run_work(struct trial *t, uint64_t until)
{
	struct sim_random random;
	sim_random_init(&random, sim_seed(cluster_sim(t->cluster)), "quiet", 0);
	cluster_run_until(t->cluster, cluster_now(t->cluster) + sim_random_below(&random, QUIET_WITHIN_NS));
	if (!load_done(&t->load))
		pause_and_look(t);
	uint64_t step = STEP_NS, sent = packets_sent(t), looked_sent = sent, looked_at = cluster_now(t->cluster);
	while (!cluster_failure(t->cluster) && (!load_done(&t->load) || t->disturb.under_way) &&
	       cluster_now(t->cluster) < until) {
		cluster_run_until(t->cluster, cluster_now(t->cluster) + step);
		uint64_t before = sent;
		sent = packets_sent(t);
		step = sent != before ? STEP_NS : step < LOOK_NS / 2 ? 2 * step : LOOK_NS;
		if (sent - looked_sent < LOOK_PACKETS * t->scenario->workers &&
		    cluster_now(t->cluster) - looked_at < LOOK_NS)
			continue;
		look(t);
		looked_sent = sent;
		looked_at = cluster_now(t->cluster);
	}
	if (!load_done(&t->load))
		history_finding(&t->history, CHECK_QUIET, "the workers had not made their calls after %" PRIu64 " ms",
				t->scenario->time_ns / FAR_MS);
}

static void count(struct trial *t)
{
	struct sim_stats stats;
	for (unsigned i = 0; i < t->scenario->workers; i++) {
		struct far_agent *a = agent_of(t, i);
		struct far_nic_stats nic;
		for (unsigned p = 0; a && p < far_nic_ports(a); p++)
			if (far_nic_stats_read(a, p, &nic, NULL) == FAR_OK)
				t->history.resends += nic.resent;
	}
	sim_stats(cluster_sim(t->cluster), &stats);
	t->history.packets = stats.sent;
	t->history.end = cluster_now(t->cluster);
	t->history.peer_limit_ns = t->scenario->peer_limit_ns;
	t->history.late_ns = t->scenario->late_ns;
}

static enum trial_fault fault_of(const struct history_incident *i)
{
	static const enum trial_fault faults[] = {[INCIDENT_CRASH] = TRIAL_CRASH,
						  [INCIDENT_PAUSE] = TRIAL_PAUSE,
						  [INCIDENT_CUT] = TRIAL_PARTITION,
						  [INCIDENT_OUTAGE] = TRIAL_OUTAGE};
	return i->kind == INCIDENT_CRASH && i->until != HISTORY_TIME_NONE ? TRIAL_RESTART : faults[i->kind];
}

/* What has happened to packets and workers in the whole run. */
static void count_faults(const struct trial *t, uint64_t faults[TRIAL_FAULTS])
{
	struct sim *sim = cluster_sim(t->cluster);
	struct sim_stats all;
	struct sim_link_stats link;
	sim_stats(sim, &all);
	faults[TRIAL_LOSS] = all.dropped[SIM_DROP_LOSS];
	faults[TRIAL_DUPLICATE] = all.duplicated;
	faults[TRIAL_REORDER] = all.reordered;
	faults[TRIAL_CORRUPT] = all.corrupted;
	faults[TRIAL_PARTITIONED] = all.dropped[SIM_DROP_PARTITION];
	faults[TRIAL_CARRIER] = all.dropped[SIM_DROP_CARRIER];
	faults[TRIAL_QUEUE] = all.dropped[SIM_DROP_QUEUE];
	faults[TRIAL_RING] = all.dropped[SIM_DROP_RING];
	for (unsigned i = 0; i < sim_hosts(sim) * t->scenario->rails; i++) {
		sim_link_stats(sim_uplink(sim_host(sim, i / t->scenario->rails), i % t->scenario->rails), &link);
		faults[TRIAL_CUT] += link.cut;
	}
	faults[TRIAL_STALE_CONNECT] = t->history.stale_connects;
	faults[TRIAL_STALE_DOWN] = t->history.stale_downs;
	faults[TRIAL_STALE_MAIL] = t->history.stale_mails;
	faults[TRIAL_STALE_STREAM] = t->history.stale_streams;
	for (size_t k = 0; k < t->history.incidents_n; k++)
		faults[fault_of(&t->history.incidents[k])]++;
}

/* ---- the run ---- */

static void note_failure(struct trial *t)
{
	if (cluster_failure(t->cluster))
		history_finding(&t->history, CHECK_QUIET, "the simulation could not go on: %s",
				cluster_failure(t->cluster));
}

/* Those who have come back are in, as everybody was in the beginning. */
static void join_again(struct trial *t)
{
	uint64_t until = cluster_now(t->cluster) + JOIN_NS;
	for (unsigned i = 0; i < t->scenario->workers; i++) {
		struct cluster_worker *w = cluster_worker(t->cluster, i);
		struct far_err why = {0};
		while (cluster_state(w) == CLUSTER_JOINING && cluster_now(t->cluster) < until &&
		       !cluster_failure(t->cluster))
			cluster_run_until(t->cluster, cluster_now(t->cluster) + LOOK_NS);
		if (cluster_state(w) == CLUSTER_JOINING)
			history_finding(&t->history, CHECK_QUIET, "worker %u did not come back into the group", i);
		else if (cluster_state(w) == CLUSTER_FAILED && cluster_why(w, &why))
			history_finding(&t->history, CHECK_QUIET, "worker %u could not come back: %s", i, why.text);
	}
}

/* A worker of a barrier. */
struct meeting {
	struct trial *trial;
	const char *const *names;
	size_t names_n;
	bool over;
};

static void meet(struct cluster_worker *w, void *ctx)
{
	struct meeting *m = ctx;
	struct trial *t = m->trial;
	struct far_err err = {0};
	uint64_t began = cluster_now(t->cluster);
	enum far_status status = far_barrier(cluster_agent(w), m->names, m->names_n, LEAVE_NS, &err);
	uint64_t took = cluster_now(t->cluster) - began;
	m->over = true;
	if (status || took > t->scenario->late_ns)
		history_finding(&t->history, CHECK_LATE,
				"the barrier of worker %u ended with %s after %" PRIu64 " ms: %s", cluster_rank(w),
				far_status_name(status), took / FAR_MS, err.text);
}

/* All who are there come together once more, at once. */
static void barrier(struct trial *t)
{
	unsigned n = t->scenario->workers, here = 0;
	char(*names)[SIM_NAME_BYTES] = calloc(n, sizeof *names);
	const char **pointers = calloc(n, sizeof *pointers);
	struct meeting *meetings = calloc(n, sizeof *meetings);
	must(names && pointers && meetings);
	for (unsigned i = 0; i < n; i++)
		if (agent_of(t, i)) {
			snprintf(names[here], sizeof *names, "w%u", i);
			pointers[here] = names[here];
			here++;
		}
	unsigned spawned = 0;
	for (unsigned i = 0; i < n; i++) {
		meetings[i] = (struct meeting){t, pointers, here, !agent_of(t, i)};
		if (!meetings[i].over && cluster_spawn(cluster_worker(t->cluster, i), -1, meet, &meetings[i]) == 0)
			spawned++;
	}
	uint64_t until = cluster_now(t->cluster) + 2 * LEAVE_NS;
	while (spawned && !cluster_failure(t->cluster) && cluster_now(t->cluster) < until) {
		cluster_run_until(t->cluster, cluster_now(t->cluster) + LOOK_NS);
		spawned = 0;
		for (unsigned i = 0; i < n; i++)
			spawned += !meetings[i].over;
	}
	if (spawned) { /* they may still be read */
		history_finding(&t->history, CHECK_LATE, "%u workers have not come out of the barrier", spawned);
		return;
	}
	free(names);
	free(pointers);
	free(meetings);
}

/* Silence ends no membership: a running worker is alive for all members. */
static void look_at_members(struct trial *t)
{
	for (unsigned i = 0; i < t->scenario->workers; i++)
		for (unsigned k = 0; k < t->scenario->workers && agent_of(t, i); k++) {
			struct far_worker_info info;
			if (k != i && agent_of(t, k) &&
			    far_worker_by_rank(agent_of(t, i), (int)k, &info, NULL) == FAR_OK && !info.alive)
				history_finding(&t->history, CHECK_MEMBERS,
						"worker %u is alive, but worker %u has lost it", k, i);
		}
}

/* Those who leave wait for each other, and for the death of those who will not come to be known: a host without power
 * is given up by the store's when its connections are. */
static void leave(struct trial *t)
{
	bool all = true;
	for (unsigned i = 0; i < t->scenario->workers; i++)
		all &= agent_of(t, i) != NULL;
	uint64_t bound = t->scenario->late_ns + 2 * t->scenario->peer_limit_ns + (all ? 0 : LEASE_NS);
	look_at_members(t);
	cluster_leave_all(t->cluster, LEAVE_NS);
	if (!parted(t) && cluster_run_left(t->cluster, bound) == CLUSTER_RUN_TIME)
		history_finding(&t->history, CHECK_LATE, "the workers had not left the group after %" PRIu64 " ms",
				bound / FAR_MS);
	if (cluster_run_left(t->cluster, 2 * LEAVE_NS) == CLUSTER_RUN_TIME)
		history_finding(&t->history, CHECK_QUIET, "the workers did not leave the group");
	for (unsigned i = 0; i < t->scenario->workers; i++) {
		struct cluster_worker *w = cluster_worker(t->cluster, i);
		struct far_err why = {0};
		if (cluster_state(w) == CLUSTER_LEFT && cluster_why(w, &why) != (all ? FAR_OK : FAR_PEER_LOST))
			history_finding(&t->history, CHECK_MEMBERS, "%s, and worker %u left so: %s",
					all ? "all were there" : "one was lost", i,
					why.text[0] ? why.text : "in order");
	}
}

static void run(struct trial *t)
{
	disturb_packets(&t->disturb);
	cluster_start_all(t->cluster);
	if (cluster_run_ready(t->cluster, JOIN_NS) != CLUSTER_RUN_DONE) {
		history_finding(&t->history, CHECK_QUIET, "the group did not form within %" PRIu64 " s",
				(uint64_t)(JOIN_NS / FAR_SEC));
		note_failure(t);
		return;
	}
	t->working = true;
	for (unsigned i = 0; i < t->scenario->workers; i++)
		work(t, cluster_worker(t->cluster, i));
	disturb_begin(&t->disturb);
	run_work(t, cluster_now(t->cluster) + t->scenario->time_ns);
	disturb_end(&t->disturb);
	t->load.stop = true;
	load_let_go(&t->load);
	join_again(t);
	come_to_rest(t);
	count(t);
	for (unsigned i = 0; i < t->scenario->workers; i++)
		if (t->load.workers[i].busy)
			load_killed(&t->load.workers[i]);
	note_failure(t);
	if (!cluster_failure(t->cluster) && !parted(t) && load_done(&t->load))
		barrier(t);
	if (!cluster_failure(t->cluster))
		leave(t);
}

static void check_memory(struct trial *t, uint64_t slabs, uint32_t futures)
{
	if (buf_slabs_used() != slabs)
		history_finding(&t->history, CHECK_LEVEL,
				"after the end %" PRIu64 " bytes of buffers are in use, %" PRIu64 " were before",
				buf_slabs_used(), slabs);
	if (future_used() != futures)
		history_finding(&t->history, CHECK_LEVEL,
				"after the end %" PRIu32 " futures are in use, %" PRIu32 " were before", future_used(),
				futures);
}

/* Prints the events before a failure to stderr. */
static void print_incidents(const struct history *h)
{
	static const char *const kinds[] = {[INCIDENT_CRASH] = "crash",
					    [INCIDENT_PAUSE] = "pause",
					    [INCIDENT_CUT] = "cut",
					    [INCIDENT_OUTAGE] = "outage of a cable"};
	for (size_t k = 0; k < h->incidents_n && k < INCIDENTS_SHOWN; k++) {
		const struct history_incident *i = &h->incidents[k];
		fprintf(stderr, "%s of worker %" PRIu32, kinds[i->kind], i->a);
		if (i->kind == INCIDENT_CUT)
			fprintf(stderr, " and %" PRIu32, i->b);
		fprintf(stderr, " at %.6f s", (double)i->from / 1e9);
		if (i->until == HISTORY_TIME_NONE)
			fprintf(stderr, ", for good\n");
		else
			fprintf(stderr, ", for %.6f s\n", (double)(i->until - i->from) / 1e9);
	}
}

bool trial_run(const struct scenario *scenario, uint64_t seed, FILE *trace, bool hash, struct trial_verdict *out,
	       char err[KEYWORDS_ERR_MAX])
{
	struct trial t = {.scenario = scenario};
	struct cluster_config config;
	struct nic_err why = {0};
	uint64_t slabs = buf_slabs_used();
	uint32_t futures = future_used();
	configure(&config, scenario, seed, &t);
	config.sim.untraced = !hash;
	t.cluster = cluster_create(&config, &why);
	if (!t.cluster) {
		snprintf(err, KEYWORDS_ERR_MAX, "%s", why.text);
		return false;
	}
	struct sim *sim = cluster_sim(t.cluster);
	sim_trace_text(sim, trace);
	t.ports = calloc((size_t)scenario->workers * FAR_PORTS_MAX, sizeof *t.ports);
	must(t.ports);
	load_init(&t.load, scenario, sim, &t.history);
	disturb_init(&t.disturb, scenario, t.cluster, &t.load, &t.history);
	run(&t);
	*out = (struct trial_verdict){
		.virtual_ns = cluster_now(t.cluster), .calls = t.history.calls_n, .packets = t.history.packets};
	_Static_assert(TRIAL_HASH == SHA256_TEXT_BYTES, "a hash as text");
	sim_trace_hash(sim, out->hash);
	count_faults(&t, out->faults);
	cluster_destroy(t.cluster);
	disturb_fini(&t.disturb);
	if (t.load.boxes)
		history_finding(&t.history, CHECK_LEVEL, "after the end there are %" PRIu64 " objects", t.load.boxes);
	load_fini(&t.load);
	free(t.ports);
	check_memory(&t, slabs, futures);
	out->failures_n = check_history(&t.history, &scenario->checks, out->failures, TRIAL_FAILURES);
	if (out->failures_n)
		print_incidents(&t.history);
	history_fini(&t.history);
	return true;
}
