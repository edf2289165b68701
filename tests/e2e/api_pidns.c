/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two workers over shm, each in a pid namespace of its own, as containers are.
 * traffic  calls of every size both ways, one-way messages, and a graceful end
 * death    worker 1 is killed amid calls: worker 0 learns it at once from the socket, where pids mean nothing
 *
 * Main thread of each process; handlers on shard threads.
 */
#include "check.h"
#include "handlers.h"
#include "pattern.h"

#include <signal.h>
#include <stdatomic.h>

#define POSTS   100
#define CALLS   2000
#define KEPT    10
#define MSG     7
#define NS_MAX  64
#define FOREVER (50 * FAR_SEC) /* longer than the hang guard would be a hang */

static struct far_agent *agent;
static struct far_err err;
static _Atomic int oneways;

static void on_post(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(len == sizeof(int));
	atomic_fetch_add(&oneways, 1);
}

static const char *namespace(void)
{
	static char own[NS_MAX];
	ssize_t n = readlink("/proc/self/ns/pid", own, sizeof own - 1);
	CHECK(n > 0);
	own[n] = '\0';
	return own;
}

static enum far_status return_namespace(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val name = far_str(namespace());
	return far_return(req, &name);
}

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	static struct far_deferred *kept; /* as long as this worker runs */
	return far_defer(req, &kept);
}

static const char *peer(void)
{
	return check_name(1 - check_rank());
}

/* Were it one namespace, the test would show nothing. */
static void check_namespaces(void)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync(agent, peer(), "t::namespace", FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	CHECK(out.type == FAR_TYPE_STRING && strncmp(out.u.s.data, "pid:[", 5) == 0);
	CHECK(strcmp(out.u.s.data, namespace()) != 0);
	far_val_fini(&out);
	struct far_worker_info info;
	CHECK_STATUS(far_worker_by_name(agent, peer(), &info, &err), FAR_OK, &err);
	CHECK(strcmp(info.nic, "shm") == 0);
}

static void echo(size_t bytes)
{
	uint8_t *data = calloc(1, bytes);
	struct far_tensor t = far_tensor_1d(FAR_U8, data, bytes);
	struct far_val out;
	CHECK(data);
	pattern_fill(data, 0, bytes, bytes);
	CHECK_STATUS(far_rpc_sync(agent, peer(), "far::identity", FAR_ARGS(&t), NULL, &out, &err), FAR_OK, &err);
	CHECK(out.type == FAR_TYPE_TENSOR && far_tensor_count(&out.u.t) == bytes);
	CHECK(pattern_holds(out.u.t.data, bytes, bytes));
	far_val_fini(&out);
	free(data);
}

static void traffic(void)
{
	static const size_t sizes[] = {1, 32, 4096, 100000, 1 << 20, 8 << 20, 40 << 20};
	struct far_to to = {1 - check_rank(), -1};
	for (int i = 0; i < CALLS; i++)
		echo(1 + (size_t)i % 64);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		echo(sizes[i]);
	for (int i = 0; i < POSTS; i++) {
		enum far_status status;
		while ((status = far_msg_oneway(agent, to, MSG, &i, sizeof i, NULL, &err)) == FAR_BUSY)
			usleep(1000);
		CHECK_STATUS(status, FAR_OK, &err);
	}
	check_leave(agent); /* it waits for what was posted; our handlers go on until the other leaves too */
	CHECK(atomic_load(&oneways) == POSTS);
}

static void death(void)
{
	struct far_future *f[KEPT];
	struct far_call_opts patient = {.timeout_ns = FOREVER};
	struct far_worker_info info;
	if (check_rank() == 1)
		pause();
	for (int i = 0; i < KEPT; i++)
		CHECK_STATUS(far_rpc_async(agent, peer(), "t::keep", FAR_NOARGS, &patient, &f[i], &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync(agent, peer(), "t::die", FAR_NOARGS, &patient, NULL, &err), FAR_PEER_LOST, &err);
	CHECK(err.executed == FAR_EXECUTED_MAYBE);
	for (int i = 0; i < KEPT; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, NULL, &err), FAR_PEER_LOST, &err);
		far_future_free(f[i]);
	}
	CHECK_STATUS(far_worker_by_name(agent, peer(), &info, &err), FAR_OK, &err);
	CHECK(!info.alive);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker1");
}

int main(int argc, char **argv)
{
	static const struct far_function table[] = {
		{"t::namespace() -> str", FAR_KIND_INLINE, return_namespace, NULL},
		{"t::keep() -> none", FAR_KIND_INLINE, keep, NULL},
		{"t::die() -> none", FAR_KIND_INLINE, handler_die, NULL},
	};
	static const struct far_msg_handler message = {MSG, FAR_KIND_INLINE, on_post, NULL};
	struct far_opts opts = {
		.nic = "shm", .functions = table, .functions_n = 3, .messages = &message, .messages_n = 1};
	CHECK(argc == 2);
	agent = check_join(&opts);
	check_namespaces();
	if (strcmp(argv[1], "death") == 0)
		death();
	else
		traffic();
	return 0;
}
