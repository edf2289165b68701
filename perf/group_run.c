/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The runs of `farcall perf group`. A run's first process, the watcher, is rank 0 and measures in its main thread; it
 * starts the member and, for some figures, a third process before it has threads.
 */
#include "apps/cli/spawn.h"
#include "floor_ring.h"
#include "group.h"
#include "peer.h"
#include <errno.h>
#include <farcall/metrics.h>
#include <farcall/profile.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WINDOW_NS (10 * FAR_MS) /* of a rate */
#define FULL      0.9           /* of the rate before */
#define WARM      2000          /* calls before a measurement */

enum { WATCHER, MEMBER, THIRD };

static const char *const names[] = {"watcher", "member", "third"};

struct run {
	const struct perf_opts *o;
	struct group_shared *s;
	struct spawn_group group;
	struct far_agent *agent;
	const char *nic, *security;
	bool busy;  /* the member polls all the time */
	bool apart; /* the watcher has the first CPU, the others the second */
	pid_t pids[3];
	_Atomic uint64_t lost_at; /* when the callback has seen the member go; 0: not yet */
	_Atomic bool seen;
	struct far_err err;
};

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* ---- members ---- */

static enum far_status echo(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n, (void)user;
	return far_return_int(req, args[0].u.i);
}

static enum far_status never(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *kept; /* as long as this member */
	(void)args, (void)n, (void)user;
	return far_defer(req, &kept);
}

static int joins(struct run *r, int i, struct far_agent **out)
{
	static const struct far_function functions[] = {{"g::echo(int x) -> int", FAR_KIND_INLINE, echo, NULL, 0},
							{"g::never() -> none", FAR_KIND_INLINE, never, NULL, 0}};
	const struct far_opts opts = {.nic = r->nic,
				      .security = r->security,
				      .functions = functions,
				      .functions_n = 2,
				      .leaks = FAR_LEAKS_IGNORE,
				      .idle = r->busy && i == MEMBER ? FAR_IDLE_BUSY : FAR_IDLE_ADAPTIVE,
				      .lease_ns = GROUP_LEASE_NS,
				      .init_timeout_ns = 30 * FAR_SEC};
	if (far_init_rpc(names[i], i == WATCHER ? 0 : FAR_RANK_ANY, FAR_WORLD_DYNAMIC, &opts, out, &r->err))
		return peer_complain(r->o, &r->err);
	atomic_fetch_add(&r->s->joined[i], 1);
	return 0;
}

/* Serves from its own threads until it is killed, or all end. */
static int serves(struct run *r, int i)
{
	struct far_agent *agent;
	while (!atomic_load(&r->s->go[i]))
		nap();
	int rc = joins(r, i, &agent);
	while (rc == 0 && !atomic_load(&r->s->end))
		nap();
	return rc;
}

static int churns(struct run *r)
{
	struct far_agent *agent;
	while (!atomic_load(&r->s->end)) {
		if (!atomic_load(&r->s->churn)) {
			nap();
			continue;
		}
		uint64_t from = floor_now();
		if (joins(r, THIRD, &agent))
			return 1;
		atomic_fetch_add(&r->s->joins_ns, floor_now() - from);
		atomic_fetch_add(&r->s->joins, 1);
		if (far_shutdown(agent, 10 * FAR_SEC, &r->err))
			return peer_complain(r->o, &r->err);
	}
	return 0;
}

static int child(struct run *r, int i, int (*body)(struct run *r, int i))
{
	fflush(NULL);
	pid_t parent = getpid();
	r->pids[i] = fork();
	if (r->pids[i] < 0) {
		fprintf(stderr, "%s: cannot start a process: %s\n", r->o->what, strerror(errno));
		return 1;
	}
	if (r->pids[i] > 0)
		return 0;
	if (r->apart)
		perf_pin(perf_cpu(1));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	spawn_env(&r->group, i);
	_exit(body(r, i));
}

static int third(struct run *r, int i)
{
	(void)i;
	return churns(r);
}

/* ---- the watcher ---- */

static void on_member(struct far_agent *a, enum far_member_event event, const struct far_worker_info *w, void *user)
{
	struct run *r = user;
	(void)a;
	if (strcmp(w->name, names[MEMBER]) != 0)
		return;
	if (event == FAR_MEMBER_JOINED)
		atomic_store(&r->seen, true);
	else if (!atomic_load(&r->lost_at))
		atomic_store(&r->lost_at, floor_now());
}

