/* SPDX-License-Identifier: BSD-3-Clause */
/** Thread pools for calls that may block in the kernel. Threads start as jobs arrive, up to a maximum. The kernel may
 * block a connecting thread for two minutes; if its connection is given up the thread is cancelled in that system call,
 * ends, and is replaced. Cancellation is disabled everywhere else. */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static void done(struct verbs_port *p, struct verbs_conn *c)
{
	pthread_mutex_lock(&p->rc->done_lock);
	c->next_job = p->rc->done;
	p->rc->done = c;
	pthread_mutex_unlock(&p->rc->done_lock);
	verbs_signal(p->event_fd);
}

/* ---- worker threads ---- */

static void worker_ended(struct verbs_worker *w)
{
	struct verbs_pool *pool = w->pool;
	atomic_store_explicit(&w->ended, true, memory_order_release);
	atomic_fetch_sub_explicit(&pool->threads_running, 1, memory_order_release);
	verbs_signal(pool->port->event_fd);
}

/* Cleanup handler: after the join the connection belongs to the control thread. */
static void cancelled_cleanup(void *arg)
{
	worker_ended(arg);
}

int verbs_pool_call_cancellable(struct verbs_conn *c, int (*call)(struct verbs_conn *c, void *arg), void *arg)
{
	struct verbs_worker *w = c->worker;
	int result, ignored;
	pthread_mutex_lock(&w->pool->lock);
	w->cancellable = w->pool->stop ? NULL : c;
	pthread_mutex_unlock(&w->pool->lock);
	if (!w->cancellable)
		return -ECANCELED;
	pthread_cleanup_push(cancelled_cleanup, w);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored);
	result = call(c, arg);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
	pthread_cleanup_pop(0);
	pthread_mutex_lock(&w->pool->lock);
	w->cancellable = NULL;
	pthread_mutex_unlock(&w->pool->lock);
	return result;
}

static void *pool_main(void *arg)
{
	struct verbs_worker *w = arg;
	struct verbs_pool *pool = w->pool;
	int ignored;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
	pthread_mutex_lock(&pool->lock);
	/* A thread that was cancelled too late ends, too: its cancellation is still pending. */
	while (!pool->stop && !w->cancelled) {
		struct verbs_conn *c = pool->first;
		if (!c) {
			pool->idle++;
			pthread_cond_wait(&pool->more, &pool->lock);
			pool->idle--;
			continue;
		}
		pool->first = c->next_job;
		if (!pool->first)
			pool->last = &pool->first;
		pthread_mutex_unlock(&pool->lock);
		c->worker = w;
		verbs_job_run(c);
		done(pool->port, c);
		pthread_mutex_lock(&pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	worker_ended(w);
	return NULL;
}

/* ---- control thread ---- */

int verbs_pool_open(struct verbs_pool *pool, struct verbs_port *p, unsigned max)
{
	pool->port = p;
	pool->max = max;
	pool->last = &pool->first;
	int error = pthread_mutex_init(&pool->lock, NULL);
	if (error)
		return -error;
	error = pthread_cond_init(&pool->more, NULL);
	if (error)
		pthread_mutex_destroy(&pool->lock);
	pool->opened = !error;
	return -error;
}

static bool has_ended(struct verbs_worker *w)
{
	return atomic_load_explicit(&w->ended, memory_order_acquire);
}

static unsigned working(struct verbs_pool *pool)
{
	unsigned n = 0;
	for (unsigned i = 0; i < pool->max; i++)
		n += pool->workers[i].started && !has_ended(&pool->workers[i]);
	return n;
}

static void start_one(struct verbs_pool *pool)
{
	sigset_t all, before;
	struct verbs_worker *w = pool->workers;
	while (w < pool->workers + pool->max && w->started)
		w++;
	if (w == pool->workers + pool->max)
		return;
	w->pool = pool;
	sigfillset(&all);
	atomic_fetch_add_explicit(&pool->threads_running, 1, memory_order_relaxed);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	w->started = pthread_create(&w->thread, NULL, pool_main, w) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!w->started)
		atomic_fetch_sub_explicit(&pool->threads_running, 1, memory_order_relaxed);
}

int verbs_pool_give(struct verbs_pool *pool, struct verbs_conn *c)
{
	unsigned waiting = 1;
	pthread_mutex_lock(&pool->lock);
	for (const struct verbs_conn *other = pool->first; other; other = other->next_job)
		waiting++;
	bool stopped = pool->stop, enough = waiting <= pool->idle;
	pthread_mutex_unlock(&pool->lock);
	if (stopped)
		return -ENODEV;
	if (!enough)
		start_one(pool);
	if (!working(pool))
		return -EAGAIN;
	c->next_job = NULL;
	pthread_mutex_lock(&pool->lock);
	*pool->last = c;
	pool->last = &c->next_job;
	pthread_cond_signal(&pool->more);
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

/* Under the lock. */
static void cancel(struct verbs_worker *w)
{
	if (!w->cancellable || w->cancelled)
		return;
	w->cancelled = true;
	pthread_cancel(w->thread);
}

/* Under the lock. False: a thread has taken the job. */
static bool take_back(struct verbs_pool *pool, struct verbs_conn *c)
{
	for (struct verbs_conn **at = &pool->first; *at; at = &(*at)->next_job)
		if (*at == c) {
			*at = c->next_job;
			if (pool->last == &c->next_job)
				pool->last = at;
			return true;
		}
	return false;
}

void verbs_pool_interrupt(struct verbs_pool *pool, struct verbs_conn *c)
{
	pthread_mutex_lock(&pool->lock);
	bool begun = !take_back(pool, c);
	for (unsigned i = 0; begun && i < pool->max; i++)
		if (pool->workers[i].cancellable == c)
			cancel(&pool->workers[i]);
	pthread_mutex_unlock(&pool->lock);
	if (begun)
		return;
	c->job_error = -ECANCELED;
	done(pool->port, c);
}

void verbs_pool_step(struct verbs_pool *pool)
{
	for (unsigned i = 0; i < pool->max; i++) {
		struct verbs_worker *w = &pool->workers[i];
		if (!w->started || !has_ended(w))
			continue;
		pthread_join(w->thread, NULL);
		struct verbs_conn *cancellable = w->cancellable;
		pthread_mutex_lock(&pool->lock);
		memset(w, 0, sizeof *w);
		pthread_mutex_unlock(&pool->lock);
		if (cancellable) {
			cancellable->job_error = -ETIMEDOUT;
			done(pool->port, cancellable);
		}
	}
	pthread_mutex_lock(&pool->lock);
	bool more = pool->first && !pool->idle && !pool->stop;
	pthread_mutex_unlock(&pool->lock);
	if (more)
		start_one(pool);
}

void verbs_pool_stop(struct verbs_pool *pool)
{
	if (!pool->opened)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	for (unsigned i = 0; i < pool->max; i++)
		cancel(&pool->workers[i]);
	pthread_cond_broadcast(&pool->more);
	pthread_mutex_unlock(&pool->lock);
}

void verbs_pool_close(struct verbs_pool *pool)
{
	if (!pool->opened)
		return;
	verbs_pool_stop(pool);
	for (unsigned i = 0; i < pool->max; i++) {
		if (pool->workers[i].started)
			pthread_join(pool->workers[i].thread, NULL);
		pool->workers[i].started = false;
	}
	pool->opened = false;
	pthread_cond_destroy(&pool->more);
	pthread_mutex_destroy(&pool->lock);
}
