/* SPDX-License-Identifier: BSD-3-Clause */
/** Threads for what the kernel may take its time with: started as jobs come, never more than were allowed. */
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

static void *pool_main(void *arg)
{
	struct verbs_pool *pool = arg;
	pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
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
		verbs_job_do(c);
		done(pool->port, c);
		pthread_mutex_lock(&pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	atomic_fetch_sub_explicit(&pool->alive, 1, memory_order_release);
	verbs_signal(pool->port->event_fd);
	return NULL;
}

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

static void start_one(struct verbs_pool *pool)
{
	sigset_t all, before;
	sigfillset(&all);
	atomic_fetch_add_explicit(&pool->alive, 1, memory_order_relaxed);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&pool->threads[pool->n], NULL, pool_main, pool);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		pool->n++;
	else
		atomic_fetch_sub_explicit(&pool->alive, 1, memory_order_relaxed);
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
	if (!enough && pool->n < pool->max)
		start_one(pool);
	if (!pool->n)
		return -EAGAIN;
	c->next_job = NULL;
	pthread_mutex_lock(&pool->lock);
	*pool->last = c;
	pool->last = &c->next_job;
	pthread_cond_signal(&pool->more);
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

void verbs_pool_stop(struct verbs_pool *pool)
{
	if (!pool->opened)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->more);
	pthread_mutex_unlock(&pool->lock);
}

void verbs_pool_close(struct verbs_pool *pool)
{
	if (!pool->opened)
		return;
	verbs_pool_stop(pool);
	for (unsigned i = 0; i < pool->n; i++)
		pthread_join(pool->threads[i], NULL);
	pool->n = 0;
	pool->opened = false;
	pthread_cond_destroy(&pool->more);
	pthread_mutex_destroy(&pool->lock);
}
