/* SPDX-License-Identifier: BSD-3-Clause */
/** Iteration over tensors with any strides, a block of elements at a time. Any thread. */
#include "space.h"

struct ops_space ops_space(unsigned ndim, const uint64_t *shape, unsigned dims)
{
	struct ops_space space = {.count = 1};
	for (unsigned k = 0; k < ndim; k++)
		if (dims & 1u << k) {
			space.shape[space.ndim++] = shape[k];
			space.count *= shape[k];
		}
	return space;
}

struct ops_operand ops_operand(const struct far_tensor *t, unsigned ndim, const uint64_t *shape, unsigned dims)
{
	struct ops_operand o = {.data = t->data, .dtype = (enum far_dtype)t->dtype};
	unsigned missing = ndim - t->ndim;
	unsigned at = 0;
	bool empty = ops_count(t) == 0; /* its strides are not checked */
	o.size = (uint8_t)ops_size(o.dtype);
	for (unsigned k = 0; k < ndim; k++)
		if (dims & 1u << k) {
			bool repeated = empty || k < missing || (t->shape[k - missing] == 1 && shape[k] != 1);
			o.strides[at++] = repeated ? 0 : ops_stride(t, k - missing);
		}
	return o;
}

void ops_space_fold(struct ops_space *space, struct ops_operand *const *operands, unsigned n)
{
	unsigned last = 0; /* dimensions that are kept */
	for (unsigned k = 0; k < space->ndim; k++) {
		if (space->shape[k] == 1)
			continue;
		bool merge = last > 0;
		for (unsigned i = 0; i < n && merge; i++)
			merge = operands[i]->strides[last - 1] == operands[i]->strides[k] * (int64_t)space->shape[k];
		last += merge ? 0 : 1;
		space->shape[last - 1] = merge ? space->shape[last - 1] * space->shape[k] : space->shape[k];
		for (unsigned i = 0; i < n; i++)
			operands[i]->strides[last - 1] = operands[i]->strides[k];
	}
	if (last == 0) { /* one element */
		space->shape[last++] = 1;
		for (unsigned i = 0; i < n; i++)
			operands[i]->strides[0] = 1;
	}
	space->ndim = last;
	for (unsigned i = 0; i < n; i++) {
		struct ops_operand *o = operands[i];
		int64_t stride = 1;
		o->direct = true;
		o->one = space->count > 1;
		for (unsigned k = last; k-- > 0;) {
			o->direct = o->direct && o->strides[k] == stride;
			o->one = o->one && o->strides[k] == 0;
			stride *= (int64_t)space->shape[k];
		}
	}
}

int64_t ops_offset(const struct ops_space *space, const struct ops_operand *o, uint64_t at)
{
	int64_t offset = 0;
	for (unsigned k = space->ndim; k-- > 1; at /= space->shape[k])
		offset += (int64_t)(at % space->shape[k]) * o->strides[k];
	return offset + (int64_t)at * o->strides[0];
}

/* n elements between an array and a line of a tensor, whose elements are `stride` apart. */
#define MOVE(T)                                                                                                        \
	do {                                                                                                           \
		T *a = array;                                                                                          \
		T *l = line;                                                                                           \
		if (to_array)                                                                                          \
			for (size_t i = 0; i < n; i++)                                                                 \
				a[i] = l[(ptrdiff_t)i * stride];                                                       \
		else                                                                                                   \
			for (size_t i = 0; i < n; i++)                                                                 \
				l[(ptrdiff_t)i * stride] = a[i];                                                       \
	} while (0)

static void move(void *array, void *line, int64_t stride, size_t n, size_t size, bool to_array)
{
	if (stride == 1) {
		memcpy(to_array ? array : line, to_array ? line : array, n * size);
		return;
	}
	if (size == 8)
		MOVE(uint64_t);
	else if (size == 4)
		MOVE(uint32_t);
	else if (size == 2)
		MOVE(uint16_t);
	else
		MOVE(uint8_t);
}

/** Moves elements [at, at + n) between an array and an operand, line by line. */
static void move_all(const struct ops_space *space, const struct ops_operand *o, int64_t base, uint64_t at, size_t n,
		     char *array, bool to_array)
{
	uint64_t index[FAR_DIMS_MAX] = {0};
	unsigned last = space->ndim - 1;
	for (unsigned k = space->ndim; k-- > 0; at /= space->shape[k])
		index[k] = at % space->shape[k];
	int64_t offset = base;
	for (unsigned k = 0; k <= last; k++)
		offset += (int64_t)index[k] * o->strides[k];
	while (n > 0) {
		uint64_t left = space->shape[last] - index[last];
		size_t step = left < n ? (size_t)left : n;
		move(array, o->data + offset * o->size, o->strides[last], step, o->size, to_array);
		array += step * o->size;
		n -= step;
		/* The first element of the next line. */
		offset -= (int64_t)index[last] * o->strides[last];
		index[last] = 0;
		for (unsigned k = last; n > 0 && k-- > 0;) {
			offset += o->strides[k];
			if (++index[k] < space->shape[k])
				break;
			offset -= (int64_t)index[k] * o->strides[k];
			index[k] = 0;
		}
	}
}

