/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A peer that rewrites shared memory while it is being read: a thread changes lines of the rings, bodies in the bulk
 * areas, returned blocks and doorbells of two agents of this process, and mostly puts back what was there, so that what
 * is read twice differs. Calls of every sort go both ways meanwhile, in rounds, each with agents of its own. Their
 * answers may be wrong and their sessions may end; nothing may crash or be read outside, which the builds with
 * sanitizers see, and every call ends. usage: api_rewritten [SEED]
 */
#include "api_together.h"

#include "nic/shm/shm_layout.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum {
	ECHO = 1,
	NOTE = 2,
	ROUNDS = 12,
	REWRITES = 1000000,
	CALLS = 500,
	KIB = 1 << 10,
	MIB = 1 << 20,
	LARGE_BYTES = 17 * MIB
};

/* What a round rewrites. The last ones end a session soon: of those there are many rounds. */
enum what { BODIES, HEADS, BELLS, EVERYTHING, REFERENCES };

static struct together ends[2];
static struct shm_pair *pair;
static struct shm_doorbells *bells[2];
static _Atomic unsigned calling;
static struct counts {
	_Atomic uint64_t rewritten, well, altered, failed;
} * counts; /* of all rounds */
static uint64_t seed = 1;

static uint64_t dice(uint64_t *state, uint64_t n)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (*state >> 24) % n;
}

/* ---- handlers: all bytes are read ---- */

static _Atomic unsigned sum;

static void touch(const void *data, size_t len)
{
	unsigned s = 0;
	for (size_t i = 0; i < len; i++)
		s += ((const uint8_t *)data)[i];
	atomic_fetch_add_explicit(&sum, s, memory_order_relaxed);
}

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	touch(data, len);
	far_reply(req, data, len);
}

static void record_message(struct far_req *req, const void *data, size_t len, void *user)
{
	touch(data, len);
}

static void touch_value(const struct far_val *v)
{
	for (size_t i = 0; v->type == FAR_TYPE_LIST && i < far_len(v); i++)
		touch_value(far_list_get(v, i));
	for (size_t i = 0; v->type == FAR_TYPE_DICT && i < far_len(v); i++) {
		touch_value(&v->u.dict.entries[i].key);
		touch_value(&v->u.dict.entries[i].value);
	}
	if (v->type == FAR_TYPE_TENSOR && !v->u.t.strides && v->u.t.dtype == FAR_F32)
		touch(v->u.t.data, far_len(v) * sizeof(float));
	if (v->type == FAR_TYPE_STRING)
		touch(v->u.s.data, v->u.s.len);
}

static enum far_status value(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(n == 1); /* the signature has one, whatever came */
	touch_value(&args[0]);
	return far_return(req, &args[0]);
}

static const struct far_msg_handler messages[] = {{ECHO, FAR_KIND_INLINE, echo, NULL},
						  {NOTE, FAR_KIND_FIBER, record_message, NULL}};
static const struct far_function functions[] = {{"t::now(Any x) -> Any", FAR_KIND_INLINE, value, NULL},
						{"t::fiber(Any x) -> Any", FAR_KIND_FIBER, value, NULL}};

/* ---- calls ---- */

struct caller {
	pthread_t thread;
	struct far_agent *agent;
	int to;
	uint64_t seed;
	uint8_t *out, *in;
};

static void count(enum far_status status, bool same)
{
	atomic_fetch_add(status ? &counts->failed : same ? &counts->well : &counts->altered, 1);
}

static enum far_status bytes(struct caller *c, size_t len, const struct far_call_opts *opts)
{
	struct far_err err;
	size_t n = 0;
	memset(c->out, (int)(len & 0xff), len);
	enum far_status status = far_msg_call(c->agent, (struct far_to){c->to, -1}, ECHO, c->out, len, opts, c->in,
					      LARGE_BYTES, &n, &err);
	CHECK(status != FAR_OK || n <= LARGE_BYTES);
	count(status, n == len && memcmp(c->in, c->out, len) == 0);
	return status;
}

static enum far_status values(struct caller *c, const char *name, int64_t elements, const struct far_call_opts *opts)
{
	struct far_err err;
	struct far_val out = {0};
	struct far_tensor t = {.data = c->out, .dtype = FAR_F32, .ndim = 1, .shape = {(uint64_t)elements}};
	enum far_status status =
		far_rpc_sync_to(c->agent, (struct far_to){c->to, -1}, name,
				FAR_ARGS(FAR_LIST(1, "a string that is copied", &t, 2.5,
						  FAR_DICT(FAR_ENTRY("key", &t), FAR_ENTRY(7, "seven")))),
				opts, &out, &err);
	count(status, out.type == FAR_TYPE_LIST && far_len(&out) == 5);
	if (status == FAR_OK)
		touch_value(&out);
	far_val_fini(&out);
	return status;
}

