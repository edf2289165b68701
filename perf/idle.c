/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf idle`: what a worker costs while it does nothing, and its first call after that.
 * Main thread of each process.
 *
 * Every worker of the group runs this. Rank 0 keeps order through two functions whose replies it defers: a barrier, and
 * a turn, so that first calls are made by one worker at a time. Results come back as one more call.
 */
#include "apps/farcall/commands.h"
#include "floor_pair.h"
#include "idle_usage.h"
#include "peer.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_NS     (300 * FAR_MS) /* spinning and yielding are over by then */
#define FIRST_CALLS   50
#define FIRST_PARTS   5             /* of these calls, each with a median: their spread is the noise */
#define SILENCE_NS    (12 * FAR_MS) /* before each of them */
#define WARM_CALLS    10
#define WAKE_SAMPLES  50
#define TURN_BOUND_NS (10 * FAR_SEC) /* of one worker: FIRST_CALLS, with room for a busy machine */

struct idle_result {
	double cpu_fraction, wakeups_per_s, ctl_wakeups_per_s;
	double noise; /* of the first calls */
	uint64_t first_call_p50_ns, rss_bytes, threads;
};

/* Rank 0's part. Its handlers run one at a time, on whatever thread holds the shard. */
struct order {
	int world;
	int arrived;                                   /* at the barrier */
	int turn;                                      /* whose it is */
	struct far_deferred *barrier[SPAWN_WORLD_MAX]; /* to be let go together */
	struct far_deferred *waiting[SPAWN_WORLD_MAX]; /* by rank, for their turn */
	struct idle_result result[SPAWN_WORLD_MAX];
};

static void release(struct far_deferred **d)
{
	struct far_val none = far_none();
	if (*d)
		far_deferred_return(*d, &none);
	*d = NULL;
}

static enum far_status on_barrier(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct order *o = user;
	(void)args;
	(void)n;
	if (o->arrived >= o->world)
		return far_fail(req, FAR_REMOTE, 0, "too many workers at the barrier");
	enum far_status status = far_defer(req, &o->barrier[o->arrived]);
	if (status != FAR_OK || ++o->arrived < o->world)
		return status;
	o->arrived = 0;
	for (int i = 0; i < o->world; i++)
		release(&o->barrier[i]);
	return FAR_OK;
}

static enum far_status on_turn(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct order *o = user;
	struct far_val none = far_none();
	(void)n;
	int64_t rank = args[0].u.i;
	if (rank < 0 || rank >= o->world || o->waiting[rank])
		return far_fail(req, FAR_REMOTE, 0, "no turn for rank %" PRId64, rank);
	return rank == o->turn ? far_return(req, &none) : far_defer(req, &o->waiting[rank]);
}

static enum far_status on_report(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct order *o = user;
	struct far_val none = far_none();
	(void)n;
	int64_t rank = args[0].u.i;
	if (rank < 0 || rank >= o->world || args[1].u.s.len != sizeof *o->result)
		return far_fail(req, FAR_REMOTE, 0, "no result of rank %" PRId64, rank);
	memcpy(&o->result[rank], args[1].u.s.data, sizeof *o->result);
	enum far_status status = far_return(req, &none);
	if (++o->turn < o->world)
		release(&o->waiting[o->turn]);
	return status;
}

struct worker {
	const struct perf_opts *o;
	struct far_agent *agent;
	struct far_call_opts wait; /* bound of the calls that wait for all the others */
	int rank, world;
	char first[FAR_NAME_MAX], next[FAR_NAME_MAX]; /* names of rank 0 and of the rank behind ours */
	struct idle_result result;
};

static void sleep_ns(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / FAR_SEC), .tv_nsec = (long)(ns % FAR_SEC)};
	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* One wait of the measuring thread: its own wake-up is taken off. */
static void idle_period(struct worker *w)
{
	struct idle_usage before, after;
	idle_usage_read(&before);
	sleep_ns(w->o->duration_ns);
	idle_usage_read(&after);
	double s = (double)(after.at_ns - before.at_ns) / 1e9;
	uint64_t switches = after.switches - before.switches;
	w->result.cpu_fraction = (double)(after.cpu_ns - before.cpu_ns) / 1e9 / s;
	w->result.wakeups_per_s = (double)(switches ? switches - 1 : 0) / s;
	w->result.ctl_wakeups_per_s = (double)(after.ctl_switches - before.ctl_switches) / s;
	w->result.rss_bytes = after.rss_bytes;
	w->result.threads = after.threads;
}

static enum far_status first_calls(struct worker *w, struct far_err *err)
{
	static struct hist h; /* large for a stack */
	double ns[FIRST_CALLS], medians[FIRST_PARTS];
	enum far_status status = FAR_OK;
	for (int i = 0; i < FIRST_CALLS && status == FAR_OK; i++) {
		sleep_ns(SILENCE_NS);
		uint64_t before = floor_now();
		status = far_rpc_sync(w->agent, w->next, "far::identity", FAR_ARGS(i), NULL, NULL, err);
		uint64_t took = floor_now() - before;
		hist_record(&h, took);
		ns[i] = (double)took;
	}
	if (status != FAR_OK)
		return status;
	for (int k = 0; k < FIRST_PARTS; k++)
		medians[k] = perf_median(&ns[k * (FIRST_CALLS / FIRST_PARTS)], FIRST_CALLS / FIRST_PARTS);
	w->result.noise = perf_noise(medians, FIRST_PARTS);
	w->result.first_call_p50_ns = hist_quantile(&h, 0.5);
	return status;
}

static enum far_status barrier(struct worker *w, struct far_err *err)
{
	return far_rpc_sync(w->agent, w->first, "perf::barrier", FAR_NOARGS, &w->wait, NULL, err);
}

static enum far_status work(struct worker *w, struct far_err *err)
{
	struct far_worker_info info;
	enum far_status status = far_worker_by_rank(w->agent, 0, &info, err);
	memcpy(w->first, info.name, sizeof w->first);
	if (status == FAR_OK)
		status = far_worker_by_rank(w->agent, (w->rank + 1) % w->world, &info, err);
	memcpy(w->next, info.name, sizeof w->next);
	for (int i = 0; i < WARM_CALLS && status == FAR_OK; i++)
		status = far_rpc_sync(w->agent, w->next, "far::identity", FAR_ARGS(i), NULL, NULL, err);
	if (status == FAR_OK)
		status = barrier(w, err);
	if (status != FAR_OK)
		return status;
	sleep_ns(SETTLE_NS);
	idle_period(w);
	sleep_ns(SETTLE_NS); /* nobody calls while another one is still idle */
	status = barrier(w, err);
	if (status == FAR_OK)
		status = far_rpc_sync(w->agent, w->first, "perf::turn", FAR_ARGS(w->rank), &w->wait, NULL, err);
	if (status == FAR_OK)
		status = first_calls(w, err);
	if (status == FAR_OK)
		status = far_rpc_sync(w->agent, w->first, "perf::report",
				      FAR_ARGS(w->rank, far_bytes(&w->result, sizeof w->result)), NULL, NULL, err);
	return status == FAR_OK ? barrier(w, err) : status;
}

static void report(const struct worker *w, const struct order *order, uint64_t wake_ns)
{
	FILE *out = perf_human(w->o);
	fprintf(out, "%6s %8s %12s %12s %14s %8s %10s %8s\n", "worker", "cpu", "wakeups/s", "control/s",
		"first call us", "noise", "rss MiB", "threads");
	for (int i = 0; i < w->world; i++) {
		const struct idle_result *r = &order->result[i];
		fprintf(out, "%6d %7.2f%% %12.2f %12.2f %14.1f %8s %10.1f %8" PRIu64 "\n", i, 100 * r->cpu_fraction,
			r->wakeups_per_s, r->ctl_wakeups_per_s, (double)r->first_call_p50_ns / 1e3,
			perf_noise_text(r->noise).text, (double)r->rss_bytes / 1048576, r->threads);
	}
	if (w->o->floor)
		fprintf(out, "floor: eventfd wake-up %.1f us\n", (double)wake_ns / 1e3);
	if (!w->o->json)
		return;
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "idle");
	json_double(&j, "seconds", (double)w->o->duration_ns / 1e9);
	json_string(&j, "nic", w->o->nic);
	json_array(&j, "workers");
	for (int i = 0; i < w->world; i++) {
		const struct idle_result *r = &order->result[i];
		json_object(&j, NULL);
		json_double(&j, "cpu_fraction", r->cpu_fraction);
		json_double(&j, "wakeups_per_s", r->wakeups_per_s);
		json_double(&j, "ctl_wakeups_per_s", r->ctl_wakeups_per_s);
		json_u64(&j, "first_call_p50_ns", r->first_call_p50_ns);
		json_double(&j, "noise", r->noise);
		json_u64(&j, "rss_bytes", r->rss_bytes);
		json_u64(&j, "threads", r->threads);
		json_close(&j);
	}
	json_close(&j);
	if (w->o->floor)
		json_u64(&j, "floor_wake_p50_ns", wake_ns);
	json_end(&j);
}

/* Before the agent starts: the pair is forked, and a process with threads must not fork. */
static int wake_floor(const struct perf_opts *o, uint64_t *wake_ns)
{
	static struct hist h;
	struct floor_pair pair;
	int rc = floor_pair_open(&pair, o, NULL);
	if (rc == 0) {
		rc = floor_wake(pair.shared, WAKE_SAMPLES, &h);
		floor_pair_close(&pair);
	}
	*wake_ns = hist_quantile(&h, 0.5);
	if (rc < 0)
		floor_explain(o->what, rc, 0, 0);
	return rc < 0;
}

static int start_group(const struct perf_opts *o)
{
	char exe[4096], seconds[32];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	if (n <= 0)
		n = (ssize_t)strlen(strcpy(exe, "/proc/self/exe"));
	exe[n] = 0;
	snprintf(seconds, sizeof seconds, "%" PRIu64 "ns", o->duration_ns);
	const char *argv[16] = {"run", "-n", "2", "--", exe, "perf", "idle", "--nic", o->nic, "--seconds", seconds};
	int argc = 11;
	if (o->floor)
		argv[argc++] = "--floor";
	if (o->json)
		argv[argc++] = "--json";
	if (o->security) {
		argv[argc++] = "--security";
		argv[argc++] = o->security;
	}
	return cmd_run(argc, (char **)(uintptr_t)argv);
}

int perf_idle(const struct perf_opts *o)
{
	static struct order order;
	const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
	if (!rank || !world)
		return start_group(o);
	struct worker w = {.o = o, .rank = atoi(rank), .world = atoi(world)};
	if (w.world < 1 || w.world > SPAWN_WORLD_MAX || w.rank < 0 || w.rank >= w.world) {
		fprintf(stderr, "%s: RANK=%s WORLD_SIZE=%s do not fit; start it with farcall run -n N --\n", o->what,
			rank, world);
		return 2;
	}
	order.world = w.world;
	uint64_t wake_ns = 0;
	if (o->floor && w.rank == 0 && wake_floor(o, &wake_ns))
		return 1;
	const struct far_function functions[] = {
		{"perf::barrier() -> none", FAR_KIND_INLINE, on_barrier, &order},
		{"perf::turn(int rank) -> none", FAR_KIND_INLINE, on_turn, &order},
		{"perf::report(int rank, bytes result) -> none", FAR_KIND_INLINE, on_report, &order},
	};
	struct far_opts opts = {.nic = o->nic,
				.security = o->security,
				.functions = functions,
				.functions_n = sizeof functions / sizeof *functions};
	struct far_err err;
	char name[32];
	snprintf(name, sizeof name, "worker%d", w.rank);
	w.wait.timeout_ns = 2 * o->duration_ns + 30 * FAR_SEC + (uint64_t)w.world * TURN_BOUND_NS;
	enum far_status status = far_init_rpc(name, w.rank, w.world, &opts, &w.agent, &err);
	if (status == FAR_OK) {
		status = work(&w, &err);
		if (status == FAR_OK && w.rank == 0)
			report(&w, &order, wake_ns);
		struct far_err late;
		enum far_status left = far_shutdown(w.agent, 10 * FAR_SEC, &late);
		if (status == FAR_OK && left != FAR_OK) {
			status = left;
			err = late;
		}
	}
	if (status == FAR_OK)
		return 0;
	fprintf(stderr, "%s: ", o->what);
	far_err_print(stderr, &err);
	return 1;
}
