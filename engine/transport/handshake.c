/* SPDX-License-Identifier: BSD-3-Clause */
/** Encodes and decodes set-up packets. Control thread and poller. */
#include "transport/port.h"

#include <errno.h>
#include <string.h>

static uint32_t ring_of(const struct link_port *port)
{
	return port->ring < FAR_LINK_WINDOW ? port->ring : FAR_LINK_WINDOW;
}

uint32_t link_words_write(uint8_t *out, const struct link_peer *p, const struct link_queue *via, enum wire_kind kind,
			  unsigned want, uint32_t path, const void *words, uint16_t words_len,
			  const struct link_proofs *proofs)
{
	const struct link_port *port = p->queue->port;
	const struct nic_addr *own = &via->port->own;
	/* CHALLENGE needs no address: its receiver has sent HELLO to this port. */
	uint16_t addr_len = kind == WIRE_CHALLENGE ? 0 : own->len;
	struct wire_head h = {.version = WIRE_VERSION,
			      .kind = (uint8_t)kind,
			      .incarnation = be64_of(p->id_there),
			      .token = be64_of(p->token_there),
			      .packet = be32_of(port->config.first_packet),
			      .length = be32_of((port->config.unchecked ? WIRE_UNCHECKED : 0) |
						(p->queue->ops->bulk ? WIRE_BULK : 0)),
			      .offset = be32_of(ring_of(port))};
	struct wire_words w = {.incarnation = be64_of(port->id),
			       .token = be64_of(p->token),
			       .queue = be16_of((uint16_t)p->queue->index),
			       .want = be16_of((uint16_t)want),
			       .path = be32_of(path),
			       .packet_max = be32_of(via->port->packet_max),
			       .words = be16_of(words_len),
			       .addr = be16_of(addr_len),
			       .issued = be64_of(proofs->issued)};
	memcpy(w.nonce, proofs->nonce, sizeof w.nonce);
	memcpy(w.proof, proofs->proof, sizeof w.proof);
	memcpy(w.public, proofs->public, sizeof w.public);
	uint8_t *at = out + LINK_HEAD;
	memcpy(out, &h, sizeof h);
	memcpy(at, &w, sizeof w);
	at += sizeof w;
	if (words_len)
		memcpy(at, words, words_len);
	memcpy(at + words_len, own->blob, addr_len);
	uint32_t len = LINK_HEAD + (uint32_t)sizeof w + words_len + addr_len;
	if (kind != WIRE_HELLO)
		return len;
	memset(out + len, 0, LINK_MAIL_BYTES - len);
	return LINK_MAIL_BYTES;
}

uint32_t link_no_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token, int error, uint32_t path,
		       const uint8_t nonce[AUTH_NONCE_BYTES])
{
	struct wire_head h = {
		.version = WIRE_VERSION, .kind = (uint8_t)kind, .incarnation = be64_of(id), .token = be64_of(token)};
	struct wire_no no = {.error = be32_of((uint32_t)-error), .path = be32_of(path)};
	memcpy(no.nonce, nonce, sizeof no.nonce);
	memcpy(out, &h, sizeof h);
	memcpy(out + LINK_HEAD, &no, sizeof no);
	return LINK_HEAD + sizeof no;
}

bool link_words_read(const uint8_t *body, uint64_t len, struct link_words *out)
{
	struct wire_words w;
	if (len < sizeof w)
		return false;
	memcpy(&w, body, sizeof w);
	*out = (struct link_words){.id = be64_get(w.incarnation),
				   .token = be64_get(w.token),
				   .issued = be64_get(w.issued),
				   .queue = be16_get(w.queue),
				   .want = be16_get(w.want),
				   .path = be32_get(w.path),
				   .packet_max = be32_get(w.packet_max),
				   .words_len = be16_get(w.words),
				   .addr_len = be16_get(w.addr),
				   .words = body + sizeof w,
				   .nonce = body + offsetof(struct wire_words, nonce),
				   .proof = body + offsetof(struct wire_words, proof),
				   .public = body + offsetof(struct wire_words, public)};
	out->addr = out->words + out->words_len;
	return len >= sizeof w + out->words_len + out->addr_len && out->words_len <= NIC_HELLO_BYTES_MAX &&
	       out->addr_len <= NIC_ADDR_BYTES_MAX - LINK_ID_BYTES && out->token != 0 && out->id != 0 &&
	       out->queue < FAR_LINK_QUEUES_MAX && out->path < NIC_PATHS && out->packet_max >= LINK_PACKET_MIN;
}

bool link_no_read(const uint8_t *body, uint64_t len, struct link_no *out)
{
	struct wire_no no;
	if (len != sizeof no)
		return false;
	memcpy(&no, body, sizeof no);
	uint32_t e = be32_get(no.error);
	*out = (struct link_no){.error = e > 0 && e < 4096 ? -(int)e : -EPROTO,
				.path = be32_get(no.path),
				.nonce = body + offsetof(struct wire_no, nonce)};
	return true;
}
