/* SPDX-License-Identifier: BSD-3-Clause */
/* Linked with --wrap for the two functions: calls of them come here. Each is called from another file of the engine.
 * Main thread of each process. */
#include "planted.h"

#include "core/call.h"
#include "watch.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Not at once: all sorts of calls are under way by then. */
enum { AFTER = 2000, REPORT_BYTES = 65536 };

enum place { CALLER, CALLEE };

static void allocate(void)
{
	void *volatile p = malloc(16);
	(void)p;
}

static void give_back(void)
{
	static void *volatile p;
	free(p);
}

static void query_system(void)
{
	syscall(SYS_getpid);
}

static void lock(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

struct planted {
	const char *name;
	enum place place;
	enum far_progress progress;
	void (*fault)(void);
	const char *report;
	int number; /* of the system call, 0: none */
};

static const struct planted all[] = {
	{"malloc(16) where answers arrive", CALLER, FAR_PROGRESS_DEDICATED, allocate, "called malloc(16)", 0},
	{"free() where answers arrive", CALLER, FAR_PROGRESS_DEDICATED, give_back, "called free(0)", 0},
	{"getpid() where answers arrive", CALLER, FAR_PROGRESS_DEDICATED, query_system, "made system call", SYS_getpid},
	{"a lock where answers arrive", CALLER, FAR_PROGRESS_DEDICATED, lock, "called pthread_mutex_lock", 0},
	{"malloc(16) where requests arrive", CALLEE, FAR_PROGRESS_DEDICATED, allocate, "called malloc(16)", 0},
	{"getpid() where requests arrive", CALLEE, FAR_PROGRESS_DEDICATED, query_system, "made system call",
	 SYS_getpid},
	{"malloc(16) on a thread that waits", CALLER, FAR_PROGRESS_SHARED, allocate, "called malloc(16)", 0},
	{"getpid() on a thread that waits", CALLEE, FAR_PROGRESS_SHARED, query_system, "made system call", SYS_getpid},
};
const unsigned planted_n = sizeof all / sizeof *all;

static const struct planted *active = &all[0];

static void plant(enum place place)
{
	static unsigned n;
	if (watched() && place == active->place && ++n == AFTER)
		active->fault();
}

void __real_call_on_answer(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body,
			   uint64_t len);
void __wrap_call_on_answer(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body,
			   uint64_t len);
void __real_dispatch(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len,
		     uint64_t waited);
void __wrap_dispatch(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len,
		     uint64_t waited);

void __wrap_call_on_answer(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body,
			   uint64_t len)
{
	plant(CALLER);
	__real_call_on_answer(s, se, h, body, len);
}

void __wrap_dispatch(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len,
		     uint64_t waited)
{
	plant(CALLEE);
	__real_dispatch(s, se, h, body, len, waited);
}

/* ---- does the test find them ---- */

/* Runs in a child, whose stderr comes back in `text`. */
static int run_aside(int (*run)(enum far_progress progress), char *text)
{
	int ends[2], status;
	size_t n = 0;
	ssize_t got;
	fflush(NULL);
	CHECK(pipe(ends) == 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(ends[0]);
		dup2(ends[1], STDERR_FILENO);
		close(ends[1]);
		_exit(run(active->progress));
	}
	close(ends[1]);
	while (n < REPORT_BYTES - 1 && (got = read(ends[0], text + n, REPORT_BYTES - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = 0;
	close(ends[0]);
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int planted_check(int (*run)(enum far_progress progress))
{
	static char text[REPORT_BYTES];
	int bad = 0;
	for (unsigned i = 0; i < planted_n; i++) {
		char want[96];
		active = &all[i];
		if (active->number)
			snprintf(want, sizeof want, "%s %d,", active->report, active->number);
		else
			snprintf(want, sizeof want, "%s", active->report);
		int status = run_aside(run, text);
		if (status == WATCH_SKIP)
			return WATCH_SKIP;
		bool found = status == WATCH_STATUS && strstr(text, want);
		printf("%s: %s\n", active->name, found ? "found" : "NOT FOUND");
		if (!found)
			fprintf(stderr, "%s: status %d, not %d, or no \"%s\" in:\n%s\n", active->name, status,
				WATCH_STATUS, want, text);
		bad |= !found;
	}
	return bad;
}
