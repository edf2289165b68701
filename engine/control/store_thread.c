/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream whose backend runs on a thread of its own, since its file system may hang: a directory of a file server that
 * does not answer. The control thread exchanges bytes with it under a lock that is never held over a system call on
 * files; replies that do not come are ended by their deadlines. A thread that hangs when the stream ends is left alone,
 * and frees what it has when its call returns.
 */
#include "base/clock.h"
#include "base/signals.h"
#include "control/send_buffer.h"
#include "control/store_stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define END_NS UINT64_C(2000000000) /* that the end of a stream waits for its thread */
#define CHUNK  ((size_t)16 << 10)

struct threaded {
	struct store_stream base;
	struct store_stream *inner; /* of the thread */
	struct ctl_net *own;        /* in which the thread waits */
	bool opened;                /* the thread has begun attempt `mine` */
	uint64_t mine;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t ended;
	struct ctl_net *net; /* of the control thread, to wake it; NULL: the stream has ended */
	uint64_t attempt;    /* counts opens and closes: odd while there is an attempt */
	bool stop, finished;
	int error; /* -errno that has ended the attempt; 0: none */
	uint64_t absent_at;
	struct send_buffer to, from;
};

/* ---- the thread ---- */

/* Ends the attempt for the control thread, unless it has ended it itself. Under the lock. */
static void fail(struct threaded *t, int error)
{
	if (t->attempt != t->mine)
		return;
	t->error = error;
	if (t->net)
		t->net->ops->wake(t->net);
}

/* Passes requests on, and steps the backend: 0 or -errno. Lowers `*until`. */
static int inner_step(struct threaded *t, uint64_t *until, bool *busy)
{
	uint8_t chunk[CHUNK];
	pthread_mutex_lock(&t->lock);
	size_t len = t->attempt == t->mine ? send_buffer_take(&t->to, chunk, sizeof chunk) : 0;
	pthread_mutex_unlock(&t->lock);
	long n = len ? t->inner->ops->send(t->inner, chunk, len) : 0;
	if (n < 0)
		return (int)n;
	*busy |= len > 0;
	uint64_t next = t->inner->ops->step(t->inner, clock_now(&clock_monotonic), busy);
	*until = next < *until ? next : *until;
	return 0;
}

/* Passes replies on: 0 or -errno. */
static int replies_pass(struct threaded *t, bool *busy)
{
	uint8_t chunk[CHUNK];
	long n = t->inner->ops->recv(t->inner, chunk, sizeof chunk);
	pthread_mutex_lock(&t->lock);
	bool is_news = n > 0 || t->absent_at != t->inner->absent_at;
	int rc = n > 0 && t->attempt == t->mine ? send_buffer_put(&t->from, chunk, (size_t)n) : 0;
	t->absent_at = t->inner->absent_at;
	if (is_news && t->net)
		t->net->ops->wake(t->net);
	pthread_mutex_unlock(&t->lock);
	*busy |= n > 0;
	return n < 0 && n != -EAGAIN ? (int)n : rc;
}

/* Begins and ends attempts as the control thread wants it. true: one is under way. */
static bool attempt_follow(struct threaded *t)
{
	pthread_mutex_lock(&t->lock);
	uint64_t attempt = t->attempt;
	pthread_mutex_unlock(&t->lock);
	if (attempt == t->mine)
		return t->opened;
	if (t->opened)
		t->inner->ops->close(t->inner);
	t->mine = attempt;
	int rc = attempt % 2 ? t->inner->ops->open(t->inner) : -ECANCELED;
	t->opened = rc == 0;
	pthread_mutex_lock(&t->lock);
	if (rc)
		fail(t, rc);
	pthread_mutex_unlock(&t->lock);
	return t->opened;
}

static bool is_stopped(struct threaded *t)
{
	pthread_mutex_lock(&t->lock);
	bool stop = t->stop;
	pthread_mutex_unlock(&t->lock);
	return stop;
}

static void threaded_free(struct threaded *t)
{
	t->inner->ops->destroy(t->inner);
	t->own->ops->destroy(t->own);
	send_buffer_fini(&t->to);
	send_buffer_fini(&t->from);
}

