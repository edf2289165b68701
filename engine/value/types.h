/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Custom types by their names' hashes. One table per process, append-only, never freed: a result may be decoded, and
 * its object ended, after the agent that received it. A name means one type in a process. Lookups take no lock.
 */
#ifndef FAR_VALUE_TYPES_H
#define FAR_VALUE_TYPES_H

#include "base/limits.h"

#include <farcall/value.h>

struct custom_type {
	struct far_custom_type type; /* its name is ours */
	uint64_t hash;
	uint32_t index; /* [0, FAR_TYPES_MAX) */
};

/**
 * Adds a type, or finds it as it was added before: the same functions and user pointer. INVALID (name, a function
 * missing, the name in use for something else), RESOURCE. Any thread; takes a lock.
 */
enum far_status types_add(const struct far_custom_type *type, const struct custom_type **out, struct far_err *err);

/** NULL when there is none. Any thread. */
const struct custom_type *types_find(uint64_t hash);

/** Is it a qualified name, of at most `cap` - 1 bytes. */
bool types_name_ok(const char *name, size_t cap);

#endif
