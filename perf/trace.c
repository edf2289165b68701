/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `farcall perf trace`: round trips above a limit, and what the time went into. The measuring thread.
 *
 * The reply has the times at which the handler began and ended. The counters of the system are read every LOOK_NS and
 * behind each outlier (a look), so that what they show happened in the outlier or shortly before it.
 */
#include "agent/agent.h"
#include "peer.h"
#include "quiet.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS   UINT64_C(1000000)
#define WARM_NS   UINT64_C(200000000)
#define SPIN_EACH 1024 /* one call of so many spins, with --spin */
#define IRQS_MAX  256
#define KEPT_MAX  64 /* outliers in the object; the table has TABLE_MAX of them */
#define TABLE_MAX 20
#define PARTS     10 /* of the time, each with a median: their spread is the noise */

enum side { CALLER, SERVER, SIDES };
static const char *const side_names[] = {"caller", "server"};

enum cause { STOPPED, SWITCHED, HANDLER, STEAL, FAULTS, INTERRUPTS, UNEXPLAINED, CAUSES };
static const char *const cause_names[] = {"stopped",     "context switch", "handler",    "steal",
					  "page faults", "interrupts",     "unexplained"};

/* Counters of one thread. Each reads its own CPU time: that of a running thread is up to a tick late for others. */
struct thread_look {
	uint64_t at_ns, run_ns, wait_ns; /* wait: ready, while another thread had the CPU */
	uint64_t faults, switches;       /* switches: involuntary ones */
	uint64_t sleeps;                 /* voluntary ones */
};

/* The counters of the machine take some 100 us to read, so those of the threads are read before and behind them. */
struct look {
	struct thread_look end[SIDES];   /* of what was before the look */
	struct thread_look begin[SIDES]; /* of what follows it */
	uint64_t steal_ns;
	unsigned irqs_n;
	uint64_t irqs[IRQS_MAX]; /* of the CPUs of the two threads, by line of /proc/interrupts */
};

struct outlier {
	uint64_t at_ns; /* since the begin of the measurement */
	uint64_t ns, request_ns, handler_ns, reply_ns;
	enum cause cause;
	char evidence[80];
};

struct trace {
	const struct perf_opts *o;
	struct peer peer;
	struct hist calls, part; /* of all; of the present of PARTS parts of the time */
	double medians[PARTS];
	unsigned medians_n;
	struct look last;
	char irq_names[IRQS_MAX][16];
	bool cpu[CPU_SETSIZE]; /* whose interrupts are counted */
	uint64_t sent, begun_ns;
	bool recorded; /* the present calls */
	uint64_t counts[CAUSES], lost_ns[CAUSES];
	struct outlier longest[KEPT_MAX]; /* longest first */
	unsigned longest_n;

	/* of the call in flight */
	bool done;
	enum far_status status;
	struct server_stamp stamp;
	struct far_err err;
};

/* ---- counters of the system ---- */

/* Without stdio, whose memory would add page faults. */
static ssize_t read_file(const char *path, char *text, size_t bytes)
{
	size_t used = 0;
	ssize_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (used < bytes - 1 && (n = read(fd, text + used, bytes - 1 - used)) > 0)
		used += (size_t)n;
	close(fd);
	text[used] = 0;
	return n < 0 ? -errno : (ssize_t)used;
}

static uint64_t number_after(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void look_at_thread(const struct trace *t, enum side side, struct thread_look *l)
{
	char path[64], text[4096];
	unsigned long long run, wait, minor = 0, major = 0;
	int pid = side == SERVER ? (int)t->peer.pids[0] : (int)getpid();
	if (side == SERVER)
		*l = (struct thread_look){.at_ns = t->stamp.begun_ns, .run_ns = t->stamp.run_ns};
	else
		*l = (struct thread_look){.at_ns = floor_now(), .run_ns = floor_clock(CLOCK_THREAD_CPUTIME_ID)};
	snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", pid, pid);
	if (read_file(path, text, sizeof text) > 0 && sscanf(text, "%llu %llu", &run, &wait) == 2)
		l->wait_ns = wait;
	snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, pid);
	if (read_file(path, text, sizeof text) > 0) {
		l->switches = number_after(text, "\nnonvoluntary_ctxt_switches:");
		/* The server's own count: it may have been stopped since its stamp. */
		l->sleeps = side == SERVER ? t->stamp.sleeps : number_after(text, "\nvoluntary_ctxt_switches:");
	}
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, pid);
	const char *end = read_file(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
	if (end && sscanf(end, ") %*c %*d %*d %*d %*d %*d %*u %llu %*u %llu", &minor, &major) == 2)
		l->faults = minor + major;
}

