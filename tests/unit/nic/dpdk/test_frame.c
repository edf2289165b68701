/* SPDX-License-Identifier: BSD-3-Clause */
/** Frames of Ethernet, IP and UDP against those of the kernel. The test's thread. */
#include "captured_frames.h"
#include "nic/dpdk/frame.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct frame_path path_to_queue(unsigned v6, unsigned queue)
{
	struct frame_path path;
	struct frame_addr to = me[v6];
	to.port = (uint16_t)(to.port + queue);
	frame_path_init(&path, &sender[v6], &to);
	return path;
}

/* Reads from memory allocated to the byte, so that a sanitizer sees a read past the end. */
static enum frame_verdict read_exact(const uint8_t *bytes, unsigned len, unsigned v6, bool checked,
				     struct frame_in *out)
{
	uint8_t *copy = malloc(len ? len : 1);
	cr_assert(copy);
	memcpy(copy, bytes, len);
	enum frame_verdict verdict = frame_read(copy, len, &me[v6], QUEUES, checked, out);
	free(copy);
	return verdict;
}

/* RFC 1071 word by word, of `n` pieces. */
static uint16_t slow_sum(const uint8_t *bytes, size_t len, uint32_t sum)
{
	for (size_t i = 0; i < len; i++)
		sum += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static uint16_t be16_at(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static void put_be16(uint8_t *at, unsigned x)
{
	at[0] = (uint8_t)(x >> 8);
	at[1] = (uint8_t)x;
}

/* Makes the checksums of a frame right again, after a test has changed its headers. */
static void right_sums(uint8_t *frame, unsigned len)
{
	uint8_t *ip = frame + 14;
	bool v6 = ip[0] >> 4 == 6;
	unsigned head = v6 ? 40 : (ip[0] & 15u) * 4;
	uint8_t *udp = ip + head;
	unsigned udp_len = len - 14 - head;
	if (!v6) {
		put_be16(ip + 10, 0);
		put_be16(ip + 10, (uint16_t)~slow_sum(ip, head, 0));
	}
	put_be16(udp + 6, 0);
	uint32_t sum = slow_sum(v6 ? ip + 8 : ip + 12, v6 ? 32 : 8, 17 + udp_len);
	uint16_t full = (uint16_t)~slow_sum(udp, udp_len, sum);
	put_be16(udp + 6, full ? full : 0xffff);
}

Test(frame, reads_what_the_kernel_wrote)
{
	for (size_t i = 0; i < CAPTURED; i++) {
		const struct captured *c = &captured[i];
		unsigned v6 = i >= 3;
		struct frame_in in;
		cr_assert_eq(read_exact(c->bytes, c->len, v6, false, &in), FRAME_OURS, "%zu", i);
		cr_assert_eq(in.queue, 2);
		cr_assert_eq(in.len, strlen(c->payload));
		cr_assert_eq(memcmp(c->bytes + in.payload, c->payload, in.len), 0);
		cr_assert_eq(in.from.v6, v6);
		cr_assert_eq(in.from.port, sender[v6].port);
		cr_assert_eq(memcmp(in.from.mac, sender[v6].mac, 6), 0);
		cr_assert_eq(memcmp(in.from.ip, sender[v6].ip, 16), 0);
		cr_assert_eq(read_exact(c->bytes, c->len, !v6, false, &in), FRAME_UNEXPECTED, "the other IP version");
	}
}

/* The kernel numbers its IPv4 packets, and labels its flows; otherwise every byte is the same. */
Test(frame, writes_what_the_kernel_writes)
{
	for (size_t i = 0; i < CAPTURED; i++) {
		struct captured want = captured[i];
		unsigned v6 = i >= 3, n = (unsigned)strlen(want.payload);
		memset(want.bytes + (v6 ? 15 : 18), 0, v6 ? 3 : 2);
		right_sums(want.bytes, want.len);
		struct frame_path path = path_to_queue(v6, 2);
		uint8_t frame[96];
		memset(frame, 0xee, sizeof frame);
		memcpy(frame + path.len, want.payload, n);
		cr_assert_eq(frame_write(frame, &path, n, frame + path.len, FRAME_SUM_FULL), path.len);
		cr_assert_eq(path.len + n, want.len);
		cr_assert_eq(memcmp(frame, want.bytes, want.len), 0, "%zu", i);
		cr_assert_eq(frame[want.len], 0xee);
	}
}

Test(frame, comes_back_at_every_length)
{
	static uint8_t payload[2048], frame[2200];
	for (unsigned i = 0; i < sizeof payload; i++)
		payload[i] = (uint8_t)(i * 7 + i / 251);
	for (unsigned v6 = 0; v6 < 2; v6++) {
		for (unsigned len = 0; len <= sizeof payload; len++) {
			struct frame_path path = path_to_queue(v6, len % QUEUES);
			memcpy(frame + path.len, payload, len);
			unsigned n = frame_write(frame, &path, len, frame + path.len, FRAME_SUM_FULL) + len;
			uint16_t sum = be16_at(frame + path.len - 2);
			right_sums(frame, n);
			cr_assert_eq(be16_at(frame + path.len - 2), sum, "checksum at %u bytes", len);
			struct frame_in in;
			cr_assert_eq(read_exact(frame, n, v6, false, &in), FRAME_OURS);
			cr_assert(in.queue == len % QUEUES && in.len == len && in.payload == path.len);
			cr_assert_eq(memcmp(frame + in.payload, payload, len), 0);
		}
	}
}

Test(frame, sum_of_bytes_that_are_all_ones)
{
	static uint8_t ones[FRAME_PAYLOAD_MAX];
	memset(ones, 0xff, sizeof ones);
	for (unsigned len = FRAME_PAYLOAD_MAX - 64; len <= FRAME_PAYLOAD_MAX; len++) {
		uint16_t sum = frame_be16(frame_fold(frame_sum(ones, len)));
		cr_assert_eq(sum, slow_sum(ones, len, 0), "%u", len);
	}
	cr_assert_eq(frame_sum(ones, 0), 0);
}

/* 0 in the field means that there is none: a sum of 0 is sent as its other form. */
Test(frame, sum_that_comes_to_zero)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct frame_path path = path_to_queue(v6, 0);
		uint8_t frame[80], *sum = frame + path.len - 2;
		memset(frame, 0, sizeof frame);
		frame_write(frame, &path, 2, frame + path.len, FRAME_SUM_FULL);
		memcpy(frame + path.len, sum, 2); /* what is missing to it */
		frame_write(frame, &path, 2, frame + path.len, FRAME_SUM_FULL);
		cr_assert_eq(be16_at(sum), 0xffff);
		struct frame_in in;
		cr_assert_eq(read_exact(frame, path.len + 2u, v6, false, &in), FRAME_OURS);
	}
}

