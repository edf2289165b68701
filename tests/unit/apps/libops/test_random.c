/* SPDX-License-Identifier: BSD-3-Clause */
/** Random numbers: Philox against its published vectors, and the numbers made of it. The test's thread. */
#include "tensors.h"

TestSuite(random_numbers, .fini = tensors_free);

static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t w[4])
{
	uint32_t k[2] = {key[0], key[1]};
	memcpy(w, counter, 4 * sizeof *w);
	for (int round = 0; round < 10; round++, k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u) {
		unsigned long long a = 0xD2511F53ull * w[0], b = 0xCD9E8D57ull * w[2];
		uint32_t high_a = (uint32_t)(a >> 32), high_b = (uint32_t)(b >> 32);
		uint32_t w1 = w[1], w3 = w[3];
		w[0] = high_b ^ w1 ^ k[0];
		w[1] = (uint32_t)b;
		w[2] = high_a ^ w3 ^ k[1];
		w[3] = (uint32_t)a;
	}
}

/* Random123's known answers for philox4x32-10. */
Test(random_numbers, the_reference_has_the_known_answers)
{
	static const struct {
		uint32_t counter[4], key[2], words[4];
	} known[] = {
		{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
		 {0xffffffff, 0xffffffff},
		 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
		 {0xa4093822, 0x299f31d0},
		 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};
	for (size_t i = 0; i < 3; i++) {
		uint32_t words[4];
		philox(known[i].counter, known[i].key, words);
		cr_assert_eq(memcmp(words, known[i].words, sizeof words), 0, "vector %zu", i);
	}
}

static void block(uint64_t seed, uint64_t stream, uint64_t i, uint32_t w[4])
{
	philox((const uint32_t[]){(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)},
	       (const uint32_t[]){(uint32_t)seed, (uint32_t)(seed >> 32)}, w);
}

Test(random_numbers, rand)
{
	const uint64_t seed = 0x123456789abcdef0u, stream = 0xfedcba9876543210u;
	struct far_tensor f32 = T(FAR_F32, 3, 257), f64 = T(FAR_F64, 771), bf16 = T(FAR_BF16, 771),
			  f16 = T(FAR_F16, 771);
	OK(far_op_rand(seed, stream, &f32, &err));
	OK(far_op_rand(seed, stream, &f64, &err));
	OK(far_op_rand(seed, stream, &bf16, &err));
	OK(far_op_rand(seed, stream, &f16, &err));
	for (uint64_t i = 0; i < 771; i++) {
		uint32_t w[4];
		block(seed, stream, i / 2, w);
		uint64_t both = (uint64_t)w[i % 2 * 2] << 32 | w[i % 2 * 2 + 1];
		cr_assert_eq(get(&f64, i), (double)(both >> 11) * 0x1p-53);
		block(seed, stream, i / 4, w);
		cr_assert_eq(get(&f32, i), (w[i % 4] >> 8) * 0x1p-24);
		cr_assert_eq(get(&bf16, i), (w[i % 4] >> 24) * 0x1p-8);
		cr_assert_eq(get(&f16, i), (w[i % 4] >> 21) * 0x1p-11);
	}
}

Test(random_numbers, randn)
{
	struct far_tensor f32 = T(FAR_F32, 20001), f64 = T(FAR_F64, 20001), bf16 = T(FAR_BF16, 9);
	OK(far_op_randn(1, 2, &f32, &err));
	OK(far_op_randn(1, 2, &f64, &err));
	OK(far_op_randn(1, 2, &bf16, &err));
	double mean[2] = {0}, square[2] = {0}, fourth[2] = {0};
	for (uint64_t i = 0; i < 20001; i++) {
		uint32_t w[4];
		block(1, 2, i / 4, w);
		double u = (w[i % 4 / 2 * 2] + 1.0) * 0x1p-32, v = w[i % 4 / 2 * 2 + 1] * 0x1p-32;
		double r = sqrt(-2 * log(u)), turn = 2 * acos(-1) * v;
		cr_assert(near(get(&f32, i), i % 2 ? r * sin(turn) : r * cos(turn), 1e-7), "element %zu", (size_t)i);
		if (i < 9)
			cr_assert_eq(get(&bf16, i), half_value(FAR_BF16, half_bits(FAR_BF16, get(&f32, i))));
		block(1, 2, i / 2, w);
		u = (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53 + 0x1p-53;
		v = (double)(((uint64_t)w[2] << 32 | w[3]) >> 11) * 0x1p-53;
		r = sqrt(-2 * log(u));
		turn = 2 * acos(-1) * v;
		cr_assert(near(get(&f64, i), i % 2 ? r * sin(turn) : r * cos(turn), 1e-14), "element %zu", (size_t)i);
		for (int k = 0; k < 2; k++) {
			double x = get(k ? &f64 : &f32, i);
			mean[k] += x / 20001;
			square[k] += x * x / 20001;
			fourth[k] += x * x * x * x / 20001;
		}
	}
	for (int k = 0; k < 2; k++) {
		cr_assert_lt(fabs(mean[k]), 0.03);
		cr_assert_lt(fabs(square[k] - 1), 0.05);
		cr_assert_lt(fabs(fourth[k] - 3), 0.3);
	}
}

Test(random_numbers, dropout)
{
	struct far_tensor x = view(FAR_F32, 2, (const uint64_t[]){30, 101}), out = T(FAR_F32, 30, 101);
	fill(&x, 1, 2);
	OK(far_op_dropout(&x, 0.25, 11, 12, &out, &err));
	size_t zeros = 0;
	for (uint64_t i = 0; i < 3030; i++) {
		uint32_t w[4];
		block(11, 12, i / 4, w);
		bool kept = w[i % 4] >= 0x40000000u;
		cr_assert(near(get(&out, i), kept ? get(&x, i) / 0.75 : 0, 1e-6));
		zeros += !kept;
	}
	cr_assert(zeros > 600 && zeros < 900);
	OK(far_op_dropout(&x, 0, 11, 12, &out, &err));
	cr_assert_eq(get(&out, 77), get(&x, 77));
	OK(far_op_dropout(&x, 1, 11, 12, &out, &err));
	for (uint64_t i = 0; i < 3030; i++)
		cr_assert_eq(get(&out, i), 0);
}
