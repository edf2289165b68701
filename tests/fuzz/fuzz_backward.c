/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads the input as what other workers send to a backward pass: numbers of variables and gradients, in any order. A
 * request is done or refused with a text; a pass ends with the first that is refused. Whatever came, no more nodes run
 * than the graph has, and nothing of the pool is left. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "base/must.h"
#include "spread.h"

enum { CONTEXT = 77, OPERATIONS = 64, SENT = 7, DATA = 5 * 5 * 5 * 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *at;
static size_t left;
static struct far_pool *pool;
static struct far_train *train;
static struct far_err err;

static unsigned byte(void)
{
	if (left == 0)
		return 0;
	left--;
	return *at++;
}

/* ---- what is here ---- */

static struct far_var *leaf(struct far_tensor t, bool grad)
{
	struct far_var *var;
	must(far_var_new(pool, &t, grad, &var, &err) == FAR_OK);
	return var;
}

/** A context from which the variables of a small graph were sent. The tape keeps what has a node. */
static struct far_context *context_make(struct far_tape *tape, struct far_var *leaves[3])
{
	struct far_context *c = pool_zero(pool, sizeof *c);
	struct far_var *a = leaves[0] = leaf(far_tensor_2d(FAR_F32, NULL, 2, 3), true);
	struct far_var *table = leaves[1] = leaf(far_tensor_2d(FAR_F32, NULL, 4, 2), true);
	struct far_var *arrived = leaves[2] = leaf(far_tensor_1d(FAR_F64, NULL, 2), true);
	struct far_var *plain = far_tape_detach(tape, a);
	must(c && far_grads_new(pool, &c->grads, &err) == FAR_OK);
	pthread_mutex_init(&c->lock, NULL);
	c->train = train;
	c->id = CONTEXT;
	arrived->sent_context = CONTEXT;
	arrived->sent_id = 3;
	arrived->sent_rank = 1;
	struct far_var *sent[SENT] = {a,
				      table,
				      arrived,
				      plain,
				      far_tape_mul(tape, a, a),
				      far_tape_scale(tape, far_tape_exp(tape, arrived), 2),
				      far_tape_relu(tape, far_tape_add(tape, a, a))};
	must(far_tape_status(tape, &err) == FAR_OK);
	for (size_t i = 0; i < SENT; i++) {
		must(pool_grow(pool, (void **)&c->sent, &c->sent_capacity, i, sizeof(struct wire *)));
		c->sent[c->sent_n++] = wire_new(sent[i]);
		must(c->sent[i]);
	}
	return c;
}

static void context_drop(struct far_context *c)
{
	spreads_free(c);
	for (size_t i = 0; i < c->sent_n; i++)
		wire_unref(c->sent[i]);
	pool_give(c->sent);
	far_grads_free(c->grads);
	pthread_mutex_destroy(&c->lock);
	pool_give(c);
}

/* ---- what comes ---- */

static uint64_t number(void)
{
	unsigned b = byte();
	return b == 255 ? UINT64_MAX : b;
}

/** A tensor whose elements are integers from the input. */
static struct far_tensor tensor(int64_t elements[DATA / 8])
{
	struct far_tensor t = {.dtype = (uint8_t)(1 + byte() % (FAR_DTYPE_COUNT - 1))};
	t.ndim = (uint8_t)(byte() % 4);
	unsigned first = byte();
	for (unsigned k = 0; k < t.ndim; k++)
		t.shape[k] = byte() % 5;
	for (unsigned i = 0; i < DATA / 8; i++)
		elements[i] = (int64_t)first - 128 + (int64_t)(i % 3);
	t.data = elements;
	return t;
}

static enum far_status expect(struct spread *s)
{
	uint64_t numbers[8];
	unsigned type = byte(), n = byte() % 8;
	struct far_tensor ids = far_tensor_1d(type == 255 ? FAR_I64 : FAR_U64, numbers, n);
	for (uint64_t i = 0; i < ids.shape[0]; i++)
		numbers[i] = number();
	struct far_val args[] = {far_int(CONTEXT), far_int(1), far_int(type % 8), far_tensor_val(&ids)};
	enum far_status status = spread_expect(s, args, 1, &err);
	return status ? status : spread_follow(s, &err);
}

/** `packed`: some may be compressed. All are too short to be kept with their request. */
static enum far_status deliver(struct spread *s, bool packed)
{
	static int64_t elements[8][DATA / 8];
	struct far_tensor tensors[8];
	struct far_val items[8];
	size_t n = byte() % 9;
	for (size_t i = 0; i < n; i++) {
		unsigned kind = byte();
		items[i] = far_none();
		if (kind % 4 == 1)
			items[i] = far_int((int64_t)number());
		if (kind % 4 < 2)
			continue;
		tensors[i] = tensor(elements[i]);
		items[i] = far_tensor_val(&tensors[i]);
	}
	const struct far_val list = far_list(items, n);
	enum far_status status = spread_deliver(s, &list, &(struct delivery){NULL, NULL, packed, &s->loan}, &err);
	if (!status) {
		must(spread_return(s, &err) == FAR_OK);
		must(s->loan.refs == 1); /* the memory of the request ends */
	}
	return status || s->pass.started ? status : spread_follow(s, &err);
}

static enum far_status run(struct spread *s)
{
	enum far_status status = spread_start(s, &err);
	return status ? status : pass_run(&s->pass, &err);
}

static void operations(struct far_context *c)
{
	struct spread *s = NULL;
	for (int i = 0; i < OPERATIONS && left > 0; i++) {
		unsigned what = byte();
		if (!s)
			s = spread_new(c, 1, what >> 4 & 3);
		must(s);
		err = (struct far_err){0};
		enum far_status status = what % 3 == 0 ? expect(s) : what % 3 == 1 ? deliver(s, what & 0x80) : run(s);
		must(status == FAR_OK || (status == FAR_INVALID && err.text[0]));
		must(s->pass.left <= s->pass.n);
		outboxes_free(s->outboxes); /* in place of sending them */
		s->outboxes = NULL;
		if (status) {
			spread_remove(s);
			s = NULL;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct far_pool_stats stats;
	struct far_tape *tape;
	struct far_var *leaves[3];
	must(pool || (far_pool_new(0, &pool, &err) == FAR_OK && far_train_new(pool, &train, &err) == FAR_OK));
	must(far_tape_new(pool, &tape, &err) == FAR_OK);
	struct far_context *c = context_make(tape, leaves);
	at = data;
	left = size;
	operations(c);
	context_drop(c);
	far_tape_free(tape);
	for (int i = 0; i < 3; i++)
		far_var_free(leaves[i]);
	far_pool_get_stats(pool, &stats);
	must(stats.used_bytes == 0);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
