/* SPDX-License-Identifier: BSD-3-Clause */
/** Clients of a simulated parameter server: changes that are repeated until they are answered, also after a restart of
 * the client, and pulls with deadlines. On fibers. The test's thread. */
#include "ps_world.h"

#include <math.h>
#include <string.h>

#define SLACK    (3 * MS)      /* of timers and of a busy shard */
#define PATIENCE (120000 * MS) /* until a change is answered: a host without power is given up after 10 s */
#define FALLBACK -77.0f

struct handles {
	struct far_ps *ps;
	struct far_ps_table *table[TABLES];
	uint64_t since; /* when the present attempts began */
};

static const char *const names[TABLES] = {"sums", "counts", "aged", "steps", "values"};
static const unsigned dims[TABLES] = {PS_CLIENTS, 1, 1, 1, 0};

/* ---- Handles ---- */

static struct far_ps_schema schema_of(enum tables t)
{
	struct far_ps_schema s = {.dim = dims[t]};
	if (t == VALUES)
		return (struct far_ps_schema){.value_max = VALUE_MAX};
	far_ps_rule_defaults(&s.rule, FAR_PS_SGD);
	s.rule.rate = 1;
	s.ttl_ms = t == AGED ? PS_TTL_MS : 0;
	s.workers = t == STEPS ? PS_CLIENTS : 0;
	s.staleness = t == STEPS ? run.staleness : 0;
	return s;
}

static void handles_free(struct handles *h)
{
	for (int t = 0; t < TABLES; t++) {
		far_ps_table_free(h->table[t]);
		h->table[t] = NULL;
	}
	far_ps_close(h->ps);
	h->ps = NULL;
}

/* True: another attempt may follow. */
static bool again(struct handles *h, const char *what, const struct far_err *err)
{
	if (cluster_dead())
		return false;
	if (cluster_now(run.c) - h->since > PATIENCE) {
		wrong("%s was not possible in %llu s: %s", what, (unsigned long long)(PATIENCE / MS / 1000), err->text);
		return false;
	}
	return cluster_sleep(2 * MS) == FAR_OK;
}

/* Makes the tables where a server has begun anew. */
static bool make_tables(struct handles *h)
{
	struct far_err err = {0};
	for (enum tables t = 0; t < TABLES; t++) {
		struct far_ps_schema schema = schema_of(t);
		struct far_ps_table *table;
		while (far_ps_table_create(h->ps, names[t], &schema, 100 * MS, &table, &err))
			if (!again(h, "a table", &err))
				return false;
		if (h->table[t])
			far_ps_table_free(table);
		else
			h->table[t] = table;
	}
	return true;
}

static bool open_all(struct cluster_worker *w, struct handles *h, uint64_t client, uint64_t next)
{
	struct far_ps_open_opts opts = {.timeout_ns = 300 * MS, .client = client, .next = next};
	struct far_err err = {0};
	*h = (struct handles){.since = cluster_now(run.c)};
	while (far_ps_open(cluster_agent(w), "sim", &opts, &h->ps, &err))
		if (!again(h, "far_ps_open", &err))
			return false;
	return make_tables(h);
}

/* The number that the operation's future has; -1: an error. */
static int64_t wait_for(struct far_future *f, struct far_err *err)
{
	struct far_val v = far_none();
	enum far_status status = far_future_wait(f, FAR_FOREVER, &v, err);
	far_future_free(f);
	return status ? -1 : v.u.i;
}

/* ---- Changes ---- */

/* Each key once, with all its positions' gradients, as it counts. */
static void note_change(unsigned c)
{
	struct client *me = &run.client[c];
	struct disk *d = &me->disk;
	struct ps_event e = {.client = c, .begin = cluster_now(run.c), .end = PS_NEVER};
	for (unsigned i = 0; i < d->n && d->kind != STEP; i++) {
		static const enum ps_event_kind kinds[CHANGE_KINDS] = {
			[ADDS] = PS_ADD, [COUNT] = PS_TRIED, [WRITES] = PS_WRITE, [PUTS] = PS_PUT};
		e.kind = kinds[d->kind];
		for (unsigned k = i + 1; k < d->n && d->kind == PUTS; k++)
			e.kind = d->number[k] == d->number[i] ? PS_PASSED : e.kind;
		e.key = d->number[i];
		e.value = d->kind == ADDS ? (uint64_t)-d->grads[i * PS_CLIENTS + c] : 0;
		d->event[i] = ps_note(&run.history, &e);
	}
}

