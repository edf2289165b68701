/* SPDX-License-Identifier: BSD-3-Clause */
/** The answering side of all floors: follows the mode word in shared memory. The serving thread. */
#include "floor_ring.h"
#include <errno.h>
#include <sched.h>

int floor_poll_mode(const struct floor_shared *s, uint64_t mode, uint64_t *since)
{
	if (atomic_load_explicit(&s->mode.v, memory_order_acquire) != mode)
		return 1;
	uint64_t now = floor_now();
	if (*since == 0)
		*since = now;
	sched_yield(); /* costs little by now, and with a single core it is what lets the other side go on */
	return now - *since > FLOOR_LOST_NS ? -ETIMEDOUT : 0;
}

static int serve_mode(struct floor_shared *s, const struct floor_host *host, uint64_t mode)
{
	switch ((enum floor_mode)(mode & 0xff)) {
	case FLOOR_LINE:
		return floor_line_serve(s, mode);
	case FLOOR_RING:
		return floor_ring_serve(s, mode);
	case FLOOR_BURSTS:
		return floor_bursts_serve(s, mode);
	case FLOOR_COPY:
		return floor_copy_serve(s, mode);
	case FLOOR_WAKE:
		return floor_wake_serve(s, mode);
	case FLOOR_IDLE:
	case FLOOR_REST:
	case FLOOR_STOP:
		return 0;
	default:
		return host->serve(host->ctx, mode);
	}
}

int floor_serve(struct floor_shared *s, const struct floor_host *host)
{
	uint64_t mode = atomic_load_explicit(&s->state.v, memory_order_relaxed);
	for (;;) {
		uint64_t next = atomic_load_explicit(&s->mode.v, memory_order_acquire);
		int rc = 0;
		if (next != mode) {
			mode = next;
			atomic_store_explicit(&s->state.v, mode, memory_order_release); /* pairs with floor_switch() */
			rc = serve_mode(s, host, mode);
		} else if ((mode & 0xff) == FLOOR_IDLE) {
			rc = host->idle(host->ctx);
		} else if ((mode & 0xff) == FLOOR_REST) {
			nanosleep(&(struct timespec){.tv_nsec = FLOOR_REST_NS}, NULL);
		}
		if (rc < 0)
			return rc;
		if ((mode & 0xff) == FLOOR_STOP)
			return 0;
	}
}

int floor_switch(struct floor_shared *s, enum floor_mode mode)
{
	uint64_t generation = (atomic_load_explicit(&s->mode.v, memory_order_relaxed) >> 8) + 1;
	uint64_t next = generation << 8 | (uint64_t)mode;
	atomic_store_explicit(&s->mode.v, next,
			      memory_order_release); /* pairs with floor_serve() and floor_poll_mode() */
	return floor_spin(s, next, &s->state.v, next);
}