/** n elements of a half type as f32. */
static void from_half(enum far_dtype dtype, float *d, const void *s, size_t n)
{
	if (dtype == FAR_BF16)
		ops_kernels()->f32_from_bf16(d, s, n);
	else
		ops_kernels()->f32_from_f16(d, s, n);
}

/** The element at `from`, n times. */
static const void *repeat(const struct ops_operand *o, const char *from, size_t n, union ops_block *block)
{
	size_t size = o->size;
	if (ops_is_half(o->dtype)) {
		from_half(o->dtype, block->f32, from, 1);
		size = sizeof(float);
	} else {
		memcpy(block, from, size);
	}
	for (size_t done = 1; done < n; done *= 2)
		memcpy(block->bytes + done * size, block->bytes, (done < n - done ? done : n - done) * size);
	return block;
}

const void *ops_read(const struct ops_space *space, const struct ops_operand *o, int64_t base, uint64_t at, size_t n,
		     union ops_block *block)
{
	uint16_t halves[OPS_BLOCK];
	if (o->one)
		return repeat(o, o->data + base * o->size, n, block);
	bool half = ops_is_half(o->dtype);
	const char *from = o->data + (base + (int64_t)at) * o->size;
	if (o->direct && !half)
		return from;
	if (!o->direct) {
		from = half ? (char *)halves : block->bytes;
		move_all(space, o, base, at, n, half ? (char *)halves : block->bytes, true);
	}
	if (half)
		from_half(o->dtype, block->f32, from, n);
	return block;
}

void *ops_target(const struct ops_operand *o, int64_t base, uint64_t at, union ops_block *block)
{
	return o->direct && !ops_is_half(o->dtype) ? o->data + (base + (int64_t)at) * o->size : block->bytes;
}

void ops_write(const struct ops_space *space, const struct ops_operand *o, int64_t base, uint64_t at, size_t n,
	       const void *target)
{
	uint16_t halves[OPS_BLOCK];
	bool half = ops_is_half(o->dtype);
	if (o->direct && !half)
		return;
	char *to = o->direct ? o->data + (base + (int64_t)at) * o->size : (char *)halves;
	if (half && o->dtype == FAR_BF16)
		ops_kernels()->bf16_from_f32((uint16_t *)(void *)to, target, n);
	else if (half)
		ops_kernels()->f16_from_f32((uint16_t *)(void *)to, target, n);
	if (!o->direct)
		move_all(space, o, base, at, n, half ? (char *)halves : (char *)(uintptr_t)target, false);
}

void ops_map(ops_map_kernel *kernel, double p, const struct ops_space *space, const struct ops_operand *out,
	     const struct ops_operand *in, unsigned n)
{
	union ops_block blocks[3];
	union ops_block result;
	const void *from[3] = {NULL, NULL, NULL};
	bool whole = out->direct && !ops_is_half(out->dtype);
	for (unsigned i = 0; i < n && whole; i++)
		whole = in[i].direct && !ops_is_half(in[i].dtype);
	if (whole) {
		for (unsigned i = 0; i < n; i++)
			from[i] = in[i].data;
		kernel(out->data, from, p, space->count);
		return;
	}
	for (uint64_t at = 0; at < space->count; at += OPS_BLOCK) {
		size_t length = space->count - at < OPS_BLOCK ? (size_t)(space->count - at) : OPS_BLOCK;
		for (unsigned i = 0; i < n; i++)
			from[i] = ops_read(space, &in[i], 0, at, length, &blocks[i]);
		void *to = ops_target(out, 0, at, &result);
		kernel(to, from, p, length);
		ops_write(space, out, 0, at, length, to);
	}
}

ops_map_kernel *ops_kernel(enum ops_map map, enum far_dtype dtype)
{
	return ops_kernels()->map[map][ops_arithmetic(dtype)];
}

/* ---- sums ---- */

unsigned ops_repeated(const struct far_tensor *t, unsigned ndim, const uint64_t *shape)
{
	unsigned missing = ndim - t->ndim;
	unsigned dims = 0;
	for (unsigned k = 0; k < ndim; k++)
		if (k < missing || (t->shape[k - missing] == 1 && shape[k] != 1))
			dims |= 1u << k;
	return dims;
}

/* The operands of a sum over the kept and over the reduced dimensions. */
struct fold {
	struct ops_space kept, reduced;
	struct ops_operand kept_in[3], reduced_in[3];
	unsigned n;
	bool f64; /* dtype of the arithmetic; else f32 */
};

