/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Waiting and sleeping: the poller of a shard, threads that wait for a future, and shards without a thread. The
 * poller, or any thread that waits.
 *
 * Sleep pairs by full fences, twice: with the flush of peers through the queue's arm(), and with submissions of this
 * process through `asleep` (shard_notify). Both sides write, fence, and read; in every order one sees the other.
 */
#include "core/shard.h"

#include "base/crash_stack.h"
#include "base/must.h"
#include "base/mutant.h"
#include "core/call.h"
#include "core/call_deadline.h"
#include "core/context.h"
#include "core/fiber.h"
#include "core/idle.h"
#include "core/lease.h"
#include "core/loop.h"
#include "core/queues.h"
#include "core/timer.h"
#include "core/waiting.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

/* A waiter expects an answer soon and spins longer: a wake-up costs more than most answers take. */
#define WAITER_YIELD_NS UINT64_C(200000)
#define EMPTY_PER_CLOCK 64u
/* Under a CPU quota: a pass may be a system call of a driver, and 64 of them take long. */
#define EMPTY_PER_CLOCK_SCARCE 8u
/* Passes of a waiting thread between two checks of its own limit. */
#define PASSES_PER_LOOK 64u
/* How long a thread tries for the token before it sleeps on its future. */
#define TAKE_OVER_NS UINT64_C(20000)

/* The poller checks this often whether a thread polls, while one recently did. */
#define TICK_MIN_NS UINT64_C(200000)
#define TICK_MAX_NS UINT64_C(1000000)
/* A thread held the shard for so many ticks: the poller parks until it lets go. */
#define TICKS_TO_PARK 4u
/* Passes of a check while threads poll by turns: what a ring can hold. */
#define LOOK_PASSES 64u

static void nap(uint64_t ns)
{
	struct timespec ts = {0, (long)ns};
	nanosleep(&ts, NULL);
}

/* How long a polling thread finds nothing before it yields, and before it sleeps. */
struct patience {
	uint64_t spin_ns, sleep_ns; /* since it found nothing for the first time */
};

static struct patience patience_of(const struct shard *s, bool awaiting)
{
	if (s->config.cpu_scarce)
		return (struct patience){FAR_SPIN_SCARCE_NS, FAR_SPIN_SCARCE_NS};
	if (s->config.idle == FAR_IDLE_BUSY)
		return (struct patience){TIME_NEVER, TIME_NEVER};
	return (struct patience){FAR_SPIN_NS, FAR_SPIN_NS + (awaiting ? WAITER_YIELD_NS : FAR_YIELD_NS)};
}

bool idler_step(struct shard *s, struct idler *i, bool awaiting)
{
	shard_own(s);
	if (++i->empty % (unlikely(s->config.cpu_scarce) ? EMPTY_PER_CLOCK_SCARCE : EMPTY_PER_CLOCK))
		return false;
	uint64_t now = clock_now(s->config.clock);
	if (!i->since)
		i->since = now;
	if (shard_run_timers(s, now)) /* perhaps what the caller waits for */
		return false;
	struct patience patience = patience_of(s, awaiting);
	if (now - i->since >= patience.sleep_ns && now >= s->awake_until)
		return true;
	if (now - i->since >= patience.spin_ns)
		sched_yield();
	return false;
}

void shard_keep_awake(struct shard *s, uint64_t ns)
{
	shard_own(s);
	uint64_t until = clock_now(s->config.clock) + (ns < FAR_KEEP_AWAKE_NS_MAX ? ns : FAR_KEEP_AWAKE_NS_MAX);
	if (!s->config.cpu_scarce && until > s->awake_until)
		s->awake_until = until;
}

/* A pass that leaves nothing out, mail and timers included. */
static unsigned full_pass(struct shard *s)
{
	s->passes |= 63u;
	queues_poll_all(s);
	return shard_pass(s);
}

/* Arms everything that can wake the thread; then one more pass. false: it found something. */
static bool go_to_sleep(struct shard *s)
{
	atomic_store_explicit(&s->progress.asleep, 1, memory_order_relaxed);
	if (!MUTANT(SLEEP_UNARMED))
		queues_arm(s);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with shard_notify */
	if (full_pass(s) == 0 && !s->ready_head)
		return true;
	queues_disarm(s);
	atomic_store_explicit(&s->progress.asleep, 0, memory_order_relaxed);
	return false;
}

