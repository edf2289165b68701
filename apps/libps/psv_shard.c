/* SPDX-License-Identifier: BSD-3-Clause */
/** Serves requests: checks, changes, replies. The thread that polls the shard. */
#include "psv_shard.h"

#include "pst_fail.h"
#include <farcall/message.h>
#include <farcall/rpc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKENS_IDLE_S 600u
#define EVICT_KEYS    64u /* that a change looks at for expired rows */
#define ERASE_KEYS    1024u
#define SCAN_PARTS    256u               /* partitions that a scan looks at */
#define SCAN_BYTES    FAR_PS_CHUNK_BYTES /* after which it ends */

/* A request that has been checked. */
struct job {
	const struct psv_request *q;
	struct psv_table *t;
	const uint64_t *keys;
	const void *numbers;
	const float *scales;
	const float *state;
	const char *name;
	const struct psv_schema *schema;
	const char *rows; /* of RESTORE; state and ages follow */
	uint64_t now_ms;
	bool stale; /* the answer is the view */
	char *made; /* of LIST and SCAN: the reply without its head */
	size_t made_len;
	uint64_t made_count;
};

/* Where an answer goes: to the request in its handler, or to one that waited. */
struct answer {
	struct far_req *req;
	struct far_deferred *reply;
};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

void psv_shard_init(struct psv_shard *s, struct far_ps_server *server, struct far_to self)
{
	s->server = server;
	s->self = self;
	s->slot = -1;
	pst_tokens_init(&s->tokens, PST_TOKENS_CLIENTS_MAX, TOKENS_IDLE_S, &pst_memory_default);
}

static void table_free(struct psv_table *t)
{
	pst_table_free(t->rows);
	free(t->clocks);
	free(t);
}

void psv_shard_free_dropped(struct psv_shard *s)
{
	struct psv_table *t = atomic_exchange_explicit(&s->dropped, NULL, memory_order_acquire);
	while (t) {
		struct psv_table *next = t->next_dropped;
		table_free(t);
		t = next;
	}
}

void psv_shard_fini(struct psv_shard *s)
{
	for (unsigned i = 0; i < atomic_load(&s->tables_n); i++)
		table_free(atomic_load(&s->table[i]));
	psv_shard_free_dropped(s);
	pst_tokens_fini(&s->tokens);
}

/* ---- Tables ---- */

static struct psv_table *find_table(struct psv_shard *s, uint64_t id)
{
	unsigned n = atomic_load_explicit(&s->tables_n, memory_order_relaxed);
	for (unsigned i = 0; i < n; i++) {
		struct psv_table *t = atomic_load_explicit(&s->table[i], memory_order_relaxed);
		if (t->id == id)
			return t;
	}
	return NULL;
}

/* The last table takes the place. The thread that prepares memory may see it twice, or not at all once. */
static void drop_table(struct psv_shard *s, struct psv_table *t)
{
	unsigned n = atomic_load_explicit(&s->tables_n, memory_order_relaxed), i = 0;
	while (atomic_load_explicit(&s->table[i], memory_order_relaxed) != t)
		i++;
	atomic_store_explicit(&s->table[i], atomic_load_explicit(&s->table[n - 1], memory_order_relaxed),
			      memory_order_release);
	atomic_store_explicit(&s->tables_n, n - 1, memory_order_release);
	t->next_dropped = atomic_load_explicit(&s->dropped, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&s->dropped, &t->next_dropped, t, memory_order_release,
						      memory_order_relaxed))
		;
}

static enum far_status add_table(struct psv_shard *s, const struct job *j, struct far_err *err)
{
	struct far_ps_schema schema;
	enum far_status status = psv_schema_decode(j->schema, &schema, err);
	if (status)
		return status;
	unsigned n = atomic_load_explicit(&s->tables_n, memory_order_relaxed);
	if (n == FAR_PS_TABLES_MAX)
		return pst_fail(err, FAR_RESOURCE, 0, "the service has %d tables already", FAR_PS_TABLES_MAX);
	struct pst_schema of_shard = psv_schema_table(&schema, s->view->slots);
	struct psv_table *t = calloc(1, sizeof *t);
	if (!t)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for table \"%s\"", j->name);
	t->clocks = calloc(schema.workers + 1, sizeof *t->clocks);
	status = t->clocks ? pst_table_new(&of_shard, NULL, &t->rows, err)
			   : pst_fail(err, FAR_RESOURCE, 0, "no memory for table \"%s\"", j->name);
	if (status) {
		table_free(t);
		return status;
	}
	memcpy(t->name, j->name, sizeof t->name);
	t->id = j->q->table;
	t->schema = *j->schema;
	t->layout = psv_schema_rows(&schema);
	atomic_store_explicit(&s->table[n], t, memory_order_release);
	atomic_store_explicit(&s->tables_n, n + 1, memory_order_release);
	return FAR_OK;
}

