/* SPDX-License-Identifier: BSD-3-Clause */
/** A ring of io_uring, by its system calls. One thread. */
#ifndef PSV_RING_H
#define PSV_RING_H

#include <linux/io_uring.h>
#include <stdbool.h>
#include <stddef.h>

struct psv_ring {
	int fd;
	unsigned queued; /* entries that psv_ring_submit() has not handed over */
	unsigned mask, cq_mask;
	_Atomic unsigned *sq_tail, *cq_head, *cq_tail; /* shared with the kernel */
	const struct io_uring_cqe *cqes;
	struct io_uring_sqe *sqes;
	char *map;
	size_t map_bytes, sqes_bytes;
};

/** Makes a ring with room for `entries`, a power of two. 0, or -errno: the kernel has none or forbids it. */
int psv_ring_open(struct psv_ring *ring, unsigned entries);
void psv_ring_close(struct psv_ring *ring);

/** Queues a request. At most `entries` are pending at a time. */
void psv_ring_queue(struct psv_ring *ring, const struct io_uring_sqe *sqe);

/** Hands the queued requests to the kernel; returns how many it took. Fewer than all: the kernel takes no more now. */
unsigned psv_ring_submit(struct psv_ring *ring);

/** Waits for a completion. */
void psv_ring_wait(struct psv_ring *ring, struct io_uring_cqe *out);

#endif
