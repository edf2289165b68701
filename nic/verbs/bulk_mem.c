/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory regions that bulk reads from and into. They grant no remote rights; windows do. A poller searches the region
 * that contains a message. If it is engine memory that is not registered yet, the control thread registers its piece;
 * application memory is registered by the application's threads. A lock serialises registrations; it is held while the
 * kernel pins pages, so the control thread only tries it, except when the device is closed. */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int verbs_mems_open(struct verbs_port *p, struct nic_err *err)
{
	p->mems = calloc(1, sizeof *p->mems);
	if (!p->mems)
		return verbs_error(err, -ENOMEM, "verbs: out of memory");
	for (uint32_t i = 0; i < VERBS_MEMS_MAX; i++)
		atomic_init(&p->mems->mem[i].users, VERBS_MEM_FREE);
	pthread_mutex_init(&p->mems->lock, NULL);
	p->mems->open = true;
	return 0;
}

/* The windows over the regions are destroyed already. */
void verbs_mems_close(struct verbs_port *p)
{
	if (!p->mems)
		return;
	pthread_mutex_lock(&p->mems->lock);
	p->mems->open = false;
	for (uint32_t i = 0; i < VERBS_MEMS_MAX; i++) {
		if (p->mems->mem[i].mr)
			ibv_dereg_mr(p->mems->mem[i].mr);
		p->mems->mem[i].mr = NULL;
	}
	pthread_mutex_unlock(&p->mems->lock);
}

void verbs_mems_free(struct verbs_port *p)
{
	if (p->mems)
		pthread_mutex_destroy(&p->mems->lock);
	free(p->mems);
}

static struct verbs_mem *free_entry(struct verbs_mems *mems)
{
	for (uint32_t i = 0; i < VERBS_MEMS_MAX; i++)
		if (!mems->mem[i].mr)
			return &mems->mem[i];
	return NULL;
}

static int add(struct verbs_port *p, void *base, size_t bytes, struct nic_err *err)
{
	struct verbs_mem *mem = free_entry(p->mems);
	if (!mem)
		return verbs_error(err, -ENOSPC, "verbs: %s: more than %u memory regions: register fewer, larger ones",
				   p->on.device, VERBS_MEMS_MAX);
	errno = 0;
	mem->mr = ibv_reg_mr(p->pd, base, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (!mem->mr)
		return verbs_cannot_lock(p->on.device, bytes, bytes, errno ? errno : ENOMEM,
					 "give bulk=off, so that messages go in packets", err);
	atomic_store_explicit(&mem->base, (uintptr_t)base, memory_order_relaxed);
	atomic_store_explicit(&mem->end, (uintptr_t)base + bytes, memory_order_relaxed);
	/* Pairs with take(). */
	atomic_store_explicit(&mem->users, 0, memory_order_release);
	uint32_t n = (uint32_t)(mem - p->mems->mem) + 1;
	if (n > atomic_load_explicit(&p->mems->n, memory_order_relaxed))
		atomic_store_explicit(&p->mems->n, n, memory_order_release);
	return 0;
}

/* Locks, or returns the reason why not. */
static int begin(struct verbs_port *p, struct nic_err *err)
{
	if (!p->mems)
		return verbs_error(err, -EOPNOTSUPP,
				   "verbs: %s has no bulk, so no memory can be registered: see bulk=", p->on.device);
	pthread_mutex_lock(&p->mems->lock);
	if (p->mems->open)
		return 0;
	pthread_mutex_unlock(&p->mems->lock);
	return verbs_error(err, -ENODEV, "verbs: %s was removed or has failed: no memory can be registered",
			   p->on.device);
}

/* Lets the control thread retry, which may have found the lock taken. */
static void end(struct verbs_port *p)
{
	pthread_mutex_unlock(&p->mems->lock);
	verbs_signal(p->event_fd);
}

int verbs_mem_register(struct nic_port *port, void *base, size_t bytes, struct nic_err *err)
{
	struct verbs_port *p = (struct verbs_port *)port;
	int error = begin(p, err);
	if (error)
		return error;
	if (!base || !bytes || bytes > UINTPTR_MAX - (uintptr_t)base)
		error = verbs_error(err, -EINVAL, "verbs: %zu bytes at %p are not a valid range", bytes, base);
	else
		error = add(p, base, bytes, err);
	end(p);
	return error;
}

static int remove_one(struct verbs_mems *mems, const void *base, size_t bytes, struct nic_err *err)
{
	for (uint32_t i = 0; i < VERBS_MEMS_MAX; i++) {
		struct verbs_mem *mem = &mems->mem[i];
		uint32_t none = 0;
		if (!mem->mr || mem->mr->addr != base || mem->mr->length != bytes)
			continue;
		if (!atomic_compare_exchange_strong_explicit(&mem->users, &none, VERBS_MEM_FREE, memory_order_acquire,
							     memory_order_relaxed))
			return verbs_error(err, -EBUSY,
					   "verbs: %zu bytes at %p are in use: wait until the messages sent from there "
					   "are complete",
					   bytes, base);
		ibv_dereg_mr(mem->mr);
		mem->mr = NULL;
		return 0;
	}
	return verbs_error(err, -EINVAL, "verbs: %zu bytes at %p are not registered", bytes, base);
}

int verbs_mem_unregister(struct nic_port *port, void *base, size_t bytes, struct nic_err *err)
{
	struct verbs_port *p = (struct verbs_port *)port;
	int error = begin(p, err);
	if (error)
		return error;
	error = remove_one(p->mems, base, bytes, err);
	end(p);
	return error;
}

/* ---- requests of pollers ---- */

static bool take(struct verbs_mem *mem, uintptr_t at, uint64_t len)
{
	uint32_t users = atomic_load_explicit(&mem->users, memory_order_acquire);
	do {
		uintptr_t base = atomic_load_explicit(&mem->base, memory_order_relaxed),
			  end = atomic_load_explicit(&mem->end, memory_order_relaxed);
		if (users & VERBS_MEM_FREE || at < base || at > end || len > end - at)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&mem->users, &users, users + 1, memory_order_acquire,
							memory_order_acquire));
	/* The entry may have been reused in between. */
	if (at >= atomic_load_explicit(&mem->base, memory_order_relaxed) &&
	    at + len <= atomic_load_explicit(&mem->end, memory_order_relaxed))
		return true;
	verbs_mem_put(mem);
	return false;
}

