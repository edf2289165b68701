/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall run`: starts the workers of a static group on this host or over ssh on several, passes their output on,
 * restarts those that die with --restart, and ends all of them when one fails. Main thread. */
#include "apps/cli/options.h"
#include "apps/cli/orphans.h"
#include "apps/cli/output.h"
#include "apps/cli/spawn.h"
#include "commands.h"
#include "run_hosts.h"
#include "run_profile.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAME               "farcall run"
#define GRACE_NS           UINT64_C(3000000000)
#define EXIT_NOT_FOUND     127
#define EXIT_NOT_STARTABLE 126

struct worker {
	pid_t pid;     /* 0: not started, or reaped; that of its ssh */
	int status;    /* as waitpid() gave it */
	int signal_fd; /* standard input of its ssh, which receives names of signals; -1: a worker of this host */
	struct output_tail tail;
	struct output_stream out, err; /* rank 0's stdout is its own */
};

struct run {
	struct spawn_group group;
	struct reaper reaper;
	struct output output;
	sigset_t old_mask;
	int stop_fd;  /* SIGINT, SIGTERM, SIGHUP */
	int child_fd; /* SIGCHLD */
	uint64_t grace_ns;
	uint64_t kill_at;  /* deadline of the grace period; UINT64_MAX before SIGTERM was sent */
	int signal;        /* that we were sent, or 0 */
	int failed;        /* rank of the worker that is to blame, or -1 */
	uint64_t blame_at; /* when that is settled and the others are stopped; UINT64_MAX: nothing to settle */
	int alive;
	int world;
	struct worker *workers;
	struct hosts *hosts; /* NULL: all workers are on this host */
	char **program;
	const char *profile; /* file; NULL: none */
	int null_fd;
	unsigned restarts, restarts_max; /* of all workers together */
};

/* A killed worker's sockets close before it can be reaped, so one that fails because of it may end first. So long one
 * that was killed can still take the blame from one that merely failed. */
#define BLAME_NS UINT64_C(250000000)
/* A worker that ends with EXIT_PEER_LOST was a victim: so long one that ends otherwise can take the blame from it. */
#define VICTIM_NS UINT64_C(2000000000)

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Over ssh, SIGKILL is the end of its input, and a second one kills ssh, too. */
static void signal_worker(struct worker *w, int sig)
{
	if (w->signal_fd < 0) {
		kill(-w->pid, sig);
	} else if (sig == SIGKILL) {
		close(w->signal_fd);
		w->signal_fd = -1;
	} else if (dprintf(w->signal_fd, "%s\n", sigabbrev_np(sig)) < 0) {
		kill(-w->pid, sig);
	}
}

static void signal_all(struct run *r, int sig)
{
	for (int i = 0; i < r->world; i++)
		if (r->workers[i].pid)
			signal_worker(&r->workers[i], sig);
}

static void stop_all(struct run *r, int sig)
{
	signal_all(r, sig);
	if (r->kill_at == UINT64_MAX)
		r->kill_at = now_ns() + r->grace_ns;
}

static const char *fate(int status, char *text, size_t room)
{
	if (WIFSIGNALED(status))
		snprintf(text, room, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) == EXIT_PEER_LOST)
		snprintf(text, room, "exited with status %d: it lost another worker, which it names",
			 WEXITSTATUS(status));
	else
		snprintf(text, room, "exited with status %d", WEXITSTATUS(status));
	return text;
}

/* Among workers that failed, the highest one began it. */
enum guilt { GUILT_VICTIM, GUILT_FAILED, GUILT_KILLED };

static enum guilt guilt_of(int status)
{
	if (WIFSIGNALED(status))
		return GUILT_KILLED;
	return WEXITSTATUS(status) == EXIT_PEER_LOST ? GUILT_VICTIM : GUILT_FAILED;
}

static int start_worker(struct run *r, int rank);

/* " on HOST" of a worker on another host. */
static const char *where(const struct run *r, int rank, char *text, size_t room)
{
	snprintf(text, room, "%s%s", r->hosts ? " on " : "", r->hosts ? hosts_of(r->hosts, rank) : "");
	return text;
}

/* Starts a dead worker again; false when it stays dead. Rank 0 has the store, without which nobody joins. */
static bool restart(struct run *r, int rank)
{
	struct worker *w = &r->workers[rank];
	char text[128], host[288];
	if (rank == 0 || r->restarts == r->restarts_max || r->failed >= 0)
		return false;
	output_finish(&r->output, &w->out);
	output_finish(&r->output, &w->err);
	output_print(&r->output, NAME ": worker %d%s %s; restart %u of %u", rank, where(r, rank, host, sizeof host),
		     fate(w->status, text, sizeof text), ++r->restarts, r->restarts_max);
	return start_worker(r, rank) == 0;
}

static void worker_ended(struct run *r, int rank, int status)
{
	struct worker *w = &r->workers[rank];
	bool fails = status != 0 && r->kill_at == UINT64_MAX;
	if (fails && r->restarts_max)
		kill(-w->pid, SIGKILL); /* what it started does not meet its successor */
	if ((fails && r->restarts_max) || (kill(-w->pid, 0) < 0 && errno == ESRCH))
		reaper_remove(&r->reaper, w->pid);
	if (w->signal_fd >= 0)
		close(w->signal_fd);
	w->signal_fd = -1;
	w->pid = 0;
	w->status = status;
	r->alive--;
	if (!fails || restart(r, rank))
		return;
	static const uint64_t settles_after[] = {VICTIM_NS, BLAME_NS, 0};
	enum guilt guilt = guilt_of(status);
	if (r->failed >= 0 && guilt <= guilt_of(r->workers[r->failed].status))
		return;
	uint64_t at = now_ns() + settles_after[guilt];
	r->failed = rank;
	r->blame_at = at < r->blame_at ? at : r->blame_at;
}

static void settle_blame(struct run *r)
{
	char text[96], host[288];
	if (now_ns() < r->blame_at)
		return;
	r->blame_at = UINT64_MAX;
	if (r->alive > 0)
		output_print(&r->output, NAME ": worker %d%s %s; stopping the others", r->failed,
			     where(r, r->failed, host, sizeof host),
			     fate(r->workers[r->failed].status, text, sizeof text));
	stop_all(r, SIGTERM);
}

static void reap(struct run *r)
{
	struct signalfd_siginfo info;
	while (read(r->child_fd, &info, sizeof info) == (ssize_t)sizeof info)
		;
	int status;
	for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;)
		for (int i = 0; i < r->world; i++)
			if (r->workers[i].pid == p)
				worker_ended(r, i, r->hosts ? hosts_status(status) : status);
}

static void signalled(struct run *r)
{
	struct signalfd_siginfo info;
	while (read(r->stop_fd, &info, sizeof info) == (ssize_t)sizeof info) {
		if (r->signal) { /* the second signal: no more patience */
			r->kill_at = now_ns();
			continue;
		}
		r->signal = (int)info.ssi_signo;
		stop_all(r, r->signal);
	}
}

static int open_pipe(struct output_stream *s, int rank, struct output_tail *tail, int *child_end)
{
	int fd[2];
	if (pipe2(fd, O_CLOEXEC) < 0)
		return -errno;
	fcntl(fd[0], F_SETFL, O_NONBLOCK);
	*s = (struct output_stream){.fd = fd[0], .rank = rank, .tail = tail};
	*child_end = fd[1];
	return 0;
}

/* The pipe to a worker's ssh, with what starts the worker in it. */
static int open_ssh(struct run *r, int rank, int *in)
{
	int fd[2];
	if (pipe2(fd, O_CLOEXEC) < 0)
		return -errno;
	fcntl(fd[1], F_SETFL, O_NONBLOCK);
	r->workers[rank].signal_fd = fd[1];
	*in = fd[0];
	return hosts_send(r->hosts, fd[1], rank, r->program);
}

static int start_worker(struct run *r, int rank)
{
	struct worker *w = &r->workers[rank];
	char *ssh[HOSTS_WORDS_MAX + 1];
	char **argv = r->program;
	int in = -1, out = -1, err = -1;
	int rc = rank ? open_pipe(&w->out, rank, &w->tail, &out) : 0;
	if (rc == 0)
		rc = open_pipe(&w->err, rank, &w->tail, &err);
	if (rc == 0 && r->hosts) {
		rc = open_ssh(r, rank, &in);
		hosts_command(r->hosts, rank, argv = ssh);
	}
	if (rc == 0) {
		struct spawn_child child = {.group = &r->group,
					    .rank = rank,
					    .file = argv[0],
					    .argv = argv,
					    /* a background process group that reads from the terminal is stopped */
					    .in = in >= 0                   ? in
						  : rank == 0 && !isatty(0) ? -1
									    : r->null_fd,
					    .out = out,
					    .err = err,
					    .announce_fd = r->reaper.fd,
					    .keep_fd = -1,
					    .mask = &r->old_mask};
		rc = spawn_start(&child, &w->pid);
	}
	for (int i = 0; i < 3; i++) {
		int fd = (int[]){in, out, err}[i];
		if (fd >= 0)
			close(fd);
	}
	if (rc < 0)
		return rc;
	r->alive++;
	return 0;
}

static int start_all(struct run *r)
{
	const char *file = r->hosts ? r->hosts->ssh[0] : r->program[0];
	int rc = 0;
	for (int i = 0; i < r->world && rc == 0; i++)
		rc = start_worker(r, i);
	if (rc == 0)
		return 0;
	stop_all(r, SIGKILL);
	r->kill_at = 0;
	if (rc == -ENOENT) {
		bool path = strchr(file, '/') != NULL;
		output_print(&r->output, NAME ": %s: not found; %s%s", file,
			     path ? "give an existing path" : "it is not in PATH, give a path such as ./",
			     path ? "" : file);
		return EXIT_NOT_FOUND;
	}
	output_print(
		&r->output, NAME ": cannot start %s: %s%s", file, strerror(-rc),
		rc == -EMFILE || rc == -ENFILE ? "; raise the limit on open files (ulimit -n), two to four per worker"
		: rc == -E2BIG && r->hosts ? "; the environment and the arguments exceed a pipe; unset what is large"
					   : "");
	return rc == -EMFILE || rc == -EAGAIN || rc == -ENOMEM ? 1 : EXIT_NOT_STARTABLE;
}

static unsigned poll_set(struct run *r, struct pollfd *p, struct output_stream **streams)
{
	unsigned n = 2;
	p[0] = (struct pollfd){.fd = r->stop_fd, .events = POLLIN};
	p[1] = (struct pollfd){.fd = r->child_fd, .events = POLLIN};
	for (int i = 0; i < r->world; i++) {
		struct output_stream *both[] = {&r->workers[i].out, &r->workers[i].err};
		for (int k = 0; k < 2; k++) {
			if (both[k]->fd < 0)
				continue;
			streams[n] = both[k];
			p[n++] = (struct pollfd){.fd = both[k]->fd, .events = POLLIN};
		}
	}
	return n;
}

/* Until every worker has exited. The wait without a limit is that for the workers' own end. */
static void watch(struct run *r)
{
	static struct pollfd p[2 + 2 * SPAWN_WORLD_MAX];
	static struct output_stream *streams[2 + 2 * SPAWN_WORLD_MAX];
	while (r->alive > 0) {
		int timeout = -1;
		if (r->blame_at != UINT64_MAX) {
			timeout = (int)(BLAME_NS / 1000000);
		} else if (r->kill_at != UINT64_MAX) {
			uint64_t now = now_ns();
			if (now >= r->kill_at)
				signal_all(r, SIGKILL);
			timeout = now >= r->kill_at ? 100 : (int)((r->kill_at - now) / 1000000) + 1;
		}
		unsigned n = poll_set(r, p, streams);
		if (poll(p, n, timeout) < 0 && errno != EINTR)
			break;
		for (unsigned i = 2; i < n; i++)
			if (p[i].revents)
				output_read(&r->output, streams[i]);
		if (p[0].revents)
			signalled(r);
		if (p[1].revents)
			reap(r);
		settle_blame(r);
		if (r->output.gone && r->kill_at == UINT64_MAX)
			stop_all(r, SIGTERM); /* nobody reads stderr any more */
	}
}

/* Killed by a signal that far_crash_report_install() reports, and without such a report. */
static bool crashed_silently(const struct worker *w)
{
	static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
	bool crashed = false;
	for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
		crashed |= WIFSIGNALED(w->status) && WTERMSIG(w->status) == crashes[i];
	return crashed && !output_tail_has(&w->tail, "farcall: ");
}

static int report(struct run *r)
{
	char text[96], host[288];
	for (int i = 0; i < r->world; i++) {
		output_finish(&r->output, &r->workers[i].out);
		output_finish(&r->output, &r->workers[i].err);
	}
	if (r->signal)
		return 128 + r->signal;
	if (r->restarts)
		output_print(&r->output, NAME ": %u restart%s", r->restarts, r->restarts == 1 ? "" : "s");
	if (r->failed < 0)
		return r->output.gone ? 128 + SIGPIPE : 0;
	struct worker *w = &r->workers[r->failed];
	if (w->tail.next) {
		output_print(&r->output, NAME ": last lines of worker %d:", r->failed);
		output_tail_print(&r->output, &w->tail, r->failed);
	}
	output_print(&r->output, NAME ": worker %d%s %s%s", r->failed, where(r, r->failed, host, sizeof host),
		     fate(w->status, text, sizeof text), w->tail.next ? "" : " and printed nothing");
	if (crashed_silently(w))
		output_print(&r->output,
			     NAME ": a program that calls far_crash_report_install() prints the handler that "
				  "crashed, and a backtrace");
	return WIFSIGNALED(w->status) ? 128 + WTERMSIG(w->status) : WEXITSTATUS(w->status);
}

static int run_open(struct run *r)
{
	sigset_t stop, child, both;
	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGHUP);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	both = stop;
	sigaddset(&both, SIGCHLD);
	sigprocmask(SIG_BLOCK, &both, &r->old_mask);
	signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would take the workers' statuses away */
	signal(SIGPIPE, SIG_IGN);
	r->stop_fd = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
	r->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	r->workers = calloc((size_t)r->world, sizeof *r->workers);
	if (r->stop_fd < 0 || r->child_fd < 0 || !r->workers)
		return -errno;
	for (int i = 0; i < r->world; i++)
		r->workers[i].out.fd = r->workers[i].err.fd = r->workers[i].signal_fd = -1;
	r->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (r->null_fd < 0)
		return -errno;
	r->output = (struct output){.fd = STDERR_FILENO, .interrupt_fd = r->stop_fd};
	r->group = (struct spawn_group){.listen_fd = -1, .world = r->world};
	int rc = r->hosts ? 0 : spawn_group_open(&r->group, r->world);
	return rc < 0 ? rc : reaper_start(&r->reaper);
}

static int run_workers(struct run *r)
{
	int rc = run_open(r);
	if (rc < 0) {
		fprintf(stderr, NAME ": cannot prepare %d workers: %s\n", r->world, strerror(-rc));
		return 1;
	}
	int status = start_all(r);
	spawn_group_close(&r->group); /* rank 0 holds it now: when it dies, the others must be refused */
	watch(r);
	orphans_kill(r->reaper.pid);
	int profile = r->profile ? run_profile_end(r->profile, r->world, &r->output) : 0;
	if (status == 0)
		status = report(r);
	if (status == 0)
		status = profile;
	reaper_end(&r->reaper);
	free(r->workers);
	return status;
}

/* Settings of the workers; variables of the environment have the same effect. */
static void set_environment(const char *nic, int security)
{
	if (nic)
		setenv("FAR_NIC", nic, 1);
	if (security >= 0)
		setenv("FAR_SECURITY", security ? "none" : "default", 1);
}

int cmd_run(int argc, char **argv)
{
	static const char *security_words[] = {"default", "none", NULL};
	uint64_t n = 0, grace = GRACE_NS, restarts = 0;
	const char *list = NULL, *nic = NULL, *profile = NULL, *ssh = HOSTS_SSH_DEFAULT;
	int security = -1;
	const struct option_spec specs[] = {
		{"workers", 'n', OPTION_COUNT, &n, 1, SPAWN_WORLD_MAX, "N",
		 "number of workers, 1 to 256 (with --hosts: one per host)", NULL},
		{"hosts", 0, OPTION_TEXT, &list, 0, 0, "HOSTS",
		 "start them over ssh on these hosts, a,b,c; in blocks of ranks", NULL},
		{"ssh", 0, OPTION_TEXT, &ssh, 0, 0, "CMD",
		 "command that is given a host and what runs there (ssh, without passwords)", NULL},
		{"nic", 0, OPTION_TEXT, &nic, 0, 0, "DRIVERS", "FAR_NIC of the workers", NULL},
		{"security", 0, OPTION_CHOICE, &security, 0, 0, "WORD",
		 "FAR_SECURITY of the workers: default or none (no group key)", security_words},
		{"profile", 0, OPTION_TEXT, &profile, 0, 0, "FILE",
		 "record all calls for ui.perfetto.dev; *.otlp.json: for OpenTelemetry", NULL},
		{"max-restarts", 0, OPTION_COUNT, &restarts, 0, 1000000, "N",
		 "start workers other than rank 0 again when they die, N times in all (0)", NULL},
		{"grace", 0, OPTION_DURATION, &grace, 0, UINT64_C(3600000000000), "TIME",
		 "time between SIGTERM and SIGKILL (3s)", NULL},
		{.name = ""}};
	const struct option_command command = {
		NAME, "{-n N | --hosts A,B,C} [OPTIONS] -- PROGRAM [ARGS...]",
		"Starts N workers of a program. The environment of each worker has RANK, WORLD_SIZE, MASTER_ADDR and\n"
		"MASTER_PORT; on one host rank 0 also inherits the store's listener (FAR_STORE_FD). Rank 0's\n"
		"stdout passes through; all other output goes to stderr with the rank in front, as in \"[2] text\".\n"
		"When a worker fails, run stops the others, prints its last lines and exits with its status (128 +\n"
		"the signal that killed it). No process is left running.\n\n"
		"With --hosts, each worker runs in this directory's path on its host, with the environment of this\n"
		"process but for what belongs to the login (HOME, SSH_*, XDG_* ...). The group's key is that of\n"
		"FAR_KEY_FILE or FAR_KEY, else a new one, and goes through the standard input of ssh. MASTER_ADDR is\n"
		"the first host and MASTER_PORT 29500 unless they are set here. ssh must work without a password.",
		specs};
	int rest;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (n == 0 && !list)
		return options_wrong(NAME, "-n is missing; give the number of workers, 1 to 256");
	if (rest == argc)
		return options_wrong(NAME, "the program is missing; give it behind --, as in: " NAME " -n 2 -- ./app");
	if (profile && list)
		return options_wrong(NAME, "--profile joins files of this host; with --hosts set FAR_PROFILE: each "
					   "worker writes its own, FAR_PROFILE.RANK");
	int rc = profile ? run_profile_begin(profile, (int)n) : 0;
	if (rc < 0)
		return options_wrong(NAME, "--profile %s: %s", profile, strerror(-rc));
	set_environment(nic, security);
	static struct hosts hosts;
	if (list) {
		char *own_list = strdup(list), *own_ssh = strdup(ssh);
		const char *wrong = own_list && own_ssh ? hosts_open(&hosts, own_list, own_ssh) : strerror(ENOMEM);
		if (wrong)
			return options_wrong(NAME, "%s", wrong);
		hosts.world = n ? (int)n : hosts.n;
	}
	struct run r = {.grace_ns = grace,
			.kill_at = UINT64_MAX,
			.blame_at = UINT64_MAX,
			.failed = -1,
			.world = list ? hosts.world : (int)n,
			.hosts = list ? &hosts : NULL,
			.program = argv + rest,
			.profile = profile,
			.restarts_max = (unsigned)restarts};
	return run_workers(&r);
}
