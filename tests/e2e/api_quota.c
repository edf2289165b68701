/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two workers under the limits of their cgroups, which the starter has set.
 * busy    FAR_IDLE_BUSY without a quota: the shards never sleep
 * scarce  FAR_IDLE_BUSY with less than a CPU: they do, and calls still work
 * memory  worker 1 has 256 MiB: what it could not hold is refused where it would be sent
 *
 * Main thread of each process.
 */
#include "check.h"
#include <time.h>

#define CALLS    200
#define PAUSES   50
#define PATIENCE 3000                /* of 10 ms */
#define TOO_MUCH ((size_t)160 << 20) /* more than half of it */
#define ENOUGH   ((size_t)1 << 20)

static void pause_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

static uint64_t wakeups(struct far_agent *agent)
{
	struct far_counters c;
	far_counters_read(agent, &c);
	return c.wakeups;
}

static void call_peer(struct far_agent *agent, int rank)
{
	struct far_val out;
	struct far_err err;
	CHECK_STATUS(far_rpc_sync(agent, check_name(1 - rank), "far::identity", FAR_ARGS(rank), NULL, &out, &err),
		     FAR_OK, &err);
	CHECK(out.type == FAR_TYPE_INT && out.u.i == rank);
	far_val_fini(&out);
}

static void poll_busily(const char *mode, int rank)
{
	struct far_agent *agent = check_join(&(struct far_opts){.idle = FAR_IDLE_BUSY});
	bool scarce = strcmp(mode, "scarce") == 0;
	for (int i = 0; i < CALLS; i++)
		call_peer(agent, rank);
	for (int i = 0; i < (scarce ? PATIENCE : PAUSES) && !(scarce && wakeups(agent)); i++) {
		pause_ms(10);
		call_peer(agent, rank);
	}
	CHECK(scarce ? wakeups(agent) > 0 : wakeups(agent) == 0);
	check_leave(agent);
}

static void send_bytes(struct far_agent *agent, size_t n, enum far_status want)
{
	uint8_t *bytes = calloc(1, n);
	struct far_tensor t = far_tensor_1d(FAR_U8, bytes, n);
	struct far_val out;
	struct far_err err;
	CHECK(bytes);
	CHECK_STATUS(far_rpc_sync(agent, check_name(1), "far::identity", FAR_ARGS(&t), NULL, &out, &err), want, &err);
	if (want == FAR_OK)
		far_val_fini(&out);
	else
		CHECK_TEXT(&err, "max_message_bytes");
	free(bytes);
}

static void bound_messages(int rank)
{
	struct far_agent *agent = check_join(NULL);
	if (rank == 0) {
		send_bytes(agent, ENOUGH, FAR_OK);
		send_bytes(agent, TOO_MUCH, FAR_TOO_LARGE);
		send_bytes(agent, ENOUGH, FAR_OK);
	}
	check_leave(agent);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (strcmp(argv[1], "memory") == 0)
		bound_messages(check_rank());
	else
		poll_busily(argv[1], check_rank());
	return 0;
}
