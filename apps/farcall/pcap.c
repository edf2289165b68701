/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads pcap files and extracts UDP and RoCE v2 payloads; checks every length. Main thread. */
#include "pcap.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define MAGIC_US UINT32_C(0xa1b2c3d4)
#define MAGIC_NS UINT32_C(0xa1b23c4d)
#define MAGIC_NG UINT32_C(0x0a0d0d0a)

enum { LINK_NULL = 0, LINK_ETHERNET = 1, LINK_RAW = 101, LINK_SLL = 113, LINK_SLL2 = 276 };
enum { ROCE_PORT = 4791 };
enum { TYPE_V4 = 0x0800, TYPE_V6 = 0x86dd, TYPE_VLAN = 0x8100, TYPE_QINQ = 0x88a8, PROTOCOL_UDP = 17 };

__attribute__((format(printf, 3, 4))) static int wrong(struct pcap *p, int error, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(p->text, sizeof p->text, format, args);
	va_end(args);
	return error;
}

static uint32_t word(const struct pcap *p, const uint8_t *at)
{
	uint32_t x;
	memcpy(&x, at, sizeof x);
	return p->swapped ? __builtin_bswap32(x) : x;
}

/* `what` is cut short, or cannot be read. */
static int short_read(struct pcap *p, const char *what)
{
	if (ferror(p->file))
		return wrong(p, -EIO, "cannot be read: %s", strerror(errno));
	return wrong(p, -ENODATA, "ends inside %s; what was before it is complete", what);
}

int pcap_open(struct pcap *p, FILE *file)
{
	uint8_t head[24];
	p->file = file;
	p->swapped = false;
	p->frames = 0;
	if (fread(head, 1, sizeof head, file) < sizeof head)
		return ferror(file) ? short_read(p, "its head")
				    : wrong(p, -EINVAL, "is no pcap file: it is shorter than the head of one");
	uint32_t magic = word(p, head);
	if (magic == MAGIC_NG)
		return wrong(p, -EINVAL, "is a pcapng file; convert it: editcap -F pcap IN OUT");
	p->swapped = magic == __builtin_bswap32(MAGIC_US) || magic == __builtin_bswap32(MAGIC_NS);
	magic = word(p, head);
	if (magic != MAGIC_US && magic != MAGIC_NS)
		return wrong(p, -EINVAL, "is no pcap file");
	p->nanoseconds = magic == MAGIC_NS;
	p->link_type = word(p, head + 20) & 0xffff;
	if (p->link_type != LINK_NULL && p->link_type != LINK_ETHERNET && p->link_type != LINK_RAW &&
	    p->link_type != LINK_SLL && p->link_type != LINK_SLL2)
		return wrong(p, -EINVAL, "has frames of link type %u; known are Ethernet, raw IP, loopback and 'any'",
			     p->link_type);
	return 0;
}

int pcap_next(struct pcap *p, struct pcap_frame *out)
{
	uint8_t head[16];
	size_t n = fread(head, 1, sizeof head, p->file);
	if (n == 0 && !ferror(p->file))
		return 0;
	if (n < sizeof head)
		return short_read(p, "the head of a frame");
	uint32_t len = word(p, head + 8);
	if (len > PCAP_FRAME_MAX)
		return wrong(p, -EINVAL, "is damaged: the length of frame %llu is %u bytes; at most %u",
			     (unsigned long long)p->frames + 1, len, PCAP_FRAME_MAX);
	if (fread(p->frame, 1, len, p->file) < len)
		return short_read(p, "a frame");
	uint64_t fraction = word(p, head + 4);
	*out = (struct pcap_frame){.number = ++p->frames,
				   .time_ns = word(p, head) * UINT64_C(1000000000) +
					      fraction * (p->nanoseconds ? 1 : 1000),
				   .bytes = p->frame,
				   .len = len};
	return 1;
}

