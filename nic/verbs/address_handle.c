/* SPDX-License-Identifier: BSD-3-Clause */
/** Address handles of destinations. Creating one makes the kernel resolve the neighbour's hardware address, which
 * blocks for up to a second: the resolver thread of the port does that, so that the control thread does not block. */
#include "nic/verbs/verbs.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define HOPS 64

static struct ibv_ah_attr attr_of(const struct verbs_port *p, const struct verbs_dest *dest, unsigned c)
{
	struct ibv_ah_attr attr = {.port_num = p->on.port, .sl = p->class_sl[c]};
	if (!p->on.ethernet) {
		attr.dlid = dest->lid;
		return attr;
	}
	attr.is_global = 1;
	memcpy(attr.grh.dgid.raw, dest->gid, sizeof dest->gid);
	attr.grh.sgid_index = (uint8_t)p->on.gid.gid_index;
	attr.grh.hop_limit = HOPS;
	attr.grh.traffic_class = p->class_tos[c];
	return attr;
}

/* Creates a handle for each class. The first is required; it replaces others that fail. */
static void resolve(struct verbs_port *p, struct verbs_dest *dest)
{
	for (unsigned c = 0; c < p->classes_n; c++) {
		struct ibv_ah_attr attr = attr_of(p, dest, c);
		errno = 0;
		dest->ah[c] = ibv_create_ah(p->pd, &attr);
		if (dest->ah[c] || c)
			continue;
		dest->error = errno ? -errno : -EIO;
		atomic_store_explicit(&dest->state, VERBS_DEST_FAILED, memory_order_release);
		return;
	}
	dest->made = verbs_now();
	atomic_store_explicit(&dest->state, VERBS_DEST_READY, memory_order_release);
}

/* Cancels a set without destinations, so that the blocking call is spent on others. */
static void skip(struct verbs_dest *dest)
{
	dest->error = -ECANCELED;
	atomic_store_explicit(&dest->state, VERBS_DEST_FAILED, memory_order_release);
}

static void *resolver_main(void *arg)
{
	struct verbs_port *p = arg;
	struct verbs_resolver *r = &p->resolver;
	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		struct verbs_dest *dest = r->first;
		if (!dest) {
			pthread_cond_wait(&r->queued, &r->lock);
			continue;
		}
		r->first = dest->next_asked;
		if (!r->first)
			r->last = &r->first;
		if (!dest->refs) {
			skip(dest);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		resolve(p, dest);
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
	for (struct verbs_dest *dest = r->first; dest; dest = dest->next_asked) {
		dest->error = -ENODEV;
		atomic_store_explicit(&dest->state, VERBS_DEST_FAILED, memory_order_release);
	}
	r->first = NULL;
	pthread_cond_destroy(&r->queued);
	pthread_mutex_destroy(&r->lock);
}

static void ask(struct verbs_resolver *r, struct verbs_dest *dest)
{
	pthread_mutex_lock(&r->lock);
	*r->last = dest;
	r->last = &dest->next_asked;
	pthread_cond_signal(&r->queued);
	pthread_mutex_unlock(&r->lock);
}

static void forget(struct verbs_dest *dest)
{
	for (unsigned c = 0; c < VERBS_PRIORITIES; c++) {
		if (dest->ah[c])
			ibv_destroy_ah(dest->ah[c]);
		dest->ah[c] = NULL;
	}
}

static void remove_at(struct verbs_port *p, unsigned i)
{
	forget(p->dests[i]);
	free(p->dests[i]);
	p->dests[i] = p->dests[--p->dests_n];
}

uint64_t verbs_dests_sweep(struct verbs_port *p, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	for (unsigned i = 0; i < p->dests_n;) {
		struct verbs_dest *dest = p->dests[i];
		enum verbs_dest_state state = verbs_dest_state(dest);
		uint64_t at = dest->idle_at + VERBS_DEST_IDLE_NS;
		if (dest->refs || state == VERBS_DEST_ASKED) {
			i++;
		} else if (state == VERBS_DEST_FAILED || at <= now) {
			remove_at(p, i); /* moves the last entry here */
		} else {
			next = at < next ? at : next;
			i++;
		}
	}
	return next;
}

/* A set towards `to` that is being resolved, or was recently; NULL: none. */
static struct verbs_dest *find(const struct verbs_port *p, const struct verbs_blob *to, uint64_t now)
{
	for (unsigned i = 0; i < p->dests_n; i++) {
		struct verbs_dest *dest = p->dests[i];
		enum verbs_dest_state state = verbs_dest_state(dest);
		if (memcmp(dest->gid, to->gid, sizeof dest->gid) != 0 || dest->lid != to->lid ||
		    state == VERBS_DEST_FAILED || (state == VERBS_DEST_READY && now > dest->made + VERBS_DEST_FRESH_NS))
			continue;
		return dest;
	}
	return NULL;
}

struct verbs_dest *verbs_dest_get(struct verbs_port *p, const struct verbs_blob *to, uint64_t now)
{
	/* Under the lock, since the resolver cancels sets without references. */
	pthread_mutex_lock(&p->resolver.lock);
	struct verbs_dest *known = find(p, to, now);
	if (known)
		known->refs++;
	pthread_mutex_unlock(&p->resolver.lock);
	if (known)
		return known;
	if (p->dests_n == VERBS_DESTS_MAX)
		verbs_dests_sweep(p, now);
	if (p->dests_n == VERBS_DESTS_MAX)
		return NULL;
	struct verbs_dest *dest = calloc(1, sizeof *dest);
	if (!dest)
		return NULL;
	memcpy(dest->gid, to->gid, sizeof dest->gid);
	dest->lid = to->lid;
	dest->refs = 1;
	p->dests[p->dests_n++] = dest;
	ask(&p->resolver, dest);
	return dest;
}

void verbs_dest_put(struct verbs_port *p, struct verbs_dest *dest, uint64_t now)
{
	bool locked = p->resolver.started;
	if (locked)
		pthread_mutex_lock(&p->resolver.lock);
	if (--dest->refs == 0)
		dest->idle_at = now;
	if (locked)
		pthread_mutex_unlock(&p->resolver.lock);
}

void verbs_dests_forget(struct verbs_port *p)
{
	for (unsigned i = 0; i < p->dests_n; i++)
		forget(p->dests[i]);
}

void verbs_dests_close(struct verbs_port *p)
{
	while (p->dests_n)
		remove_at(p, p->dests_n - 1);
}