/* A peer that returns bulk memory wakes no one, so a shard that waits for it polls again soon. */
static uint64_t next_wake(struct shard *s)
{
	call_arm_all(s, clock_now(s->config.clock));
	uint64_t next = timer_next(&s->wheel), calls = timer_next(&s->call_wheel);
	next = calls < next ? calls : next;
	if (s->waiting_until < next)
		next = s->waiting_until;
	uint64_t nic = queues_deadline(s);
	if (nic < next)
		next = nic;
	if (s->backpressured_n != s->draining_n || waiting_stalled(s) || s->unsent_mails || s->send_stalled) {
		uint64_t soon = clock_now(s->config.clock) + FAR_NAP_NS;
		next = soon < next ? soon : next;
	}
	return next;
}

void shard_sleep(struct shard *s, uint64_t until)
{
	shard_own(s);
	if (!go_to_sleep(s))
		return;
	uint64_t next = next_wake(s);
	queues_wake_clear(s, queues_sleep(s, next < until ? next : until));
	counter_add(&s->counters.wakeups, 1);
	queues_disarm(s);
	atomic_store_explicit(&s->progress.asleep, 0, memory_order_relaxed);
	shard_run_timers(s, clock_now(s->config.clock));
}

/* ---- without a thread ---- */

static void wake_up(struct shard *s, struct shard_turns *t)
{
	queues_wake_clear(s, UINT32_MAX);
	counter_add(&s->counters.wakeups, 1);
	t->asleep = false;
	t->idler = (struct idler){0};
	shard_run_timers(s, clock_now(s->config.clock));
}

/* Sleeps as poller_sleep() does, once nothing was found for long enough. Returns when the next turn is due. */
static uint64_t turn_idle(struct shard *s, struct shard_turns *t)
{
	uint64_t now = clock_now(s->config.clock), patience = patience_of(s, false).sleep_ns, next;
	if (!t->idler.since)
		t->idler.since = now;
	if (now - t->idler.since >= patience) {
		if (!go_to_sleep(s))
			return now;
		next = next_wake(s);
		s->armed = t->asleep = true;
		return next > now ? next : now;
	}
	next = next_wake(s); /* it polls: packets are found when they arrive */
	uint64_t sleepy = time_after(t->idler.since, patience);
	next = next < sleepy ? next : sleepy;
	return next > now ? next : now;
}

uint64_t shard_turn(struct shard *s, struct shard_turns *t)
{
	must(s->config.stepped && shard_enter(s)); /* no other thread polls it */
	uint64_t next;
	if (t->asleep)
		wake_up(s, t);
	lease_is_over(s); /* a stepped shard may stand still between any two turns */
	unsigned n = full_pass(s);
	t->turns++;
	t->work += n;
	if (n || s->ready_head) {
		t->idler = (struct idler){0};
		next = clock_now(s->config.clock);
	} else {
		next = turn_idle(s, t);
	}
	shard_leave(s);
	return next;
}

struct shard_polled shard_poll_once(struct shard *s, uint32_t woke)
{
	struct shard_polled did = {.next = TIME_NEVER};
	/* Of the epoch before: a release since then has not signalled. */
	uint32_t epoch = atomic_load_explicit(&s->progress.epoch, memory_order_relaxed) - 1;
	if (!shard_enter(s)) {
		progress_signal_release(&s->progress, epoch);
		did.held = true;
		return did;
	}
	/* What is signalled from here on is handled below. */
	atomic_store_explicit(&s->progress.parked, 0, memory_order_relaxed);
	queues_wake_clear(s, woke);
	counter_add(&s->counters.wakeups, woke != 0);
	lease_is_over(s);
	unsigned passes = 0, got;
	do
		did.n += got = full_pass(s);
	while ((got || s->ready_head) && ++passes < FAR_POLL_PASSES);
	did.again = got || s->ready_head || !go_to_sleep(s);
	if (!did.again) {
		did.next = next_wake(s);
		s->armed = true;
	}
	epoch = atomic_load_explicit(&s->progress.epoch, memory_order_relaxed);
	shard_leave(s);
	if (!did.again)
		progress_signal_release(&s->progress, epoch);
	return did;
}

/* ---- waiting threads ---- */

static bool stopping(const struct shard *s)
{
	return atomic_load_explicit(&s->stop, memory_order_acquire);
}

