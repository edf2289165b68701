/* SPDX-License-Identifier: BSD-3-Clause */
/** Changes that a client makes once more after a restart count once; the keys that are used most.
 * Main thread of each process. */
#include "api_ps.h"

enum { CLIENT = 4711, USED = 61 * 8 };

static void push(struct far_ps_table *t, size_t n, float gradient)
{
	struct far_future *f;
	for (size_t i = 0; i < n * DIM; i++)
		grads[i] = gradient;
	DONE(far_ps_push(t, keys, n, grads, NULL, NULL, &f, &err), n);
}

/* A client opens the service, with what an earlier one had. */
static struct far_ps *open_as(uint64_t next, uint64_t epoch)
{
	struct far_ps *again;
	struct far_ps_open_opts opts = {.client = CLIENT, .next = next, .epoch = epoch};
	CHECK_STATUS(far_ps_open(agent, "ads", &opts, &again, &err), FAR_OK, &err);
	CHECK(far_ps_client(again) == CLIENT);
	return again;
}

void restarted(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("restarted", &schema), *mine;
	struct far_ps *first = open_as(0, 0), *other;
	struct far_future *f;
	for (int i = 0; i < MANY; i++)
		keys[i] = spread((uint64_t)i);
	CHECK_STATUS(far_ps_table_open(first, "restarted", 0, &mine, &err), FAR_OK, &err);
	push(mine, 100, -1);
	/* The checkpoint is here. */
	uint64_t next = far_ps_next(first), epoch = far_ps_epoch(first);
	CHECK(next > 1 && epoch == 1);
	push(mine, MANY, -1);
	push(mine, 1000, -2);
	far_ps_table_free(mine);
	far_ps_close(first);

	first = open_as(next, epoch);
	CHECK(far_ps_next(first) == next);
	CHECK_STATUS(far_ps_table_open(first, "restarted", 0, &mine, &err), FAR_OK, &err);
	push(mine, MANY, -1);
	push(mine, 1000, -2);
	push(mine, 10, -4); /* of the second incarnation alone */
	far_ps_table_free(mine);
	far_ps_close(first);
	DONE(far_ps_pull(t, keys, MANY, NULL, rows, NULL, &f, &err), MANY);
	for (int i = 0; i < MANY; i++)
		CHECK(rows[i * DIM] == (float)(1 + (i < 100) + 2 * (i < 1000) + 4 * (i < 10)));
	CHECK(stats_of(t).duplicates > 0);

	struct far_ps_open_opts opts = {.client = CLIENT, .next = next, .epoch = 9};
	BAD(far_ps_open(agent, "ads", &opts, &other, &err), FAR_GONE, "epoch 1, not 9");
	opts = (struct far_ps_open_opts){.next = 5};
	BAD(far_ps_open(agent, "ads", &opts, &other, &err), FAR_INVALID, "next is 5 without a client");
	far_ps_table_free(t);
}

void used_most(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("used", &schema);
	struct far_ps_hot_key hot[4];
	struct far_future *f;
	size_t n = 4;
	CHECK_STATUS(far_ps_hot(t, 0, hot, &n, &err), FAR_OK, &err);
	CHECK(n == 0);
	for (int i = 0; i < 3 * USED; i++) {
		keys[0] = i % 3 ? 7 : 9;
		DONE(far_ps_pull(t, keys, 1, NULL, rows, NULL, &f, &err), 1);
	}
	n = 4;
	CHECK_STATUS(far_ps_hot(t, 0, hot, &n, &err), FAR_OK, &err);
	CHECK(n == 2 && hot[0].key == 7 && hot[1].key == 9);
	CHECK(hot[0].uses >= 2 * USED - 61 * 8 && hot[0].uses <= 2 * USED + 61 * 8 && hot[0].uses > hot[1].uses);
	n = 1;
	CHECK_STATUS(far_ps_hot(t, 0, hot, &n, &err), FAR_OK, &err);
	CHECK(n == 1 && hot[0].key == 7);
	BAD(far_ps_hot(t, 0, NULL, &n, &err), FAR_INVALID, "NULL");
	BAD(far_ps_hot(NULL, 0, hot, &n, &err), FAR_INVALID, "NULL");
	far_ps_table_free(t);
}
