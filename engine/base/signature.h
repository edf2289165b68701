/* SPDX-License-Identifier: BSD-3-Clause */
/** Signatures of typed functions: parsing, the canonical text, and the check of arguments at the caller. Anyone. */
#ifndef FAR_BASE_SIGNATURE_H
#define FAR_BASE_SIGNATURE_H

#include <farcall/value.h>
#include <stdint.h>

#define SIGNATURE_NAME_MAX  128  /* bytes of a qualified name with its NUL */
#define SIGNATURE_PARAM_MAX 32   /* bytes of a parameter's name with its NUL */
#define SIGNATURE_TEXT_MAX  1024 /* bytes of a canonical signature with its NUL */

/* A set of types: bit (1 << enum far_type). */
typedef uint16_t signature_types;

struct signature_param {
	char name[SIGNATURE_PARAM_MAX];
	signature_types types;
};

struct signature {
	char name[SIGNATURE_NAME_MAX];
	uint64_t name_hash;      /* hash64 of the name */
	uint64_t canonical_hash; /* hash64 of the canonical text, which leaves out parameter names and spaces: what
				    travels */
	unsigned params_n;
	signature_types result;
	struct signature_param params[FAR_ARGS_MAX];
	char text[SIGNATURE_TEXT_MAX]; /* canonical: "vec::dot(Tensor,Tensor)->float" */
};

/** Parses; FAR_INVALID names the column and what was expected there. */
enum far_status signature_parse(const char *text, struct signature *out, struct far_err *err);

/**
 * Checks count, types and absence of keywords; copies the arguments to `out` with the allowed conversions applied (int
 * to float where only float is taken, int 0 or 1 to bool where only bool is taken). FAR_BAD_ARGS shows the function,
 * the argument by number and name, what is wanted and what was given.
 */
enum far_status signature_check(const struct signature *s, const struct far_val *args, size_t n, struct far_val *out,
				struct far_err *err);

/** Do positional arguments fit as they are, without a conversion. */
static inline bool signature_fits(const struct signature *s, const struct far_val *args, size_t n)
{
	if (n != s->params_n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (args[i].kw || args[i].type >= FAR_TYPE_COUNT || !(s->params[i].types >> args[i].type & 1))
			return false;
	return true;
}

/** Does a result fit. A none fits an empty set. */
bool signature_result_fits(const struct signature *s, const struct far_val *v);

/** "Tensor|int" of a set, into buf; returns buf. */
const char *signature_types_name(signature_types types, char *buf, size_t len);

#endif
