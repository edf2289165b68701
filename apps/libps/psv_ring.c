/* SPDX-License-Identifier: BSD-3-Clause */
/** A ring of io_uring, by its system calls. The thread that saves. */
#include "psv_ring.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 1000000

static int enter(const struct psv_ring *r, unsigned submit, unsigned complete)
{
	long rc;
	do {
		rc = syscall(__NR_io_uring_enter, r->fd, submit, complete, complete ? IORING_ENTER_GETEVENTS : 0u, NULL,
			     0);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : (int)rc;
}

static void *map(const struct psv_ring *r, size_t bytes, off_t at)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, at);
}

static int map_queues(struct psv_ring *r, const struct io_uring_params *p)
{
	size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
	size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	r->map_bytes = sq > cq ? sq : cq;
	r->sqes_bytes = p->sq_entries * sizeof *r->sqes;
	void *queues = map(r, r->map_bytes, (off_t)IORING_OFF_SQ_RING);
	if (queues == MAP_FAILED)
		return -errno;
	r->map = queues;
	void *sqes = map(r, r->sqes_bytes, (off_t)IORING_OFF_SQES);
	if (sqes == MAP_FAILED)
		return -errno;
	r->sqes = sqes;
	r->sq_tail = (_Atomic unsigned *)(void *)(r->map + p->sq_off.tail);
	r->cq_head = (_Atomic unsigned *)(void *)(r->map + p->cq_off.head);
	r->cq_tail = (_Atomic unsigned *)(void *)(r->map + p->cq_off.tail);
	r->cqes = (const struct io_uring_cqe *)(void *)(r->map + p->cq_off.cqes);
	r->mask = p->sq_entries - 1;
	r->cq_mask = p->cq_entries - 1;
	unsigned *index = (unsigned *)(void *)(r->map + p->sq_off.array);
	for (unsigned i = 0; i < p->sq_entries; i++)
		index[i] = i;
	return 0;
}

int psv_ring_open(struct psv_ring *r, unsigned entries)
{
	struct io_uring_params p;
	memset(&p, 0, sizeof p);
	memset(r, 0, sizeof *r);
	r->fd = (int)syscall(__NR_io_uring_setup, entries, &p);
	if (r->fd < 0)
		return -errno;
	int rc = p.features & IORING_FEAT_SINGLE_MMAP ? map_queues(r, &p) : -ENOSYS;
	if (rc)
		psv_ring_close(r);
	return rc;
}

void psv_ring_close(struct psv_ring *r)
{
	if (r->sqes)
		munmap(r->sqes, r->sqes_bytes);
	if (r->map)
		munmap(r->map, r->map_bytes);
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	r->sqes = NULL;
	r->map = NULL;
}

void psv_ring_queue(struct psv_ring *r, const struct io_uring_sqe *sqe)
{
	unsigned tail = atomic_load_explicit(r->sq_tail, memory_order_relaxed);
	r->sqes[tail & r->mask] = *sqe;
	atomic_store_explicit(r->sq_tail, tail + 1, memory_order_release); /* io_uring_enter() reads it */
	r->queued++;
}

unsigned psv_ring_submit(struct psv_ring *r)
{
	unsigned taken = 0;
	while (r->queued) {
		int n = enter(r, r->queued, 0);
		if (n <= 0)
			break;
		r->queued -= (unsigned)n;
		taken += (unsigned)n;
	}
	/* Those that the kernel did not take are taken back. */
	atomic_fetch_sub_explicit(r->sq_tail, r->queued, memory_order_relaxed);
	r->queued = 0;
	return taken;
}

void psv_ring_wait(struct psv_ring *r, struct io_uring_cqe *out)
{
	unsigned head = atomic_load_explicit(r->cq_head, memory_order_relaxed);
	/* Acquire: the kernel's release of the entry. A completion comes without io_uring_enter(), too. */
	while (atomic_load_explicit(r->cq_tail, memory_order_acquire) == head)
		if (enter(r, 0, 1) < 0)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	*out = r->cqes[head & r->cq_mask];
	atomic_store_explicit(r->cq_head, head + 1, memory_order_release);
}
