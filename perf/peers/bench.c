/* SPDX-License-Identifier: BSD-3-Clause */
/** Runs one figure of a peer: the measuring process is the parent, the serving process its child.
 * Main thread of each process. */
#include "bench.h"
#include "clock.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEAVE_S   20 /* from the request to stop until the server is killed */
#define GUARD_S   50 /* beyond the time of the measurement, until the processes end by SIGALRM */
#define FINE      7  /* bits of a histogram's bucket below the highest one: 0.8 % */
#define BUCKETS   ((65 - FINE) << FINE)
#define COUNT_MIN 5  /* requests of a figure, however long they take */
#define SUM_LEN   16 /* reply of a sink */
#define PAGE      4096

enum kind { ECHO_REQUEST, SINK_REQUEST, STOP_REQUEST };

struct head {
	uint32_t len;
	uint16_t slot;
	uint16_t kind;
};

struct bench_opts bench = {.variant = "", .dir = ".", .bytes = 32, .depth = 1, .seconds = 0.3, .cpu = {-1, -1}};

static const struct bench_peer *peer;
static bool stopped;
static unsigned char *replies[BENCH_DEPTH_MAX];
static unsigned char *requests[BENCH_DEPTH_MAX];
static uint64_t written[BENCH_DEPTH_MAX]; /* the word that fills the request of a slot */
static uint64_t words_n, number;
static unsigned idle[BENCH_DEPTH_MAX], idle_n;
static uint32_t histogram[BUCKETS];

void bench_die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "%s%s%s: ", peer ? peer->name : "peers", *bench.variant ? " " : "", bench.variant);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	fflush(NULL);
	_exit(1);
}

void *bench_alloc(size_t len)
{
	size_t room = (len + PAGE - 1) / PAGE * PAGE;
	void *memory = aligned_alloc(PAGE, room ? room : PAGE);
	if (!memory)
		bench_die("cannot allocate %zu bytes", len);
	return memset(memory, 1, room ? room : PAGE);
}

static void transfer(int fd, void *data, size_t len, bool out)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = out ? send(fd, (char *)data + at, len - at, MSG_NOSIGNAL)
				: recv(fd, (char *)data + at, len - at, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			bench_die("the other process did not connect: %s", n ? strerror(errno) : "it ended");
		at += (size_t)n;
	}
}

void bench_swap(int fd, const void *mine, void *theirs, size_t len)
{
	transfer(fd, (void *)(uintptr_t)mine, len, true);
	transfer(fd, theirs, len, false);
}

