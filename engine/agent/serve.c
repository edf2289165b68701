/* SPDX-License-Identifier: BSD-3-Clause */
/* far_serve() and far_stop(). An application thread; far_stop() and the signal handler: any thread. */
#include "agent/init.h"
#include "base/error.h"
#include "core/shard.h"
#include "features/references/rref.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SERVING_MAX 64 /* agents of a process in far_serve() at once */

/* Signals that end far_serve(), unless the application has set an action for them. */
static const int stop_signals[] = {SIGINT, SIGTERM};
#define STOP_SIGNALS (sizeof stop_signals / sizeof *stop_signals)

/* An agent in far_serve(). Static, so that a signal handler may write `wake` at any time; each write makes the thread
 * check its reasons to stop again. */
struct serving {
	int wake;         /* eventfd */
	bool used;        /* by `lock` */
	uint32_t signals; /* `signalled` at the begin: a signal from then on ends it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct serving servings[SERVING_MAX];
static _Atomic unsigned made_n;    /* servings[0, made_n) have a descriptor; release, pairs with on_signal() */
static unsigned used_n;            /* by `lock` */
static pid_t made_by;              /* the process; by `lock` */
static _Atomic uint32_t signalled; /* stop signals received */
static struct sigaction before[STOP_SIGNALS];
static bool replaced[STOP_SIGNALS]; /* by `lock`: before[i] is to be restored */

static void on_signal(int number)
{
	int saved = errno;
	(void)number;
	atomic_fetch_add_explicit(&signalled, 1, memory_order_release);
	unsigned n = atomic_load_explicit(&made_n, memory_order_acquire);
	for (unsigned i = 0; i < n; i++)
		eventfd_write(servings[i].wake, 1);
	errno = saved;
}

static void signals_take(void)
{
	struct sigaction own = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	sigemptyset(&own.sa_mask);
	for (unsigned i = 0; i < STOP_SIGNALS; i++) {
		sigaction(stop_signals[i], NULL, &before[i]);
		replaced[i] = !(before[i].sa_flags & SA_SIGINFO) && before[i].sa_handler == SIG_DFL;
		if (replaced[i])
			sigaction(stop_signals[i], &own, NULL);
	}
}

static void signals_restore(void)
{
	for (unsigned i = 0; i < STOP_SIGNALS; i++)
		if (replaced[i])
			sigaction(stop_signals[i], &before[i], NULL);
}

/* A child process has descriptors of its own: those that it inherited are its parent's, too. */
static unsigned made_here(void)
{
	unsigned n = atomic_load_explicit(&made_n, memory_order_relaxed);
	if (made_by != getpid()) {
		for (unsigned i = 0; i < n; i++)
			close(servings[i].wake);
		made_by = getpid();
		n = 0;
		atomic_store_explicit(&made_n, 0, memory_order_release);
	}
	return n;
}

/* NULL: too many. */
static struct serving *serving_begin(void)
{
	struct serving *s = NULL;
	pthread_mutex_lock(&lock);
	unsigned n = made_here(), i = 0;
	while (i < n && servings[i].used)
		i++;
	if (i == n && n < SERVING_MAX && (servings[n].wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0)
		atomic_store_explicit(&made_n, ++n, memory_order_release);
	if (i < n) {
		s = &servings[i];
		s->used = true;
		s->signals = atomic_load_explicit(&signalled, memory_order_acquire);
		if (used_n++ == 0)
			signals_take();
	}
	pthread_mutex_unlock(&lock);
	return s;
}

static void serving_end(struct serving *s)
{
	pthread_mutex_lock(&lock);
	s->used = false;
	if (--used_n == 0)
		signals_restore();
	pthread_mutex_unlock(&lock);
}

void agent_state_changed(void *ctx, enum ctl_state state)
{
	struct far_agent *a = ctx;
	if (state == CTL_LEAVING)
		agent_keep_leaks(a);
	struct serving *s =
		atomic_load_explicit(&a->serving, memory_order_seq_cst); /* far_serve() reads the state later */
	if (s)
		eventfd_write(s->wake, 1);
	agent_poll_signal(a); /* agent_wait_settled() */
}

void far_stop(struct far_agent *a)
{
	if (!a)
		return;
	/* seq_cst, with the load below: far_serve() publishes `serving`, then reads `stopped`. */
	atomic_store_explicit(&a->stopped, true, memory_order_seq_cst);
	atomic_store_explicit(&a->has_work, true, memory_order_release); /* outstanding() */
	struct serving *s = atomic_load_explicit(&a->serving, memory_order_seq_cst);
	if (s)
		eventfd_write(s->wake, 1);
}

/* Waits for a reason to stop. FAR_TIMEOUT: `until` has come. */
static enum far_status serve(struct far_agent *a, struct serving *s, uint64_t until, struct far_err *err)
{
	eventfd_t ignored;
	bool late = false;
	while (!atomic_load_explicit(&a->stopped, memory_order_seq_cst) && ctl_state(a->ctl) != CTL_LEFT &&
	       atomic_load_explicit(&signalled, memory_order_acquire) == s->signals && !late) {
		agent_await(a, s->wake, until);
		eventfd_read(s->wake, &ignored);
		late = until != TIME_NEVER && clock_now(a->clock) >= until;
	}
	return late ? err_set(err, FAR_TIMEOUT, "the time limit of far_serve has passed") : FAR_OK;
}

enum far_status far_serve(struct far_agent *a, uint64_t timeout_ns, struct far_err *err)
{
	enum far_status status = agent_check_end(a, "far_serve", err);
	if (status)
		return status;
	uint64_t limit = timeout_ns ? timeout_ns : FAR_SERVE_TIMEOUT_NS;
	struct serving *s = serving_begin();
	if (!s)
		return err_set(err, FAR_RESOURCE, "far_serve: %d agents of this process serve already", SERVING_MAX);
	struct serving *none = NULL;
	if (!atomic_compare_exchange_strong_explicit(&a->serving, &none, s, memory_order_seq_cst,
						     memory_order_relaxed)) {
		serving_end(s);
		return err_set(err, FAR_INVALID, "worker \"%s\" is in far_serve already, on another thread", a->name);
	}
	a->serves = true;
	/* In the reverse order of far_stop(). */
	atomic_store_explicit(&a->has_work, false, memory_order_seq_cst);
	if (atomic_load_explicit(&a->stopped, memory_order_seq_cst))
		atomic_store_explicit(&a->has_work, true, memory_order_release);
	ctl_serve(a->ctl);
	status = serve(a, s, time_after(clock_now(a->clock), limit), err);
	atomic_store_explicit(&a->has_work, true, memory_order_release);
	atomic_store_explicit(&a->serving, NULL, memory_order_seq_cst);
	serving_end(s);
	return status;
}
