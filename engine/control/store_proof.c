/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of the store's LOGIN and PROVE: encodes, decodes, verifies. Control thread; pure computation. */
#include "control/store_proof.h"

#include "base/byteorder.h"

#include <errno.h>
#include <string.h>

#define RANK_NONE UINT32_MAX

void store_login_make(struct store_auth *g, const struct store_identity *who, const struct random_source *random)
{
	bool member = who->rank >= 0;
	size_t group = member ? strlen(who->group) : 0, name = member ? strlen(who->name) : 0;
	auth_random(g->login, AUTH_NONCE_BYTES, random);
	uint8_t *p = le_put(g->login + AUTH_NONCE_BYTES, member ? (uint32_t)who->rank : RANK_NONE, 4);
	p = le_put(p, member ? who->incarnation : 0, 8);
	p = le_put(p, group, 1);
	p = le_put(p, name, 1);
	memcpy(p, who->group, group);
	memcpy(p + group, who->name, name);
	g->login_len = STORE_LOGIN_HEAD + group + name;
}

static bool word_read(const uint8_t *p, size_t len, char out[FAR_NAME_MAX])
{
	if (len >= FAR_NAME_MAX || (len && memchr(p, 0, len)))
		return false;
	memcpy(out, p, len);
	out[len] = '\0';
	return true;
}

int store_login_read(const uint8_t *value, size_t len, struct store_auth *g, struct store_identity *who)
{
	if (len < STORE_LOGIN_HEAD || len > STORE_LOGIN_MAX)
		return -EPROTO;
	const uint8_t *p = value + AUTH_NONCE_BYTES;
	uint64_t rank = le_get(p, 4);
	size_t group = p[12], name = p[13];
	bool member = rank != RANK_NONE;
	*who = (struct store_identity){.rank = member ? (int)rank : STORE_RANK_NONE, .incarnation = le_get(p + 4, 8)};
	if (len != STORE_LOGIN_HEAD + group + name || !word_read(p + 14, group, who->group) ||
	    !word_read(p + 14 + group, name, who->name))
		return -EPROTO;
	if (member ? rank >= FAR_WORLD_MAX || !group || !name || !who->incarnation : group || name || who->incarnation)
		return -EPROTO;
	memcpy(g->login, value, len);
	g->login_len = len;
	return 0;
}

static void proof(const struct store_auth *g, const struct auth_key *key, const char *label,
		  uint8_t out[AUTH_PROOF_BYTES])
{
	struct auth_key own;
	struct auth_mac m;
	auth_derive(&own, key, "store", "");
	auth_mac_begin(&m, &own, label);
	auth_mac_add(&m, g->server_nonce, sizeof g->server_nonce);
	auth_mac_add(&m, g->login, g->login_len);
	auth_mac_end(&m, out);
	auth_erase(&own, sizeof own);
}

void store_challenge_make(struct store_auth *g, const struct auth_key *key, const struct random_source *random,
			  uint8_t out[STORE_CHALLENGE_BYTES])
{
	auth_random(g->server_nonce, sizeof g->server_nonce, random);
	memcpy(out, g->server_nonce, AUTH_NONCE_BYTES);
	proof(g, key, "server", out + AUTH_NONCE_BYTES);
}

int store_challenge_read(struct store_auth *g, const uint8_t *value, size_t len, uint8_t out[AUTH_PROOF_BYTES])
{
	if (len != STORE_CHALLENGE_BYTES)
		return -EPROTO;
	memcpy(g->server_nonce, value, AUTH_NONCE_BYTES);
	memcpy(out, value + AUTH_NONCE_BYTES, AUTH_PROOF_BYTES);
	return 0;
}

bool store_challenge_verify(const struct store_auth *g, const struct auth_key *key,
			    const uint8_t theirs[AUTH_PROOF_BYTES])
{
	uint8_t right[AUTH_PROOF_BYTES];
	proof(g, key, "server", right);
	return auth_equal(theirs, right);
}

void store_proof_make(const struct store_auth *g, const struct auth_key *key, uint8_t out[AUTH_PROOF_BYTES])
{
	proof(g, key, "client", out);
}

bool store_proof_verify(const struct store_auth *g, const struct auth_key *key, const uint8_t *value, size_t len)
{
	uint8_t right[AUTH_PROOF_BYTES];
	proof(g, key, "client", right);
	return len == AUTH_PROOF_BYTES && auth_equal(value, right);
}