static enum far_status make_table(struct psv_shard *s, struct job *j, struct far_err *err)
{
	struct psv_table *t = find_table(s, j->q->table);
	if (!t) {
		enum far_status status = add_table(s, j, err);
		if (status)
			return status;
		t = find_table(s, j->q->table);
	}
	j->t = t;
	if (memcmp(&t->schema, j->schema, sizeof t->schema))
		return pst_fail(err, FAR_INVALID, 0, "table \"%s\" exists with another schema: its dim is %u", t->name,
				t->schema.dim);
	return FAR_OK;
}

/* ---- The view ---- */

/* Erases the rows of partitions [from, to). */
static void erase_partitions(struct psv_table *t, unsigned from, unsigned to)
{
	uint64_t keys[ERASE_KEYS];
	const unsigned shift = 64 - PST_PARTITION_BITS;
	struct pst_cursor c = {.from = (uint64_t)from << shift,
			       .last = ((uint64_t)(to - 1) << shift) + (UINT64_MAX >> PST_PARTITION_BITS)};
	while (!c.done) {
		uint32_t n = pst_scan(t->rows, &c, 0, ERASE_KEYS, keys, NULL, NULL, NULL);
		(void)pst_erase(t->rows, keys, n, NULL, NULL);
	}
}

/* Clears the partitions that this shard did not own all the time since its view. Of an epoch that the server skipped
 * nothing is known. */
static void keep_owned(const struct psv_shard *s, const struct psv_view *newest, bool *kept)
{
	for (const struct psv_view *v = newest; v != s->view; v = v->older) {
		int slot = psv_view_slot(v, s->self);
		for (unsigned p = 0; p < FAR_PS_PARTITIONS; p++)
			kept[p] = kept[p] && v->owner[p] == slot && v->epoch == v->older->epoch + 1;
	}
}

static void erase_lost(struct psv_shard *s, const struct psv_view *newest)
{
	bool kept[FAR_PS_PARTITIONS];
	memset(kept, true, sizeof kept);
	keep_owned(s, newest, kept);
	for (unsigned from = 0, to; from < FAR_PS_PARTITIONS; from = to) {
		for (to = from + 1; to < FAR_PS_PARTITIONS && kept[to] == kept[from]; to++)
			;
		for (unsigned i = 0; !kept[from] && i < atomic_load(&s->tables_n); i++)
			erase_partitions(atomic_load(&s->table[i]), from, to);
	}
}

/* Takes the server's newest view over. True: it is another one. */
static bool refresh(struct psv_shard *s)
{
	const struct psv_view *view = atomic_load_explicit(&s->server->view, memory_order_acquire);
	if (view == s->view)
		return false;
	if (s->view)
		erase_lost(s, view);
	s->view = view;
	s->slot = psv_view_slot(view, s->self);
	return true;
}

/* ---- Checks ---- */

static enum far_status bad_length(const struct psv_request *q, size_t len, struct far_err *err)
{
	return pst_fail(err, FAR_PROTOCOL, 0, "a request of kind %u with %u keys does not take %zu bytes", q->kind,
			q->n, len);
}

static enum far_status check_name(struct job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	size_t want = sizeof *q + PSV_NAME_BYTES + (q->kind == PSV_CREATE ? sizeof *j->schema : 0);
	if (q->n || len != want)
		return bad_length(q, len, err);
	j->name = (const char *)(q + 1);
	j->schema = (const struct psv_schema *)(j->name + PSV_NAME_BYTES);
	uint64_t id = q->kind == PSV_VIEW ? q->service : q->table;
	if (!psv_name_ok(j->name) || psv_name_id(j->name) != id)
		return pst_fail(err, FAR_PROTOCOL, 0, "a request of kind %u whose name is not that of its id", q->kind);
	return FAR_OK;
}