/* Every value of the byte. Expect it in its place, the checksums right, and the other fields as they were. */
Test(frame, class_of_service)
{
	for (unsigned v6 = 0; v6 < 2; v6++)
		for (unsigned tos = 0; tos < 256; tos++) {
			struct frame_path path = path_to_queue(v6, 1);
			uint8_t frame[96] = {0}, *ip = frame + FRAME_MAC_BYTES;
			unsigned n = frame_write(frame, &path, tos % 24, frame + path.len, FRAME_SUM_FULL) + tos % 24;
			frame_set_class(frame, &path, (uint8_t)tos);
			if (v6)
				cr_assert_eq(be16_at(ip), 0x6000 | tos << 4);
			else
				cr_assert_eq(be16_at(ip), 0x4500 | tos);
			struct frame_in in;
			cr_assert_eq(read_exact(frame, n, v6, false, &in), FRAME_OURS, "%u", tos);
			cr_assert(in.len == tos % 24 && in.queue == 1);
			right_sums(frame, n);
		}
}

Test(frame, no_checksum)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct frame_path path = path_to_queue(v6, 1);
		uint8_t frame[80];
		memset(frame, 0x5a, sizeof frame);
		frame_write(frame, &path, 8, frame + path.len, FRAME_SUM_NONE);
		struct frame_in in;
		cr_assert_eq(be16_at(frame + path.len - 2) == 0, !v6, "IPv6 has one always");
		cr_assert_eq(read_exact(frame, path.len + 8u, v6, false, &in), FRAME_OURS);
		put_be16(frame + path.len - 2, 0);
		enum frame_verdict want = v6 ? FRAME_MALFORMED : FRAME_OURS;
		cr_assert_eq(read_exact(frame, path.len + 8u, v6, false, &in), want);
		cr_assert_eq(read_exact(frame, path.len + 8u, v6, true, &in), want);
	}
}

