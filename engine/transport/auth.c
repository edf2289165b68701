/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Authentication of control packets: tags, cookies of connect requests, session keys, numbers of PINGs. Pure
 * computation over what the calling thread owns: control thread, and from TRANSPORT_ORDER_START on the poller, too.
 *
 * A tag is a MAC by the transport key, which every member has, or by the session key. It covers the packet except its
 * CRC, the identity of the sending port, and the published address of the destination. So a packet that is forwarded to
 * another member is not valid there. Observed addresses, which a translator changes, are in no tag. The head contains
 * the kind and the receiver's identity: no packet is valid as another kind, or reflected to its sender.
 */
#include "transport/auth.h"

#include "base/crc32c.h"
#include "transport/queue.h"
#include "transport/setup.h"

/* ---- tags ---- */

/* `proof`: compute wire_handshake.proof, which is left out then, instead of the tag. */
static void mac(const struct auth_key *key, const uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to,
		bool proof, uint8_t out[AUTH_PROOF_BYTES])
{
	static const uint8_t none[AUTH_PROOF_BYTES];
	struct auth_mac m;
	struct wire_control h;
	le64 id = le64_of(from);
	memcpy(&h, packet, sizeof h);
	h.crc = le32_of(0);
	memset(h.tag, 0, sizeof h.tag);
	uint32_t at = TRANSPORT_HEAD_BYTES;
	auth_mac_begin(&m, key, proof ? "farcall ping" : to ? "farcall transport" : "farcall session");
	auth_mac_add(&m, &id, sizeof id);
	auth_mac_add(&m, to ? to : none, AUTH_PROOF_BYTES);
	auth_mac_add(&m, &h, sizeof h);
	if (proof) {
		uint32_t before = (uint32_t)offsetof(struct wire_handshake, proof);
		auth_mac_add(&m, packet + at, before);
		at += before + AUTH_PROOF_BYTES;
	}
	auth_mac_add(&m, packet + at, len - at);
	auth_mac_end(&m, out);
}

void transport_tag_write(const struct auth_key *key, uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to,
			 bool crc)
{
	if (key)
		mac(key, packet, len, from, to, false, packet + offsetof(struct wire_control, tag));
	if (crc) {
		le32 sum = le32_of(crc32c(0, packet, len));
		memcpy(packet + offsetof(struct wire_head, crc), &sum, sizeof sum);
	}
}

bool transport_tag_valid(const struct auth_key *key, const uint8_t *packet, uint32_t len, uint64_t from,
			 const uint8_t *to)
{
	uint8_t tag[AUTH_PROOF_BYTES];
	if (!key)
		return true;
	mac(key, packet, len, from, to, false, tag);
	return auth_equal(tag, packet + offsetof(struct wire_control, tag));
}

void transport_auth_address(const struct transport_port *p, const void *blob, uint32_t len,
			    uint8_t out[AUTH_PROOF_BYTES])
{
	struct auth_mac m;
	memset(out, 0, AUTH_PROOF_BYTES);
	if (!p->config.key)
		return;
	auth_mac_begin(&m, &p->transport, "farcall address");
	auth_mac_add(&m, blob, len);
	auth_mac_end(&m, out);
}

void transport_key_update(struct transport_port *p)
{
	const struct auth_key *key = p->config.key && !p->key_known ? group_key_get(p->config.key) : NULL;
	if (!key)
		return;
	p->key_known = true;
	auth_derive(&p->transport, key, "transport", "");
	transport_auth_address(p, p->own.blob, p->own.len, p->own_proof);
}

/* ---- cookies ---- */

void transport_cookie(const struct transport_port *p, const struct transport_handshake *handshake, uint64_t issued,
		      uint8_t out[AUTH_PROOF_BYTES])
{
	struct auth_mac m;
	le64 of[] = {le64_of(handshake->id), le64_of(handshake->token), le64_of(issued)};
	auth_mac_begin(&m, &p->cookies, "farcall cookie");
	auth_mac_add(&m, of, sizeof of);
	auth_mac_add(&m, handshake->nonce, AUTH_NONCE_BYTES);
	auth_mac_add(&m, handshake->addr, handshake->addr_len);
	auth_mac_end(&m, out);
}

bool transport_cookie_valid(const struct transport_port *p, const struct transport_handshake *handshake, uint64_t now)
{
	uint8_t cookie[AUTH_PROOF_BYTES];
	if (handshake->issued <= p->cookie_floor || handshake->issued > now ||
	    now - handshake->issued >= FAR_TRANSPORT_COOKIE_NS)
		return false;
	transport_cookie(p, handshake, handshake->issued, cookie);
	return auth_equal(cookie, handshake->cookie);
}

/* ---- sessions ---- */

struct transport_secret *transport_secret_of(const struct transport_peer *peer)
{
	return &peer->queue->port->secrets[peer->index / TRANSPORT_SLAB_PEERS][peer->index % TRANSPORT_SLAB_PEERS];
}

const struct auth_key *transport_session_key(const struct transport_peer *peer)
{
	return peer->queue->port->config.key ? &transport_secret_of(peer)->key : NULL;
}

