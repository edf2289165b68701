/* SPDX-License-Identifier: BSD-3-Clause */
/** What it takes to wake a sleeping process through an eventfd, from before the write to behind the reader's poll. */
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
		int rc = floor_look(s, mode, &since);
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
		int rc = floor_look(s, mode, &since);
		if (rc)
			return rc < 0 ? rc : -ECANCELED;
	}
	hist_record(h, stamp - before);
	return 0;
}

int floor_wake(struct floor_shared *s, unsigned samples, struct hist *h)
{
	uint64_t one = 1;
	int rc = floor_switch(s, FLOOR_WAKE);
	uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	for (unsigned i = 0; rc == 0 && i < samples; i++)
		rc = wake_once(s, mode, h);
	/* The server sleeps in poll(): the wake-up makes it see the new mode. */
	uint64_t next = ((mode >> 8) + 1) << 8 | FLOOR_IDLE;
	atomic_store_explicit(&s->mode.v, next, memory_order_release);
	if (write(s->wake_fd, &one, sizeof one) < 0)
		return -errno;
	return rc ? rc : floor_spin(s, next, &s->state.v, next);
}
