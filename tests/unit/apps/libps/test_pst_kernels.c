/* SPDX-License-Identifier: BSD-3-Clause */
/* The inner loops of every instruction set of this processor against plain scalar code. The test's thread. */
#include "apps/libps/pst_kernels.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <math.h>

TestSuite(pst_kernels);

static const struct pst_kernels *each(unsigned *i)
{
	return pst_kernels_nth((*i)++);
}

static uint32_t bits(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	return b;
}

static float of_bits(uint32_t b)
{
	float x;
	memcpy(&x, &b, sizeof x);
	return x;
}

/* Distance in units in the last place. */
static int64_t ulps(float a, float b)
{
	int64_t x = (int32_t)bits(a), y = (int32_t)bits(b);
	x = x < 0 ? INT32_MIN - x : x;
	y = y < 0 ? INT32_MIN - y : y;
	return x > y ? x - y : y - x;
}

/* By the definition of the format, in double. */
static double f16_value(uint16_t h)
{
	double m = h & 0x3ff;
	int e = h >> 10 & 31;
	double x = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
	return h & 0x8000 ? -x : x;
}

Test(pst_kernels, every_half_is_widened_exactly_and_narrowed_to_itself)
{
	unsigned level = 0;
	for (const struct pst_kernels *k; (k = each(&level));) {
		static uint16_t h[65536], back[65536];
		static float f[65536];
		for (unsigned i = 0; i < 65536; i++)
			h[i] = (uint16_t)i;
		k->widen(PST_F16, f, h, 65536, 0);
		k->narrow(PST_F16, back, f, 65536);
		for (unsigned i = 0; i < 65536; i++) {
			bool special = (i >> 10 & 31) == 31;
			if (!special)
				cr_assert_eq((double)f[i], f16_value(h[i]), "%s: %04x", k->name, i);
			else
				cr_assert(i & 0x3ff ? isnan(f[i]) : isinf(f[i]));
			cr_assert_eq(signbit(f[i]) != 0, i >> 15);
			cr_assert(back[i] == h[i] || ((i & 0x3ff) && special && back[i] == (h[i] | 0x200)), "%s: %04x",
				  k->name, i);
		}
		k->widen(PST_BF16, f, h, 65536, 0);
		k->narrow(PST_BF16, back, f, 65536);
		for (unsigned i = 0; i < 65536; i++) {
			cr_assert_eq(bits(f[i]), i << 16);
			bool nan = (i & 0x7f80) == 0x7f80 && (i & 0x7f);
			cr_assert_eq(back[i], nan ? (i | 0x40) : i);
		}
	}
}

/* The two neighbours of a number: the nearer one, of two equally near ones the even one. */
static void check_rounding(const struct pst_kernels *k, enum pst_type type, float x)
{
	uint16_t got;
	float gotten;
	k->narrow(type, &got, &x, 1);
	k->widen(type, &gotten, &got, 1, 0);
	if (isinf(gotten)) {
		double limit = type == PST_F16 ? 65520.0 : ldexp(2 - ldexp(1, -8), 127);
		cr_assert_geq(fabs((double)x), limit, "%s: %a", k->name, (double)x);
		return;
	}
	double error = fabs((double)gotten - (double)x);
	for (int step = -1; step <= 1; step += 2) {
		uint16_t other = (uint16_t)(got + step);
		float value;
		k->widen(type, &value, &other, 1, 0);
		if (!isfinite(value) || (other ^ got) & 0x8000)
			continue;
		double other_error = fabs((double)value - (double)x);
		cr_assert(error < other_error || (error == other_error && !(got & 1)), "%s: type %d: %a became %a",
			  k->name, (int)type, (double)x, (double)gotten);
	}
}

Test(pst_kernels, numbers_are_rounded_to_the_nearest_half_ties_to_even)
{
	unsigned level = 0;
	for (const struct pst_kernels *k; (k = each(&level));) {
		uint64_t seed = 9;
		for (int i = 0; i < 200000; i++) {
			uint32_t b = (uint32_t)draw64(&seed);
			if (i % 2) /* exponents of f16, and ties */
				b = (b & 0x8fffe000) | (100u + (uint32_t)(draw64(&seed) % 46)) << 23 |
				    (i % 4 == 1 ? 0x1000 : 0);
			if (i % 8 == 2)
				b = (b & 0xffff0000) | 0x8000;
			if (!isfinite(of_bits(b)))
				continue;
			check_rounding(k, PST_F16, of_bits(b));
			check_rounding(k, PST_BF16, of_bits(b));
		}
	}
}

