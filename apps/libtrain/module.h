/* SPDX-License-Identifier: BSD-3-Clause */
/** Modules and their parts. Any thread; changes by one at a time. */
#ifndef FAR_LIBTRAIN_MODULE_H
#define FAR_LIBTRAIN_MODULE_H

#include "fail.h"
#include "pool.h"

#include <farcall/module.h>
#include <stdatomic.h>

#define MODULE_WORD_MAX (FAR_MODULE_NAME_MAX / FAR_MODULE_DEPTH_MAX) /* bytes of a part of a name with its NUL */

/* A parameter or a module inside; one of the two. */
struct part {
	struct part *next;
	struct far_var *var;
	struct far_module *module;
	char name[MODULE_WORD_MAX];
};

struct layer {
	const char *name;
	struct far_var *(*forward)(struct far_module *module, struct far_tape *tape, struct far_var *x);
	struct far_var *(*forward_state)(struct far_module *module, struct far_tape *tape, struct far_var *x,
					 struct far_var *state[2]); /* NULL: no state */
};

struct far_module {
	struct far_pool *pool;
	const struct layer *layer;
	const struct far_module_class *cls; /* of the application; NULL: one of this library */
	void *user;
	struct part *parts; /* in the order of their adding */
	unsigned height;    /* modules inside each other, this one included */
	bool owned;         /* by another module */
	bool training;

	/* What the layers need, each its own. */
	bool sparse;
	enum far_module_map map;
	struct far_op_conv conv;
	uint64_t hidden;
	double eps, p;
	uint64_t seed, stream_base;
	_Atomic uint64_t stream; /* dropout: forwards so far */
};

enum far_status module_make(struct far_pool *pool, const struct layer *layer, struct far_module **module,
			    struct far_err *err);
/** The parameter of this name of the module itself. NULL: there is none. */
struct far_var *module_own(const struct far_module *module, const char *name);
/** Adds a parameter with values uniform in [-bound, bound); bound 0: normal. */
enum far_status module_random(struct far_module *module, struct far_init *init, const char *name, unsigned ndim,
			      const uint64_t *shape, double bound, struct far_err *err);
/** Adds a parameter of one value. */
enum far_status module_filled(struct far_module *module, struct far_init *init, const char *name, unsigned ndim,
			      const uint64_t *shape, double value, struct far_err *err);

#endif
