/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of members of a large group: all infos, written by rank 0 in chunks of one store value each. Control thread.
 *
 *   chunk  offset 0: version 2 (1 byte), 0 (1), chunks of the list (2), rank of the first info (2), infos (2), then for
 *          each info its length (2) and the info. Numbers are little-endian.
 */
#include "control/group.h"

#include "base/byteorder.h"

#include <string.h>

#define LIST_VERSION     2
#define CHUNK_HEAD_BYTES 8

bool list_used(const struct group *g)
{
	return g->url.world > FAR_GATHER_DIRECT_MAX;
}

/* Writes infos from rank `first` on into a chunk (`value` NULL: only its length). Returns the first rank that does not
 * fit. */
static int chunk_fill(const struct group *g, int first, uint8_t *value, size_t *len)
{
	int r = first;
	*len = CHUNK_HEAD_BYTES;
	for (; r < g->url.world && *len + 2 + g->peers[r].bytes <= FAR_STORE_VALUE_MAX; r++) {
		const struct peer *p = &g->peers[r];
		if (value) {
			le_put(value + *len, p->bytes, 2);
			memcpy(value + *len + 2, p->info, p->bytes);
		}
		*len += 2u + p->bytes;
	}
	return r;
}

static void chunk_set(void *user, int result, const struct store_msg *reply)
{
	join_reply_counts(user, result, reply);
}

void list_publish(struct group *g)
{
	uint8_t value[FAR_STORE_VALUE_MAX];
	size_t len;
	unsigned chunks = 0;
	/* The longest info fits a value together with both heads, so each chunk holds at least one. */
	for (int r = 0; r < g->url.world; chunks++)
		r = chunk_fill(g, r, NULL, &len);
	for (int r = 0, k = 0; r < g->url.world && group_joining(g); k++) {
		int end = chunk_fill(g, r, value, &len);
		value[0] = LIST_VERSION;
		value[1] = 0;
		le_put(value + 2, chunks, 2);
		le_put(value + 4, (unsigned)r, 2);
		le_put(value + 6, (unsigned)(end - r), 2);
		group_submit(g, store_request(STORE_SET, value, len), "list", k, g->init_deadline, chunk_set, g);
		r = end;
	}
}

/* Takes the infos of a chunk: 0, or −1: malformed. */
static int chunk_take(struct group *g, const uint8_t *value, size_t len)
{
	if (len < CHUNK_HEAD_BYTES || value[0] != LIST_VERSION)
		return -1;
	unsigned first = (unsigned)le_get(value + 4, 2), n = (unsigned)le_get(value + 6, 2);
	size_t at = CHUNK_HEAD_BYTES;
	if (n == 0 || first + n > (unsigned)g->url.world)
		return -1;
	for (unsigned r = first; r < first + n && group_joining(g); r++) {
		size_t bytes = len - at >= 2 ? (unsigned)le_get(value + at, 2) : 0;
		if (bytes == 0 || bytes > len - at - 2)
			return -1;
		if (!g->peers[r].known)
			join_info_take(&g->peers[r], value + at + 2, bytes);
		at += 2 + bytes;
	}
	return group_joining(g) && at != len ? -1 : 0;
}

static bool chunk_read(struct group *g, int result, const struct store_msg *reply)
{
	if (!join_reply_counts(g, result, reply))
		return false;
	if (reply->status == STORE_OK && chunk_take(g, reply->value, reply->value_len) == 0)
		return true;
	group_fail(g, true, FAR_PROTOCOL,
		   "rank 0's list of members is malformed; run one version of the library in all members");
	return false;
}

static void later_chunk_read(void *user, int result, const struct store_msg *reply)
{
	chunk_read(user, result, reply);
}

static void first_chunk_read(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	if (!chunk_read(g, result, reply))
		return;
	unsigned chunks = (unsigned)le_get(reply->value + 2, 2);
	for (unsigned k = 1; k < chunks && k < FAR_WORLD_MAX && group_joining(g); k++)
		group_request(g, STORE_WAIT, "list", (int)k, g->init_deadline, later_chunk_read, g);
}

void list_read(struct group *g)
{
	group_request(g, STORE_WAIT, "list", 0, g->init_deadline, first_chunk_read, g);
}
