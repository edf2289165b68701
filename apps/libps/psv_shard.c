/* SPDX-License-Identifier: BSD-3-Clause */
/** Serves requests: checks, changes, replies. The thread that polls the shard. */
#include "psv_job.h"
#include "psv_tenant.h"

#include "ps_mutant.h"
#include "pst_fail.h"
#include <farcall/message.h>
#include <farcall/rpc.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_IDLE_S 600u
#define EVICT_KEYS    64u /* that a change looks at for expired rows */
#define ERASE_KEYS    512u
#define CLEAR_PARTS   64u
#define MEASURE_EVERY 64u

void psv_shard_init(struct psv_shard *s, struct far_ps_server *server, struct far_to self)
{
	s->server = server;
	s->self = self;
	s->slot = -1;
	s->waiters_end = &s->waiters;
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
	while (s->waiters) {
		struct psv_waiter *next = s->waiters->next;
		free(s->waiters);
		s->waiters = next;
	}
	psv_shard_free_dropped(s);
	psv_barriers_free(s);
	free(s->slice);
	pst_tokens_fini(&s->tokens);
}

/* ---- Tables ---- */

struct psv_table *psv_find_table(struct psv_shard *s, uint64_t id)
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
	psv_cuts_end(s, t, UINT64_MAX);
	s->clear_table = 0; /* its place may be that of another table */
	s->clear_from = 0;
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

static enum far_status add_table(struct psv_shard *s, const struct psv_job *j, struct far_err *err)
{
	struct far_ps_schema schema;
	enum far_status status = psv_schema_decode(j->schema, &schema, err);
	if (status)
		return status;
	unsigned n = atomic_load_explicit(&s->tables_n, memory_order_relaxed);
	if (n == FAR_PS_TABLES_MAX)
		return pst_fail(err, FAR_RESOURCE, 0, "the service has %d tables already", FAR_PS_TABLES_MAX);
	status = psv_tenants_check(s, j->name, err);
	if (status)
		return status;
	struct pst_schema of_shard = psv_schema_table(&schema, s->view->slots);
	struct psv_table *t = calloc(1, sizeof *t);
	if (!t)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for table \"%s\"", j->name);
	t->clocks = calloc(schema.workers + 1, sizeof *t->clocks);
	status = t->clocks ? psv_rule_bind(s, t, &schema, &of_shard.rule, err)
			   : pst_fail(err, FAR_RESOURCE, 0, "no memory for table \"%s\"", j->name);
	if (!status)
		status = pst_table_new(&of_shard, NULL, &t->rows, err);
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

static enum far_status make_table(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	struct psv_table *t = psv_find_table(s, j->q->table);
	if (!t) {
		enum far_status status = add_table(s, j, err);
		if (status)
			return status;
		t = psv_find_table(s, j->q->table);
	}
	j->t = t;
	struct far_ps_schema wanted;
	if (memcmp(&t->schema, j->schema, sizeof t->schema) == 0)
		return FAR_OK;
	enum far_status status = psv_schema_decode(j->schema, &wanted, err);
	if (!status)
		status = psv_schema_differs(t->name, &t->schema, j->schema, err);
	return status;
}

/* ---- The view ---- */

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

/* Begins to erase the rows of partitions that were lost, and ends all cuts. */
static void lose_partitions(struct psv_shard *s, const struct psv_view *newest)
{
	bool kept[FAR_PS_PARTITIONS];
	memset(kept, true, sizeof kept);
	keep_owned(s, newest, kept);
	for (unsigned p = 0; p < FAR_PS_PARTITIONS; p++)
		s->lost[p] = s->lost[p] || !kept[p];
	for (unsigned i = 0; i < atomic_load(&s->tables_n); i++)
		psv_cuts_end(s, atomic_load(&s->table[i]), UINT64_MAX);
	s->clear_partition = s->clear_table = 0;
	s->clear_from = 0;
	if (!s->clearing)
		atomic_fetch_add_explicit(&s->server->waiting, 1, memory_order_relaxed);
	s->clearing = true;
}

/* Erases some rows of a lost partition. True: it has no more in this table. */
static bool clear_some(struct psv_shard *s, struct psv_table *t)
{
	uint64_t keys[ERASE_KEYS];
	const unsigned shift = 64 - PST_PARTITION_BITS;
	uint64_t first = (uint64_t)s->clear_partition << shift;
	struct pst_cursor c = {.from = s->clear_from > first ? s->clear_from : first,
			       .last = first + (UINT64_MAX >> PST_PARTITION_BITS)};
	if (!pst_table_partition_keys(t->rows, s->clear_partition))
		return true;
	uint32_t n = pst_scan(t->rows, &c, 0, ERASE_KEYS, keys, NULL, NULL, NULL);
	(void)pst_erase(t->rows, keys, n, NULL, NULL);
	s->clear_from = c.from;
	return c.done;
}

