/* SPDX-License-Identifier: BSD-3-Clause */
/** Draws the keys that measurements of tables use. The measuring thread. */
#include "ps_keys.h"

#include "apps/libps/pst_hash.h"
#include <math.h>

#define ZIPF_EXPONENT 1.2

static uint64_t draw(uint64_t *state)
{
	return pst_hash(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/* Rejection-inversion for exponents above 1 (Hörmann and Derflinger). */
static uint64_t zipf(uint64_t *state, uint64_t n)
{
	const double s = ZIPF_EXPONENT;
	double h1 = pow(1.5, 1 - s) / (1 - s) - 1, hn = pow((double)n + 0.5, 1 - s) / (1 - s);
	for (;;) {
		double u = hn + (double)(draw(state) >> 11) * 0x1p-53 * (h1 - hn);
		double x = pow(u * (1 - s), 1 / (1 - s)), k = floor(x + 0.5);
		if (k < 1)
			k = 1;
		if (u >= pow(k + 0.5, 1 - s) / (1 - s) - pow(k, -s))
			return (uint64_t)k - 1 < n ? (uint64_t)k - 1 : n - 1;
	}
}

void ps_keys_draw(uint64_t *state, uint64_t rows, bool is_zipf, uint64_t *keys, size_t n)
{
	for (size_t i = 0; i < n; i++)
		keys[i] = is_zipf ? pst_hash(zipf(state, rows)) % rows : draw(state) % rows;
}
