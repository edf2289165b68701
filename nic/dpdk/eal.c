/* SPDX-License-Identifier: BSD-3-Clause */
/** Starts EAL once per process; it cannot be stopped and started again. It gets no devices at start: ports add and
 * remove theirs. EAL's runtime directory is for other processes to attach, and only root may create it; --no-shconf and
 * --in-memory avoid it. Any thread, serialised by a mutex. */
#include "nic/dpdk/dpdk.h"

#include <errno.h>
#include <fcntl.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARGS_MAX 64
/* EAL's heap where it cannot grow: rings and tables of drivers. Packets are not in it, see pool.c. */
#define HEAP_MB "64"
/* Free huge pages (2 MiB each) required to start EAL with huge pages. */
#define HUGE_BYTES ((size_t)16 << 20)

/* ---- DPDK's log messages ---- */

/* Messages of DPDK during a call of EAL, for our error texts. Any thread, under the mutex. */
static struct {
	pthread_mutex_t mutex;
	bool capturing, quiet, verbose; /* capturing: text[0, len) gets the messages; quiet: none is printed */
	size_t len;
	char text[200];
} log_capture = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Appends a message without its "function(): " prefix and line end. */
static void capture(const char *line, size_t len)
{
	const char *colon = memmem(line, len, "(): ", 4);
	if (colon && !memchr(line, ' ', (size_t)(colon - line))) {
		len -= (size_t)(colon + 4 - line);
		line = colon + 4;
	}
	while (len && (line[len - 1] == '\n' || line[len - 1] == '.' || line[len - 1] == ' '))
		len--;
	if (len == 0 || memmem(log_capture.text, log_capture.len, line, len))
		return;
	size_t room = sizeof log_capture.text - 1 - log_capture.len;
	int n = snprintf(log_capture.text + log_capture.len, room + 1, "%s%.*s", log_capture.len ? "; " : "", (int)len,
			 line);
	log_capture.len += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
}

static ssize_t on_output(void *cookie, const char *line, size_t len)
{
	(void)cookie;
	int level = rte_log_cur_msg_loglevel();
	pthread_mutex_lock(&log_capture.mutex);
	if (log_capture.verbose)
		fprintf(stderr, "farcall: dpdk: %.*s", (int)len, line);
	else if (log_capture.capturing && !log_capture.quiet && level > 0 && level <= (int)RTE_LOG_ERR)
		capture(line, len);
	pthread_mutex_unlock(&log_capture.mutex);
	return (ssize_t)len;
}

void dpdk_log_begin(void)
{
	pthread_mutex_lock(&log_capture.mutex);
	log_capture.capturing = true;
	log_capture.len = 0;
	log_capture.text[0] = 0;
	pthread_mutex_unlock(&log_capture.mutex);
}

const char *dpdk_log_end(void)
{
	pthread_mutex_lock(&log_capture.mutex);
	log_capture.capturing = false;
	pthread_mutex_unlock(&log_capture.mutex);
	return log_capture.text;
}

void dpdk_log_quiet(bool quiet)
{
	pthread_mutex_lock(&log_capture.mutex);
	log_capture.quiet = quiet;
	pthread_mutex_unlock(&log_capture.mutex);
}

static void redirect_log(void)
{
	cookie_io_functions_t io = {.write = on_output};
	FILE *stream = fopencookie(NULL, "w", io);
	if (!stream)
		return;
	setvbuf(stream, NULL, _IOLBF, 512);
	rte_openlog_stream(stream);
}

/* ---- arguments ---- */

struct start {
	int argc;
	char *argv[ARGS_MAX + 1];
	char *user_args; /* copy of FAR_DPDK_EAL, split */
	char lcores[1024];
	char prefix[40];
	bool huge, physical;
	int result, error;
};

static bool is_given(const struct start *s, const char *option)
{
	size_t len = strlen(option);
	for (int i = 1; i < s->argc; i++)
		if (strncmp(s->argv[i], option, len) == 0 &&
		    (option[1] != '-' || s->argv[i][len] == 0 || s->argv[i][len] == '='))
			return true;
	return false;
}

static int add(struct start *s, const char *word)
{
	if (s->argc == ARGS_MAX)
		return -E2BIG;
	s->argv[s->argc++] = (char *)(uintptr_t)word; /* getopt reorders the pointers; nothing writes to the strings */
	return 0;
}

