/* SPDX-License-Identifier: BSD-3-Clause */
/** --tenants and --memory of `farcall pserver`. Main thread. */
#ifndef PSERVER_TENANTS_H
#define PSERVER_TENANTS_H

#include <farcall/ps.h>

#define TENANTS_TEXT_MAX 4096

struct tenants {
	size_t n;
	struct far_ps_tenant at[FAR_PS_TENANTS_MAX];
	char text[TENANTS_TEXT_MAX]; /* of the prefixes */
};

/** Reads "PREFIX:rows=N:bytes=SIZE:tables=N,…"; `text` NULL: none. `memory`: bound of the bytes of all tables, 0: none.
 * 0, or an exit status after a message. */
int tenants_read(const char *program, const char *text, uint64_t memory, struct tenants *out);

#endif
