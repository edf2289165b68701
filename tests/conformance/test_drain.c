/* SPDX-License-Identifier: BSD-3-Clause */
/** An end that waits for what calls have called: B5. */
#include "functions.h"

enum { TTL = 20 };

/* A chain that nobody waits for: each layer runs before its worker has left. */
CONFORM_BARE(B5, multi_layer_nested_async_rpc)
{
	conform_join(HERE);
	IS_NONE(CALL(peer(1), "c::multi_layer", FAR_ARGS(peer_rank(2), TTL)));
	conform_leave(HERE);
	/* Four chains of TTL + 1 layers pass by each worker alike, and each layer counted where it ran. */
	HOLDS(functions_counted() == TTL + 1);
}
