/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Random numbers by counters: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3,
 * SC 2011). Any thread.
 */
#include "space.h"
#include "vector_math.h"

static void philox(uint64_t seed, uint64_t stream, uint64_t block, uint32_t w[4])
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	w[0] = (uint32_t)block;
	w[1] = (uint32_t)(block >> 32);
	w[2] = (uint32_t)stream;
	w[3] = (uint32_t)(stream >> 32);
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53u * w[0];
		uint64_t p1 = (uint64_t)0xCD9E8D57u * w[2];
		uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ w[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ w[3] ^ k1,
				    (uint32_t)p0};
		memcpy(w, next, sizeof next);
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
}

/* Elements that a block of Philox gives: 4, or 2 of f64. */
typedef void generator(const uint32_t w[4], double out[4]);

static double unit_53(uint32_t high, uint32_t low)
{
	return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

static void uniform_24(const uint32_t w[4], double out[4])
{
	for (int i = 0; i < 4; i++)
		out[i] = (w[i] >> 8) * 0x1p-24;
}

static void uniform_11(const uint32_t w[4], double out[4])
{
	for (int i = 0; i < 4; i++)
		out[i] = (w[i] >> 21) * 0x1p-11;
}

static void uniform_8(const uint32_t w[4], double out[4])
{
	for (int i = 0; i < 4; i++)
		out[i] = (w[i] >> 24) * 0x1p-8;
}

static void uniform_53(const uint32_t w[4], double out[4])
{
	out[0] = unit_53(w[0], w[1]);
	out[1] = unit_53(w[2], w[3]);
}

/** Two normal numbers of u in (0, 1] and v in [0, 1). */
static void normal_pair(double u, double v, double out[2])
{
	double cosine, sine;
	double radius = sqrt(-2 * log_f64(u));
	turn_f64(v, &cosine, &sine);
	out[0] = radius * cosine;
	out[1] = radius * sine;
}

static void normal_32(const uint32_t w[4], double out[4])
{
	for (int i = 0; i < 4; i += 2)
		normal_pair((w[i] + 1.0) * 0x1p-32, w[i + 1] * 0x1p-32, out + i);
}

static void normal_53(const uint32_t w[4], double out[4])
{
	normal_pair(unit_53(w[0], w[1]) + 0x1p-53, unit_53(w[2], w[3]), out);
}

static enum far_status generate(const char *op, bool normal, uint64_t seed, uint64_t stream, struct far_tensor *out,
				struct far_err *err)
{
	TRY(ops_check_float(op, "out", out, err));
	TRY(ops_output(op, "out", out, (enum far_dtype)out->dtype, out->ndim, out->shape, err));
	if (!ops_wanted(out))
		return FAR_OK;
	bool f64 = out->dtype == FAR_F64;
	unsigned per_block = f64 ? 2 : 4;
	generator *make = normal                   ? (f64 ? normal_53 : normal_32)
			  : f64                    ? uniform_53
			  : out->dtype == FAR_BF16 ? uniform_8
			  : out->dtype == FAR_F16  ? uniform_11
						   : uniform_24;
	struct ops_operand to = {.data = out->data,
				 .dtype = (enum far_dtype)out->dtype,
				 .size = (uint8_t)ops_size((enum far_dtype)out->dtype),
				 .direct = true};
	uint64_t count = ops_count(out);
	struct ops_space space = {.ndim = 1, .shape = {count}, .count = count};
	for (uint64_t at = 0; at < count; at += OPS_BLOCK) {
		union ops_block block;
		size_t n = count - at < OPS_BLOCK ? (size_t)(count - at) : OPS_BLOCK;
		void *target = ops_target(&to, 0, at, &block);
		for (size_t i = 0; i < n; i += per_block) {
			uint32_t words[4];
			double numbers[4];
			philox(seed, stream, (at + i) / per_block, words);
			make(words, numbers);
			for (size_t k = 0; k < per_block && i + k < n; k++)
				if (f64)
					((double *)target)[i + k] = numbers[k];
				else
					((float *)target)[i + k] = (float)numbers[k];
		}
		ops_write(&space, &to, 0, at, n, target);
	}
	return FAR_OK;
}

enum far_status far_op_rand(uint64_t seed, uint64_t stream, struct far_tensor *out, struct far_err *err)
{
	return generate("rand", false, seed, stream, out, err);
}

enum far_status far_op_randn(uint64_t seed, uint64_t stream, struct far_tensor *out, struct far_err *err)
{
	return generate("randn", true, seed, stream, out, err);
}

enum far_status far_op_dropout(const struct far_tensor *x, double p, uint64_t seed, uint64_t stream,
			       struct far_tensor *out, struct far_err *err)
{
	TRY(ops_check_float("dropout", "x", x, err));
	if (!(p >= 0 && p <= 1))
		return ops_fail(err, FAR_INVALID, "dropout: p is %g, not in [0, 1]", p);
	TRY(ops_output("dropout", "out", out, (enum far_dtype)x->dtype, x->ndim, x->shape, err));
	TRY(ops_apart("dropout", "out", out, "x", x, true, err));
	if (!ops_wanted(out))
		return FAR_OK;
	unsigned all = (1u << x->ndim) - 1;
	struct ops_space space = ops_space(x->ndim, x->shape, all);
	struct ops_operand from = ops_operand(x, x->ndim, x->shape, all);
	struct ops_operand to = ops_operand(out, x->ndim, x->shape, all);
	ops_space_fold(&space, (struct ops_operand *[]){&from, &to}, 2);
	uint64_t dropped = (uint64_t)(p * 0x1p32); /* words below it */
	double scale = p < 1 ? 1 / (1 - p) : 0;
	bool f64 = x->dtype == FAR_F64;
	for (uint64_t at = 0; at < space.count; at += OPS_BLOCK) {
		union ops_block source, target;
		uint32_t words[OPS_BLOCK];
		size_t n = space.count - at < OPS_BLOCK ? (size_t)(space.count - at) : OPS_BLOCK;
		for (size_t i = 0; i < n; i += 4)
			philox(seed, stream, (at + i) / 4, words + i);
		const void *s = ops_read(&space, &from, 0, at, n, &source);
		void *d = ops_target(&to, 0, at, &target);
		for (size_t i = 0; i < n; i++)
			if (f64)
				((double *)d)[i] = words[i] >= dropped ? ((const double *)s)[i] * scale : 0;
			else
				((float *)d)[i] = words[i] >= dropped ? ((const float *)s)[i] * (float)scale : 0;
		ops_write(&space, &to, 0, at, n, d);
	}
	return FAR_OK;
}
