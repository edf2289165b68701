/* SPDX-License-Identifier: BSD-3-Clause */
/** Encodes and decodes set-up packets. Control thread and poller. */
#include "transport/handshake.h"

#include "transport/port.h"
#include "transport/queue.h"

#include <errno.h>

static uint32_t ring_of(const struct transport_port *port)
{
	return port->ring < FAR_TRANSPORT_WINDOW ? port->ring : FAR_TRANSPORT_WINDOW;
}

static void copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
	if (from)
		memcpy(to, from, bytes);
}

/* Returns true if packets of this peer's primary path need no CRC as far as this end is concerned. */
static bool may_be_unchecked(const struct transport_peer *p)
{
	const struct transport_port *port = p->queue->port;
	const struct nic_port_ops *lower = port->lower->ops;
	return port->config.unchecked || (lower->is_loopback && lower->is_loopback(port->lower, p->address));
}

uint32_t transport_handshake_write(uint8_t *out, const struct transport_peer *p, const struct transport_queue *via,
				   enum wire_kind kind, const struct transport_handshake *w)
{
	const struct transport_port *port = p->queue->port;
	const struct nic_addr *own = &via->port->own;
	bool begins = kind == WIRE_CONNECT || kind == WIRE_ACCEPT;
	/* CHALLENGE needs no address: its receiver has sent CONNECT to this port. */
	uint16_t addr_len = kind == WIRE_CHALLENGE ? 0 : own->len;
	struct wire_control h = {.version = WIRE_VERSION,
				 .kind = (uint8_t)kind,
				 .incarnation = le64_of(p->remote_id),
				 .token = le64_of(p->remote_token)};
	if (begins) {
		h.first_packet = le32_of(port->config.first_packet);
		h.features = le32_of(WIRE_WIDE | (may_be_unchecked(p) ? WIRE_UNCHECKED : 0) |
				     (p->queue->ops->bulk ? WIRE_BULK : 0));
		h.window = le32_of(ring_of(port));
	}
	struct wire_handshake body = {.incarnation = le64_of(port->id),
				      .token = le64_of(p->token),
				      .queue = le16_of((uint16_t)p->queue->index),
				      .wanted_queue = le16_of((uint16_t)w->wanted_queue),
				      .flow = le32_of(w->flow),
				      .path = le32_of(w->path),
				      .packet_max = le32_of(via->port->packet_max),
				      .payload_bytes = le16_of((uint16_t)w->payload_len),
				      .address_bytes = le16_of(addr_len),
				      .issued = le64_of(w->issued)};
	copy(body.nonce, w->nonce, sizeof body.nonce);
	copy(body.cookie, w->cookie, sizeof body.cookie);
	copy(body.proof, w->proof, sizeof body.proof);
	copy(body.public_key, w->public, sizeof body.public_key);
	uint8_t *at = out + TRANSPORT_HEAD_BYTES;
	memcpy(out, &h, sizeof h);
	memcpy(at, &body, sizeof body);
	at += sizeof body;
	copy(at, w->payload, w->payload_len);
	memcpy(at + w->payload_len, own->blob, addr_len);
	uint32_t len = TRANSPORT_HEAD_BYTES + (uint32_t)sizeof body + w->payload_len + addr_len;
	if (kind != WIRE_CONNECT)
		return len;
	memset(out + len, 0, TRANSPORT_MAIL_BYTES - len);
	return TRANSPORT_MAIL_BYTES;
}

uint32_t transport_reject_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token,
				const struct transport_reject *no)
{
	struct wire_control h = {
		.version = WIRE_VERSION, .kind = (uint8_t)kind, .incarnation = le64_of(id), .token = le64_of(token)};
	struct wire_reject body = {
		.error = le32_of((uint32_t)-no->error), .flow = le32_of(no->flow), .path = le32_of(no->path)};
	copy(body.nonce, no->nonce, sizeof body.nonce);
	memcpy(out, &h, sizeof h);
	memcpy(out + TRANSPORT_HEAD_BYTES, &body, sizeof body);
	return TRANSPORT_HEAD_BYTES + sizeof body;
}

bool transport_handshake_read(const uint8_t *body, uint64_t len, struct transport_handshake *out)
{
	struct wire_handshake w;
	if (len < sizeof w)
		return false;
	memcpy(&w, body, sizeof w);
	*out = (struct transport_handshake){.id = le64_get(w.incarnation),
					    .token = le64_get(w.token),
					    .issued = le64_get(w.issued),
					    .queue = le16_get(w.queue),
					    .wanted_queue = le16_get(w.wanted_queue),
					    .flow = le32_get(w.flow),
					    .path = le32_get(w.path),
					    .packet_max = le32_get(w.packet_max),
					    .payload_len = le16_get(w.payload_bytes),
					    .addr_len = le16_get(w.address_bytes),
					    .payload = body + sizeof w,
					    .nonce = body + offsetof(struct wire_handshake, nonce),
					    .cookie = body + offsetof(struct wire_handshake, cookie),
					    .proof = body + offsetof(struct wire_handshake, proof),
					    .public = body + offsetof(struct wire_handshake, public_key)};
	out->addr = out->payload + out->payload_len;
	return len >= sizeof w + out->payload_len + out->addr_len && out->payload_len <= NIC_HANDSHAKE_BYTES_MAX &&
	       out->addr_len <= NIC_ADDR_BYTES_MAX - TRANSPORT_ID_BYTES && out->token != 0 && out->id != 0 &&
	       out->queue < FAR_TRANSPORT_QUEUES_MAX && out->flow < NIC_FLOWS &&
	       out->path <= 1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX && out->packet_max >= TRANSPORT_PACKET_MIN;
}

bool transport_reject_read(const uint8_t *body, uint64_t len, struct transport_reject *out)
{
	struct wire_reject no;
	if (len != sizeof no)
		return false;
	memcpy(&no, body, sizeof no);
	uint32_t e = le32_get(no.error);
	*out = (struct transport_reject){.error = e > 0 && e < 4096 ? -(int)e : -EPROTO,
					 .flow = le32_get(no.flow),
					 .path = le32_get(no.path),
					 .nonce = body + offsetof(struct wire_reject, nonce)};
	return true;
}

void transport_features_read(struct transport_peer *peer, const struct wire_control *h)
{
	uint32_t window = le32_get(h->window);
	peer->rx_next = le32_get(h->first_packet);
	peer->agreed = le32_get(h->features) & WIRE_UNCHECKED;
	peer->bulk = le32_get(h->features) & WIRE_BULK;
	peer->wide = le32_get(h->features) & WIRE_WIDE && peer->queue->port->lower_caps.ip_fragments;
	peer->window = (uint16_t)(window < FAR_TRANSPORT_WINDOW ? window : FAR_TRANSPORT_WINDOW);
}

void transport_features_agree(struct transport_peer *peer)
{
	peer->agreed &= may_be_unchecked(peer);
}
