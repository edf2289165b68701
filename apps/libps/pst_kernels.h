/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The vectorised inner loops: conversions, the check of gradients, optimizers. One set for each instruction set that
 * the compiler can generate; pst_kernels_best chooses by the processor. All sets give the same bits. Any thread.
 */
#ifndef PST_KERNELS_H
#define PST_KERNELS_H

#include "pst_rule.h"
#include "pst_slabs.h"

enum pst_type {
	PST_F32,
	PST_BF16, /* rounded to nearest, ties to even */
	PST_F16,  /* likewise; beyond 65504: infinity */
	PST_INT8, /* on the wire alone: element = scale * int8, one f32 scale for each row */
	PST_TYPES
};

/** Bytes of an element. */
static inline unsigned pst_type_bytes(enum pst_type type)
{
	return type == PST_F32 ? 4 : type == PST_INT8 ? 1 : 2;
}

/* One chunk of a push. */
struct pst_apply {
	const struct pst_rule *rule;
	float rate;
	unsigned dim;
	enum pst_type stored;
	const struct pst_slabs *rows;
	const struct pst_slabs *state; /* NULL: the rule keeps none */
	const uint32_t
		*ids; /* [n]: row of each gradient; UINT32_MAX: passed over. In order, one that comes twice too */
	uint32_t n;
	enum pst_type wire;
	const void *grads;   /* [n * dim] of `wire` */
	const float *scales; /* [n], of int8 */
	float *scratch;      /* [3 * (dim rounded up to 16)], aligned to 64 bytes */
};

struct pst_kernels {
	const char *name;
	/** Index of the first of n elements that is NaN or infinite; n: none. f32, bf16 and f16. */
	size_t (*first_bad)(enum pst_type type, const void *elements, size_t n);
	/** n elements as f32; `scale` is for int8. */
	void (*widen)(enum pst_type type, float *to, const void *from, size_t n, float scale);
	/** n elements of f32 in another type. Returns the scale for int8: the largest magnitude / 127 (rounded up), 0
	 * for a row of zeros, NaN (and zeros) if an element is not finite; elements are rounded to nearest, ties to
	 * even. */
	float (*narrow)(enum pst_type type, void *to, const float *from, size_t n);
	/** to[i] += weight * from[i]. */
	void (*add)(float *to, const float *from, size_t n, float weight);
	void (*apply)(const struct pst_apply *a);
};

/** The set for this processor. Any thread. */
const struct pst_kernels *pst_kernels_best(void);

/** Each set that this processor can run, the plainest first; NULL after the last. For tests and measurements. */
const struct pst_kernels *pst_kernels_nth(unsigned i);

#endif