/* Lines of /proc/interrupts: the name, one count for each CPU that is online, the description. */
static void look_at_interrupts(struct trace *t, struct look *l)
{
	static char text[1 << 18];
	int column[CPU_SETSIZE], columns = 0, used;
	char *save = NULL;
	if (read_file("/proc/interrupts", text, sizeof text) <= 0)
		return;
	char *line = strtok_r(text, "\n", &save);
	for (const char *p = line; p && columns < CPU_SETSIZE && sscanf(p, " CPU%d%n", &column[columns], &used) == 1;
	     p += used)
		columns++;
	while ((line = strtok_r(NULL, "\n", &save)) && l->irqs_n < IRQS_MAX) {
		char *p = strchr(line, ':');
		if (!p)
			continue;
		*p++ = 0;
		snprintf(t->irq_names[l->irqs_n], sizeof t->irq_names[0], "%s", line + strspn(line, " "));
		for (int i = 0; i < columns; i++) {
			uint64_t n = strtoull(p, &p, 10);
			if (column[i] >= 0 && column[i] < CPU_SETSIZE && t->cpu[column[i]])
				l->irqs[l->irqs_n] += n;
		}
		l->irqs_n++;
	}
}

/* ---- calls ---- */

static void on_reply(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	struct trace *t = user;
	t->status = status;
	if (status != FAR_OK)
		t->err = *err;
	else if (len == sizeof t->stamp)
		memcpy(&t->stamp, data, sizeof t->stamp);
	t->done = true;
}

/* Polls while it waits: a thread that sleeps would wait for its own wake-up, too. */
static int call(struct trace *t, const struct server_stamp_request *q, uint64_t *before, uint64_t *after)
{
	struct far_agent *agent = t->peer.agent;
	t->done = false;
	*before = floor_now();
	if (far_msg_send(agent, peer_to(&t->peer, 0), SERVER_STAMP, q, sizeof *q, NULL, on_reply, t, &t->err) != FAR_OK)
		return peer_complain(t->o, &t->err);
	while (!t->done)
		far_shard_poll(agent);
	*after = floor_now();
	if (t->status != FAR_OK)
		return peer_complain(t->o, &t->err);
	return 0;
}

static int look_at_threads(struct trace *t, struct thread_look side[SIDES], uint64_t *before, uint64_t *after)
{
	if (call(t, &(struct server_stamp_request){.look = 1}, before, after))
		return 1;
	look_at_thread(t, SERVER, &side[SERVER]);
	look_at_thread(t, CALLER, &side[CALLER]);
	return 0;
}

static int look_at_rest(struct trace *t, struct look *l)
{
	uint64_t machine, before, after;
	l->irqs_n = 0;
	memset(l->irqs, 0, sizeof l->irqs);
	quiet_machine(&machine, &l->steal_ns);
	look_at_interrupts(t, l);
	return look_at_threads(t, l->begin, &before, &after);
}

/* ---- causes ---- */

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * Does one part, as the system has measured it, take at least half of `excess`: the one that took most of `x`. Some of
 * it may have been in a look. While the handler runs it does not matter where the caller is.
 */
static bool measured_cause(struct outlier *x, const struct look *was, const struct look *is, uint64_t excess)
{
	const uint64_t limits[SIDES] = {[CALLER] = less(x->ns, x->handler_ns), [SERVER] = x->ns};
	uint64_t most = 0, away = 0;
	for (enum side i = CALLER; i < SIDES; i++) {
		const struct thread_look *a = &was->begin[i], *b = &is->end[i];
		uint64_t wait = less(b->wait_ns, a->wait_ns);
		uint64_t off = at_most(less(b->at_ns - a->at_ns, b->run_ns - a->run_ns + wait), limits[i]);
		wait = at_most(wait, limits[i]);
		if (off > most) {
			most = off;
			/* Who neither runs nor waits for a CPU has left it, or had a CPU that the host had taken. */
			x->cause = b->sleeps > a->sleeps ? STOPPED : STEAL;
			snprintf(x->evidence, sizeof x->evidence, "%s did not run for %.1f us", side_names[i],
				 (double)off / 1e3);
		}
		if (wait > most) {
			most = wait;
			x->cause = SWITCHED;
			snprintf(x->evidence, sizeof x->evidence, "%s ready for %.1f us, %" PRIu64 " involuntary",
				 side_names[i], (double)wait / 1e3, b->switches - a->switches);
		}
		away = wait + off; /* of SERVER, behind the loop */
	}
	if (less(x->handler_ns, away) > most) {
		most = less(x->handler_ns, away);
		x->cause = HANDLER;
		snprintf(x->evidence, sizeof x->evidence, "the handler ran for %.1f us", (double)most / 1e3);
	}
	return most && 2 * most >= excess;
}

