/* SPDX-License-Identifier: BSD-3-Clause */
/** Computes the initial values of rows, without functions of libm: these differ between machines. Any thread. */
#include "pst_init.h"

#include "pst_fail.h"
#include "pst_hash.h"
#include <math.h>
#include <string.h>

#define NORMAL_MOST 6.4 /* of pst_init_normal() at the 2^32 points */

enum far_status pst_init_check(const struct pst_init *init, struct far_err *err)
{
	if ((unsigned)init->kind >= PST_INITS)
		return pst_fail(err, FAR_INVALID, 0, "init.kind is %d; constant, uniform or normal", (int)init->kind);
	if (!isfinite(init->a) || (init->kind != PST_INIT_CONSTANT && !isfinite(init->b)))
		return pst_fail(err, FAR_INVALID, 0, "init.a is %g and init.b %g; both must be finite", (double)init->a,
				(double)init->b);
	if (init->kind == PST_INIT_UNIFORM && !(init->b >= init->a && isfinite(init->b - init->a)))
		return pst_fail(err, FAR_INVALID, 0, "init: uniform values from a, %g, to b, %g: no range",
				(double)init->a, (double)init->b);
	if (init->kind == PST_INIT_NORMAL && init->b < 0)
		return pst_fail(err, FAR_INVALID, 0, "init.b is %g; a standard deviation must be at least 0",
				(double)init->b);
	return FAR_OK;
}

double pst_init_most(const struct pst_init *init)
{
	double a = fabs((double)init->a), b = fabs((double)init->b);
	if (init->kind == PST_INIT_CONSTANT)
		return a;
	return init->kind == PST_INIT_UNIFORM ? fmax(a, b) : a + NORMAL_MOST * b;
}

/* ln x for normal x > 0: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 * atanh((m - 1) / (m + 1)). */
static double ln(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	int e = (int)(bits >> 52) - 1022;
	bits = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(1022) << 52;
	double m;
	memcpy(&m, &bits, sizeof m);
	if (m < 0.70710678118654752) {
		m *= 2;
		e--;
	}
	double t = (m - 1) / (m + 1), t2 = t * t, sum = 0;
	for (int k = 21; k >= 1; k -= 2)
		sum = sum * t2 + 1.0 / k;
	return 2 * t * sum + e * 0.69314718055994531;
}

static double polynomial(const double c[8], double x)
{
	double y = c[7];
	for (int i = 6; i >= 0; i--)
		y = y * x + c[i];
	return y;
}

double pst_init_normal(double p)
{
	static const double a[8] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
				    1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
				    3.3430575583588128105e4, 2.5090809287301226727e3};
	static const double b[8] = {1.0,
				    4.2313330701600911252e1,
				    6.8718700749205790830e2,
				    5.3941960214247511077e3,
				    2.1213794301586595867e4,
				    3.9307895800092710610e4,
				    2.8729085735721942674e4,
				    5.2264952788528545610e3};
	static const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
				    3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
				    2.27238449892691845833e-2, 7.74545014278341407640e-4};
	static const double d[8] = {1.0,
				    2.05319162663775882187e0,
				    1.67638483018380384940e0,
				    6.89767334985100004550e-1,
				    1.48103976427480074590e-1,
				    1.51986665636164571966e-2,
				    5.47593808499534494600e-4,
				    1.05075007164441684324e-9};
	static const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
				    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
				    2.71155556874348757815e-5, 2.01033439929228813265e-7};
	static const double f[8] = {1.0,
				    5.99832206555887937690e-1,
				    1.36929880922735805310e-1,
				    1.48753612908506148525e-2,
				    7.86869131145613259100e-4,
				    1.84631831751005468180e-5,
				    1.42151175831644588870e-7,
				    2.04426310338993978564e-15};
	double q = p - 0.5;
	if (q <= 0.425 && q >= -0.425) {
		double r = 0.180625 - q * q;
		return q * polynomial(a, r) / polynomial(b, r);
	}
	double r = sqrt(-ln(q < 0 ? p : 1 - p));
	double x =
		r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
	return q < 0 ? -x : x;
}

void pst_init_row(const struct pst_init *init, uint64_t key, float *row, unsigned dim)
{
	uint64_t at = pst_hash(key ^ pst_hash(init->seed + UINT64_C(0x9e3779b97f4a7c15)));
	for (unsigned i = 0; i < dim; i++) {
		uint32_t random = (uint32_t)(pst_hash(at + (i + 1) * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
		if (init->kind == PST_INIT_CONSTANT)
			row[i] = init->a;
		else if (init->kind == PST_INIT_UNIFORM)
			row[i] = init->a + (init->b - init->a) * ((float)(random >> 8) * 0x1p-24f);
		else
			row[i] = (float)((double)init->a +
					 (double)init->b * pst_init_normal(((double)random + 0.5) * 0x1p-32));
	}
}