static int add_user_args(struct start *s)
{
	const char *text = secure_getenv("FAR_DPDK_EAL");
	if (!text)
		return 0;
	s->user_args = strdup(text);
	if (!s->user_args)
		return -ENOMEM;
	char *rest, *word = strtok_r(s->user_args, " \t\n", &rest);
	int error = 0;
	for (; word && !error; word = strtok_r(NULL, " \t\n", &rest))
		error = add(s, word);
	return error;
}

/* One lcore that may run on all CPUs of this process, so that EAL narrows no thread's affinity. */
static void describe_lcores(char *out, size_t cap)
{
	cpu_set_t set;
	size_t n = (size_t)snprintf(out, cap, "--lcores=0@(");
	const char *comma = "";
	if (sched_getaffinity(0, sizeof set, &set))
		CPU_ZERO(&set);
	for (int i = 0; i < CPU_SETSIZE && n + 8 < cap; i++)
		if (CPU_ISSET(i, &set)) {
			int last = i;
			while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
				last++;
			n += (size_t)snprintf(out + n, cap - n, last > i ? "%s%d-%d" : "%s%d", comma, i, last);
			comma = ",";
			i = last;
		}
	snprintf(out + n, cap - n, ")");
	if (!*comma)
		snprintf(out, cap, "--lcores=0");
}

/* Touches the pages: the limit of a container may deny pages that are free. */
static bool huge_pages_free(void)
{
	void *at = mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
	if (at == MAP_FAILED)
		return false;
	unsigned char in[HUGE_BYTES / 4096] = {0};
	bool all = mincore(at, HUGE_BYTES, in) == 0;
	for (size_t i = 0; i < sizeof in; i++)
		all = all && (in[i] & 1);
	munmap(at, HUGE_BYTES);
	return all;
}

/* Adds the driver's arguments, except those that FAR_DPDK_EAL contains. */
static int add_defaults(struct start *s)
{
	bool devices = is_given(s, "-a") || is_given(s, "-b") || is_given(s, "--allow") || is_given(s, "--block");
	bool memory = s->huge || is_given(s, "-m");
	describe_lcores(s->lcores, sizeof s->lcores);
	snprintf(s->prefix, sizeof s->prefix, "--file-prefix=farcall-%ld", (long)getpid());
	const struct {
		bool given_by_user;
		const char *word;
	} defaults[] = {
		{is_given(s, "-l") || is_given(s, "-c") || is_given(s, "--lcores"), s->lcores},
		{is_given(s, "--iova-mode"), s->physical ? "--iova-mode=pa" : "--iova-mode=va"},
		{is_given(s, "--telemetry") || is_given(s, "--no-telemetry"), "--no-telemetry"},
		{is_given(s, "--file-prefix"), s->prefix},
		/* A device that does not exist: EAL probes no others; ports add theirs. */
		{devices, "-a"},
		{devices, "0000:00:00.0"},
		{!s->huge || is_given(s, "--in-memory"), "--in-memory"},
		{s->huge || is_given(s, "--no-huge"), "--no-huge"},
		{memory, "-m"},
		{memory, HEAP_MB},
		{s->huge || is_given(s, "--no-shconf"), "--no-shconf"},
	};
	int error = 0;
	for (size_t i = 0; i < sizeof defaults / sizeof *defaults && !error; i++)
		if (!defaults[i].given_by_user)
			error = add(s, defaults[i].word);
	return error;
}

/* True if EAL should use huge pages: as huge= or FAR_DPDK_EAL states, else if enough are free. */
static bool wants_huge(const struct start *s, int huge)
{
	if (is_given(s, "--no-huge"))
		return false;
	if (is_given(s, "--in-memory") || is_given(s, "--socket-mem") || is_given(s, "--huge-dir") || huge == 1 ||
	    s->physical)
		return true;
	return huge < 0 && huge_pages_free();
}

/* ---- start ---- */

static struct {
	pthread_mutex_t mutex;
	bool running, huge, physical;
	pid_t pid; /* the process that started EAL; its threads do not exist in a forked child */
	char failed[NIC_TEXT_BYTES_MAX];
} eal = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void *run(void *arg)
{
	struct start *s = arg;
	s->result = rte_eal_init(s->argc, s->argv);
	s->error = rte_errno;
	return NULL;
}

