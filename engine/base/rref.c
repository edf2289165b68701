/* SPDX-License-Identifier: BSD-3-Clause */
/* Text of a remote reference. Any thread. */
#include "base/rref.h"

#include <inttypes.h>
#include <stdio.h>

const char *rref_text(const struct rref_base *r, char *buf, size_t len)
{
	snprintf(buf, len, "RRef(created_on=%" PRIu32 ", shard=%u, local_id=%" PRIu64 ", owner=%" PRIu32 ")",
		 rref_rank(r->id.incarnation), rref_creator_shard(r->id), r->id.number & RREF_COUNT_MASK,
		 rref_rank(r->owner));
	return buf;
}