/* A device adds the UDP header and the payload to what it finds in the field. */
Test(frame, sum_left_to_the_device)
{
	for (size_t i = 0; i < CAPTURED; i++) {
		unsigned v6 = i >= 3, n = (unsigned)strlen(captured[i].payload);
		struct frame_path path = path_to_queue(v6, 2);
		uint8_t frame[96], *udp = frame + path.len - 8;
		memcpy(frame + path.len, captured[i].payload, n);
		frame_write(frame, &path, n, frame + path.len, FRAME_SUM_PSEUDO);
		uint16_t whole = (uint16_t)~slow_sum(udp, 8 + n, 0);
		cr_assert_eq(whole, be16_at(captured[i].bytes + path.len - 2), "%zu", i);
	}
}

Test(frame, cut_short)
{
	for (size_t i = 0; i < CAPTURED; i++) {
		unsigned v6 = i >= 3, head = v6 ? FRAME_V6_BYTES : FRAME_V4_BYTES;
		for (unsigned len = 0; len < captured[i].len; len++) {
			struct frame_in in;
			/* Once the destination port can be read it is ours. */
			enum frame_verdict want = len < head - 4 ? FRAME_UNEXPECTED : FRAME_MALFORMED;
			cr_assert_eq(read_exact(captured[i].bytes, len, v6, false, &in), want, "%zu at %u", i, len);
			cr_assert_eq(read_exact(captured[i].bytes, len, v6, true, &in), want, "%zu at %u", i, len);
		}
	}
}

/* Not covered by any checksum: the sender's MAC address; of IPv6 the traffic class, the flow label and the hops. */
static bool is_covered(unsigned byte, unsigned v6)
{
	return (byte < 6 || byte >= 12) && !(v6 && ((byte >= 14 && byte < 18) || byte == 21));
}

Test(frame, one_bit_changed)
{
	for (size_t i = 0; i < CAPTURED; i++) {
		unsigned v6 = i >= 3;
		for (unsigned bit = 0; bit < captured[i].len * 8; bit++) {
			struct captured c = captured[i];
			struct frame_in in;
			c.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			enum frame_verdict verdict = read_exact(c.bytes, c.len, v6, false, &in);
			if (is_covered(bit / 8, v6))
				cr_assert_neq(verdict, FRAME_OURS, "%zu, bit %u", i, bit);
			else if (bit / 8 != 14)
				cr_assert_eq(verdict, FRAME_OURS, "%zu, bit %u", i, bit);
		}
	}
}

Test(frame, changed_payload)
{
	for (size_t i = 0; i < CAPTURED; i += 2) {
		struct captured c = captured[i];
		struct frame_in in;
		unsigned v6 = i >= 3;
		c.bytes[c.len - 1] ^= 1;
		cr_assert_eq(read_exact(c.bytes, c.len, v6, false, &in), FRAME_MALFORMED);
		cr_assert_eq(read_exact(c.bytes, c.len, v6, true, &in), FRAME_OURS, "as the device says");
	}
}

/* Ethernet frames have 60 bytes at least; what fills them may be anything, and is no part of the packet. */
Test(frame, padded)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		const struct captured *c = &captured[v6 ? 4 : 1];
		uint8_t frame[128];
		memset(frame, 0xa5, sizeof frame);
		memcpy(frame, c->bytes, c->len);
		for (unsigned len = c->len; len <= sizeof frame; len++) {
			struct frame_in in;
			cr_assert_eq(read_exact(frame, len, v6, false, &in), FRAME_OURS);
			cr_assert_eq(in.len, 0);
		}
	}
}

