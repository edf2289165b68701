/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Members that come and go: far_worker_wait(), far_on_member(). Application threads, and a thread of the agent that
 * runs the callbacks and completes the waits. It starts with the first of either; the control thread wakes it.
 */
#include "agent/agent.h"
#include "agent/init.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/sized.h"
#include "sync/future.h"

#include <farcall/group.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A member as a callback has seen it. */
struct seen {
	uint64_t incarnation;
	char name[FAR_NAME_MAX];
};

/** A callback. Constant but for `seen`, which the thread alone uses. */
struct watcher {
	struct watcher *next;
	far_member_fn *fn;
	void *user;
	struct seen *seen[]; /* by rank; NULL: no member */
};

/** A pending wait, with a reference of its future. */
struct waiter {
	struct waiter *next;
	struct far_future *f;
	int rank; /* of the worker that has come; −1: none */
	char name[FAR_NAME_MAX];
};

struct membership {
	struct far_agent *agent;
	pthread_t thread;
	pthread_mutex_t lock; /* of the fields below */
	pthread_cond_t due;
	bool changed, stop;
	struct watcher *watchers;
	struct waiter *waiters;
	unsigned watchers_n, waiters_n;
};

/* Describes the member of this rank; false: there is none, or it changes now, and the control thread reports that. */
static bool member_at(struct far_agent *a, int rank, struct far_worker_info *out)
{
	const struct ctl_member *m = &a->members[rank];
	if (far_worker_by_rank_sized(a, rank, out, sizeof *out, NULL) || !out->alive)
		return false;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&m->alive, memory_order_relaxed) &&
	       atomic_load_explicit(&m->incarnation, memory_order_relaxed) == out->incarnation;
}

/* ---- the thread ---- */

/* Why this incarnation is lost, as far as the control thread has seen. */
static void lost_why(const struct ctl_member *member, struct far_worker_info *w)
{
	struct ctl_member *m = (struct ctl_member *)(uintptr_t)member;
	bool seen = atomic_load_explicit(&m->lost_incarnation, memory_order_relaxed) == w->incarnation;
	snprintf(w->lost_why, sizeof w->lost_why, "%s",
		 !seen ? "it was replaced"
		 : atomic_load_explicit(&m->lost_by_lease, memory_order_relaxed)
			 ? "its lease has run out"
			 : "it has left, or its process has ended");
}

static void report_rank(struct far_agent *a, struct watcher *w, int rank)
{
	struct far_worker_info now, before = {.rank = rank};
	bool is = member_at(a, rank, &now);
	struct seen *s = w->seen[rank];
	if (s && (!is || s->incarnation != now.incarnation)) {
		memcpy(before.name, s->name, sizeof before.name);
		before.incarnation = s->incarnation;
		free(s);
		w->seen[rank] = NULL;
		lost_why(&a->members[rank], &before);
		w->fn(a, FAR_MEMBER_LOST, &before, w->user);
	}
	if (!is || w->seen[rank] || !(s = malloc(sizeof *s))) /* without memory it is reported with a later change */
		return;
	s->incarnation = now.incarnation;
	memcpy(s->name, now.name, sizeof s->name);
	w->seen[rank] = s;
	w->fn(a, FAR_MEMBER_JOINED, &now, w->user);
}

static int member_named(struct far_agent *a, const char *name)
{
	int rank = agent_find_worker(a, name, NULL);
	return rank >= 0 && agent_has_member(a, rank) ? rank : -1;
}

/* Completes waits that are on no list any more. */
static void waiters_end(struct waiter *list)
{
	while (list) {
		struct waiter *w = list;
		struct far_val value = far_int(w->rank);
		list = w->next;
		if (w->rank >= 0)
			far_future_set_value(w->f, &value, NULL);
		else
			far_future_set_error(w->f, FAR_SHUTDOWN, 0, "the agent ended before worker \"%s\" joined",
					     w->name);
		far_future_free(w->f);
		free(w);
	}
}

/* Takes off the list the waits whose worker is a member, and those that nobody else refers to; `all`: every one. The
 * caller has the lock. */
static struct waiter *waiters_take(struct membership *ms, bool all)
{
	struct waiter **at = &ms->waiters, *taken = NULL;
	while (*at) {
		struct waiter *w = *at;
		w->rank = all ? -1 : member_named(ms->agent, w->name);
		if (!all && w->rank < 0 && atomic_load_explicit(&w->f->head.refs, memory_order_acquire) > 1) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		ms->waiters_n--;
		w->next = taken;
		taken = w;
	}
	return taken;
}

