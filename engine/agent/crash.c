/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The crash report: a signal handler on the crashed thread that prints signal, handler and worker. It formats by hand
 * and calls write(), since few functions are safe in a signal handler, and reads the context of its own thread only.
 */
#include "base/crash_stack.h"
#include "base/error.h"
#include "base/must.h"
#include "core/context.h"
#include "core/fiber.h"
#include "core/fiber_pool.h"
#include "core/shard.h"
#include "value/registry.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FRAMES_MAX   48
#define CRASH_EVENTS 32u

static const struct {
	int number;
	const char *name;
} reported[] = {
	{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}, {SIGABRT, "SIGABRT"},
};
enum { REPORTED = sizeof reported / sizeof *reported };

static struct sigaction previous[REPORTED];
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static bool installed;
static atomic_flag reporting = ATOMIC_FLAG_INIT;

/* ---- a line, formatted without the C library ---- */

struct line {
	size_t len;
	char text[768];
};

static void put(struct line *l, const char *s)
{
	while (*s && l->len < sizeof l->text - 1)
		l->text[l->len++] = *s++;
}

static void put_number(struct line *l, uint64_t n, unsigned base)
{
	char digits[24];
	size_t at = sizeof digits;
	digits[--at] = '\0';
	do
		digits[--at] = "0123456789abcdef"[n % base];
	while (n /= base);
	put(l, &digits[at]);
}

static void end_line(struct line *l)
{
	size_t done = 0;
	l->text[l->len++] = '\n';
	while (done < l->len) {
		ssize_t n = write(STDERR_FILENO, l->text + done, l->len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	l->len = 0;
}

/* ---- context of the thread ---- */

/* The handler and shard that the thread was running. */
struct location {
	const char *kind, *handler; /* NULL: not in a handler */
	const struct shard *shard;
};

static struct location find_place(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer) {
		if (c->handler)
			return (struct location){"inline", c->handler, c->shard};
		if (c->fiber)
			return (struct location){"fiber", c->fiber->req.name, c->shard};
		if (c->req)
			return (struct location){"blocking", c->req->name, c->req->shard};
	}
	return (struct location){NULL, NULL, shard_context_top() ? shard_context_top()->shard : NULL};
}

static void put_place(struct line *l, const struct location *p)
{
	if (p->handler) {
		put(l, ", in the ");
		put(l, p->kind);
		put(l, " handler \"");
		put(l, p->handler);
		put(l, "\"");
	} else {
		put(l, ", in no handler");
	}
	if (p->shard) {
		put(l, " on worker \"");
		put(l, p->shard->config.name);
		put(l, "\"");
	}
}

/* Reports an overflow of the thread's fiber stacks; there may be several, since an inline handler of another agent may
 * run on a fiber. */
static void report_overflow(struct line *l, const void *address)
{
	const struct shard_context *c = shard_context_top();
	while (c && !(c->fiber && fiber_in_guard(c->fiber, address)))
		c = c->outer;
	if (!c)
		return;
	put(l, "farcall: that is in the guard page below the stack of the fiber handler \"");
	put(l, c->fiber->req.name);
	put(l, "\": it overflowed its ");
	put_number(l, fiber_stack_bytes(c->fiber), 10);
	put(l, " bytes; raise opts.fiber_stack_bytes, or keep large arrays elsewhere");
	end_line(l);
}

/* The last rare events of the thread's shard. */
static void report_events(struct line *l, const struct shard *s)
{
	struct trace_event events[CRASH_EVENTS];
	uint32_t n = trace_read(s->trace, events, CRASH_EVENTS);
	for (uint32_t i = 0; i < n; i++) {
		const struct trace_event *e = &events[i];
		const struct function *f = e->typed ? registry_at(s->config.registry, e->function) : NULL;
		put(l, i ? "" : "farcall: the shard's last events, by time in microseconds:\n");
		put(l, "farcall:   ");
		put_number(l, e->at > events[0].at ? (e->at - events[0].at) / 1000 : 0, 10); /* of several threads */
		put(l, " ");
		put(l, trace_kind_text(e->kind));
		if (f) {
			put(l, " \"");
			put(l, f->signature.name);
			put(l, "\"");
		}
		if (e->status) {
			put(l, ": ");
			put(l, far_status_name((enum far_status)e->status));
		}
		put(l, ", worker of rank ");
		put_number(l, e->worker, 10);
		end_line(l);
	}
}

static void report(unsigned which, const siginfo_t *info)
{
	struct line l = {0};
	struct location place = find_place();
	void *frames[FRAMES_MAX];
	put(&l, "farcall: crash: ");
	put(&l, reported[which].name);
	if (info->si_code > 0) {
		put(&l, " at address 0x");
		put_number(&l, (uintptr_t)info->si_addr, 16);
	} else {
		put(&l, " sent by process ");
		put_number(&l, (uint64_t)info->si_pid, 10);
	}
	put_place(&l, &place);
	end_line(&l);
	if (info->si_code > 0)
		report_overflow(&l, info->si_addr);
	if (place.shard)
		report_events(&l, place.shard);
	int n = backtrace(frames, FRAMES_MAX);
	backtrace_symbols_fd(frames, n, STDERR_FILENO);
}

/* ---- the handler ---- */

static void on_crash(int number, siginfo_t *info, void *machine)
{
	int error = errno;
	unsigned which = 0;
	(void)machine;
	while (which < REPORTED - 1 && reported[which].number != number)
		which++;
	/* If several threads crash at once, one reports. */
	if (!atomic_flag_test_and_set(&reporting)) {
		report(which, info);
		atomic_flag_clear(&reporting);
	}
	/* What was there before has its turn: the instruction is tried again, or the signal sent again, and arrives
	 * when this returns. */
	sigaction(number, &previous[which], NULL);
	if (info->si_code <= 0)
		syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), number);
	errno = error;
}

static enum far_status install(struct far_err *err)
{
	struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	void *frame;
	struct crash_stack stack; /* kept until the thread ends */
	crash_stacks_enable();
	int error = crash_stack_take(&stack);
	if (error)
		return err_sys(err, error, "crash report: no memory for the thread's alternate stack");
	if (installed)
		return FAR_OK;
	(void)backtrace(&frame, 1); /* loads the unwinder now: the signal handler must not */
	sigemptyset(&action.sa_mask);
	for (unsigned i = 0; i < REPORTED; i++) {
		if (sigaction(reported[i].number, NULL, &previous[i]) == 0 &&
		    sigaction(reported[i].number, &action, NULL) == 0)
			continue;
		error = errno;
		while (i > 0) {
			i--;
			sigaction(reported[i].number, &previous[i], NULL);
		}
		return err_sys(err, error, "crash report: cannot handle signals");
	}
	installed = true;
	return FAR_OK;
}

enum far_status far_crash_report_install(struct far_err *err)
{
	pthread_mutex_lock(&install_lock);
	enum far_status status = install(err);
	pthread_mutex_unlock(&install_lock);
	return status;
}
