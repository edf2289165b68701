/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads the input as a received frame: its first byte chooses the IP version, the number of queues and whether the
 * device has looked at the checksums. A second reader, which follows the rules of frame.h step by step, must come to
 * the same verdict; what is ours is written again and must be read as the same. As a question of a neighbour it gets an
 * answer, or none, and the answer gets none. What it says of a neighbour is of a station, and asking that one is
 * answered by it. What it says of a narrow way is of a packet that is larger, and leaves room for the engine's.
 * Main thread.
 */
#include "base/must.h"
#include "nic/dpdk/frame.h"
#include "nic/dpdk/pmtu.h"
#include "nic/dpdk/resolver.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct frame_addr me[2] = {
	{{2, 0, 0, 0, 0, 11}, 0, {10, 9, 8, 2}, 7000},
	{{2, 0, 0, 0, 0, 11}, 1, {0xfd, 0, 0, 9, [15] = 2}, 7000},
};

static unsigned be16_at(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

/* The sum by RFC 1071, word by word; 0xffff when the checksum in it is right. */
static uint32_t sum_add(uint32_t sum, const uint8_t *bytes, unsigned len)
{
	for (unsigned i = 0; i < len; i++)
		sum += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

struct reading {
	unsigned head, ip_len; /* of the IP header; what it says follows */
	bool broken;
};

static bool for_us_v4(const uint8_t *ip, unsigned room, bool checked, struct reading *r)
{
	if (room < 20 || ip[0] >> 4 != 4 || ip[9] != 17 || memcmp(ip + 16, me[0].ip, 4) != 0)
		return false;
	if (be16_at(ip + 6) & 0x1fff)
		return false;
	r->head = (ip[0] & 15u) * 4;
	if (r->head < 20 || room < r->head + 4)
		return false;
	unsigned total = be16_at(ip + 2);
	r->broken =
		r->head != 20 || (be16_at(ip + 6) & 0x2000) || total < 28 || (!checked && sum_add(0, ip, 20) != 0xffff);
	r->ip_len = r->broken ? 0 : total - 20;
	return true;
}

static bool for_us_v6(const uint8_t *ip, unsigned room, struct reading *r)
{
	if (room < 44 || ip[0] >> 4 != 6 || ip[6] != 17 || memcmp(ip + 24, me[1].ip, 16) != 0)
		return false;
	*r = (struct reading){40, be16_at(ip + 4), be16_at(ip + 4) < 8};
	return true;
}

static enum frame_verdict second_reader(const uint8_t *frame, unsigned len, unsigned v6, unsigned queues, bool checked)
{
	struct reading r = {0};
	if (len < 14 || memcmp(frame, me[v6].mac, 6) != 0 || be16_at(frame + 12) != (v6 ? 0x86ddu : 0x0800u))
		return FRAME_UNEXPECTED;
	const uint8_t *ip = frame + 14;
	if (!(v6 ? for_us_v6(ip, len - 14, &r) : for_us_v4(ip, len - 14, checked, &r)))
		return FRAME_UNEXPECTED;
	const uint8_t *udp = ip + r.head;
	unsigned port = be16_at(udp + 2);
	if (port < me[v6].port || port >= me[v6].port + queues)
		return FRAME_UNEXPECTED;
	if (r.broken || r.ip_len > len - 14 - r.head || be16_at(udp + 4) != r.ip_len)
		return FRAME_MALFORMED;
	if (be16_at(udp + 6) == 0)
		return v6 ? FRAME_MALFORMED : FRAME_OURS;
	uint32_t sum = sum_add(17 + r.ip_len, v6 ? ip + 8 : ip + 12, v6 ? 32 : 8);
	return checked || sum_add(sum, udp, r.ip_len) == 0xffff ? FRAME_OURS : FRAME_MALFORMED;
}

static void check_again(const uint8_t *frame, const struct frame_in *in, unsigned v6, unsigned queues)
{
	static uint8_t again[FRAME_V6_BYTES + UINT16_MAX];
	struct frame_path path;
	struct frame_addr to = me[v6];
	struct frame_in back;
	to.port = (uint16_t)(to.port + in->queue);
	frame_path_init(&path, &in->from, &to);
	memcpy(again + path.len, frame + in->payload, in->len);
	unsigned len = frame_write(again, &path, in->len, again + path.len, FRAME_SUM_FULL) + in->len;
	must(frame_read(again, len, &me[v6], queues, false, &back) == FRAME_OURS);
	must(back.queue == in->queue && back.len == in->len && back.payload == in->payload);
	must(back.from.port == in->from.port && memcmp(back.from.mac, in->from.mac, 6) == 0);
	must(back.from.v6 == v6 && memcmp(back.from.ip, in->from.ip, 16) == 0);
}

static void check_answer(const uint8_t *frame, unsigned len, unsigned v6)
{
	static uint8_t out[CONTROL_FRAME_BYTES_MAX], none[CONTROL_FRAME_BYTES_MAX];
	unsigned n = responder_write(&me[v6], frame, len, out);
	must(n == 0 || (n >= CONTROL_FRAME_BYTES_MIN && n <= CONTROL_FRAME_BYTES_MAX));
	must(n == 0 || (responder_wants(&me[v6], frame, len) && memcmp(out + 6, me[v6].mac, 6) == 0));
	for (unsigned i = 0; n && i < 2; i++) /* by either responder */
		must(responder_write(&me[i], out, n, none) == 0);
}

static void check_news(const uint8_t *frame, unsigned len, unsigned v6)
{
	static uint8_t question[CONTROL_FRAME_BYTES_MAX], reply[CONTROL_FRAME_BYTES_MAX];
	struct frame_addr them = {.v6 = (uint8_t)v6};
	struct resolver_update news, again;
	if (!resolver_read(&me[v6], frame, len, &news))
		return;
	must(resolver_wants(&me[v6], frame, len) && news.ip[0] != 0xff);
	must(!v6 || frame[21] == 255);
	if (!news.has_mac || memcmp(news.ip, me[v6].ip, v6 ? 16 : 4) == 0)
		return;
	must(!(news.mac[0] & 1) && memcmp(news.mac, me[v6].mac, 6) != 0);
	memcpy(them.mac, news.mac, 6);
	memcpy(them.ip, news.ip, 16);
	unsigned n = resolver_write_request(&me[v6], news.ip, news.mac, question);
	n = responder_write(&them, question, n, reply);
	must(n >= CONTROL_FRAME_BYTES_MIN && resolver_read(&me[v6], reply, n, &again));
	must(memcmp(again.ip, news.ip, v6 ? 16 : 4) == 0 && memcmp(again.mac, news.mac, 6) == 0);
}

static void check_pmtu(const uint8_t *frame, unsigned len, unsigned v6)
{
	struct pmtu_report news;
	unsigned heads = v6 ? 48 : 28;
	if (!pmtu_read(&me[v6], frame, len, &news))
		return;
	must(pmtu_wants(&me[v6], frame, len) && news.v6 == v6);
	must(news.body_bytes_max >= (v6 ? 1232 : 1024) && news.body_bytes_max + heads < news.packet_bytes);
	must(!pmtu_read(&me[!v6], frame, len, &news));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0 || size > UINT16_MAX)
		return 0;
	unsigned v6 = data[0] & 1, queues = 1 + (data[0] >> 2 & 15), len = (unsigned)size - 1;
	bool checked = data[0] & 2;
	uint8_t *frame = malloc(len ? len : 1); /* to the byte, so that a sanitizer sees a read past the end */
	must(frame);
	memcpy(frame, data + 1, len);
	struct frame_in in;
	enum frame_verdict verdict = frame_read(frame, len, &me[v6], queues, checked, &in);
	must(verdict == second_reader(frame, len, v6, queues, checked));
	if (verdict == FRAME_OURS) {
		must(in.queue < queues && in.payload + (unsigned)in.len <= len);
		check_again(frame, &in, v6, queues);
	}
	check_answer(frame, len, v6);
	check_news(frame, len, v6);
	check_pmtu(frame, len, v6);
	free(frame);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
