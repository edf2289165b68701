/* SPDX-License-Identifier: BSD-3-Clause */
/** For run_hosts.sh and run_cmd.sh: worker 0 makes worker 1 kill itself and calls its next incarnation, as often as the
 * argument says. Main thread. */
#include "check.h"

#include <signal.h>

static enum far_status pid_of(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = far_int(getpid());
	return far_return(req, &out);
}

static enum far_status die(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return raise(SIGKILL) ? FAR_SYSTEM : FAR_OK;
}

static const struct far_function table[] = {
	{"t::pid() -> int", FAR_KIND_INLINE, pid_of, NULL},
	{"t::die() -> none", FAR_KIND_INLINE, die, NULL},
};

/* The process that is worker 1 now, another one than `before`. */
static int64_t next_pid(struct far_agent *agent, int64_t before)
{
	struct far_err err;
	struct far_val out;
	for (;;) {
		if (far_rpc_sync(agent, "worker1", "t::pid", FAR_NOARGS, NULL, &out, &err) == FAR_OK) {
			CHECK(out.u.i != before);
			return out.u.i;
		}
		CHECK(err.status == FAR_PEER_LOST);
		usleep(20000);
	}
}

int main(int argc, char **argv)
{
	struct far_opts opts = {.functions = table, .functions_n = 2};
	struct far_agent *agent = check_join(&opts);
	struct far_err err;
	if (check_rank() == 0) {
		int64_t pid = next_pid(agent, -1);
		for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
			CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::die", FAR_NOARGS, NULL, NULL, &err),
				     FAR_PEER_LOST, &err);
			pid = next_pid(agent, pid);
		}
		puts("served again");
	} else {
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	}
	check_leave(agent);
	return 0;
}