static enum far_status calls(struct run *r)
{
	struct far_val out;
	return far_rpc_sync(r->agent, names[MEMBER], "g::echo", FAR_ARGS(41), NULL, &out, &r->err);
}

static int open_run(struct run *r, const struct perf_opts *o, struct group_shared *s)
{
	*r = (struct run){.o = o, .s = s, .nic = o->nic, .security = o->security};
	int rc = spawn_group_open(&r->group, 3);
	if (rc < 0)
		fprintf(stderr, "%s: cannot listen: %s\n", o->what, strerror(-rc));
	return rc < 0;
}

/* Joins, and waits until the member is known and answers. */
static int meet(struct run *r)
{
	struct far_worker_info info;
	if (joins(r, WATCHER, &r->agent))
		return 1;
	if (far_on_member(r->agent, on_member, r, &r->err))
		return peer_complain(r->o, &r->err);
	atomic_store(&r->s->go[MEMBER], true);
	if (far_worker_wait(r->agent, names[MEMBER], 30 * FAR_SEC, &info, &r->err) || calls(r))
		return peer_complain(r->o, &r->err);
	while (!atomic_load(&r->seen))
		nap();
	return 0;
}

static void close_run(struct run *r)
{
	atomic_store(&r->s->end, true);
	for (int i = MEMBER; i <= THIRD; i++) {
		if (r->pids[i] <= 0)
			continue;
		kill(r->pids[i], SIGKILL);
		waitpid(r->pids[i], NULL, 0);
	}
	if (r->agent)
		far_shutdown_local(r->agent, NULL);
	spawn_group_close(&r->group);
}

static int begin(struct run *r, const struct perf_opts *o, struct group_shared *s, bool busy)
{
	if (open_run(r, o, s))
		return 1;
	r->busy = busy;
	if (child(r, MEMBER, serves))
		return 1;
	spawn_env(&r->group, WATCHER);
	return meet(r);
}

/* ---- how an end is detected ---- */

/* The member ends: until a call that it has fails, and until it is no member. */
static int detect(struct run *r, int (*end)(struct run *r))
{
	const struct far_call_opts forever = {.timeout_ns = FAR_FOREVER};
	struct far_future *pending;
	if (far_rpc_async(r->agent, names[MEMBER], "g::never", FAR_NOARGS, &forever, &pending, &r->err) || calls(r))
		return peer_complain(r->o, &r->err);
	uint64_t from = floor_now();
	if (end(r))
		return 1;
	enum far_status status = far_future_wait(pending, 30 * FAR_SEC, NULL, &r->err);
	r->s->value[0] = (double)(floor_now() - from);
	far_future_free(pending);
	if (status != FAR_PEER_LOST) {
		fprintf(stderr, "%s: a call of a member that has ended ends with %s\n", r->o->what,
			far_status_name(status));
		return 1;
	}
	while (!atomic_load(&r->lost_at))
		nap();
	r->s->value[1] = (double)(atomic_load(&r->lost_at) - from);
	return 0;
}

static int kill_it(struct run *r)
{
	return kill(r->pids[MEMBER], SIGKILL) != 0;
}

static int stop_it(struct run *r)
{
	return kill(r->pids[MEMBER], SIGSTOP) != 0;
}

static int detect_with(const struct perf_opts *o, struct group_shared *s, int (*end)(struct run *r))
{
	struct run r;
	int rc = begin(&r, o, s, false) || detect(&r, end);
	close_run(&r);
	return rc;
}

static int run_kill(const struct perf_opts *o, struct group_shared *s)
{
	return detect_with(o, s, kill_it);
}

static int run_stop(const struct perf_opts *o, struct group_shared *s)
{
	return detect_with(o, s, stop_it);
}

/* ---- a cut: watcher and member in namespaces of their own ---- */

__attribute__((format(printf, 1, 2))) static int ip(const char *format, ...)
{
	char command[256] = "ip ";
	va_list args;
	va_start(args, format);
	vsnprintf(command + 3, sizeof command - 3, format, args);
	va_end(args);
	return system(command) != 0;
}

const char *group_no_namespaces(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDERR_FILENO);
		_exit(unshare(CLONE_NEWNET) ? 1 : ip("link add cut0 type veth peer name cut1") ? 2 : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return "no process";
	return WEXITSTATUS(status) == 1   ? "it needs root, for network namespaces"
	       : WEXITSTATUS(status) == 2 ? "it needs `ip` (package iproute2) and veth devices"
					  : NULL;
}

