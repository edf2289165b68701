/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Exact sums through the parameter server: `farcall run -n 5 -- ps_sums [SHARDS]` makes ranks 0 and 1 servers and the
 * others workers. Gradients are small integers, so float sums are exact in any order, and every row has one right
 * value. Exit status 0 when every worker found all of them. Main thread of each process.
 */
#include "apps/pserver/ps_client.h"
#include "apps/pserver/serve.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVERS   2
#define KEYS      10000
#define PUSHES    50
#define TWICE     100 /* keys that each push names a second time */
#define DIM       3
#define ASYNC     0 /* tables */
#define BSP       1
#define WIDE      2
#define ADA       3 /* by Adagrad, bulk-synchronous */
#define ADA_ASYNC 4 /* the same, one worker's pushes at once */
#define WIDE_DIM  512
#define WIDE_KEYS 3000 /* 6 MB: several parts for each server */
#define TIMEOUT   (30 * FAR_SEC)

struct sums {
	struct group group;
	struct ps_client ps;
	int workers, index;
	unsigned shards; /* of each server */
	uint64_t keys[KEYS + TWICE];
	float grads[(KEYS + TWICE) * DIM], rows[(KEYS + TWICE) * DIM];
};

/* Keys all over the 64 bits, the same at all workers. */
static uint64_t key_of(size_t i)
{
	return ps_mix(i * 7919 + 1);
}

/* In [-4, 4]: below 2^24 after any number of pushes here. */
static float grad_of(size_t key, int worker, int push, int d)
{
	return (float)((int)((key * 31 + (size_t)worker * 17 + (size_t)push * 7 + (size_t)d * 3) % 9) - 4);
}

/* Keys in another order for each worker and push, some of them twice. */
static void fill(struct sums *s, int push)
{
	size_t stride = 7 + 2 * (size_t)(push % 5), offset = (size_t)s->index * 1237 + (size_t)push * 331;
	while (KEYS % stride == 0) /* a stride prime to KEYS = 2^4 5^4 visits each key once */
		stride += 2;
	if (stride % 5 == 0)
		stride += 2;
	for (size_t i = 0; i < KEYS + TWICE; i++) {
		size_t k = i < KEYS ? (i * stride + offset) % KEYS : (i - KEYS) * 97 % KEYS;
		s->keys[i] = key_of(k);
		for (int d = 0; d < DIM; d++)
			s->grads[i * DIM + (size_t)d] = grad_of(k, s->index, push, d);
	}
}

static float expected(const struct sums *s, size_t key, int pushes, int d)
{
	int times = key % 97 == 0 && key / 97 < TWICE ? 2 : 1;
	/* i * 97 mod KEYS for i < TWICE never wraps: 99 * 97 < KEYS. */
	float sum = 0.0f;
	for (int w = 0; w < s->workers; w++)
		for (int p = 0; p < pushes; p++)
			sum += (float)times * grad_of(key, w, p, d);
	return sum;
}

static int verify(struct sums *s, int table, int pushes)
{
	struct far_err err;
	for (size_t i = 0; i < KEYS; i++)
		s->keys[i] = key_of(i);
	if (ps_pull(&s->ps, table, s->keys, KEYS, s->rows, &err) != FAR_OK) {
		group_complain(&s->group, &err);
		return 1;
	}
	int wrong = 0;
	for (size_t i = 0; i < KEYS; i++) {
		for (int d = 0; d < DIM; d++) {
			float want = expected(s, i, pushes, d), got = s->rows[i * DIM + (size_t)d];
			if (got != want && wrong++ < 5)
				fprintf(stderr, "table %d key %zu element %d: %g, not %g\n", table, i, d, (double)got,
					(double)want);
		}
	}
	return wrong != 0;
}

static enum far_status push_async(struct sums *s, struct far_err *err)
{
	enum far_status status = FAR_OK;
	for (int p = 0; p < PUSHES && status == FAR_OK; p++) {
		fill(s, p);
		if (p % 10 == 9) /* its answer shows others' pushes too: only that it comes is checked */
			status = ps_push_pull(&s->ps, &(struct ps_push){ASYNC, s->keys, KEYS + TWICE, s->grads, -1.0f},
					      s->rows, err);
		else
			status = ps_push(&s->ps, &(struct ps_push){ASYNC, s->keys, KEYS + TWICE, s->grads, -1.0f}, err);
	}
	return status;
}

/* The mean over 3 workers at a rate of −3 is their sum, and 3 × (1 / 3) is 1 in floats too. Each step is over when the
 * push returns: the rows of the answer are known exactly. */
