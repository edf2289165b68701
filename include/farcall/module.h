/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Modules: parameters with names and a forward function. Part of libfarcall-train.
 *
 * Names, shapes, initial distributions and the order of gates are those of torch.nn, so that a state saved by PyTorch
 * as safetensors can be loaded: "0.weight" is the parameter "weight" of the first module of a sequence.
 *
 * Thread: several threads may run far_module_forward() of one module at once, each with a tape of its own. Functions
 * that change a module run alone.
 */
#ifndef FARCALL_MODULE_H
#define FARCALL_MODULE_H

#include <farcall/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct far_module;

#define FAR_MODULE_NAME_MAX  2048 /* bytes of the full name of a parameter with its NUL */
#define FAR_MODULE_DEPTH_MAX 32   /* modules inside each other */

/** Where initial values come from: each parameter takes the next stream of random numbers, see <farcall/ops.h>. The
 * same seed gives the same values on every machine. */
struct far_init {
	enum far_dtype dtype; /* F; FAR_DTYPE_NONE: f32 */
	uint64_t seed;
	uint64_t stream; /* the next one */
};

/* ---- Making ----
 *
 * `*module` is the caller's: far_module_free(). It is made from `pool`, which may be freed first. Errors: INVALID (a
 * size of 0 or out of range, a dtype that is not F), TOO_LARGE, RESOURCE. */

/** weight [out, in] and bias [out], uniform in ±1/√in. */
enum far_status far_module_linear(struct far_pool *pool, struct far_init *init, uint64_t in, uint64_t out, bool bias,
				  struct far_module **module, struct far_err *err);
/** weight [rows, width], normal. The input is an index of any shape. `sparse`: as in far_tape_embedding(). */
enum far_status far_module_embedding(struct far_pool *pool, struct far_init *init, uint64_t rows, uint64_t width,
				     bool sparse, struct far_module **module, struct far_err *err);
/** weight [out, channels / groups, height, width] and bias [out], uniform in ±1/√(elements of weight for an output). */
enum far_status far_module_conv2d(struct far_pool *pool, struct far_init *init, uint64_t channels, uint64_t out,
				  const uint64_t kernel[2], const struct far_op_conv *conv, bool bias,
				  struct far_module **module, struct far_err *err);
/**
 * weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, uniform in ±1/√hidden. The input is [time, n, in], the result
 * [time, n, hidden].
 */
enum far_status far_module_lstm(struct far_pool *pool, struct far_init *init, uint64_t in, uint64_t hidden, bool bias,
				struct far_module **module, struct far_err *err);
enum far_status far_module_gru(struct far_pool *pool, struct far_init *init, uint64_t in, uint64_t hidden, bool bias,
			       struct far_module **module, struct far_err *err);
/** weight and bias [width], 1 and 0. Normalizes the last dimension: (x - mean) / √(variance + eps). */
enum far_status far_module_layer_norm(struct far_pool *pool, struct far_init *init, uint64_t width, double eps,
				      struct far_module **module, struct far_err *err);
/** Zeroes elements with probability `p` in training, does nothing otherwise. Each forward takes the next stream of
 * init->seed. */
enum far_status far_module_dropout(struct far_pool *pool, struct far_init *init, double p, struct far_module **module,
				   struct far_err *err);

enum far_module_map { FAR_MODULE_RELU, FAR_MODULE_TANH, FAR_MODULE_SIGMOID, FAR_MODULE_FLATTEN };
/** An element-wise function; FLATTEN: [n, …] becomes [n, elements]. */
enum far_status far_module_map(struct far_pool *pool, enum far_module_map map, struct far_module **module,
			       struct far_err *err);
/** Modules one after the other, named "0", "1", …, which it owns after success. */
enum far_status far_module_sequential(struct far_pool *pool, struct far_module *const *modules, size_t n,
				      struct far_module **module, struct far_err *err);

/** A module of the application. Must exist as long as its modules. */
struct far_module_class {
	const char *name;
	/** Returns the result, NULL after an error that is on the tape. */
	struct far_var *(*forward)(struct far_module *module, struct far_tape *tape, struct far_var *x);
	void (*destroy)(void *user); /* NULL: nothing to call */
};
enum far_status far_module_new(struct far_pool *pool, const struct far_module_class *cls, void *user,
			       struct far_module **module, struct far_err *err);
void *far_module_user(const struct far_module *module);
/** Adds a parameter, to which the module refers. INVALID: the name is taken, empty, or has a "."; or not a leaf. */
enum far_status far_module_add_parameter(struct far_module *module, const char *name, struct far_var *var,
					 struct far_err *err);
/** Adds a module, which `module` owns after success. INVALID: the name; `child` has an owner already or is `module`. */
enum far_status far_module_add(struct far_module *module, const char *name, struct far_module *child,
			       struct far_err *err);

/** Frees a module and those inside it. NULL, or a module inside another: nothing. */
void far_module_free(struct far_module *module);

/* ---- Using ---- */

/** The result, a variable of the tape, or NULL after an error, which the tape keeps. A recurrent module begins with a
 * zero state. */
struct far_var *far_module_forward(struct far_module *module, struct far_tape *tape, struct far_var *x);
/**
 * The same of an LSTM (state[0]: h, state[1]: c, both [n, hidden]) or GRU (state[0]). NULL in `state`: zero. Replaces
 * `state` by the state after the last step; variables of the tape. Of another module: INVALID on the tape.
 */
struct far_var *far_module_forward_state(struct far_module *module, struct far_tape *tape, struct far_var *x,
					 struct far_var *state[2]);

/** Sets whether dropout is on, for the module and those inside; true at first. */
void far_module_train(struct far_module *module, bool training);
bool far_module_training(const struct far_module *module);

/** "linear", … or the name of its class; valid as long as the module. */
const char *far_module_kind(const struct far_module *module);
/** A module inside, by full name: "1.encoder"; owned by `module`. NULL: there is none. */
struct far_module *far_module_child(struct far_module *module, const char *name);
/** A parameter by full name, valid as long as the module. NULL: there is none. */
struct far_var *far_module_parameter(struct far_module *module, const char *name);
/** Writes the first `capacity` parameters, in the order in which they were made, valid as long as the module. Returns
 * their number. */
size_t far_module_parameters(struct far_module *module, struct far_var **vars, size_t capacity);
/** Calls `each` with every parameter and its full name, until it returns a status other than FAR_OK, which it returns.
 */
enum far_status far_module_each(struct far_module *module,
				enum far_status (*each)(void *user, const char *name, struct far_var *var), void *user);

/* ---- State: safetensors ---- */

/**
 * Writes all parameters to `path`: to a temporary file beside it, which is synchronized and renamed. A crash leaves the
 * old file or the new one. Errors: SYSTEM with the errno, RESOURCE.
 */
enum far_status far_module_save(struct far_module *module, const char *path, struct far_err *err);
/**
 * Reads all parameters. The file must have exactly their names, dtypes and shapes: everything is checked before the
 * first parameter changes. Errors: SYSTEM with the errno (if the file cannot be read to the end, some parameters may
 * have changed), INVALID (not a safetensors file, torn, overlapping or unused data, a name that is missing or too much,
 * another dtype or shape), UNSUPPORTED (a dtype that tensors do not have), RESOURCE.
 */
enum far_status far_module_load(struct far_module *module, const char *path, struct far_err *err);

#ifdef __cplusplus
}
#endif
#endif
