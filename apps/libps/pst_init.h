/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Initial values of rows: a function of the seed, the key and the element's index alone, so a row that is made on
 * another server, or made again, begins with the same values. Any thread.
 */
#ifndef PST_INIT_H
#define PST_INIT_H

#include <farcall/status.h>
#include <stdint.h>

enum pst_init_kind {
	PST_INIT_CONSTANT, /* a */
	PST_INIT_UNIFORM,  /* [a, b): a + (b - a) * u, u a multiple of 2^-24 in [0, 1) */
	PST_INIT_NORMAL, /* mean a, standard deviation b: the inverse of the normal distribution function at one of the
			    2^32 points (i + 1/2) / 2^32, by Wichura's AS 241 (PPND16) */
	PST_INITS
};

struct pst_init {
	enum pst_init_kind kind;
	float a, b;
	uint64_t seed;
};

/** OK, or INVALID: bounds that are not finite, b < a (uniform), b < 0 (normal). */
enum far_status pst_init_check(const struct pst_init *init, struct far_err *err);

/** Bound of the magnitude of values, of init that pst_init_check() permits. */
double pst_init_most(const struct pst_init *init);

/** The `dim` elements of a key's new row. Any thread. */
void pst_init_row(const struct pst_init *init, uint64_t key, float *row, unsigned dim);

/** Inverse of the standard normal distribution function, p in (0, 1). The same bits on every machine. */
double pst_init_normal(double p);

#endif
