/* SPDX-License-Identifier: BSD-3-Clause */
/** Encodes and decodes set-up packets. Control thread and poller. */
#include "transport/handshake.h"

#include "transport/mail.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport/wire.h"

#include <errno.h>
#include <string.h>

static uint32_t ring_of(const struct transport_port *port)
{
	return port->ring < FAR_TRANSPORT_WINDOW ? port->ring : FAR_TRANSPORT_WINDOW;
}

uint32_t transport_handshake_write(uint8_t *out, const struct transport_peer *p, const struct transport_queue *via,
				   enum wire_kind kind, unsigned want, uint32_t path, const void *words,
				   uint16_t payload_len, const struct transport_proofs *proofs)
{
	const struct transport_port *port = p->queue->port;
	const struct nic_addr *own = &via->port->own;
	/* CHALLENGE needs no address: its receiver has sent CONNECT to this port. */
	uint16_t addr_len = kind == WIRE_CHALLENGE ? 0 : own->len;
	struct wire_head h = {.version = WIRE_VERSION,
			      .kind = (uint8_t)kind,
			      .incarnation = be64_of(p->remote_id),
			      .token = be64_of(p->remote_token),
			      .packet = be32_of(port->config.first_packet),
			      .length = be32_of((port->config.unchecked ? WIRE_UNCHECKED : 0) |
						(p->queue->ops->bulk ? WIRE_BULK : 0)),
			      .offset = be32_of(ring_of(port))};
	struct wire_handshake w = {.incarnation = be64_of(port->id),
				   .token = be64_of(p->token),
				   .queue = be16_of((uint16_t)p->queue->index),
				   .want = be16_of((uint16_t)want),
				   .path = be32_of(path),
				   .packet_max = be32_of(via->port->packet_max),
				   .words = be16_of(payload_len),
				   .addr = be16_of(addr_len),
				   .issued = be64_of(proofs->issued)};
	memcpy(w.nonce, proofs->nonce, sizeof w.nonce);
	memcpy(w.proof, proofs->proof, sizeof w.proof);
	memcpy(w.public, proofs->public, sizeof w.public);
	uint8_t *at = out + TRANSPORT_HEAD_BYTES;
	memcpy(out, &h, sizeof h);
	memcpy(at, &w, sizeof w);
	at += sizeof w;
	if (payload_len)
		memcpy(at, words, payload_len);
	memcpy(at + payload_len, own->blob, addr_len);
	uint32_t len = TRANSPORT_HEAD_BYTES + (uint32_t)sizeof w + payload_len + addr_len;
	if (kind != WIRE_CONNECT)
		return len;
	memset(out + len, 0, TRANSPORT_MAIL_BYTES - len);
	return TRANSPORT_MAIL_BYTES;
}

uint32_t transport_reject_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token, int error,
				uint32_t path, const uint8_t nonce[AUTH_NONCE_BYTES])
{
	struct wire_head h = {
		.version = WIRE_VERSION, .kind = (uint8_t)kind, .incarnation = be64_of(id), .token = be64_of(token)};
	struct wire_reject no = {.error = be32_of((uint32_t)-error), .path = be32_of(path)};
	memcpy(no.nonce, nonce, sizeof no.nonce);
	memcpy(out, &h, sizeof h);
	memcpy(out + TRANSPORT_HEAD_BYTES, &no, sizeof no);
	return TRANSPORT_HEAD_BYTES + sizeof no;
}

bool transport_handshake_read(const uint8_t *body, uint64_t len, struct transport_handshake *out)
{
	struct wire_handshake w;
	if (len < sizeof w)
		return false;
	memcpy(&w, body, sizeof w);
	*out = (struct transport_handshake){.id = be64_get(w.incarnation),
					    .token = be64_get(w.token),
					    .issued = be64_get(w.issued),
					    .queue = be16_get(w.queue),
					    .want = be16_get(w.want),
					    .path = be32_get(w.path),
					    .packet_max = be32_get(w.packet_max),
					    .payload_len = be16_get(w.words),
					    .addr_len = be16_get(w.addr),
					    .words = body + sizeof w,
					    .nonce = body + offsetof(struct wire_handshake, nonce),
					    .proof = body + offsetof(struct wire_handshake, proof),
					    .public = body + offsetof(struct wire_handshake, public)};
	out->addr = out->words + out->payload_len;
	return len >= sizeof w + out->payload_len + out->addr_len && out->payload_len <= NIC_HANDSHAKE_BYTES_MAX &&
	       out->addr_len <= NIC_ADDR_BYTES_MAX - TRANSPORT_ID_BYTES && out->token != 0 && out->id != 0 &&
	       out->queue < FAR_TRANSPORT_QUEUES_MAX && out->path < NIC_FLOWS &&
	       out->packet_max >= TRANSPORT_PACKET_MIN;
}

bool transport_reject_read(const uint8_t *body, uint64_t len, struct transport_reject *out)
{
	struct wire_reject no;
	if (len != sizeof no)
		return false;
	memcpy(&no, body, sizeof no);
	uint32_t e = be32_get(no.error);
	*out = (struct transport_reject){.error = e > 0 && e < 4096 ? -(int)e : -EPROTO,
					 .path = be32_get(no.path),
					 .nonce = body + offsetof(struct wire_reject, nonce)};
	return true;
}

void transport_features_read(struct transport_peer *peer, const struct wire_head *h)
{
	uint32_t window = be32_get(h->offset);
	peer->rx_next = be32_get(h->packet);
	peer->unchecked = be32_get(h->length) & WIRE_UNCHECKED;
	peer->bulk = be32_get(h->length) & WIRE_BULK;
	peer->window = (uint16_t)(window < FAR_TRANSPORT_WINDOW ? window : FAR_TRANSPORT_WINDOW);
}
