/* SPDX-License-Identifier: BSD-3-Clause */
/** A worker dies while as much is under way to it as may be, and messages wait. What its peers send to the others
 * afterwards arrives, whether it is started again at once or stays dead.
 * Main thread of each process; handlers on shard threads. */
#include "api_spawn.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { SENDER, OTHER, VICTIM, WORLD, FILL = 1, ARRIVE, SMALL = 4000, ONEWAY = 8192, LONG = 32 << 20, ROUNDS = 3 };

/* What parent and workers share. */
static struct shared {
	_Atomic int joined;
	_Atomic bool fill, filled, arrived, stop;
} * shared;

static unsigned shards;  /* of the victim */
static bool comes_again; /* the victim */
static struct far_agent *agent;
static struct far_err err;
static uint8_t bytes[LONG];

static void on_fill(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(far_reply(req, NULL, 0) == FAR_OK);
}

static void on_arrive(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(len == ONEWAY && memcmp(data, bytes, len) == 0);
	atomic_store(&shared->arrived, true);
}

static enum far_status take(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(n == 1 && args[0].u.s.len == LONG && memcmp(args[0].u.s.data, bytes, LONG) == 0);
	struct far_val out = far_int(LONG);
	return far_return(req, &out);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	/* FAR_BUSY is an answer of far_msg_send() alone. */
	CHECK(status == FAR_OK || (status == FAR_PEER_LOST && e));
	atomic_fetch_add((_Atomic int *)user, 1);
}

static void wait_for(_Atomic bool *flag)
{
	while (!atomic_load(flag))
		usleep(500);
}

/* As many as its sessions take; the victim is stopped. */
static int fill(_Atomic int *done)
{
	int n = 0;
	for (unsigned k = 0; k < shards; k++) {
		struct far_to to = {VICTIM, (int)k};
		enum far_status status = FAR_OK;
		while (status == FAR_OK) {
			status = far_msg_send(agent, to, FILL, bytes, SMALL, NULL, on_done, done, &err);
			n += status == FAR_OK;
		}
		CHECK_STATUS(status, FAR_BUSY, &err);
	}
	return n;
}

static void sender(void)
{
	struct far_call_opts opts = {.timeout_ns = 20 * FAR_SEC};
	_Atomic int done = 0;
	int n = 1;
	for (int k = 0; k < (int)shards; k++, n++)
		CHECK_STATUS(
			far_msg_send(agent, (struct far_to){VICTIM, k}, FILL, bytes, 8, NULL, on_done, &done, &err),
			FAR_OK, &err);
	CHECK_STATUS(far_msg_send(agent, (struct far_to){OTHER, 0}, FILL, bytes, 8, NULL, on_done, &done, &err), FAR_OK,
		     &err);
	while (done < n)
		usleep(500);
	atomic_fetch_add(&shared->joined, 1);
	wait_for(&shared->fill);
	n += fill(&done);
	atomic_store(&shared->filled, true);
	while (done < n) /* all of them end */
		usleep(500);
	CHECK_STATUS(far_msg_oneway(agent, (struct far_to){OTHER, 0}, ARRIVE, bytes, ONEWAY, NULL, &err), FAR_OK, &err);
	struct far_val out;
	CHECK_STATUS(
		far_rpc_sync(agent, check_name(OTHER), "t::take", FAR_ARGS(far_bytes(bytes, LONG)), &opts, &out, &err),
		FAR_OK, &err);
	CHECK(out.u.i == LONG);
	wait_for(&shared->arrived);
	while (comes_again && atomic_load(&shared->joined) == WORLD)
		usleep(500);
	atomic_store(&shared->stop, true);
}

static int worker(int rank)
{
	static const struct far_function table[] = {{"t::take(bytes x) -> int", FAR_KIND_INLINE, take, NULL}};
	static const struct far_msg_handler messages[] = {{FILL, FAR_KIND_INLINE, on_fill, NULL},
							  {ARRIVE, FAR_KIND_INLINE, on_arrive, NULL}};
	struct far_opts opts = {.functions = table,
				.functions_n = 1,
				.messages = messages,
				.messages_n = 2,
				.shards = rank == VICTIM ? shards : 1,
				.init_timeout_ns = 20 * FAR_SEC};
	for (unsigned i = 0; i < LONG; i++)
		bytes[i] = (uint8_t)(i * 31 + i / 251);
	agent = check_join(&opts);
	if (rank == SENDER) {
		sender();
	} else {
		atomic_fetch_add(&shared->joined, 1);
		wait_for(&shared->stop);
	}
	/* A group that has lost a worker reports it; what matters is that nobody waits until the limit. */
	CHECK_STATUS(far_shutdown(agent, 20 * FAR_SEC, &err), comes_again ? FAR_OK : FAR_PEER_LOST, &err);
	return 0;
}

static int round_of(unsigned shards_n, bool again)
{
	int status;
	shards = shards_n;
	comes_again = again;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	struct spawned s = spawn(WORLD, worker);
	while (atomic_load(&shared->joined) < WORLD)
		usleep(500);
	CHECK(kill(s.pids[VICTIM], SIGSTOP) == 0);
	CHECK(waitpid(s.pids[VICTIM], &status, WUNTRACED) == s.pids[VICTIM] && WIFSTOPPED(status));
	atomic_store(&shared->fill, true);
	wait_for(&shared->filled);
	CHECK(kill(s.pids[VICTIM], SIGKILL) == 0);
	if (again) {
		CHECK(waitpid(s.pids[VICTIM], &status, 0) == s.pids[VICTIM] && WIFSIGNALED(status));
		s.pids[VICTIM] = spawn_one(&s, VICTIM, -1, worker);
	}
	int bad = spawn_wait(&s, again ? -1 : VICTIM);
	munmap(shared, sizeof *shared);
	return bad;
}

int main(void)
{
	alarm(HANG_GUARD_S);
	for (int i = 0; i < ROUNDS; i++)
		if (round_of(1, true) || round_of(2, false))
			return 1;
	return 0;
}
