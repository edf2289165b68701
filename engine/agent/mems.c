/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers application memory with the devices of an agent. Application threads; takes locks, makes system calls. */
#include "agent/mems.h"

#include "agent/agent.h"
#include "base/error.h"
#include "memory/region.h"

#include <errno.h>
#include <string.h>

void mems_init(struct mems *m)
{
	pthread_mutex_init(&m->change, NULL);
	pthread_rwlock_init(&m->lock, NULL);
	atomic_init(&m->n, 0);
}

void mems_fini(struct mems *m)
{
	pthread_mutex_destroy(&m->change);
	pthread_rwlock_destroy(&m->lock);
}

/* Index of the first region that ends beyond `at`. */
static uint32_t find(const struct mems *m, uintptr_t at)
{
	uint32_t low = 0, high = atomic_load_explicit(&m->n, memory_order_relaxed);
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (m->at[middle].end <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool mems_hold(struct mems *m, const void *at, size_t bytes)
{
	if (atomic_load_explicit(&m->n, memory_order_relaxed) == 0)
		return false;
	pthread_rwlock_rdlock(&m->lock);
	uint32_t i = find(m, (uintptr_t)at);
	bool holds = i < atomic_load_explicit(&m->n, memory_order_relaxed) && (uintptr_t)at >= m->at[i].base &&
		     bytes <= m->at[i].end - (uintptr_t)at;
	pthread_rwlock_unlock(&m->lock);
	return holds;
}

/* ---- devices ---- */

/* Memory of the engine's own region is registered by the devices, in pieces (memory/region.h). */
static bool devices_know(const void *base)
{
	return region.base && (uintptr_t)base >= (uintptr_t)region.base &&
	       (uintptr_t)base - (uintptr_t)region.base < region.bytes;
}

/* Registers with each port that supports it. Ports without bulk transfers, or whose device is gone, copy instead. */
static bool copies(int error)
{
	return error == -EOPNOTSUPP || error == -ENODEV;
}

static enum far_status port_error(const struct nic_port *port, int error, const struct nic_err *why,
				  struct far_err *err)
{
	enum far_status status = error == -EBUSY ? FAR_BUSY : error == -EINVAL ? FAR_INVALID : FAR_RESOURCE;
	return err_set(err, status, "%s%s%s", why->text[0] ? "" : port->ops->name, why->text[0] ? "" : ": ",
		       why->text[0] ? why->text : strerror(-error));
}

static void ports_forget(struct nic_port *const *ports, unsigned n, void *base, size_t bytes)
{
	struct nic_err why;
	for (unsigned i = 0; i < n; i++)
		if (ports[i]->ops->mem_unregister)
			ports[i]->ops->mem_unregister(ports[i], base, bytes, &why);
}

static enum far_status ports_learn(struct nic_port *const *ports, unsigned n, void *base, size_t bytes,
				   struct far_err *err)
{
	for (unsigned i = 0; i < n; i++) {
		struct nic_err why = {.text = ""};
		int error = ports[i]->ops->mem_register ? ports[i]->ops->mem_register(ports[i], base, bytes, &why) : 0;
		if (!error || copies(error))
			continue;
		ports_forget(ports, i, base, bytes);
		return port_error(ports[i], error, &why, err);
	}
	return FAR_OK;
}

/* ---- */

static enum far_status check(const struct mems *m, uintptr_t base, size_t bytes, struct far_err *err)
{
	uint32_t n = atomic_load_explicit(&m->n, memory_order_relaxed);
	if (!base || !bytes || bytes > UINTPTR_MAX - base)
		return err_set(err, FAR_INVALID,
			       "%zu bytes at %p are not a range of memory; pass its first byte and its length", bytes,
			       (void *)base);
	if (n == FAR_MEM_REGIONS_MAX)
		return err_set(err, FAR_RESOURCE, "%d regions of memory are registered: register fewer, larger ones",
			       FAR_MEM_REGIONS_MAX);
	uint32_t i = find(m, base);
	if (i < n && m->at[i].base < base + bytes)
		return err_set(err, FAR_INVALID,
			       "of %zu bytes at %p some are registered already, with the %zu bytes at %p", bytes,
			       (void *)base, (size_t)(m->at[i].end - m->at[i].base), (void *)m->at[i].base);
	return FAR_OK;
}

enum far_status mems_register(struct mems *m, struct nic_port *const *ports, unsigned n, void *base, size_t bytes,
			      struct far_err *err)
{
	pthread_mutex_lock(&m->change);
	enum far_status status = check(m, (uintptr_t)base, bytes, err);
	if (!status && !devices_know(base))
		status = ports_learn(ports, n, base, bytes, err);
	if (!status) {
		pthread_rwlock_wrlock(&m->lock);
		uint32_t i = find(m, (uintptr_t)base), all = atomic_load_explicit(&m->n, memory_order_relaxed);
		memmove(&m->at[i + 1], &m->at[i], (all - i) * sizeof m->at[0]);
		m->at[i].base = (uintptr_t)base;
		m->at[i].end = (uintptr_t)base + bytes;
		atomic_store_explicit(&m->n, all + 1, memory_order_relaxed);
		pthread_rwlock_unlock(&m->lock);
	}
	pthread_mutex_unlock(&m->change);
	return status;
}

/* -EINVAL of a port is no error: it has unregistered the memory at a former call, which failed at another port. */
static enum far_status ports_unlearn(struct nic_port *const *ports, unsigned n, void *base, size_t bytes,
				     struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (unsigned i = 0; i < n; i++) {
		struct nic_err why = {.text = ""};
		int error =
			ports[i]->ops->mem_unregister ? ports[i]->ops->mem_unregister(ports[i], base, bytes, &why) : 0;
		if (error && error != -EINVAL && !copies(error))
			status = port_error(ports[i], error, &why, err);
	}
	return status;
}

enum far_status mems_unregister(struct mems *m, struct nic_port *const *ports, unsigned n, void *base,
				struct far_err *err)
{
	pthread_mutex_lock(&m->change);
	uint32_t i = find(m, (uintptr_t)base), all = atomic_load_explicit(&m->n, memory_order_relaxed);
	enum far_status status = FAR_OK;
	if (i == all || m->at[i].base != (uintptr_t)base)
		status = err_set(err, FAR_INVALID, "no memory is registered that begins at %p", base);
	else if (!devices_know(base))
		status = ports_unlearn(ports, n, base, m->at[i].end - m->at[i].base, err);
	if (!status) {
		pthread_rwlock_wrlock(&m->lock);
		memmove(&m->at[i], &m->at[i + 1], (all - i - 1) * sizeof m->at[0]);
		atomic_store_explicit(&m->n, all - 1, memory_order_relaxed);
		pthread_rwlock_unlock(&m->lock);
	}
	pthread_mutex_unlock(&m->change);
	return status;
}

/* ---- the public functions ---- */

enum far_status far_mem_register(struct far_agent *a, void *base, size_t bytes, struct far_err *err)
{
	enum far_status status = agent_may_wait("far_mem_register", err);
	return status ? status : mems_register(&a->mems, a->ports.at, a->ports.n, base, bytes, err);
}

enum far_status far_mem_unregister(struct far_agent *a, void *base, struct far_err *err)
{
	enum far_status status = agent_may_wait("far_mem_unregister", err);
	return status ? status : mems_unregister(&a->mems, a->ports.at, a->ports.n, base, err);
}