/* Keys, numbers, scales and state are where the lengths put them. */
static enum far_status check_arrays(const struct psv_shard *s, struct job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	unsigned dim = j->t->schema.dim;
	size_t state = q->flags & PSV_STATE ? pst_table_state(j->t->rows) : 0;
	if (q->wire >= PST_TYPES || q->miss > PST_MISS_MAKE || q->flags > PSV_STATE ||
	    (q->flags && q->kind != PSV_ASSIGN) || q->n > PST_CHUNK_KEYS || (q->n && q->kind < PSV_PULL))
		return pst_fail(err, FAR_PROTOCOL, 0, "a request of kind %u with a field out of range", q->kind);
	size_t want = q->kind == PSV_RESTORE ? sizeof *q + psv_rows_bytes(&j->t->layout, q->n)
					     : psv_request_bytes(q->kind, q->n, dim, (enum pst_type)q->wire, state);
	if (len != want)
		return bad_length(q, len, err);
	j->keys = (const uint64_t *)(q + 1);
	const char *at = (const char *)(j->keys + q->n);
	j->rows = at;
	if (psv_has_numbers(q->kind)) {
		j->numbers = at;
		at += psv_numbers_bytes(q->n, dim, (enum pst_type)q->wire);
		j->scales = q->wire == PST_INT8 ? (const float *)(const void *)at : NULL;
		at += q->wire == PST_INT8 ? q->n * sizeof(float) : 0;
		j->state = state ? (const float *)(const void *)at : NULL;
	}
	for (uint32_t i = 0; i < q->n; i++)
		if ((int)psv_slot_of(s->view, pst_hash(j->keys[i])) != s->slot)
			return pst_fail(err, FAR_INVALID, 0, "key %llu does not belong to shard %d",
					(unsigned long long)j->keys[i], s->self.shard);
	return FAR_OK;
}

static enum far_status check(struct psv_shard *s, struct job *j, size_t len, struct far_err *err)
{
	const struct psv_request *q = j->q;
	if (q->kind == PSV_VIEW) {
		j->stale = true;
		return check_name(j, len, err);
	}
	if (q->epoch != s->view->epoch) {
		j->stale = true; /* older; newer ones wait */
		return FAR_OK;
	}
	if (q->kind == PSV_CREATE)
		return check_name(j, len, err);
	if (q->kind == PSV_LIST)
		return q->n || len != sizeof *q ? bad_length(q, len, err) : FAR_OK;
	j->t = find_table(s, q->table);
	if (!j->t)
		return pst_fail(err, FAR_GONE, 0, "service \"%s\" has no such table at shard %d: create it",
				s->server->name, s->self.shard);
	if (q->kind == PSV_OPEN) {
		enum far_status status = check_name(j, len, err);
		if (status || !strcmp(j->name, j->t->name))
			return status;
		return pst_fail(err, FAR_GONE, 0, "there is no table \"%s\"; \"%s\" has its id", j->name, j->t->name);
	}
	return check_arrays(s, j, len, err);
}

/* True for a request that is to wait: its view is newer than this one, or a clock is behind. */
static bool must_wait(struct psv_shard *s, const struct psv_request *q)
{
	if (q->kind == PSV_VIEW || q->epoch < s->view->epoch)
		return false;
	if (q->epoch > s->view->epoch)
		return true;
	if (q->kind != PSV_PULL && q->kind != PSV_EXISTS)
		return false;
	struct psv_table *t = find_table(s, q->table);
	return t && t->schema.workers && q->clock > t->clock;
}

/* ---- Changes ---- */

