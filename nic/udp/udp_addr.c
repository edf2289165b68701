/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Parses and formats IP addresses, and encodes the published blob. Any thread. The blob:
 *
 *   0     version, 1
 *   1     queues Q, [1, UDP_QUEUES_MAX]
 *   2     addresses A, [1, UDP_ADDRS_MAX]
 *   3     0
 *   4     host, 8 bytes, little endian; 12 network namespace, the same
 *   20    Q ports, 2 bytes each, little endian, none 0
 *   …     A addresses: a byte of 4 or 6, plus 0x80 if it is valid on its host only; 4 or 16 bytes
 *
 * and nothing after them.
 */
#include "nic/udp/udp_addr.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION   1u
#define FIXED     20u
#define HOST_ONLY 0x80u

int udp_error(struct nic_err *err, int error, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	text_setv(err->text, sizeof err->text, format, args);
	va_end(args);
	return error;
}

bool udp_append(char *out, size_t cap, const char *format, ...)
{
	size_t len = strnlen(out, cap);
	if (len >= cap)
		return false;
	va_list args;
	va_start(args, format);
	int n = vsnprintf(out + len, cap - len, format, args);
	va_end(args);
	return n >= 0 && (size_t)n < cap - len;
}

/* ---- one address ---- */

static unsigned ip_bytes(const struct udp_ip *ip)
{
	return ip->family == AF_INET ? 4 : 16;
}

static void unmap(struct udp_ip *ip)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	if (ip->family != AF_INET6 || memcmp(ip->bytes, mapped, sizeof mapped) != 0)
		return;
	ip->family = AF_INET;
	memmove(ip->bytes, ip->bytes + 12, 4);
	memset(ip->bytes + 4, 0, 12);
	ip->scope = 0;
}

bool udp_ip_parse(const char *text, struct udp_ip *out)
{
	char copy[UDP_IP_TEXT_MAX];
	size_t len = strlen(text);
	struct udp_ip ip = {.family = AF_INET};
	bool brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';
	if (len >= sizeof copy)
		return false;
	snprintf(copy, sizeof copy, "%.*s", brackets ? (int)len - 2 : (int)len, text + brackets);
	if (!brackets && inet_pton(AF_INET, copy, ip.bytes) == 1) {
		*out = ip;
		return true;
	}
	char *scope = strchr(copy, '%');
	if (scope) {
		*scope++ = 0;
		ip.scope = if_nametoindex(scope);
	}
	ip.family = AF_INET6;
	if (inet_pton(AF_INET6, copy, ip.bytes) != 1 || (scope && (!ip.scope || !udp_ip_link_local(&ip))))
		return false;
	unmap(&ip);
	*out = ip;
	return true;
}

bool udp_subnet_parse(const char *text, struct udp_ip *out, unsigned *prefix)
{
	char copy[UDP_IP_TEXT_MAX];
	const char *slash = strchr(text, '/');
	if (!slash || (size_t)(slash - text) >= sizeof copy || slash[1] < '0' || slash[1] > '9')
		return false;
	snprintf(copy, sizeof copy, "%.*s", (int)(slash - text), text);
	char *end;
	unsigned long bits = strtoul(slash + 1, &end, 10);
	struct udp_ip ip;
	if (*end || !udp_ip_parse(copy, &ip) || bits > ip_bytes(&ip) * 8)
		return false;
	*out = ip;
	*prefix = (unsigned)bits;
	return true;
}

const char *udp_ip_text(const struct udp_ip *ip, char *out)
{
	char name[IF_NAMESIZE];
	if (!inet_ntop(ip->family, ip->bytes, out, UDP_IP_TEXT_MAX))
		snprintf(out, UDP_IP_TEXT_MAX, "(no address)");
	if (ip->scope)
		udp_append(out, UDP_IP_TEXT_MAX, "%%%s", if_indextoname(ip->scope, name) ? name : "?");
	return out;
}

