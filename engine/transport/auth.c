/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Authentication of control packets: tags, cookies of connect requests, session keys, numbers of PINGs. Pure
 * computation over what the calling thread owns: control thread, and from DUE_START on the poller, too.
 *
 * A tag is a MAC by the transport key, which every member has, or by the session key. It covers the packet except its
 * CRC, the identity of the sending port, and the published address of the destination. So a packet that is forwarded to
 * another member is not valid there. Observed addresses, which a translator changes, are in no tag. The head contains
 * the kind and the receiver's identity: no packet is valid as another kind, or reflected to its sender.
 */
#include "transport/port.h"

#include "base/crc32c.h"

#include <string.h>

/* ---- tags ---- */

/* `proof`: compute wire_words.proof, which is left out then, instead of the tag. */
static void mac(const struct auth_key *key, const uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to,
		bool proof, uint8_t out[AUTH_PROOF_BYTES])
{
	static const uint8_t none[AUTH_PROOF_BYTES];
	struct auth_mac m;
	struct wire_head h;
	be64 id = be64_of(from);
	memcpy(&h, packet, sizeof h);
	h.crc = be32_of(0);
	memset(h.tag, 0, sizeof h.tag);
	uint32_t at = LINK_HEAD;
	auth_mac_begin(&m, key, proof ? "farcall ping" : to ? "farcall transport" : "farcall session");
	auth_mac_add(&m, &id, sizeof id);
	auth_mac_add(&m, to ? to : none, AUTH_PROOF_BYTES);
	auth_mac_add(&m, &h, sizeof h);
	if (proof) {
		uint32_t before = (uint32_t)offsetof(struct wire_words, proof);
		auth_mac_add(&m, packet + at, before);
		at += before + AUTH_PROOF_BYTES;
	}
	auth_mac_add(&m, packet + at, len - at);
	auth_mac_end(&m, out);
}

void link_seal(const struct auth_key *key, uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to, bool crc)
{
	if (key)
		mac(key, packet, len, from, to, false, packet + offsetof(struct wire_head, tag));
	if (crc) {
		be32 sum = be32_of(crc32c(0, packet, len));
		memcpy(packet + offsetof(struct wire_head, crc), &sum, sizeof sum);
	}
}

bool link_sealed(const struct auth_key *key, const uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to)
{
	uint8_t tag[AUTH_PROOF_BYTES];
	if (!key)
		return true;
	mac(key, packet, len, from, to, false, tag);
	return auth_equal(tag, packet + offsetof(struct wire_head, tag));
}

void link_auth_address(const struct link_port *p, const void *blob, uint32_t len, uint8_t out[AUTH_PROOF_BYTES])
{
	struct auth_mac m;
	memset(out, 0, AUTH_PROOF_BYTES);
	if (!p->config.key)
		return;
	auth_mac_begin(&m, &p->transport, "farcall address");
	auth_mac_add(&m, blob, len);
	auth_mac_end(&m, out);
}

void link_key_look(struct link_port *p)
{
	const struct auth_key *key = p->config.key && !p->key_known ? group_key_get(p->config.key) : NULL;
	if (!key)
		return;
	p->key_known = true;
	auth_derive(&p->transport, key, "transport", "");
	link_auth_address(p, p->own.blob, p->own.len, p->own_proof);
}

/* ---- cookies ---- */

void link_cookie(const struct link_port *p, const struct link_words *hello, uint64_t issued,
		 uint8_t out[AUTH_PROOF_BYTES])
{
	struct auth_mac m;
	be64 of[] = {be64_of(hello->id), be64_of(hello->token), be64_of(issued)};
	auth_mac_begin(&m, &p->cookies, "farcall cookie");
	auth_mac_add(&m, of, sizeof of);
	auth_mac_add(&m, hello->nonce, AUTH_NONCE_BYTES);
	auth_mac_add(&m, hello->addr, hello->addr_len);
	auth_mac_end(&m, out);
}

bool link_cookie_holds(const struct link_port *p, const struct link_words *hello, uint64_t now)
{
	uint8_t cookie[AUTH_PROOF_BYTES];
	if (hello->issued <= p->cookie_floor || hello->issued > now || now - hello->issued >= FAR_LINK_COOKIE_NS)
		return false;
	link_cookie(p, hello, hello->issued, cookie);
	return auth_equal(cookie, hello->proof);
}

/* ---- sessions ---- */

struct link_secret *link_secret_of(const struct link_peer *peer)
{
	return &peer->queue->port->secrets[peer->index / LINK_SLAB_PEERS][peer->index % LINK_SLAB_PEERS];
}

const struct auth_key *link_session_key(const struct link_peer *peer)
{
	return peer->queue->port->config.key ? &link_secret_of(peer)->key : NULL;
}