static enum far_status check_token(struct psv_shard *s, const struct job *j, bool *seen, struct far_err *err)
{
	const struct psv_request *q = j->q;
	if (q->token == 0 || q->token == UINT64_MAX)
		return pst_fail(err, FAR_PROTOCOL, 0, "a change without a number");
	switch (pst_tokens_check(&s->tokens, q->client, q->token, j->now_ms / 1000)) {
	case PST_TOKEN_NEW:
		*seen = false;
		return FAR_OK;
	case PST_TOKEN_SEEN:
		*seen = true;
		return FAR_OK;
	case PST_TOKEN_OLD:
		return pst_fail(err, FAR_GONE, 0,
				"change %llu is older than the %u that the server knows of its client",
				(unsigned long long)q->token, PST_TOKENS_WINDOW);
	case PST_TOKEN_FULL:
		return pst_fail(err, FAR_RESOURCE, 0, "the server knows the changes of %u clients, and no more",
				PST_TOKENS_CLIENTS_MAX);
	default:
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for the changes of one more client");
	}
}

static enum far_status apply(struct psv_shard *s, const struct job *j, struct far_err *err)
{
	const struct psv_request *q = j->q;
	struct pst_push how = {
		.wire = (enum pst_type)q->wire, .scales = j->scales, .rate = q->rate, .now_ms = j->now_ms};
	switch (q->kind) {
	case PSV_ASSIGN:
		return pst_assign(j->t->rows, j->keys, q->n, &how, j->numbers, j->state, s->status, err);
	case PSV_ERASE:
		return pst_erase(j->t->rows, j->keys, q->n, s->status, err);
	default:
		j->t->keys_pushed += q->n;
		return pst_push(j->t->rows, j->keys, q->n, &how, j->numbers, s->status, err);
	}
}

/* Status of keys, and the rows that a pull makes. */
static enum far_status look(struct psv_shard *s, const struct job *j, enum pst_miss miss, struct far_err *err)
{
	struct pst_pull how = {.wire = PST_F32, .miss = miss, .now_ms = j->now_ms};
	return pst_pull(j->t->rows, j->keys, j->q->n, &how, NULL, NULL, s->status, err);
}

static enum far_status change(struct psv_shard *s, const struct job *j, struct far_err *err)
{
	bool seen = false;
	enum far_status status = check_token(s, j, &seen, err);
	if (status)
		return status;
	if (seen) {
		j->t->duplicates++;
		return look(s, j, PST_MISS_FALLBACK, err);
	}
	status = apply(s, j, err);
	if (status)
		return status;
	pst_tokens_done(&s->tokens, j->q->client, j->q->token, j->now_ms / 1000);
	pst_evict(j->t->rows, j->now_ms, EVICT_KEYS);
	return FAR_OK;
}

static enum far_status advance(const struct job *j, struct far_err *err)
{
	struct psv_table *t = j->t;
	if (j->q->worker >= t->schema.workers)
		return pst_fail(err, FAR_INVALID, 0, "worker %u has no clock in table \"%s\", which has %u workers",
				j->q->worker, t->name, t->schema.workers);
	if (t->clocks[j->q->worker] < j->q->clock)
		t->clocks[j->q->worker] = j->q->clock;
	t->clock = UINT64_MAX;
	for (uint32_t w = 0; w < t->schema.workers; w++)
		if (t->clocks[w] < t->clock)
			t->clock = t->clocks[w];
	return FAR_OK;
}

/* ---- Lists, scans, restoration ---- */

static enum far_status no_memory(struct far_err *err)
{
	return pst_fail(err, FAR_RESOURCE, 0, "no memory for a reply");
}

static enum far_status list(struct psv_shard *s, struct job *j, struct far_err *err)
{
	unsigned n = atomic_load_explicit(&s->tables_n, memory_order_relaxed);
	j->made = malloc((size_t)n * PSV_NAME_BYTES + 1);
	if (!j->made)
		return no_memory(err);
	for (unsigned i = 0; i < n; i++)
		memcpy(j->made + (size_t)i * PSV_NAME_BYTES,
		       atomic_load_explicit(&s->table[i], memory_order_relaxed)->name, PSV_NAME_BYTES);
	j->made_len = (size_t)n * PSV_NAME_BYTES;
	j->made_count = n;
	return FAR_OK;
}