Test(frame, ports)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		for (int port = -2; port < (int)QUEUES + 2; port++) {
			struct frame_path path = path_to_queue(v6, (unsigned)port);
			uint8_t frame[80] = {0};
			struct frame_in in = {.queue = 99};
			frame_write(frame, &path, 4, frame + path.len, FRAME_SUM_FULL);
			bool ours = port >= 0 && port < (int)QUEUES;
			cr_assert_eq(read_exact(frame, path.len + 4u, v6, false, &in),
				     ours ? FRAME_OURS : FRAME_UNEXPECTED);
			cr_assert_eq(in.queue, ours ? (unsigned)port : 99u);
		}
	}
}

Test(frame, last_port)
{
	struct frame_addr last = me[0];
	struct frame_path path;
	uint8_t frame[80] = {0};
	struct frame_in in;
	last.port = 65535;
	frame_path_init(&path, &sender[0], &last);
	frame_write(frame, &path, 4, frame + path.len, FRAME_SUM_FULL);
	cr_assert_eq(frame_read(frame, 60, &last, 1, false, &in), FRAME_OURS);
	cr_assert_eq(in.queue, 0);
	last.port = 0;
	frame_path_init(&path, &sender[0], &last);
	frame_write(frame, &path, 4, frame + path.len, FRAME_SUM_FULL);
	last.port = 65535;
	cr_assert_eq(frame_read(frame, 60, &last, 1, false, &in), FRAME_UNEXPECTED, "no wrapping round");
}

struct change {
	unsigned frame; /* of captured[] */
	unsigned at;
	uint8_t len;
	uint8_t bytes[6];
	bool sums; /* are made right again */
	enum frame_verdict want;
	const char *what;
};

static const struct change changes[] = {
	{0, 0, 6, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, false, FRAME_UNEXPECTED, "broadcast"},
	{0, 0, 6, {0x01, 0x00, 0x5e, 1, 2, 3}, false, FRAME_UNEXPECTED, "multicast"},
	{3, 0, 6, {0x33, 0x33, 0, 0, 0, 1}, false, FRAME_UNEXPECTED, "multicast of IPv6"},
	{0, 0, 6, {2, 0, 0, 0, 0, 12}, false, FRAME_UNEXPECTED, "somebody else's MAC address"},
	{0, 12, 2, {0x08, 0x06}, false, FRAME_UNEXPECTED, "ARP"},
	{0, 12, 2, {0x81, 0x00}, false, FRAME_UNEXPECTED, "a VLAN tag"},
	{0, 12, 2, {0x88, 0xa8}, false, FRAME_UNEXPECTED, "two VLAN tags"},
	{0, 12, 2, {0x86, 0xdd}, false, FRAME_UNEXPECTED, "IPv4 that is called IPv6"},
	{3, 12, 2, {0x08, 0x00}, false, FRAME_UNEXPECTED, "IPv6 that is called IPv4"},
	{0, 14, 1, {0x65}, false, FRAME_UNEXPECTED, "version 6 as IPv4"},
	{3, 14, 1, {0x40}, false, FRAME_UNEXPECTED, "version 4 as IPv6"},
	{0, 23, 1, {1}, false, FRAME_UNEXPECTED, "ICMP"},
	{0, 23, 1, {6}, false, FRAME_UNEXPECTED, "TCP"},
	{3, 20, 1, {58}, false, FRAME_UNEXPECTED, "ICMP of IPv6"},
	{3, 20, 1, {0}, false, FRAME_UNEXPECTED, "hop-by-hop options"},
	{3, 20, 1, {44}, false, FRAME_UNEXPECTED, "a fragment of IPv6"},
	{0, 30, 4, {10, 9, 8, 3}, true, FRAME_UNEXPECTED, "somebody else's address"},
	{0, 30, 4, {10, 9, 8, 255}, true, FRAME_UNEXPECTED, "the subnet's broadcast address"},
	{3, 53, 1, {3}, true, FRAME_UNEXPECTED, "somebody else's IPv6 address"},
	{0, 36, 2, {0, 53}, true, FRAME_UNEXPECTED, "another port"},
	{0, 20, 2, {0x00, 0x01}, true, FRAME_UNEXPECTED, "the last fragment"},
	{0, 20, 2, {0x20, 0x01}, true, FRAME_UNEXPECTED, "a fragment in the middle"},
	{0, 20, 2, {0x20, 0x00}, true, FRAME_MALFORMED, "a first fragment"},
	{0, 20, 2, {0x00, 0x00}, true, FRAME_OURS, "may be fragmented, but was not"},
	{0, 15, 1, {0x2e}, true, FRAME_OURS, "a class of service"},
	{0, 22, 1, {1}, true, FRAME_OURS, "the last hop"},
	{0, 14, 1, {0x44}, false, FRAME_UNEXPECTED, "a header of 16 bytes"},
	{0, 14, 1, {0x4f}, false, FRAME_UNEXPECTED, "a header beyond the end"},
	{0, 24, 2, {0, 0}, false, FRAME_MALFORMED, "no header checksum"},
	{0, 16, 2, {0, 36}, true, FRAME_MALFORMED, "a total length beyond the end"},
	{0, 16, 2, {0xff, 0xff}, true, FRAME_MALFORMED, "the largest total length"},
	{0, 16, 2, {0, 34}, true, FRAME_MALFORMED, "a total length below UDP's"},
	{0, 16, 2, {0, 27}, true, FRAME_MALFORMED, "a total length within UDP's header"},
	{0, 16, 2, {0, 19}, true, FRAME_MALFORMED, "a total length within the header"},
	{0, 16, 2, {0, 0}, true, FRAME_MALFORMED, "no total length"},
	{0, 38, 2, {0, 14}, true, FRAME_MALFORMED, "a UDP length below IP's"},
	{0, 38, 2, {0, 16}, true, FRAME_MALFORMED, "a UDP length beyond IP's"},
	{0, 38, 2, {0, 7}, true, FRAME_MALFORMED, "a UDP length within its header"},
	{0, 38, 2, {0, 0}, true, FRAME_MALFORMED, "no UDP length"},
	{3, 18, 2, {0, 16}, true, FRAME_MALFORMED, "a payload length beyond the end"},
	{3, 18, 2, {0, 0}, true, FRAME_MALFORMED, "a jumbogram"},
	{3, 18, 2, {0, 7}, true, FRAME_MALFORMED, "a payload length within UDP's header"},
	{3, 58, 2, {0, 14}, true, FRAME_MALFORMED, "a UDP length below IPv6's"},
	{3, 58, 2, {0xff, 0xff}, true, FRAME_MALFORMED, "the largest UDP length"},
	{3, 60, 2, {0, 0}, false, FRAME_MALFORMED, "no checksum of IPv6"},
	{3, 60, 2, {0xff, 0xff}, false, FRAME_MALFORMED, "a wrong checksum"},
	{3, 21, 1, {1}, false, FRAME_OURS, "the last hop of IPv6"},
};

