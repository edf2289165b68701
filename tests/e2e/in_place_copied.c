/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A defect, for in_place.c to find: requests are copied before they are run, by the C library or by a loop of our own.
 * The engine's own dispatch() is compiled once more for it, as dispatch_where_it_lies(). Main thread of each process.
 */

#include "core/dispatch.h"

#include <stdlib.h>

void dispatch_where_it_lies(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body,
			    uint64_t len, uint64_t waited);

#define ROOM 4096

void dispatch(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len,
	      uint64_t waited)
{
	_Alignas(64) static uint8_t elsewhere[ROOM];
	const char *how = getenv("IN_PLACE_COPIED");
	if (!how || !*how || len == 0 || len > ROOM) {
		dispatch_where_it_lies(s, se, h, body, len, waited);
		return;
	}
	if (strcmp(how, "library") == 0) {
		uint8_t *volatile to = elsewhere; /* so that it stays a call */
		memcpy(to, body, len);
		/* Only the copy is wrong, not the place. */
		dispatch_where_it_lies(s, se, h, body, len, waited);
		return;
	}
	for (uint64_t i = 0; i < len; i++)
		((volatile uint8_t *)elsewhere)[i] = body[i];
	dispatch_where_it_lies(s, se, h, elsewhere, len, waited);
}
