/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Shared memory that changes between any two instructions of its reader: the thread that drives a shard runs one
 * instruction at a time, and after each of them the line that was received, and its body in the bulk area, are made
 * good or bad by a seed. Whatever the engine reads twice differs sooner or later. Nothing may crash or be read outside;
 * what api_rewritten leaves to the luck of two cores is tried here at every step. usage: api_stepped [SEED]
 */
#include "api_together.h"

#if !defined(__x86_64__)
int main(void)
{
	fprintf(stderr, "api_stepped: steps by a flag of x86-64; skipped\n");
	return 77;
}
#else

#include "nic/shm/shm_layout.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define LIMIT_NS (FAR_SEC / 2)

enum { ROUNDS = 24, CALLS = 6, BYTES = 4000, BODY = 160 };

/* What is changed. All but the first ones end the session when the wrong one is seen first. */
enum what { IN_BODY, IN_HEAD, IN_WORD, WHATS, IN_REFERENCE = WHATS };

static struct together ends[2];
static struct shm_pair *pair;
static uint64_t seed = 1, dice_state;
static struct counts {
	_Atomic uint64_t steps, changes, calls, well, lost;
	_Atomic uint64_t limit_ns; /* of a call */
} * counts;

static uint64_t dice(uint64_t n)
{
	dice_state = dice_state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (dice_state >> 24) % n;
}

/* ---- the line that is read, good and bad ---- */

static struct {
	volatile uint8_t *at;
	unsigned len;
	uint8_t good[BODY], bad[BODY];
} spots[2];
static unsigned spots_n;

static void spot(void *at, unsigned len, unsigned flips)
{
	unsigned i = spots_n++;
	spots[i].at = at;
	spots[i].len = len;
	memcpy(spots[i].good, at, len);
	memcpy(spots[i].bad, at, len);
	for (unsigned n = 0; n < flips; n++)
		spots[i].bad[dice(len)] ^= (uint8_t)(1u << dice(8));
}

static void on_step(int sig)
{
	atomic_fetch_add_explicit(&counts->steps, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&counts->changes, 1, memory_order_relaxed);
	for (unsigned i = 0; i < spots_n; i++) {
		const uint8_t *from = dice(2) ? spots[i].good : spots[i].bad;
		for (unsigned k = 0; k < spots[i].len; k++)
			spots[i].at[k] = from[k];
	}
}

static inline void step_on(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
				 : "cc", "memory");
}

static inline void step_off(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
				 : "cc", "memory");
}

/* ---- handlers ---- */

static _Atomic unsigned sum;

static void touch(const void *data, size_t len)
{
	unsigned s = 0;
	for (size_t i = 0; i < len; i += 64)
		s += ((const uint8_t *)data)[i];
	if (len)
		s += ((const uint8_t *)data)[len - 1];
	atomic_fetch_add_explicit(&sum, s, memory_order_relaxed);
}

static void touch_value(const struct far_val *v)
{
	for (size_t i = 0; v->type == FAR_TYPE_LIST && i < far_len(v); i++)
		touch_value(far_list_get(v, i));
	for (size_t i = 0; v->type == FAR_TYPE_DICT && i < far_len(v); i++) {
		touch_value(&v->u.dict.entries[i].key);
		touch_value(&v->u.dict.entries[i].value);
	}
	if (v->type == FAR_TYPE_TENSOR && v->u.t.dtype == FAR_F32)
		touch(v->u.t.data, far_len(v) * sizeof(float));
	if (v->type == FAR_TYPE_STRING)
		touch(v->u.s.data, v->u.s.len);
}

static enum far_status value(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val one = far_int(1);
	CHECK(n == 1);
	touch_value(&args[0]);
	return far_return(req, &one);
}

static const struct far_function functions[] = {{"t::now(Any x) -> int", FAR_KIND_INLINE, value, NULL},
						{"t::fiber(Any x) -> int", FAR_KIND_FIBER, value, NULL}};

/* ---- one call ---- */

