/* SPDX-License-Identifier: BSD-3-Clause */
/** What a shard remembers of its last typed calls: call sites, and plans of arguments. Shard thread. */
#ifndef FAR_CORE_PLAN_H
#define FAR_CORE_PLAN_H

#include "value/line.h"
#include "value/signature.h"

struct function;

#define SHARD_SITES 64u
#define SHARD_PLANS 16u

/** A place of the application that calls a function: by the address of the name, whose text is compared each time. */
struct call_site {
	const char *name;          /* NULL: unused */
	const struct function *fn; /* of that name, the only one with its number of arguments */
	uint32_t name_len;
	struct line_form form; /* of the arguments of the last call */
};

/** How the arguments of the last request of a function came. */
struct line_plan {
	const struct function *fn; /* NULL: unused */
	struct line_form form;
	struct far_val args[LINE_ARGS_MAX]; /* the same, but for u.t.data */
};

/** Forgets the form of arguments that do not fit the signature without a conversion. */
static inline void plan_check(struct line_form *form, const struct signature *sig)
{
	bool fits = form->n == sig->params_n;
	for (unsigned i = 0; fits && i < form->n; i++)
		fits = sig->params[i].set.types >> FAR_TYPE_TENSOR & 1;
	if (!fits)
		line_forget(form);
}

#endif
