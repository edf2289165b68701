/* SPDX-License-Identifier: BSD-3-Clause */
/* Admits clients of the store's server: LOGIN, and the proof of the key. Control thread of rank 0. */
#include "control/store_conn.h"

/* Admitted clients that are members as `c` is, or are none as `c`. */
static unsigned admitted_like(const struct store_server *s, const struct conn *c)
{
	unsigned n = 0;
	for (unsigned i = 0; i < s->conns_n; i++)
		n += s->conns[i]->admitted && (s->conns[i]->who.rank < 0) == (c->who.rank < 0);
	return n;
}

/* Admits a client: 0, or reason + 1 to drop it. Clients that are no members leave room for members. */
static int admit(struct store_server *s, struct conn *c)
{
	if (c != &s->local && admitted_like(s, c) == FAR_STORE_CLIENTS_MAX)
		return STORE_DROP_CLIENTS + 1;
	s->unauthenticated_n -= c != &s->local;
	c->admitted = true;
	return 0;
}

int login_take(struct store_server *s, struct conn *c, const struct store_msg *m)
{
	uint8_t challenge[STORE_CHALLENGE_BYTES];
	if (m->value_len && store_login_read(m->value, m->value_len, &c->greeting, &c->who))
		return STORE_DROP_MALFORMED + 1;
	if (!m->value_len)
		c->who.rank = STORE_RANK_NONE;
	int drop = s->keyed ? 0 : admit(s, c);
	if (drop)
		return drop;
	if (s->keyed && !m->value_len)
		return STORE_DROP_MALFORMED + 1;
	if (s->keyed)
		store_challenge_make(&c->greeting, &s->key, s->random, challenge);
	c->proof_awaited = s->keyed;
	struct kv_bytes none = {NULL, 0}, value = {challenge, s->keyed ? sizeof challenge : 0};
	return store_reply(c, STORE_LOGIN, m->id, STORE_OK, none, value, 0) ? STORE_DROP_BACKLOG + 1 : 0;
}

int proof_take(struct store_server *s, struct conn *c, const struct store_msg *m)
{
	struct kv_bytes none = {NULL, 0};
	bool holds = store_proof_verify(&c->greeting, &s->key, m->value, m->value_len);
	int drop = holds ? admit(s, c) : STORE_DROP_DENIED + 1;
	c->proof_awaited = false;
	store_reply(c, STORE_PROVE, m->id, holds ? STORE_OK : STORE_DENIED, none, none, 0);
	if (!holds && c != &s->local)
		conn_flush(s, c);
	return drop;
}
