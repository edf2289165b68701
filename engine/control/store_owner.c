/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Owners of records. Control thread of rank 0. A record "<group>/..." that a member of the group writes belongs to that
 * member: to its group, rank and name, in any incarnation. All other records belong to the application. A key that
 * names a rank belongs to that rank even before it is written.
 *
 *   key                        may be changed by
 *   <group>/rank/<r>           rank r, by HOLD; while held, the holder's connection only
 *   <group>/info/<r>           rank r, with the name that wrote it first
 *   <group>/bye[<wave>]/<r>    rank r, and rank 0, which writes it for a member that died
 *   any other                  its owner; of the application: any client; while held, HOLD by any client
 */
#include "control/store_conn.h"

#include <errno.h>
#include <string.h>

enum named { NAMED_NOT, NAMED_RANK, NAMED_INFO, NAMED_BYE };

static bool is_word(struct kv_bytes key, const char *word)
{
	return key.len == strlen(word) && memcmp(key.data, word, key.len) == 0;
}

static bool is_digits(const uint8_t *p, const uint8_t *end)
{
	for (; p < end; p++)
		if (*p < '0' || *p > '9')
			return false;
	return true;
}

/* Parses a key that names a rank: its kind, the group's name and the rank. */
static enum named named_by(struct kv_bytes key, struct kv_bytes *group, int *rank)
{
	const uint8_t *end = key.data + key.len, *slash = memchr(key.data, '/', key.len);
	const uint8_t *last = slash ? memrchr(slash + 1, '/', (size_t)(end - slash - 1)) : NULL;
	if (!last || end - last < 2 || end - last > 5 || !is_digits(last + 1, end))
		return NAMED_NOT;
	struct kv_bytes what = {slash + 1, (size_t)(last - slash - 1)};
	*group = (struct kv_bytes){key.data, (size_t)(slash - key.data)};
	*rank = 0;
	for (const uint8_t *p = last + 1; p < end; p++)
		*rank = 10 * *rank + *p - '0';
	if (is_word(what, "rank"))
		return NAMED_RANK;
	if (is_word(what, "info"))
		return NAMED_INFO;
	bool bye = what.len >= 3 && memcmp(what.data, "bye", 3) == 0 && is_digits(what.data + 3, what.data + what.len);
	return bye ? NAMED_BYE : NAMED_NOT;
}

/* Number of a member as owner; 0: no member. Keyed with the table's secret, so that no client can choose names that
 * collide with another member's. */
static uint64_t owner_of(const struct store_server *s, const struct store_identity *who)
{
	struct {
		uint64_t group, name, rank;
	} is = {kv_hash(s->kv, who->group, strlen(who->group)), kv_hash(s->kv, who->name, strlen(who->name)),
		(uint64_t)who->rank};
	uint64_t owner = kv_hash(s->kv, &is, sizeof is);
	return who->rank < 0 ? 0 : owner ? owner : 1;
}

static bool in_group(const struct store_identity *who, struct kv_bytes key)
{
	size_t len = strlen(who->group);
	return who->rank >= 0 && key.len > len && key.data[len] == '/' && memcmp(key.data, who->group, len) == 0;
}

static bool writes(const struct store_server *s, const struct store_msg *m)
{
	struct kv_bytes held, key = {m->key, m->key_len};
	switch (m->op) {
	case STORE_SET:
	case STORE_ADD:
	case STORE_DELETE:
	case STORE_HOLD:
		return true;
	case STORE_CAS: /* with `expected` empty: an existing value stays, and is returned */
		return m->expected_len || kv_get(s->kv, key, &held) != 0;
	default:
		return false;
	}
}

bool owner_permits(struct store_server *s, const struct conn *c, const struct store_msg *m)
{
	struct kv_bytes key = {m->key, m->key_len}, group;
	int rank;
	if (!writes(s, m))
		return true;
	enum named named = named_by(key, &group, &rank);
	uint64_t owner = kv_owner(s->kv, key);
	bool own = owner == 0 || owner == owner_of(s, &c->who);
	if (backup_has_ended(s, &c->who))
		return false;
	if (named == NAMED_NOT) /* a held key passes only when its holder has ended, and would be deleted then */
		return own || (m->op == STORE_HOLD && hold_exists(s, key));
	if (!is_word(group, c->who.group) || (c->who.rank != rank && !(named == NAMED_BYE && c->who.rank == 0)))
		return false;
	if (named == NAMED_RANK)
		return m->op == STORE_HOLD || hold_is_of(s, c, key);
	return named == NAMED_BYE || own;
}

void owner_set(struct store_server *s, const struct conn *c, struct kv_bytes key)
{
	kv_own(s->kv, key, in_group(&c->who, key) ? owner_of(s, &c->who) : 0);
}