/* What happened meanwhile, without a time of its own. */
static void counted_cause(const struct trace *t, struct outlier *x, const struct look *was, const struct look *is)
{
	uint64_t faults[SIDES], most = 0, all = 0;
	unsigned top = 0;
	for (enum side i = CALLER; i < SIDES; i++)
		faults[i] = is->end[i].faults - was->begin[i].faults;
	for (unsigned i = 0; i < is->irqs_n && i < was->irqs_n; i++) {
		uint64_t n = less(is->irqs[i], was->irqs[i]);
		all += n;
		if (n > most) {
			most = n;
			top = i;
		}
	}
	if (is->steal_ns > was->steal_ns) {
		x->cause = STEAL;
		snprintf(x->evidence, sizeof x->evidence, "the host took %.0f ms",
			 (double)(is->steal_ns - was->steal_ns) / 1e6);
	} else if (faults[CALLER] || faults[SERVER]) {
		x->cause = FAULTS;
		snprintf(x->evidence, sizeof x->evidence, "caller %" PRIu64 ", server %" PRIu64, faults[CALLER],
			 faults[SERVER]);
	} else if (all) {
		x->cause = INTERRUPTS;
		snprintf(x->evidence, sizeof x->evidence, "%" PRIu64 " on the two CPUs, %" PRIu64 " of them %s", all,
			 most, t->irq_names[top]);
	} else {
		x->cause = UNEXPLAINED;
		x->evidence[0] = 0;
	}
}

static void keep(struct trace *t, const struct outlier *x)
{
	unsigned i = t->longest_n;
	if (i == KEPT_MAX && x->ns <= t->longest[--i].ns)
		return;
	t->longest_n = i + 1;
	for (; i > 0 && t->longest[i - 1].ns < x->ns; i--)
		t->longest[i] = t->longest[i - 1];
	t->longest[i] = *x;
}

/* A look, which explains the call between `before` and `after`, or else its own one, if that took too long. */
static int look(struct trace *t, uint64_t before, uint64_t after)
{
	static struct look now;
	uint64_t own[2], limit = t->o->limit_ns;
	struct server_stamp stamp = t->stamp;
	if (look_at_threads(t, now.end, &own[0], &own[1]))
		return 1;
	if (after - before <= limit) {
		before = own[0], after = own[1];
		stamp = t->stamp;
	}
	if (look_at_rest(t, &now))
		return 1;
	if (after - before > limit && t->recorded) {
		uint64_t ns = after - before, excess = less(ns, hist_quantile(&t->calls, 0.5));
		if (excess < ns / 4) /* usual round trips are near the limit */
			excess = ns / 4;
		struct outlier x = {.at_ns = before - t->begun_ns,
				    .ns = after - before,
				    .request_ns = less(stamp.begun_ns, before),
				    .handler_ns = less(stamp.ended_ns, stamp.begun_ns),
				    .reply_ns = less(after, stamp.ended_ns)};
		if (!measured_cause(&x, &t->last, &now, excess))
			counted_cause(t, &x, &t->last, &now);
		hist_record(&t->calls, x.ns);
		t->counts[x.cause]++;
		t->lost_ns[x.cause] += excess;
		keep(t, &x);
	}
	t->last = now;
	return 0;
}

/* ---- the measurement ---- */

static void end_part(struct trace *t)
{
	if (t->part.count && t->medians_n < PARTS)
		t->medians[t->medians_n++] = (double)hist_quantile(&t->part, 0.5);
	hist_reset(&t->part);
}

static int run(struct trace *t, uint64_t ns, bool recorded)
{
	const struct server_stamp_request plain = {0}, spinning = {.spin_ns = t->o->spin_ns};
	uint64_t before, after = floor_now(), looked = 0;
	uint64_t part_end = after + ns / PARTS;
	t->begun_ns = after;
	t->recorded = recorded;
	if (look(t, 0, 0))
		return 1;
	while (after - t->begun_ns < ns) {
		if (recorded && after >= part_end) {
			end_part(t);
			part_end = after + ns / PARTS;
		}
		bool spins = recorded && ++t->sent % SPIN_EACH == 0;
		bool fresh = looked >= after; /* the look has emptied the caches: not recorded, if it is no outlier */
		if (call(t, spins ? &spinning : &plain, &before, &after))
			return 1;
		bool outlier = after - before > t->o->limit_ns;
		if (recorded && !outlier && !fresh) {
			hist_record(&t->calls, after - before);
			hist_record(&t->part, after - before);
		}
		if (!outlier && after - looked < LOOK_NS)
			continue;
		if (look(t, before, after))
			return 1;
		looked = floor_now();
	}
	if (recorded)
		end_part(t);
	return 0;
}

static uint64_t outliers(const struct trace *t)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < CAUSES; i++)
		n += t->counts[i];
	return n;
}

