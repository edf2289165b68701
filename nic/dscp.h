/* SPDX-License-Identifier: BSD-3-Clause */
/** DSCP of IP packets by nic_tx.priority, set by `dscp=` of drivers on IP networks: the upper six bits of IPv4's TOS
 * byte and IPv6's traffic class. Pure functions; any thread. */
#ifndef FAR_NIC_DSCP_H
#define FAR_NIC_DSCP_H

#include "nic/nic.h"

#include <string.h>

/** TOS byte or traffic class, by priority. */
struct nic_dscp {
	uint8_t tos[NIC_PRIORITY_MAX + 1];
};

/* For error messages. */
#define NIC_DSCP_FORM "off, or eight numbers of [0, 63] with '/' between them, for priorities 0 to 7"

/** Sets the default: class selectors CS0 to CS7. */
static inline void nic_dscp_init(struct nic_dscp *out)
{
	for (unsigned i = 0; i <= NIC_PRIORITY_MAX; i++)
		out->tos[i] = (uint8_t)(i << 5);
}

/** Parses NIC_DSCP_FORM, `len` bytes of `text`. "off" sets all to 0, the default of IP packets. 0; -1: malformed, `out`
 * is unchanged. */
static inline int nic_dscp_parse(const char *text, size_t len, struct nic_dscp *out)
{
	struct nic_dscp d = {{0}};
	unsigned i = 0, n = 0, digits = 0;
	if (len == 3 && memcmp(text, "off", 3) == 0) {
		*out = d;
		return 0;
	}
	for (size_t at = 0; at <= len; at++) {
		char c = '/';
		if (at < len)
			c = text[at];
		if (c >= '0' && c <= '9' && digits < 2) {
			n = n * 10 + (unsigned)(c - '0');
			digits++;
		} else if (c == '/' && digits && n < 64 && i <= NIC_PRIORITY_MAX) {
			d.tos[i++] = (uint8_t)(n << 2);
			n = digits = 0;
		} else {
			return -1;
		}
	}
	if (i != NIC_PRIORITY_MAX + 1)
		return -1;
	*out = d;
	return 0;
}

/** Returns the byte for a priority; larger priorities count as NIC_PRIORITY_MAX. */
static inline uint8_t nic_dscp_of(const struct nic_dscp *d, uint8_t priority)
{
	return d->tos[priority <= NIC_PRIORITY_MAX ? priority : NIC_PRIORITY_MAX];
}

#endif
