/* SPDX-License-Identifier: BSD-3-Clause */
/** Several agents in one process, joining and leaving together. Main thread of each process; threads that it starts. */
#ifndef API_TOGETHER_H
#define API_TOGETHER_H

#include "api_spawn.h"

#include <inttypes.h>
#include <pthread.h>

struct together {
	struct far_agent *agent;
	struct far_opts opts;
	int rank, world;
	pthread_t thread;
};

static char together_url[64];

static inline void *together_join(void *arg)
{
	struct together *t = arg;
	struct far_err e;
	char name[32];
	snprintf(name, sizeof name, "worker%d", t->rank);
	t->opts.init_method = together_url;
	CHECK_STATUS(check_init(name, t->rank, t->world, &t->opts, &t->agent, &e), FAR_OK, &e);
	return NULL;
}

static inline void *together_leave(void *arg)
{
	struct together *t = arg;
	struct far_err e;
	CHECK_STATUS(far_shutdown(t->agent, FAR_FOREVER, &e), FAR_OK, &e);
	return NULL;
}

static inline void together_all(struct together *t, int n, void *(*body)(void *))
{
	for (int i = 0; i < n; i++)
		CHECK(pthread_create(&t[i].thread, NULL, body, &t[i]) == 0);
	for (int i = 0; i < n; i++)
		CHECK(pthread_join(t[i].thread, NULL) == 0);
}

/** A free port, once. The first store inherits its listener, the later ones listen there again. */
static inline void together_listen(void)
{
	char text[16];
	int port, fd = spawn_listen(&port);
	snprintf(together_url, sizeof together_url, "tcp://127.0.0.1:%d", port);
	snprintf(text, sizeof text, "%d", fd);
	setenv("FAR_STORE_FD", text, 1);
}

/** `n` workers with these options join. The hang guard runs from here. */
static inline void together_begin(struct together *t, int n, const struct far_opts *opts)
{
	alarm(HANG_GUARD_S);
	together_listen();
	for (int i = 0; i < n; i++)
		t[i] = (struct together){.opts = *opts, .rank = i, .world = n};
	together_all(t, n, together_join);
}

/** Runs body(i) in a process and a group of its own, within bounds of its own: a crash ends one round, and says which.
 */
static inline void together_apart(unsigned i, uint64_t seed, void (*body)(unsigned i))
{
	int status;
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(HANG_GUARD_S);
		together_listen();
		body(i);
		exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "round %u of seed %" PRIu64 ": status %#x\n", i, seed, (unsigned)status);
	CHECK(status == 0);
}

#endif