static void *threaded_main(void *arg)
{
	struct threaded *t = arg;
	while (!is_stopped(t)) {
		uint64_t until = TIME_NEVER;
		bool busy = false;
		if (attempt_follow(t)) {
			int rc = inner_step(t, &until, &busy);
			rc = rc ? rc : replies_pass(t, &busy);
			pthread_mutex_lock(&t->lock);
			if (rc && t->error != rc)
				fail(t, rc);
			until = rc ? TIME_NEVER : until;
			pthread_mutex_unlock(&t->lock);
		}
		if (!busy)
			t->own->ops->wait(t->own, until);
	}
	threaded_free(t);
	pthread_mutex_lock(&t->lock);
	t->finished = true;
	bool abandoned = !t->net;
	pthread_cond_signal(&t->ended);
	pthread_mutex_unlock(&t->lock);
	if (abandoned)
		free(t);
	return NULL;
}

/* ---- the control thread ---- */

static void attempt_next(struct threaded *t, bool open)
{
	pthread_mutex_lock(&t->lock);
	if (t->attempt % 2 != open)
		t->attempt++;
	t->error = 0;
	send_buffer_skip(&t->to, send_buffer_len(&t->to));
	send_buffer_skip(&t->from, send_buffer_len(&t->from));
	pthread_mutex_unlock(&t->lock);
	t->own->ops->wake(t->own);
}

static int threaded_open(struct store_stream *s)
{
	attempt_next((struct threaded *)s, true);
	return 0;
}

static void threaded_close(struct store_stream *s)
{
	attempt_next((struct threaded *)s, false);
}

static long threaded_send(struct store_stream *s, const void *data, size_t len)
{
	struct threaded *t = (struct threaded *)s;
	pthread_mutex_lock(&t->lock);
	int rc = t->error ? t->error : send_buffer_put(&t->to, data, len);
	pthread_mutex_unlock(&t->lock);
	t->own->ops->wake(t->own);
	return rc == -ENOBUFS ? -EAGAIN : rc ? rc : (long)len;
}

static long threaded_recv(struct store_stream *s, void *data, size_t len)
{
	struct threaded *t = (struct threaded *)s;
	pthread_mutex_lock(&t->lock);
	long n = (long)send_buffer_take(&t->from, data, len);
	int error = t->error;
	pthread_mutex_unlock(&t->lock);
	return n ? n : error ? error : -EAGAIN;
}

static void threaded_want(struct store_stream *s, bool write)
{
	(void)s;
	(void)write;
}

static uint64_t threaded_step(struct store_stream *s, uint64_t now, bool *busy)
{
	struct threaded *t = (struct threaded *)s;
	(void)now;
	pthread_mutex_lock(&t->lock);
	s->absent_at = t->absent_at;
	*busy |= send_buffer_len(&t->from) || t->error;
	pthread_mutex_unlock(&t->lock);
	return TIME_NEVER;
}

static void threaded_destroy(struct store_stream *s)
{
	struct threaded *t = (struct threaded *)s;
	uint64_t at = clock_now(&clock_monotonic) + END_NS;
	struct timespec until = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
	int rc = 0;
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	t->own->ops->wake(t->own);
	while (!t->finished && !rc)
		rc = pthread_cond_timedwait(&t->ended, &t->lock, &until);
	bool finished = t->finished;
	if (!finished)
		t->net = NULL;
	pthread_mutex_unlock(&t->lock);
	if (!finished) {
		pthread_detach(t->thread);
		return;
	}
	pthread_join(t->thread, NULL);
	pthread_cond_destroy(&t->ended);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

struct store_stream *store_stream_threaded_file(struct ctl_net *net, const char *path)
{
	static const struct store_stream_ops ops = {.open = threaded_open,
						    .close = threaded_close,
						    .send = threaded_send,
						    .recv = threaded_recv,
						    .want = threaded_want,
						    .step = threaded_step,
						    .destroy = threaded_destroy};
	sigset_t masked, before;
	struct threaded *t = calloc(1, sizeof *t);
	struct ctl_net *own = t ? ctl_net_os_create() : NULL;
	struct store_stream *inner = own ? store_stream_file(own, path) : NULL;
	if (inner) {
		pthread_condattr_t attr;
		*t = (struct threaded){.base = {.ops = &ops}, .inner = inner, .own = own, .net = net};
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&t->ended, &attr);
		pthread_condattr_destroy(&attr);
		pthread_mutex_init(&t->lock, NULL);
		signals_thread_mask(&masked);
		pthread_sigmask(SIG_SETMASK, &masked, &before);
		int rc = pthread_create(&t->thread, NULL, threaded_main, t);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		if (!rc)
			return &t->base;
		inner->ops->destroy(inner);
	}
	if (own)
		own->ops->destroy(own);
	free(t);
	return NULL;
}
