/* SPDX-License-Identifier: BSD-3-Clause */
/** Matches the arguments of a call with a signature, at the caller before anything is sent. Any thread. */
#include "base/error.h"
#include "base/hash.h"
#include "base/must.h"
#include "value/signature.h"

#include <inttypes.h>
#include <stdarg.h>

/* Quality of a match between an argument and its parameter, best first. */
enum rank {
	RANK_FORM,     /* Tensor<...>, the only type that the parameter takes */
	RANK_EXACT,    /* the only type that the parameter takes */
	RANK_ONE_OF,   /* one of several */
	RANK_ANY,      /* Any */
	RANK_TO_FLOAT, /* an int as a float */
	RANK_TO_BOOL   /* an int 0 or 1 as a bool */
};

/** FAR_BAD_ARGS: "f: what; the signature is f(...) -> ...". */
__attribute__((format(printf, 3, 4), cold, noinline)) static enum far_status
bad(const struct signature *s, struct far_err *err, const char *format, ...)
{
	char what[FAR_ERR_TEXT_MAX], shown[FAR_ERR_TEXT_MAX];
	va_list args;
	if (!err)
		return FAR_BAD_ARGS;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	return err_set(err, FAR_BAD_ARGS, "%s: %s; the signature is %s", s->name, what,
		       signature_show(s, shown, sizeof shown));
}

static enum far_status wrong_count(const struct signature *s, size_t n, struct far_err *err)
{
	if (s->params_n == 0)
		return bad(s, err, "takes no arguments, %zu given", n);
	if (s->required_n < s->params_n)
		return bad(s, err, "takes %u to %u arguments, %zu given", s->required_n, s->params_n, n);
	return bad(s, err, "takes %u argument%s, %zu given", s->params_n, s->params_n == 1 ? "" : "s", n);
}

static enum far_status wrong_type(const struct signature *s, size_t i, const struct far_val *v, struct far_err *err)
{
	static const char *const given[FAR_TYPE_COUNT] = {"none",     "a bool",    "an int",     "a float",
							  "a string", "bytes",     "a tensor",   "a list",
							  "a dict",   "an object", "a reference"};
	const struct signature_param *param = &s->params[i];
	char types[128];
	signature_set_name(s, param->set, types, sizeof types);
	if (v->type == FAR_TYPE_UINT)
		return bad(s, err, "argument %zu (%s) is %" PRIu64 ", beyond the largest int %" PRId64 "; wanted %s",
			   i + 1, param->name, (uint64_t)v->u.i, INT64_MAX, types);
	if (v->type >= FAR_TYPE_COUNT)
		return bad(s, err, "argument %zu (%s) is of the unknown type %u, wanted %s", i + 1, param->name,
			   v->type, types);
	if (v->type == FAR_TYPE_INT && (param->set.types >> FAR_TYPE_BOOL & 1))
		return bad(s, err, "argument %zu (%s) is the int %" PRId64 ", wanted %s or 0 or 1", i + 1, param->name,
			   v->u.i, types);
	if (v->type == FAR_TYPE_CUSTOM && v->u.custom.type && v->u.custom.type->name)
		return bad(s, err, "argument %zu (%s) is a %.64s, wanted %s", i + 1, param->name,
			   v->u.custom.type->name, types);
	if (v->type == FAR_TYPE_TENSOR)
		return bad(s, err, "argument %zu (%s) is a tensor of %s with %u dimensions, wanted %s", i + 1,
			   param->name, far_dtype_name((enum far_dtype)far_val_tensor(v)->dtype),
			   far_val_tensor(v)->ndim, types);
	return bad(s, err, "argument %zu (%s) is %s, wanted %s", i + 1, param->name, given[v->type], types);
}

bool signature_takes_custom(const struct signature *s, struct signature_set set, const struct far_val *v)
{
	if (set.customs == SIGNATURE_CUSTOMS_ALL)
		return true;
	const struct far_custom_type *type = v->u.custom.type;
	uint64_t hash = type && type->name ? hash64(type->name, strlen(type->name)) : v->u.custom.hash;
	for (unsigned i = 0; i < s->customs_n; i++)
		if ((set.customs >> i & 1) && s->customs[i].hash == hash)
			return true;
	return false;
}

static enum rank rank_of(struct signature_set set)
{
	if (set.customs == SIGNATURE_CUSTOMS_ALL)
		return RANK_ANY;
	int n = __builtin_popcount(set.types) + __builtin_popcount(set.customs);
	if (set.tensor && n == 0)
		return RANK_FORM;
	return n == 1 && !set.tensor ? RANK_EXACT : RANK_ONE_OF;
}

