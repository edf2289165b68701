/* SPDX-License-Identifier: BSD-3-Clause */
/** Compressed gradients: the bits of bf16, the sums of top-k, workers without it, bad bytes. Threads of the test. */
#include "train_gradients.h"

#include <math.h>

enum { N = 16, STEPS = 12, KEPT = 4 };

/* How the server compresses. */
enum { NOT, BF16, BF16_WIDE, TOP_K, TOP_K_OF_VAR, HOWS };
static struct far_compressor *compressors[HOWS];

static void compressors_make(void)
{
	struct far_err err;
	const struct far_compressor_opts bf16 = {.kind = FAR_COMPRESSION_BF16, .elements_min = 2},
					 top = {.kind = FAR_COMPRESSION_TOP_K, .fraction = 0.2};
	for (int how = BF16; how < HOWS; how++)
		OK(far_compressor_new(pool, how <= BF16_WIDE ? &bf16 : &top, &compressors[how], &err));
}

static void compressors_free(void)
{
	for (int how = BF16; how < HOWS; how++)
		far_compressor_free(compressors[how]);
}

/** x * w, so that the gradient of x is w. */
enum far_status compressed_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	int rank = far_self(far_req_agent(req)).worker;
	int64_t how = args[2].u.i;
	struct far_err err;
	struct far_tape *tape;
	struct far_context *context = far_context_of(trains[rank], req, &args[0], &err);
	(void)n;
	(void)user;
	if (!context)
		return far_fail(req, err.status, err.code, "%s", err.text);
	OK(far_tape_new(pool, &tape, &err));
	struct far_var *x = far_tape_recv(tape, context, &args[0]), *w;
	if (how == TOP_K_OF_VAR)
		OK(far_var_compress(x, compressors[how], 7, &err));
	else
		far_context_compress(context, compressors[how]);
	OK(far_var_new(pool, far_val_tensor(&args[1]), false, &w, &err));
	enum far_status status = far_tape_return(tape, context, far_tape_mul(tape, x, w), req);
	far_var_free(w);
	far_tape_free(tape);
	far_context_free(context);
	return status;
}

/** Writes what arrives as the gradient `w` to `out`. Returns the bytes that the server sent. */
static uint64_t through(const struct far_tensor *w, int how, void *out)
{
	struct far_err err;
	struct far_gradient g;
	struct step s = step_begin(TRAINER);
	struct far_tensor zero = *w;
	struct far_var *x;
	struct far_context *there;
	struct far_context_counts counts;
	zero.data = NULL;
	OK(far_var_new(pool, &zero, true, &x, &err));
	const struct far_val args[] = {send_var(&s, x), far_tensor_val(w), far_int(how)};
	OK(backward_of(&s, call_var(&s, SERVER, "g::compressed", args, 3), &err));
	CHECK(far_grads_get(far_context_grads(s.context), x, &g) && g.index.dtype == FAR_DTYPE_NONE);
	CHECK(g.values.dtype == w->dtype && far_tensor_bytes(&g.values) == far_tensor_bytes(w));
	memcpy(out, g.values.data, far_tensor_bytes(w));
	OK(far_context_find(trains[SERVER], NULL, far_context_id(s.context), &there, &err));
	far_context_counts_read(there, &counts);
	far_context_free(there);
	step_end(&s);
	far_var_free(x);
	return counts.bytes_sent;
}

/* ---- bf16 ---- */

/** The nearest f32 whose lower half is 0; of two the one whose upper half is even. By the distances. */
static uint32_t nearest(uint32_t bits)
{
	uint32_t below = bits & 0xffff0000u, rest = bits & 0xffffu;
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return below; /* NaN; the test looks at no more than that it is one */
	if (rest > 0x8000u || (rest == 0x8000u && (below >> 16 & 1)))
		return below + 0x10000u;
	return below;
}

void bf16_rounds_to_nearest(void)
{
	static uint32_t bits[4096], got[4096];
	static double wide[64], got_wide[64];
	const uint32_t edges[] = {0,           0x80000000u, 0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f807fffu,
				  0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u,
				  1,           0x8000u,     0x8001u,     0x18000u,    0x7f7f7fffu, 0x7f7f8000u};
	const size_t edges_n = sizeof edges / sizeof *edges;
	compressors_make();
	for (size_t i = 0; i < 4096; i++)
		bits[i] = i < edges_n ? edges[i] : (uint32_t)(i * 2654435761u);
	struct far_tensor t = far_tensor_1d(FAR_F32, (float *)(void *)bits, 4096);
	CHECK(through(&t, BF16, got) == 2 * 4096);
	for (size_t i = 0; i < 4096; i++) {
		bool nan = (bits[i] & 0x7fffffffu) > 0x7f800000u;
		CHECK(nan ? (got[i] & 0x7fffffffu) > 0x7f800000u : got[i] == nearest(bits[i]));
	}
	for (size_t i = 0; i < 64; i++)
		wide[i] = ldexp(1 + (double)i / 1000, (int)i - 32);
	t = far_tensor_1d(FAR_F64, wide, 64);
	CHECK(through(&t, BF16_WIDE, got_wide) == 2 * 64);
	for (size_t i = 0; i < 64; i++) {
		float f = (float)wide[i];
		uint32_t u;
		memcpy(&u, &f, sizeof u);
		u = nearest(u);
		memcpy(&f, &u, sizeof f);
		CHECK(got_wide[i] == (double)f);
	}
	/* Fewer elements than the compressor has its use for, and none at all. */
	t = far_tensor_1d(FAR_F32, (float *)(void *)(bits + 4), 1);
	CHECK(through(&t, BF16, got) == 4 && got[0] == bits[4]);
	t = far_tensor_1d(FAR_F32, (float *)(void *)bits, 4096);
	CHECK(through(&t, NOT, got) == 4 * 4096 && got[4] == bits[4]);
	compressors_free();
}

