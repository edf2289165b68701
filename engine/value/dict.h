/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys of dicts: which can be keys, when two are the same. Anyone. */
#ifndef FAR_VALUE_DICT_H
#define FAR_VALUE_DICT_H

#include <farcall/value.h>
#include <stdbool.h>

enum dict_fault {
	DICT_OK,
	DICT_KEY_TYPE,  /* neither bool, int, float nor string */
	DICT_KEY_NAN,   /* equal to no key, itself included */
	DICT_KEY_TWICE, /* equal to an earlier one */
	DICT_TOO_LONG   /* more than FAR_DICT_MAX entries */
};

/** The first fault of the keys, `*at` the entry that has it. Takes time in proportion to n, and 4 KiB of stack. */
enum dict_fault dict_check(const struct far_dict_entry *entries, size_t n, size_t *at);

bool dict_key_same(const struct far_val *a, const struct far_val *b);

#endif
