/* SPDX-License-Identifier: BSD-3-Clause */
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

#define PROGRESS_NS  UINT64_C(200000000)
#define WORDS_SHOWN  1500 /* bytes of what a run said last on stderr */
#define STATUS_BEGIN 3    /* exit status of a run that could not be begun */

/* What a child tells before it ends: one write, which a pipe takes as a whole. */
struct told {
	bool begun;
	char err[WORDS_ERR_MAX];
	struct trial_verdict verdict;
};
_Static_assert(sizeof(struct told) <= 4096, "one write to a pipe");

struct child {
	pid_t pid; /* 0: this place is free */
	unsigned scenario;
	uint64_t seed, until;
	bool overdue;
	int verdict_fd, words_fd;
};

struct running {
	const struct runner *r;
	struct child *children; /* [r->jobs] */
	uint64_t next, all;     /* runs: next to be started, in all */
	uint64_t done, failed, virtual_ns, calls;
	unsigned alive;
	uint64_t began, shown;
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
	struct told told = {0};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* of the terminal: the parent ends us */
	sigprocmask(SIG_SETMASK, mask, NULL);
	child_streams(r, c->words_fd);
	told.begun = r->trial(&r->scenarios[c->scenario], c->seed, r->trace ? stdout : NULL, &told.verdict, told.err);
	if (r->trace)
		fflush(stdout);
	bool written = write(c->verdict_fd, &told, sizeof told) == (ssize_t)sizeof told;
	/* The sanitizers' look for leaks is part of the run. */
	exit(!written ? EXIT_FAILURE : told.begun ? 0 : STATUS_BEGIN);
}

static bool child_start(struct running *a, struct child *c, const sigset_t *mask)
{
	int ends[2];
	const struct runner *r = a->r;
	c->scenario = (unsigned)(a->next % r->scenarios_n);
	c->seed = r->from + a->next / r->scenarios_n;
	c->overdue = false;
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
	c->until = time_after(real_ns(), r->limit_ns);
	a->next++;
	a->alive++;
	return true;
failed:
	if (c->words_fd >= 0)
		close(c->words_fd);
	return false;
}

/* ---- what came of it ---- */

static void say_failure(FILE *f, const struct runner *r, const struct child *c, const char *checker, const char *text)
{
	fprintf(f, "FAIL %s, seed %" PRIu64 ": %s: %s\n", r->names[c->scenario], c->seed, checker, text);
}

static void say_repeat(FILE *f, const struct runner *r, const struct child *c)
{
	fprintf(f, "  repeat: farcall sim --scenario '%s' --from %" PRIu64 " --seeds 1%s\n", r->names[c->scenario],
		c->seed, r->repeat_more);
}

/* What the run said, indented. */
static void say_words(FILE *f, const struct child *c)
{
	char words[WORDS_SHOWN + 1];
	off_t size = lseek(c->words_fd, 0, SEEK_END), from = size > WORDS_SHOWN ? size - WORDS_SHOWN : 0;
	ssize_t n = pread(c->words_fd, words, WORDS_SHOWN, from);
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
	FILE *to[2] = {stdout, NULL};
	if (!a->failures && r->failures_file && !(a->failures = fopen(r->failures_file, "w")))
		fprintf(stderr, "farcall sim: cannot write %s: %s\n", r->failures_file, strerror(errno));
	to[1] = a->failures;
	a->failed++;
	if (a->terminal)
		fprintf(stderr, "\r\033[K");
	for (unsigned i = 0; i < 2 && to[i]; i++) {
		if (!v)
			say_failure(to[i], r, c, checker, text);
		for (unsigned k = 0; v && k < v->failures_n && k < TRIAL_FAILURES; k++)
			say_failure(to[i], r, c, checker_names[v->failures[k].checker], v->failures[k].text);
		say_words(to[i], c);
		say_repeat(to[i], r, c);
		fflush(to[i]);
	}
}

static void judge(struct running *a, const struct child *c, int status)
{
	struct told told;
	char text[128];
	ssize_t n = read(c->verdict_fd, &told, sizeof told);
	bool heard = n == (ssize_t)sizeof told;
	if (c->overdue) {
		snprintf(text, sizeof text, "it did not end within %" PRIu64 " s of real time",
			 a->r->limit_ns / 1000000000);
		fail(a, c, "watchdog", text, NULL);
	} else if (WIFSIGNALED(status)) {
		snprintf(text, sizeof text, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
		fail(a, c, "crash", text, NULL);
	} else if (heard && !told.begun) {
		fail(a, c, "begin", told.err, NULL);
	} else if (heard && told.verdict.failures_n) {
		fail(a, c, NULL, NULL, &told.verdict);
	} else if (!heard || WEXITSTATUS(status)) {
		snprintf(text, sizeof text, "it ended with status %d", WEXITSTATUS(status));
		fail(a, c, "crash", text, NULL);
	}
	if (heard && a->r->hashes)
		printf("%s %" PRIu64 " %s\n", a->r->names[c->scenario], c->seed, told.verdict.hash);
	if (heard) {
		a->virtual_ns += told.verdict.virtual_ns;
		a->calls += told.verdict.calls;
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

static void watch(struct running *a, uint64_t now)
{
	for (unsigned i = 0; i < a->r->jobs; i++) {
		struct child *c = &a->children[i];
		if (c->pid && !c->overdue && now >= c->until) {
			c->overdue = true;
			kill(c->pid, SIGKILL);
		}
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
	for (unsigned i = 0; i < a->r->jobs && a->next < a->all && !a->signal; i++)
		if (!a->children[i].pid && !child_start(a, &a->children[i], mask)) {
			if (a->alive)
				return 0; /* when one has ended */
			fprintf(stderr, "farcall sim: cannot start a process: %s\n", strerror(errno));
			return -1;
		}
	return 0;
}

static int loop(struct running *a, const sigset_t *mask)
{
	while ((a->next < a->all && !a->signal) || a->alive) {
		struct pollfd p = {a->signal_fd, POLLIN, 0};
		if (start_some(a, mask) < 0)
			return 1;
		poll(&p, 1, 100);
		take_signals(a);
		uint64_t now = real_ns();
		watch(a, now);
		progress(a, now);
	}
	return a->signal ? 128 + a->signal : a->failed ? 1 : 0;
}

static void summary(const struct running *a)
{
	const struct runner *r = a->r;
	double seconds = (double)(real_ns() - a->began) / 1e9;
	if (a->terminal)
		fprintf(stderr, "\r\033[K");
	if (r->trace && !a->failed && !a->signal)
		return;
	if (a->signal)
		printf("interrupted by signal %d: ", a->signal);
	printf("%" PRIu64 " of %" PRIu64 " runs done, %" PRIu64 " failed: %u scenario%s, seeds %" PRIu64 " to %" PRIu64
	       "; %" PRIu64 " calls in %.1f s of virtual time, %.1f s of real time\n",
	       a->done, a->all, a->failed, r->scenarios_n, r->scenarios_n == 1 ? "" : "s", r->from,
	       r->from + r->seeds - 1, a->calls, (double)a->virtual_ns / 1e9, seconds);
	if (a->failures)
		printf("what failed is in %s\n", r->failures_file);
}

int runner_run(const struct runner *r)
{
	struct running a = {.r = r, .all = r->seeds * r->scenarios_n, .terminal = isatty(STDERR_FILENO)};
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
	a.began = real_ns();
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