static void *members_main(void *arg)
{
	struct membership *ms = arg;
	struct far_agent *a = ms->agent;
	pthread_mutex_lock(&ms->lock);
	while (!ms->stop) {
		if (!ms->changed) {
			pthread_cond_wait(&ms->due, &ms->lock);
			continue;
		}
		ms->changed = false;
		struct waiter *ended = waiters_take(ms, false);
		struct watcher *w = ms->watchers; /* later ones are put before it, and set `changed` */
		pthread_mutex_unlock(&ms->lock);
		waiters_end(ended);
		for (; w; w = w->next)
			for (int r = 0; r < a->world; r++)
				if (r != a->rank)
					report_rank(a, w, r);
		pthread_mutex_lock(&ms->lock);
	}
	pthread_mutex_unlock(&ms->lock);
	return NULL;
}

/* ---- start and end ---- */

void members_on_change(void *ctx)
{
	struct far_agent *a = ctx;
	struct membership *ms = atomic_load_explicit(&a->membership, memory_order_acquire);
	if (!ms)
		return;
	pthread_mutex_lock(&ms->lock);
	ms->changed = true;
	pthread_cond_signal(&ms->due);
	pthread_mutex_unlock(&ms->lock);
}

static struct membership *membership_start(struct far_agent *a)
{
	struct membership *ms = calloc(1, sizeof *ms);
	sigset_t masked, before;
	if (!ms)
		return NULL;
	ms->agent = a;
	ms->changed = true;
	pthread_mutex_init(&ms->lock, NULL);
	pthread_cond_init(&ms->due, NULL);
	signals_thread_mask(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	int rc = pthread_create(&ms->thread, NULL, members_main, ms);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc == 0) {
		pthread_setname_np(ms->thread, "far-members");
		return ms;
	}
	pthread_cond_destroy(&ms->due);
	pthread_mutex_destroy(&ms->lock);
	free(ms);
	return NULL;
}

/* Finds the agent's, which the first caller starts. */
static enum far_status membership_get(struct far_agent *a, const char *what, struct membership **out,
				      struct far_err *err)
{
	if (!a || a->stepped)
		return err_set(err, a ? FAR_UNSUPPORTED : FAR_SHUTDOWN, "%s: the agent %s", what,
			       a ? "has no threads" : "is NULL");
	pthread_mutex_lock(&a->kinds_lock);
	*out = atomic_load_explicit(&a->membership, memory_order_relaxed);
	if (!*out && (*out = membership_start(a)))
		atomic_store_explicit(&a->membership, *out, memory_order_release);
	pthread_mutex_unlock(&a->kinds_lock);
	return *out ? FAR_OK : err_set(err, FAR_RESOURCE, "%s: no memory, or no thread", what);
}

bool members_thread_is_this(const struct far_agent *a)
{
	const struct membership *ms = atomic_load_explicit(&a->membership, memory_order_acquire);
	return ms && pthread_equal(ms->thread, pthread_self());
}

void members_end(struct far_agent *a)
{
	struct membership *ms = atomic_load_explicit(&a->membership, memory_order_acquire);
	if (!ms)
		return;
	pthread_mutex_lock(&ms->lock);
	ms->stop = true;
	pthread_cond_signal(&ms->due);
	pthread_mutex_unlock(&ms->lock);
	pthread_join(ms->thread, NULL);
	waiters_end(waiters_take(ms, true));
	while (ms->watchers) {
		struct watcher *w = ms->watchers;
		ms->watchers = w->next;
		for (int r = 0; r < a->world; r++)
			free(w->seen[r]);
		free(w);
	}
	/* The control thread, which ends later, may still use the lock: members_free() frees it. */
}

void members_free(struct far_agent *a)
{
	struct membership *ms = atomic_load_explicit(&a->membership, memory_order_relaxed);
	if (!ms)
		return;
	pthread_cond_destroy(&ms->due);
	pthread_mutex_destroy(&ms->lock);
	free(ms);
}

/* ---- any thread ---- */