bool udp_ip_same(const struct udp_ip *a, const struct udp_ip *b)
{
	return a->family == b->family && memcmp(a->bytes, b->bytes, ip_bytes(a)) == 0;
}

bool udp_ip_within(const struct udp_ip *ip, const struct udp_ip *net, unsigned prefix)
{
	if (ip->family != net->family || prefix > ip_bytes(ip) * 8)
		return false;
	unsigned whole = prefix / 8, rest = prefix % 8;
	if (memcmp(ip->bytes, net->bytes, whole) != 0)
		return false;
	return rest == 0 || ((ip->bytes[whole] ^ net->bytes[whole]) >> (8 - rest)) == 0;
}

bool udp_ip_loopback(const struct udp_ip *ip)
{
	return ip->family == AF_INET ? ip->bytes[0] == 127 : memcmp(ip->bytes, &in6addr_loopback, 16) == 0;
}

bool udp_ip_link_local(const struct udp_ip *ip)
{
	if (ip->family == AF_INET)
		return ip->bytes[0] == 169 && ip->bytes[1] == 254;
	return ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80;
}

bool udp_ip_any(const struct udp_ip *ip)
{
	static const uint8_t zero[16];
	return memcmp(ip->bytes, zero, ip_bytes(ip)) == 0;
}

bool udp_ip_publishable(const struct udp_ip *ip)
{
	bool multicast = ip->family == AF_INET ? ip->bytes[0] >= 224 : ip->bytes[0] == 0xff;
	return (ip->family == AF_INET || ip->family == AF_INET6) && !multicast && !udp_ip_any(ip);
}

socklen_t udp_ip_sockaddr(const struct udp_ip *ip, uint16_t port, bool mapped, struct sockaddr_in6 *out)
{
	memset(out, 0, sizeof *out);
	if (ip->family == AF_INET && !mapped) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
		memcpy(&in.sin_addr, ip->bytes, 4);
		memcpy(out, &in, sizeof in);
		return sizeof in;
	}
	out->sin6_family = AF_INET6;
	out->sin6_port = htons(port);
	if (ip->family == AF_INET) {
		memset(out->sin6_addr.s6_addr + 10, 0xff, 2);
		memcpy(out->sin6_addr.s6_addr + 12, ip->bytes, 4);
	} else {
		memcpy(&out->sin6_addr, ip->bytes, 16);
		out->sin6_scope_id = ip->scope;
	}
	return sizeof *out;
}

bool udp_ip_from_sockaddr(const struct sockaddr *sa, struct udp_ip *ip, uint16_t *port)
{
	memset(ip, 0, sizeof *ip);
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, sa, sizeof in);
		ip->family = AF_INET;
		memcpy(ip->bytes, &in.sin_addr, 4);
		*port = ntohs(in.sin_port);
		return true;
	}
	if (sa->sa_family != AF_INET6)
		return false;
	struct sockaddr_in6 in6;
	memcpy(&in6, sa, sizeof in6);
	ip->family = AF_INET6;
	memcpy(ip->bytes, &in6.sin6_addr, 16);
	ip->scope = udp_ip_link_local(ip) ? in6.sin6_scope_id : 0;
	*port = ntohs(in6.sin6_port);
	unmap(ip);
	return true;
}

/* ---- published addresses ---- */

void udp_ips_text(const struct udp_published *ips, unsigned n, char *out, size_t cap)
{
	char text[UDP_IP_TEXT_MAX];
	for (unsigned i = 0; i < n; i++)
		if (!udp_append(out, cap, "%s%s", i ? ", " : "", udp_ip_text(&ips[i].ip, text)))
			return;
}

