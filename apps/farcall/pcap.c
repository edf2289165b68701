/* SPDX-License-Identifier: BSD-3-Clause */
#include "pcap.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define MAGIC_US UINT32_C(0xa1b2c3d4)
#define MAGIC_NS UINT32_C(0xa1b23c4d)
#define MAGIC_NG UINT32_C(0x0a0d0d0a)

enum { LINK_NULL = 0, LINK_ETHERNET = 1, LINK_RAW = 101, LINK_SLL = 113, LINK_SLL2 = 276 };
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
		return wrong(p, -EINVAL, "is damaged: frame %llu says that it has %u bytes; at most %u",
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
	inet_ntop(v6 ? AF_INET6 : AF_INET, ip + (v6 ? 8 : 12), host, sizeof host);
	snprintf(out->from, sizeof out->from, v6 ? "[%s]:%u" : "%s:%u", host, out->from_port);
	inet_ntop(v6 ? AF_INET6 : AF_INET, ip + (v6 ? 24 : 16), host, sizeof host);
	snprintf(out->to, sizeof out->to, v6 ? "[%s]:%u" : "%s:%u", host, out->to_port);
	return true;
}