/* True for application memory, which only the application registers. */
static bool is_application_memory(const struct verbs_port *p, const void *at)
{
	return p->memory_bytes && (uintptr_t)at - p->memory >= p->memory_bytes;
}

struct verbs_mem *verbs_mem_get(struct verbs_queue *q, const void *at, uint64_t len, int *error)
{
	struct verbs_mems *mems = q->port->mems;
	uint32_t n = atomic_load_explicit(&mems->n, memory_order_acquire);
	for (uint32_t i = 0; i < n; i++)
		if (take(&mems->mem[i], (uintptr_t)at, len))
			return &mems->mem[i];
	uint64_t retry_at = atomic_load_explicit(&mems->retry_at, memory_order_relaxed);
	*error = -ENOMEM;
	if (!q->port->memory_block || (retry_at && verbs_now() < retry_at) || is_application_memory(q->port, at))
		return NULL;
	*error = -EAGAIN;
	/* Pairs with verbs_mems_step(). */
	if (!atomic_load_explicit(&q->rc->mem_requested, memory_order_acquire)) {
		q->rc->mem_at = at;
		q->rc->mem_len = len;
		atomic_store_explicit(&q->rc->mem_requested, true, memory_order_release);
		verbs_signal(q->port->event_fd);
	}
	return NULL;
}

static bool is_registered(const struct verbs_mems *mems, const void *base, size_t bytes)
{
	for (uint32_t i = 0; i < VERBS_MEMS_MAX; i++)
		if (mems->mem[i].mr && (uintptr_t)base >= (uintptr_t)mems->mem[i].mr->addr &&
		    (uintptr_t)base + bytes <= (uintptr_t)mems->mem[i].mr->addr + mems->mem[i].mr->length)
			return true;
	return false;
}

/* Logs the first failure; messages go in packets meanwhile. */
static void log_once(struct verbs_mems *mems)
{
	if (mems->why.text[0] && !mems->logged)
		fprintf(stderr, "farcall: %s; larger messages go in packets meanwhile (bulk=off: always)\n",
			mems->why.text);
	mems->logged |= mems->why.text[0] != 0;
}

void verbs_mems_step(struct verbs_port *p, uint64_t now)
{
	if (!p->mems || !p->on.context || pthread_mutex_trylock(&p->mems->lock))
		return;
	for (unsigned i = 0; i < p->queues_n; i++) {
		struct verbs_rcq *rcq = p->queues[i]->rc;
		void *base;
		size_t bytes;
		if (!atomic_load_explicit(&rcq->mem_requested, memory_order_acquire))
			continue;
		const void *at = rcq->mem_at;
		uint64_t len = rcq->mem_len;
		bool known = is_registered(p->mems, at, len); /* requested by another queue */
		if (!known && (!p->memory_block(at, len, &base, &bytes) || add(p, base, bytes, &p->mems->why))) {
			atomic_store_explicit(&p->mems->retry_at, now + VERBS_MEM_RETRY_NS, memory_order_relaxed);
			log_once(p->mems);
		}
		atomic_store_explicit(&rcq->mem_requested, false, memory_order_release);
	}
	pthread_mutex_unlock(&p->mems->lock);
}
