/* SPDX-License-Identifier: BSD-3-Clause */
/** Runs scenarios and seeds in child processes and collects their verdicts. Main thread. */
#include "sim/runner.h"

#include "base/clock.h"
#include "base/must.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_NS UINT64_C(200000000)
#define SAVE_NS     UINT64_C(1000000000) /* between two states of a campaign */
/* A look at a child accounts for no more: what is beyond, this process stood still itself. */
#define LOOK_NS        UINT64_C(1000000000)
#define KEYWORDS_SHOWN 1500 /* last bytes of a run's stderr */
#define STATUS_BEGIN   3    /* exit status of a run that could not be begun */

/* The report of a child process: one write, which a pipe takes atomically. */
struct report {
	bool begun;
	char err[KEYWORDS_ERR_MAX];
	struct trial_verdict verdict;
};
_Static_assert(sizeof(struct report) <= 4096, "one write to a pipe");

struct child {
	pid_t pid;       /* 0: this place is free */
	uint64_t number; /* of the run */
	unsigned scenario;
	uint64_t seed;
	uint64_t cpu_ns, looked; /* at the last look: CPU time, and when that was */
	uint64_t asleep_ns;      /* since it used CPU time */
	const char *overdue;     /* what it did for too long; NULL: it goes on */
	int verdict_fd, words_fd;
};

struct running {
	const struct runner *r;
	struct child *children; /* [r->jobs] */
	uint64_t next, all;     /* runs: next to be started, in all */
	uint64_t done, failed, virtual_ns, calls;
	unsigned alive;
	uint64_t began, shown, saved;
	int signal_fd, signal;
	bool terminal;
	FILE *failures;
};

static uint64_t real_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- a child ---- */

static void child_streams(const struct runner *r, int words_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	must(null >= 0);
	dup2(null, STDIN_FILENO);
	if (!r->trace)
		dup2(null, STDOUT_FILENO);
	dup2(words_fd, STDERR_FILENO);
}

_Noreturn static void child_main(const struct runner *r, const struct child *c, const sigset_t *mask)
{
	struct report report = {0};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* of the terminal: the parent ends us */
	sigprocmask(SIG_SETMASK, mask, NULL);
	child_streams(r, c->words_fd);
	report.begun = r->trial(&r->scenarios[c->scenario], c->seed, r->trace ? stdout : NULL, r->hashes,
				&report.verdict, report.err);
	if (r->trace)
		fflush(stdout);
	bool written = write(c->verdict_fd, &report, sizeof report) == (ssize_t)sizeof report;
	/* The sanitizers' look for leaks is part of the run. */
	exit(!written ? EXIT_FAILURE : report.begun ? 0 : STATUS_BEGIN);
}

static bool runs_left(const struct running *a)
{
	return a->r->campaign ? campaign_left(a->r->campaign) : a->next < a->all;
}