Test(pst_kernels, int8_is_off_by_half_a_step_at_most)
{
	unsigned level = 0;
	for (const struct pst_kernels *k; (k = each(&level));) {
		uint64_t seed = 4;
		for (unsigned n = 1; n < 70; n++)
			for (int scale_bits = -140; scale_bits < 120; scale_bits += 13) {
				float x[70], back[70], most = 0;
				int8_t q[70];
				for (unsigned i = 0; i < n; i++) {
					x[i] = ldexpf(draw_float(&seed, -1, 1), scale_bits);
					most = fmaxf(most, fabsf(x[i]));
				}
				float scale = k->narrow(PST_INT8, q, x, n);
				k->widen(PST_INT8, back, q, n, scale);
				for (unsigned i = 0; i < n; i++) {
					cr_assert_eq(back[i], scale * (float)q[i]);
					cr_assert_leq(fabs((double)back[i] - (double)x[i]),
						      0.5001 * scale + ldexp(1, -149), "%s: %a of %a", k->name,
						      (double)x[i], (double)most);
				}
			}
		float zero[3] = {0, -0.0f, 0}, bad[3] = {1, INFINITY, 2}, subnormal[2] = {0x1p-149f, -0x1p-149f};
		int8_t q[3];
		cr_assert_eq(bits(k->narrow(PST_INT8, q, zero, 3)), 0);
		cr_assert(q[0] == 0 && q[1] == 0 && q[2] == 0);
		cr_assert(isnan(k->narrow(PST_INT8, q, bad, 3)));
		cr_assert(k->narrow(PST_INT8, q, subnormal, 2) > 0);
		cr_assert(q[0] == 1 && q[1] == -1);
	}
}

Test(pst_kernels, the_first_bad_element_is_found_wherever_it_is)
{
	unsigned level = 0;
	for (const struct pst_kernels *k; (k = each(&level));) {
		for (unsigned n = 1; n < 1100; n += n < 40 ? 1 : 97)
			for (unsigned at = 0; at < n; at += n < 40 ? 1 : 13) {
				static float f[1100];
				static uint16_t h[1100];
				for (unsigned i = 0; i < n; i++) {
					f[i] = i % 2 ? 0x1.fffffep127f : -0x1.fffffep127f;
					h[i] = i % 2 ? 0x7bff : 0xfbff;
				}
				cr_assert_eq(k->first_bad(PST_F32, f, n), n);
				cr_assert_eq(k->first_bad(PST_F16, h, n), n);
				f[at] = at % 3 ? INFINITY : at % 2 ? NAN : -INFINITY;
				f[n - 1] = at == n - 1 ? f[at] : NAN;
				h[at] = at % 2 ? 0x7c00 : 0xfe00;
				cr_assert_eq(k->first_bad(PST_F32, f, n), at, "%s: %u of %u", k->name, at, n);
				cr_assert_eq(k->first_bad(PST_F16, h, n), at);
				for (unsigned i = 0; i < n; i++)
					h[i] = i % 2 ? 0x7f7f : 0xff7f;
				cr_assert_eq(k->first_bad(PST_BF16, h, n), n);
				h[at] = at % 2 ? 0x7f80 : 0xffc0;
				cr_assert_eq(k->first_bad(PST_BF16, h, n), at);
			}
	}
}

/* ---- Optimizers ---- */

