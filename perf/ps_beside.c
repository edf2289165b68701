/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf ps --beside`: small pulls, one after the other, alone and beside other work of the same service, by
 * turns: large pushes, saves of all tables, and both. Two threads of this process push and save, on cores of their own
 * if there are four, else on that of the measuring thread. A pull counts unless that thread or the server's waited for
 * a core. The measuring thread, which polls.
 */
#include "ps_small.h"

#include "ps_keys.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OTHERS    2u /* threads */
#define WAYS      4u /* bits: beside pushes, beside saves */
#define PUSHES    1u
#define SAVES     2u
#define PUSH_KEYS 100000u /* more than a hundred requests */
#define NAP_NS    1000000
#define SETTLE_NS (60 * FAR_SEC)
#define AT_LEAST  10u /* pulls of a round that count */

static const char *const way_names[WAYS] = {"nothing", "pushes", "saves", "pushes and saves"};

struct other {
	struct beside *b;
	unsigned bit;
	int cpu; /* -1: that of the measuring thread */
	pthread_t thread;
	_Atomic uint64_t done; /* pushes or saves that are complete, so far */
	struct far_err err;
};

struct result {
	struct hist all;
	uint64_t discarded, pushes, partitions;         /* that saves have read */
	double p50[ROUNDS], p99[ROUNDS], ratio[ROUNDS]; /* ratio: of the p99 to that beside nothing, of the round */
};

struct beside {
	struct ps_small small;
	char directory[192]; /* of the saves */
	struct other other[OTHERS];
	unsigned threads;
	_Atomic unsigned way;  /* writer: the measuring thread */
	_Atomic unsigned busy; /* bits of the threads that are in the middle of something */
	atomic_bool ends, failed;
	int waits[2]; /* schedstat of this thread and of the server's */
	struct hist round;
	struct result result[WAYS];
};

/* ---- Other work ---- */

static enum far_status push(struct beside *b, struct far_err *err)
{
	static uint64_t keys[PUSH_KEYS], seed = 11;
	static float grads[PUSH_KEYS * PS_SMALL_DIM]; /* zeros: rows stay as they are checked */
	struct far_future *f;
	ps_keys_draw(&seed, b->small.o.rows, false, keys, PUSH_KEYS);
	enum far_status status = far_ps_push(b->small.table, keys, PUSH_KEYS, grads, NULL, NULL, &f, err);
	if (status)
		return status;
	status = far_future_wait(f, 0, NULL, err);
	far_future_free(f);
	return status;
}

static void *work(void *arg)
{
	struct other *w = arg;
	struct beside *b = w->b;
	perf_pin(w->cpu);
	while (!atomic_load(&b->ends)) {
		atomic_fetch_or(&b->busy, w->bit);
		if (!(atomic_load(&b->way) & w->bit)) {
			atomic_fetch_and(&b->busy, ~w->bit);
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
			continue;
		}
		if (w->bit == PUSHES ? push(b, &w->err) : far_ps_save(b->small.ps, b->directory, NULL, NULL, &w->err)) {
			atomic_store(&b->failed, true);
			break;
		}
		atomic_fetch_add(&w->done, 1);
	}
	atomic_fetch_and(&b->busy, ~w->bit);
	return NULL;
}

/* ---- Pulls ---- */

static uint64_t wait_ns(const struct beside *b)
{
	unsigned long long run, wait, all = 0;
	for (unsigned i = 0; i < 2; i++) {
		char text[96];
		ssize_t n = pread(b->waits[i], text, sizeof text - 1, 0);
		text[n > 0 ? n : 0] = 0;
		if (sscanf(text, "%llu %llu", &run, &wait) == 2)
			all += wait;
	}
	return all;
}

/* An exit status, after printing, if a push or save has failed. */
static int check_others(struct beside *b)
{
	for (unsigned i = 0; i < OTHERS && atomic_load(&b->failed); i++)
		if (b->other[i].err.status)
			return peer_complain(&b->small.o, &b->other[i].err);
	return 0;
}

/* Until the other work is that of the way: each thread of it is in the middle of something, the others are in none. */
static int settle(struct beside *b, unsigned way)
{
	uint64_t most = floor_now() + SETTLE_NS;
	atomic_store(&b->way, way);
	while (atomic_load(&b->busy) != way && !atomic_load(&b->failed)) {
		far_shard_poll(b->small.peer.agent);
		sched_yield(); /* they may share this core */
		if (floor_now() > most)
			return ps_small_wrong(&b->small, "the pushes and saves beside it do not end");
	}
	return check_others(b);
}

/* One pull. Counts it in the round, unless a thread waited for its core. */
static int pull(struct beside *b, unsigned way, uint64_t *waited_ns)
{
	static struct ps_small_pull p;
	int rc = 0;
	while (!ps_small_begin(&b->small, &p, FAR_FOREVER, &rc) && rc == 0)
		far_shard_poll(b->small.peer.agent);
	while (rc == 0 && !p.done_ns)
		far_shard_poll(b->small.peer.agent);
	if (rc == 0)
		rc = ps_small_end(&b->small, &p);
	uint64_t now = wait_ns(b);
	if (now == *waited_ns)
		hist_record(&b->round, p.done_ns - p.begin_ns);
	else
		b->result[way].discarded++;
	*waited_ns = now;
	return rc;
}

/* Partitions that saves have read so far. A save takes longer than a round. */
static int read_partitions(struct beside *b, uint64_t *partitions)
{
	struct far_ps_stats stats;
	struct far_future *f;
	struct far_err err;
	enum far_status status = far_ps_table_stats(b->small.table, 0, &stats, &f, &err);
	if (!status) {
		status = far_future_wait(f, 0, NULL, &err);
		far_future_free(f);
	}
	*partitions = status ? 0 : stats.scans;
	return status ? peer_complain(&b->small.o, &err) : 0;
}

static int one_round(struct beside *b, unsigned way, unsigned i, uint64_t ns)
{
	struct result *r = &b->result[way];
	uint64_t before = 0, after = 0;
	int rc = settle(b, way);
	if (rc == 0)
		rc = read_partitions(b, &before);
	uint64_t start = floor_now(), waited_ns = wait_ns(b), pushes = atomic_load(&b->other[0].done);
	hist_reset(&b->round);
	while (rc == 0 && (b->round.count < AT_LEAST || floor_now() - start < ns))
		rc = floor_now() - start < ns + SETTLE_NS ? pull(b, way, &waited_ns)
							  : ps_small_wrong(&b->small, "none was undisturbed");
	r->pushes += atomic_load(&b->other[0].done) - pushes;
	if (rc == 0)
		rc = read_partitions(b, &after);
	r->partitions += after - before;
	r->p50[i] = (double)hist_quantile(&b->round, 0.5);
	r->p99[i] = (double)hist_quantile(&b->round, 0.99);
	r->ratio[i] = r->p99[i] / b->result[0].p99[i];
	hist_merge(&r->all, &b->round);
	return rc;
}

/* ---- Results ---- */

static void print_text(struct beside *b, const char *nic)
{
	const struct perf_opts *o = &b->small.o;
	FILE *f = perf_human(o);
	fprintf(f,
		"%s: nic %s, %" PRIu64 " rows; pulls of %u keys, one after the other; pushes of %u keys; "
		"partitions saved\n",
		o->what, nic, o->rows, PS_SMALL_KEYS, PUSH_KEYS);
	fprintf(f, "%-16s %9s %9s %9s %8s %8s %9s %9s %7s %7s\n", "beside", "p50 us", "p99 us", "max us", "p99 ratio",
		"noise", "pulls", "discarded", "pushes", "saved");
	for (unsigned w = 0; w < WAYS; w++) {
		struct result *r = &b->result[w];
		struct perf_noise_text noise = perf_noise_text(perf_noise(r->p99, ROUNDS));
		fprintf(f, "%-16s %9.1f %9.1f %9.1f %9.2f %8s %9" PRIu64 " %9" PRIu64 " %7" PRIu64 " %7" PRIu64 "\n",
			way_names[w], perf_median(r->p50, ROUNDS) / 1e3, perf_median(r->p99, ROUNDS) / 1e3,
			(double)r->all.max / 1e3, perf_median(r->ratio, ROUNDS), noise.text, r->all.count, r->discarded,
			r->pushes, r->partitions);
	}
}

static void print_json(struct beside *b, const char *nic)
{
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "ps_beside");
	json_string(&j, "nic", nic);
	json_u64(&j, "rows", b->small.o.rows);
	json_u64(&j, "push_keys", PUSH_KEYS);
	json_u64(&j, "rounds", ROUNDS);
	json_u64(&j, "pushes_all", atomic_load(&b->other[0].done)); /* between rounds, too */
	json_u64(&j, "saves_all", atomic_load(&b->other[1].done));
	json_array(&j, "results");
	for (unsigned w = 0; w < WAYS; w++) {
		struct result *r = &b->result[w];
		json_object(&j, NULL);
		json_string(&j, "beside", way_names[w]);
		json_u64(&j, "pulls", r->all.count);
		json_u64(&j, "discarded", r->discarded);
		json_double(&j, "p50_ns", perf_median(r->p50, ROUNDS));
		json_double(&j, "p99_ns", perf_median(r->p99, ROUNDS));
		json_u64(&j, "max_ns", r->all.max);
		json_double(&j, "p99_ratio", perf_median(r->ratio, ROUNDS));
		json_double(&j, "noise", perf_noise(r->p99, ROUNDS));
		json_u64(&j, "pushes", r->pushes);
		json_u64(&j, "partitions_saved", r->partitions);
		json_close(&j);
	}
	json_close(&j);
	json_end(&j);
}

/* ---- The whole ---- */

static int start(struct beside *b)
{
	const char *tmp = getenv("TMPDIR");
	char path[64];
	b->waits[0] = b->waits[1] = -1;
	snprintf(b->directory, sizeof b->directory, "%s/farcall-perf-XXXXXX", tmp && strlen(tmp) < 128 ? tmp : "/tmp");
	if (!mkdtemp(b->directory)) {
		fprintf(stderr, "%s: cannot make %s: %s\n", b->small.o.what, b->directory, strerror(errno));
		return 1;
	}
	pid_t server = b->small.peer.pids[0];
	b->waits[0] = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)server, (int)server);
	b->waits[1] = open(path, O_RDONLY | O_CLOEXEC);
	for (unsigned i = 0; i < OTHERS; i++) {
		b->other[i] = (struct other){.b = b, .bit = i ? SAVES : PUSHES, .cpu = perf_cpu(2 + i)};
		if (pthread_create(&b->other[i].thread, NULL, work, &b->other[i])) {
			fprintf(stderr, "%s: cannot start a thread\n", b->small.o.what);
			return 1;
		}
		b->threads++;
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

/* Pushes and saves end as this thread polls. */
static void stop(struct beside *b)
{
	atomic_store(&b->ends, true);
	while (atomic_load(&b->busy)) {
		far_shard_poll(b->small.peer.agent);
		sched_yield();
	}
	for (unsigned i = 0; i < b->threads; i++)
		pthread_join(b->other[i].thread, NULL);
	for (unsigned i = 0; i < 2; i++)
		if (b->waits[i] >= 0)
			close(b->waits[i]);
	(void)nftw(b->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int ps_beside(const struct perf_opts *o)
{
	static struct beside b; /* large for a stack */
	struct far_worker_info info = {.nic = "?"};
	int rc = ps_small_open(&b.small, o, 1);
	if (rc)
		return rc;
	far_worker_by_rank(b.small.peer.agent, b.small.peer.to.worker, &info, NULL);
	rc = start(&b);
	for (unsigned i = 0; i < ROUNDS && rc == 0; i++)
		for (unsigned way = 0; way < WAYS && rc == 0; way++)
			rc = one_round(&b, way, i, o->duration_ns / ROUNDS / WAYS);
	stop(&b);
	if (rc == 0)
		rc = check_others(&b);
	if (rc == 0)
		print_text(&b, info.nic);
	if (rc == 0 && o->json)
		print_json(&b, info.nic);
	return ps_small_close(&b.small, rc);
}
