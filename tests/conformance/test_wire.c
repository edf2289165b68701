/* SPDX-License-Identifier: BSD-3-Clause */
/** Values as bytes: O2. What a malformed payload is, its own parser says; the rest is seen in what travels.
 * Main thread of each process. */
#include "functions.h"
#include "value/encoding.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that a call of far::identity with this argument sends from here. */
static uint64_t bytes_of(const struct far_val *v)
{
	struct far_counters a, b;
	far_counters_read(agent, &a);
	struct far_val back = CALL(peer(1), "far::identity", FAR_ARGS(*v));
	far_val_fini(&back);
	far_counters_read(agent, &b);
	return b.bytes_sent - a.bytes_sent;
}

/* Every type there and back: nothing is lost. */
static void round_trip(void)
{
	static const uint8_t raw[] = {0, 1, 255, 10};
	static const double doubles[] = {1.5, -0.0};
	struct far_tensor t = far_tensor_1d(FAR_F64, doubles, 2), empty = far_tensor_2d(FAR_I32, NULL, 0, 3);
	struct far_val v = CALL(peer(1), "far::identity",
				FAR_ARGS(FAR_LIST(far_none(), far_bool(true), INT64_MIN, 2.5, "text", far_bytes(raw, 4),
						  &t, &empty, FAR_DICT(FAR_ENTRY(1.5, far_list(NULL, 0))))));
	HOLDS(far_len(&v) == 9 && far_list_get(&v, 0)->type == FAR_TYPE_NONE && far_list_get(&v, 1)->u.b);
	HOLDS(far_list_get(&v, 2)->u.i == INT64_MIN && far_list_get(&v, 3)->u.f == 2.5);
	HOLDS(strcmp(far_list_get(&v, 4)->u.s.data, "text") == 0);
	HOLDS(far_len(far_list_get(&v, 5)) == 4 && memcmp(far_list_get(&v, 5)->u.s.data, raw, 4) == 0);
	HOLDS(memcmp(far_list_get(&v, 6)->u.t.data, doubles, sizeof doubles) == 0);
	HOLDS(far_list_get(&v, 7)->u.t.shape[1] == 3 && far_len(far_list_get(&v, 7)) == 0);
	HOLDS(far_list_get(&v, 8)->u.dict.entries[0].key.u.f == 1.5);
	far_val_fini(&v);
}

CONFORM(O2, TensorpipeSerialize_Base)
{
	round_trip();
}

/* Of a large matrix every hundredth element: those travel, not what is between them. */
static void views_are_compact(size_t elements)
{
	const uint64_t shape[] = {elements / 100};
	const int64_t strides[] = {100};
	float *x = conform_memory(elements * sizeof *x);
	for (size_t i = 0; i < elements; i++)
		x[i] = (float)i;
	struct far_tensor t = far_tensor_nd(FAR_F32, x, 1, shape, strides);
	struct far_val view = far_tensor_val(&t);
	for (int turn = 0; turn < WORLD; turn++) { /* nobody answers others meanwhile */
		uint64_t took = turn == rank ? bytes_of(&view) : elements / 100 * sizeof *x;
		HOLDS(took >= elements / 100 * sizeof *x && took < elements / 100 * sizeof *x + 8192);
		OK(far_barrier(agent, NULL, 0, 0, &err));
	}
	struct far_val v = CALL(peer(1), "far::identity", FAR_ARGS(view));
	HOLDS(v.u.t.shape[0] == elements / 100 && !v.u.t.strides);
	for (size_t i = 0; i < elements / 100; i++)
		HOLDS(((const float *)v.u.t.data)[i] == (float)(i * 100));
	far_val_fini(&v);
}

CONFORM(O2, TensorpipeSerialize_RecopySparseTensors)
{
	views_are_compact(1000 * 1000);
}

/* Memory of the caller's that the engine knows nothing of, and that is gone when the call has been started. */
CONFORM(O2, TensorpipeSerialize_NoDeleterTensors)
{
	float stack[4] = {1, 2, 3, 4}, *heap = malloc(sizeof stack);
	struct far_tensor t = far_tensor_2d(FAR_F32, stack, 2, 2), u = far_tensor_2d(FAR_F32, heap, 2, 2);
	HOLDS(heap);
	memcpy(heap, stack, sizeof stack);
	struct far_future *f = ASYNC(peer(1), "far::add", FAR_ARGS(&t, &u));
	memset(stack, 0, sizeof stack);
	memset(heap, 0, sizeof stack);
	free(heap);
	struct far_val v = TAKE(f);
	HOLDS(memcmp(v.u.t.data, (float[]){2, 4, 6, 8}, sizeof stack) == 0);
	far_val_fini(&v);
}