/* The formulas of pst_rule.h, an element after the other; sums in the order of elements. */
static void reference(const struct pst_rule *r, float rate, float *w, float *s, const float *grad, unsigned dim)
{
	float g[512], sum = 0, ww = 0, uu = 0;
	for (unsigned i = 0; i < dim; i++)
		sum += grad[i] * grad[i];
	float clip = r->clip_norm > 0 && sqrtf(sum) > r->clip_norm ? r->clip_norm / sqrtf(sum) : 1;
	sum = 0;
	for (unsigned i = 0; i < dim; i++) {
		g[i] = grad[i] * clip;
		if (r->clip_value > 0)
			g[i] = fminf(fmaxf(g[i], -r->clip_value), r->clip_value);
		if (r->kind != PST_RULE_FTRL) {
			g[i] += r->l2 * w[i];
			g[i] += r->l1 * (w[i] > 0 ? 1.0f : w[i] < 0 ? -1.0f : 0.0f);
		}
		sum += g[i] * g[i];
	}
	float *a = s, *b = s + dim, *pq = s + 2 * dim;
	if (r->kind == PST_RULE_ROWWISE_ADAGRAD)
		s[0] += sum / (float)dim;
	if (r->kind == PST_RULE_ADAM || r->kind == PST_RULE_LAMB) {
		pq[0] = r->beta1 * pq[0] + (1 - r->beta1);
		pq[1] = r->beta2 * pq[1] + (1 - r->beta2);
	}
	for (unsigned i = 0; i < dim; i++)
		switch (r->kind) {
		case PST_RULE_SGD:
			w[i] -= rate * g[i];
			break;
		case PST_RULE_MOMENTUM:
			a[i] = r->beta1 * a[i] + g[i];
			w[i] -= rate * a[i];
			break;
		case PST_RULE_ADAGRAD:
			a[i] += g[i] * g[i];
			w[i] -= rate * g[i] / (sqrtf(a[i]) + r->epsilon);
			break;
		case PST_RULE_ROWWISE_ADAGRAD:
			w[i] -= rate / (sqrtf(s[0]) + r->epsilon) * g[i];
			break;
		case PST_RULE_RMSPROP:
			a[i] = r->beta2 * a[i] + (1 - r->beta2) * (g[i] * g[i]);
			w[i] -= rate * g[i] / (sqrtf(a[i]) + r->epsilon);
			break;
		case PST_RULE_ADAM:
			a[i] = r->beta1 * a[i] + (1 - r->beta1) * g[i];
			b[i] = r->beta2 * b[i] + (1 - r->beta2) * (g[i] * g[i]);
			w[i] -= rate / pq[0] * a[i] / (sqrtf(b[i] / pq[1]) + r->epsilon);
			break;
		case PST_RULE_FTRL: {
			float n = b[i] + g[i] * g[i];
			a[i] += g[i] - (sqrtf(n) - sqrtf(b[i])) / rate * w[i];
			b[i] = n;
			float sign = a[i] > 0 ? 1 : -1;
			w[i] = fabsf(a[i]) <= r->l1 ? 0
						    : (sign * r->l1 - a[i]) / ((r->beta1 + sqrtf(n)) / rate + r->l2);
			break;
		}
		case PST_RULE_LAMB:
			ww += w[i] * w[i];
			a[i] = r->beta1 * a[i] + (1 - r->beta1) * g[i];
			b[i] = r->beta2 * b[i] + (1 - r->beta2) * (g[i] * g[i]);
			g[i] = a[i] / pq[0] / (sqrtf(b[i] / pq[1]) + r->epsilon) + r->decay * w[i];
			uu += g[i] * g[i];
			break;
		default:
			w[i] = w[i] - rate * g[i] * (float)(i + 1);
			s[0] += i == 0;
			break;
		}
	if (r->kind == PST_RULE_LAMB)
		for (unsigned i = 0; i < dim; i++)
			w[i] -= ww > 0 && uu > 0 ? rate * (sqrtf(ww) / sqrtf(uu)) * g[i] : rate * g[i];
}

static void user_rule(void *ctx, float *row, float *state, const float *grad, unsigned dim, float rate)
{
	(void)ctx;
	for (unsigned i = 0; i < dim; i++)
		row[i] = row[i] - rate * grad[i] * (float)(i + 1);
	state[0] += 1;
}

struct arrays {
	struct pst_slabs rows, state;
	float scratch[3 * 512] __attribute__((aligned(64)));
};

/* Without a sum over the row the results have the reference's bits; with one, of other order, they are near. */
static bool sums(const struct pst_rule *r)
{
	return r->kind == PST_RULE_ROWWISE_ADAGRAD || r->kind == PST_RULE_LAMB || r->clip_norm > 0;
}

