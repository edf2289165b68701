/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Two agents in one process, stepped by turns in one thread, so that instruction counts of a call repeat and polling
 * does not blur them. usage: step ROUNDS API; each round is 16 calls of: message, fiber, rpc, handle, fanout,
 * method, and, one after the other, message_single, rpc_single, method_single, rref. `step build` prints compiler,
 * machine and kind of build. perf/instructions.sh runs it under valgrind and counts what measured() does: the set-up
 * polls for as long as it takes, and so would blur the counts, as would the shards' own threads.
 *
 * `step ROUNDS API samples` runs without valgrind. It prints the ticks of a call, the median of the rounds, and then
 * interrupts the rounds by a timer and prints how often it found each instruction ("pc ADDRESS COUNT"): stages.py
 * makes the ticks of each stage of that.
 *
 * `step ROUNDS sides` prints what the caller and what the callee of a message take, the median of the rounds, with 64
 * in flight: first with every line in this core's caches, then with the lines that come next flushed from them
 * (x86-64).
 */
#include "cell.h"
#include "ticks.h"

#include <arpa/inet.h>
#include <farcall/farcall.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__clang__)
#define COMPILER "clang"
#define VERSION  __clang_major__
#else
#define COMPILER "gcc"
#define VERSION  __GNUC__
#endif
#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "other"
#endif
#if defined(__OPTIMIZE__) && defined(NDEBUG)
#define KIND "release"
#else
#define KIND "debug"
#endif

/* The first rounds take slots, futures and stacks for the first time, and exchange the functions' numbers. */
enum { CALLS = 16, ECHO = 1, ECHO_FIBER = 2, WARM_ROUNDS = 100 }; /* ten for each measured one suffice */
enum { ANSWER = 3, IN_FLIGHT = 64, WORDS = 4 };                   /* of `sides` */

static struct far_agent *agents[2];
static char url[64];
static const struct far_to to = {1, -1};
static unsigned long answered;
static uint16_t id = ECHO;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)user;
	far_reply(req, data, len);
}

static void answer(struct far_req *req, const void *data, size_t len, void *user);

static void *join(void *rank)
{
	static const struct far_msg_handler handlers[] = {{ECHO, FAR_KIND_INLINE, echo, NULL},
							  {ECHO_FIBER, FAR_KIND_FIBER, echo, NULL},
							  {ANSWER, FAR_KIND_INLINE, answer, NULL}};
	struct far_opts opts = {
		.init_method = url, .messages = handlers, .messages_n = 3, .classes = &perf_cell, .classes_n = 1};
	struct far_err err;
	int r = rank ? 1 : 0;
	if (far_init_rpc(r ? "worker1" : "worker0", r, 2, &opts, &agents[r], &err))
		exit((int)far_err_print(stderr, &err));
	return NULL;
}

static void on_answer(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	(void)user, (void)data, (void)len, (void)err;
	answered += status == FAR_OK;
}

/* stages.py recognises the two sides of a call in a trace by these two names: what runs within serve() is the callee.
 */
__attribute__((noinline)) static void serve(void)
{
	far_shard_poll(agents[1]);
}

__attribute__((noinline)) static void pass_round(void)
{
	far_shard_poll(agents[0]);
	serve();
	far_shard_poll(agents[0]);
}

static void messages(void)
{
	static const char request[32];
	for (int i = 0; i < CALLS; i++)
		far_msg_send(agents[0], to, id, request, sizeof request, NULL, on_answer, NULL, NULL);
	pass_round();
}

/* One call alone: each begins by executing this, for stages.py. */
__attribute__((noinline)) static void message_alone(void)
{
	static const char request[32];
	far_msg_send(agents[0], to, id, request, sizeof request, NULL, on_answer, NULL, NULL);
	pass_round();
}

static void messages_single(void)
{
	for (int i = 0; i < CALLS; i++)
		message_alone();
}

/* The value of a future is counted as an answer. */
static void take_value(struct far_future *f)
{
	struct far_val v;
	if (far_future_value(f, &v, NULL) == FAR_OK) {
		answered++;
		far_val_fini(&v);
	}
	far_future_free(f);
}