static enum far_status push_bsp(struct sums *s, int *wrong, struct far_err *err)
{
	enum far_status status = FAR_OK;
	float rate = -(float)s->workers;
	for (int p = 0; p < PUSHES && status == FAR_OK; p++) {
		struct ps_bsp bsp = {.step = p, .workers = s->workers};
		fill(s, p);
		if (p % 10 != 9) {
			status = ps_push_bsp(&s->ps, &(struct ps_push){BSP, s->keys, KEYS + TWICE, s->grads, rate}, bsp,
					     err);
			continue;
		}
		status = ps_push_pull_bsp(&s->ps, &(struct ps_push){BSP, s->keys, KEYS + TWICE, s->grads, rate}, bsp,
					  s->rows, err);
		for (size_t i = KEYS; i < KEYS + TWICE && status == FAR_OK; i++)
			*wrong |= s->rows[i * DIM] != expected(s, (i - KEYS) * 97, p + 1, 0);
	}
	return status;
}

/* Rows so wide that each operation is cut into parts; then one key alone, which leaves a server without work. */
static enum far_status wide(struct sums *s, int *wrong, struct far_err *err)
{
	size_t floats = (size_t)WIDE_KEYS * WIDE_DIM;
	float *grads = calloc(floats, sizeof *grads), *rows = calloc(floats, sizeof *rows);
	enum far_status status = FAR_RESOURCE;
	if (grads == NULL || rows == NULL)
		goto out;
	s->ps.chunk_bytes = (size_t)1 << 20;
	for (size_t i = 0; i < floats; i++)
		grads[i] = (float)(i % 11);
	for (size_t i = 0; i < WIDE_KEYS; i++)
		s->keys[i] = key_of(i);
	for (int step = 0; step < 2; step++) {
		struct ps_bsp bsp = {.step = step, .workers = s->workers};
		status = ps_push_pull_bsp(
			&s->ps, &(struct ps_push){WIDE, s->keys, WIDE_KEYS, grads, -(float)s->workers}, bsp, rows, err);
		if (status != FAR_OK)
			goto out;
		for (size_t i = 0; i < floats; i++)
			*wrong |= rows[i] != (float)((step + 1) * s->workers) * (float)(i % 11);
	}
	struct ps_bsp bsp = {.step = 2, .workers = s->workers};
	status = ps_push_bsp(&s->ps, &(struct ps_push){WIDE, s->keys, 1, grads, 0.0f}, bsp, err);
	bsp.step = 3;
	if (status == FAR_OK)
		status = ps_push_bsp(&s->ps, &(struct ps_push){WIDE, s->keys, 0, NULL, 0.0f}, bsp, err);
	if (status == FAR_OK)
		status = ps_pull(&s->ps, WIDE, s->keys, 1, rows, err);
	*wrong |= rows[10] != (float)(2 * s->workers) * 10.0f;
out:
	free(grads);
	free(rows);
	return status;
}

/* Adagrad as one process would do it, key by key: the mean over the workers of each step's gradients, those of a key
 * that is named twice added up. */
static float adagrad(const struct sums *s, size_t key, int d, float rate)
{
	int times = key % 97 == 0 && key / 97 < TWICE ? 2 : 1;
	double row = 0.0, squares = 0.0;
	for (int p = 0; p < PUSHES; p++) {
		double g = 0.0;
		for (int w = 0; w < s->workers; w++)
			g += times * (double)grad_of(key, w, p, d) / s->workers;
		squares += g * g;
		row -= (double)rate * g / (sqrt(squares) + (double)PS_EPSILON);
	}
	return (float)row;
}

static enum far_status check_adagrad(struct sums *s, int table, float rate, int *wrong, struct far_err *err)
{
	for (size_t i = 0; i < KEYS; i++)
		s->keys[i] = key_of(i);
	enum far_status status = ps_pull(&s->ps, table, s->keys, KEYS, s->rows, err);
	for (size_t i = 0; i < KEYS && status == FAR_OK; i++)
		for (int d = 0; d < DIM; d++) {
			float want = adagrad(s, i, d, rate), got = s->rows[i * DIM + (size_t)d];
			if (fabsf(got - want) > 1e-4f * (1.0f + fabsf(want)) && (*wrong)++ < 5)
				fprintf(stderr, "adagrad: table %d key %zu element %d: %g, not %g\n", table, i, d,
					(double)got, (double)want);
		}
	return status;
}

