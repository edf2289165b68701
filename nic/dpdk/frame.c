/* SPDX-License-Identifier: BSD-3-Clause */
/** Precomputes the headers of a path. Control thread. */
#include "nic/dpdk/frame.h"

#define HOP_LIMIT 64 /* default of hosts (RFC 1700) */

static void init_v4(struct frame_path *path, const struct frame_addr *from, const struct frame_addr *to)
{
	uint8_t *ip = path->bytes + FRAME_MAC_BYTES;
	frame_store16(path->bytes + 12, frame_be16(0x0800));
	ip[0] = 0x45;
	frame_store16(ip + 6, frame_be16(0x4000)); /* Don't Fragment */
	ip[8] = HOP_LIMIT;
	ip[9] = 17;
	memcpy(ip + 12, from->ip, 4);
	memcpy(ip + 16, to->ip, 4);
	path->len = FRAME_V4_BYTES;
	path->ip_sum = frame_sum(ip, 20);
	path->udp_sum = frame_sum(ip + 12, 8);
}

static void init_v6(struct frame_path *path, const struct frame_addr *from, const struct frame_addr *to)
{
	uint8_t *ip = path->bytes + FRAME_MAC_BYTES;
	frame_store16(path->bytes + 12, frame_be16(0x86dd));
	ip[0] = 0x60;
	ip[6] = 17;
	ip[7] = HOP_LIMIT;
	memcpy(ip + 8, from->ip, 16);
	memcpy(ip + 24, to->ip, 16);
	path->len = FRAME_V6_BYTES;
	path->udp_sum = frame_sum(ip + 8, 32);
}

void frame_path_init(struct frame_path *path, const struct frame_addr *from, const struct frame_addr *to)
{
	memset(path, 0, sizeof *path);
	memcpy(path->bytes, to->mac, 6);
	memcpy(path->bytes + 6, from->mac, 6);
	if (to->v6)
		init_v6(path, from, to);
	else
		init_v4(path, from, to);
	uint8_t *udp = path->bytes + path->len - FRAME_UDP_BYTES;
	frame_store16(udp, frame_be16(from->port));
	frame_store16(udp + 2, frame_be16(to->port));
	path->udp_sum = frame_fold((uint64_t)path->udp_sum + frame_be16(17) + frame_sum(udp, FRAME_UDP_BYTES));
}
