/* SPDX-License-Identifier: BSD-3-Clause */
/** A listener of another version of `farcall perf serve`. usage: perf_other VERSION, as rank 0 of 2 by the environment.
 * Main thread of each process; handlers on shard threads. */
#include "check.h"
#include "perf/server.h"

static void describe(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, user, sizeof(struct server_description));
}

int main(int argc, char **argv)
{
	static struct server_description h = {.shared_bytes = sizeof(struct floor_shared), .fd = -1};
	const struct far_msg_handler handler = {SERVER_DESCRIBE, FAR_KIND_INLINE, describe, &h};
	struct far_opts opts = {.messages = &handler, .messages_n = 1};
	struct far_agent *agent;
	struct far_err err;
	CHECK(argc == 2);
	alarm(HANG_GUARD_S);
	snprintf(h.version, sizeof h.version, "%s", argv[1]);
	CHECK_STATUS(far_init_rpc("server", 0, 2, &opts, &agent, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	return 0;
}