bool bench_waiting(int fd)
{
	char byte;
	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

const char *bench_clock(void)
{
	clock_start();
	return clock_tsc ? "tsc" : "CLOCK_MONOTONIC";
}

double bench_now_ns(void)
{
	return (double)clock_ticks() * clock_ns_per_tick;
}

size_t bench_length(const void *data)
{
	struct head h;
	memcpy(&h, data, sizeof h);
	return h.len;
}

bool bench_stops(const void *request)
{
	struct head h;
	memcpy(&h, request, sizeof h);
	return h.kind == STOP_REQUEST;
}

static uint64_t sum_words(const void *data, size_t n)
{
	const uint64_t *w = data;
	uint64_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += w[i];
	return sum;
}

static void fill_words(void *data, size_t n, uint64_t word)
{
	uint64_t *w = data;
	for (size_t i = 0; i < n; i++)
		w[i] = word;
}

const void *bench_answer(const void *request, size_t len, size_t *reply_len)
{
	struct head h;
	memcpy(&h, request, sizeof h);
	if (h.len != len || len < sizeof h || h.slot >= bench.depth)
		bench_die("a request of %zu bytes claims %u bytes and slot %u", len, h.len, h.slot);
	unsigned char *reply = replies[h.slot];
	stopped = h.kind == STOP_REQUEST;
	if (h.kind == SINK_REQUEST) {
		uint64_t sum = sum_words((const char *)request + sizeof h, (len - sizeof h) / sizeof sum);
		h.len = SUM_LEN;
		memcpy(reply + sizeof h, &sum, sizeof sum);
	} else if (len <= BENCH_SMALL) {
		memcpy(reply + sizeof h, (const char *)request + sizeof h, len - sizeof h);
	}
	memcpy(reply, &h, sizeof h);
	*reply_len = h.len;
	return reply;
}

bool bench_stopped(void)
{
	return stopped;
}

void bench_done(unsigned slot)
{
	idle[idle_n++] = slot;
}

void bench_reply(const void *reply, size_t len)
{
	struct head h = {0};
	uint64_t word = 0;
	if (len >= sizeof h + sizeof word) {
		memcpy(&h, reply, sizeof h);
		memcpy(&word, (const char *)reply + sizeof h, sizeof word);
	}
	if (h.len != len || h.slot >= bench.depth)
		bench_die("a reply of %zu bytes is none to a request", len);
	uint64_t expected = h.kind == SINK_REQUEST ? written[h.slot] * words_n : written[h.slot];
	bool known = h.kind != ECHO_REQUEST || len <= BENCH_SMALL;
	if (known && word != expected)
		bench_die("the reply to slot %u holds %" PRIu64 ", not %" PRIu64, h.slot, word, expected);
	bench_done(h.slot);
}

static void start(enum kind kind)
{
	unsigned slot = idle[--idle_n];
	unsigned char *request = requests[slot];
	size_t len = kind == STOP_REQUEST ? BENCH_SMALL / 2 : bench.bytes;
	struct head h = {(uint32_t)len, (uint16_t)slot, (uint16_t)kind};
	memcpy(request, &h, sizeof h);
	written[slot] = ++number;
	if (!bench.untouched || len <= BENCH_SMALL)
		fill_words(request + sizeof h, (len - sizeof h) / sizeof number, number);
	peer->send(slot, request, len);
}

static void drain(void)
{
	while (idle_n < bench.depth)
		peer->progress();
}

static void record(uint64_t ticks)
{
	unsigned high = 63 - (unsigned)__builtin_clzll(ticks | 1);
	unsigned shift = high > FINE ? high - FINE : 0;
	histogram[((uint64_t)shift << FINE) + (ticks >> shift)]++;
}

static double quantile_ns(uint64_t count, double q)
{
	uint64_t before = 0, rank = (uint64_t)((double)count * q);
	for (unsigned i = 0; i < BUCKETS; i++) {
		if (before + histogram[i] > rank) {
			unsigned shift = i >> (FINE + 1) ? (i >> FINE) - 1 : 0;
			uint64_t low = (uint64_t)(i - (shift << FINE)) << shift;
			double into = (double)(rank - before) / histogram[i];
			return ((double)low + into * (double)(UINT64_C(1) << shift)) * clock_ns_per_tick;
		}
		before += histogram[i];
	}
	return 0;
}

struct run {
	uint64_t count;
	double busy_ns;
};

/* One request at a time, the clock read before it is sent and after its reply. */
static struct run run_alone(double seconds, bool keep)
{
	struct run r = {0};
	uint64_t length = (uint64_t)(seconds * 1e9 / clock_ns_per_tick), first = clock_ticks(), after = first;
	while (after - first < length || r.count < COUNT_MIN) {
		uint64_t before = clock_ticks();
		start(bench.sink ? SINK_REQUEST : ECHO_REQUEST);
		drain();
		after = clock_ticks();
		r.count++;
		if (keep)
			record(after - before);
	}
	r.busy_ns = (double)(after - first) * clock_ns_per_tick;
	return r;
}

/* `depth` requests in flight: each reply is followed by the next request of its slot. */
static struct run run_window(double seconds)
{
	struct run r = {0};
	uint64_t length = (uint64_t)(seconds * 1e9 / clock_ns_per_tick), first = clock_ticks(), now = first;
	uint64_t begun = number;
	while (now - first < length || r.count < COUNT_MIN) {
		while (idle_n)
			start(bench.sink ? SINK_REQUEST : ECHO_REQUEST);
		peer->progress();
		now = clock_ticks();
		r.count = number - begun - (bench.depth - idle_n);
	}
	r.busy_ns = (double)(now - first) * clock_ns_per_tick;
	drain();
	return r;
}

static struct run run(double seconds, bool keep)
{
	return bench.depth == 1 ? run_alone(seconds, keep) : run_window(seconds);
}

static void pin(int cpu)
{
	cpu_set_t set;
	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) < 0)
		bench_die("cannot pin a process to CPU %d: %s", cpu, strerror(errno));
}

