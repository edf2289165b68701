/* SPDX-License-Identifier: BSD-3-Clause */
/** An end that waits for what calls have called: B5. */
#include "functions.h"

enum { TTL = 20 };

/* A chain of calls that nobody waits for, not even for the first. Each layer runs before its worker has left: each
 * counted where it ran. Kills: a shutdown that does not wait for the calls of handlers. */
CONFORM_BARE(B5, multi_layer_nested_async_rpc)
{
	conform_join(HERE);
	far_future_free(ASYNC(peer(1), "c::multi_layer", FAR_ARGS(peer_rank(2), TTL - 1)));
	conform_leave(HERE);
	/* Four chains of TTL layers, each of which begins one worker on: they pass by each worker alike. */
	HOLDS(functions_counted() == TTL);
}
