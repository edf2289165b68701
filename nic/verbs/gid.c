/* SPDX-License-Identifier: BSD-3-Clause */
/** GIDs: on Ethernet they are IP addresses of the interface. Pure functions and queries of the device; control thread,
 * verbs_gid_text(): any thread. */
#include "nic/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

bool verbs_gid_is_v4(const uint8_t gid[16])
{
	return memcmp(gid, v4_mapped, sizeof v4_mapped) == 0;
}

bool verbs_gid_is_loopback(const uint8_t gid[16])
{
	static const uint8_t one[16] = {[15] = 1};
	return verbs_gid_is_v4(gid) ? gid[12] == 127 : memcmp(gid, one, sizeof one) == 0;
}

bool verbs_gid_is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

const char *verbs_gid_text(const uint8_t gid[16], char out[VERBS_GID_TEXT_MAX])
{
	bool v4 = verbs_gid_is_v4(gid);
	if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid + 12 : gid, out, VERBS_GID_TEXT_MAX))
		snprintf(out, VERBS_GID_TEXT_MAX, "?");
	return out;
}

static bool within(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	for (unsigned at = 0; at < bits; at += 8) {
		unsigned left = bits - at, mask = left >= 8 ? 0xff : 0xff & ~(0xffu >> left);
		if ((a[at / 8] ^ b[at / 8]) & mask)
			return false;
	}
	return true;
}

static bool is_in(const uint8_t gid[16], const char *listen)
{
	char text[64];
	uint8_t ip[16];
	bool v4 = !strchr(listen, ':');
	unsigned bits = v4 ? 32 : 128;
	if ((size_t)snprintf(text, sizeof text, "%s", listen) >= sizeof text)
		return false;
	char *slash = strchr(text, '/'), *end = text;
	if (slash) {
		*slash++ = 0;
		unsigned long n = strtoul(slash, &end, 10);
		if (*end || end == slash || n > bits)
			return false;
		bits = (unsigned)n;
	}
	if (inet_pton(v4 ? AF_INET : AF_INET6, text, ip) != 1 || v4 != verbs_gid_is_v4(gid))
		return false;
	static const uint8_t all[16];
	if (memcmp(ip, all, v4 ? 4 : 16) == 0) /* 0.0.0.0, :: */
		return true;
	return within(v4 ? gid + 12 : gid, ip, bits);
}

bool verbs_gid_is_named(const struct ibv_gid_entry *gid, const char *listen)
{
	char name[IF_NAMESIZE];
	if (gid->ndev_ifindex && if_indextoname(gid->ndev_ifindex, name) && strcmp(name, listen) == 0)
		return true;
	return is_in(gid->gid.raw, listen);
}

int verbs_gid_table(struct ibv_context *context, struct ibv_gid_entry **out)
{
	struct ibv_gid_entry *table = calloc(VERBS_GIDS_MAX, sizeof *table);
	if (!table)
		return -ENOMEM;
	ssize_t n = ibv_query_gid_table(context, table, VERBS_GIDS_MAX, 0);
	if (n < 0) {
		free(table);
		return (int)n;
	}
	*out = table;
	return (int)n;
}