/** Starts EAL on a thread of its own with all signals blocked: EAL sets the affinity of the starting thread, and its
 * own threads inherit the signal mask. They write to sockets whose other end may be gone, and SIGPIPE would end the
 * process. */
static int run_on_thread(struct start *s)
{
	pthread_t thread;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, NULL, run, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return -error;
	pthread_join(thread, NULL);
	return 0;
}

static int fail(struct nic_err *err, int error, bool for_good, const char *why, const char *remedy)
{
	snprintf(err->text, sizeof err->text, "dpdk: EAL cannot be started: %s%s%s", why, *remedy ? "; " : "", remedy);
	if (for_good)
		memcpy(eal.failed, err->text, sizeof eal.failed);
	return error;
}

static void started(bool huge)
{
	eal.running = true;
	eal.pid = getpid();
	eal.huge = huge;
	eal.physical = rte_eal_iova_mode() == RTE_IOVA_PA;
}

static int start(int huge, bool physical, struct nic_err *err)
{
	struct start s = {.physical = physical};
	if (rte_lcore_count() > 0) { /* the application has started EAL, and keeps its log settings */
		started(rte_eal_has_hugepages());
		return 0;
	}
	if (physical && (huge == 0 || !huge_pages_free()))
		return fail(err, -ENOMEM, false,
			    "a card under uio needs 16 MiB of huge pages or more, whose physical addresses are fixed",
			    "sysctl vm.nr_hugepages=64 (and no huge=0), or vfio-pci, which needs an IOMMU");
	if (huge == 1 && !huge_pages_free())
		return fail(err, -ENOMEM, false, "huge=1, but fewer than 16 MiB of huge pages are free",
			    "sysctl vm.nr_hugepages=64, or leave huge=1 out");
	int error = add(&s, "farcall");
	if (!error)
		error = add_user_args(&s);
	if (!error) {
		s.huge = wants_huge(&s, huge);
		error = add_defaults(&s);
	}
	if (error) {
		free(s.user_args);
		return fail(err, error, false,
			    error == -E2BIG ? "FAR_DPDK_EAL has too many arguments" : strerror(-error), "");
	}
	redirect_log();
	if (!is_given(&s, "--log-level"))
		rte_log_set_global_level(RTE_LOG_WARNING);
	else
		log_capture.verbose = true;
	dpdk_log_begin();
	error = run_on_thread(&s);
	const char *why = dpdk_log_end();
	/* Not freed: EAL keeps pointers to some of the words. */
	if (error)
		return fail(err, error, false, strerror(-error), "");
	if (s.result < 0)
		return fail(err, s.error ? -s.error : -EIO, s.error != EINVAL, *why ? why : strerror(s.error),
			    s.user_args ? "see FAR_DPDK_EAL" : "");
	/* The directory is empty; each process would leave one. */
	rmdir(rte_eal_get_runtime_dir());
	if (!log_capture.verbose)
		rte_log_set_level_pattern("pmd.*", RTE_LOG_WARNING);
	started(s.huge);
	return 0;
}

int dpdk_eal_start(int huge, bool physical, struct nic_err *err)
{
	int error = 0;
	pthread_mutex_lock(&eal.mutex);
	if (eal.failed[0]) {
		memcpy(err->text, eal.failed, sizeof err->text);
		error = -EIO;
	} else if (eal.running && eal.pid != getpid()) {
		error = fail(err, -EOPNOTSUPP, false,
			     "it was started before fork(), and its threads do not exist in the child process",
			     "fork first, or use exec");
	} else if (!eal.running) {
		error = start(huge, physical, err);
	}
	if (!error && huge >= 0 && (huge == 1) != eal.huge) {
		error = fail(err, -EBUSY, false,
			     eal.huge ? "it runs already, with huge pages" : "it runs already, without huge pages",
			     "all ports of a process share it: leave huge= out here");
	}
	if (!error && physical && !eal.physical)
		error = fail(
			err, -EBUSY, false,
			"it runs already with virtual addresses, but this card is under uio and needs physical ones",
			"open this card before the other dpdk devices, or bind it to vfio-pci");
	pthread_mutex_unlock(&eal.mutex);
	return error;
}

bool dpdk_eal_huge(void)
{
	return eal.huge;
}
