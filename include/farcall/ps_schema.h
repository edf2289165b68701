/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The schema of a table of the parameter server: its rows, their optimizer, first values and bounds. Part of
 * libfarcall-ps; <farcall/ps.h> includes it. Any thread.
 */
#ifndef FARCALL_PS_SCHEMA_H
#define FARCALL_PS_SCHEMA_H

#include <farcall/value.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAR_PS_NAME_MAX  64                /* bytes of the name of a service or table with its NUL */
#define FAR_PS_VALUE_MAX ((size_t)1 << 20) /* bytes of a value */

/** Optimizers: what a gradient g does to a row w. State is f32, zero at first. */
enum far_ps_rule_kind {
	FAR_PS_SGD,             /* w -= rate * g */
	FAR_PS_MOMENTUM,        /* m = beta1 * m + g; w -= rate * m */
	FAR_PS_ADAGRAD,         /* a += g * g; w -= rate * g / (sqrt(a) + epsilon) */
	FAR_PS_ROWWISE_ADAGRAD, /* one a for the row: a += sum(g * g) / dim */
	FAR_PS_RMSPROP,         /* a = beta2 * a + (1 - beta2) * g * g; w as Adagrad */
	FAR_PS_ADAM,            /* with the bias correction of the row's own number of pushes */
	FAR_PS_FTRL,            /* FTRL-Proximal; beta1 is its beta */
	FAR_PS_LAMB,            /* of dense tables: u = Adam's step of rate 1, + decay * w; w -= rate * |w| / |u| * u.
				   The ratio is 1 if either length is 0 */
	FAR_PS_USER             /* the servers' function `name`, see far_ps_rule_register() */
};

/**
 * An optimizer. far_ps_rule_defaults() fills it. Before the rule, in this order: clip_norm, clip_value; l2 * w and
 * l1 * sign(w) are added to the gradient. FTRL has l1 and l2 in its own formula.
 *
 * LAMB: a row is a layer. Lengths are of a row, which one shard has as a whole, so the result does not depend on the
 * number of servers. A tensor of up to 65536 elements may be one row; a larger one is rows that each have a ratio.
 */
struct far_ps_rule {
	enum far_ps_rule_kind kind;
	float rate;                 /* of pushes that have none of their own; > 0 */
	float beta1;                /* momentum, Adam, LAMB: [0, 1); FTRL: >= 0; USER: its function's */
	float beta2;                /* RMSprop, Adam, LAMB: [0, 1); USER: its function's */
	float epsilon;              /* Adagrad (both), RMSprop, Adam, LAMB: > 0; USER: its function's */
	float decay;                /* LAMB: weight decay >= 0 */
	float l1, l2;               /* >= 0 */
	float clip_value;           /* bound of each element of a gradient; 0: none */
	float clip_norm;            /* bound of the length of a row's gradient, applied first; 0: none */
	unsigned state;             /* USER: floats of state of a row, at most 262144; else 0 */
	char name[FAR_PS_NAME_MAX]; /* USER; else empty */
	uint64_t reserved[2];       /* 0 */
};

/** Values of a new row: a function of seed, key and element, the same on every server. */
enum far_ps_init_kind {
	FAR_PS_INIT_CONSTANT, /* a */
	FAR_PS_INIT_UNIFORM,  /* [a, b) */
	FAR_PS_INIT_NORMAL    /* mean a, standard deviation b */
};

struct far_ps_init {
	enum far_ps_init_kind kind;
	float a, b;
	uint64_t seed;
};

/** What happens when a shard has its part of `rows_max` rows and a new key comes. */
enum far_ps_full {
	FAR_PS_FULL_REFUSE, /* the key gets no row */
	FAR_PS_FULL_LRU, /* a row that was used long ago is evicted, of a sample of 16; uses within 64 ms are equal */
	FAR_PS_FULL_LFU  /* a row that is used seldom is evicted, likewise */
};

/** Schema of a table. A zeroed field has its default; `dim` and `rule` have none. */
struct far_ps_schema {
	unsigned dim;          /* elements of a row, [1, 65536]; 0 in tables of values */
	enum far_dtype stored; /* of rows: FAR_F32 (default), FAR_BF16, FAR_F16 */
	struct far_ps_rule rule;
	struct far_ps_init init;
	uint64_t rows_max; /* bound of rows of the table, divided equally over its shards, rounded up; 0: none */
	enum far_ps_full full;
	unsigned admit;            /* pushes that a key needs for its row, at most 255; 0 and 1: the first makes it */
	uint64_t admit_candidates; /* keys that each shard counts for admission at once; 0: 2^20 */
	uint64_t ttl_ms;           /* a row that was not pushed or assigned for so long is gone; 0: rows stay */
	unsigned workers;   /* that advance the table's clock, at most FAR_PS_WORKERS_MAX; 0: the table has no clock */
	unsigned staleness; /* steps that a pull may lack, see far_ps_pull_opts.clock; 0: bulk-synchronous */
	unsigned replicas;  /* copies of a row: 0 or 1; more is UNSUPPORTED */
	uint64_t hedge_after_ns; /* 0; else UNSUPPORTED */
	uint64_t dense_rows; /* 0; or the table is dense: it has the keys [0, dense_rows), at most 2^32, each of them
				with a row from the start. Without rows_max, full, admit and ttl_ms */
	uint64_t value_max;  /* 0; or the table has values: strings of bytes, of at most so many, [1, FAR_PS_VALUE_MAX].
				Without dim, stored, rule, init, dense_rows and admit */
	uint64_t reserved[2]; /* 0 */
};

/** Fills a rule with usual values: rate 0.01 (FTRL 0.1), beta1 0.9 (FTRL 1), beta2 0.999 (RMSprop 0.9), epsilon 1e-8
 * (Adagrad 1e-10), no regularisation and no bounds. An unknown kind gives that of SGD, with the kind kept. */
void far_ps_rule_defaults(struct far_ps_rule *rule, enum far_ps_rule_kind kind);

#ifdef __cplusplus
}
#endif
#endif
