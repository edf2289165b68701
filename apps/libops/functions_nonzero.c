/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * far::nonzero: the indexes of a tensor's elements that are not 0, as an i64 tensor with one row per element and one
 * column per dimension, in row-major order. NaN is not 0, -0.0 is. A scalar tensor has 1 or 0 rows without columns.
 * Inline on a shard. Shard thread.
 */
#include "functions.h"

#define ANY_NONZERO(T) (((const T *)t->data)[i] != 0)

static bool is_nonzero(const struct far_tensor *t, size_t i)
{
	switch ((enum far_dtype)t->dtype) {
	case FAR_F32:
		return ANY_NONZERO(float);
	case FAR_F64:
		return ANY_NONZERO(double);
	case FAR_BF16:
	case FAR_F16:
		return (((const uint16_t *)t->data)[i] & 0x7fff) != 0;
	case FAR_I16:
		return ANY_NONZERO(int16_t);
	case FAR_I32:
		return ANY_NONZERO(int32_t);
	case FAR_I64:
	case FAR_U64:
		return ANY_NONZERO(uint64_t);
	default:
		return ANY_NONZERO(uint8_t);
	}
}

static void write_row(int64_t *row, const struct far_tensor *t, size_t i)
{
	for (unsigned k = t->ndim; k-- > 0; i /= t->shape[k])
		row[k] = (int64_t)(i % t->shape[k]);
}

FUNCTION(nonzero)
{
	const struct ops_host *host = user;
	const struct far_tensor *t = &args[0].u.t;
	size_t count = ops_count(t), rows = 0, row = 0;
	void *data;
	for (size_t i = 0; i < count; i++)
		rows += is_nonzero(t, i);
	uint64_t shape[2] = {rows, t->ndim};
	enum far_status status = host->answer_tensor(req, FAR_I64, 2, shape, &data);
	if (status != FAR_OK)
		return status;
	/* The caller may change the elements meanwhile: write exactly the counted rows. */
	int64_t *out = data;
	for (size_t i = 0; i < count && row < rows; i++)
		if (is_nonzero(t, i))
			write_row(out + row++ * t->ndim, t, i);
	if (t->ndim > 0 && row < rows)
		memset(out + row * t->ndim, 0, (rows - row) * t->ndim * sizeof *out);
	return FAR_OK;
}
