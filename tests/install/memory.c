/* SPDX-License-Identifier: BSD-3-Clause */
/** An application outside the tree: which allocator serves it, a payload of that, and its own malloc beside it.
 * Main thread of each process. */
#include <farcall/farcall.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)5 << 20)

int main(void)
{
	struct far_agent *agent = NULL;
	struct far_memory m;
	struct far_val sent, out;
	struct far_err err;
	char *own = malloc(BYTES), *payload = far_alloc(BYTES, &err);
	if (!own || !payload)
		return 2;
	memset(own, 'm', BYTES);
	memcpy(payload, own, BYTES);
	if (far_init_rpc("app", FAR_RANK_ENV, FAR_WORLD_ENV, NULL, &agent, &err) != FAR_OK)
		return (int)far_err_print(stderr, &err);
	sent = far_bytes(payload, BYTES);
	if (far_rpc_sync(agent, "app", "far::identity", &sent, 1, NULL, &out, &err) != FAR_OK)
		return (int)far_err_print(stderr, &err);
	if (out.u.s.len != BYTES || memcmp(out.u.s.data, own, BYTES) != 0)
		return 3;
	far_memory_stats(&m);
	if (m.large_used < 2 * BYTES)
		return 4;
	printf("%s\n", m.allocator);
	far_val_fini(&out);
	far_free(payload);
	free(own);
	return far_shutdown(agent, 0, &err) == FAR_OK ? 0 : (int)far_err_print(stderr, &err);
}
