/* SPDX-License-Identifier: BSD-3-Clause */
/** Bytes of set-up packets: what is written is read again, and what no correct member writes is refused. The test's
 * thread. */
#include "transport/handshake.h"
#include "transport/mail.h"
#include "transport/peer.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static uint32_t at_0, at_1;
static struct transport_port *port;
static struct transport_peer *peer;
static uint8_t packet[2 * TRANSPORT_MAIL_BYTES];
static uint8_t nonce[AUTH_NONCE_BYTES], cookie[AUTH_PROOF_BYTES], public_key[AUTH_PUBLIC_BYTES];
static uint8_t payload[NIC_HANDSHAKE_BYTES_MAX];

static void setup(void)
{
	fixture_init();
	fixture_two(&at_0, &at_1);
	port = (struct transport_port *)fixture.ends[0].port;
	peer = port->peers[at_0];
	memset(packet, 0xee, sizeof packet);
	memset(nonce, 1, sizeof nonce);
	memset(cookie, 2, sizeof cookie);
	memset(public_key, 3, sizeof public_key);
	for (size_t i = 0; i < sizeof payload; i++)
		payload[i] = (uint8_t)i;
}

TestSuite(transport_handshake, .init = setup, .fini = fixture_fini);

static uint32_t write_it(enum wire_kind kind)
{
	const struct transport_handshake w = {.wanted_queue = 3,
					      .flow = 5,
					      .path = 2,
					      .issued = UINT64_C(0x1122334455667788),
					      .payload_len = sizeof payload,
					      .payload = payload,
					      .nonce = nonce,
					      .cookie = cookie,
					      .public = public_key};
	return transport_handshake_write(packet, peer, port->queues[0], kind, &w);
}

static bool read_it(uint32_t len, struct transport_handshake *out)
{
	return transport_handshake_read(packet + TRANSPORT_HEAD_BYTES, len - TRANSPORT_HEAD_BYTES, out);
}

Test(transport_handshake, written_and_read_again)
{
	struct transport_handshake r;
	uint32_t len = write_it(WIRE_ACCEPT);
	const struct wire_control *h = (const struct wire_control *)(const void *)packet;
	cr_assert(h->version == WIRE_VERSION && h->kind == WIRE_ACCEPT);
	cr_assert_eq(le64_get(h->incarnation), peer->remote_id);
	cr_assert_eq(le64_get(h->token), peer->remote_token);
	cr_assert_eq(le32_get(h->first_packet), port->config.first_packet);
	cr_assert(read_it(len, &r));
	cr_assert(r.id == port->id && r.token == peer->token && r.queue == 0);
	cr_assert(r.wanted_queue == 3 && r.flow == 5 && r.path == 2);
	cr_assert_eq(r.issued, UINT64_C(0x1122334455667788));
	cr_assert_eq(r.packet_max, port->packet_max);
	cr_assert(r.payload_len == sizeof payload && memcmp(r.payload, payload, sizeof payload) == 0);
	cr_assert(r.addr_len == port->own.len && memcmp(r.addr, port->own.blob, r.addr_len) == 0);
	cr_assert_eq(memcmp(r.nonce, nonce, sizeof nonce), 0);
	cr_assert_eq(memcmp(r.cookie, cookie, sizeof cookie), 0);
	cr_assert_eq(memcmp(r.public, public_key, sizeof public_key), 0);
	for (size_t i = 0; i < AUTH_PROOF_BYTES; i++)
		cr_assert_eq(r.proof[i], 0, "NULL is zeros");
	cr_assert_eq(packet[len], 0xee, "and nothing behind it");
}

/* Expect CONNECT as long as the longest answer to it, with zeros at the end, and CHALLENGE without an address. */
Test(transport_handshake, no_answer_is_longer_than_connect)
{
	struct transport_handshake r;
	uint32_t len = write_it(WIRE_ACCEPT);
	cr_assert_eq(write_it(WIRE_CONNECT), TRANSPORT_MAIL_BYTES);
	cr_assert_leq(len, TRANSPORT_MAIL_BYTES);
	for (uint32_t i = len; i < TRANSPORT_MAIL_BYTES; i++)
		cr_assert_eq(packet[i], 0);
	cr_assert(read_it(TRANSPORT_MAIL_BYTES, &r));
	cr_assert_eq(write_it(WIRE_CHALLENGE), len - port->own.len);
	cr_assert(read_it(len - port->own.len, &r));
	cr_assert_eq(r.addr_len, 0u);
	const struct wire_control *h = (const struct wire_control *)(const void *)packet;
	cr_assert(le32_get(h->features) == 0 && le32_get(h->window) == 0 && le32_get(h->first_packet) == 0);
}

