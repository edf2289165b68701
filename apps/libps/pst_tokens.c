/* SPDX-License-Identifier: BSD-3-Clause */
/** Records the applied changes of each client. The thread that owns the window. */
#include "pst_tokens.h"

#include "pst_fail.h"
#include "pst_hash.h"
#include <inttypes.h>
#include <string.h>

#define SLOTS_MIN    16u
#define VERSION      1u
#define HEAD_BYTES   16u
#define CLIENT_BYTES (24u + PST_TOKENS_WINDOW / 8)

void pst_tokens_init(struct pst_tokens *t, uint32_t clients_max, uint64_t idle_s, const struct pst_memory *memory)
{
	*t = (struct pst_tokens){.clients_max = clients_max, .idle_s = idle_s, .memory = memory};
}

void pst_tokens_fini(struct pst_tokens *t)
{
	if (t->slot)
		t->memory->put(t->memory->ctx, t->slot, t->slots * sizeof *t->slot, PST_PAGES_HEAP);
	if (t->client)
		t->memory->put(t->memory->ctx, t->client, t->slots / 2 * sizeof *t->client, PST_PAGES_HEAP);
	t->slot = NULL;
	t->client = NULL;
	t->slots = t->clients = 0;
}

/* Slot of a client, or the free one where it would be. */
static uint32_t *slot_of(const struct pst_tokens *t, uint64_t client)
{
	uint32_t i = (uint32_t)pst_hash(client) & (t->slots - 1);
	while (t->slot[i] && t->client[t->slot[i] - 1].client != client)
		i = (i + 1) & (t->slots - 1);
	return &t->slot[i];
}

static struct pst_client *find(const struct pst_tokens *t, uint64_t client)
{
	uint32_t *slot = t->slots ? slot_of(t, client) : NULL;
	return slot && *slot ? &t->client[*slot - 1] : NULL;
}

/* Room for `clients` clients. */
static bool widen(struct pst_tokens *t, uint32_t clients)
{
	uint32_t slots = t->slots ? t->slots : SLOTS_MIN;
	while (slots / 2 < clients)
		slots *= 2;
	if (slots == t->slots)
		return true;
	struct pst_tokens new = *t;
	new.slots = slots;
	new.slot = t->memory->get(t->memory->ctx, slots * sizeof *new.slot, PST_PAGES_HEAP);
	if (!new.slot)
		return false;
	new.client = t->memory->get(t->memory->ctx, slots / 2 * sizeof *new.client, PST_PAGES_HEAP);
	if (!new.client) {
		t->memory->put(t->memory->ctx, new.slot, slots * sizeof *new.slot, PST_PAGES_HEAP);
		return false;
	}
	memset(new.slot, 0, slots * sizeof *new.slot);
	for (uint32_t i = 0; i < t->clients; i++) {
		new.client[i] = t->client[i];
		*slot_of(&new, new.client[i].client) = i + 1;
	}
	uint32_t clients_now = t->clients;
	pst_tokens_fini(t);
	*t = new;
	t->clients = clients_now;
	return true;
}

/* Removes a client's slot; those behind it move up. */
static void unslot(struct pst_tokens *t, uint64_t client)
{
	uint32_t mask = t->slots - 1, hole = (uint32_t)(slot_of(t, client) - t->slot);
	for (uint32_t i = (hole + 1) & mask; t->slot[i]; i = (i + 1) & mask) {
		uint32_t home = (uint32_t)pst_hash(t->client[t->slot[i] - 1].client) & mask;
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			t->slot[hole] = t->slot[i];
			hole = i;
		}
	}
	t->slot[hole] = 0;
}

/* Place of the client that was silent longest, if long enough. */
static struct pst_client *replaceable(struct pst_tokens *t, uint64_t now_s)
{
	struct pst_client *oldest = &t->client[0];
	for (uint32_t i = 1; i < t->clients; i++)
		if (t->client[i].used_s < oldest->used_s)
			oldest = &t->client[i];
	return now_s >= oldest->used_s && now_s - oldest->used_s >= t->idle_s ? oldest : NULL;
}

