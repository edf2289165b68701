/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes and locks the health file; a thread of its own renews the record every second. */
#include "health.h"
#include "ps_clock.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BEAT_S     1
#define CALL_MAX   (5 * FAR_SEC) /* a shard that does not answer for so long does not beat */
#define MODE_OWNER 0600

struct health {
	int fd, rank, world;
	struct far_agent *agent;
	pthread_t thread;
	bool started;
	bool stop; /* under `lock` */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char path[4096];
};

static void record(const struct health *h, const char *state)
{
	char text[HEALTH_RECORD + 1];
	int n = snprintf(text, sizeof text, HEALTH_MAGIC " %s rank %d world %d beat %" PRIu64, state, h->rank, h->world,
			 clock_ns());
	memset(text + n, ' ', HEALTH_RECORD - 1 - (size_t)n);
	text[HEALTH_RECORD - 1] = '\n';
	if (pwrite(h->fd, text, HEALTH_RECORD, 0) < 0)
		return; /* a full disk: the record ages, and `farcall health` reports it */
}

static int lock_file(int fd)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	return fcntl(fd, F_OFD_SETLK, &whole) < 0 ? -errno : 0;
}

int health_begin(const char *program, const char *path, int rank, int world, struct health **out)
{
	*out = NULL;
	if (!path || !*path)
		return 0;
	struct health *h = calloc(1, sizeof *h);
	int rc = h ? 0 : -ENOMEM;
	if (rc == 0 && (size_t)snprintf(h->path, sizeof h->path, "%s", path) >= sizeof h->path)
		rc = -ENAMETOOLONG;
	if (rc == 0 && (h->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, MODE_OWNER)) < 0)
		rc = -errno;
	if (rc) {
		fprintf(stderr, "%s: health file %s: %s; name one that can be written (--health, " HEALTH_ENV ")\n",
			program, path, strerror(-rc));
		free(h);
		return rc;
	}
	rc = lock_file(h->fd);
	if (rc == 0 && ftruncate(h->fd, 0) < 0)
		rc = -errno;
	if (rc) {
		bool taken = rc == -EAGAIN || rc == -EACCES;
		fprintf(stderr, "%s: health file %s: %s; give each worker a file of its own\n", program, path,
			taken ? "another running worker holds it" : strerror(-rc));
		close(h->fd);
		free(h);
		return rc;
	}
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&h->lock, NULL);
	h->rank = rank;
	h->world = world;
	record(h, HEALTH_JOINING);
	*out = h;
	return 0;
}

/* Do all of this worker's shards answer. */
static bool shards_answer(const struct health *h)
{
	struct far_call_opts opts = {.timeout_ns = CALL_MAX};
	for (unsigned i = 0; i < far_shards(h->agent); i++) {
		struct far_to self = {.worker = h->rank, .shard = (int32_t)i};
		struct far_val out;
		enum far_status status =
			far_rpc_sync_to(h->agent, self, "far::identity", FAR_ARGS(h->rank), &opts, &out, NULL);
		if (status != FAR_OK)
			return false;
		far_val_fini(&out);
	}
	return true;
}

static void *beat(void *arg)
{
	struct health *h = arg;
	pthread_mutex_lock(&h->lock);
	while (!h->stop) {
		pthread_mutex_unlock(&h->lock);
		if (shards_answer(h))
			record(h, HEALTH_JOINED);
		pthread_mutex_lock(&h->lock);
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += BEAT_S;
		while (!h->stop && pthread_cond_timedwait(&h->changed, &h->lock, &until) == 0)
			;
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

int health_joined(struct health *h, struct far_agent *agent)
{
	if (!h)
		return 0;
	h->agent = agent;
	record(h, HEALTH_JOINED);
	/* Signals are the main thread's. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&h->thread, NULL, beat, h);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	h->started = error == 0;
	return -error;
}

void health_leaving(struct health *h)
{
	if (!h)
		return;
	if (h->started) {
		pthread_mutex_lock(&h->lock);
		h->stop = true;
		pthread_cond_signal(&h->changed);
		pthread_mutex_unlock(&h->lock);
		pthread_join(h->thread, NULL);
		h->started = false;
	}
	record(h, HEALTH_LEAVING);
}

void health_end(struct health *h)
{
	if (!h)
		return;
	unlink(h->path);
	close(h->fd);
	pthread_cond_destroy(&h->changed);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