/* Cut anywhere, and each field beyond its bound. Expect all of it refused. */
Test(transport_handshake, malformed)
{
	struct transport_handshake r;
	uint32_t len = write_it(WIRE_ACCEPT);
	struct wire_handshake body, *at = (struct wire_handshake *)(void *)(packet + TRANSPORT_HEAD_BYTES);
	memcpy(&body, at, sizeof body);
	for (uint32_t cut = TRANSPORT_HEAD_BYTES; cut < len; cut++)
		cr_assert_not(read_it(cut, &r), "%u bytes of %u", cut, len);
	cr_assert(read_it(len, &r));
#define BAD(field, value)                                                                                              \
	do {                                                                                                           \
		at->field = value;                                                                                     \
		cr_assert_not(read_it(sizeof packet, &r), #field);                                                     \
		memcpy(at, &body, sizeof body);                                                                        \
	} while (0)
	BAD(token, le64_of(0));
	BAD(incarnation, le64_of(0));
	BAD(queue, le16_of(FAR_TRANSPORT_QUEUES_MAX));
	BAD(flow, le32_of(NIC_FLOWS));
	BAD(path, le32_of(2 + FAR_TRANSPORT_SECONDARY_PATHS_MAX));
	BAD(packet_max, le32_of(TRANSPORT_PACKET_MIN - 1));
	BAD(payload_bytes, le16_of(NIC_HANDSHAKE_BYTES_MAX + 1));
	BAD(payload_bytes, le16_of(UINT16_MAX));
	BAD(address_bytes, le16_of(NIC_ADDR_BYTES_MAX - TRANSPORT_ID_BYTES + 1));
	BAD(address_bytes, le16_of(UINT16_MAX));
	cr_assert(read_it(len, &r));
}

Test(transport_handshake, rejects)
{
	struct transport_reject no = {.error = -ECHRNG, .flow = 7, .path = 2, .nonce = nonce}, r;
	uint32_t len = transport_reject_write(packet, WIRE_WRONG_QUEUE, 11, 12, &no);
	const struct wire_control *h = (const struct wire_control *)(const void *)packet;
	uint8_t *body = packet + TRANSPORT_HEAD_BYTES;
	cr_assert(h->kind == WIRE_WRONG_QUEUE && le64_get(h->incarnation) == 11 && le64_get(h->token) == 12);
	cr_assert(transport_reject_read(body, len - TRANSPORT_HEAD_BYTES, &r));
	cr_assert(r.error == -ECHRNG && r.flow == 7 && r.path == 2);
	cr_assert_eq(memcmp(r.nonce, nonce, sizeof nonce), 0);
	cr_assert_not(transport_reject_read(body, len - TRANSPORT_HEAD_BYTES - 1, &r));
	cr_assert_not(transport_reject_read(body, len - TRANSPORT_HEAD_BYTES + 1, &r));
	/* No errno is 0, or so large: the reason is not one that this end can name. */
	static const uint32_t odd[] = {0, 4096, INT32_MAX, UINT32_MAX};
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		((struct wire_reject *)(void *)body)->error = le32_of(odd[i]);
		cr_assert(transport_reject_read(body, len - TRANSPORT_HEAD_BYTES, &r));
		cr_assert_eq(r.error, -EPROTO, "%u", odd[i]);
	}
}

/* Expect the window cut to ours, and no checksums left out unless both ends have stated that they may be. */
Test(transport_handshake, features)
{
	struct wire_control h = {.first_packet = le32_of(77),
				 .features = le32_of(WIRE_UNCHECKED | WIRE_BULK | WIRE_WIDE),
				 .window = le32_of(UINT32_MAX)};
	const uint32_t rx_next = peer->rx_next;
	const uint16_t window = peer->window;
	const bool agreed = peer->agreed, bulk = peer->bulk, wide = peer->wide;
	struct nic_caps *lower = &peer->queue->port->lower_caps;
	lower->ip_fragments = false;
	transport_features_read(peer, &h);
	cr_assert(peer->rx_next == 77 && peer->agreed && peer->bulk && !peer->wide);
	lower->ip_fragments = true;
	transport_features_read(peer, &h);
	cr_assert(peer->wide);
	cr_assert_eq(peer->window, FAR_TRANSPORT_WINDOW);
	transport_features_agree(peer);
	cr_assert_not(peer->agreed, "this end has not stated it");
	h.features = le32_of(0);
	h.window = le32_of(3);
	transport_features_read(peer, &h);
	cr_assert(!peer->agreed && !peer->bulk && !peer->wide && peer->window == 3);
	lower->ip_fragments = false;
	peer->rx_next = rx_next;
	peer->window = window;
	peer->agreed = agreed;
	peer->bulk = bulk;
	peer->wide = wide;
}