static void draw_change(unsigned c)
{
	struct disk *d = &run.client[c].disk;
	uint64_t kind = sim_random_below(&run.random, 12);
	d->kind = kind < 4 ? ADDS : kind < 6 ? COUNT : kind < 8 ? WRITES : kind < 10 ? STEP : PUTS;
	uint64_t most = d->kind == ADDS ? KEYS_MAX : d->kind == PUTS ? VALUES_MAX : 1;
	d->n = 1 + (unsigned)sim_random_below(&run.random, most);
	memset(d->grads, 0, sizeof d->grads);
	for (unsigned i = 0; i < d->n; i++) {
		switch (d->kind) {
		case ADDS:
			d->number[i] = (unsigned)sim_random_below(&run.random, PS_SUM_KEYS);
			d->grads[i * PS_CLIENTS + c] = -(float)(1 + sim_random_below(&run.random, 9));
			break;
		case COUNT:
			d->number[i] = (unsigned)sim_random_below(&run.random, PS_COUNT_KEYS);
			d->grads[i] = -1;
			break;
		case WRITES: /* of a key of this client alone */
			d->number[i] =
				c + PS_CLIENTS * (unsigned)sim_random_below(&run.random, PS_AGED_KEYS / PS_CLIENTS);
			break;
		case PUTS:
			d->number[i] = (unsigned)sim_random_below(&run.random, PS_VALUE_KEYS);
			break;
		default:
			d->number[i] = c;
			d->grads[i] = -1;
		}
	}
	d->calls = sim_random_below(&run.random, 2);
	d->tried = false;
	d->begun = true;
	note_change(c);
}

/* Adds 1 by a function. */
static enum far_status begin_count(unsigned c, struct far_ps_table *t, const struct far_ps_push_opts *opts,
				   struct far_future **f, struct far_err *err)
{
	struct client *me = &run.client[c];
	struct far_ps_call_opts call = {.timeout_ns = opts->timeout_ns,
					.partial = opts->partial,
					.token = opts->token,
					.make = true,
					.width = 1};
	return far_ps_call(t, "count", me->keys, 1, &call, &me->value, me->status, f, err);
}

/* The count that a function has returned. */
static void take_count(unsigned c)
{
	struct client *me = &run.client[c];
	if (me->status[0] == FAR_PS_APPLIED && !me->disk.tried)
		wrong("a call of client %u that was not repeated had been applied", c);
	me->rows[0] = (float)me->value;
}

/* A function that fails changes nothing: neither a counter, nor whether it is there. */
static void try_refused(unsigned c, struct handles *h)
{
	struct client *me = &run.client[c];
	struct far_ps_call_opts opts = {.timeout_ns = 50 * MS, .make = sim_random_below(&run.random, 2), .width = 1};
	struct far_err err;
	struct far_future *f;
	me->disk.next = far_ps_next(h->ps) + 1; /* its number, which a restart must not use again */
	me->keys[0] = ps_key((unsigned)sim_random_below(&run.random, PS_COUNT_KEYS));
	if (far_ps_call(h->table[COUNTS], "refuse", me->keys, 1, &opts, &me->value, me->status, &f, &err) ||
	    wait_for(f, &err) < 0)
		return;
	if (!cluster_dead() && me->status[0] != FAR_PS_FAILED && (opts.make || me->status[0] != FAR_PS_MISSING))
		wrong("a key whose function fails has the status %s",
		      far_ps_status_name((enum far_ps_status)me->status[0]));
}

