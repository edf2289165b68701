/* SPDX-License-Identifier: BSD-3-Clause */
/** Signatures of typed functions: parsing, the canonical text, and the check of arguments at the caller. Anyone. */
#ifndef FAR_VALUE_SIGNATURE_H
#define FAR_VALUE_SIGNATURE_H

#include <farcall/value.h>
#include <stdint.h>

#define SIGNATURE_NAME_MAX    128  /* bytes of a qualified name with its NUL */
#define SIGNATURE_PARAM_MAX   32   /* bytes of a parameter's name with its NUL */
#define SIGNATURE_TYPE_MAX    64   /* bytes of a custom type's name with its NUL */
#define SIGNATURE_CUSTOMS_MAX 8    /* custom types that a signature names */
#define SIGNATURE_STRINGS_MAX 256  /* bytes of its default strings with their NULs */
#define SIGNATURE_TEXT_MAX    2048 /* bytes of a canonical signature with its NUL */

/* A set of types: bit (1 << enum far_type), but for custom types, which are in `customs`. */
typedef uint16_t signature_types;

#define SIGNATURE_CUSTOMS_ALL 0xffff

struct signature_set {
	signature_types types;
	uint16_t customs; /* bit (1 << index of the signature's customs); SIGNATURE_CUSTOMS_ALL: any custom type */
};

/** What is passed for a parameter that is not given. */
struct signature_default {
	bool given;
	uint8_t type;     /* enum far_type: none, bool, int, float or string */
	uint16_t at, len; /* string: place in the signature's `strings` */
	union {
		bool b;
		int64_t i;
		double f;
	} u;
};

struct signature_param {
	char name[SIGNATURE_PARAM_MAX];
	struct signature_set set;
	struct signature_default def;
};

struct signature {
	char name[SIGNATURE_NAME_MAX];
	uint64_t name_hash;      /* hash64 of the name */
	uint64_t canonical_hash; /* hash64 of the canonical text, which leaves out parameter names, defaults and spaces:
				    what travels */
	unsigned params_n;
	unsigned required_n; /* the first ones, without a default */
	unsigned customs_n;
	struct signature_set result;
	struct signature_param params[FAR_ARGS_MAX];
	struct {
		uint64_t hash;
		char name[SIGNATURE_TYPE_MAX];
	} customs[SIGNATURE_CUSTOMS_MAX];
	size_t strings_n;
	char strings[SIGNATURE_STRINGS_MAX];
	size_t params_len;             /* of the canonical text up to its closing bracket */
	char text[SIGNATURE_TEXT_MAX]; /* canonical: "vec::dot(Tensor,Tensor)->float" */
};

/** How well arguments fit. */
struct signature_match {
	uint8_t rank[FAR_ARGS_MAX]; /* per argument given, lower is better: see rank_of() */
	unsigned defaults;          /* parameters that take their default */
};

/** Parses; FAR_INVALID names the column and what was expected there. */
enum far_status signature_parse(const char *text, struct signature *out, struct far_err *err);

/**
 * Finds the argument of each parameter, by position, by keyword or by default, checks its type, and writes
 * out[0, params_n), with the allowed conversions applied: int to float where only float is taken, int 0 or 1 to bool
 * where only bool is. FAR_BAD_ARGS names the function, the argument and the remedy, and shows the signature. `match`
 * may be NULL.
 */
enum far_status signature_bind(const struct signature *s, const struct far_val *args, size_t n, struct far_val *out,
			       struct signature_match *match, struct far_err *err);

/** Below 0: `a` is the better match of the same n arguments; above: `b`; 0: neither. */
int signature_compare(const struct signature_match *a, const struct signature_match *b, size_t n);

/** Does a set take the value as it is. Customs by their type, or, before they are decoded, by their hash. */
bool signature_takes_custom(const struct signature *s, struct signature_set set, const struct far_val *v);
static inline bool signature_takes(const struct signature *s, struct signature_set set, const struct far_val *v)
{
	if (v->type < FAR_TYPE_COUNT && (set.types >> v->type & 1))
		return true;
	return v->type == FAR_TYPE_CUSTOM && signature_takes_custom(s, set, v);
}

/** Do positional arguments fit as they are, without a conversion. False negatives: customs. */
static inline bool signature_fits(const struct signature *s, const struct far_val *args, size_t n)
{
	if (n != s->params_n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (args[i].kw || args[i].type >= FAR_TYPE_COUNT || !(s->params[i].set.types >> args[i].type & 1))
			return false;
	return true;
}

/** Does a result fit. */
static inline bool signature_result_fits(const struct signature *s, const struct far_val *v)
{
	return signature_takes(s, s->result, v);
}

/** "Tensor|int" of a set, into buf; returns buf. What does not fit is cut. */
const char *signature_set_name(const struct signature *s, struct signature_set set, char *buf, size_t len);

/** "f(Tensor a, float alpha=1) -> Tensor", into buf; returns buf. What does not fit is cut. */
const char *signature_show(const struct signature *s, char *buf, size_t len);

#endif
