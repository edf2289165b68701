/* SPDX-License-Identifier: BSD-3-Clause */
/** An operator of libfarcall-ops with its derivative, and the check of the one against central differences of the
 * other. The test's thread. */
#ifndef LIBOPS_PROBLEM_H
#define LIBOPS_PROBLEM_H

#include "tensors.h"

#define INPUTS_MAX 8

static inline void problems_begin(void)
{
	setenv("FAR_OPS_BLAS", "none", 1); /* test_matmul compares it with the library's own loops */
}

/* An operator with its derivative: inputs [0, n) are differentiated. */
struct problem {
	const char *name;
	unsigned n, outs;
	struct far_tensor in[INPUTS_MAX];
	struct far_tensor out[3], grad[3], din[INPUTS_MAX];
	bool no_grad[3];         /* this result is no part of the loss */
	struct far_tensor extra; /* indices and the like */
	struct far_tensor offsets;
	int axis, axes[FAR_DIMS_MAX];
	size_t axes_n;
	bool keep;
	enum far_op_reduction reduction;
	enum far_op_bag mode;
	struct far_op_conv conv;
	bool bias;
	double factor;
	void (*forward)(struct problem *p);
	void (*backward)(struct problem *p);
};

static inline bool is_shape_query(const struct far_tensor *out)
{
	return out->dtype == FAR_DTYPE_NONE;
}

static inline double loss(struct problem *p)
{
	double total = 0;
	p->forward(p);
	for (unsigned o = 0; o < p->outs; o++)
		for (uint64_t i = 0; i < ops_count(&p->out[o]) && !p->no_grad[o]; i++)
			total += get(&p->out[o], i) * get(&p->grad[o], i);
	return total;
}

static inline void check(struct problem *p)
{
	memset(p->out, 0, sizeof p->out);
	memset(p->din, 0, sizeof p->din);
	p->forward(p); /* the question */
	for (unsigned o = 0; o < p->outs; o++) {
		cr_assert_neq(p->out[o].dtype, FAR_DTYPE_NONE, "%s", p->name);
		allocate(&p->out[o]);
		p->grad[o] = p->out[o].dtype == FAR_F64 ? random_tensor(FAR_F64, p->out[o].ndim, p->out[o].shape, -1, 1)
							: p->out[o];
	}
	p->forward(p);
	for (unsigned i = 0; i < p->n; i++)
		p->din[i].dtype = FAR_DTYPE_NONE;
	p->backward(p);
	for (unsigned i = 0; i < p->n; i++) {
		cr_assert(ops_same_shape(&p->din[i], &p->in[i]), "%s: shape of gradient %u", p->name, i);
		allocate(&p->din[i]);
		memset(p->din[i].data, 0xff, ops_count(&p->din[i]) * 8);
	}
	p->backward(p);
	for (unsigned i = 0; i < p->n; i++) {
		uint64_t count = ops_count(&p->in[i]);
		uint64_t step = count > 60 ? count / 40 : 1;
		for (uint64_t e = 0; e < count; e += step) {
			double x = get(&p->in[i], e);
			double h = 1e-5;
			set(&p->in[i], e, x + h);
			double above = loss(p);
			set(&p->in[i], e, x - h);
			double below = loss(p);
			set(&p->in[i], e, x);
			double numeric = (above - below) / (2 * h);
			double exact = get(&p->din[i], e);
			cr_assert(near(exact, numeric, 2e-7),
				  "%s: gradient of input %u, element %zu: %.12g, by differences %.12g", p->name, i,
				  (size_t)e, exact, numeric);
		}
	}
	p->forward(p);
}

/* Shapes of rank 0 to 4, some empty, some longer than a block. */
static const struct {
	unsigned n;
	uint64_t shape[4];
} shapes[] = {{0, {0}},      {1, {0}},      {1, {1}},       {1, {7}},       {1, {700}},       {2, {3, 5}},
	      {2, {2, 300}}, {2, {300, 2}}, {3, {2, 0, 3}}, {3, {2, 3, 4}}, {3, {20, 2, 20}}, {4, {2, 3, 2, 3}}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

#endif
