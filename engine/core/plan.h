/* SPDX-License-Identifier: BSD-3-Clause */
/** What a shard remembers of its last typed calls: call sites, and plans of arguments. Shard thread. */
#ifndef FAR_CORE_PLAN_H
#define FAR_CORE_PLAN_H

#include "value/line.h"
#include "value/signature.h"

struct function;

#define SHARD_SITES 64u
#define SHARD_PLANS 16u

/** A place of the application that calls a function, or a method of a class: by the address of the name, whose text is
 * compared each time; or a part of a handle, struct far_callee. */
struct call_site {
	const char *at;            /* `name`, unless its page ends before any text would: no name then */
	uint64_t cls;              /* of a method: hash of its class, + 1; 1: a function; 0: unused */
	const struct function *fn; /* of that name, the only one with its number of arguments */
	uint64_t first, last;      /* the first and the last 8 bytes of the text with its NUL; of a shorter one, all */
	uint64_t mask;             /* the bits of these words that the text takes */
	uint32_t last_at;          /* offset of `last` */
	uint32_t size;             /* bytes of the text with its NUL */
	uint32_t index;            /* of the function */
	uint32_t what;             /* of its calls: call.what */
	struct line_form form;     /* of the arguments of the last call */
	const char *name;
	const char *text; /* the name's, in `fn` */
};

/** How the last request of a function that may run on the burst came. */
struct line_plan {
	uint32_t word;             /* first of its head (core/fast.h); 0: unused */
	uint32_t tail;             /* bytes of the body behind the arguments: of a method, the count of its object */
	const struct function *fn; /* that the word names */
	struct line_form form;     /* form.len: with the tail */
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
