/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies into packets. Any thread. */
#ifndef FAR_BASE_COPY_H
#define FAR_BASE_COPY_H

#include <stddef.h>
#include <string.h>

/** As memcpy(), which is NULL. A driver has its own for its packets (nic_queue_ops.tx_copy). */
typedef void copy_fn(void *to, const void *from, size_t len);

static inline void copy_by(copy_fn *copy, void *to, const void *from, size_t len)
{
	if (copy)
		copy(to, from, len);
	else if (len)
		memcpy(to, from, len);
}

#endif