/** Converts the argument to a type of the set if needed; false: not possible. */
static bool take(const struct signature *s, struct signature_set set, struct far_val *v, enum rank *rank)
{
	*rank = rank_of(set);
	if (signature_takes(s, set, v))
		return true;
	if (v->type != FAR_TYPE_INT)
		return false;
	int64_t i = v->u.i;
	if (set.types >> FAR_TYPE_FLOAT & 1) {
		v->type = FAR_TYPE_FLOAT;
		v->u.f = (double)i;
		*rank = RANK_TO_FLOAT;
		return true;
	}
	if ((set.types >> FAR_TYPE_BOOL & 1) && (i == 0 || i == 1)) {
		v->type = FAR_TYPE_BOOL;
		v->u.b = i != 0;
		*rank = RANK_TO_BOOL;
		return true;
	}
	return false;
}

static struct far_val default_value(const struct signature *s, const struct signature_default *d)
{
	struct far_val v = far_none();
	v.type = d->type;
	if (d->type == FAR_TYPE_STRING) {
		v.u.s.data = s->strings + d->at;
		v.u.s.len = d->len;
	} else if (d->type == FAR_TYPE_BOOL) {
		v.u.b = d->u.b;
	} else if (d->type == FAR_TYPE_INT) {
		v.u.i = d->u.i;
	} else if (d->type == FAR_TYPE_FLOAT) {
		v.u.f = d->u.f;
	}
	return v;
}

/** Assigns arguments to parameters: of[parameter] is the index of its argument + 1; 0: none. */
static enum far_status assign(const struct signature *s, const struct far_val *args, size_t n, uint8_t *of,
			      struct far_err *err)
{
	bool keywords = false;
	for (size_t i = 0; i < n; i++) {
		unsigned k = (unsigned)i;
		if (!args[i].kw && keywords)
			return bad(s, err,
				   "argument %zu has no keyword but follows one with a keyword; pass positional ones "
				   "first",
				   i + 1);
		if (args[i].kw) {
			keywords = true;
			for (k = 0; k < s->params_n && strcmp(s->params[k].name, args[i].kw) != 0; k++)
				;
			if (k == s->params_n)
				return bad(s, err, "it has no parameter '%.64s'; use a name of its signature",
					   args[i].kw);
		}
		if (of[k])
			return bad(s, err,
				   "parameter '%s' is given twice, as argument %u and by keyword; leave one out",
				   s->params[k].name, of[k]);
		of[k] = (uint8_t)(i + 1);
	}
	return FAR_OK;
}

static enum far_status missing(const struct signature *s, size_t i, size_t n, struct far_err *err)
{
	char types[128];
	return bad(s, err, "argument %zu (%s) is missing among the %zu given; pass it, %s, by position or with FAR_KW",
		   i + 1, s->params[i].name, n, signature_set_name(s, s->params[i].set, types, sizeof types));
}

enum far_status signature_bind(const struct signature *s, const struct far_val *args, size_t n, struct far_val *out,
			       struct signature_match *match, struct far_err *err)
{
	uint8_t of[FAR_ARGS_MAX] = {0};
	size_t positional = 0;
	while (positional < n && !args[positional].kw)
		positional++;
	if (positional > s->params_n || n > FAR_ARGS_MAX)
		return wrong_count(s, n, err);
	enum far_status status = assign(s, args, n, of, err);
	if (status)
		return status;
	if (match)
		match->defaults = 0;
	for (unsigned k = 0; k < s->params_n; k++) {
		const struct signature_param *param = &s->params[k];
		enum rank rank;
		if (!of[k] && !param->def.given)
			return positional == n ? wrong_count(s, n, err) : missing(s, k, n, err);
		if (!of[k]) {
			out[k] = default_value(s, &param->def);
			if (match)
				match->defaults++;
			continue;
		}
		out[k] = args[of[k] - 1];
		out[k].kw = NULL;
		if (!take(s, param->set, &out[k], &rank))
			return wrong_type(s, k, &args[of[k] - 1], err);
		if (match)
			match->rank[of[k] - 1] = (uint8_t)rank;
	}
	return FAR_OK;
}

int signature_compare(const struct signature_match *a, const struct signature_match *b, size_t n)
{
	bool a_better = false, b_better = false;
	for (size_t i = 0; i < n; i++) {
		a_better |= a->rank[i] < b->rank[i];
		b_better |= b->rank[i] < a->rank[i];
	}
	if (a_better == b_better)
		return a_better ? 0 : (int)a->defaults - (int)b->defaults;
	return a_better ? -1 : 1;
}