Test(frame, by_rule)
{
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		const struct change *change = &changes[i];
		struct captured c = captured[change->frame];
		unsigned v6 = change->frame >= 3;
		struct frame_in in;
		memcpy(c.bytes + change->at, change->bytes, change->len);
		if (change->sums)
			right_sums(c.bytes, c.len);
		cr_assert_eq(read_exact(c.bytes, c.len, v6, false, &in), change->want, "%s", change->what);
	}
}

/* The options move the UDP header: the port is looked for behind them. */
Test(frame, options)
{
	for (unsigned words = 6; words <= 15; words++) {
		uint8_t frame[128] = {0};
		unsigned more = (words - 5) * 4, len = captured[0].len + more;
		struct frame_in in;
		memcpy(frame, captured[0].bytes, 34);
		memset(frame + 34, 1, more); /* no operation */
		memcpy(frame + 34 + more, captured[0].bytes + 34, captured[0].len - 34);
		frame[14] = (uint8_t)(0x40 | words);
		put_be16(frame + 16, len - 14);
		right_sums(frame, len);
		cr_assert_eq(read_exact(frame, len, 0, false, &in), FRAME_MALFORMED, "%u words", words);
		frame[34 + more + 3]++;
		frame[34 + more + 2]++;
		cr_assert_eq(read_exact(frame, len, 0, false, &in), FRAME_UNEXPECTED, "%u words", words);
		for (unsigned cut = 0; cut < len; cut++)
			cr_assert_neq(read_exact(frame, cut, 0, true, &in), FRAME_OURS);
	}
}
