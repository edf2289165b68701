/* SPDX-License-Identifier: BSD-3-Clause */
/** The interceptors of the process. Any thread; the lock is held by those that add and remove. */
#include "features/intercept/intercept.h"

#include "base/error.h"
#include "core/flow.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

_Atomic uint32_t intercept_mask, intercept_present; /* stored with release after the slot; pair with intercept_take() */
_Atomic uint32_t intercept_every;

static void (*_Atomic on_change)(struct far_agent *agent);

/* A slot is constant while `refs` is not 0: one of the table, and one of each call that it sees. */
static struct slot {
	_Atomic uint64_t refs;
	struct far_interceptor i;
	char name[64];
} slots[FLOW_POINTERS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool take(struct slot *slot)
{
	uint64_t refs = atomic_load_explicit(&slot->refs, memory_order_relaxed);
	do
		if (!refs)
			return false;
	while (!atomic_compare_exchange_weak_explicit(&slot->refs, &refs, refs + 1, memory_order_acquire,
						      memory_order_relaxed));
	return true;
}

static void give(struct slot *slot)
{
	void (*removed)(void *) = slot->i.removed;
	void *user = slot->i.user;
	if (atomic_fetch_sub_explicit(&slot->refs, 1, memory_order_acq_rel) == 1 && removed)
		removed(user);
}

uint32_t intercept_take(const _Atomic uint32_t *mask, const struct far_agent *agent)
{
	uint32_t taken = 0;
	for (uint32_t left = atomic_load_explicit(mask, memory_order_acquire); left; left &= left - 1) {
		unsigned id = (unsigned)__builtin_ctz(left);
		if (!take(&slots[id]))
			continue;
		if (!slots[id].i.agent || slots[id].i.agent == agent)
			taken |= UINT32_C(1) << id;
		else
			give(&slots[id]);
	}
	return taken;
}

void intercept_give(uint32_t mask)
{
	for (; mask; mask &= mask - 1)
		give(&slots[__builtin_ctz(mask)]);
}

const struct far_interceptor *intercept_at(unsigned id)
{
	return &slots[id].i;
}

uint32_t intercept_of_type(uint32_t mask, uint16_t type)
{
	for (uint32_t left = mask; left; left &= left - 1) {
		const struct far_interceptor *i = &slots[__builtin_ctz(left)].i;
		if (type >= i->tlv_first && type <= i->tlv_last)
			return left & -left;
	}
	return 0;
}

static enum far_status check(const struct far_interceptor *i, struct far_err *err)
{
	for (size_t k = 0; k < sizeof i->reserved / sizeof *i->reserved; k++)
		if (i->reserved[k])
			return err_set(err, FAR_INVALID, "far_interceptor_add: `reserved` must be 0");
	if (i->tlv_first > i->tlv_last || i->tlv_last > FAR_TLV_TYPE_MAX || (!i->tlv_first && i->tlv_last))
		return err_set(err, FAR_INVALID,
			       "far_interceptor_add: types [%u, %u]; a range is in [1, %d], or 0, 0 for none",
			       i->tlv_first, i->tlv_last, FAR_TLV_TYPE_MAX);
	for (unsigned id = 0; id < FLOW_POINTERS; id++) {
		const struct far_interceptor *other = &slots[id].i;
		if (atomic_load_explicit(&slots[id].refs, memory_order_relaxed) && i->tlv_first &&
		    i->tlv_first <= other->tlv_last && other->tlv_first <= i->tlv_last)
			return err_set(err, FAR_INVALID,
				       "far_interceptor_add: types [%u, %u] overlap those of \"%s\", [%u, %u]",
				       i->tlv_first, i->tlv_last, slots[id].name, other->tlv_first, other->tlv_last);
	}
	return FAR_OK;
}

static void changed(struct far_agent *agent)
{
	void (*call)(struct far_agent *) = atomic_load_explicit(&on_change, memory_order_acquire);
	if (call)
		call(agent);
}

void intercept_on_change(void (*call)(struct far_agent *agent))
{
	atomic_store_explicit(&on_change, call, memory_order_release);
}

static void fill(unsigned at, const struct far_interceptor *i)
{
	struct slot *slot = &slots[at];
	slot->i = *i;
	snprintf(slot->name, sizeof slot->name, "%s", i->name ? i->name : "?");
	slot->i.name = slot->name;
	atomic_store_explicit(&slot->refs, 1, memory_order_release);
	atomic_fetch_or_explicit(&intercept_present, UINT32_C(1) << at, memory_order_release);
}

void intercept_add_own(unsigned id, const struct far_interceptor *i)
{
	fill(id, i);
}

static void set_bit(_Atomic uint32_t *mask, unsigned id, bool on)
{
	if (on)
		atomic_fetch_or_explicit(mask, UINT32_C(1) << id, memory_order_release);
	else
		atomic_fetch_and_explicit(mask, ~(UINT32_C(1) << id), memory_order_relaxed);
}

void intercept_own_sees(unsigned id, bool calls)
{
	set_bit(&intercept_mask, id, calls);
	changed(NULL);
}

void intercept_own_every(unsigned id, bool requests)
{
	set_bit(&intercept_every, id, requests);
}

enum far_status intercept_add(const struct far_interceptor *i, unsigned *id, struct far_err *err)
{
	pthread_mutex_lock(&lock);
	enum far_status status = check(i, err);
	unsigned at = 0;
	while (at < FAR_INTERCEPTORS_MAX && atomic_load_explicit(&slots[at].refs, memory_order_acquire))
		at++;
	if (!status && at == FAR_INTERCEPTORS_MAX)
		status = err_set(err, FAR_RESOURCE, "far_interceptor_add: %d interceptors at most; remove one",
				 FAR_INTERCEPTORS_MAX);
	if (!status) {
		flow_define(at, i->flow_ref, i->flow_unref, i->user);
		fill(at, i);
		atomic_fetch_or_explicit(&intercept_mask, UINT32_C(1) << at, memory_order_release);
		*id = at;
	}
	pthread_mutex_unlock(&lock);
	if (!status)
		changed(i->agent);
	return status;
}

enum far_status intercept_remove(unsigned id, struct far_err *err)
{
	enum far_status status = FAR_OK;
	pthread_mutex_lock(&lock);
	if (id >= FAR_INTERCEPTORS_MAX || !(atomic_load_explicit(&intercept_mask, memory_order_relaxed) >> id & 1))
		status = err_set(err, FAR_INVALID, "far_interceptor_remove: there is no interceptor %u", id);
	if (!status) {
		atomic_fetch_and_explicit(&intercept_mask, ~(UINT32_C(1) << id), memory_order_relaxed);
		atomic_fetch_and_explicit(&intercept_present, ~(UINT32_C(1) << id), memory_order_relaxed);
	}
	pthread_mutex_unlock(&lock);
	if (!status) {
		changed(slots[id].i.agent);
		give(&slots[id]);
	}
	return status;
}
