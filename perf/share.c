/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf share`: pairs of workers that share two CPUs, against one pair alone. Main thread of each process.
 *
 * Each pair is a group of its own: a caller, which waits for its calls as applications do, and a worker that serves by
 * its poller. No thread is pinned to one CPU, none holds a shard: the scheduler decides, and what the threads of the
 * engine give up while they wait. Rounds of one pair alternate with rounds of all pairs.
 */
#include "peer.h"
#include "perf.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHARE_ROUNDS 7u
#define STARTED_NS   (60 * FAR_SEC) /* for all groups to form, and for a round beside its time */
#define NAP_NS       1000000L
#define MIN_NS       (20 * FAR_MS) /* of a round */

/* Of one pair. */
struct share_pair {
	_Atomic unsigned done;      /* rounds; release: `calls` and `ns` are written. UINT_MAX: joined, none yet */
	uint64_t calls, ns, cpu_ns; /* of both processes; for `calls` and those that were still under way */
};

/* Shared by the processes. */
struct share_board {
	_Atomic unsigned round;  /* that runs, from 1 on; release, behind the next two */
	_Atomic unsigned active; /* the first pairs, which call in this round */
	_Atomic uint64_t ns;     /* how long; 0: leave */
	struct share_pair pair[SHARE_PAIRS_MAX];
};

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* ---- a pair ---- */

struct caller {
	const struct perf_opts *o;
	struct peer peer;
	struct far_future *future[PEER_INFLIGHT_MAX]; /* a window */
	uint64_t sent, done;
};

/* Keeps the window full; waits for the oldest call. 0, or the exit status after printing. */
static int step(struct caller *c, bool more)
{
	static const float two[2] = {1, 2};
	const struct far_tensor t = far_tensor_1d(FAR_F32, two, 2);
	struct far_err err;
	while (more && c->sent - c->done < c->o->inflight) {
		enum far_status status =
			far_rpc_async_to(c->peer.agent, peer_to(&c->peer, 0), "far::add", FAR_ARGS(&t, &t), NULL,
					 &c->future[c->sent % c->o->inflight], &err);
		if (status == FAR_BUSY)
			break;
		if (status != FAR_OK)
			return peer_complain(c->o, &err);
		c->sent++;
	}
	if (c->done == c->sent)
		return 0; /* busy with nothing in flight: tried again */
	struct far_future *oldest = c->future[c->done % c->o->inflight];
	enum far_status status = far_future_wait(oldest, FAR_FOREVER, NULL, &err);
	far_future_free(oldest);
	c->done++;
	return status == FAR_OK ? 0 : peer_complain(c->o, &err);
}

static uint64_t cpu_ns(pid_t pid)
{
	clockid_t clock;
	struct timespec t = {0};
	if (clock_getcpuclockid(pid, &clock) == 0)
		clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * FAR_SEC + (uint64_t)t.tv_nsec;
}

static uint64_t pair_cpu_ns(const struct caller *c)
{
	return cpu_ns(0) + cpu_ns(c->peer.pids[0]);
}

static int run_round(struct caller *c, struct share_pair *p, uint64_t ns)
{
	uint64_t cpu = pair_cpu_ns(c);
	uint64_t start = floor_now(), first = c->done;
	int rc = 0;
	while (rc == 0 && floor_now() - start < ns)
		rc = step(c, true);
	p->calls = c->done - first;
	p->ns = floor_now() - start;
	while (rc == 0 && c->done < c->sent)
		rc = step(c, false);
	p->cpu_ns = pair_cpu_ns(c) - cpu;
	return rc;
}

static int pair_main(const struct perf_opts *o, struct share_board *b, unsigned index)
{
	static struct caller c; /* large for a stack */
	struct share_pair *mine = &b->pair[index];
	unsigned seen = 0, round;
	c.o = o;
	int rc = peer_open(&c.peer, o);
	if (rc)
		return rc;
	rc = peer_hold(&c.peer, o, false);
	if (rc == 0 && floor_switch(c.peer.shared, FLOOR_SLEEP) < 0) {
		fprintf(stderr, "%s: the other process no longer answers\n", o->what);
		rc = 1;
	}
	rc = rc ? rc : run_round(&c, mine, MIN_NS); /* sets up what the first call needs */
	atomic_store_explicit(&mine->done, UINT32_MAX, memory_order_release);
	while (rc == 0) {
		while ((round = atomic_load_explicit(&b->round, memory_order_acquire)) == seen)
			nap();
		uint64_t ns = atomic_load_explicit(&b->ns, memory_order_relaxed);
		seen = round;
		if (ns == 0)
			break;
		if (index < atomic_load_explicit(&b->active, memory_order_relaxed))
			rc = run_round(&c, mine, ns);
		atomic_store_explicit(&mine->done, round, memory_order_release);
	}
	if (floor_rouse(c.peer.shared, FLOOR_IDLE) < 0)
		fprintf(stderr, "%s: the other process no longer answers\n", o->what);
	int close_rc = peer_close(&c.peer, o);
	return rc ? rc : close_rc;
}

/* ---- all pairs ---- */

struct share {
	const struct perf_opts *o;
	struct share_board *board;
	pid_t pid[SHARE_PAIRS_MAX];
	unsigned started;
	int cpus;
	struct share_rate {
		double calls[SHARE_ROUNDS]; /* a second */
		double cpu[SHARE_ROUNDS];   /* ns of CPU time for a call */
	} one, all;
	double ratio[SHARE_ROUNDS]; /* of the calls a second, all pairs over one */
	double cost[SHARE_ROUNDS];  /* of the CPU time for a call */
};

static int start(struct share *s)
{
	pid_t parent = getpid();
	fflush(NULL);
	for (; s->started < s->o->pairs; s->started++) {
		pid_t pid = fork();
		if (pid < 0) {
			fprintf(stderr, "%s: cannot start a process: %s\n", s->o->what, strerror(errno));
			return 1;
		}
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(getppid() == parent ? pair_main(s->o, s->board, s->started) : 1);
		}
		s->pid[s->started] = pid;
	}
	return 0;
}

/* Waits until all pairs have done `round`. */
static int await(const struct share *s, unsigned round, uint64_t ns)
{
	uint64_t until = floor_now() + ns + STARTED_NS;
	for (unsigned i = 0; i < s->started; i++)
		while (atomic_load_explicit(&s->board->pair[i].done, memory_order_acquire) != round) {
			siginfo_t info = {.si_pid = 0};
			waitid(P_PID, (id_t)s->pid[i], &info, WEXITED | WNOHANG | WNOWAIT);
			if (info.si_pid || floor_now() >= until) {
				fprintf(stderr, "%s: pair %u of %u %s\n", s->o->what, i + 1, s->started,
					info.si_pid ? "has ended; see its messages above" : "does not answer");
				return 1;
			}
			nap();
		}
	return 0;
}

static void begin(struct share *s, unsigned active, uint64_t ns)
{
	struct share_board *b = s->board;
	atomic_store_explicit(&b->active, active, memory_order_relaxed);
	atomic_store_explicit(&b->ns, ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&b->round, 1, memory_order_release);
}

/* Entry `at` of `r`: the first `active` pairs together. */
static int measure(struct share *s, unsigned active, uint64_t ns, struct share_rate *r, unsigned at)
{
	uint64_t calls = 0, cpu = 0;
	begin(s, active, ns);
	if (await(s, atomic_load_explicit(&s->board->round, memory_order_relaxed), ns))
		return 1;
	for (unsigned i = 0; i < active; i++) {
		const struct share_pair *p = &s->board->pair[i];
		r->calls[at] += (double)p->calls * 1e9 / (double)p->ns;
		calls += p->calls;
		cpu += p->cpu_ns;
	}
	r->cpu[at] = calls ? (double)cpu / (double)calls : 0;
	return 0;
}

static int run(struct share *s)
{
	unsigned pairs = (unsigned)s->o->pairs;
	uint64_t ns = s->o->duration_ns / (2 * SHARE_ROUNDS);
	ns = ns < MIN_NS ? MIN_NS : ns;
	int rc = await(s, UINT32_MAX, 0);
	for (unsigned i = 0; i < SHARE_ROUNDS && rc == 0; i++) {
		for (unsigned turn = 0; turn < 2 && rc == 0; turn++)
			rc = turn == i % 2 ? measure(s, 1, ns, &s->one, i) : measure(s, pairs, ns, &s->all, i);
		s->ratio[i] = s->one.calls[i] > 0 ? s->all.calls[i] / s->one.calls[i] : 0;
		s->cost[i] = s->one.cpu[i] > 0 ? s->all.cpu[i] / s->one.cpu[i] : 0;
	}
	return rc;
}

/* They leave by themselves, or are killed with what they started. */
static int stop(struct share *s, int rc)
{
	if (rc == 0)
		begin(s, 0, 0);
	for (unsigned i = 0; i < s->started; i++) {
		int status = 1;
		if (rc)
			kill(s->pid[i], SIGKILL);
		waitpid(s->pid[i], &status, 0);
		rc = rc ? rc : status != 0;
	}
	return rc;
}

static void report(struct share *s)
{
	const struct perf_opts *o = s->o;
	FILE *out = perf_human(o);
	double noise = perf_noise(s->ratio, SHARE_ROUNDS), ratio = perf_median(s->ratio, SHARE_ROUNDS);
	double one = perf_median(s->one.calls, SHARE_ROUNDS), all = perf_median(s->all.calls, SHARE_ROUNDS);
	double one_cpu = perf_median(s->one.cpu, SHARE_ROUNDS), all_cpu = perf_median(s->all.cpu, SHARE_ROUNDS);
	double cost = perf_median(s->cost, SHARE_ROUNDS);
	fprintf(out, "%s: far::add of two tensors, %u in flight in each pair, nic %s, on %d CPUs\n", o->what,
		(unsigned)o->inflight, o->nic, s->cpus);
	fprintf(out, "one pair of workers %.0f calls/s, %.0f ns of CPU time a call\n", one, one_cpu);
	fprintf(out, "%u pairs together   %.0f calls/s, %.0f ns of CPU time a call\n", (unsigned)o->pairs, all,
		all_cpu);
	fprintf(out, "ratio, medians of %u rounds: calls %.3f, noise %s; CPU time %.3f\n", SHARE_ROUNDS, ratio,
		perf_noise_text(noise).text, cost);
	if (!o->json)
		return;
	struct json j;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "share");
	json_string(&j, "nic", o->nic);
	json_u64(&j, "pairs", o->pairs);
	json_u64(&j, "inflight", o->inflight);
	json_double(&j, "one_calls_per_s", one);
	json_double(&j, "all_calls_per_s", all);
	json_double(&j, "one_cpu_ns", one_cpu);
	json_double(&j, "all_cpu_ns", all_cpu);
	json_double(&j, "ratio_median", ratio);
	json_double(&j, "cpu_ratio_median", cost);
	json_double(&j, "seconds", (double)o->duration_ns / 1e9);
	json_u64(&j, "rounds", SHARE_ROUNDS);
	json_double(&j, "noise", noise);
	json_end(&j);
}

/* This process and those that it starts get the first two CPUs, or the only one. Returns their number. */
static int take_cpus(void)
{
	cpu_set_t two;
	CPU_ZERO(&two);
	for (unsigned i = 0; i < 2; i++)
		if (perf_cpu(i) >= 0)
			CPU_SET(perf_cpu(i), &two);
	if (CPU_COUNT(&two))
		sched_setaffinity(0, sizeof two, &two);
	else
		sched_getaffinity(0, sizeof two, &two);
	return CPU_COUNT(&two);
}

int perf_share(const struct perf_opts *given)
{
	struct perf_opts o = *given;
	struct share s = {.o = &o};
	o.asleep = o.roam = true;
	s.cpus = take_cpus();
	s.board = mmap(NULL, sizeof *s.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s.board == MAP_FAILED) {
		fprintf(stderr, "%s: no memory: %s\n", o.what, strerror(errno));
		return 1;
	}
	int rc = start(&s);
	rc = stop(&s, rc ? rc : run(&s));
	if (rc == 0)
		report(&s);
	munmap(s.board, sizeof *s.board);
	return rc;
}
