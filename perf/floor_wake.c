/* SPDX-License-Identifier: BSD-3-Clause */
/** What it takes to wake a sleeping process through an eventfd, from before the write to behind the reader's poll.
 * Main thread of each process. */
#include "floor_ring.h"
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define SILENCE_NS 10000000 /* the cores have gone to sleep by then */

int floor_wake_serve(struct floor_shared *s, uint64_t mode)
{
	uint64_t since = floor_now();
	for (;;) {
		struct pollfd p = {.fd = s->wake_fd, .events = POLLIN};
		uint64_t value;
		int n = poll(&p, 1, 1000);
		uint64_t now = floor_now();
		if (n > 0 && read(s->wake_fd, &value, sizeof value) == (ssize_t)sizeof value) {
			atomic_store_explicit(&s->stamp.v, now,
					      memory_order_release); /* pairs with the client's spin */
			since = now;
		}
		int rc = floor_poll_mode(s, mode, &since);
		if (rc)
			return rc < 0 ? rc : 0;
	}
}

static int wake_once(struct floor_shared *s, uint64_t mode, struct hist *h)
{
	uint64_t since = 0, stamp, one = 1;
	struct timespec nap = {.tv_nsec = SILENCE_NS};
	nanosleep(&nap, NULL);
	atomic_store_explicit(&s->stamp.v, 0, memory_order_relaxed);
	uint64_t before = floor_now();
	if (write(s->wake_fd, &one, sizeof one) < 0)
		return -errno;
	while ((stamp = atomic_load_explicit(&s->stamp.v, memory_order_acquire)) == 0) {
		int rc = floor_poll_mode(s, mode, &since);
		if (rc)
			return rc < 0 ? rc : -ECANCELED;
	}
	hist_record(h, stamp - before);
	return 0;
}

int floor_wake(struct floor_shared *s, unsigned samples, struct hist *h)
{
	int rc = floor_switch(s, FLOOR_WAKE);
	uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	for (unsigned i = 0; rc == 0 && i < samples; i++)
		rc = wake_once(s, mode, h);
	int last = floor_rouse(s, FLOOR_IDLE);
	return rc ? rc : last;
}

int floor_rouse(struct floor_shared *s, enum floor_mode mode)
{
	uint64_t one = 1,
		 next = ((atomic_load_explicit(&s->mode.v, memory_order_relaxed) >> 8) + 1) << 8 | (uint64_t)mode;
	atomic_store_explicit(&s->mode.v, next, memory_order_release); /* pairs with floor_poll_mode() */
	if (write(s->wake_fd, &one, sizeof one) < 0)
		return -errno;
	return floor_spin(s, next, &s->state.v, next);
}
