/* SPDX-License-Identifier: BSD-3-Clause */
/** Bulk floors: a plain copy on one core, and one copy whose every byte the other core reads: made by the writer
 * (push), past the caches and into blocks that take turns, as by the shm driver, or by the reader (pull); or none, and
 * the other core reads it in place. */
#include "base/limits.h"
#include "floor_ring.h"
#include "nic/shm/shm.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static unsigned char *block(struct floor_shared *s, uint64_t i)
{
	return s->area + i % s->depth * s->block_bytes;
}

uint64_t floor_read(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t sum = 0, w;
	size_t at = 0;
	for (; at + sizeof w <= len; at += sizeof w) {
		memcpy(&w, p + at, sizeof w);
		sum += w;
	}
	for (; at < len; at++)
		sum += p[at];
	return sum;
}

/* At least `want` in a counter that only grows. */
static int spin_until(struct floor_shared *s, uint64_t mode, _Atomic uint64_t *word, uint64_t want)
{
	uint64_t since = 0;
	for (;;) {
		for (unsigned i = 0; i < FLOOR_SPINS; i++)
			if (atomic_load_explicit(word, memory_order_acquire) >= want)
				return 0;
		int rc = floor_poll_mode(s, mode, &since);
		if (rc)
			return rc;
	}
}

/* Copies a block from the client's memory. */
static int pull(struct floor_shared *s, uint64_t i)
{
	struct iovec to = {block(s, i), s->block_bytes};
	struct iovec from = {(void *)(uintptr_t)(s->source + i % s->depth * s->block_bytes), s->block_bytes};
	if (process_vm_readv(s->source_pid, &to, 1, &from, 1, 0) == (ssize_t)s->block_bytes)
		return 0;
	return errno ? -errno : -EIO;
}

int floor_copy_serve(struct floor_shared *s, uint64_t mode)
{
	for (uint64_t n = 0;; n++) {
		int rc = spin_until(s, mode, &s->head.v, n + 1);
		if (rc)
			return rc < 0 ? rc : 0;
		if (s->source && (rc = pull(s, n)))
			return rc;
		uint64_t sum = floor_read(block(s, n), s->block_bytes);
		atomic_store_explicit(&s->sum.v, sum, memory_order_relaxed);
		atomic_store_explicit(&s->tail.v, n + 1, memory_order_release); /* pairs with the writer's spin */
	}
}

/* Writes block `n` as the way says. */
static void write_block(struct floor_shared *s, enum floor_way way, unsigned char *source, uint64_t n)
{
	if (way == FLOOR_PULL)
		memset(source + n % s->depth * s->block_bytes, (int)n, s->block_bytes);
	else if (way == FLOOR_IN_PLACE || (way == FLOOR_UNCHANGED && n < s->depth))
		memset(block(s, n), (int)n, s->block_bytes);
	else if (way == FLOOR_PUSH && s->block_bytes >= FAR_STREAM_BYTES_MIN)
		shm_tx_copy(block(s, n), source, s->block_bytes);
	else if (way == FLOOR_PUSH)
		memcpy(block(s, n), source, s->block_bytes);
}

/* Blocks that are written in turn, of those that fit: as many as are in flight, pushed ones more. */
static uint64_t turns(enum floor_way way, uint64_t block_bytes, uint64_t depth, uint64_t fit)
{
	uint64_t n = way == FLOOR_PUSH && block_bytes >= FAR_STREAM_BYTES_MIN ? SHM_TURN_BYTES / block_bytes : 0;
	n = n > depth ? n : depth;
	return n < fit ? n : fit;
}

int floor_copy(struct floor_shared *s, uint64_t ns, uint64_t block_bytes, unsigned depth, enum floor_way way,
	       double *bytes_per_s)
{
	bool pulled = way == FLOOR_PULL;
	if (block_bytes == 0 || block_bytes > FLOOR_AREA_BYTES)
		return -EINVAL;
	uint64_t fit = FLOOR_AREA_BYTES / block_bytes;
	s->block_bytes = block_bytes;
	s->depth = turns(way, block_bytes, depth, fit);
	unsigned char *source = malloc(block_bytes * (pulled ? s->depth : 1));
	if (!source)
		return -ENOMEM;
	memset(source, 1, block_bytes * (pulled ? s->depth : 1));
	s->source = pulled ? (uintptr_t)source : 0;
	s->source_pid = getpid();
	atomic_store_explicit(&s->head.v, 0, memory_order_relaxed);
	atomic_store_explicit(&s->tail.v, 0, memory_order_relaxed); /* both published by floor_switch() */
	int rc = floor_switch(s, FLOOR_COPY);
	uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	uint64_t n = 0, warm = 0, start = 0, now = 0;
	while (rc == 0 && (warm == 0 || now - start < ns)) {
		uint64_t most = depth < s->depth ? depth : s->depth;
		if (n >= most)
			rc = spin_until(s, mode, &s->tail.v, n - most + 1);
		write_block(s, way, source, n++);
		atomic_store_explicit(&s->head.v, n, memory_order_release); /* pairs with the reader's spin */
		now = floor_now();
		if (warm == 0 && n >= 2 * s->depth) { /* the pages are there by now */
			warm = n;
			start = now;
		}
	}
	if (rc == 0)
		rc = spin_until(s, mode, &s->tail.v, n);
	now = floor_now();
	*bytes_per_s = (double)((n - warm) * block_bytes) * 1e9 / (double)(now - start);
	if (rc == 0)
		rc = floor_switch(s, FLOOR_IDLE);
	free(source);
	return rc;
}

int floor_memcpy(struct floor_shared *s, uint64_t ns, uint64_t block_bytes, double *bytes_per_s)
{
	unsigned char *source = malloc(block_bytes);
	if (!source)
		return -ENOMEM;
	memset(source, 1, block_bytes);
	s->block_bytes = block_bytes;
	s->depth = 8;
	for (uint64_t i = 0; i < s->depth; i++)
		memcpy(block(s, i), source, block_bytes);
	uint64_t n = 0, start = floor_now(), now = start;
	for (; now - start < ns; n++) {
		memcpy(block(s, n), source, block_bytes);
		now = floor_now();
	}
	*bytes_per_s = (double)(n * block_bytes) * 1e9 / (double)(now - start);
	free(source);
	return 0;
}