static struct pst_client *add(struct pst_tokens *t, uint64_t client, uint64_t now_s, enum pst_token *why)
{
	struct pst_client *c;
	if (t->clients < t->clients_max) {
		*why = PST_TOKEN_NO_MEMORY;
		if (!widen(t, t->clients + 1))
			return NULL;
		c = &t->client[t->clients++];
	} else {
		*why = PST_TOKEN_FULL;
		c = replaceable(t, now_s);
		if (!c)
			return NULL;
		unslot(t, c->client);
	}
	memset(c, 0, sizeof *c);
	c->client = client;
	c->used_s = now_s;
	*slot_of(t, client) = (uint32_t)(c - t->client) + 1;
	return c;
}

static bool bit(const struct pst_client *c, uint64_t token)
{
	return c->bits[token % PST_TOKENS_WINDOW / 64] >> (token % 64) & 1;
}

/* True for a token behind the window. The window ends at the highest token. */
static bool is_old(const struct pst_client *c, uint64_t token)
{
	return c->highest >= PST_TOKENS_WINDOW && token <= c->highest - PST_TOKENS_WINDOW;
}

static void set(struct pst_client *c, uint64_t token)
{
	if (token > c->highest && token - c->highest >= PST_TOKENS_WINDOW)
		memset(c->bits, 0, sizeof c->bits);
	else
		for (uint64_t i = c->highest; i < token;) {
			i++;
			c->bits[i % PST_TOKENS_WINDOW / 64] &= ~(UINT64_C(1) << (i % 64));
		}
	if (token > c->highest)
		c->highest = token;
	c->bits[token % PST_TOKENS_WINDOW / 64] |= UINT64_C(1) << (token % 64);
}

enum pst_token pst_tokens_check(struct pst_tokens *t, uint64_t client, uint64_t token, uint64_t now_s)
{
	struct pst_client *c = find(t, client);
	enum pst_token why = PST_TOKEN_NEW;
	if (!c)
		return add(t, client, now_s, &why) ? PST_TOKEN_NEW : why;
	c->used_s = now_s;
	if (is_old(c, token))
		return PST_TOKEN_OLD;
	return token <= c->highest && bit(c, token) ? PST_TOKEN_SEEN : PST_TOKEN_NEW;
}

void pst_tokens_done(struct pst_tokens *t, uint64_t client, uint64_t token, uint64_t now_s)
{
	struct pst_client *c = find(t, client);
	c->used_s = now_s;
	set(c, token);
}

/* ---- Saved ---- */

static uint32_t crc32c(const unsigned char *p, size_t n)
{
	uint32_t crc = UINT32_MAX;
	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (UINT32_C(0x82f63b78) & -(crc & 1));
	}
	return ~crc;
}

static unsigned char *put32(unsigned char *p, uint32_t x)
{
	for (unsigned i = 0; i < 4; i++)
		*p++ = (unsigned char)(x >> 8 * i);
	return p;
}

static unsigned char *put64(unsigned char *p, uint64_t x)
{
	return put32(put32(p, (uint32_t)x), (uint32_t)(x >> 32));
}

static uint32_t get32(const unsigned char *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const unsigned char *p)
{
	return get32(p) | (uint64_t)get32(p + 4) << 32;
}

size_t pst_tokens_bytes(const struct pst_tokens *t)
{
	return HEAD_BYTES + (size_t)t->clients * CLIENT_BYTES + 4;
}