/* One attempt; false: a key was not answered. */
static bool attempt(unsigned c, struct handles *h, uint64_t *token, struct far_err *err)
{
	struct client *me = &run.client[c];
	struct disk *d = &me->disk;
	struct far_ps_push_opts opts = {.timeout_ns = (10 + sim_random_below(&run.random, 60)) * MS,
					.partial = sim_random_below(&run.random, 2),
					.token = token};
	static const enum tables tables[CHANGE_KINDS] = {
		[ADDS] = SUMS, [COUNT] = COUNTS, [WRITES] = AGED, [STEP] = STEPS, [PUTS] = VALUES};
	struct far_ps_table *t = h->table[tables[d->kind]];
	struct far_future *f;
	enum far_status status;
	for (unsigned i = 0; i < d->n; i++)
		me->keys[i] = ps_key(d->number[i]);
	if (d->kind == WRITES)
		status = far_ps_assign(t, me->keys, d->n, d->grads, NULL, &opts, me->status, &f, err);
	else if (d->kind == PUTS)
		status = values_put(c, t, &opts, &f, err);
	else if (d->kind == COUNT && d->calls)
		status = begin_count(c, t, &opts, &f, err);
	else if (d->kind == COUNT)
		status = far_ps_push_pull(t, me->keys, d->n, d->grads, &opts, me->rows, me->status, &f, err);
	else
		status = far_ps_push(t, me->keys, d->n, d->grads, &opts, me->status, &f, err);
	if (status)
		return false;
	int64_t answered = wait_for(f, err);
	if (answered < 0 || cluster_dead())
		return false;
	/* A repeated write may find that its row has expired since. */
	for (unsigned i = 0; i < d->n; i++)
		if (me->status[i] == FAR_PS_LATE || me->status[i] == FAR_PS_LOST)
			return false;
	if (d->kind == COUNT && d->calls)
		take_count(c);
	return answered == (int64_t)d->n;
}

static void note_end(unsigned c)
{
	struct disk *d = &run.client[c].disk;
	for (unsigned i = 0; i < d->n && d->kind != STEP; i++) {
		struct ps_event *e = &run.history.event[d->event[i]];
		e->end = cluster_now(run.c);
		if (d->kind == COUNT && !d->tried) {
			e->kind = PS_COUNT;
			e->value = (uint64_t)run.client[c].rows[0];
		}
	}
}

/* Until it is answered. False: the client is at its end. */
static bool make_change(unsigned c, struct handles *h)
{
	struct disk *d = &run.client[c].disk;
	struct far_err err = {0};
	uint64_t token = 0;
	d->next = far_ps_next(h->ps);
	h->since = cluster_now(run.c);
	while (!attempt(c, h, &token, &err)) {
		d->tried = true;
		run.repeats++;
		if (!again(h, "a change", &err) || !make_tables(h))
			return false;
	}
	note_end(c);
	return true;
}

/* ---- Steps ---- */

static bool advance(unsigned c, struct handles *h, uint64_t step)
{
	struct client *me = &run.client[c];
	struct far_err err = {0};
	struct far_future *f;
	while (far_ps_clock(h->table[STEPS], c, step, 50 * MS, &f, &err) || wait_for(f, &err) < 0)
		if (!again(h, "a clock", &err) || !make_tables(h))
			return false;
	me->known = true;
	if (me->excused_to == PS_NEVER)
		me->excused_to = cluster_now(run.c);
	return true;
}

static void check_step(unsigned c, uint64_t step, uint64_t begin)
{
	const struct client *me = &run.client[c];
	for (unsigned other = 0; other < PS_CLIENTS && !run.forgets; other++) {
		const struct client *o = &run.client[other];
		bool excused = o->excused_from && o->excused_to >= begin;
		float least = step > run.staleness ? (float)(step - run.staleness) : 0;
		run.excused += excused;
		if (!excused && !o->leaves && me->rows[other] < least)
			wrong("client %u at step %llu sees step %g of client %u", c, (unsigned long long)step,
			      (double)me->rows[other], other);
	}
}

/* Pulls the steps of all: the push of this step was answered. */
static bool end_step(unsigned c, struct handles *h)
{
	struct client *me = &run.client[c];
	uint64_t step = me->disk.steps + 1, begin;
	struct far_err err = {0};
	struct far_future *f;
	for (;;) {
		if (!advance(c, h, step)) /* a server that began anew does not know it */
			return false;
		struct far_ps_pull_opts opts = {.timeout_ns = 100 * MS, .clock = step};
		for (unsigned i = 0; i < PS_CLIENTS; i++)
			me->keys[i] = ps_key(i);
		begin = cluster_now(run.c);
		if (!far_ps_pull(h->table[STEPS], me->keys, PS_CLIENTS, &opts, me->rows, me->status, &f, &err) &&
		    wait_for(f, &err) == PS_CLIENTS && !cluster_dead())
			break;
		if (!again(h, "the pull of a step", &err) || !make_tables(h))
			return false;
	}
	check_step(c, step, begin);
	me->disk.steps = step;
	return true;
}

