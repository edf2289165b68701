/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies strided views of tensors into messages. Any thread. */
#include "value/encoding_view.h"

/* A simplified view: dimensions of length 1 removed, adjacent dimensions without a gap merged. */
struct view {
	unsigned ndim;
	size_t n[FAR_DIMS_MAX];
	ptrdiff_t step[FAR_DIMS_MAX]; /* in bytes */
};

static void view_simplify(struct view *v, const struct far_tensor *t, size_t element)
{
	v->ndim = 0;
	for (unsigned k = 0; k < t->ndim; k++) {
		if (t->shape[k] == 1)
			continue;
		ptrdiff_t step = (ptrdiff_t)((uint64_t)t->strides[k] * element);
		if (v->ndim > 0 && v->step[v->ndim - 1] == (ptrdiff_t)((uint64_t)step * t->shape[k])) {
			v->n[v->ndim - 1] *= t->shape[k];
			v->step[v->ndim - 1] = step;
			continue;
		}
		v->n[v->ndim] = t->shape[k];
		v->step[v->ndim] = step;
		v->ndim++;
	}
}

#define GATHER_ROW(bytes)                                                                                              \
	for (size_t i = 0; i < n; i++, src += step, dst += (bytes))                                                    \
		memcpy(dst, src, (bytes));                                                                             \
	return dst

static uint8_t *gather_row(uint8_t *dst, const uint8_t *src, size_t n, ptrdiff_t step, size_t element)
{
	if (step == (ptrdiff_t)element) {
		memcpy(dst, src, n * element);
		return dst + n * element;
	}
	switch (element) {
	case 1:
		GATHER_ROW(1);
	case 2:
		GATHER_ROW(2);
	case 4:
		GATHER_ROW(4);
	default:
		GATHER_ROW(8);
	}
}

void view_gather(const struct far_tensor *t, size_t element, void *dst)
{
	struct view v;
	view_simplify(&v, t, element);
	const uint8_t *src = t->data;
	if (v.ndim == 0) {
		memcpy(dst, src, element);
		return;
	}
	unsigned row = v.ndim - 1;
	size_t at[FAR_DIMS_MAX] = {0};
	for (;;) {
		dst = gather_row(dst, src, v.n[row], v.step[row], element);
		unsigned k = row;
		for (;;) {
			if (k == 0)
				return;
			k--;
			if (++at[k] < v.n[k]) {
				src += v.step[k];
				break;
			}
			src -= v.step[k] * (ptrdiff_t)(v.n[k] - 1);
			at[k] = 0;
		}
	}
}