/* ---- top-k ---- */

static void sums_become_exact(int how)
{
	float w[N], got[N], sum[N] = {0}, exact[N] = {0};
	struct far_tensor t = far_tensor_1d(FAR_F32, w, N);
	bool differed = false;
	for (int step = 0; step < STEPS + N / KEPT; step++) {
		size_t kept = 0;
		for (int i = 0; i < N; i++)
			w[i] = step < STEPS ? (float)((i * 7 + step * 5) % 23 - 11) : 0;
		CHECK(through(&t, how, got) == KEPT * 8);
		for (int i = 0; i < N; i++) {
			kept += got[i] != 0;
			sum[i] += got[i];
			exact[i] += w[i];
		}
		CHECK(kept <= KEPT);
		differed |= memcmp(sum, exact, sizeof sum) != 0;
	}
	/* Zero gradients have brought what was left. */
	CHECK(differed && memcmp(sum, exact, sizeof sum) == 0);
}

void top_k_feeds_errors_back(void)
{
	float w[N] = {1, -9, 2, 8, -3, 8, NAN, 4}, got[N];
	struct far_tensor t = far_tensor_1d(FAR_F32, w, N);
	struct far_err err;
	struct far_compressor_opts bad = {.kind = FAR_COMPRESSION_TOP_K, .fraction = 1.5};
	struct far_compressor *none;
	compressors_make();
	CHECK(through(&t, TOP_K, got) == KEPT * 8);
	for (int i = 0; i < N; i++)
		CHECK(i == 1 || i == 3 || i == 5 ? got[i] == w[i] : i == 6 ? isnan(got[i]) : got[i] == 0);
	compressors_free();
	compressors_make();
	sums_become_exact(TOP_K);
	sums_become_exact(TOP_K_OF_VAR);
	compressors_free();
	CHECK_STATUS(far_compressor_new(pool, &bad, &none, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "fraction 1.5");
	bad = (struct far_compressor_opts){.kind = (enum far_compression)9};
	CHECK_STATUS(far_compressor_new(pool, &bad, &none, &err), FAR_INVALID, &err);
	struct far_var *mine = leaf_of(w, 1, true);
	CHECK_STATUS(far_var_compress(mine, NULL, 0, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "was not received");
	far_var_free(mine);
}

/* ---- workers that do not know it, and bytes that are none ---- */

void old_workers_are_named(void)
{
	struct far_err err;
	float w[N] = {1, 2, 3};
	struct far_tensor t = far_tensor_1d(FAR_F32, w, N);
	struct step s = step_begin(OLD);
	struct far_var *x = leaf_of(w, N, true);
	compressors_make();
	const struct far_val args[] = {send_var(&s, x), far_tensor_val(&t), far_int(BF16)};
	struct far_var *y = call_var(&s, SERVER, "g::compressed", args, 3);
	CHECK_STATUS(backward_of(&s, y, &err), FAR_NO_FUNCTION, &err);
	CHECK_TEXT(&err, "error on node 1 (worker1): error on node 2 (worker2)");
	CHECK_TEXT(&err, "update its libfarcall-train");
	step_end(&s);
	far_var_free(x);
	compressors_free();
}

/* What gets as far as a variable is in tests/fuzz/fuzz_backward.c. */
void bad_bytes_are_refused(void)
{
	struct far_err err;
	const float one = 1;
	struct step s = step_begin(TRAINER);
	struct far_var *x = leaf_of(&one, 1, true);
	struct far_val v = send_var(&s, x), list = far_list(&v, 1);
	struct far_val number = far_int(1);
	OK(backward_of(&s, call_var(&s, SERVER, "g::doubled", &list, 1), &err));
	list = far_list(&number, 1);
	CHECK_STATUS(far_rpc_sync(agent_of(TRAINER), name_of(SERVER), "far::backward::packed",
				  FAR_ARGS((int64_t)far_context_id(s.context), 1, list), NULL, NULL, &err),
		     FAR_INVALID, &err);
	CHECK_TEXT(&err, "the pass has ended");
	step_end(&s);
	far_var_free(x);
}