/* `stoppable`: gives up when the shard is to stop, though the future is pending; the end of the shard completes it. */
static void drive_until(struct shard *s, struct far_future *f, uint64_t until, bool stoppable)
{
	struct idler idler = {0};
	for (unsigned passes = 1; !future_done(f) && !(stoppable && stopping(s)); passes++) {
		if (passes % PASSES_PER_LOOK == 0 && until != TIME_NEVER && clock_now(s->config.clock) >= until)
			return;
		if (shard_pass(s))
			idler = (struct idler){0};
		else if (idler_step(s, &idler, true))
			shard_sleep(s, until);
	}
}

static void sleep_on_future(struct shard *s, struct far_future *f, uint64_t until)
{
	/* Read before the token: a wake from now on changes it, and the sleep below is refused. */
	uint32_t state = atomic_load_explicit(&f->state, memory_order_acquire);
	int index = progress_sleeper_add(&s->progress, &f->state);
	bool token_free = !atomic_load_explicit(&s->progress.token, memory_order_seq_cst);
	if (s->config.progress == FAR_PROGRESS_DEDICATED || !token_free || stopping(s)) {
		uint64_t limit = until;
		if (index < 0) { /* no thread can hand over the token */
			uint64_t soon = clock_now(s->config.clock) + FAR_NAP_NS;
			limit = soon < until ? soon : until;
		}
		future_sleep(f, state, limit);
	}
	progress_sleeper_remove(&s->progress, index);
}

/* The thread holds other shards, which no other thread polls meanwhile, and which its future may need. So it polls all
 * of them, and does not sleep. */
static void drive_all_until(struct shard *s, struct far_future *f, uint64_t until)
{
	for (unsigned passes = 1; !future_done(f); passes++) {
		unsigned n = 0;
		if (passes % PASSES_PER_LOOK == 0 && until != TIME_NEVER && clock_now(s->config.clock) >= until)
			return;
		for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
			if (c->shard) {
				n += shard_pass(c->shard);
				shard_idle(c->shard);
			}
		if (s->config.progress == FAR_PROGRESS_SHARED && shard_enter(s)) {
			n += shard_pass(s);
			shard_leave(s);
		}
		if (n == 0)
			sched_yield();
	}
}

static inline bool holds_any(void)
{
	for (const struct shard_context *c = shard_context_top(); c; c = c->outer)
		if (c->shard)
			return true;
	return false;
}

__attribute__((noinline)) static int wait_parked(struct fiber *fb, struct far_future *f, uint64_t until)
{
	int error = 0;
	while (!error && !future_done(f) && (until == TIME_NEVER || clock_now(fb->shard->config.clock) < until))
		error = fiber_wait(fb, f, until);
	return error;
}

int shard_wait(struct shard *s, struct far_future *f, uint64_t until)
{
	struct fiber *fb = shard_in_fiber();
	if (unlikely(fb != NULL))
		return wait_parked(fb, f, until);
	if (shard_held(s)) {
		drive_until(s, f, until, false);
		return 0;
	}
	if (unlikely(holds_any())) {
		drive_all_until(s, f, until);
		return 0;
	}
	if (unlikely(s->config.stepped))
		return future_done(f) ? 0 : -EDEADLK;
	while (!future_done(f) && clock_now(s->config.clock) < until) {
		bool may_drive = s->config.progress == FAR_PROGRESS_SHARED && !stopping(s);
		if (may_drive && shard_enter(s)) {
			drive_until(s, f, until, true);
			shard_leave(s);
			continue;
		}
		/* Another thread polls. The poller lets go on request; another waiter does when it is done. */
		uint64_t give_up = clock_now(s->config.clock) + TAKE_OVER_NS;
		bool taken = false;
		if (may_drive)
			atomic_fetch_add_explicit(&s->progress.want, 1, memory_order_relaxed);
		while (!future_done(f) && !taken && clock_now(s->config.clock) < give_up)
			taken = may_drive && !atomic_load_explicit(&s->progress.token, memory_order_relaxed);
		if (may_drive)
			atomic_fetch_sub_explicit(&s->progress.want, 1, memory_order_relaxed);
		if (!taken && !future_done(f))
			sleep_on_future(s, f, until);
	}
	return 0;
}

/* ---- the shard's own thread ---- */