/* The rows of a partition, at most `most`, as a block; returns its bytes. */
static size_t scan_partition(const struct job *j, unsigned partition, uint32_t most, char *to)
{
	const struct psv_rows *layout = &j->t->layout;
	struct psv_block block = {.partition = partition};
	const unsigned shift = 64 - PST_PARTITION_BITS;
	struct pst_cursor c = {.from = (uint64_t)partition << shift,
			       .last = ((uint64_t)partition << shift) + (UINT64_MAX >> PST_PARTITION_BITS)};
	uint64_t *keys = (uint64_t *)(void *)(to + sizeof block);
	char *rows = (char *)(keys + most);
	size_t state, ages;
	(void)psv_rows_layout(layout, most, &state, &ages);
	while (!c.done && block.n < most)
		block.n += pst_scan(j->t->rows, &c, j->now_ms, most - block.n, keys + block.n,
				    rows + block.n * layout->row,
				    layout->state ? (float *)(void *)(rows + state + block.n * layout->state) : NULL,
				    layout->age ? (uint64_t *)(void *)(rows + ages) + block.n : NULL);
	memcpy(to, &block, sizeof block);
	if (block.n == most)
		return psv_block_bytes(layout, most);
	/* Expired rows left a gap behind each array. */
	size_t state_to, ages_to;
	(void)psv_rows_layout(layout, block.n, &state_to, &ages_to);
	char *packed = (char *)(keys + block.n);
	memmove(packed, rows, block.n * layout->row);
	memmove(packed + state_to, rows + state, block.n * layout->state);
	memmove(packed + ages_to, rows + ages, block.n * layout->age);
	return psv_block_bytes(layout, block.n);
}

/* Blocks of partitions from that of the request on, until SCAN_BYTES are full or another shard owns the next one. */
static enum far_status scan(struct psv_shard *s, struct job *j, struct far_err *err)
{
	unsigned first = j->q->worker, p = first;
	if (first >= FAR_PS_PARTITIONS || s->view->owner[first] != s->slot)
		return pst_fail(err, FAR_INVALID, 0, "partition %u does not belong to shard %d", first, s->self.shard);
	while (p < FAR_PS_PARTITIONS && p < first + SCAN_PARTS && s->view->owner[p] == s->slot &&
	       (p == first || j->made_len < SCAN_BYTES)) {
		uint32_t most = pst_table_partition_keys(j->t->rows, p);
		char *more = realloc(j->made, j->made_len + psv_block_bytes(&j->t->layout, most) + 8);
		if (!more)
			return no_memory(err);
		j->made = more;
		memset(j->made + j->made_len, 0, psv_block_bytes(&j->t->layout, most));
		j->made_len += (scan_partition(j, p++, most, j->made + j->made_len) + 7) / 8 * 8;
	}
	j->made_count = p - first;
	return FAR_OK;
}

static enum far_status restore(struct psv_shard *s, const struct job *j, struct far_err *err)
{
	const struct psv_rows *layout = &j->t->layout;
	size_t state, ages;
	(void)psv_rows_layout(layout, j->q->n, &state, &ages);
	return pst_restore(j->t->rows, j->keys, j->q->n, j->rows, (const float *)(const void *)(j->rows + state),
			   (const uint64_t *)(const void *)(j->rows + ages), j->now_ms, s->status, err);
}

/* All that can fail. */
static enum far_status prepare(struct psv_shard *s, struct job *j, struct far_err *err)
{
	if (j->stale)
		return FAR_OK;
	switch (j->q->kind) {
	case PSV_CREATE:
		return make_table(s, j, err);
	case PSV_CLOCK:
		return advance(j, err);
	case PSV_EXISTS:
		return look(s, j, PST_MISS_FALLBACK, err);
	case PSV_PULL:
		j->t->keys_pulled += j->q->n;
		return j->q->miss == PST_MISS_MAKE ? look(s, j, PST_MISS_MAKE, err) : FAR_OK;
	case PSV_OPEN:
	case PSV_STATS:
		return FAR_OK;
	case PSV_DROP:
		drop_table(s, j->t);
		return FAR_OK;
	case PSV_LIST:
		return list(s, j, err);
	case PSV_SCAN:
		return scan(s, j, err);
	case PSV_RESTORE:
		return restore(s, j, err);
	default:
		return change(s, j, err);
	}
}

/* ---- Replies ---- */