static void typed(void)
{
	struct far_future *f[CALLS];
	float a[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, a, 2);
	for (int i = 0; i < CALLS; i++) {
		enum far_status status;
		status = far_rpc_async_to(agents[0], to, "far::add", FAR_ARGS(&t, &t), NULL, &f[i], NULL);
		if (status)
			exit((int)status);
	}
	pass_round();
	for (int i = 0; i < CALLS; i++)
		take_value(f[i]);
}

static struct far_callee *add;

static void by_handle(void)
{
	struct far_future *f[CALLS];
	float a[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, a, 2);
	for (int i = 0; i < CALLS; i++) {
		enum far_status status = far_callee_rpc_async(add, FAR_ARGS(&t, &t), NULL, &f[i], NULL);
		if (status)
			exit((int)status);
	}
	pass_round();
	for (int i = 0; i < CALLS; i++)
		take_value(f[i]);
}

static void fanned_out(void)
{
	static struct far_target targets[CALLS];
	static float sums[CALLS][2];
	struct far_fanout_opts opts = {.recv_buf = sums, .slice_bytes = sizeof sums[0], .dtype = FAR_F32};
	struct far_future *f;
	float a[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, a, 2);
	const struct far_val args[] = {far_tensor_val(&t), far_tensor_val(&t)};
	for (int i = 0; i < CALLS; i++)
		targets[i].to = to;
	enum far_status status = far_rpc_fanout(agents[0], "far::add", args, 2, targets, CALLS, &opts, NULL, &f, NULL);
	if (status)
		exit((int)status);
	pass_round();
	if (far_future_value(f, NULL, NULL) == FAR_OK)
		answered += CALLS;
	far_future_free(f);
}

static struct far_rref *cell;

/* The value of a future, awaited one at a time, is counted as an answer. */
static void take(enum far_status status, struct far_future **at)
{
	if (status)
		exit((int)status);
	pass_round();
	take_value(*at);
}

/* Made, fetched and given back, one after the other. */
static void referred(void)
{
	float a[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, a, 2);
	for (int i = 0; i < CALLS; i++) {
		struct far_rref *r;
		struct far_future *f;
		enum far_status status = far_remote_to(agents[0], to, "far::add", FAR_ARGS(&t, &t), NULL, &r, NULL);
		if (status)
			exit((int)status);
		take(far_rref_to_here_async(r, 0, &f, NULL), &f);
		far_rref_free(r);
	}
}

static void methods(void)
{
	struct far_future *f[CALLS];
	float a[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, a, 2);
	for (int i = 0; i < CALLS; i++) {
		enum far_status status = far_rref_rpc_async(cell, "add", FAR_ARGS(&t, &t), NULL, &f[i], NULL);
		if (status)
			exit((int)status);
	}
	pass_round();
	for (int i = 0; i < CALLS; i++)
		take_value(f[i]);
}

static void methods_single(void)
{
	float a[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, a, 2);
	for (int i = 0; i < CALLS; i++) {
		struct far_future *f;
		take(far_rref_rpc_async(cell, "add", FAR_ARGS(&t, &t), NULL, &f, NULL), &f);
	}
}

__attribute__((noinline)) static void rpc_alone(void)
{
	float a[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, a, 2);
	struct far_future *f;
	take(far_rpc_async_to(agents[0], to, "far::add", FAR_ARGS(&t, &t), NULL, &f, NULL), &f);
}

static void typed_single(void)
{
	for (int i = 0; i < CALLS; i++)
		rpc_alone();
}

/* By its name callgrind knows when to count. */
__attribute__((noinline)) static void measured(void (*step)(void), unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++)
		step();
}

/* Also prints the shared mappings: both sides have mapped the memory between them, each at addresses of its own. */
__attribute__((noinline)) static void end_of_measurement(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	printf("%lu calls answered\n", answered);
	while (f && fgets(line, sizeof line, f))
		if (strstr(line, " rw-s "))
			printf("map %s", line);
	if (f)
		fclose(f);
}

#define SAMPLE_NS 50000
enum { SAMPLES_MAX = 100000 };
static uintptr_t samples[SAMPLES_MAX];
static volatile sig_atomic_t samples_n;