static void print_table(const struct trace *t, const char *nic, double noise)
{
	FILE *out = perf_human(t->o);
	const struct hist *h = &t->calls;
	fprintf(out, "%s: message API, nic %s, %" PRIu64 " calls\n", t->o->what, nic, h->count);
	fprintf(out, "%10s %10s %10s %10s us\n%10.2f %10.2f %10.2f %10.2f\n", "p50", "p99", "p99.9", "max",
		(double)hist_quantile(h, 0.5) / 1e3, (double)hist_quantile(h, 0.99) / 1e3,
		(double)hist_quantile(h, 0.999) / 1e3, (double)h->max / 1e3);
	fprintf(out, "noise %s (spread of the medians of %u parts)\n", perf_noise_text(noise).text, t->medians_n);
	fprintf(out, "%" PRIu64 " round trips above %.0f us\n", outliers(t), (double)t->o->limit_ns / 1e3);
	if (!t->longest_n)
		return;
	fprintf(out, "%-16s %10s %12s\n", "cause", "outliers", "us in all");
	for (unsigned i = 0; i < CAUSES; i++)
		if (t->counts[i])
			fprintf(out, "%-16s %10" PRIu64 " %12.1f\n", cause_names[i], t->counts[i],
				(double)t->lost_ns[i] / 1e3);
	fprintf(out, "the longest:\n%10s %10s %10s %10s %10s  %s\n", "at ms", "us", "request", "handler", "reply",
		"cause");
	for (unsigned i = 0; i < t->longest_n && i < TABLE_MAX; i++) {
		const struct outlier *x = &t->longest[i];
		fprintf(out, "%10.1f %10.1f %10.1f %10.1f %10.1f  %s%s%s\n", (double)x->at_ns / 1e6,
			(double)x->ns / 1e3, (double)x->request_ns / 1e3, (double)x->handler_ns / 1e3,
			(double)x->reply_ns / 1e3, cause_names[x->cause], *x->evidence ? ": " : "", x->evidence);
	}
}

static void print_json(const struct trace *t, const char *nic, double noise)
{
	struct json j;
	const struct hist *h = &t->calls;
	json_begin(&j, stdout);
	json_string(&j, "measurement", "trace");
	json_string(&j, "nic", nic);
	json_u64(&j, "p50_ns", hist_quantile(h, 0.5));
	json_u64(&j, "p99_ns", hist_quantile(h, 0.99));
	json_u64(&j, "p999_ns", hist_quantile(h, 0.999));
	json_u64(&j, "max_ns", h->max);
	json_double(&j, "noise", noise);
	json_u64(&j, "calls", h->count);
	json_double(&j, "seconds", (double)t->o->duration_ns / 1e9);
	json_u64(&j, "limit_ns", t->o->limit_ns);
	json_u64(&j, "outliers", outliers(t));
	json_array(&j, "causes");
	for (unsigned i = 0; i < CAUSES; i++) {
		json_object(&j, NULL);
		json_string(&j, "cause", cause_names[i]);
		json_u64(&j, "outliers", t->counts[i]);
		json_u64(&j, "ns", t->lost_ns[i]);
		json_close(&j);
	}
	json_close(&j);
	json_array(&j, "longest");
	for (unsigned i = 0; i < t->longest_n; i++) {
		const struct outlier *x = &t->longest[i];
		json_object(&j, NULL);
		json_u64(&j, "at_ns", x->at_ns);
		json_u64(&j, "ns", x->ns);
		json_u64(&j, "request_ns", x->request_ns);
		json_u64(&j, "handler_ns", x->handler_ns);
		json_u64(&j, "reply_ns", x->reply_ns);
		json_string(&j, "cause", cause_names[x->cause]);
		json_string(&j, "evidence", x->evidence);
		json_close(&j);
	}
	json_close(&j);
	json_end(&j);
}

static void choose_cpus(struct trace *t)
{
	for (unsigned i = 0; i < SIDES; i++)
		if (perf_cpu(i) >= 0)
			t->cpu[perf_cpu(i)] = true;
	if (perf_cpu(0) < 0) /* nothing is pinned */
		memset(t->cpu, true, sizeof t->cpu);
}

int perf_trace(const struct perf_opts *o)
{
	static struct trace t; /* large for a stack */
	struct far_worker_info info = {.nic = "?"};
	t.o = o;
	choose_cpus(&t);
	int rc = peer_open(&t.peer, o);
	if (rc)
		return rc;
	rc = run(&t, WARM_NS, false);
	if (rc == 0)
		rc = run(&t, o->duration_ns, true);
	if (rc == 0) {
		double noise = perf_noise(t.medians, t.medians_n);
		far_worker_by_rank(t.peer.agent, t.peer.to.worker, &info, NULL);
		print_table(&t, info.nic, noise);
		if (o->json)
			print_json(&t, info.nic, noise);
	}
	int close_rc = peer_close(&t.peer, o);
	return rc ? rc : close_rc;
}