static size_t reply_bytes(const struct job *j, const struct psv_shard *s)
{
	if (j->stale)
		return sizeof(struct psv_reply) + 16 + (size_t)12 * s->view->slots;
	switch (j->q->kind) {
	case PSV_CREATE:
	case PSV_OPEN:
		return sizeof(struct psv_reply) + sizeof(struct psv_schema);
	case PSV_STATS:
		return sizeof(struct psv_reply) + sizeof(struct psv_stats);
	case PSV_CLOCK:
	case PSV_DROP:
		return sizeof(struct psv_reply);
	case PSV_LIST:
	case PSV_SCAN:
		return sizeof(struct psv_reply) + j->made_len;
	default:
		return psv_reply_bytes(j->q->kind, j->q->n, j->t->schema.dim, (enum pst_type)j->q->wire);
	}
}

static void put_stats(const struct psv_table *t, void *to)
{
	struct pst_stats s;
	pst_table_stats(t->rows, &s);
	struct psv_stats out = {.rows = s.rows,
				.bytes = s.bytes,
				.row_bytes = s.row_bytes,
				.state_bytes = s.state_bytes,
				.index_bytes = s.index_bytes,
				.made = s.made,
				.erased = s.erased,
				.evicted = s.evicted,
				.expired = s.expired,
				.refused = s.refused,
				.waited = s.waited,
				.keys_pulled = t->keys_pulled,
				.keys_pushed = t->keys_pushed,
				.duplicates = t->duplicates,
				.clock = t->clock};
	memcpy(to, &out, sizeof out);
}

/* Rows and scales; returns their end. A pull that made rows, and a push, know the status already. */
static char *put_rows(struct psv_shard *s, const struct job *j, char *to)
{
	const struct psv_request *q = j->q;
	enum pst_type wire = (enum pst_type)q->wire;
	bool known = q->kind == PSV_PUSH_PULL || q->miss == PST_MISS_MAKE;
	struct pst_pull how = {
		.wire = wire, .miss = known ? PST_MISS_INITIAL : (enum pst_miss)q->miss, .now_ms = j->now_ms};
	char *end = to + psv_numbers_bytes(q->n, j->t->schema.dim, wire);
	float *scales = wire == PST_INT8 ? (float *)(void *)end : NULL;
	/* Cannot fail: everything was checked. */
	(void)pst_pull(j->t->rows, j->keys, q->n, &how, to, scales, known ? NULL : s->status, NULL);
	return end + (scales ? q->n * sizeof *scales : 0);
}

static void fill(struct psv_shard *s, const struct job *j, void *reply)
{
	char *to = (char *)reply + sizeof(struct psv_reply);
	struct psv_reply head = {.magic = PSV_MAGIC, .answer = j->stale ? PSV_STALE : PSV_DONE, .count = j->made_count};
	memcpy(reply, &head, sizeof head);
	if (j->stale) {
		psv_view_encode(s->view, to);
		return;
	}
	if (j->q->kind == PSV_CREATE || j->q->kind == PSV_OPEN)
		memcpy(to, &j->t->schema, sizeof j->t->schema);
	else if (j->q->kind == PSV_STATS)
		put_stats(j->t, to);
	else if (j->made)
		memcpy(to, j->made, j->made_len);
	else if (psv_has_rows(j->q->kind))
		to = put_rows(s, j, to);
	if (j->q->n)
		memcpy(to, s->status, j->q->n);
}

static void fail(const struct answer *a, const struct far_err *err)
{
	if (a->req)
		far_fail(a->req, err->status, err->code, "%s", err->text);
	else
		far_deferred_fail(a->reply, err->status, err->code, "%s", err->text);
}

/* Serves a request and answers it. True: it advanced a clock or dropped a table, so that others may go on. */
static bool serve(struct psv_shard *s, const void *data, size_t len, const struct answer *a)
{
	struct job j = {.q = data, .now_ms = now_ns() / 1000000};
	struct far_err err;
	void *reply;
	enum far_status status = check(s, &j, len, &err);
	if (!status)
		status = prepare(s, &j, &err);
	if (status) {
		fail(a, &err);
		free(j.made);
		return false;
	}
	size_t bytes = reply_bytes(&j, s);
	if (a->req) {
		if (far_reply_alloc(a->req, bytes, &reply))
			far_fail(a->req, FAR_RESOURCE, 0, "no memory for a reply of %zu bytes", bytes);
		else
			fill(s, &j, reply);
	} else if ((reply = malloc(bytes))) {
		fill(s, &j, reply);
		(void)far_deferred_reply(a->reply, reply, bytes);
		free(reply);
	} else {
		far_deferred_fail(a->reply, FAR_RESOURCE, 0, "no memory for a reply of %zu bytes", bytes);
	}
	free(j.made);
	return !j.stale && (j.q->kind == PSV_CLOCK || j.q->kind == PSV_DROP);
}

