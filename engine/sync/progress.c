/* SPDX-License-Identifier: BSD-3-Clause */
/* Release of the progress token, its waiting threads, and the poller's sleeps. Any thread, but for what progress.h
 * names as the poller's. */
#include "sync/progress.h"

#include "sync/futex.h"
#include "sync/future.h"

#include <sys/eventfd.h>

static void wake_one_sleeper(struct progress *p)
{
	for (unsigned i = 0; i < FAR_SLEEPERS_MAX; i++) {
		_Atomic uint32_t *state = atomic_load_explicit(&p->sleepers[i], memory_order_acquire);
		if (state) {
			future_wake(state);
			return;
		}
	}
}

void progress_release(struct progress *p)
{
	atomic_store_explicit(&p->token, 0, memory_order_seq_cst); /* pairs with progress_sleeper_add, progress_park */
	if (atomic_load_explicit(&p->sleepers_n, memory_order_seq_cst))
		wake_one_sleeper(p);
	if (atomic_load_explicit(&p->parked, memory_order_seq_cst))
		progress_unpark(p);
}

int progress_sleeper_add(struct progress *p, _Atomic uint32_t *state)
{
	for (int i = 0; i < (int)FAR_SLEEPERS_MAX; i++) {
		_Atomic uint32_t *none = NULL;
		if (atomic_load_explicit(&p->sleepers[i], memory_order_relaxed) == NULL &&
		    atomic_compare_exchange_strong_explicit(&p->sleepers[i], &none, state, memory_order_seq_cst,
							    memory_order_relaxed)) {
			atomic_fetch_add_explicit(&p->sleepers_n, 1, memory_order_seq_cst);
			return i;
		}
	}
	return -1;
}

void progress_sleeper_remove(struct progress *p, int index)
{
	if (index < 0)
		return;
	atomic_store_explicit(&p->sleepers[index], NULL, memory_order_release);
	/* This thread may have received the wake-up of a release that it does not need: wake another sleeper. */
	if (atomic_fetch_sub_explicit(&p->sleepers_n, 1, memory_order_seq_cst) > 1 &&
	    !atomic_load_explicit(&p->token, memory_order_seq_cst))
		wake_one_sleeper(p);
}

void progress_park(struct progress *p)
{
	atomic_store_explicit(&p->parked, 1, memory_order_seq_cst);
	if (!atomic_load_explicit(&p->token, memory_order_seq_cst)) {
		atomic_store_explicit(&p->parked, 0, memory_order_relaxed);
		return;
	}
	while (atomic_load_explicit(&p->parked, memory_order_acquire))
		futex_wait(&p->parked, 1, TIME_NEVER);
}

void progress_unpark(struct progress *p)
{
	atomic_store_explicit(&p->parked, 0, memory_order_release);
	if (p->signal)
		eventfd_write(*p->signal, 1);
	else
		futex_wake(&p->parked, 1);
}

void progress_signal_release(struct progress *p, uint32_t epoch)
{
	atomic_store_explicit(&p->parked, 1, memory_order_seq_cst); /* pairs with progress_release() */
	if (!atomic_load_explicit(&p->token, memory_order_seq_cst) &&
	    atomic_load_explicit(&p->epoch, memory_order_relaxed) != epoch)
		progress_unpark(p);
}

void progress_wake_poller(struct progress *p)
{
	/* Already set: no wake-up is needed, since the poller clears it before it checks for work, and has not yet. */
	if (!atomic_exchange_explicit(&p->left, 1, memory_order_seq_cst)) /* pairs with progress_poller_nap() */
		futex_wake(&p->left, 1);
}

bool progress_poller_nap(struct progress *p, uint64_t until)
{
	futex_wait(&p->left, 0, until);
	return atomic_exchange_explicit(&p->left, 0, memory_order_seq_cst);
}