static bool all_ended(void)
{
	for (unsigned c = 0; c < PS_CLIENTS; c++)
		if (!run.client[c].ended)
			return false;
	return true;
}

void client_app(struct cluster_worker *w, void *ctx)
{
	unsigned c = cluster_rank(w) - FIRST_CLIENT;
	struct disk *d = &run.client[c].disk;
	struct handles h;
	(void)ctx;
	bool ok = open_all(w, &h, 100 + c, d->next);
	if (ok)
		ok = advance(c, &h, d->steps);
	while (ok && d->done < CHANGES) {
		if (d->begun)
			d->tried = true; /* before the restart */
		else
			draw_change(c);
		ok = make_change(c, &h) && (d->kind != STEP || end_step(c, &h));
		if (!ok)
			break;
		d->begun = false;
		d->next = far_ps_next(h.ps);
		d->done++;
		run.changes++;
		if (sim_random_below(&run.random, 4) == 0)
			try_refused(c, &h);
		ok = !cluster_dead() && cluster_sleep(sim_random_below(&run.random, 20 * MS)) == FAR_OK;
	}
	run.client[c].leaves = ok;
	/* The others do not wait for it; a server that begins anew forgets that. */
	while (ok && !all_ended()) {
		h.since = cluster_now(run.c);
		ok = advance(c, &h, UINT64_C(1) << 40);
		run.client[c].ended = ok;
		if (ok && run.forgets)
			ok = make_tables(&h);
		ok = ok && !all_ended() && cluster_sleep(50 * MS) == FAR_OK;
	}
	handles_free(&h);
}

/* ---- Barriers ---- */

void meet_app(struct cluster_worker *w, void *ctx)
{
	struct handles h;
	(void)ctx;
	bool ok = open_all(w, &h, 400 + cluster_rank(w), 0);
	for (int i = 0; ok && i < MEETS; i++)
		ok = meet(cluster_rank(w) - FIRST_CLIENT, h.ps) &&
		     cluster_sleep(sim_random_below(&run.random, 80 * MS)) == FAR_OK;
	handles_free(&h);
}

/* ---- Reads ---- */

static void note_read(enum tables t, const struct reader *r, unsigned i, uint64_t begin)
{
	bool found = r->status[i] == FAR_PS_ROW;
	struct ps_event e = {.kind = t == COUNTS ? PS_READ
				     : found     ? PS_SEEN
						 : PS_GONE,
			     .key = r->number[i],
			     .begin = begin,
			     .end = cluster_now(run.c),
			     .value = t == COUNTS && found ? (uint64_t)r->rows[i] : 0};
	if (t == COUNTS || t == AGED)
		ps_note(&run.history, &e);
}

/* A row by its status. */
static void check_row(enum tables t, const struct reader *r, unsigned i)
{
	for (unsigned d = 0; d < dims[t]; d++) {
		float x = r->rows[i * dims[t] + d];
		if (isnan(x))
			wrong("a pull has left a row of %s as it was, with status %s", names[t],
			      far_ps_status_name(r->status[i]));
		else if (r->status[i] == FAR_PS_ROW ? x < 0 : x < FALLBACK || x > FALLBACK)
			wrong("a row of %s with status %s has %g", names[t], far_ps_status_name(r->status[i]),
			      (double)x);
	}
}

static void check_read(enum tables t, const struct reader *r, unsigned n, int64_t answered, uint64_t begin)
{
	int64_t rows = 0;
	for (unsigned i = 0; i < n; i++) {
		bool late = r->status[i] >= FAR_PS_LATE;
		rows += !late;
		run.unanswered += late;
		if (t != VALUES)
			check_row(t, r, i);
		if (!late)
			note_read(t, r, i, begin);
		if (late && run.calm)
			wrong("a key was not answered, and nothing is disturbed");
	}
	if (rows != answered)
		wrong("a pull reports %lld answered keys, and %lld have a status", (long long)answered,
		      (long long)rows);
}

static bool is_paused(unsigned rank, uint64_t begin)
{
	return rank >= FIRST_CLIENT && run.client[rank - FIRST_CLIENT].paused_to + SLACK >= begin;
}