void pst_tokens_save(const struct pst_tokens *t, uint64_t now_s, void *bytes)
{
	unsigned char *p = bytes;
	memcpy(p, "PSTK", 4);
	p = put32(put32(put32(p + 4, VERSION), PST_TOKENS_WINDOW), t->clients);
	for (uint32_t i = 0; i < t->clients; i++) {
		const struct pst_client *c = &t->client[i];
		p = put64(put64(put64(p, c->client), c->highest), now_s > c->used_s ? now_s - c->used_s : 0);
		for (unsigned w = 0; w < PST_TOKENS_WINDOW / 64; w++)
			p = put64(p, c->bits[w]);
	}
	put32(p, crc32c(bytes, (size_t)(p - (unsigned char *)bytes)));
}

/* Adds a saved client to one of the window: the later part of the two windows remains. */
static void merge(struct pst_client *c, const struct pst_client *from)
{
	uint64_t first = from->highest >= PST_TOKENS_WINDOW ? from->highest - PST_TOKENS_WINDOW + 1 : 1;
	for (uint64_t token = first; token <= from->highest && token; token++)
		if (bit(from, token) && !is_old(c, token))
			set(c, token);
}

/* Returns the seconds since its last use. */
static uint64_t read_client(const unsigned char *p, struct pst_client *c)
{
	*c = (struct pst_client){.client = get64(p), .highest = get64(p + 8)};
	for (unsigned w = 0; w < PST_TOKENS_WINDOW / 64; w++)
		c->bits[w] = get64(p + 24 + (size_t)8 * w);
	return get64(p + 16);
}

enum far_status pst_tokens_load(struct pst_tokens *t, uint64_t now_s, const void *bytes, size_t n, struct far_err *err)
{
	const unsigned char *p = bytes;
	if (n < HEAD_BYTES + 4 || memcmp(p, "PSTK", 4) != 0)
		return pst_fail(err, FAR_PROTOCOL, 0, "no saved token window: %zu bytes without its mark", n);
	uint32_t clients = get32(p + 12);
	if (get32(p + 4) != VERSION || get32(p + 8) != PST_TOKENS_WINDOW)
		return pst_fail(err, FAR_PROTOCOL, 0,
				"saved token window: version %u with %u tokens; this is version %u with %u",
				get32(p + 4), get32(p + 8), VERSION, PST_TOKENS_WINDOW);
	if (n != HEAD_BYTES + (uint64_t)clients * CLIENT_BYTES + 4)
		return pst_fail(err, FAR_PROTOCOL, 0, "saved token window: %u clients do not take %zu bytes", clients,
				n);
	if (crc32c(p, n - 4) != get32(p + n - 4))
		return pst_fail(err, FAR_PROTOCOL, 0, "saved token window: the checksum differs");
	uint64_t unknown = 0;
	for (uint32_t i = 0; i < clients; i++) {
		struct pst_client c;
		read_client(p + HEAD_BYTES + (size_t)i * CLIENT_BYTES, &c);
		if (c.highest && !bit(&c, c.highest))
			return pst_fail(err, FAR_PROTOCOL, 0,
					"saved token window: the highest token of client %" PRIu64 " is unseen",
					c.client);
		unknown += !find(t, c.client);
	}
	if (unknown > t->clients_max - t->clients)
		return pst_fail(err, FAR_RESOURCE, 0, "saved token window: its clients and those here are more than %u",
				t->clients_max);
	if (unknown && !widen(t, t->clients + (uint32_t)unknown))
		return pst_fail(err, FAR_RESOURCE, 0, "saved token window: no memory for %u clients", clients);
	for (uint32_t i = 0; i < clients; i++) {
		struct pst_client from;
		uint64_t silent = read_client(p + HEAD_BYTES + (size_t)i * CLIENT_BYTES, &from);
		uint64_t used = now_s > silent ? now_s - silent : 0;
		struct pst_client *c = find(t, from.client);
		enum pst_token why;
		if (!c)
			c = add(t, from.client, used, &why);
		merge(c, &from);
		if (used > c->used_s)
			c->used_s = used;
	}
	return FAR_OK;
}