/* "7000", "7000-7003" if they are consecutive, else all of them. */
static void ports_text(const struct udp_addr *addr, char *out, size_t cap)
{
	bool in_a_row = true;
	for (unsigned i = 1; i < addr->queues; i++)
		in_a_row = in_a_row && addr->ports[i] == addr->ports[0] + i;
	snprintf(out, cap, "%u", addr->ports[0]);
	if (in_a_row && addr->queues > 1)
		udp_append(out, cap, "-%u", addr->ports[addr->queues - 1]);
	for (unsigned i = 1; !in_a_row && i < addr->queues; i++)
		udp_append(out, cap, "/%u", addr->ports[i]);
}

void udp_addr_text(const struct udp_addr *addr, char *out, size_t cap)
{
	char text[UDP_IP_TEXT_MAX], ports[UDP_QUEUES_MAX * 6];
	ports_text(addr, ports, sizeof ports);
	for (unsigned i = 0; i < addr->ips_n; i++) {
		const struct udp_ip *ip = &addr->ips[i].ip;
		bool six = ip->family == AF_INET6;
		udp_append(out, cap, "%s%s%s%s:%s", i ? ", " : "", six ? "[" : "", udp_ip_text(ip, text),
			   six ? "]" : "", ports);
	}
}

static void put_le(uint8_t *at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> i * 8);
}

static uint64_t get_le(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << i * 8;
	return value;
}

uint16_t udp_addr_encode(const struct udp_addr *addr, uint8_t *blob)
{
	blob[0] = VERSION;
	blob[1] = (uint8_t)addr->queues;
	blob[2] = (uint8_t)addr->ips_n;
	blob[3] = 0;
	put_le(blob + 4, addr->host, 8);
	put_le(blob + 12, addr->netns, 8);
	unsigned at = FIXED;
	for (unsigned i = 0; i < addr->queues; i++, at += 2)
		put_le(blob + at, addr->ports[i], 2);
	for (unsigned i = 0; i < addr->ips_n; i++) {
		const struct udp_published *p = &addr->ips[i];
		unsigned bytes = ip_bytes(&p->ip);
		blob[at++] = (uint8_t)((bytes == 4 ? 4 : 6) | (p->host_only ? HOST_ONLY : 0));
		memcpy(blob + at, p->ip.bytes, bytes);
		at += bytes;
	}
	_Static_assert(FIXED + 2 * UDP_QUEUES_MAX + 17 * UDP_ADDRS_MAX <= UDP_BLOB_MAX, "the largest fits");
	return (uint16_t)at;
}

bool udp_addr_decode(const uint8_t *blob, size_t len, struct udp_addr *out)
{
	if (len < FIXED || len > NIC_ADDR_BYTES_MAX || blob[0] != VERSION || blob[3] != 0)
		return false;
	memset(out, 0, sizeof *out);
	out->queues = blob[1];
	out->ips_n = blob[2];
	if (!out->queues || out->queues > UDP_QUEUES_MAX || !out->ips_n || out->ips_n > UDP_ADDRS_MAX)
		return false;
	out->host = get_le(blob + 4, 8);
	out->netns = get_le(blob + 12, 8);
	size_t at = FIXED;
	if (len - at < 2 * (size_t)out->queues)
		return false;
	for (unsigned i = 0; i < out->queues; i++, at += 2) {
		out->ports[i] = (uint16_t)get_le(blob + at, 2);
		if (!out->ports[i])
			return false;
	}
	for (unsigned i = 0; i < out->ips_n; i++) {
		struct udp_published *p = &out->ips[i];
		uint8_t kind = at < len ? blob[at++] : 0;
		if ((kind & ~HOST_ONLY) != 4 && (kind & ~HOST_ONLY) != 6)
			return false;
		p->host_only = kind & HOST_ONLY;
		p->ip.family = (kind & ~HOST_ONLY) == 4 ? AF_INET : AF_INET6;
		unsigned bytes = ip_bytes(&p->ip);
		if (len - at < bytes)
			return false;
		memcpy(p->ip.bytes, blob + at, bytes);
		at += bytes;
		unmap(&p->ip);
		if (!udp_ip_publishable(&p->ip))
			return false;
	}
	return at == len;
}