static void find_pair(void)
{
	char text[512];
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	while (!pair && fgets(text, sizeof text, f)) {
		uintptr_t from, to;
		CHECK(sscanf(text, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2);
		if (strstr(text, "farcall-pair"))
			pair = mremap((void *)from, 0, to - from, MREMAP_MAYMOVE);
	}
	fclose(f);
	CHECK(pair && pair != MAP_FAILED);
}

static uint32_t lap_of(const struct shm_direction *d, uint32_t i)
{
	return atomic_load_explicit(&d->slots[i % SHM_SLOTS].word, memory_order_acquire) / LANE_LAP_ONE;
}

static uint32_t written(const struct shm_direction *d)
{
	uint32_t n = 0;
	while (n < SHM_SLOTS && lap_of(d, n) == 1)
		n++;
	return n;
}

static struct far_future *start(unsigned i, uint8_t *bytes)
{
	struct far_call_opts opts = {.timeout_ns = counts->limit_ns};
	struct far_future *f = NULL;
	struct far_err err;
	struct far_tensor t = {.data = bytes, .dtype = FAR_F32, .ndim = 1, .shape = {100 + i % 7}};
	struct far_val list = FAR_LIST(1, "some text", &t, FAR_DICT(FAR_ENTRY("key", &t), FAR_ENTRY(7, "seven")));
	far_rpc_async_to(ends[0].agent, (struct far_to){1, -1}, i % 3 ? "t::now" : "t::fiber", FAR_ARGS(list), &opts,
			 &f, &err);
	return f;
}

/* The other agent sends; this thread, which is the shard of the second one, receives it step by step. */
static bool one_call(unsigned i, enum what what, uint8_t *bytes, unsigned way)
{
	struct shm_direction *d = &pair->direction[way];
	struct far_val out = {0};
	struct far_err err;
	uint32_t at = written(d);
	struct far_future *f = start(i, bytes);
	if (!f)
		return false;
	while (written(d) == at && !far_future_done(f))
		usleep(100);
	if (written(d) != at) {
		struct nic_line *slot = &d->slots[at % SHM_SLOTS];
		struct shm_bulk_ref ref;
		memcpy(&ref, slot->bytes + SHM_REF_OFFSET, sizeof ref);
		bool bulk = atomic_load(&slot->word) & LANE_BULK;
		spots_n = 0;
		if (what == IN_BODY && bulk)
			spot((uint8_t *)pair + SHM_BULK_OFFSET(way) + (uint64_t)ref.block * SHM_BLOCK,
			     ref.len < 160 ? (unsigned)ref.len : 160, 3);
		else if (what == IN_REFERENCE && bulk)
			spot(slot->bytes + SHM_REF_OFFSET + 11, 1, 1); /* far away */
		else if (what == IN_WORD)
			spot(&slot->word, 1, 1);
		else
			spot(slot->bytes, 28, 1);
		step_on();
		far_shard_poll(ends[1].agent);
		step_off();
		spots_n = 0;
	}
	while (!far_future_done(f)) {
		far_shard_poll(ends[1].agent);
		usleep(100);
	}
	enum far_status status = far_future_wait(f, 0, &out, &err);
	far_val_fini(&out);
	far_future_free(f);
	atomic_fetch_add(&counts->calls, 1);
	atomic_fetch_add(status ? &counts->lost : &counts->well, 1);
	/* Requests that were spoilt are never answered. On a busy machine the steps of the others take longer than
	 * these may wait, too: one at least has to be answered. */
	if (counts->well)
		counts->limit_ns = LIMIT_NS;
	else if (status == FAR_TIMEOUT && counts->limit_ns < 32 * LIMIT_NS)
		counts->limit_ns *= 2;
	return status != FAR_PEER_LOST && status != FAR_UNREACHABLE;
}

static void round_of(enum what what)
{
	struct far_err err;
	uint8_t bytes[BYTES] = {0};
	for (int i = 0; i < 2; i++) {
		ends[i] = (struct together){.rank = i, .world = 2};
		ends[i].opts = (struct far_opts){
			.functions = functions, .functions_n = 2, .nic = "shm", .connect = FAR_CONNECT_LAZY};
	}
	together_all(ends, 2, together_join);
	struct far_val out = {0};
	CHECK_STATUS(far_rpc_sync_to(ends[0].agent, (struct far_to){1, -1}, "t::now", FAR_ARGS(1), NULL, &out, &err),
		     FAR_OK, &err);
	find_pair();
	unsigned way = written(&pair->direction[0]) ? 0 : 1; /* where requests go: it was written first */
	CHECK(written(&pair->direction[way]) == 1);
	CHECK_STATUS(far_shard_acquire(ends[1].agent, 0, &err), FAR_OK, &err);
	for (unsigned i = 0; i < CALLS && one_call(i, what, bytes, way); i++)
		;
	far_shard_release(ends[1].agent);
	for (int i = 0; i < 2; i++)
		far_shutdown_local(ends[i].agent, &err);
}

static void round_numbered(unsigned i)
{
	struct sigaction sa = {.sa_handler = on_step};
	dice_state = seed + i * UINT64_C(1000003);
	CHECK(sigaction(SIGTRAP, &sa, NULL) == 0);
	round_of(i % 4 ? IN_REFERENCE : (enum what)(i / 4 % WHATS));
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(counts != MAP_FAILED);
	counts->limit_ns = LIMIT_NS;
	for (unsigned i = 0; i < ROUNDS; i++)
		together_apart(i, seed, round_numbered);
	printf("%" PRIu64 " calls in %" PRIu64 " steps, between which %" PRIu64 " changes; %" PRIu64
	       " answered, %" PRIu64 " failed\n",
	       counts->calls, counts->steps, counts->changes, counts->well, counts->lost);
	fflush(stdout);
	CHECK(counts->steps > 10000 && counts->changes > 1000 && counts->lost > 0 && counts->well > 0);
	return 0;
}

#endif
