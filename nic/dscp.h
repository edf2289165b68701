/* SPDX-License-Identifier: BSD-3-Clause */
/** The class of service that IP packets carry for nic_tx.priority, as `dscp=` of drivers on IP networks says it: six
 * bits of the byte that IPv4 calls TOS and IPv6 traffic class. Pure functions; any thread. */
#ifndef FAR_NIC_DSCP_H
#define FAR_NIC_DSCP_H

#include "nic/nic.h"

#include <string.h>

/** Values of that byte, by priority. */
struct nic_dscp {
	uint8_t tos[NIC_PRIORITY_MAX + 1];
};

/* What bad input is told. */
#define NIC_DSCP_FORM "off, or eight numbers of [0, 63] with '/' between them, for priorities 0 to 7"

/** The class selectors CS0 to CS7. */
static inline void nic_dscp_init(struct nic_dscp *out)
{
	for (unsigned i = 0; i <= NIC_PRIORITY_MAX; i++)
		out->tos[i] = (uint8_t)(i << 5);
}

/** `text` of `len` bytes: NIC_DSCP_FORM; "off": all 0, which is what IP packets have anyway. 0, or -1 and `out` is as
 * it was. */
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

/** As an index: nothing is believed of the caller's. */
static inline uint8_t nic_dscp_of(const struct nic_dscp *d, uint8_t priority)
{
	return d->tos[priority <= NIC_PRIORITY_MAX ? priority : NIC_PRIORITY_MAX];
}

#endif