/* Goes on with that, for one call of pst_scan() or CLEAR_PARTS partitions. */
static void clear_lost(struct psv_shard *s)
{
	for (unsigned parts = 0; s->clear_partition < FAR_PS_PARTITIONS; s->clear_partition++) {
		if (parts++ == CLEAR_PARTS)
			return;
		unsigned n = s->lost[s->clear_partition] ? atomic_load(&s->tables_n) : 0;
		for (; s->clear_table < n; s->clear_table++) {
			struct psv_table *t = atomic_load(&s->table[s->clear_table]);
			bool had = pst_table_partition_keys(t->rows, s->clear_partition) > 0;
			if (!clear_some(s, t))
				return;
			s->clear_from = 0;
			if (had) {
				s->clear_table++;
				return;
			}
		}
		s->lost[s->clear_partition] = false;
		s->clear_table = 0;
	}
	s->clearing = false;
	atomic_fetch_sub_explicit(&s->server->waiting, 1, memory_order_relaxed);
}

/* Takes the server's newest view over. True: it is another one. */
static bool refresh(struct psv_shard *s)
{
	const struct psv_view *view = atomic_load_explicit(&s->server->view, memory_order_acquire);
	if (view == s->view)
		return false;
	if (s->view)
		lose_partitions(s, view);
	s->view = view;
	s->slot = psv_view_slot(view, s->self);
	return true;
}

/* ---- Changes ---- */