/* ---- Requests that wait ---- */

/* Answers those that need not wait any more. True: others may go on by that. */
static bool wake_once(struct psv_shard *s)
{
	bool stopping = atomic_load_explicit(&s->server->stopping, memory_order_acquire), again = false;
	uint64_t now = now_ns();
	for (struct psv_waiter **at = &s->waiters; *at;) {
		struct psv_waiter *w = *at;
		bool late = now >= w->deadline_ns;
		if (!stopping && !late && must_wait(s, (const struct psv_request *)(const void *)w->data)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		s->waiters_n--;
		s->waiters_bytes -= w->len;
		if (stopping)
			far_deferred_fail(w->reply, FAR_SHUTDOWN, 0, "service \"%s\" stops", s->server->name);
		else if (late)
			far_deferred_fail(w->reply, FAR_TIMEOUT, 0, "the request waited until its deadline");
		else
			again = serve(s, w->data, w->len, &(struct answer){.reply = w->reply}) || again;
		free(w);
	}
	return again;
}

static void wake(struct psv_shard *s)
{
	while (wake_once(s))
		;
}

static void park(struct psv_shard *s, struct far_req *req, const void *data, size_t len)
{
	if (s->waiters_n >= PSV_WAITERS_MAX || s->waiters_bytes + len > PSV_WAITER_BYTES_MAX)
		wake(s); /* removes late ones */
	struct psv_waiter *w = NULL;
	if (s->waiters_n < PSV_WAITERS_MAX && s->waiters_bytes + len <= PSV_WAITER_BYTES_MAX)
		w = malloc(sizeof *w + len);
	if (!w || far_defer(req, &w->reply)) {
		free(w);
		far_fail(req, FAR_RESOURCE, 0, "%u requests wait for a clock or a view", s->waiters_n);
		return;
	}
	uint64_t left = far_req_time_left_ns(req);
	w->next = NULL;
	w->deadline_ns = left == FAR_FOREVER ? UINT64_MAX : now_ns() + left;
	w->len = len;
	memcpy(w->data, data, len);
	struct psv_waiter **at = &s->waiters;
	while (*at)
		at = &(*at)->next;
	*at = w;
	s->waiters_n++;
	s->waiters_bytes += len;
}

/* ---- The handler ---- */

static bool is_own_wake(const struct psv_shard *s, struct far_req *req, const struct psv_request *q)
{
	return q->kind == PSV_WAKE && far_req_from(req).worker == s->self.worker;
}

void psv_shard_serve(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_ps_server *server = user;
	struct psv_shard *s = &server->shard[far_req_shard(req)];
	const struct psv_request *q = data;
	if (len < sizeof *q || q->magic != PSV_MAGIC || q->kind >= PSV_KINDS) {
		far_fail(req, FAR_PROTOCOL, 0, "%zu bytes that are no request of a parameter server", len);
		return;
	}
	if (q->service != server->service) {
		far_fail(req, FAR_NO_FUNCTION, 0, "this worker serves \"%s\", another service", server->name);
		return;
	}
	bool changed = refresh(s);
	if (is_own_wake(s, req, q)) {
		wake(s);
		far_reply(req, NULL, 0);
		return;
	}
	if (q->kind == PSV_WAKE)
		far_fail(req, FAR_DENIED, 0, "a server wakes its own shards alone");
	else if (atomic_load_explicit(&server->stopping, memory_order_acquire))
		far_fail(req, FAR_SHUTDOWN, 0, "service \"%s\" stops", server->name);
	else if (must_wait(s, q))
		park(s, req, data, len);
	else
		changed = serve(s, data, len, &(struct answer){.req = req}) || changed;
	if (changed)
		wake(s);
}
