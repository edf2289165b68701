/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * far_store_*() of a dynamic group whose rank 0 is killed and started again several times, while a client adds to a
 * counter and sets keys: what was acknowledged is there, from the copy of another member, and nothing was added twice.
 */
#include "api_spawn.h"

#include <farcall/store.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { MEMBERS = 2, ROUNDS = 3, WAVE = 100 };

#define LEASE (20 * FAR_SEC) /* no member is evicted here */

static struct far_err err;
static char url[64];

/* Of all processes. */
static struct shared {
	_Atomic int joined;        /* members, rank 0 not */
	_Atomic int hosts;         /* incarnations of rank 0 that have joined */
	_Atomic int64_t begun, ok; /* additions */
	_Atomic int marked;        /* rounds whose key is set */
	_Atomic int round;         /* that is under way */
	_Atomic bool stop;
} * shared;

static void nap(void)
{
	usleep(1000);
}

static struct far_agent *joins(const char *name, int rank)
{
	const struct far_opts opts = {.init_method = url,
				      .leaks = FAR_LEAKS_IGNORE,
				      .security = "none",
				      .lease_ns = LEASE,
				      .init_timeout_ns = 40 * FAR_SEC};
	struct far_agent *a = NULL;
	CHECK_STATUS(check_init(name, rank, FAR_WORLD_DYNAMIC, &opts, &a, &err), FAR_OK, &err);
	return a;
}

static int serves(struct far_agent *agent)
{
	CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
	return 0;
}

static int host(int rank)
{
	unsetenv("FAR_STORE_FD");
	struct far_agent *agent = joins("host", rank);
	atomic_fetch_add(&shared->hosts, 1);
	return serves(agent);
}

static int member(int rank)
{
	struct far_agent *agent = joins(check_name(rank), rank);
	atomic_fetch_add(&shared->joined, 1);
	return serves(agent);
}

/* ---- the client ---- */

static struct far_store *opened(void)
{
	const struct far_store_opts opts = {.security = "none"};
	struct far_store *s = NULL;
	CHECK_STATUS(far_store_open(url, &opts, 0, &s, &err), FAR_OK, &err);
	return s;
}

static void *adds(void *arg)
{
	struct far_store *s = opened();
	int64_t last = 0;
	while (!atomic_load(&shared->stop)) {
		struct far_err e;
		int64_t sum = 0;
		atomic_fetch_add(&shared->begun, 1);
		enum far_status status = far_store_add(s, "sum", 1, 0, &sum, &e);
		CHECK(status == FAR_OK || status == FAR_PEER_LOST);
		if (status)
			continue;
		CHECK(sum > last && sum <= atomic_load(&shared->begun));
		last = sum;
		atomic_fetch_add(&shared->ok, 1);
	}
	far_store_close(s);
	return NULL;
}

static void marks(struct far_store *s, int round)
{
	char key[16];
	struct far_err e;
	enum far_status status;
	snprintf(key, sizeof key, "round/%d", round);
	while ((status = far_store_set(s, key, key, strlen(key), 0, &e)))
		CHECK(status == FAR_PEER_LOST);
	atomic_store(&shared->marked, round + 1);
}

static int client(int rank)
{
	struct far_store_value value;
	struct far_store *s;
	pthread_t thread;
	int64_t sum = 0;
	CHECK(pthread_create(&thread, NULL, adds, NULL) == 0);
	s = opened();
	for (int round = 0; round <= ROUNDS; round++) {
		while (atomic_load(&shared->round) < round)
			nap();
		marks(s, round);
	}
	while (!atomic_load(&shared->stop))
		nap();
	pthread_join(thread, NULL);
	far_store_close(s);
	s = opened();
	for (int round = 0; round <= ROUNDS; round++) {
		char key[16];
		snprintf(key, sizeof key, "round/%d", round);
		CHECK_STATUS(far_store_get(s, key, 0, &value, &err), FAR_OK, &err);
		CHECK(value.found && value.bytes == strlen(key) && memcmp(value.data, key, value.bytes) == 0);
	}
	CHECK_STATUS(far_store_add(s, "sum", 0, 0, &sum, &err), FAR_OK, &err);
	CHECK(sum >= atomic_load(&shared->ok) && sum <= atomic_load(&shared->begun));
	far_store_close(s);
	return 0;
}

/* ---- the process that starts them ---- */

static void await_adds(void)
{
	for (int64_t from = atomic_load(&shared->ok); atomic_load(&shared->ok) < from + WAVE;)
		nap();
}

static void ends(pid_t pid, int signal)
{
	int status;
	kill(pid, signal);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(signal == SIGKILL ? WIFSIGNALED(status) : status == 0);
}

int main(void)
{
	struct spawned s = {.world = 1 + MEMBERS};
	int status;
	alarm(HANG_GUARD_S);
	close(spawn_listen(&s.port));
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", s.port);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pid_t rank0 = spawn_one(&s, 0, -1, host);
	for (int r = 1; r <= MEMBERS; r++)
		s.pids[r] = spawn_one(&s, r, -1, member);
	while (atomic_load(&shared->joined) < MEMBERS)
		nap();
	pid_t user = spawn_one(&s, s.world, -1, client);
	for (int round = 0; round < ROUNDS; round++) {
		while (atomic_load(&shared->marked) <= round)
			nap();
		await_adds();
		ends(rank0, SIGKILL);
		/* Calls wait meanwhile. */
		int hosts = atomic_load(&shared->hosts);
		rank0 = spawn_one(&s, 0, -1, host);
		while (atomic_load(&shared->hosts) == hosts)
			nap();
		await_adds();
		atomic_store(&shared->round, round + 1);
	}
	while (atomic_load(&shared->marked) <= ROUNDS)
		nap();
	atomic_store(&shared->stop, true);
	CHECK(waitpid(user, &status, 0) == user && status == 0);
	for (int r = MEMBERS; r; r--)
		ends(s.pids[r], SIGTERM);
	ends(rank0, SIGTERM);
	return 0;
}