/* Hashes both handshakes, the connecting side's first. */
static void transcript(const struct link_port *p, const struct link_peer *peer, uint8_t out[AUTH_PROOF_BYTES])
{
	const struct link_setup *s = peer->setup;
	const struct link_secret *secret = link_secret_of(peer);
	bool to_us = peer->accepted;
	struct auth_mac m;
	be64 ids[] = {be64_of(to_us ? peer->id_there : p->id), be64_of(to_us ? p->id : peer->id_there),
		      be64_of(to_us ? peer->token_there : peer->token),
		      be64_of(to_us ? peer->token : peer->token_there)};
	auth_mac_begin(&m, &p->transport, "farcall transcript");
	auth_mac_add(&m, ids, sizeof ids);
	auth_mac_add(&m, s->proofs.nonce, sizeof s->proofs.nonce);
	auth_mac_add(&m, to_us ? secret->to : p->own_proof, AUTH_PROOF_BYTES);
	auth_mac_add(&m, to_us ? p->own_proof : secret->to, AUTH_PROOF_BYTES);
	auth_mac_add(&m, to_us ? s->hello : s->payload, to_us ? s->hello_len : s->words_len);
	auth_mac_add(&m, to_us ? s->payload : s->hello, to_us ? s->words_len : s->hello_len);
	auth_mac_end(&m, out);
}

bool link_session_begin(const struct link_port *p, struct link_peer *peer, uint8_t confirm[AUTH_PROOF_BYTES])
{
	struct link_setup *s = peer->setup;
	struct link_secret *secret = link_secret_of(peer);
	uint8_t said[AUTH_PROOF_BYTES];
	struct auth_mac m;
	memset(confirm, 0, AUTH_PROOF_BYTES);
	if (!p->config.key)
		return true;
	transcript(p, peer, said);
	if (!auth_session_key(&secret->key, &p->transport, &s->pair, s->public_there, said))
		return false;
	auth_mac_begin(&m, &secret->key, "farcall confirm");
	auth_mac_add(&m, said, sizeof said);
	auth_mac_end(&m, confirm);
	return true;
}

/* ---- PING and the ends ---- */

uint32_t link_ping_number(const uint8_t nonce[AUTH_NONCE_BYTES])
{
	static const uint8_t none[AUTH_NONCE_BYTES - sizeof(be64)];
	be64 number;
	memcpy(&number, nonce, sizeof number);
	uint64_t n = be64_get(number);
	return n <= UINT32_MAX && memcmp(nonce + sizeof number, none, sizeof none) == 0 ? (uint32_t)n : 0;
}

void link_ping_nonce(uint32_t number, uint8_t out[AUTH_NONCE_BYTES])
{
	be64 n = be64_of(number);
	memset(out, 0, AUTH_NONCE_BYTES);
	memcpy(out, &n, sizeof n);
}

uint32_t link_ping_write(uint8_t *out, struct link_peer *p, const struct link_queue *via, uint32_t path,
			 const uint8_t to[AUTH_PROOF_BYTES])
{
	const struct link_port *port = p->queue->port;
	struct link_secret *s = link_secret_of(p);
	struct link_proofs says = {.issued = 0};
	uint32_t number = atomic_load_explicit(&s->pings, memory_order_relaxed) + 1;
	if (number == 0) /* 0 is none */
		number = 1;
	atomic_store_explicit(&s->pings, number, memory_order_relaxed);
	if (path > 1)
		atomic_store_explicit(&p->paths->probe[path - 1], number, memory_order_relaxed);
	link_ping_nonce(number, says.nonce);
	uint32_t len = link_words_write(out, p, via, WIRE_PING, 0, path, NULL, 0, &says);
	const struct auth_key *key = link_session_key(p);
	if (key)
		mac(key, out, len, port->id, NULL, true, out + LINK_HEAD + offsetof(struct wire_words, proof));
	link_seal(link_key(port), out, len, port->id, to, via->crc);
	return len;
}

bool link_ping_proven(const struct link_peer *p, const uint8_t *packet, uint32_t len, const struct link_words *w)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	const struct auth_key *key = link_session_key(p);
	if (!key)
		return true;
	mac(key, packet, len, p->id_there, NULL, true, proof);
	return auth_equal(proof, w->proof);
}

/* Replay window as in RFC 6479, of 64 numbers. */
bool link_ping_fresh(struct link_secret *s, uint32_t number)
{
	uint32_t ahead = number - s->heard;
	if (number == 0)
		return false;
	if ((int32_t)ahead > 0) {
		s->heard_bits = ahead < 64 ? s->heard_bits << ahead | 1 : 1;
		s->heard = number;
		return true;
	}
	uint32_t behind = s->heard - number;
	if (behind >= 64 || s->heard_bits >> behind & 1)
		return false;
	s->heard_bits |= UINT64_C(1) << behind;
	return true;
}

bool link_end_proven(const struct link_peer *p, const struct link_port *via, const uint8_t *packet, uint32_t len)
{
	const struct link_secret *s = link_secret_of(p);
	struct link_no no;
	if (!link_no_read(packet + LINK_HEAD, len - LINK_HEAD, &no))
		return false;
	if (packet[offsetof(struct wire_head, kind)] == WIRE_BYE)
		return link_sealed(link_session_key(p), packet, len, p->id_there, NULL);
	uint32_t number = link_ping_number(no.nonce);
	uint32_t behind = atomic_load_explicit(&s->pings, memory_order_relaxed) - number;
	return number && (int32_t)behind >= 0 && link_sealed(link_key(via), packet, len, p->id_there, via->own_proof);
}
