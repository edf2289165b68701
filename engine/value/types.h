/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Custom types of the process by hash of their name. Append-only and never freed, because a result may be decoded, and
 * its object destroyed, after the agent that received it was freed. A name means one type. Lookups take no lock.
 * Any thread.
 */
#ifndef FAR_VALUE_TYPES_H
#define FAR_VALUE_TYPES_H

#include "base/limits.h"

#include <farcall/value.h>

struct custom_type {
	struct far_custom_type type; /* with a copy of the name */
	uint64_t hash;
	uint32_t index; /* [0, FAR_TYPES_MAX) */
};

/**
 * Adds a type, or finds it if it was added before with the same functions and user pointer. Takes a lock. Errors:
 * INVALID (the name; a missing function; the name is in use), RESOURCE.
 */
enum far_status types_add(const struct far_custom_type *type, const struct custom_type **out, struct far_err *err);

/** By hash of the name; NULL: none. */
const struct custom_type *types_find(uint64_t hash);

/** True for a qualified name of at most `cap` - 1 bytes. */
bool types_name_ok(const char *name, size_t cap);

#endif