/** A block of summands: elements [at, at + n) of `space`, moved by the other space's element `other`. */
static const void *summands(const struct ops_sum *sum, const struct fold *fold, bool along, uint64_t other, uint64_t at,
			    size_t n, union ops_block *blocks, union ops_block *result)
{
	const void *from[3] = {NULL, NULL, NULL};
	for (unsigned i = 0; i < fold->n; i++) {
		const struct ops_operand *kept = &fold->kept_in[i];
		const struct ops_operand *reduced = &fold->reduced_in[i];
		from[i] = along ? ops_read(&fold->reduced, reduced, ops_offset(&fold->kept, kept, other), at, n,
					   &blocks[i])
				: ops_read(&fold->kept, kept, ops_offset(&fold->reduced, reduced, other), at, n,
					   &blocks[i]);
	}
	if (!sum->kernel)
		return from[0];
	sum->kernel(result, from, sum->p, n);
	return result;
}

static void store(const struct fold *fold, const struct ops_operand *out, uint64_t at, size_t n, const double *sums,
		  double divisor)
{
	union ops_block block;
	void *to = ops_target(out, 0, at, &block);
	for (size_t i = 0; i < n; i++)
		if (fold->f64)
			((double *)to)[i] = sums[i] / divisor;
		else
			((float *)to)[i] = (float)(sums[i] / divisor);
	ops_write(&fold->kept, out, 0, at, n, to);
}

/** Sums block by block along the reduced dimensions, one result after the other. */
static void sum_along(const struct ops_sum *sum, const struct fold *fold, const struct ops_operand *out)
{
	const struct ops_kernels *kernels = ops_kernels();
	union ops_block blocks[3];
	union ops_block result;
	double sums[OPS_BLOCK];
	for (uint64_t first = 0; first < fold->kept.count; first += OPS_BLOCK) {
		size_t n = fold->kept.count - first < OPS_BLOCK ? (size_t)(fold->kept.count - first) : OPS_BLOCK;
		for (size_t i = 0; i < n; i++) {
			sums[i] = 0;
			for (uint64_t at = 0; at < fold->reduced.count; at += OPS_BLOCK) {
				uint64_t left = fold->reduced.count - at;
				size_t length = left < OPS_BLOCK ? (size_t)left : OPS_BLOCK;
				const void *s = summands(sum, fold, true, first + i, at, length, blocks, &result);
				sums[i] += fold->f64 ? kernels->sum_f64(s, length) : kernels->sum_f32(s, length);
			}
		}
		store(fold, out, first, n, sums, sum->divisor);
	}
}

/** Sums a block of results at a time. */
static void sum_across(const struct ops_sum *sum, const struct fold *fold, const struct ops_operand *out)
{
	const struct ops_kernels *kernels = ops_kernels();
	union ops_block blocks[3];
	union ops_block result;
	double sums[OPS_BLOCK];
	for (uint64_t at = 0; at < fold->kept.count; at += OPS_BLOCK) {
		size_t n = fold->kept.count - at < OPS_BLOCK ? (size_t)(fold->kept.count - at) : OPS_BLOCK;
		memset(sums, 0, n * sizeof *sums);
		for (uint64_t r = 0; r < fold->reduced.count; r++) {
			const void *s = summands(sum, fold, false, r, at, n, blocks, &result);
			if (fold->f64)
				kernels->accumulate_f64(sums, s, n);
			else
				kernels->accumulate_f32(sums, s, n);
		}
		store(fold, out, at, n, sums, sum->divisor);
	}
}

/** Blocks of `a` elements that b times `a` elements need. */
static double blocks_of(uint64_t a, uint64_t b)
{
	return (double)((a + OPS_BLOCK - 1) / OPS_BLOCK) * (double)b;
}

void ops_sum(const struct ops_sum *sum, const struct far_tensor *out, const struct far_tensor *const *in, unsigned n,
	     unsigned ndim, const uint64_t *shape, unsigned reduced)
{
	struct fold fold = {.n = n, .f64 = out->dtype == FAR_F64};
	struct ops_operand *kept[3];
	struct ops_operand *across[3];
	unsigned all = (1u << ndim) - 1;
	fold.kept = ops_space(ndim, shape, all & ~reduced);
	fold.reduced = ops_space(ndim, shape, reduced);
	for (unsigned i = 0; i < n; i++) {
		fold.kept_in[i] = ops_operand(in[i], ndim, shape, all & ~reduced);
		fold.reduced_in[i] = ops_operand(in[i], ndim, shape, reduced);
		kept[i] = &fold.kept_in[i];
		across[i] = &fold.reduced_in[i];
	}
	ops_space_fold(&fold.kept, kept, n);
	ops_space_fold(&fold.reduced, across, n);
	struct ops_operand to = {.data = out->data,
				 .dtype = (enum far_dtype)out->dtype,
				 .size = (uint8_t)ops_size((enum far_dtype)out->dtype),
				 .direct = true};
	if (fold.reduced.count == 1 && sum->kernel && sum->divisor == 1)
		ops_map(sum->kernel, sum->p, &fold.kept, &to, fold.kept_in, n);
	else if (blocks_of(fold.reduced.count, fold.kept.count) <= blocks_of(fold.kept.count, fold.reduced.count))
		sum_along(sum, &fold, &to);
	else
		sum_across(sum, &fold, &to);
}
