/* SPDX-License-Identifier: BSD-3-Clause */
/** The floor of a table: requests of keys through shared memory to a flat array of rows. The measuring thread; with
 * floor_rows_serve() the serving one. */
#include "floor_ring.h"

#include "ps_flat.h"
#include <errno.h>
#include <string.h>

/* In the shared area, in the order of use. */
struct request {
	struct floor_rows array; /* written in FLOOR_IDLE */
	int32_t error;           /* server: why it has no array, 0 or -errno */
	uint32_t n, row_bytes;
	bool push;
	_Alignas(4096) uint64_t keys[FLOOR_ROWS_KEYS_MAX];
	_Alignas(4096) unsigned char in[1 << 20];  /* gradients */
	_Alignas(4096) unsigned char out[1 << 20]; /* rows */
};
static_assert(sizeof(struct request) <= FLOOR_AREA_BYTES, "a request fits");

static struct request *request_of(struct floor_shared *s)
{
	return (struct request *)(void *)s->area;
}

static void answer(const struct ps_flat *f, struct request *r)
{
	if (r->push)
		ps_flat_push(f, r->keys, r->n, r->row_bytes, (const float *)(const void *)r->in);
	else
		ps_flat_pull(f, r->keys, r->n, r->row_bytes, r->out);
}

int floor_rows_serve(struct floor_shared *s, uint64_t mode)
{
	static struct ps_flat flat;        /* stays for the next time */
	static struct floor_rows flat_has; /* its size */
	struct request *r = request_of(s);
	if (flat_has.rows != r->array.rows || flat_has.row_bytes != r->array.row_bytes) {
		ps_flat_close(&flat);
		flat_has = (struct floor_rows){0};
		r->error = ps_flat_open(&flat, r->array.rows, r->array.row_bytes);
		if (r->error == 0)
			flat_has = r->array;
	}
	atomic_store_explicit(&s->tail.v, 1, memory_order_release); /* pairs with floor_rows_open() */
	for (uint64_t n = 2; r->error == 0; n++) {
		int rc = floor_spin(s, mode, &s->head.v, n);
		if (rc)
			return rc < 0 ? rc : 0;
		answer(&flat, r);
		atomic_store_explicit(&s->tail.v, n, memory_order_release); /* pairs with floor_rows_exchange() */
	}
	return 0;
}

int floor_rows_open(struct floor_shared *s, const struct floor_rows *rows)
{
	request_of(s)->array = *rows;
	request_of(s)->error = 0;
	atomic_store_explicit(&s->head.v, 1, memory_order_relaxed);
	atomic_store_explicit(&s->tail.v, 0, memory_order_relaxed); /* both published by floor_switch() */
	int rc = floor_switch(s, FLOOR_ROWS);
	uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	/* A large array takes the server longer than FLOOR_LOST_NS. */
	for (int tries = 0; rc == 0 && atomic_load_explicit(&s->tail.v, memory_order_acquire) != 1; tries++)
		if ((rc = floor_spin(s, mode, &s->tail.v, 1)) == -ETIMEDOUT && tries < 20)
			rc = 0;
	return rc ? rc : request_of(s)->error;
}

int floor_rows_exchange(struct floor_shared *s, const uint64_t *keys, uint32_t n, uint32_t row_bytes,
			const float *grads, void *out, uint64_t *ns)
{
	struct request *r = request_of(s);
	size_t bytes = (size_t)n * row_bytes;
	if (n > FLOOR_ROWS_KEYS_MAX || bytes > sizeof r->in)
		return -EINVAL;
	uint64_t mode = atomic_load_explicit(&s->mode.v, memory_order_relaxed);
	uint64_t next = atomic_load_explicit(&s->head.v, memory_order_relaxed) + 1, start = floor_now();
	r->n = n;
	r->row_bytes = row_bytes;
	r->push = grads != NULL;
	memcpy(r->keys, keys, n * sizeof *keys);
	if (grads)
		memcpy(r->in, grads, bytes);
	atomic_store_explicit(&s->head.v, next, memory_order_release); /* pairs with floor_rows_serve() */
	int rc = floor_spin(s, mode, &s->tail.v, next);
	if (rc == 0 && !grads)
		memcpy(out, r->out, bytes);
	*ns = floor_now() - start;
	return rc;
}

int floor_rows_close(struct floor_shared *s)
{
	return floor_switch(s, FLOOR_IDLE);
}