enum far_status far_on_member(struct far_agent *a, far_member_fn *fn, void *user, struct far_err *err)
{
	struct membership *ms;
	enum far_status status = fn ? membership_get(a, "far_on_member", &ms, err)
				    : err_set(err, FAR_INVALID, "far_on_member: the callback is NULL");
	if (status)
		return status;
	struct watcher *w = calloc(1, sizeof *w + (size_t)a->world * sizeof *w->seen);
	if (!w)
		return err_set(err, FAR_RESOURCE, "far_on_member: no memory");
	w->fn = fn;
	w->user = user;
	pthread_mutex_lock(&ms->lock);
	bool has_room = ms->watchers_n < FAR_MEMBER_CALLBACKS_MAX;
	if (has_room) {
		w->next = ms->watchers;
		ms->watchers = w;
		ms->watchers_n++;
		ms->changed = true;
		pthread_cond_signal(&ms->due);
	}
	pthread_mutex_unlock(&ms->lock);
	if (has_room)
		return FAR_OK;
	free(w);
	return err_set(err, FAR_RESOURCE, "far_on_member: the agent has %d callbacks, the most that there may be",
		       FAR_MEMBER_CALLBACKS_MAX);
}

/* Puts the wait on the list; false: it is full. The thread checks it, and takes off those that nobody refers to. */
static bool waiter_add(struct membership *ms, struct waiter *w)
{
	pthread_mutex_lock(&ms->lock);
	bool has_room = ms->waiters_n < FAR_MEMBER_WAITS_MAX;
	if (has_room) {
		far_future_ref(w->f);
		w->next = ms->waiters;
		ms->waiters = w;
		ms->waiters_n++;
	}
	ms->changed = true;
	pthread_cond_signal(&ms->due);
	pthread_mutex_unlock(&ms->lock);
	return has_room;
}

enum far_status far_worker_wait_async(struct far_agent *a, const char *name, struct far_future **out,
				      struct far_err *err)
{
	struct membership *ms;
	enum far_status status = membership_get(a, "far_worker_wait", &ms, err);
	if (!status)
		status = out ? ctl_check_name(name, err)
			     : err_set(err, FAR_INVALID, "far_worker_wait_async: the place for the future is NULL");
	if (status)
		return status;
	struct waiter *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(err, FAR_RESOURCE, "far_worker_wait: no memory");
	status = far_future_create(&w->f, err);
	struct far_future *f = w->f;
	memcpy(w->name, name, strlen(name));
	if (!status && waiter_add(ms, w)) {
		*out = f;
		return FAR_OK;
	}
	if (!status) {
		status = err_set(err, FAR_RESOURCE,
				 "far_worker_wait: the agent has %d pending waits for members, the most "
				 "that there may be",
				 FAR_MEMBER_WAITS_MAX);
		far_future_free(f);
	}
	free(w);
	return status;
}

/* Waits once, until the absolute time. */
static enum far_status wait_once(struct far_agent *a, const char *name, uint64_t until, struct far_err *err)
{
	struct far_future *f;
	enum far_status status = far_worker_wait_async(a, name, &f, err);
	if (status)
		return status;
	uint64_t now = clock_now(a->clock);
	uint64_t left = until == TIME_NEVER ? FAR_FOREVER : until > now ? until - now : 1;
	status = far_future_wait(f, left, NULL, err);
	if (status == FAR_TIMEOUT || status == FAR_PENDING)
		status = err_set(err, FAR_TIMEOUT, "no worker \"%s\" has joined the group within the limit", name);
	far_future_free(f);
	return status;
}

enum far_status far_worker_wait_sized(struct far_agent *a, const char *name, uint64_t timeout_ns,
				      struct far_worker_info *out, size_t bytes, struct far_err *err)
{
	struct far_worker_info info;
	if (!a)
		return err_set(err, FAR_SHUTDOWN, "far_worker_wait: the agent is NULL");
	enum far_status status = agent_may_wait("far_worker_wait", err);
	if (timeout_ns == 0)
		timeout_ns = far_rpc_timeout_ns(a);
	uint64_t until = timeout_ns == FAR_FOREVER ? TIME_NEVER : time_after(clock_now(a->clock), timeout_ns);
	bool found = false;
	while (!status && !found) {
		int rank = name ? member_named(a, name) : -1;
		found = rank >= 0 && member_at(a, rank, &info) && strcmp(info.name, name) == 0;
		if (!found)
			status = wait_once(a, name, until, err);
	}
	if (!status && out)
		sized_out(out, bytes, &info, sizeof info);
	return status;
}