static void poller_dedicated(struct shard *s)
{
	struct idler idler = {0};
	while (!shard_enter(s))
		nap(TICK_MIN_NS);
	while (!stopping(s)) {
		if (shard_pass(s))
			idler = (struct idler){0};
		else if (idler_step(s, &idler, false))
			shard_sleep(s, TIME_NEVER);
	}
	shard_leave(s);
}

/* Polls until a thread requests the token (false) or nothing has happened for a while (true). Holds the token
 * throughout. */
static bool poller_drive(struct shard *s)
{
	struct idler idler = {0};
	while (!stopping(s) && !atomic_load_explicit(&s->progress.want, memory_order_relaxed)) {
		if (shard_pass(s))
			idler = (struct idler){0};
		else if (idler_step(s, &idler, false))
			return true;
	}
	return false;
}

/* Sleeps without the token, armed: the next holder finds `armed` (shard_enter). Returns which queues woke
 * it. */
static uint32_t poller_sleep(struct shard *s)
{
	if (!go_to_sleep(s)) {
		shard_leave(s);
		return 0;
	}
	uint64_t next = next_wake(s);
	s->armed = true;
	atomic_store_explicit(&s->poller_asleep, true, memory_order_relaxed);
	shard_leave(s);
	uint32_t woke = queues_sleep(s, next);
	atomic_store_explicit(&s->poller_asleep, false, memory_order_relaxed);
	return woke;
}

/* true: a thread left work that only a polling thread does. */
static bool poller_nap(struct shard *s, uint64_t ns)
{
	return progress_poller_nap(&s->progress, clock_now(s->config.clock) + ns);
}

/* `called`: threads that do not wait may take the token again and again, each for a moment. */
static bool poller_enter(struct shard *s, bool called)
{
	if (shard_enter(s))
		return true;
	uint64_t give_up = called ? clock_now(s->config.clock) + TAKE_OVER_NS : 0;
	while (called && clock_now(s->config.clock) < give_up)
		if (shard_enter(s))
			return true;
	return false;
}

static void poller_shared(struct shard *s)
{
	struct progress *d = &s->progress;
	uint64_t tick = TICK_MIN_NS;
	unsigned same = 0;
	bool slept = false, called = false;
	uint32_t woke = 0;
	while (!stopping(s)) {
		if (poller_enter(s, called)) {
			if (slept) {
				queues_wake_clear(s, woke);
				counter_add(&s->counters.wakeups, 1);
				lease_is_over(s); /* the process may have been stopped meanwhile */
				slept = false;
			}
			tick = TICK_MIN_NS;
			if (poller_drive(s)) {
				woke = poller_sleep(s);
				slept = true;
				continue;
			}
			shard_leave(s);
		}
		uint32_t epoch = atomic_load_explicit(&d->epoch, memory_order_relaxed);
		called = poller_nap(s, tick);
		if (called)
			continue;
		if (atomic_load_explicit(&d->epoch, memory_order_relaxed) == epoch &&
		    atomic_load_explicit(&d->token, memory_order_relaxed)) {
			if (++same == TICKS_TO_PARK) {
				progress_park(d);
				same = 0;
			}
			continue;
		}
		same = 0;
		/* Somebody drove in between and may do so again: only a look, so that what arrives while threads do
		 * nothing but send is served, and a longer nap. */
		while (!called && !stopping(s) && atomic_load_explicit(&d->epoch, memory_order_relaxed) != epoch &&
		       !atomic_load_explicit(&d->want, memory_order_relaxed)) {
			if (shard_enter(s)) {
				for (unsigned passes = 0; passes < LOOK_PASSES && full_pass(s); passes++)
					;
				shard_leave(s);
			}
			epoch = atomic_load_explicit(&d->epoch, memory_order_relaxed);
			tick = tick * 2 < TICK_MAX_NS ? tick * 2 : TICK_MAX_NS - 1;
			called = poller_nap(s, tick);
		}
	}
}

void *poller_main(void *arg)
{
	struct shard *s = arg;
	struct crash_stack stack;
	crash_stack_take(&stack); /* without memory for it an overflow goes unreported */
	if (s->config.progress == FAR_PROGRESS_DEDICATED)
		poller_dedicated(s);
	else
		poller_shared(s);
	crash_stack_give(&stack);
	return NULL;
}