static enum far_status one_call(struct caller *c)
{
	const struct far_call_opts opts = {.timeout_ns = FAR_SEC / 5};
	struct far_err err;
	switch (dice(&c->seed, 16)) {
	case 0:
	case 1:
		return bytes(c, dice(&c->seed, 33), &opts);
	case 2:
	case 3:
	case 4:
		return bytes(c, dice(&c->seed, 8 * KIB), &opts);
	case 5:
		return bytes(c, dice(&c->seed, 400 * KIB), &opts);
	case 6:
		return bytes(c, dice(&c->seed, 16) ? 100 : LARGE_BYTES, &opts);
	case 7:
	case 8:
		return far_msg_oneway(c->agent, (struct far_to){c->to, -1}, NOTE, c->out, dice(&c->seed, 2 * KIB),
				      &opts, &err);
	case 9:
	case 10:
	case 11:
		return values(c, "t::fiber", (int64_t)dice(&c->seed, 20000), &opts);
	default:
		return values(c, "t::now", (int64_t)dice(&c->seed, 500), &opts);
	}
}

static void *call_main(void *arg)
{
	struct caller *c = arg;
	enum far_status status = FAR_OK;
	for (unsigned n = 0; n < CALLS && status != FAR_PEER_LOST && status != FAR_UNREACHABLE; n++)
		status = one_call(c);
	atomic_fetch_sub(&calling, 1);
	return NULL;
}

/* ---- rewriting ---- */

/* A second mapping of the same memory, which stays when the agents take theirs down. */
static void *map_again(uintptr_t at, size_t len)
{
	void *again = mremap((void *)at, 0, len, MREMAP_MAYMOVE);
	CHECK(again != MAP_FAILED);
	return again;
}