static void await_carrier(const char *device)
{
	char command[64];
	snprintf(command, sizeof command, "ip link show %s | grep -q LOWER_UP", device);
	while (system(command))
		nap();
}

static int apart(struct run *r, int i)
{
	if (unshare(CLONE_NEWNET))
		return 1;
	atomic_store(&r->s->go[THIRD], true);
	while (!atomic_load(&r->s->wired))
		nap();
	if (ip("link set lo up") || ip("addr add 10.95.0.2/24 dev cut1") || ip("link set cut1 up"))
		return 1;
	await_carrier("cut1");
	r->nic = "udp:listen=cut1";
	return serves(r, i);
}

static int wire(struct run *r)
{
	while (!atomic_load(&r->s->go[THIRD]))
		nap();
	if (ip("link set lo up") || ip("link add cut0 type veth peer name cut1 netns %d", (int)r->pids[MEMBER]) ||
	    ip("addr add 10.95.0.1/24 dev cut0") || ip("link set cut0 up"))
		return 1;
	atomic_store(&r->s->wired, true);
	await_carrier("cut0");
	return 0;
}

static int cut_it(struct run *r)
{
	(void)r;
	return ip("link set cut0 down");
}

static int run_cut(const struct perf_opts *o, struct group_shared *s)
{
	struct run r = {.o = o, .s = s, .nic = "udp:listen=cut0", .security = "none", .group = {.listen_fd = -1}};
	if (unshare(CLONE_NEWNET))
		return 1;
	setenv("FAR_LOG", "error", 1); /* it warns of security=none */
	setenv("MASTER_ADDR", "10.95.0.1", 1);
	setenv("MASTER_PORT", "7095", 1);
	int rc = child(&r, MEMBER, apart) || wire(&r) || meet(&r) || detect(&r, cut_it);
	close_run(&r);
	return rc;
}

/* ---- a restart ---- */

static uint64_t calls_in_window(struct run *r, uint64_t *begun)
{
	uint64_t n = 0, until;
	*begun = floor_now();
	until = *begun + WINDOW_NS;
	while (floor_now() < until)
		n += calls(r) == FAR_OK;
	return n;
}

static int replacement(struct run *r, int i)
{
	(void)i;
	while (!atomic_load(&r->s->go[THIRD]))
		nap();
	return serves(r, MEMBER);
}

/* The member is killed and another process takes its name: until the first answer, and until the rate is what it was.
 */
static int run_restart(const struct perf_opts *o, struct group_shared *s)
{
	struct run r;
	double windows[20];
	uint64_t begun = 0;
	if (open_run(&r, o, s))
		return 1;
	r.apart = true;
	if (child(&r, MEMBER, serves) || child(&r, THIRD, replacement))
		return 1;
	/* Two processes that poll may share a CPU for seconds when other work has the next one: each call takes two
	 * time slices of spinning then, 50 us. */
	perf_pin(perf_cpu(0));
	spawn_env(&r.group, WATCHER);
	int rc = meet(&r);
	for (int i = 0; i < 20 && rc == 0; i++)
		windows[i] = (double)calls_in_window(&r, &begun);
	double before = rc ? 0 : perf_median(windows, 20);
	uint64_t from = floor_now();
	rc = rc || kill_it(&r);
	atomic_store(&s->go[THIRD], true);
	while (rc == 0 && calls(&r) == FAR_OK)
		;
	while (rc == 0 && calls(&r) != FAR_OK)
		;
	s->value[0] = (double)(floor_now() - from);
	while (rc == 0 && (double)calls_in_window(&r, &begun) < FULL * before)
		;
	s->value[1] = begun > from ? (double)(begun - from) : s->value[0];
	close_run(&r);
	return rc;
}

/* ---- calls of others while workers join, and what metrics and spans cost ---- */

/* Median and p99 of calls for that time. */
static int measure(struct run *r, uint64_t ns, double *p50, double *p99)
{
	static struct hist h; /* large for a stack */
	hist_reset(&h);
	for (uint64_t until = floor_now() + ns; floor_now() < until;) {
		uint64_t from = floor_now();
		if (calls(r))
			return peer_complain(r->o, &r->err);
		hist_record(&h, floor_now() - from);
	}
	*p50 = (double)hist_quantile(&h, 0.5);
	*p99 = (double)hist_quantile(&h, 0.99);
	return 0;
}