static void compare(const char *name, const struct pst_rule *r, const float *got, const float *want, unsigned n,
		    const char *what)
{
	for (unsigned i = 0; i < n; i++) {
		if (!sums(r)) {
			cr_assert_eq(bits(got[i]), bits(want[i]), "%s: %s: %s %u is %a, not %a", name,
				     pst_rule_name(r->kind), what, i, (double)got[i], (double)want[i]);
			continue;
		}
		/* 64 ulp of the largest quantities that are added, here about 1. */
		cr_assert(ulps(got[i], want[i]) <= 64 || fabsf(got[i] - want[i]) <= 64 * 0x1p-23f,
			  "%s: %s: %s %u is %a, not %a", name, pst_rule_name(r->kind), what, i, (double)got[i],
			  (double)want[i]);
	}
}

static void try_rule(const struct pst_kernels *k, const struct pst_rule *r, unsigned dim, enum pst_type stored,
		     enum pst_type wire, uint64_t seed)
{
	enum { ROWS = 40, PUSHES = 90 };
	static struct arrays b;
	unsigned states = pst_rule_state(r, dim);
	pst_slabs_init(&b.rows, (dim * pst_type_bytes(stored) + 4) & ~3u, &pst_memory_default);
	pst_slabs_init(&b.state, states ? states * 4 : 4, &pst_memory_default);
	pst_slabs_reserve(&b.rows, ROWS);
	pst_slabs_reserve(&b.state, ROWS);
	float *want = calloc(ROWS * dim, sizeof *want), *want_state = calloc(ROWS * (states + 1), sizeof *want_state);
	for (unsigned i = 0; i < ROWS; i++) {
		float row[512];
		for (unsigned d = 0; d < dim; d++)
			row[d] = draw_float(&seed, -1, 1);
		k->narrow(stored, pst_slabs_at(&b.rows, i), row, dim);
		k->widen(stored, want + i * dim, pst_slabs_at(&b.rows, i), dim, 0);
	}
	uint32_t ids[PUSHES];
	float *grads = calloc(PUSHES * dim, sizeof *grads), scales[PUSHES];
	char *sent = calloc(PUSHES * dim, 4);
	for (unsigned i = 0; i < PUSHES; i++) {
		ids[i] = draw64(&seed) % 16 ? (uint32_t)(draw64(&seed) % ROWS) : UINT32_MAX;
		for (unsigned d = 0; d < dim; d++)
			grads[i * dim + d] = draw64(&seed) % 8 ? draw_float(&seed, -1, 1) : 0;
		char *to = sent + i * dim * pst_type_bytes(wire);
		scales[i] = k->narrow(wire, to, grads + i * dim, dim);
		k->widen(wire, grads + i * dim, to, dim, scales[i]);
	}
	struct pst_apply a = {.rule = r,
			      .rate = 0.05f,
			      .dim = dim,
			      .stored = stored,
			      .rows = &b.rows,
			      .state = states ? &b.state : NULL,
			      .ids = ids,
			      .n = PUSHES,
			      .wire = wire,
			      .grads = sent,
			      .scales = wire == PST_INT8 ? scales : NULL,
			      .scratch = b.scratch};
	k->apply(&a);
	for (unsigned i = 0; i < PUSHES; i++) {
		if (ids[i] == UINT32_MAX)
			continue;
		float *w = want + ids[i] * dim;
		uint16_t narrow[512];
		reference(r, 0.05f, w, want_state + ids[i] * states, grads + i * dim, dim);
		if (stored != PST_F32) {
			k->narrow(stored, narrow, w, dim);
			k->widen(stored, w, narrow, dim, 0);
		}
	}
	bool exact = stored == PST_F32 || !sums(r); /* a half may be rounded to the other neighbour */
	for (unsigned i = 0; i < ROWS && exact; i++) {
		float row[512];
		k->widen(stored, row, pst_slabs_at(&b.rows, i), dim, 0);
		compare(k->name, r, row, want + i * dim, dim, "element");
		if (states)
			compare(k->name, r, pst_slabs_at(&b.state, i), want_state + i * states, states, "state");
	}
	free(sent);
	free(grads);
	free(want);
	free(want_state);
	pst_slabs_fini(&b.rows);
	pst_slabs_fini(&b.state);
}