static void on_sample(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *c = context;
	(void)sig, (void)info;
#if defined(__x86_64__)
	uintptr_t pc = (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	uintptr_t pc = (uintptr_t)c->uc_mcontext.pc;
#else
	uintptr_t pc = 0;
	(void)c;
#endif
	if (samples_n < SAMPLES_MAX)
		samples[samples_n++] = pc;
}

static void measured_by_ticks(void (*step)(void), unsigned long rounds)
{
	uint64_t *took = calloc(rounds, sizeof *took);
	if (!took)
		exit(1);
	for (unsigned long i = 0; i < rounds; i++) {
		uint64_t from = ticks_now();
		step();
		took[i] = ticks_now() - from;
	}
	printf("ticks %.1f " TICKS_UNIT "\n", (double)ticks_median(took, (unsigned)rounds) / CALLS);
	free(took);
}

/* What follows is as in `farcall perf rate` and perf/peers: IN_FLIGHT messages, each sent when another one is answered,
 * and both request and reply are written, word by word, just before they are sent. */
static void fill(uint64_t *words)
{
	static uint64_t number;
	number++;
	for (volatile uint64_t *w = words; w < words + WORDS; w++)
		*w = number;
}

static bool stopping;
static const char *seen[2]; /* the last line of requests, and of replies, that was read */

/* The lines that come next leave the caches: they take as long to come from memory as from a near core, or longer. */
static void flush_lines(void)
{
#if defined(__x86_64__)
	for (int ring = 0; ring < 2; ring++)
		for (int i = 1; i <= IN_FLIGHT; i++)
			_mm_clflush(seen[ring] + (ptrdiff_t)i * 64);
	_mm_mfence();
#endif
}

static void on_answer_resend(enum far_status status, const void *data, size_t len, const struct far_err *err,
			     void *request)
{
	on_answer(status, data, len, err, NULL);
	seen[1] = data;
	if (stopping)
		return;
	fill(request);
	far_msg_send(agents[0], to, ANSWER, request, WORDS * sizeof(uint64_t), NULL, on_answer_resend, request, NULL);
}

static void answer(struct far_req *req, const void *data, size_t len, void *user)
{
	static uint64_t reply[WORDS];
	(void)user;
	seen[0] = data;
	fill(reply);
	far_reply(req, reply, len);
}

/* What each side takes of a call, the median of the rounds. Nothing crosses cores. */
static void measured_by_sides(unsigned long rounds, bool flushed)
{
	static uint64_t requests[IN_FLIGHT][WORDS];
	uint64_t *took[] = {calloc(rounds, sizeof(uint64_t)), calloc(rounds, sizeof(uint64_t))};
	if (!took[0] || !took[1])
		exit(1);
	stopping = false;
	for (int i = 0; i < IN_FLIGHT; i++)
		far_msg_send(agents[0], to, ANSWER, requests[i], sizeof requests[i], NULL, on_answer_resend,
			     requests[i], NULL);
	for (unsigned long i = 0; i < 2 * rounds; i++) { /* by turns */
		int side = i % 2 == 0;
		if (flushed && seen[1])
			flush_lines();
		uint64_t from = ticks_now();
		for (int n = 0; n <= IN_FLIGHT / CALLS; n++) /* the first one may only publish */
			if (side)
				serve();
			else
				far_shard_poll(agents[0]);
		took[side][i / 2] = ticks_now() - from;
		stopping = i + 3 >= 2 * rounds;
	}
	for (int side = 0; side < 2; side++) {
		printf("%s %.1f " TICKS_UNIT " a call, lines %s\n", side ? "callee" : "caller",
		       (double)ticks_median(took[side], (unsigned)rounds) / IN_FLIGHT,
		       flushed ? "flushed" : "in caches");
		free(took[side]);
	}
}

static int by_address(const void *a, const void *b)
{
	uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
	return (x > y) - (x < y);
}

static int measured_by_samples(void (*step)(void), unsigned long rounds)
{
	const struct sigaction action = {.sa_sigaction = on_sample, .sa_flags = SA_SIGINFO | SA_RESTART};
	const struct itimerspec period = {{0, SAMPLE_NS}, {0, SAMPLE_NS}};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
	timer_t timer;
	event._sigev_un._tid = gettid();
	if (sigaction(SIGRTMIN, &action, NULL) || timer_create(CLOCK_MONOTONIC, &event, &timer) ||
	    timer_settime(timer, 0, &period, NULL)) {
		perror("step: no timer");
		return 1;
	}
	measured(step, rounds);
	timer_delete(timer);
	int n = samples_n;
	qsort(samples, (size_t)n, sizeof *samples, by_address);
	for (int i = 0, from = 0; i < n; i++) {
		if (i + 1 < n && samples[i + 1] == samples[i])
			continue;
		printf("pc %lx %d\n", (unsigned long)samples[i], i + 1 - from);
		from = i + 1;
	}
	return 0;
}

static const struct api {
	const char *name;
	void (*step)(void);
	uint16_t id;
} apis[] = {
	{"message", messages, ECHO},
	{"message_single", messages_single, ECHO},
	{"fiber", messages, ECHO_FIBER},
	{"rpc", typed, 0},
	{"rpc_single", typed_single, 0},
	{"handle", by_handle, 0},
	{"fanout", fanned_out, 0},
	{"method", methods, 0},
	{"method_single", methods_single, 0},
	{"rref", referred, 0},
	{"sides", messages, ECHO},
};

static const struct api *find(const char *name)
{
	for (size_t i = 0; i < sizeof apis / sizeof *apis; i++)
		if (strcmp(apis[i].name, name) == 0)
			return &apis[i];
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "build") == 0) {
		printf("%s-%d %s %s\n", COMPILER, VERSION, MACHINE, KIND);
		return 0;
	}
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char text[16];
	pthread_t thread;
	struct far_err err;
	bool sampled = argc == 4 && strcmp(argv[3], "samples") == 0, sides = argc == 3 && strcmp(argv[2], "sides") == 0;
	unsigned long rounds = argc == 3 || sampled ? strtoul(argv[1], NULL, 10) : 0;
	const struct api *api = rounds ? find(argv[2]) : NULL;
	if (!api) {
		bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
		fprintf(help ? stdout : stderr,
			"usage: step ROUNDS "
			"message|message_single|fiber|rpc|rpc_single|handle|fanout|method|method_single|rref "
			"[samples], step ROUNDS sides, or step build\n");
		return help ? 0 : 2;
	}
	void (*step)(void) = api->step;
	id = api->id;
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) || listen(fd, 8) ||
	    getsockname(fd, (struct sockaddr *)&at, &len)) {
		perror("step: no port");
		return 1;
	}
	snprintf(text, sizeof text, "%d", fd);
	setenv("FAR_STORE_FD", text, 1);
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
	if (pthread_create(&thread, NULL, join, &agents[1]))
		return 1;
	join(NULL);
	pthread_join(thread, NULL);
	if (far_shard_acquire(agents[1], 0, &err) || far_shard_acquire(agents[0], 0, &err))
		return (int)far_err_print(stderr, &err);
	struct far_worker worker;
	if (far_worker_find(agents[0], "worker1", &worker, &err) || far_callee_find(&worker, "far::add", &add, &err))
		return (int)far_err_print(stderr, &err);
	if (far_remote_to(agents[0], to, "perf::Cell", FAR_NOARGS, NULL, &cell, &err))
		return (int)far_err_print(stderr, &err);
	pass_round();
	unsigned long warm = rounds < WARM_ROUNDS / 10 ? 10 * rounds : WARM_ROUNDS;
	for (unsigned long i = 0; i < warm; i++)
		step();
	if (sides) {
		measured_by_sides(rounds, false);
		measured_by_sides(rounds, true);
		rounds *= 2 * IN_FLIGHT / CALLS;
	} else if (sampled) {
		measured_by_ticks(step, rounds);
		if (measured_by_samples(step, rounds))
			return 1;
		rounds *= 2;
	} else {
		measured(step, rounds);
	}
	end_of_measurement();
	far_callee_free(add);
	far_rref_free(cell);
	pass_round();
	far_shard_release(agents[1]);
	far_shard_release(agents[0]);
	far_shutdown_local(agents[1], NULL);
	far_shutdown_local(agents[0], NULL);
	return answered == (warm + rounds) * CALLS ? 0 : 1;
}
