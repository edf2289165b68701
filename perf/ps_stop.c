/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf ps --stop`: small pulls with a deadline, while one of two servers is stopped by a signal again and
 * again. Each is checked: it is complete, its keys have the status and the row that they should have. How long after
 * its deadline it was complete is measured twice: by the clock, and by the processor time of this thread, which does
 * not advance while the thread waits for a core. The measuring thread, which polls.
 */
#include "ps_small.h"
#include "quiet.h"

#include "apps/libps/pst_hash.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SERVERS  2u
#define INFLIGHT 64u
#define DRAIN_NS (20 * FAR_SEC)
#define LATE_NS  1000000u /* after the deadline: counted */

enum phase { RUNS, STOPPING, STOPPED };

struct slot {
	struct ps_small_pull pull;
	uint64_t run_ns; /* processor time of this thread at its last turn before the deadline */
	unsigned stop;   /* number of the stop in which it began; 0: in none */
};

struct stop {
	struct ps_small small;
	pid_t server; /* the second one: the upper half of the partitions is its own */
	enum phase phase;
	uint64_t change_ns;    /* when the phase ends */
	unsigned stops, ended; /* so far; pulls complete that began in the present one */
	uint64_t deadline_ns;
	struct slot slot[INFLIGHT];
	unsigned pending;
	uint64_t pulls, during, whole; /* complete; begun while the server was stopped; with all rows */
	uint64_t rows, late[SERVERS];  /* keys: answered; not, of each server */
	struct hist clock, run;        /* ns after the deadline, of pulls with a late key */
	uint64_t sleeps;               /* of this thread, which polls: it should have none */
	double stolen;                 /* of the machine's time, by its host */
	uint64_t over[2];              /* more than LATE_NS after it: by the clock, by processor time */
};

/* ---- The server ---- */

static int signal_server(struct stop *s, int number, uint64_t now)
{
	if (kill(s->server, number) < 0) {
		fprintf(stderr, "%s: cannot send a signal to the server: %s\n", s->small.o.what, strerror(errno));
		return 1;
	}
	s->change_ns = now + s->small.o.stop_ns;
	s->phase = number == SIGSTOP ? STOPPING : RUNS;
	return 0;
}

static int turn_server(struct stop *s, uint64_t now)
{
	int status;
	if (s->phase == STOPPING && waitpid(s->server, &status, WUNTRACED | WNOHANG) == s->server) {
		if (!WIFSTOPPED(status))
			return ps_small_wrong(&s->small, "the server has ended");
		s->phase = STOPPED;
		s->stops++;
		s->ended = 0;
		s->change_ns = now + s->small.o.stop_ns;
	}
	if (now < s->change_ns || s->phase == STOPPING || (s->phase == STOPPED && s->ended < INFLIGHT))
		return 0;
	return signal_server(s, s->phase == RUNS ? SIGSTOP : SIGCONT, now);
}

/* ---- Pulls ---- */

static unsigned server_of(uint64_t key)
{
	return pst_partition(pst_hash(key)) >= FAR_PS_PARTITIONS / SERVERS;
}

/* The server was stopped all the time since the pull began. */
static bool in_its_stop(const struct stop *s, const struct slot *slot)
{
	return slot->stop && slot->stop == s->stops && s->phase == STOPPED;
}

static int count_keys(struct stop *s, const struct slot *slot, bool *late)
{
	const struct ps_small_pull *p = &slot->pull;
	*late = false;
	for (unsigned i = 0; i < PS_SMALL_KEYS; i++) {
		unsigned server = server_of(p->keys[i]);
		if (p->status[i] == FAR_PS_ROW && server == 1 && in_its_stop(s, slot))
			return ps_small_wrong(&s->small, "a stopped server has answered");
		if (p->status[i] == FAR_PS_ROW)
			s->rows++;
		else
			s->late[server]++;
		*late = *late || p->status[i] != FAR_PS_ROW;
	}
	return 0;
}

static int collect(struct stop *s, struct slot *slot)
{
	bool late;
	uint64_t due = slot->pull.begin_ns + s->deadline_ns;
	int rc = ps_small_end(&s->small, &slot->pull);
	if (rc == 0)
		rc = count_keys(s, slot, &late);
	if (rc)
		return rc;
	s->pending--;
	s->pulls++;
	s->during += slot->stop > 0;
	s->ended += in_its_stop(s, slot);
	s->whole += !late;
	if (late && slot->pull.done_ns < due)
		return ps_small_wrong(&s->small, "its time was over before the deadline");
	if (slot->pull.done_ns <= due)
		return 0;
	uint64_t ns = slot->pull.done_ns - due, run = slot->pull.done_run_ns - slot->run_ns;
	hist_record(&s->clock, ns);
	hist_record(&s->run, run < ns ? run : ns);
	s->over[0] += ns > LATE_NS;
	s->over[1] += ns > LATE_NS && run > LATE_NS;
	return 0;
}

static int turn(struct stop *s, bool begins)
{
	uint64_t now = floor_now(), run = floor_clock(CLOCK_THREAD_CPUTIME_ID);
	int rc = 0;
	for (unsigned i = 0; i < INFLIGHT && rc == 0; i++) {
		struct slot *slot = &s->slot[i];
		if (slot->pull.future && now < slot->pull.begin_ns + s->deadline_ns)
			slot->run_ns = run;
		if (slot->pull.future || !begins)
			continue;
		slot->stop = s->phase == STOPPED ? s->stops : 0;
		slot->run_ns = run;
		s->pending += ps_small_begin(&s->small, &slot->pull, s->deadline_ns, &rc);
	}
	far_shard_poll(s->small.peer.agent);
	for (unsigned i = 0; i < INFLIGHT && rc == 0; i++)
		if (s->slot[i].pull.future && s->slot[i].pull.done_ns)
			rc = collect(s, &s->slot[i]);
	return rc ? rc : turn_server(s, now);
}

/* The last stop is whole. */
static int pulls(struct stop *s)
{
	uint64_t now = floor_now(), end = now + s->small.o.duration_ns, most = end + DRAIN_NS + 4 * s->small.o.stop_ns;
	int rc = 0;
	s->change_ns = now + s->small.o.stop_ns;
	while (rc == 0 && (now < end || s->phase != RUNS || !s->stops) && now < most) {
		rc = turn(s, true);
		now = floor_now();
	}
	s->change_ns = UINT64_MAX;
	while (rc == 0 && s->pending && now < most) {
		rc = turn(s, false);
		now = floor_now();
	}
	if (rc == 0 && s->pending)
		rc = ps_small_wrong(&s->small, "it was never complete");
	return rc;
}

/* ---- Results ---- */

static void print_lateness(FILE *f, const char *what, const struct hist *h, uint64_t over)
{
	fprintf(f, "  %-24s p50 %.1f, p99 %.1f, p99.9 %.1f, most %.1f us; more than %u us: %" PRIu64 "\n", what,
		(double)hist_quantile(h, 0.5) / 1e3, (double)hist_quantile(h, 0.99) / 1e3,
		(double)hist_quantile(h, 0.999) / 1e3, (double)h->max / 1e3, LATE_NS / 1000, over);
}

static void print_text(const struct stop *s, const char *nic)
{
	const struct perf_opts *o = &s->small.o;
	FILE *f = perf_human(o);
	fprintf(f,
		"%s: nic %s; of two servers one was stopped %u times for %.1f s; pulls of %u keys, %u in flight, "
		"deadline %.0f us\n",
		o->what, nic, s->stops, (double)o->stop_ns / 1e9, PS_SMALL_KEYS, INFLIGHT,
		(double)s->deadline_ns / 1e3);
	fprintf(f,
		"pulls: %" PRIu64 ", %" PRIu64 " begun beside a stopped server; whole %" PRIu64 ", partial %" PRIu64
		"\n",
		s->pulls, s->during, s->whole, s->pulls - s->whole);
	fprintf(f,
		"keys: answered %" PRIu64 ", late of the server that is stopped %" PRIu64 ", of the other one %" PRIu64
		"\n",
		s->rows, s->late[1], s->late[0]);
	fprintf(f,
		"complete by the deadline: %" PRIu64 "; after it: %" PRIu64 "; the client slept %" PRIu64
		" times; %.1f %% of the machine's time was its host's\n",
		s->pulls - s->clock.count, s->clock.count, s->sleeps, s->stolen * 100);
	print_lateness(f, "by the clock", &s->clock, s->over[0]);
	print_lateness(f, "by processor time", &s->run, s->over[1]);
}

static void json_lateness(struct json *j, const char *name, const struct hist *h, uint64_t over)
{
	json_object(j, name);
	json_u64(j, "p50_ns", hist_quantile(h, 0.5));
	json_u64(j, "p99_ns", hist_quantile(h, 0.99));
	json_u64(j, "p999_ns", hist_quantile(h, 0.999));
	json_u64(j, "max_ns", h->max);
	json_u64(j, "over_1ms", over);
	json_close(j);
}

static void print_json(const struct stop *s, const char *nic)
{
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "ps_stop");
	json_string(&j, "nic", nic);
	json_u64(&j, "rows", s->small.o.rows);
	json_u64(&j, "stops", s->stops);
	json_u64(&j, "stop_ns", s->small.o.stop_ns);
	json_u64(&j, "deadline_ns", s->deadline_ns);
	json_u64(&j, "pulls", s->pulls);
	json_u64(&j, "pulls_during", s->during);
	json_u64(&j, "pulls_whole", s->whole);
	json_u64(&j, "keys_answered", s->rows);
	json_u64(&j, "keys_late_stopped", s->late[1]);
	json_u64(&j, "keys_late_other", s->late[0]);
	json_u64(&j, "after_deadline", s->clock.count);
	json_u64(&j, "sleeps", s->sleeps);
	json_double(&j, "stolen", s->stolen);
	json_lateness(&j, "late_clock", &s->clock, s->over[0]);
	json_lateness(&j, "late_processor", &s->run, s->over[1]);
	json_end(&j);
}

int ps_stop(const struct perf_opts *o)
{
	static struct stop s; /* large for a stack */
	struct far_worker_info info = {.nic = "?"};
	if (o->limit_ns >= o->stop_ns)
		return options_wrong(o->what, "--stop: a server that is stopped for less than the deadline of the "
					      "pulls misses none; give more than --limit");
	int rc = ps_small_open(&s.small, o, SERVERS);
	if (rc)
		return rc;
	s.server = s.small.peer.pids[SERVERS - 1];
	s.deadline_ns = o->limit_ns;
	far_worker_by_rank(s.small.peer.agent, s.small.peer.to.worker, &info, NULL);
	uint64_t all[2], stolen[2];
	struct rusage used[2];
	quiet_machine(&all[0], &stolen[0]);
	getrusage(RUSAGE_THREAD, &used[0]);
	rc = pulls(&s);
	getrusage(RUSAGE_THREAD, &used[1]);
	quiet_machine(&all[1], &stolen[1]);
	s.sleeps = (uint64_t)(used[1].ru_nvcsw - used[0].ru_nvcsw);
	s.stolen = all[1] > all[0] ? (double)(stolen[1] - stolen[0]) / (double)(all[1] - all[0]) : 0;
	kill(s.server, SIGCONT);
	if (rc)
		exit(rc); /* memory of pulls may be in use; the servers end with this process */
	print_text(&s, info.nic);
	if (o->json)
		print_json(&s, info.nic);
	return ps_small_close(&s.small, 0);
}
