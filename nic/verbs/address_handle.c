/* SPDX-License-Identifier: BSD-3-Clause */
/** Address handles of destinations. Creating one makes the kernel resolve the neighbour's hardware address, which
 * blocks for up to a second: the resolver thread of the port does that, so that the control thread does not block. */
#include "nic/verbs/verbs.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define HOP_LIMIT 64

static struct ibv_ah_attr attr_of(const struct verbs_port *p, const struct verbs_ah_set *ah_set, unsigned c)
{
	struct ibv_ah_attr attr = {.port_num = p->on.port, .sl = p->class_sl[c]};
	if (!p->on.ethernet) {
		attr.dlid = ah_set->lid;
		return attr;
	}
	attr.is_global = 1;
	memcpy(attr.grh.dgid.raw, ah_set->gid, sizeof ah_set->gid);
	attr.grh.sgid_index = (uint8_t)p->on.gid.gid_index;
	attr.grh.hop_limit = HOP_LIMIT;
	attr.grh.traffic_class = p->class_tos[c];
	return attr;
}

/* Creates a handle for each class. The first is required; it replaces others that fail. */
static void resolve(struct verbs_port *p, struct verbs_ah_set *ah_set)
{
	for (unsigned c = 0; c < p->classes_n; c++) {
		struct ibv_ah_attr attr = attr_of(p, ah_set, c);
		errno = 0;
		ah_set->ah[c] = ibv_create_ah(p->pd, &attr);
		if (ah_set->ah[c] || c)
			continue;
		ah_set->error = errno ? -errno : -EIO;
		atomic_store_explicit(&ah_set->state, VERBS_AH_FAILED, memory_order_release);
		return;
	}
	ah_set->made = verbs_now();
	atomic_store_explicit(&ah_set->state, VERBS_AH_READY, memory_order_release);
}

/* Cancels a set without destinations, so that the blocking call is spent on others. */
static void cancel(struct verbs_ah_set *ah_set)
{
	ah_set->error = -ECANCELED;
	atomic_store_explicit(&ah_set->state, VERBS_AH_FAILED, memory_order_release);
}

static void *resolver_main(void *arg)
{
	struct verbs_port *p = arg;
	struct verbs_resolver *r = &p->resolver;
	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		struct verbs_ah_set *ah_set = r->first;
		if (!ah_set) {
			pthread_cond_wait(&r->queued, &r->lock);
			continue;
		}
		r->first = ah_set->next_queued;
		if (!r->first)
			r->last = &r->first;
		if (!ah_set->refs) {
			cancel(ah_set);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		resolve(p, ah_set);
		verbs_signal(p->event_fd);
		pthread_mutex_lock(&r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	atomic_store_explicit(&r->ended, true, memory_order_release);
	verbs_signal(p->event_fd);
	return NULL;
}

int verbs_resolver_open(struct verbs_port *p, struct nic_err *err)
{
	struct verbs_resolver *r = &p->resolver;
	sigset_t all, before;
	r->last = &r->first;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->queued, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&r->thread, NULL, resolver_main, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		pthread_cond_destroy(&r->queued);
		pthread_mutex_destroy(&r->lock);
		return verbs_error(err, -error, "verbs: cannot start the resolver thread: %s; see `ulimit -u`",
				   strerror(error));
	}
	r->started = true;
	return 0;
}

void verbs_resolver_stop(struct verbs_port *p)
{
	struct verbs_resolver *r = &p->resolver;
	if (!r->started)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->queued);
	pthread_mutex_unlock(&r->lock);
}

void verbs_resolver_close(struct verbs_port *p)
{
	struct verbs_resolver *r = &p->resolver;
	if (!r->started)
		return;
	verbs_resolver_stop(p);
	pthread_join(r->thread, NULL);
	r->started = false;
	/* sets that were queued and not resolved */
	for (struct verbs_ah_set *ah_set = r->first; ah_set; ah_set = ah_set->next_queued) {
		ah_set->error = -ENODEV;
		atomic_store_explicit(&ah_set->state, VERBS_AH_FAILED, memory_order_release);
	}
	r->first = NULL;
	pthread_cond_destroy(&r->queued);
	pthread_mutex_destroy(&r->lock);
}

