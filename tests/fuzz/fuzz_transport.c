/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Feeds packets to a live link. The input is a row of records: a byte of flags, two of length, big-endian, the bytes
 * of the packet. Flags: 1 puts the token of the connection into it, 2 the identity of the port, 4 the version, 8
 * makes `first` the number of the packet, 16 moves the clock by 10 ms, 32 makes it the number that is due. What goes up
 * is read to its last byte; an own message goes the other way. Some messages have a place before they are whole, of
 * exactly their size. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: see corpus_main.h.
 */
#include "base/must.h"
#include "core/packet.h"
#include "memory/buf.h"
#include "transport/wire.h"
#include "transport_fixture.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKEN = 1, IDENTITY = 2, VERSION = 4, FIRST = 8, LATER = 16, DUE = 32, PACKET_MAX = 2048 };

static struct wire_message known; /* of a packet that end 0 sent to end 1 */

static bool note(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (from == 0 && to == 1 && bytes[1] == WIRE_MESSAGE)
		memcpy(&known, bytes, sizeof known);
	return true;
}

enum { PLACES = 32, PLACE_MAX = 1 << 16 };
static void *places[PLACES];
static unsigned places_n;

static bool place(void *ctx, uint32_t peer, const uint8_t *head, uint64_t len, struct nic_placement *out)
{
	if (head[0] % 2 == 0 || len > PLACE_MAX || places_n == PLACES)
		return false;
	buf_ref(ctx);
	places[places_n] = malloc(len);
	*out = (struct nic_placement){places[places_n++], ctx};
	return true;
}

static void record(unsigned flags, const uint8_t *bytes, uint32_t len)
{
	uint8_t packet[PACKET_MAX];
	struct wire_message *h = (struct wire_message *)(void *)packet;
	memcpy(packet, bytes, len);
	if (len >= sizeof *h) {
		if (flags & TOKEN)
			h->token = known.token;
		if (flags & IDENTITY)
			h->incarnation = known.incarnation;
		if (flags & VERSION)
			h->version = WIRE_VERSION;
		if (flags & DUE)
			h->packet = le32_of((uint32_t)fixture.ends[1].got);
		if (flags & FIRST)
			h->first = h->packet;
	}
	dgram_inject(&fixture.fabric, 1, 0, packet, len);
	if (flags & LATER)
		fixture.now += 10 * FIXTURE_MS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t at_0, at_1;
	fixture_init();
	fixture.fabric.crc = true;
	fixture.fabric.hook = note;
	fixture_two(&at_0, &at_1);
	struct far_buf *owner = buf_alloc(1);
	must(owner != NULL);
	fixture.ends[1].q->ops->set_placement(fixture.ends[1].q, place, owner);
	must(fixture_send(0, at_0, 0, 40) == 0);
	fixture_turn();
	must(fixture.ends[1].got == 1);
	for (unsigned n = 0; size >= 3; n++) {
		uint32_t len = (uint32_t)data[1] << 8 | data[2];
		if (len > size - 3)
			len = (uint32_t)size - 3;
		if (len > PACKET_MAX)
			len = PACKET_MAX;
		record(data[0], data + 3, len);
		data += 3 + len;
		size -= 3 + len;
		if (n % 3 == 0)
			fixture_turn();
	}
	fixture_turn();
	fixture_send(1, at_1, 0, 3000);
	for (unsigned i = 0; i < 5; i++)
		fixture_turn();
	/* One that broke the rules is let go of, as the engine would. */
	if (fixture.ends[1].downs && fixture.ends[1].down == at_1) {
		fixture.ends[1].q->ops->detach(fixture.ends[1].q, at_1);
		fixture.ends[1].port->ops->drop(fixture.ends[1].port, at_1);
		fixture_turn();
	}
	fixture_fini();
	must(atomic_load_explicit(&owner->refs, memory_order_relaxed) == 1);
	buf_unref(owner);
	while (places_n)
		free(places[--places_n]);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
