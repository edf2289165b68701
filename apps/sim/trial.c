/* SPDX-License-Identifier: BSD-3-Clause */
#include "sim/trial.h"

#include "api/agent.h"
#include "base/must.h"
#include "nic/sim/cluster.h"
#include "shard/audit.h"
#include "sim/disturb.h"
#include "sim/load.h"
#include "xcore/buf.h"
#include "xcore/future.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_NS  (60 * FAR_SEC)
#define LOOK_NS  (20 * FAR_MS)  /* between two walks over the engines */
#define REST_NS  (60 * FAR_SEC) /* for what callers have given up to end */
#define LEAVE_NS (20 * FAR_SEC)
#define ACKED_NS (400 * FAR_MS) /* the last acknowledgements have come */
#define QUIET_NS (3 * FAR_SEC)  /* for a quiet moment in between */
/* When that is: most workloads are done soon, if nothing disturbs them. */
#define QUIET_WITHIN_NS (2 * FAR_MS)
#define FINDINGS_MAX    32 /* more of them tell nothing new */
#define TOLD_MAX        20 /* incidents */

struct trial {
	const struct scenario *scenario;
	struct cluster *cluster;
	struct history history;
	struct load load;
	struct disturb disturb;
	enum checker finding;
	char port_args[64];
	bool working;  /* the applications have begun */
	uint64_t idle; /* fibers that wait for nothing that is under way */
};

/* ---- the cluster ---- */

static void on_opts(void *ctx, unsigned rank, struct far_opts *opts)
{
	struct trial *t = ctx;
	load_opts(&t->load.workers[rank], opts);
}

static void work(struct trial *t, struct cluster_worker *w)
{
	struct load_worker *lw = &t->load.workers[cluster_rank(w)];
	struct load_life *life = load_begin(lw, cluster_agent(w), cluster_host(w), cluster_lives(w));
	for (unsigned i = load_callers(lw); i; i--)
		if (cluster_spawn(w, -1, load_run, life) < 0)
			lw->busy--;
}

/* Those that come back go on where the process before was. */
static void on_state(void *ctx, struct cluster_worker *w, enum cluster_state state)
{
	struct trial *t = ctx;
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
	config->sim.lose_ctx = &t->disturb;
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
	t->finding = CHECK_CONSERVED;
	for (unsigned i = 0; i < t->scenario->workers; i++) {
		struct far_agent *a = agent_of(t, i);
		for (unsigned k = 0; a && k < a->shards_n; k++)
			audit_shard(a->shards[k], on_finding, t);
	}
}

static uint64_t level_sum(const struct audit_level *l)
{
	return l->calls + l->waiting + l->deferred + l->fibers + l->parked + l->blocked + l->large_in + l->large_out +
	       l->posts + l->fanouts + l->submitted + l->rrefs + l->rref_words;
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

static void tell_level(struct trial *t, unsigned rank, const struct audit_level *l)
{
	char text[288];
	if (level_sum(l) == 0)
		return;
	snprintf(text, sizeof text,
		 "worker %u has left: %" PRIu64 " calls, %" PRIu64 " waiting, %" PRIu64 " open requests, %" PRIu64
		 " fibers, %" PRIu64 " parked, %" PRIu64 " + %" PRIu64 " long messages, %" PRIu64 " one-ways, %" PRIu64
		 " fan-outs, %" PRIu64 " references, %" PRIu64 " words about some",
		 rank, l->calls, l->waiting, l->deferred, l->fibers, l->parked, l->large_in, l->large_out, l->posts,
		 l->fanouts, l->rrefs, l->rref_words);
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
			tell_level(t, i, &l);
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

/* Handlers whose callers have given up go on for a while, and so do acknowledgements. */
static void come_to_rest(struct trial *t)
{
	settle(t, REST_NS, 5 * LOOK_NS);
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
	while (!cluster_failure(t->cluster) && (!load_done(&t->load) || t->disturb.under_way) &&
	       cluster_now(t->cluster) < until) {
		cluster_run_until(t->cluster, cluster_now(t->cluster) + LOOK_NS);
		look(t);
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

static void leave(struct trial *t)
{
	cluster_leave_all(t->cluster, LEAVE_NS);
	if (cluster_run_left(t->cluster, 2 * LEAVE_NS) == CLUSTER_RUN_TIME)
		history_finding(&t->history, CHECK_QUIET, "the workers did not leave the group");
}

static void run(struct trial *t)
{
	disturb_packets(&t->disturb);
	cluster_start_all(t->cluster);
	if (cluster_run_ready(t->cluster, JOIN_NS) != CLUSTER_RUN_DONE) {
		history_finding(&t->history, CHECK_QUIET, "the workers did not come together within %" PRIu64 " s",
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

/* What went before a failure, on stderr: whoever reads of it sees this. */
static void tell_incidents(const struct history *h)
{
	static const char *const kinds[] = {[INCIDENT_CRASH] = "crash",
					    [INCIDENT_PAUSE] = "pause",
					    [INCIDENT_CUT] = "cut",
					    [INCIDENT_OUTAGE] = "outage of a cable"};
	for (size_t k = 0; k < h->incidents_n && k < TOLD_MAX; k++) {
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

bool trial_run(const struct scenario *scenario, uint64_t seed, FILE *trace, struct trial_verdict *out,
	       char err[WORDS_ERR_MAX])
{
	struct trial t = {.scenario = scenario};
	struct cluster_config config;
	struct nic_err why = {0};
	uint64_t slabs = buf_slabs_used();
	uint32_t futures = future_used();
	configure(&config, scenario, seed, &t);
	t.cluster = cluster_create(&config, &why);
	if (!t.cluster) {
		snprintf(err, WORDS_ERR_MAX, "%s", why.text);
		return false;
	}
	struct sim *sim = cluster_sim(t.cluster);
	sim_trace_text(sim, trace);
	load_init(&t.load, scenario, sim, &t.history);
	disturb_init(&t.disturb, scenario, t.cluster, &t.load, &t.history);
	run(&t);
	*out = (struct trial_verdict){
		.virtual_ns = cluster_now(t.cluster), .calls = t.history.calls_n, .packets = t.history.packets};
	_Static_assert(TRIAL_HASH == SHA256_TEXT_BYTES, "a hash as text");
	sim_trace_hash(sim, out->hash);
	cluster_destroy(t.cluster);
	disturb_fini(&t.disturb);
	if (t.load.boxes)
		history_finding(&t.history, CHECK_LEVEL, "after the end there are %" PRIu64 " objects", t.load.boxes);
	load_fini(&t.load);
	check_memory(&t, slabs, futures);
	out->failures_n = check_history(&t.history, &scenario->checks, out->failures, TRIAL_FAILURES);
	if (out->failures_n)
		tell_incidents(&t.history);
	history_fini(&t.history);
	return true;
}
