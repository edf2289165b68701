/* SPDX-License-Identifier: BSD-3-Clause */
/** An application outside the tree: each worker greets the next one through a function of its own.
 * Main thread of each process; handlers on shard threads. */
#include <farcall/farcall.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum far_status on_greet(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	char text[128];
	(void)n;
	snprintf(text, sizeof text, "%s, %s number %" PRId64, (const char *)user,
		 (const char *)far_list_get(&args[0], 0)->u.s.data, args[1].u.i);
	struct far_val v = far_str(text);
	return far_return(req, &v);
}

int main(int argc, char **argv)
{
	static char hello[] = "hello";
	const struct far_function greet = {"hello::greet(List names, int number=0) -> str", FAR_KIND_INLINE, on_greet,
					   hello, 0};
	struct far_opts opts;
	struct far_agent *agent = NULL;
	struct far_worker_info self, next;
	struct far_val out;
	struct far_err err;
	memset(&opts, 0, sizeof opts);
	opts.functions = &greet;
	opts.functions_n = 1;
	(void)argc;
	if (far_init_rpc(argv[1], FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err) != FAR_OK)
		return (int)far_err_print(stderr, &err);
	far_worker_self(agent, &self);
	if (far_worker_by_rank(agent, (self.rank + 1) % far_world_size(agent), &next, &err) != FAR_OK ||
	    far_rpc_sync(agent, next.name, "hello::greet",
			 FAR_ARGS(FAR_LIST("worker", 2.5, FAR_DICT(FAR_ENTRY("x", 1))), FAR_KW("number", self.rank)),
			 NULL, &out, &err) != FAR_OK)
		return (int)far_err_print(stderr, &err);
	printf("%s\n", (const char *)out.u.s.data);
	far_val_fini(&out);
	return far_shutdown(agent, 0, &err) == FAR_OK ? 0 : (int)far_err_print(stderr, &err);
}
