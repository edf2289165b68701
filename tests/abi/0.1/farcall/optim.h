/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Optimizers: update parameters by the gradients of a far_grads. Part of libfarcall-train.
 *
 * Thread: any; steps of one optimizer run one after the other. Several optimizers may work on the same parameters at
 * once, and passes may read them meanwhile; then elements may come from different steps.
 *
 * Arithmetic is in f64. State is f64 for f64 parameters and f32 for others, from the optimizer's pool, allocated when
 * it is made. With g a gradient, w a parameter and t the number of steps of this parameter, the rules are those of
 * torch.optim of the same name; in addition:
 *
 *   row-wise Adagrad   s[row] += mean(g[row]^2), w[row] -= lr * g[row] / (sqrt(s[row]) + eps), of a table [rows, width]
 *   FTRL               z += g - (sqrt(n + g^2) - sqrt(n)) / lr * w, n += g^2,
 *                      w = |z| <= l1 ? 0 : -(z - sign(z) * l1) / ((beta + sqrt(n)) / lr + l2)
 *
 * Sparse gradients (far_tape_embedding()): rows with the same index are summed first; rows without an index are left
 * alone, with their state. SGD without momentum, Adagrad, row-wise Adagrad and FTRL take them, without weight decay;
 * others refuse them.
 */
#ifndef FARCALL_OPTIM_H
#define FARCALL_OPTIM_H

#include <farcall/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct far_optimizer;

/* Name, text. */
#define FAR_OPTIMIZER_LIST(X)                                                                                          \
	X(SGD, "SGD")                                                                                                  \
	X(ADAM, "Adam")                                                                                                \
	X(ADAMW, "AdamW")                                                                                              \
	X(ADAGRAD, "Adagrad")                                                                                          \
	X(ADADELTA, "Adadelta")                                                                                        \
	X(RMSPROP, "RMSprop")                                                                                          \
	X(ADAMAX, "Adamax")                                                                                            \
	X(RPROP, "Rprop")                                                                                              \
	X(ROWWISE_ADAGRAD, "row-wise Adagrad")                                                                         \
	X(FTRL, "FTRL")

enum far_optimizer_kind {
#define FAR_OPTIMIZER_ENUM(name, text) FAR_OPTIMIZER_##name,
	FAR_OPTIMIZER_LIST(FAR_OPTIMIZER_ENUM)
#undef FAR_OPTIMIZER_ENUM
		FAR_OPTIMIZER_COUNT
};

/** Hyperparameters. The ones that a rule does not use are ignored. Begin with far_optimizer_defaults(). */
struct far_optimizer_opts {
	enum far_optimizer_kind kind;
	double lr;                  /* learning rate, >= 0; FTRL: > 0. Of Rprop the first size of a step */
	double weight_decay;        /* >= 0: adds weight_decay * w to g; of AdamW: w *= 1 - lr * weight_decay */
	double momentum;            /* SGD, RMSprop; >= 0 */
	double dampening;           /* SGD: of the gradient in the momentum */
	bool nesterov;              /* SGD: momentum > 0 and dampening 0 */
	double beta1, beta2;        /* Adam, AdamW, Adamax; [0, 1) */
	double eps;                 /* >= 0; not of SGD, Rprop, FTRL */
	bool amsgrad;               /* Adam, AdamW */
	double lr_decay;            /* Adagrad: lr / (1 + (t - 1) * lr_decay) */
	double initial;             /* Adagrad, row-wise Adagrad, FTRL: first value of the sum of squares, >= 0 */
	double rho;                 /* Adadelta: [0, 1] */
	double alpha;               /* RMSprop: [0, 1] */
	bool centered;              /* RMSprop */
	double eta_minus, eta_plus; /* Rprop: factors of a step, 0 < eta_minus < 1 < eta_plus */
	double step_min, step_max;  /* Rprop */
	double l1, l2, beta;        /* FTRL; >= 0 */
};

/** The defaults of torch.optim in version 1.13; FTRL: lr 0.1, beta 1. SGD and Rprop: lr 0.01. */
struct far_optimizer_opts far_optimizer_defaults(enum far_optimizer_kind kind);
/** "Adam". "?" for an unknown one. */
const char *far_optimizer_name(enum far_optimizer_kind kind);

/**
 * Makes an optimizer of params[0, n), to which it keeps references. INVALID, with the name of the hyperparameter or the
 * position of the parameter: a value out of range; no parameters; one that is not a leaf, requires no gradient, or is
 * there twice; of row-wise Adagrad: one that is not [rows, width].
 */
enum far_status far_optimizer_new(struct far_pool *pool, const struct far_optimizer_opts *opts,
				  struct far_var *const *params, size_t n, struct far_optimizer **out,
				  struct far_err *err);
void far_optimizer_free(struct far_optimizer *optimizer);
/**
 * Updates the parameters that have a gradient in `grads`; others are left alone, with their state. UNSUPPORTED: a
 * sparse gradient that this rule does not take; nothing was changed. After RESOURCE some parameters may be updated.
 */
enum far_status far_optimizer_step(struct far_optimizer *optimizer, struct far_grads *grads, struct far_err *err);
/** For schedules. INVALID: out of range. */
enum far_status far_optimizer_set_lr(struct far_optimizer *optimizer, double lr, struct far_err *err);
double far_optimizer_get_lr(struct far_optimizer *optimizer);

#ifdef __cplusplus
}
#endif
#endif
