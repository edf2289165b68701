/* SPDX-License-Identifier: BSD-3-Clause */
#include "sync/progress.h"

#include "sync/futex.h"
#include "sync/future.h"

static void nudge_one(struct driver *d)
{
	for (unsigned i = 0; i < FAR_SLEEPERS_MAX; i++) {
		_Atomic uint32_t *state = atomic_load_explicit(&d->sleepers[i], memory_order_acquire);
		if (state) {
			future_nudge(state);
			return;
		}
	}
}

void driver_release(struct driver *d)
{
	atomic_store_explicit(&d->token, 0, memory_order_seq_cst); /* pairs with driver_sleeper_add, driver_park */
	if (atomic_load_explicit(&d->sleepers_n, memory_order_seq_cst))
		nudge_one(d);
	if (atomic_load_explicit(&d->parked, memory_order_seq_cst))
		driver_unpark(d);
}

int driver_sleeper_add(struct driver *d, _Atomic uint32_t *state)
{
	for (int i = 0; i < (int)FAR_SLEEPERS_MAX; i++) {
		_Atomic uint32_t *none = NULL;
		if (atomic_load_explicit(&d->sleepers[i], memory_order_relaxed) == NULL &&
		    atomic_compare_exchange_strong_explicit(&d->sleepers[i], &none, state, memory_order_seq_cst,
							    memory_order_relaxed)) {
			atomic_fetch_add_explicit(&d->sleepers_n, 1, memory_order_seq_cst);
			return i;
		}
	}
	return -1;
}

void driver_sleeper_remove(struct driver *d, int place)
{
	if (place < 0)
		return;
	atomic_store_explicit(&d->sleepers[place], NULL, memory_order_release);
	/* Whoever was nudged but no longer needs the token passes the nudge on. */
	if (atomic_fetch_sub_explicit(&d->sleepers_n, 1, memory_order_seq_cst) > 1 &&
	    !atomic_load_explicit(&d->token, memory_order_seq_cst))
		nudge_one(d);
}

void driver_park(struct driver *d)
{
	atomic_store_explicit(&d->parked, 1, memory_order_seq_cst);
	if (!atomic_load_explicit(&d->token, memory_order_seq_cst)) {
		atomic_store_explicit(&d->parked, 0, memory_order_relaxed);
		return;
	}
	while (atomic_load_explicit(&d->parked, memory_order_acquire))
		futex_wait(&d->parked, 1, TIME_NEVER);
}

void driver_unpark(struct driver *d)
{
	atomic_store_explicit(&d->parked, 0, memory_order_release);
	futex_wake(&d->parked, 1);
}

void driver_call(struct driver *d)
{
	/* Whoever finds it set need not wake: the keeper clears it before it looks, and has not yet. */
	if (!atomic_exchange_explicit(&d->left, 1, memory_order_seq_cst)) /* pairs with driver_nap() */
		futex_wake(&d->left, 1);
}

bool driver_nap(struct driver *d, uint64_t until)
{
	futex_wait(&d->left, 0, until);
	return atomic_exchange_explicit(&d->left, 0, memory_order_seq_cst);
}