static void find_memory(void)
{
	char text[512];
	unsigned n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	pair = NULL;
	bells[0] = bells[1] = NULL;
	while (fgets(text, sizeof text, f)) {
		uintptr_t from, to;
		CHECK(sscanf(text, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2);
		if (strstr(text, "farcall-pair") && !pair)
			pair = map_again(from, to - from);
		else if (strstr(text, "farcall-bells") && n < 2)
			bells[n++] = map_again(from, to - from);
	}
	fclose(f);
	CHECK(pair && n == 2);
}

static void unmap(void)
{
	munmap(pair, SHM_TOTAL_BYTES);
	munmap(bells[0], sizeof *bells[0]);
	munmap(bells[1], sizeof *bells[1]);
}

static uint32_t lap_of(const struct shm_direction *d, uint32_t i)
{
	return atomic_load_explicit(&d->slots[i % SHM_SLOTS].word, memory_order_relaxed) / LANE_LAP_ONE;
}

/* The slot that was written last, found from where it was before. */
static uint32_t newest(const struct shm_direction *d, uint32_t at)
{
	for (unsigned n = 0; n < SHM_SLOTS; n++, at++)
		if (lap_of(d, at + 1) != lap_of(d, at) + ((at + 1) % SHM_SLOTS == 0))
			break;
	return at % SHM_SLOTS;
}

static void linger(uint64_t *state)
{
	for (uint64_t n = dice(state, dice(state, 2) ? 50 : 3000); n > 0; n--)
		atomic_signal_fence(memory_order_seq_cst);
}

/* Bytes change, and mostly change back. */
static void rewrite(uint64_t *state, void *at, unsigned len)
{
	volatile uint8_t *p = at;
	uint8_t was[8];
	for (unsigned i = 0; i < len; i++)
		was[i] = p[i];
	bool flip = dice(state, 2);
	for (unsigned i = 0; i < len; i++)
		p[i] = flip ? (uint8_t)(was[i] ^ 1u << dice(state, 8)) : (uint8_t)dice(state, 256);
	linger(state);
	for (unsigned i = 0; i < len && dice(state, 8); i++)
		p[i] = was[i];
	atomic_fetch_add_explicit(&counts->rewritten, 1, memory_order_relaxed);
}

/* A byte to and fro, as fast as can be: two reads in a row may differ. */
static void flicker(uint64_t *state, void *at)
{
	volatile uint8_t *p = at;
	uint8_t was = *p, other = (uint8_t)(was ^ 1u << dice(state, 8));
	for (unsigned n = 0; n < 1000; n++) {
		*p = other;
		*p = was;
	}
	atomic_fetch_add_explicit(&counts->rewritten, 1, memory_order_relaxed);
}

/* Of the body of that slot in the bulk area, or of one that lay there before. */
static void *bulk_byte(uint64_t *state, unsigned way, const struct nic_line *slot)
{
	uint8_t *area = (uint8_t *)pair + SHM_BULK_OFFSET(way);
	struct shm_bulk_ref ref;
	memcpy(&ref, (const uint8_t *)slot->bytes + SHM_REF_OFFSET, sizeof ref);
	uint64_t from = (uint64_t)(ref.block % SHM_BLOCKS) * SHM_BLOCK;
	from = from < SHM_BULK_BYTES - 8 * KIB ? from : 0;
	return area + from + dice(state, dice(state, 2) ? 128 : 4 * KIB);
}

static void rewrite_one(uint64_t *state, enum what what, uint32_t *at)
{
	unsigned way = (unsigned)dice(state, 2), sort = (unsigned)dice(state, 16);
	struct shm_direction *d = &pair->direction[way];
	at[way] = newest(d, at[way]);
	struct nic_line *slot = &d->slots[(at[way] + SHM_SLOTS - dice(state, 4) + 1) % SHM_SLOTS];
	if (what == REFERENCES) {
		/* Of the line that is written next: where a body is and how long. */
		slot = &d->slots[(at[way] + 1) % SHM_SLOTS];
		flicker(state, slot->bytes + SHM_REF_OFFSET + dice(state, 12));
		return;
	}
	if (what == BELLS) {
		struct shm_doorbells *b = bells[way];
		rewrite(state, sort < 4 ? (void *)&b->asleep : (void *)&b->byte[dice(state, 64)], 1);
		rewrite(state, &d->consumer.rx_state, 4);
	} else if (what == EVERYTHING && sort == 0) {
		rewrite(state, &d->consumer.head, 4);
	} else if (what == EVERYTHING && sort == 1) {
		rewrite(state, (void *)&d->returns[dice(state, SHM_RETURNS)], 4);
	} else if (what == EVERYTHING && sort < 5) {
		rewrite(state, &slot->word, 1); /* its length; where its body is */
	} else if (what == EVERYTHING && sort < 8) {
		rewrite(state, slot->bytes + SHM_REF_OFFSET, 8); /* the body's length, and what follows a short one */
	} else if (what == EVERYTHING && sort < 9) {
		rewrite(state, slot->bytes + SHM_REF_OFFSET + 8, 4); /* its block */
	} else if (what != BODIES && sort < 12) {
		rewrite(state, slot->bytes + dice(state, 28), 1);
	} else if (sort < 13) {
		rewrite(state, slot->bytes + 28 + dice(state, what == EVERYTHING ? 32 : 16), 1);
	} else {
		rewrite(state, bulk_byte(state, way, slot), 1 + (unsigned)dice(state, 8));
	}
}

/* ---- rounds ---- */

static void round_of(enum what what)
{
	struct caller callers[2];
	struct far_err err;
	uint32_t at[2] = {0, 0};
	atomic_store(&calling, 2);
	for (int i = 0; i < 2; i++) {
		ends[i] = (struct together){.rank = i, .world = 2};
		ends[i].opts = (struct far_opts){.messages = messages,
						 .messages_n = 2,
						 .functions = functions,
						 .functions_n = 2,
						 .nic = "shm",
						 .connect = FAR_CONNECT_LAZY};
	}
	together_all(ends, 2, together_join);
	for (int i = 0; i < 2; i++) {
		callers[i] = (struct caller){.agent = ends[i].agent, .to = !i, .seed = seed + (uint64_t)i * 77};
		callers[i].out = malloc(LARGE_BYTES);
		callers[i].in = malloc(LARGE_BYTES);
		CHECK(callers[i].out && callers[i].in);
		memset(callers[i].out, 1, LARGE_BYTES);
	}
	CHECK(bytes(&callers[0], 32, NULL) == FAR_OK); /* there is a session */
	find_memory();
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&callers[i].thread, NULL, call_main, &callers[i]) == 0);
	for (unsigned n = 0; n < (what == REFERENCES ? REWRITES / 500 : REWRITES) && atomic_load(&calling) > 0; n++)
		rewrite_one(&seed, what, at);
	for (int i = 0; i < 2; i++) {
		CHECK(pthread_join(callers[i].thread, NULL) == 0);
		free(callers[i].out);
		free(callers[i].in);
	}
	for (int i = 0; i < 2; i++)
		far_shutdown_local(ends[i].agent, &err);
	unmap();
}

static void round_numbered(unsigned i)
{
	seed += i * UINT64_C(1000003);
	round_of(i < 2 * REFERENCES ? (enum what)(i % REFERENCES) : REFERENCES);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(counts != MAP_FAILED);
	for (unsigned i = 0; i < ROUNDS; i++)
		together_apart(i, seed, round_numbered);
	printf("%" PRIu64 " lines rewritten, %" PRIu64 " calls answered well, %" PRIu64 " with other bytes, %" PRIu64
	       " failed\n",
	       counts->rewritten, counts->well, counts->altered, counts->failed);
	CHECK(counts->rewritten > 0 && counts->well > 0 && counts->altered + counts->failed > 0);
	return 0;
}