/* Hashes both handshakes, the connecting side's first. */
static void transcript(const struct transport_port *p, const struct transport_peer *peer, uint8_t out[AUTH_PROOF_BYTES])
{
	const struct transport_setup *s = peer->setup;
	const struct transport_secret *secret = transport_secret_of(peer);
	bool to_us = peer->accepted;
	struct auth_mac m;
	le64 ids[] = {le64_of(to_us ? peer->remote_id : p->id), le64_of(to_us ? p->id : peer->remote_id),
		      le64_of(to_us ? peer->remote_token : peer->token),
		      le64_of(to_us ? peer->token : peer->remote_token)};
	auth_mac_begin(&m, &p->transport, "farcall transcript");
	auth_mac_add(&m, ids, sizeof ids);
	auth_mac_add(&m, s->proofs.nonce, sizeof s->proofs.nonce);
	auth_mac_add(&m, to_us ? secret->to : p->own_proof, AUTH_PROOF_BYTES);
	auth_mac_add(&m, to_us ? p->own_proof : secret->to, AUTH_PROOF_BYTES);
	auth_mac_add(&m, to_us ? s->handshake : s->payload, to_us ? s->handshake_len : s->payload_len);
	auth_mac_add(&m, to_us ? s->payload : s->handshake, to_us ? s->payload_len : s->handshake_len);
	auth_mac_end(&m, out);
}

bool transport_session_begin(const struct transport_port *p, struct transport_peer *peer,
			     uint8_t confirm[AUTH_PROOF_BYTES])
{
	struct transport_setup *s = peer->setup;
	struct transport_secret *secret = transport_secret_of(peer);
	uint8_t own_transcript[AUTH_PROOF_BYTES];
	struct auth_mac m;
	memset(confirm, 0, AUTH_PROOF_BYTES);
	if (!p->config.key)
		return true;
	transcript(p, peer, own_transcript);
	if (!auth_session_key(&secret->key, &p->transport, &s->pair, s->remote_public, own_transcript))
		return false;
	auth_mac_begin(&m, &secret->key, "farcall confirm");
	auth_mac_add(&m, own_transcript, sizeof own_transcript);
	auth_mac_end(&m, confirm);
	return true;
}

/* ---- PING and the ends ---- */

uint32_t transport_ping_number(const uint8_t nonce[AUTH_NONCE_BYTES])
{
	static const uint8_t none[AUTH_NONCE_BYTES - sizeof(le64)];
	le64 number;
	memcpy(&number, nonce, sizeof number);
	uint64_t n = le64_get(number);
	return n <= UINT32_MAX && memcmp(nonce + sizeof number, none, sizeof none) == 0 ? (uint32_t)n : 0;
}

void transport_ping_nonce(uint32_t number, uint8_t out[AUTH_NONCE_BYTES])
{
	le64 n = le64_of(number);
	memset(out, 0, AUTH_NONCE_BYTES);
	memcpy(out, &n, sizeof n);
}

uint32_t transport_ping_write(uint8_t *out, struct transport_peer *p, const struct transport_queue *via, uint32_t path,
			      const uint8_t to[AUTH_PROOF_BYTES])
{
	const struct transport_port *port = p->queue->port;
	struct transport_secret *s = transport_secret_of(p);
	uint8_t nonce[AUTH_NONCE_BYTES];
	uint32_t number = atomic_load_explicit(&s->pings, memory_order_relaxed) + 1;
	if (number == 0) /* 0 is none */
		number = 1;
	atomic_store_explicit(&s->pings, number, memory_order_relaxed);
	if (path > 1)
		atomic_store_explicit(&p->paths->probe[path - 1], number, memory_order_relaxed);
	transport_ping_nonce(number, nonce);
	struct transport_handshake w = {.path = path, .nonce = nonce};
	uint32_t len = transport_handshake_write(out, p, via, WIRE_PING, &w);
	const struct auth_key *key = transport_session_key(p);
	if (key)
		mac(key, out, len, port->id, NULL, true,
		    out + TRANSPORT_HEAD_BYTES + offsetof(struct wire_handshake, proof));
	transport_tag_write(transport_key(port), out, len, port->id, to, via->crc);
	return len;
}

bool transport_ping_authentic(const struct transport_peer *p, const uint8_t *packet, uint32_t len,
			      const struct transport_handshake *w)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	const struct auth_key *key = transport_session_key(p);
	if (!key)
		return true;
	mac(key, packet, len, p->remote_id, NULL, true, proof);
	return auth_equal(proof, w->proof);
}

/* Replay window as in RFC 6479, of 64 numbers. */
bool transport_ping_fresh(struct transport_secret *s, uint32_t number)
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

bool transport_end_authentic(const struct transport_peer *p, const struct transport_port *via, const uint8_t *packet,
			     uint32_t len)
{
	const struct transport_secret *s = transport_secret_of(p);
	struct transport_reject no;
	if (!transport_reject_read(packet + TRANSPORT_HEAD_BYTES, len - TRANSPORT_HEAD_BYTES, &no))
		return false;
	if (packet[offsetof(struct wire_head, kind)] == WIRE_CLOSE)
		return transport_tag_valid(transport_session_key(p), packet, len, p->remote_id, NULL);
	uint32_t number = transport_ping_number(no.nonce);
	uint32_t behind = atomic_load_explicit(&s->pings, memory_order_relaxed) - number;
	return number && (int32_t)behind >= 0 &&
	       transport_tag_valid(transport_key(via), packet, len, p->remote_id, via->own_proof);
}
