/* SPDX-License-Identifier: BSD-3-Clause */
/** Classes of this library. Shard thread, and threads of blocking handlers. */
#ifndef FAR_LIBTRAIN_OBJECTS_H
#define FAR_LIBTRAIN_OBJECTS_H

#include "train.h"

#define PARAMETER_CLASS "far::Parameter"
#define OPTIMIZER_CLASS "far::Optimizer"
#define MODULE_CLASS    "far::Module"

/* Hyperparameters in a far::Optimizer's list: those of struct far_optimizer_opts, in order. */
#define OPTIMIZER_FIELDS 22
void optimizer_pack(const struct far_optimizer_opts *o, struct far_val packed[OPTIMIZER_FIELDS]);

/* Classes with their tables. */
struct objects {
	struct far_class classes[3];
	struct far_function parameter_makers[2], optimizer_makers[1];
	struct far_method parameter[2], optimizer[3], module[4];
};
void objects_fill(struct objects *objects, struct far_train *train);

/* Options of an agent with what this library needs in addition. */
struct train_opts {
	struct far_opts all; /* points to the rest */
	struct objects objects;
	struct far_function *functions;
	struct far_class *classes;
	struct far_custom_type *types;
};
/** `opts` may be NULL. RESOURCE. */
enum far_status train_opts_make(struct far_train *train, const struct far_opts *opts, struct train_opts *out,
				struct far_err *err);
void train_opts_free(struct train_opts *opts);

/** Frees the variables that never reached their object. */
void tokens_free(struct far_train *train);

#endif
