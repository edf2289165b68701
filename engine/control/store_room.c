/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Room of the store's table. Control thread of rank 0. Any client may write up to FAR_STORE_KEYS_MAX keys; those beyond
 * are reserved for what a group writes about its members, since a full table would end every join and shutdown.
 */
#include "control/store_conn.h"

#include <stdio.h>
#include <string.h>

void store_server_reserve(struct store_server *s, const char *group, int world)
{
	s->prefix_len = (size_t)snprintf(s->prefix, sizeof s->prefix, "%s/", group);
	s->world = world;
}

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

/* The rank R of "GROUP/rank/R", "GROUP/info/R", "GROUP/bye/R" or "GROUP/byeW/R"; -1: another key. */
static int rank_of(const struct store_server *s, struct kv_bytes key)
{
	const uint8_t *at = key.data + s->prefix_len, *end = key.data + key.len;
	int rank = 0;
	if (!s->prefix_len || key.len < s->prefix_len + 5 || memcmp(key.data, s->prefix, s->prefix_len) != 0)
		return -1;
	if (memcmp(at, "rank", 4) == 0 || memcmp(at, "info", 4) == 0)
		at += 4;
	else if (memcmp(at, "bye", 3) == 0)
		for (at += 3; at < end && is_digit(*at);)
			at++;
	if (at == end || *at++ != '/' || at == end || end - at > 4 || (*at == '0' && end - at > 1))
		return -1;
	for (; at < end && is_digit(*at); at++)
		rank = 10 * rank + *at - '0';
	return at == end && rank < s->world ? rank : -1;
}

bool room_take(struct store_server *s, struct conn *c, const struct store_msg *m)
{
	struct kv_bytes key = {m->key, m->key_len}, value;
	if (c == &s->local || kv_count(s->kv) < FAR_STORE_KEYS_MAX || kv_get(s->kv, key, &value) == 0)
		return true;
	int rank = rank_of(s, key);
	if (rank < 0 || c->who.rank != rank || c->reserved_n == FAR_STORE_RESERVED_MAX)
		return false;
	c->reserved_n++;
	return true;
}

void room_give(struct store_server *s, struct conn *c, const struct store_msg *m)
{
	if (c->reserved_n && rank_of(s, (struct kv_bytes){m->key, m->key_len}) >= 0)
		c->reserved_n--;
}