/* Processor time of this process, its threads included. */
static double processor_ns(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

static void measure(void)
{
	for (unsigned i = 0; i < bench.depth; i++) {
		requests[i] = bench_alloc(bench.bytes > BENCH_SMALL ? bench.bytes : BENCH_SMALL);
		bench_done(i);
	}
	words_n = bench.bytes / sizeof(uint64_t) - 1;
	run(bench.seconds / 3, false);
	double before = processor_ns();
	struct run r = run(bench.seconds, true);
	double processor = processor_ns() - before;
	printf("{\"peer\": \"%s\", \"variant\": \"%s\", \"bytes\": %zu, \"depth\": %u, \"kind\": \"%s\", \"clock\": "
	       "\"%s\", "
	       "\"count\": %" PRIu64 ", \"busy_ns\": %.0f",
	       peer->name, bench.variant, bench.bytes, bench.depth, bench.sink ? "sink" : "echo",
	       clock_tsc ? "tsc" : "CLOCK_MONOTONIC", r.count, r.busy_ns);
	printf(", \"per_s\": %.1f, \"bytes_per_s\": %.1f, \"mean_ns\": %.2f", (double)r.count * 1e9 / r.busy_ns,
	       (double)r.count * (double)bench.bytes * 1e9 / r.busy_ns, r.busy_ns / (double)r.count);
	printf(", \"core_share\": %.3f", processor / r.busy_ns);
	if (bench.depth == 1)
		printf(", \"p50_ns\": %.2f, \"p99_ns\": %.2f", quantile_ns(r.count, 0.5), quantile_ns(r.count, 0.99));
	printf("}\n");
	fflush(stdout);
	start(STOP_REQUEST);
	drain();
}

static int wait_child(pid_t child)
{
	int status = 0;
	for (int i = 0; i < LEAVE_S * 100; i++) {
		if (waitpid(child, &status, WNOHANG) == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	bench_die("the serving process did not end within %d s of the request to stop", LEAVE_S);
}

static void serve(int fd, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	alarm((unsigned)bench.seconds * 2 + GUARD_S);
	pin(bench.cpu[1]);
	for (unsigned i = 0; i < bench.depth; i++)
		replies[i] = bench_alloc(bench.reply_bytes > BENCH_SMALL ? bench.reply_bytes : BENCH_SMALL);
	peer->serve(fd);
}

static int usage(FILE *out, const char *program)
{
	fprintf(out,
		"usage: %s [--variant NAME] [--bytes N] [--depth N] [--sink|--untouched] [--seconds S] [--cpus A,B]\n"
		"       %*s [--dir DIR] [--version]\n"
		"Measures one figure and prints it as JSON. Variants: %s\n",
		program, (int)strlen(program), "", *peer->variants ? peer->variants : "none");
	return out == stdout ? 0 : 2;
}

static bool is_variant(const char *name)
{
	size_t len = strlen(name);
	for (const char *at = peer->variants; (at = strstr(at, name)) && len; at += len)
		if ((at == peer->variants || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
			return true;
	return !len && !*peer->variants;
}

/* 0; or 1 + the exit status. */
static int parse(int argc, char **argv)
{
	static const struct option options[] = {{"variant", 1, NULL, 'v'},
						{"bytes", 1, NULL, 'b'},
						{"depth", 1, NULL, 'd'},
						{"sink", 0, NULL, 's'},
						{"cpus", 1, NULL, 'c'},
						{"untouched", 0, NULL, 'u'},
						{"dir", 1, NULL, 'D'},
						{"help", 0, NULL, 'h'},
						{"seconds", 1, NULL, 't'},
						{"version", 0, NULL, 'V'},
						{0}};
	char text[256] = "";
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (c) {
		case 'v':
			bench.variant = optarg;
			break;
		case 'b':
			bench.bytes = strtoull(optarg, NULL, 10);
			break;
		case 'd':
			bench.depth = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 's':
			bench.sink = true;
			break;
		case 'u':
			bench.untouched = true;
			break;
		case 't':
			bench.seconds = strtod(optarg, NULL);
			break;
		case 'D':
			bench.dir = optarg;
			break;
		case 'c':
			if (sscanf(optarg, "%d,%d", &bench.cpu[0], &bench.cpu[1]) != 2)
				return 1 + usage(stderr, argv[0]);
			break;
		case 'V':
			peer->version(text, sizeof text);
			puts(text);
			return 1;
		default:
			return 1 + usage(c == 'h' ? stdout : stderr, argv[0]);
		}
	}
	if (optind < argc || !is_variant(bench.variant) || bench.bytes < 16 || bench.bytes % 8 ||
	    bench.bytes > UINT32_MAX || bench.depth < 1 || bench.depth > BENCH_DEPTH_MAX || !(bench.seconds > 0) ||
	    bench.seconds > 600)
		return 1 + usage(stderr, argv[0]);
	bench.reply_bytes = bench.sink ? SUM_LEN : bench.bytes;
	return 0;
}

int bench_main(int argc, char **argv, const struct bench_peer *p)
{
	int fds[2], status;
	peer = p;
	status = parse(argc, argv);
	if (status)
		return status - 1;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
		bench_die("socketpair: %s", strerror(errno));
	fflush(NULL);
	pid_t parent = getpid(), child = fork();
	if (child < 0)
		bench_die("fork: %s", strerror(errno));
	if (child == 0) {
		close(fds[0]);
		serve(fds[1], parent);
		fflush(NULL);
		_exit(0);
	}
	close(fds[1]);
	alarm((unsigned)bench.seconds * 2 + GUARD_S);
	pin(bench.cpu[0]);
	bench_clock();
	peer->open(fds[0]);
	measure();
	if (peer->close)
		peer->close();
	close(fds[0]);
	if (wait_child(child))
		bench_die("the serving process failed");
	return 0;
}