static int warm(struct run *r)
{
	int rc = 0;
	for (int i = 0; i < WARM && rc == 0; i++)
		rc = calls(r) ? peer_complain(r->o, &r->err) : 0;
	return rc;
}

static int load(const struct perf_opts *o, struct group_shared *s, bool joining)
{
	struct run r;
	double p50;
	if (open_run(&r, o, s) || child(&r, MEMBER, serves) || child(&r, THIRD, third))
		return 1;
	spawn_env(&r.group, WATCHER);
	int rc = meet(&r) || warm(&r);
	atomic_store(&s->churn, joining);
	while (rc == 0 && joining && !atomic_load(&s->joins))
		rc = calls(&r) ? peer_complain(o, &r.err) : 0;
	rc = rc || measure(&r, o->duration_ns, &p50, &s->value[0]);
	if (joining)
		s->value[1] = (double)atomic_load(&s->joins_ns) / (double)atomic_load(&s->joins);
	close_run(&r);
	return rc;
}

static int run_alone(const struct perf_opts *o, struct group_shared *s)
{
	return load(o, s, false);
}

static int run_joins(const struct perf_opts *o, struct group_shared *s)
{
	return load(o, s, true);
}

static void *reads_metrics(void *arg)
{
	struct run *r = arg;
	char *text;
	while (!atomic_load(&r->s->churn)) {
		if (far_metrics_text(r->agent, FAR_METRICS_PROMETHEUS, &text, NULL) == FAR_OK)
			far_metrics_free(text);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return NULL;
}

enum with { NOTHING, SAMPLES, SPANS, METRICS };

static int cost(const struct perf_opts *o, struct group_shared *s, enum with with)
{
	struct run r;
	struct far_profile *profile = NULL;
	pthread_t reader;
	setenv("FAR_METRICS_SAMPLE", with == NOTHING ? "0" : "64", 1);
	int rc = begin(&r, o, s, true) || warm(&r);
	if (rc == 0 && with == SPANS && far_profile_begin(NULL, &profile, &r.err))
		rc = peer_complain(o, &r.err);
	bool reads = rc == 0 && with == METRICS && pthread_create(&reader, NULL, reads_metrics, &r) == 0;
	rc = rc || measure(&r, o->duration_ns, &s->value[0], &s->value[1]);
	atomic_store(&s->churn, true);
	if (reads)
		pthread_join(reader, NULL);
	far_profile_free(profile);
	close_run(&r);
	return rc;
}

static int run_nothing(const struct perf_opts *o, struct group_shared *s)
{
	return cost(o, s, NOTHING);
}

static int run_samples(const struct perf_opts *o, struct group_shared *s)
{
	return cost(o, s, SAMPLES);
}

static int run_spans(const struct perf_opts *o, struct group_shared *s)
{
	return cost(o, s, SPANS);
}

static int run_metrics(const struct perf_opts *o, struct group_shared *s)
{
	return cost(o, s, METRICS);
}

const struct group_figure group_figures[] = {
	{"kill",
	 {"call", "member"},
	 "SIGKILL until a pending call ends, and until the member is lost",
	 run_kill,
	 false},
	{"stop", {"call", "member"}, "the same of SIGSTOP; the lease is 2 s", run_stop, false},
	{"cut", {"call", "member"}, "the same of a cable that is cut, over udp between namespaces", run_cut, true},
	{"restart",
	 {"answer", "full rate"},
	 "SIGKILL until another process with the name answers, and until the rate is 90 % again",
	 run_restart,
	 false},
	{"alone", {"p99"}, "calls of a member, while nobody joins", run_alone, false},
	{"joins",
	 {"p99", "join"},
	 "the same while a third worker joins and leaves all the time, and what its join takes",
	 run_joins,
	 false},
	{"nothing", {"p50", "p99"}, "calls without samples of latency", run_nothing, false},
	{"samples", {"p50", "p99"}, "calls with one in 64 sampled, the default", run_samples, false},
	{"spans", {"p50", "p99"}, "calls with a span each", run_spans, false},
	{"metrics", {"p50", "p99"}, "as samples, while metrics are read 100 times a second", run_metrics, false},
};
const unsigned group_figures_n = sizeof group_figures / sizeof *group_figures;