static enum far_status check_token(struct psv_shard *s, const struct psv_job *j, bool *seen, struct far_err *err)
{
	const struct psv_request *q = j->q;
	if (q->token == 0 || q->token == UINT64_MAX)
		return pst_fail(err, FAR_PROTOCOL, 0, "a change without a number");
	switch (PS_MUTANT(TOKEN_FORGOTTEN) ? PST_TOKEN_NEW
					   : pst_tokens_check(&s->tokens, q->client, q->token, j->now_ms / 1000)) {
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

static enum far_status push(struct psv_shard *s, const struct psv_job *j, const struct pst_push *how,
			    struct far_err *err)
{
	enum far_status status = psv_rule_hold(s, j->t, err);
	if (status)
		return status;
	j->t->keys_pushed += j->q->n;
	psv_hot_use(&j->t->hot, j->keys, j->q->n);
	status = pst_push(j->t->rows, j->keys, j->q->n, how, j->numbers, s->status, err);
	psv_rule_release(j->t);
	return status;
}

static enum far_status apply(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	const struct psv_request *q = j->q;
	if (q->kind == PSV_CALL)
		return psv_run(s, j, err);
	struct pst_push how = {
		.wire = (enum pst_type)q->wire, .scales = j->scales, .rate = q->rate, .now_ms = j->now_ms};
	switch (q->kind) {
	case PSV_ASSIGN:
		return pst_assign(j->t->rows, j->keys, q->n, &how, j->numbers, j->state, s->status, err);
	case PSV_PUT_VALUES:
		return pst_value_put(j->t->rows, j->keys, q->n, j->value_at, j->values, j->now_ms, s->status, err);
	case PSV_ERASE:
		return pst_erase(j->t->rows, j->keys, q->n, s->status, err);
	default:
		return push(s, j, &how, err);
	}
}

/* Status of keys, and the rows that a pull makes. */
static enum far_status look(struct psv_shard *s, const struct psv_job *j, enum pst_miss miss, struct far_err *err)
{
	struct pst_pull how = {.wire = PST_F32, .miss = miss, .now_ms = j->now_ms};
	return pst_pull(j->t->rows, j->keys, j->q->n, &how, NULL, NULL, s->status, err);
}

static enum far_status change(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	bool seen = false, calls = j->q->kind == PSV_CALL;
	enum far_status status = check_token(s, j, &seen, err);
	if (status)
		return status;
	if (seen && !(calls && PS_MUTANT(CALL_TWICE))) {
		j->t->duplicates++;
		return calls ? psv_run_again(s, j, err) : look(s, j, PST_MISS_FALLBACK, err);
	}
	status = !calls && PS_MUTANT_ONE_IN(ACK_EARLY, 8) ? look(s, j, PST_MISS_FALLBACK, err) : apply(s, j, err);
	if (status)
		return status;
	if (!PS_MUTANT(TOKEN_FORGOTTEN))
		pst_tokens_done(&s->tokens, j->q->client, j->q->token, j->now_ms / 1000);
	j->t->pushes++;
	pst_evict(j->t->rows, j->now_ms, EVICT_KEYS);
	return FAR_OK;
}

/* All that can fail. */
static enum far_status prepare(struct psv_shard *s, struct psv_job *j, struct far_err *err)
{
	if (j->stale)
		return FAR_OK;
	if (s->server->tenants_n && psv_has_keys(j->q->kind))
		psv_tenants_bound(s, j->t);
	switch (j->q->kind) {
	case PSV_CREATE:
		return make_table(s, j, err);
	case PSV_CLOCK:
		return psv_clock_advance(s, j, err);
	case PSV_EXISTS:
		return look(s, j, PST_MISS_FALLBACK, err);
	case PSV_PULL:
	case PSV_BAGS:
		j->t->pulls++;
		j->t->keys_pulled += j->q->n;
		psv_hot_use(&j->t->hot, j->keys, j->q->n);
		return j->q->miss == PST_MISS_MAKE ? look(s, j, PST_MISS_MAKE, err) : FAR_OK;
	case PSV_GET_VALUES:
		j->t->pulls++;
		j->t->keys_pulled += j->q->n;
		psv_hot_use(&j->t->hot, j->keys, j->q->n);
		return psv_rows_get(s, j, err);
	case PSV_OPEN:
	case PSV_STATS:
	case PSV_BARRIER:
		return FAR_OK;
	case PSV_DROP:
		drop_table(s, j->t);
		return FAR_OK;
	case PSV_LIST:
		return psv_rows_list(s, j, err);
	case PSV_HOT:
		return psv_rows_hot(j, err);
	case PSV_SCAN:
		return psv_rows_scan(s, j, err);
	case PSV_RESTORE:
		return psv_rows_restore(s, j, err);
	case PSV_CALL_READ:
		return psv_run(s, j, err);
	default:
		return change(s, j, err);
	}
}

/* Adds the time of one request in MEASURE_EVERY. */
static void measure(const struct psv_job *j)
{
	if (j->stale || !psv_has_keys(j->q->kind) || ++j->t->requests % MEASURE_EVERY)
		return;
	j->t->served++;
	j->t->served_ns += psv_now_ns() - j->now_ns;
}

static void free_made(const struct psv_shard *s, const struct psv_job *j)
{
	if (j->made != s->slice)
		free(j->made);
}

/* Serves a request and answers it. True: it advanced a clock or dropped a table, so that others may go on. */
bool psv_serve(struct psv_shard *s, const void *data, size_t len, const struct psv_reply_to *a)
{
	uint64_t now = psv_now_ns();
	struct psv_job j = {.q = data, .from = a->from, .now_ns = now, .now_ms = now / 1000000};
	struct far_err err;
	void *reply;
	enum far_status status = psv_check(s, &j, len, &err);
	if (psv_has_keys(j.q->kind))
		s->keyed_ns = now;
	if (!status)
		status = prepare(s, &j, &err);
	if (status) {
		psv_reply_fail(a, &err);
		free_made(s, &j);
		return false;
	}
	size_t bytes = psv_job_bytes(&j, s);
	if (a->req) {
		if (far_reply_alloc(a->req, bytes, &reply))
			far_fail(a->req, FAR_RESOURCE, 0, "no memory for a reply of %zu bytes", bytes);
		else
			psv_job_fill(s, &j, reply);
	} else if ((reply = malloc(bytes))) {
		psv_job_fill(s, &j, reply);
		(void)far_deferred_reply(a->reply, reply, bytes);
		free(reply);
	} else {
		far_deferred_fail(a->reply, FAR_RESOURCE, 0, "no memory for a reply of %zu bytes", bytes);
	}
	free_made(s, &j);
	measure(&j);
	return !j.stale && (j.q->kind == PSV_CLOCK || j.q->kind == PSV_DROP);
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
	if (refresh(s))
		psv_wake(s); /* first: those that wait with the older view do not count at a barrier any more */
	bool changed = false;
	if (is_own_wake(s, req, q)) {
		psv_clocks_look(s);
		psv_cuts_look(s);
		if (s->clearing)
			clear_lost(s);
		psv_wake(s);
		far_reply(req, "", s->clearing); /* a byte: there is more to erase */
		return;
	}
	if (q->kind == PSV_WAKE)
		far_fail(req, FAR_DENIED, 0, "a server wakes its own shards alone");
	else if (atomic_load_explicit(&server->stopping, memory_order_acquire))
		far_fail(req, FAR_SHUTDOWN, 0, "service \"%s\" stops", server->name);
	else if (psv_must_wait(s, q))
		psv_park(s, req, data, len);
	else
		changed = psv_serve(s, data, len, &(struct psv_reply_to){.req = req, .from = far_req_from(req)});
	if (changed)
		psv_wake(s);
}
