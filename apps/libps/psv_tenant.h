/* SPDX-License-Identifier: BSD-3-Clause */
/** Bounds of the tables whose names have a prefix in common. The thread that polls the shard, unless stated otherwise.
 */
#ifndef PSV_TENANT_H
#define PSV_TENANT_H

#include "psv_shard.h"

struct psv_tenant {
	char prefix[PSV_NAME_BYTES];
	uint64_t rows, bytes; /* of the whole service; UINT64_MAX: no bound */
	unsigned tables;
};

/** Copies the tenants of a server. Any thread. INVALID; RESOURCE. */
enum far_status psv_tenants_copy(const struct far_ps_tenant *from, size_t n, struct psv_tenant **out,
				 struct far_err *err);

/** Checks that one more table may be made. RESOURCE: its tenant has as many as it may. */
enum far_status psv_tenants_check(const struct psv_shard *s, const char *name, struct far_err *err);

/** Bounds the rows of a table by the room that its tenants have left, before a request that may make rows. */
void psv_tenants_bound(const struct psv_shard *s, const struct psv_table *t);

#endif
