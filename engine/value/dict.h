/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys of dicts: allowed types and equality. Any thread. */
#ifndef FAR_VALUE_DICT_H
#define FAR_VALUE_DICT_H

#include <farcall/value.h>
#include <stdbool.h>

enum dict_fault {
	DICT_OK,
	DICT_KEY_TYPE,      /* neither bool, int, float nor string */
	DICT_KEY_NAN,       /* a NaN equals no key */
	DICT_KEY_DUPLICATE, /* equal to an earlier one */
	DICT_TOO_LONG       /* more than FAR_DICT_MAX entries */
};

/** Returns the first fault of the keys, with its entry in `*at`. Linear time; 4 KiB of stack. */
enum dict_fault dict_check(const struct far_dict_entry *entries, size_t n, size_t *at);

/** True if both have the same type and value. */
bool dict_key_same(const struct far_val *a, const struct far_val *b);

#endif