static void try_all(enum pst_rule_kind kind)
{
	static const unsigned dims[] = {1, 2, 7, 15, 16, 17, 31, 32, 64, 100};
	unsigned level = 0;
	for (const struct pst_kernels *k; (k = each(&level));)
		for (unsigned d = 0; d < sizeof dims / sizeof *dims; d++)
			for (unsigned options = 0; options < 8; options++) {
				struct pst_rule r;
				pst_rule_defaults(&r, kind);
				r.user = user_rule;
				r.user_state = 1;
				r.l1 = options & 1 ? 0.01f : 0;
				r.l2 = options & 1 ? 0.02f : 0;
				r.clip_value = options & 2 ? 0.5f : 0;
				r.clip_norm = options & 4 ? 1.5f : 0;
				r.decay = options & 1 ? 0.03f : 0;
				uint64_t seed = d * 100 + options;
				try_rule(k, &r, dims[d], PST_F32, PST_F32, seed);
				try_rule(k, &r, dims[d], PST_BF16, PST_F16, seed);
				try_rule(k, &r, dims[d], PST_F16, PST_BF16, seed);
				try_rule(k, &r, dims[d], PST_F32, PST_INT8, seed);
			}
}

Test(pst_kernels, sgd)
{
	try_all(PST_RULE_SGD);
}

Test(pst_kernels, momentum)
{
	try_all(PST_RULE_MOMENTUM);
}

Test(pst_kernels, adagrad)
{
	try_all(PST_RULE_ADAGRAD);
}

Test(pst_kernels, rowwise_adagrad)
{
	try_all(PST_RULE_ROWWISE_ADAGRAD);
}

Test(pst_kernels, rmsprop)
{
	try_all(PST_RULE_RMSPROP);
}

Test(pst_kernels, adam)
{
	try_all(PST_RULE_ADAM);
}

Test(pst_kernels, ftrl)
{
	try_all(PST_RULE_FTRL);
}

Test(pst_kernels, lamb)
{
	try_all(PST_RULE_LAMB);
}

Test(pst_kernels, user)
{
	try_all(PST_RULE_USER);
}

/* Sums too have the same bits on every instruction set. */
Test(pst_kernels, all_instruction_sets_give_the_same_bits)
{
	for (enum pst_rule_kind kind = 0; kind < PST_RULE_USER; kind++) {
		float first[100], first_state[202];
		unsigned level = 0;
		for (const struct pst_kernels *k; (k = each(&level));) {
			struct pst_rule r;
			pst_rule_defaults(&r, kind);
			r.clip_norm = 1;
			r.l2 = 0.1f;
			r.decay = 0.1f;
			uint64_t seed = 77;
			float grads[5 * 100], scratch[3 * 112] __attribute__((aligned(64)));
			struct pst_slabs rows, state;
			pst_slabs_init(&rows, 400, &pst_memory_default);
			pst_slabs_init(&state, 808, &pst_memory_default);
			pst_slabs_reserve(&rows, 1);
			pst_slabs_reserve(&state, 1);
			float *row = pst_slabs_at(&rows, 0);
			for (unsigned i = 0; i < 500; i++)
				grads[i] = draw_float(&seed, -1, 1);
			for (unsigned i = 0; i < 100; i++)
				row[i] = draw_float(&seed, -1, 1);
			uint32_t ids[5] = {0};
			struct pst_apply a = {.rule = &r,
					      .rate = 0.1f,
					      .dim = 100,
					      .rows = &rows,
					      .state = &state,
					      .ids = ids,
					      .n = 5,
					      .grads = grads,
					      .scratch = scratch};
			k->apply(&a);
			if (level == 1) {
				memcpy(first, row, sizeof first);
				memcpy(first_state, pst_slabs_at(&state, 0), sizeof first_state);
			}
			cr_assert_eq(memcmp(first, row, sizeof first), 0, "%s: %s", k->name, pst_rule_name(kind));
			cr_assert_eq(memcmp(first_state, pst_slabs_at(&state, 0), sizeof first_state), 0);
			pst_slabs_fini(&rows);
			pst_slabs_fini(&state);
		}
	}
}

Test(pst_kernels, weighted_sums)
{
	unsigned level = 0;
	for (const struct pst_kernels *k; (k = each(&level));)
		for (unsigned n = 1; n < 50; n++) {
			float to[50], from[50], want[50];
			uint64_t seed = n;
			for (unsigned i = 0; i < n; i++) {
				to[i] = draw_float(&seed, -1, 1);
				from[i] = draw_float(&seed, -1, 1);
				want[i] = to[i] + 0.3f * from[i];
			}
			k->add(to, from, n, 0.3f);
			cr_assert_eq(memcmp(to, want, n * sizeof *to), 0);
		}
}