/* ---- without a call ---- */

enum { PAYLOAD = 4096 };
static _Alignas(64) uint8_t payload[PAYLOAD];

static size_t written(const struct far_val *v, size_t n)
{
	struct values_plan plan;
	size_t size = values_size(v, n, &plan, &err);
	HOLDS(size != SIZE_MAX && size <= sizeof payload);
	values_write(v, n, &plan, payload);
	return size;
}

CONFORM(O2, WireSerialize_Base)
{
	struct far_val v[4], in[] = {far_str("hello"), far_bytes("bytes", 5), far_int(rank), full(2, 2, rank)};
	size_t n = 0, size = written(in, 4);
	HOLDS(values_read(payload, size, v, 4, &n, NULL) == 0 && n == 4);
	HOLDS(strcmp(v[0].u.s.data, "hello") == 0 && memcmp(v[1].u.s.data, "bytes", 5) == 0 && v[2].u.i == rank);
	HOLDS(memcmp(v[3].u.t.data, in[3].u.t.data, far_tensor_bytes(&in[3].u.t)) == 0);
	size = written(in, 0);
	HOLDS(values_read(payload, size, v, 4, &n, NULL) == 0 && n == 0);
	round_trip();
}

CONFORM(O2, WireSerialize_RecopySparseTensors)
{
	float x[1024];
	const uint64_t shape[] = {4};
	const int64_t strides[] = {256};
	for (int i = 0; i < 1024; i++)
		x[i] = (float)i;
	struct far_tensor t = far_tensor_nd(FAR_F32, x, 1, shape, strides);
	struct far_val v = far_tensor_val(&t), out;
	size_t n = 0, size = written(&v, 1);
	HOLDS(size <= 4 * sizeof(float) + 16);
	HOLDS(values_read(payload, size, &out, 1, &n, NULL) == 0 && n == 1 && out.u.t.shape[0] == 4);
	HOLDS(memcmp(out.u.t.data, (float[]){0, 256, 512, 768}, 4 * sizeof(float)) == 0);
}

/* A copy has what is seen of it, whatever it is a view of, and outlives it. */
CONFORM(O2, WireSerialize_CloneSparseTensors)
{
	float *x = malloc(1024 * sizeof *x);
	const uint64_t shape[] = {2, 2};
	const int64_t strides[] = {512, -1};
	struct far_val copy;
	HOLDS(x);
	for (int i = 0; i < 1024; i++)
		x[i] = (float)i;
	struct far_tensor t = far_tensor_nd(FAR_F32, x + 1, 2, shape, strides);
	struct far_val v = far_tensor_val(&t);
	OK(far_val_dup(&v, &copy, &err));
	free(x);
	HOLDS(!copy.u.t.strides && far_tensor_bytes(&copy.u.t) == 4 * sizeof *x);
	HOLDS(memcmp(copy.u.t.data, (float[]){1, 0, 513, 512}, 4 * sizeof *x) == 0);
	far_val_fini(&copy);
}

/* Every payload that is cut, and every one with a byte changed, is refused or read within its bounds. */
CONFORM(O2, WireSerialize_Errors)
{
	struct far_val v[4], in[] = {far_str("hello"), far_int(1), full(2, 2, 1)};
	size_t n = 0, size = written(in, 3), refused = 0;
	HOLDS(values_read(payload, 0, v, 4, &n, NULL) == -EBADMSG);
	for (size_t cut = 1; cut < size; cut++) {
		uint8_t *exact = aligned_alloc(64, (cut + 63) / 64 * 64);
		HOLDS(exact);
		memcpy(exact, payload, cut);
		HOLDS(values_read(exact, cut, v, 4, &n, NULL) == -EBADMSG);
		free(exact);
	}
	for (size_t at = 0; at < size; at++) {
		uint8_t was = payload[at];
		payload[at] ^= 0x95;
		refused += values_read(payload, size, v, 4, &n, NULL) != 0;
		payload[at] = was;
	}
	HOLDS(refused > 4); /* what describes; elements may be anything */
	HOLDS(values_read(payload, size, v, 2, &n, NULL) == -E2BIG);
}

CONFORM(O2, WireSerialize_DISABLED_Sparse)
{
	struct far_val in = sparse.make(rank + 1), copy;
	OK(far_val_dup(&in, &copy, &err));
	sparse.is(HERE, copy, rank + 1);
	sparse.is(HERE, CALL(peer(1), "far::identity", FAR_ARGS(in)), rank + 1);
}