static void enqueue(struct verbs_resolver *r, struct verbs_ah_set *ah_set)
{
	pthread_mutex_lock(&r->lock);
	*r->last = ah_set;
	r->last = &ah_set->next_queued;
	pthread_cond_signal(&r->queued);
	pthread_mutex_unlock(&r->lock);
}

static void destroy_handles(struct verbs_ah_set *ah_set)
{
	for (unsigned c = 0; c < VERBS_PRIORITIES; c++) {
		if (ah_set->ah[c])
			ibv_destroy_ah(ah_set->ah[c]);
		ah_set->ah[c] = NULL;
	}
}

static void remove_at(struct verbs_port *p, unsigned i)
{
	destroy_handles(p->ah_sets[i]);
	free(p->ah_sets[i]);
	p->ah_sets[i] = p->ah_sets[--p->ah_sets_n];
}

uint64_t verbs_ah_sets_sweep(struct verbs_port *p, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	for (unsigned i = 0; i < p->ah_sets_n;) {
		struct verbs_ah_set *ah_set = p->ah_sets[i];
		enum verbs_ah_set_state state = verbs_ah_set_state(ah_set);
		uint64_t at = ah_set->idle_at + VERBS_AH_IDLE_NS;
		if (ah_set->refs || state == VERBS_AH_RESOLVING) {
			i++;
		} else if (state == VERBS_AH_FAILED || at <= now) {
			remove_at(p, i); /* moves the last entry here */
		} else {
			next = at < next ? at : next;
			i++;
		}
	}
	return next;
}

/* A set towards `to` that is being resolved, or was recently; NULL: none. */
static struct verbs_ah_set *find(const struct verbs_port *p, const struct verbs_blob *to, uint64_t now)
{
	for (unsigned i = 0; i < p->ah_sets_n; i++) {
		struct verbs_ah_set *ah_set = p->ah_sets[i];
		enum verbs_ah_set_state state = verbs_ah_set_state(ah_set);
		if (memcmp(ah_set->gid, to->gid, sizeof ah_set->gid) != 0 || ah_set->lid != to->lid ||
		    state == VERBS_AH_FAILED || (state == VERBS_AH_READY && now > ah_set->made + VERBS_AH_FRESH_NS))
			continue;
		return ah_set;
	}
	return NULL;
}

struct verbs_ah_set *verbs_ah_set_get(struct verbs_port *p, const struct verbs_blob *to, uint64_t now)
{
	/* Under the lock, since the resolver cancels sets without references. */
	pthread_mutex_lock(&p->resolver.lock);
	struct verbs_ah_set *existing = find(p, to, now);
	if (existing)
		existing->refs++;
	pthread_mutex_unlock(&p->resolver.lock);
	if (existing)
		return existing;
	if (p->ah_sets_n == VERBS_AH_SETS_MAX)
		verbs_ah_sets_sweep(p, now);
	if (p->ah_sets_n == VERBS_AH_SETS_MAX)
		return NULL;
	struct verbs_ah_set *ah_set = calloc(1, sizeof *ah_set);
	if (!ah_set)
		return NULL;
	memcpy(ah_set->gid, to->gid, sizeof ah_set->gid);
	ah_set->lid = to->lid;
	ah_set->refs = 1;
	p->ah_sets[p->ah_sets_n++] = ah_set;
	enqueue(&p->resolver, ah_set);
	return ah_set;
}

void verbs_ah_set_put(struct verbs_port *p, struct verbs_ah_set *ah_set, uint64_t now)
{
	bool locked = p->resolver.started;
	if (locked)
		pthread_mutex_lock(&p->resolver.lock);
	if (--ah_set->refs == 0)
		ah_set->idle_at = now;
	if (locked)
		pthread_mutex_unlock(&p->resolver.lock);
}

void verbs_ah_sets_destroy(struct verbs_port *p)
{
	for (unsigned i = 0; i < p->ah_sets_n; i++)
		destroy_handles(p->ah_sets[i]);
}

void verbs_ah_sets_close(struct verbs_port *p)
{
	while (p->ah_sets_n)
		remove_at(p, p->ah_sets_n - 1);
}