static uint16_t be(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/* Where the IP packet begins; 0: there is none. */
static uint32_t ip_at(uint32_t link_type, const uint8_t *frame, uint32_t len)
{
	uint32_t at;
	switch (link_type) {
	case LINK_RAW:
		return len ? UINT32_MAX : 0;
	case LINK_NULL:
		return len > 4 ? 4 : 0;
	case LINK_SLL:
		return len > 16 && (be(frame + 14) == TYPE_V4 || be(frame + 14) == TYPE_V6) ? 16 : 0;
	case LINK_SLL2:
		return len > 20 && (be(frame) == TYPE_V4 || be(frame) == TYPE_V6) ? 20 : 0;
	default:
		for (at = 12; at + 2 < len && (be(frame + at) == TYPE_VLAN || be(frame + at) == TYPE_QINQ);)
			at += 4;
		return at + 2 < len && (be(frame + at) == TYPE_V4 || be(frame + at) == TYPE_V6) ? at + 2 : 0;
	}
}

static uint32_t be24(const uint8_t *at)
{
	return (uint32_t)at[0] << 16 | (uint32_t)be(at + 1);
}

/*
 * RoCE v2: in place of the datagram what an unreliable one of InfiniBand carries (volume 1 of its specification, 9.2
 * and 9.3.4: base and datagram header, the immediate word of one kind; behind the payload 0 to 3 bytes of padding and a
 * CRC). `total` bytes were sent.
 */
static bool roce(struct pcap_datagram *d, uint32_t total, uint32_t from[static 1], uint32_t to[static 1])
{
	enum { BTH = 12, DETH = 8, IMMEDIATE = 4, ICRC = 4, UD_SEND_ONLY = 0x64, UD_SEND_ONLY_IMMEDIATE = 0x65 };
	uint32_t head = BTH + DETH, behind;
	if (d->len < head || (d->bytes[0] != UD_SEND_ONLY && d->bytes[0] != UD_SEND_ONLY_IMMEDIATE))
		return false;
	if (d->bytes[0] == UD_SEND_ONLY_IMMEDIATE)
		head += IMMEDIATE;
	behind = ICRC + (d->bytes[1] >> 4 & 3u);
	if (d->len < head || total < head + behind)
		return false;
	*to = be24(d->bytes + 5);
	*from = be24(d->bytes + 17);
	d->cut = d->len < total - behind;
	d->len = (d->cut ? d->len : total - behind) - head;
	d->bytes += head;
	return true;
}

bool pcap_udp(uint32_t link_type, const uint8_t *frame, uint32_t len, struct pcap_datagram *out)
{
	char host[INET6_ADDRSTRLEN];
	uint32_t at = ip_at(link_type, frame, len), udp = 0;
	if (!at)
		return false;
	at = at == UINT32_MAX ? 0 : at;
	const uint8_t *ip = frame + at;
	uint32_t room = len - at;
	bool v6 = ip[0] >> 4 == 6;
	if (v6 && room >= 48 && ip[6] == PROTOCOL_UDP)
		udp = 40;
	else if (!v6 && ip[0] >> 4 == 4 && room >= 28 && ip[9] == PROTOCOL_UDP && (be(ip + 6) & 0x1fff) == 0)
		udp = (ip[0] & 15u) * 4;
	if (udp < 20 || udp + 8 > room)
		return false;
	out->from_port = be(ip + udp);
	out->to_port = be(ip + udp + 2);
	uint32_t total = be(ip + udp + 4);
	if (total < 8)
		return false;
	out->bytes = ip + udp + 8;
	out->cut = total > room - udp;
	out->len = (out->cut ? room - udp : total) - 8;
	uint32_t from = out->from_port, to = out->to_port;
	const char *open = v6 ? "[" : "", *close = v6 ? "]" : "", *at_port = ":";
	if (out->to_port == ROCE_PORT) {
		if (!roce(out, total - 8, &from, &to))
			return false;
		at_port = "/qp";
	}
	inet_ntop(v6 ? AF_INET6 : AF_INET, ip + (v6 ? 8 : 12), host, sizeof host);
	snprintf(out->from, sizeof out->from, "%s%s%s%s%u", open, host, close, at_port, from);
	inet_ntop(v6 ? AF_INET6 : AF_INET, ip + (v6 ? 24 : 16), host, sizeof host);
	snprintf(out->to, sizeof out->to, "%s%s%s%s%u", open, host, close, at_port, to);
	return true;
}