static enum far_status push_adagrad(struct sums *s, int *wrong, struct far_err *err)
{
	const struct ps_rule rule = {PS_ADAGRAD, PS_EPSILON};
	float rate = 0.25f;
	enum far_status status = ps_create_with(&s->ps, ADA, DIM, 0.0f, &rule, err);
	if (status == FAR_OK) /* the same table by another rule */
		*wrong |= ps_create(&s->ps, ADA, DIM, 0.0f, err) != FAR_INVALID;
	for (int p = 0; p < PUSHES && status == FAR_OK; p++) {
		struct ps_bsp bsp = {.step = p, .workers = s->workers};
		fill(s, p);
		status = ps_push_bsp(&s->ps, &(struct ps_push){ADA, s->keys, KEYS + TWICE, s->grads, rate}, bsp, err);
	}
	if (status == FAR_OK)
		status = check_adagrad(s, ADA, rate, wrong, err);
	/* At once: each worker has a table of its own, as if it were alone. */
	int table = ADA_ASYNC + s->index, workers = s->workers;
	if (status == FAR_OK)
		status = ps_create_with(&s->ps, table, DIM, 0.0f, &rule, err);
	for (int p = 0; p < PUSHES && status == FAR_OK; p++) {
		int index = s->index;
		s->index = 0;
		fill(s, p);
		s->index = index;
		status = ps_push(&s->ps, &(struct ps_push){table, s->keys, KEYS + TWICE, s->grads, rate}, err);
	}
	s->workers = 1;
	if (status == FAR_OK)
		status = check_adagrad(s, table, rate, wrong, err);
	s->workers = workers;
	return status;
}

static enum far_status run(struct sums *s, int *wrong, struct far_err *err)
{
	enum far_status status = ps_create(&s->ps, ASYNC, DIM, 0.0f, err);
	if (status == FAR_OK)
		status = ps_create(&s->ps, BSP, DIM, 0.0f, err);
	if (status == FAR_OK)
		status = ps_create(&s->ps, WIDE, WIDE_DIM, 0.0f, err);
	if (status == FAR_OK)
		status = push_async(s, err);
	if (status == FAR_OK)
		status = ps_barrier(&s->ps, 0, s->workers, err);
	if (status != FAR_OK)
		return status;
	*wrong |= verify(s, ASYNC, PUSHES);
	status = push_bsp(s, wrong, err);
	if (status != FAR_OK)
		return status;
	*wrong |= verify(s, BSP, PUSHES);
	status = wide(s, wrong, err);
	if (status == FAR_OK)
		status = push_adagrad(s, wrong, err);
	int64_t stats[PS_STATS];
	if (status == FAR_OK)
		status = ps_stats(&s->ps, ASYNC, stats, err);
	if (status == FAR_OK)
		*wrong |= stats[PS_STAT_ROWS] != KEYS ||
			  stats[PS_STAT_KEYS_PUSHED] != (int64_t)s->workers * PUSHES * (KEYS + TWICE);
	return status == FAR_OK ? ps_leave(&s->ps, err) : status;
}

static int worker(struct sums *s)
{
	struct far_err err;
	int wrong = 0, status = 1;
	if (group_join(&s->group, NULL, 1, NULL))
		return 1;
	if (ps_client_init(&s->ps, s->group.agent, SERVERS, s->shards, TIMEOUT) == 0) {
		status = run(s, &wrong, &err) != FAR_OK;
		if (status)
			group_complain(&s->group, &err);
	}
	ps_client_fini(&s->ps);
	if (status) {
		far_shutdown_local(s->group.agent, NULL);
	} else if (far_shutdown(s->group.agent, 0, &err) != FAR_OK) {
		group_complain(&s->group, &err);
		status = 1;
	}
	fprintf(stderr, "ps_sums: worker %d: %s\n", s->index, status ? "failed" : wrong ? "wrong sums" : "all exact");
	return status || wrong;
}

int main(int argc, char **argv)
{
	struct sums *s = calloc(1, sizeof *s);
	if (s == NULL)
		return 1;
	s->shards = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	s->group = (struct group){.program = "ps_sums", .rank_flag = GROUP_RANK_UNSET};
	int status = 2;
	if (group_identify(&s->group) == 0 && s->group.world > SERVERS) {
		struct serve_options serving = {.servers = SERVERS, .shards = s->shards, .timeout_ns = TIMEOUT};
		s->workers = s->group.world - SERVERS;
		s->index = s->group.rank - SERVERS;
		status = s->group.rank < SERVERS ? serve(&s->group, &serving) : worker(s);
	}
	free(s);
	return status;
}