static bool read_once(unsigned rank, struct handles *h)
{
	static const unsigned numbers[TABLES] = {PS_SUM_KEYS, PS_COUNT_KEYS, PS_AGED_KEYS, PS_CLIENTS, PS_VALUE_KEYS};
	static const float fallback[PS_CLIENTS] = {FALLBACK, FALLBACK, FALLBACK};
	struct reader *r = &run.reader[rank];
	enum tables t = (enum tables)sim_random_below(&run.random, TABLES);
	unsigned most = t == SUMS ? KEYS_MAX : t == VALUES ? VALUES_MAX : numbers[t];
	unsigned n = 1 + (unsigned)sim_random_below(&run.random, most);
	struct far_ps_pull_opts opts = {.timeout_ns = (run.calm ? 50 : 1 + sim_random_below(&run.random, 30)) * MS,
					.partial = true,
					.fallback = t == VALUES ? NULL : fallback};
	struct far_err err = {0};
	struct far_future *f;
	for (unsigned i = 0; i < n; i++) {
		r->number[i] = (unsigned)sim_random_below(&run.random, numbers[t]);
		r->keys[i] = ps_key(r->number[i]);
	}
	for (unsigned i = 0; i < n * dims[t]; i++)
		r->rows[i] = NAN;
	uint64_t begin = cluster_now(run.c);
	bool calls = t == COUNTS && sim_random_below(&run.random, 2);
	struct far_ps_call_opts call = {.timeout_ns = opts.timeout_ns, .partial = true, .read = true, .width = 1};
	if (calls         ? far_ps_call(h->table[t], "peek", r->keys, n, &call, r->values, r->status, &f, &err)
	    : t == VALUES ? values_get(r, h->table[t], n, &opts, &f, &err)
			  : far_ps_pull(h->table[t], r->keys, n, &opts, r->rows, r->status, &f, &err)) {
		if (!cluster_dead())
			wrong("a pull: %s", err.text);
		return false;
	}
	int64_t answered = wait_for(f, &err);
	if (cluster_dead())
		return false;
	uint64_t took = cluster_now(run.c) - begin;
	for (unsigned i = 0; calls && i < n; i++)
		r->rows[i] = r->status[i] == FAR_PS_ROW ? (float)r->values[i] : FALLBACK;
	if (answered < 0)
		wrong("a partial pull failed: %s", err.text);
	else
		check_read(t, r, n, answered, begin);
	if (answered >= 0 && t == VALUES)
		values_check(r, n, begin);
	if (took > opts.timeout_ns + SLACK && !is_paused(rank, begin))
		wrong("a pull with %llu ms took %llu us", (unsigned long long)(opts.timeout_ns / MS),
		      (unsigned long long)took / 1000);
	run.reads++;
	return !cluster_failure(run.c);
}

void reader_app(struct cluster_worker *w, void *ctx)
{
	struct handles h;
	(void)ctx;
	bool ok = open_all(w, &h, 200 + cluster_rank(w), 0);
	for (int i = 0; ok && i < READS; i++)
		ok = read_once(cluster_rank(w), &h) && !cluster_sleep(sim_random_below(&run.random, 20 * MS));
	handles_free(&h);
}

/* ---- The end ---- */

void final_app(struct cluster_worker *w, void *ctx)
{
	struct reader *r = &run.reader[WORKERS];
	struct far_ps_pull_opts opts = {.timeout_ns = 1000 * MS};
	struct far_err err = {0};
	struct far_future *f;
	struct handles h;
	(void)ctx;
	bool ok = open_all(w, &h, 300, 0);
	for (unsigned i = 0; i < PS_SUM_KEYS; i++)
		r->keys[i] = ps_key(i);
	while (ok && (far_ps_pull(h.table[SUMS], r->keys, PS_SUM_KEYS, &opts, r->rows, r->status, &f, &err) ||
		      wait_for(f, &err) != PS_SUM_KEYS))
		ok = again(&h, "the last pull", &err) && make_tables(&h);
	for (unsigned i = 0; ok && i < PS_SUM_KEYS; i++)
		for (unsigned c = 0; c < PS_CLIENTS; c++) {
			uint64_t least, most, sum = (uint64_t)r->rows[i * PS_CLIENTS + c];
			ps_sum_range(&run.history, i, c, &least, &most);
			if (sum < least || sum > most)
				wrong("the sum of client %u's pushes of key %u is %llu, not %llu to %llu", c, i,
				      (unsigned long long)sum, (unsigned long long)least, (unsigned long long)most);
		}
	handles_free(&h);
}
