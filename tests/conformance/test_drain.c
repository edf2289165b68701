/* SPDX-License-Identifier: BSD-3-Clause */
/** An end that waits for what calls have called: B5. Main thread of each process. */
#include "functions.h"

enum { TTL = 20, LAYER_MS = 10 };

/* Chains of calls that nobody waits for. Each layer is counted by the worker that runs it, which has not left before.
 * One chain is slow: most workers have no call pending while it lasts. Kills: a shutdown that does not wait for the
 * calls of handlers; one that ends when every worker has been without calls once. */
CONFORM_BARE(B5, multi_layer_nested_async_rpc)
{
	conform_join(HERE);
	far_future_free(ASYNC(peer(1), "c::multi_layer", FAR_ARGS(peer_rank(2), TTL - 1, 0)));
	if (rank == 0)
		far_future_free(ASYNC(peer(1), "c::multi_layer", FAR_ARGS(peer_rank(2), TTL - 1, LAYER_MS)));
	conform_leave(HERE);
	/* Each chain visits the workers in turn: of four, every worker runs TTL layers, of one a quarter of TTL. */
	HOLDS(functions_counted() == TTL + TTL / WORLD);
}
