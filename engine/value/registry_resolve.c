/* SPDX-License-Identifier: BSD-3-Clause */
/** Chooses the overload of a call and checks its custom types. Any thread. */
#include "base/error.h"
#include "base/hash.h"
#include "value/registry.h"
#include "value/types.h"

#include <stdio.h>
#include <string.h>

const char *registry_overloads_text(const struct function *first, char *buf, size_t len)
{
	size_t at = 0;
	buf[0] = '\0';
	for (const struct function *f = first; f && at < len; f = registry_next(f))
		at += (size_t)snprintf(buf + at, len - at, "%s%s", at ? "; " : "", f->signature.text);
	return buf;
}

/** Writes the types of the arguments, "(tensor, int, alpha=float)". */
static void given(const struct far_val *args, size_t n, char *buf, size_t len)
{
	size_t at = (size_t)snprintf(buf, len, "(");
	for (size_t i = 0; i < n && at < len; i++) {
		const char *kw = args[i].kw;
		at += (size_t)snprintf(buf + at, len - at, "%s%.32s%s%s", i ? ", " : "", kw ? kw : "", kw ? "=" : "",
				       far_type_name((enum far_type)args[i].type));
	}
	if (at < len)
		snprintf(buf + at, len - at, ")");
}

static __attribute__((cold)) enum far_status several_or_none(const struct function *first, const struct function **fits,
							     unsigned fits_n, const struct far_val *args, size_t n,
							     struct far_err *err)
{
	char types[128], list[FAR_ERR_TEXT_MAX], one[FAR_ERR_TEXT_MAX];
	size_t at = 0;
	unsigned k = 0;
	given(args, n, types, sizeof types);
	list[0] = '\0';
	for (const struct function *f = first; f && at < sizeof list; f = registry_next(f)) {
		if (fits_n && (k == fits_n || fits[k] != f))
			continue;
		k++;
		at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? "; " : "",
				       signature_show(&f->signature, one, sizeof one));
	}
	if (fits_n)
		return err_set(
			err, FAR_BAD_ARGS,
			"%s: the arguments %s fit several overloads equally well; pass exactly the types of one: "
			"%s",
			first->signature.name, types, list);
	return err_set(err, FAR_BAD_ARGS, "%s: the arguments %s fit none of its overloads: %s", first->signature.name,
		       types, list);
}

enum far_status registry_resolve(const struct function *first, const struct far_val *args, size_t n,
				 const struct function **fn, struct far_val *out, struct far_err *err)
{
	const struct function *fits[FAR_OVERLOADS_MAX];
	struct signature_match match[FAR_OVERLOADS_MAX];
	unsigned fits_n = 0;
	*fn = first;
	if (!registry_next(first))
		return signature_bind(&first->signature, args, n, out, NULL, err);
	for (const struct function *f = first; f && fits_n < FAR_OVERLOADS_MAX; f = registry_next(f))
		if (signature_bind(&f->signature, args, n, out, &match[fits_n], NULL) == FAR_OK)
			fits[fits_n++] = f;
	for (unsigned i = 0; i < fits_n; i++) {
		bool best = true;
		for (unsigned k = 0; k < fits_n; k++)
			best = best && (k == i || signature_compare(&match[i], &match[k], n) < 0);
		if (best) {
			*fn = fits[i];
			return signature_bind(&fits[i]->signature, args, n, out, NULL, err);
		}
	}
	return several_or_none(first, fits, fits_n, args, n, err);
}

enum far_status registry_check_customs(const struct registry *r, const struct far_val *v, size_t n, struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (size_t i = 0; i < n && !status; i++) {
		if (v[i].type == FAR_TYPE_LIST) {
			status = registry_check_customs(r, v[i].u.list.items, v[i].u.list.n, err);
		} else if (v[i].type == FAR_TYPE_DICT) {
			for (size_t k = 0; k < v[i].u.dict.n && !status; k++)
				status = registry_check_customs(r, &v[i].u.dict.entries[k].value, 1, err);
		} else if (v[i].type == FAR_TYPE_CUSTOM) {
			const char *name = v[i].u.custom.type->name;
			const struct custom_type *t = types_find(hash64(name, strlen(name)));
			if (!t || !registry_has_type(r, t->index))
				return err_set(
					err, FAR_BAD_ARGS,
					"an argument holds a %.64s, and this type is not registered here; register "
					"it with far_register_type on both sides",
					name);
		}
	}
	return status;
}