static bool child_start(struct running *a, struct child *c, const sigset_t *mask)
{
	int ends[2];
	const struct runner *r = a->r;
	c->number = a->next;
	if (r->campaign && !campaign_take(r->campaign, &c->number))
		return false;
	c->scenario = (unsigned)(c->number % r->scenarios_n);
	c->seed = r->from + c->number / r->scenarios_n;
	c->cpu_ns = c->asleep_ns = 0;
	c->overdue = NULL;
	c->words_fd = memfd_create("farcall-sim", MFD_CLOEXEC);
	if (c->words_fd < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		goto failed;
	fflush(stdout);
	c->pid = fork();
	if (c->pid == 0) {
		close(ends[0]);
		c->verdict_fd = ends[1];
		child_main(r, c, mask);
	}
	close(ends[1]);
	c->verdict_fd = ends[0];
	if (c->pid < 0) {
		c->pid = 0;
		close(ends[0]);
		goto failed;
	}
	c->looked = real_ns();
	a->next++;
	a->alive++;
	return true;
failed:
	if (c->words_fd >= 0)
		close(c->words_fd);
	if (r->campaign)
		campaign_untake(r->campaign, c->number);
	return false;
}

/* ---- what came of it ---- */

static void print_failure(FILE *f, const struct runner *r, const struct child *c, const char *checker, const char *text)
{
	fprintf(f, "FAIL %s, seed %" PRIu64 ": %s: %s\n", r->names[c->scenario], c->seed, checker, text);
}

static void print_repeat_command(FILE *f, const struct runner *r, const struct child *c)
{
	fprintf(f, "  repeat: farcall sim --scenario '%s' --from %" PRIu64 " --seeds 1%s\n", r->names[c->scenario],
		c->seed, r->repeat_more);
}

/* The stderr of the run, indented. */
static void say_words(FILE *f, const struct child *c)
{
	char words[KEYWORDS_SHOWN + 1];
	off_t size = lseek(c->words_fd, 0, SEEK_END), from = size > KEYWORDS_SHOWN ? size - KEYWORDS_SHOWN : 0;
	ssize_t n = pread(c->words_fd, words, KEYWORDS_SHOWN, from);
	if (n <= 0)
		return;
	words[n] = '\0';
	for (char *line = strtok(words, "\n"); line; line = strtok(NULL, "\n"))
		fprintf(f, "  | %s\n", line);
}

static void fail(struct running *a, const struct child *c, const char *checker, const char *text,
		 const struct trial_verdict *v)
{
	const struct runner *r = a->r;
	FILE *to[2] = {r->json ? stderr : stdout, NULL};
	bool more = r->campaign && r->campaign->resumed;
	if (!a->failures && r->failures_file && !(a->failures = fopen(r->failures_file, more ? "a" : "w")))
		fprintf(stderr, "farcall sim: cannot write %s: %s\n", r->failures_file, strerror(errno));
	to[1] = a->failures;
	a->failed++;
	if (a->terminal)
		fprintf(stderr, "\r\033[K");
	for (unsigned i = 0; i < 2 && to[i]; i++) {
		if (!v)
			print_failure(to[i], r, c, checker, text);
		for (unsigned k = 0; v && k < v->failures_n && k < TRIAL_FAILURES; k++)
			print_failure(to[i], r, c, checker_names[v->failures[k].checker], v->failures[k].text);
		say_words(to[i], c);
		print_repeat_command(to[i], r, c);
		fflush(to[i]);
	}
}

/* `text` NULL: the first objection in the verdict, if there is one. */
static void count(struct running *a, const struct child *c, const struct trial_verdict *v, const char *checker,
		  const char *text)
{
	char failure[CHECK_TEXT_MAX + 32];
	if (!a->r->campaign)
		return;
	if (!checker && v && v->failures_n) {
		checker = checker_names[v->failures[0].checker];
		text = v->failures[0].text;
	}
	if (checker)
		snprintf(failure, sizeof failure, "%s: %s", checker, text);
	campaign_count(a->r->campaign, c->number, v, checker ? failure : NULL);
}

static void judge(struct running *a, const struct child *c, int status)
{
	struct report report;
	char text[KEYWORDS_ERR_MAX] = "";
	const char *checker = NULL;
	ssize_t n = read(c->verdict_fd, &report, sizeof report);
	bool reported = n == (ssize_t)sizeof report;
	if (a->r->trace && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) {
		a->signal = SIGPIPE; /* the reader of the trace has enough: no failure of the run */
		return;
	}
	if (c->overdue) {
		snprintf(text, sizeof text, "it %s for %" PRIu64 " s", c->overdue, a->r->limit_ns / 1000000000);
		checker = "watchdog";
	} else if (WIFSIGNALED(status)) {
		snprintf(text, sizeof text, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
		checker = "crash";
	} else if (reported && !report.begun) {
		snprintf(text, sizeof text, "%s", report.err);
		checker = "begin";
	} else if (reported && report.verdict.failures_n) {
		fail(a, c, NULL, NULL, &report.verdict);
	} else if (!reported || WEXITSTATUS(status)) {
		snprintf(text, sizeof text, "it ended with status %d", WEXITSTATUS(status));
		checker = "crash";
	}
	if (checker)
		fail(a, c, checker, text, NULL);
	count(a, c, reported ? &report.verdict : NULL, checker, text);
	if (reported && a->r->hashes)
		printf("%s %" PRIu64 " %s\n", a->r->names[c->scenario], c->seed, report.verdict.hash);
	if (reported) {
		a->virtual_ns += report.verdict.virtual_ns;
		a->calls += report.verdict.calls;
	}
}

static void reap(struct running *a)
{
	int status;
	for (unsigned i = 0; i < a->r->jobs; i++) {
		struct child *c = &a->children[i];
		if (!c->pid || waitpid(c->pid, &status, WNOHANG) != c->pid)
			continue;
		if (!a->signal) {
			judge(a, c, status);
			a->done++;
		}
		close(c->verdict_fd);
		close(c->words_fd);
		c->pid = 0;
		a->alive--;
	}
}

static void kill_all(struct running *a)
{
	for (unsigned i = 0; i < a->r->jobs; i++)
		if (a->children[i].pid)
			kill(a->children[i].pid, SIGKILL);
}

static uint64_t cpu_ns(pid_t pid)
{
	clockid_t clock;
	struct timespec t = {0};
	if (clock_getcpuclockid(pid, &clock) == 0)
		clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Does it wait for something, rather than for a CPU, a page or SIGCONT. */
static bool is_asleep(pid_t pid)
{
	char path[64], text[128];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	const char *state = strrchr(text, ')');
	return state && strncmp(state, ") S", 3) == 0;
}

/* A run has so much CPU time, whatever else the machine does: one that is stopped, or gets no CPU, is not late. Nothing
 * in it sleeps. */
static const char *overdue(struct child *c, uint64_t now, uint64_t limit_ns)
{
	uint64_t cpu = cpu_ns(c->pid), passed = now - c->looked < LOOK_NS ? now - c->looked : LOOK_NS;
	c->asleep_ns = cpu == c->cpu_ns && is_asleep(c->pid) ? c->asleep_ns + passed : 0;
	c->cpu_ns = cpu;
	c->looked = now;
	return cpu >= limit_ns ? "used the CPU" : c->asleep_ns >= limit_ns ? "slept" : NULL;
}

static void watch(struct running *a, uint64_t now)
{
	for (unsigned i = 0; i < a->r->jobs; i++) {
		struct child *c = &a->children[i];
		if (c->pid && !c->overdue && (c->overdue = overdue(c, now, a->r->limit_ns)))
			kill(c->pid, SIGKILL);
	}
}

static void progress(struct running *a, uint64_t now)
{
	double seconds = (double)(now - a->began) / 1e9;
	if (!a->terminal || now - a->shown < PROGRESS_NS)
		return;
	a->shown = now;
	fprintf(stderr, "\r\033[K%" PRIu64 "/%" PRIu64 " runs, %" PRIu64 " failed, %.1f seeds/s", a->done, a->all,
		a->failed, seconds > 0 ? (double)a->done / a->r->scenarios_n / seconds : 0);
}

/* ---- all of them ---- */

static void take_signals(struct running *a)
{
	struct signalfd_siginfo info;
	while (read(a->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		a->signal = (int)info.ssi_signo;
		kill_all(a);
	}
	reap(a);
}

static int start_some(struct running *a, const sigset_t *mask)
{
	for (unsigned i = 0; i < a->r->jobs && runs_left(a) && !a->signal; i++)
		if (!a->children[i].pid && !child_start(a, &a->children[i], mask)) {
			if (a->alive)
				return 0; /* when one has ended */
			fprintf(stderr, "farcall sim: cannot start a process: %s\n", strerror(errno));
			return -1;
		}
	return 0;
}

/* A campaign whose state cannot be kept ends: what it did would be lost. */
static int save(struct running *a, uint64_t now)
{
	int error = a->r->campaign ? campaign_save(a->r->campaign) : 0;
	a->saved = now;
	if (error)
		fprintf(stderr, "farcall sim: cannot write the state file %s: %s\n", a->r->campaign->path,
			strerror(-error));
	if (error)
		kill_all(a);
	return error;
}

static int loop(struct running *a, const sigset_t *mask)
{
	while ((runs_left(a) && !a->signal) || a->alive) {
		struct pollfd p = {a->signal_fd, POLLIN, 0};
		if (start_some(a, mask) < 0)
			return 1;
		poll(&p, 1, 100);
		take_signals(a);
		uint64_t now = real_ns();
		watch(a, now);
		progress(a, now);
		if (now - a->saved >= SAVE_NS && save(a, now) < 0)
			return 1;
	}
	if (save(a, real_ns()) < 0)
		return 1;
	uint64_t failed = a->r->campaign ? campaign_failed(a->r->campaign) : a->failed;
	return a->signal ? 128 + a->signal : failed ? 1 : 0;
}

static void summary(const struct running *a)
{
	const struct runner *r = a->r;
	double seconds = (double)(real_ns() - a->began) / 1e9;
	if (a->terminal)
		fprintf(stderr, "\r\033[K");
	if (r->trace && !a->failed && !a->signal)
		return;
	if (r->campaign && r->json) {
		campaign_print_json(r->campaign, stdout, r->repeat_more, seconds, a->signal);
		return;
	}
	if (r->campaign)
		campaign_print(r->campaign, stdout, r->repeat_more);
	if (a->signal)
		printf("interrupted by signal %d: ", a->signal);
	uint64_t done = r->campaign ? campaign_done(r->campaign) : a->done;
	uint64_t failed = r->campaign ? campaign_failed(r->campaign) : a->failed;
	printf("%" PRIu64 " of %" PRIu64 " runs done, %" PRIu64 " failed: %u scenario%s, seeds %" PRIu64 " to %" PRIu64
	       "; %s%" PRIu64 " calls in %.1f s of virtual time, %.1f s of real time\n",
	       done, a->all, failed, r->scenarios_n, r->scenarios_n == 1 ? "" : "s", r->from,
	       r->from + (a->all - 1) / r->scenarios_n, r->campaign ? "this process made " : "", a->calls,
	       (double)a->virtual_ns / 1e9, seconds);
	if (r->campaign && done < a->all)
		printf("the same command goes on from %s\n", r->campaign->path);
	if (a->failures)
		printf("what failed is in %s\n", r->failures_file);
}

int runner_run(const struct runner *r)
{
	struct running a = {.r = r,
			    .all = r->campaign ? r->campaign->runs : r->seeds * r->scenarios_n,
			    .terminal = isatty(STDERR_FILENO)};
	sigset_t caught, before;
	int rc = 1;
	a.children = calloc(r->jobs, sizeof *a.children);
	sigemptyset(&caught);
	sigaddset(&caught, SIGCHLD);
	sigaddset(&caught, SIGINT);
	sigaddset(&caught, SIGTERM);
	sigaddset(&caught, SIGHUP);
	sigprocmask(SIG_BLOCK, &caught, &before);
	a.signal_fd = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
	a.began = a.saved = real_ns();
	if (a.children && a.signal_fd >= 0) {
		rc = loop(&a, &before);
		summary(&a);
	} else {
		fprintf(stderr, "farcall sim: cannot begin: %s\n", strerror(errno));
	}
	if (a.failures)
		fclose(a.failures);
	if (a.signal_fd >= 0)
		close(a.signal_fd);
	free(a.children);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}
