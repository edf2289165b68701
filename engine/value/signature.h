/* SPDX-License-Identifier: BSD-3-Clause */
/** Signatures of typed functions: parsing, canonical text, and matching of arguments at the caller. Any thread. */
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

/* A set of types without custom ones: bits 1 << enum far_type. */
typedef uint16_t signature_types;

#define SIGNATURE_CUSTOMS_ALL 0xffff

struct signature_set {
	signature_types types;
	uint16_t customs; /* bits 1 << index in signature.customs; SIGNATURE_CUSTOMS_ALL: any custom type */
	/* Of "Tensor<f32,2>": the dtype and, from bit 8 on, rank + 1 (0: any rank). `types` lacks tensors then, so that
	 * the paths that compare types alone leave these to signature_takes(). 0: `types` decides. */
	uint16_t tensor;
};

/** The default of a parameter. */
struct signature_default {
	bool given;       /* the parameter has one */
	uint8_t type;     /* enum far_type: none, bool, int, float or string */
	uint16_t at, len; /* string: offset and length in signature.strings */
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
	uint64_t canonical_hash; /* hash64 of `text`, without parameter names, defaults and spaces; sent in requests */
	unsigned params_n;
	unsigned required_n; /* parameters without a default; they come first */
	unsigned customs_n;
	struct signature_set result;
	struct signature_param params[FAR_ARGS_MAX];
	struct {
		uint64_t hash;
		char name[SIGNATURE_TYPE_MAX];
	} customs[SIGNATURE_CUSTOMS_MAX];
	size_t strings_n;
	char strings[SIGNATURE_STRINGS_MAX];
	size_t params_len;             /* bytes of `text` up to its closing bracket */
	char text[SIGNATURE_TEXT_MAX]; /* canonical: "vec::dot(Tensor,Tensor)->float" */
};

/** Quality of a match between arguments and a signature. */
struct signature_match {
	uint8_t rank[FAR_ARGS_MAX]; /* per argument, lower is better: enum rank in signature_bind.c */
	unsigned defaults;          /* parameters that take their default */
};

/** Parses a signature. FAR_INVALID names the column and the expected token. */
enum far_status signature_parse(const char *text, struct signature *out, struct far_err *err);

/**
 * Matches arguments and parameters, by position, by keyword or by default, and checks types. Writes out[0, params_n),
 * converted: an int to float if the parameter takes no int but float, an int 0 or 1 to bool if it takes bool only.
 * FAR_BAD_ARGS names the function, the argument, the remedy and the signature. `match` may be NULL.
 */
enum far_status signature_bind(const struct signature *s, const struct far_val *args, size_t n, struct far_val *out,
			       struct signature_match *match, struct far_err *err);

/** Compares two matches of the same n arguments. Below 0: `a` is better; above 0: `b` is; 0: neither. */
int signature_compare(const struct signature_match *a, const struct signature_match *b, size_t n);

/** True if the value is of "Tensor<...>" of the set. */
static inline bool signature_takes_tensor(struct signature_set set, const struct far_val *v)
{
	if (v->type != FAR_TYPE_TENSOR)
		return false;
	const struct far_tensor *t = far_val_tensor(v);
	return (set.tensor & 0xff) == t->dtype && (!(set.tensor >> 8) || set.tensor >> 8 == t->ndim + 1u);
}

/** True if the set contains the type of the value. Customs are compared by type or, before decoding, by hash. */
bool signature_takes_custom(const struct signature *s, struct signature_set set, const struct far_val *v);
static inline bool signature_takes(const struct signature *s, struct signature_set set, const struct far_val *v)
{
	if (v->type < FAR_TYPE_COUNT && (set.types >> v->type & 1))
		return true;
	if (set.tensor && signature_takes_tensor(set, v))
		return true;
	return v->type == FAR_TYPE_CUSTOM && signature_takes_custom(s, set, v);
}

/** True if every argument is positional and has a type of its parameter. May return false for custom types. */
static inline bool signature_fits(const struct signature *s, const struct far_val *args, size_t n)
{
	if (n != s->params_n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (args[i].kw || args[i].type >= FAR_TYPE_COUNT || !(s->params[i].set.types >> args[i].type & 1))
			return false;
	return true;
}

/** True if a function may return the value. */
static inline bool signature_result_fits(const struct signature *s, const struct far_val *v)
{
	return signature_takes(s, s->result, v);
}

/** Writes the set as "Tensor|int", cut at `len`. Returns `buf`. */
const char *signature_set_name(const struct signature *s, struct signature_set set, char *buf, size_t len);

/** Writes the signature as "f(Tensor a, float alpha=1) -> Tensor", cut at `len`. Returns `buf`. */
const char *signature_show(const struct signature *s, char *buf, size_t len);

#endif
