/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The functions of the parameter server: create, pull, push, clock, statistics. Handlers on the shards of the server.
 * Shard thread.
 */
#include "ps_server.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A push or pull whose arguments have been checked. */
struct request {
	struct ps_entry *entry;
	const uint64_t *keys;
	const float *grads; /* NULL in a pull */
	size_t n;
	float rate;
};

static void server_free(struct ps_server *s)
{
	if (s == NULL)
		return;
	for (int t = 0; t < PS_TABLES; t++) {
		if (s->tables[t].step)
			ps_step_drop(s->tables[t].step);
		free(s->tables[t].step);
		if (s->tables[t].open)
			ps_table_fini(&s->tables[t].table);
	}
	free(s->rows);
	free(s);
}

int ps_service_new(int servers, unsigned shards, size_t rows_max, struct ps_service **out)
{
	if (servers < 1 || servers > PS_WORLD_MAX || shards < 1 || shards > PS_SHARDS_MAX)
		return -EINVAL;
	struct ps_service *s = calloc(1, sizeof *s);
	if (s == NULL)
		return -ENOMEM;
	s->servers = servers;
	s->shards = shards;
	atomic_init(&s->left, 0);
	atomic_init(&s->lost, -1);
	for (unsigned i = 0; i < shards; i++) {
		if ((s->shard[i] = calloc(1, sizeof *s->shard[i])) == NULL) {
			ps_service_free(s);
			return -ENOMEM;
		}
		s->shard[i]->service = s;
		s->shard[i]->rows_max = rows_max;
	}
	*out = s;
	return 0;
}

void ps_service_free(struct ps_service *s)
{
	for (unsigned i = 0; s && i < s->shards; i++)
		server_free(s->shard[i]);
	free(s);
}

/* A parameter declared float may arrive as an int. */
static double number_of(const struct far_val *v)
{
	return v->type == FAR_TYPE_INT ? (double)v->u.i : v->u.f;
}

/* NULL, and the request answered, when this member is no server. */
static struct ps_server *server_of(struct far_req *req, void *user)
{
	const struct ps_service *service = user;
	unsigned shard = far_req_shard(req);
	if (service && shard < service->shards)
		return service->shard[shard];
	if (service == NULL)
		far_fail(req, FAR_INVALID, 0, "this member is a worker, not a parameter server");
	else
		far_fail(req, FAR_INVALID, 0, "this server has %u shards, and the call came to shard %u",
			 service->shards, shard);
	return NULL;
}

static struct ps_entry *entry_of(struct ps_server *s, struct far_req *req, int64_t table)
{
	if (table >= 0 && table < PS_TABLES && s->tables[table].open)
		return &s->tables[table];
	far_fail(req, FAR_INVALID, 0, "no table %" PRId64 ": call ps::create first", table);
	return NULL;
}

static bool keys_of(struct far_req *req, const struct far_tensor *t, struct request *r)
{
	if (t->dtype != FAR_U64 || t->ndim != 1) {
		far_fail(req, FAR_BAD_ARGS, 0, "keys are a %u-dimensional %s tensor, not 1-dimensional u64", t->ndim,
			 far_dtype_name(t->dtype));
		return false;
	}
	r->keys = t->data;
	r->n = (size_t)t->shape[0];
	return true;
}

static bool grads_of(struct far_req *req, const struct far_tensor *t, double rate, struct request *r)
{
	unsigned dim = r->entry->table.dim;
	if (t->dtype != FAR_F32 || t->ndim != 2 || t->shape[0] != r->n || t->shape[1] != dim) {
		far_fail(req, FAR_BAD_ARGS, 0, "gradients must be an f32 tensor of %zu × %u", r->n, dim);
		return false;
	}
	if (!isfinite(rate)) {
		far_fail(req, FAR_BAD_ARGS, 0, "the learning rate is not finite");
		return false;
	}
	r->grads = t->data;
	r->rate = (float)rate;
	return true;
}

/* Finds or makes the rows of all keys before anything is changed, so that a push applies wholly or not at all. */
static bool rows_of(struct ps_server *s, struct far_req *req, const struct request *r)
{
	if (r->n > s->rows_cap) {
		float **rows = reallocarray(NULL, r->n, sizeof *rows);
		if (rows == NULL) {
			far_fail(req, FAR_RESOURCE, ENOMEM, "no memory for a request of %zu keys", r->n);
			return false;
		}
		free(s->rows);
		s->rows = rows;
		s->rows_cap = r->n;
	}
	struct ps_table *t = &r->entry->table;
	for (size_t i = 0; i < r->n; i++) {
		s->rows[i] = ps_table_row(t, r->keys[i]);
		if (s->rows[i] == NULL) {
			far_fail(req, FAR_RESOURCE, 0,
				 "the table has %zu rows (bound %zu) and no room for another: use more servers",
				 t->rows, t->rows_max);
			return false;
		}
	}
	return true;
}

static bool push_request(struct ps_server *s, struct far_req *req, const struct far_val *args, struct request *r)
{
	r->entry = entry_of(s, req, args[0].u.i);
	return r->entry && keys_of(req, &args[1].u.t, r) && grads_of(req, &args[2].u.t, number_of(&args[3]), r) &&
	       rows_of(s, req, r);
}

static void count_push(struct ps_server *s, const struct request *r)
{
	r->entry->pushes++;
	r->entry->keys_pushed += r->n;
	s->served++;
}

static enum far_status return_none(struct far_req *req)
{
	struct far_val none = far_none();
	return far_return(req, &none);
}

/* Answers with s->rows[0, n). */
static enum far_status return_rows(struct far_req *req, struct ps_server *s, const struct request *r)
{
	unsigned dim = r->entry->table.dim;
	uint64_t shape[2] = {r->n, dim};
	void *data;
	enum far_status status = far_return_tensor(req, FAR_F32, 2, shape, &data);
	for (size_t i = 0; status == FAR_OK && i < r->n; i++)
		memcpy((float *)data + i * dim, s->rows[i], dim * sizeof(float));
	return status;
}

static enum far_status on_create(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	struct ps_server *s = server_of(req, user);
	if (s == NULL)
		return FAR_OK;
	int64_t table = args[0].u.i, dim = args[1].u.i;
	float init = (float)number_of(&args[2]), epsilon = (float)number_of(&args[4]);
	int64_t optimizer = args[3].u.i;
	if (table < 0 || table >= PS_TABLES)
		return far_fail(req, FAR_INVALID, 0, "table %" PRId64 " is not in [0, %d)", table, PS_TABLES);
	if (dim < 1 || dim > PS_DIM_MAX || !isfinite(init))
		return far_fail(req, FAR_INVALID, 0, "dimension %" PRId64 " is not in [1, %u], or init is not finite",
				dim, PS_DIM_MAX);
	if (optimizer < 0 || optimizer >= PS_OPTIMIZERS || !isfinite(epsilon) || epsilon < 0.0f ||
	    (optimizer == PS_ADAGRAD && epsilon == 0.0f))
		return far_fail(req, FAR_INVALID, 0,
				"optimizer %" PRId64 " is not in [0, %d), or epsilon %g is not above 0", optimizer,
				PS_OPTIMIZERS, (double)epsilon);
	struct ps_entry *e = &s->tables[table];
	struct ps_rule rule = {(enum ps_optimizer)optimizer, epsilon};
	if (!e->open) {
		unsigned state = ps_rule_state(&rule, (unsigned)dim);
		if (ps_table_init(&e->table, (unsigned)dim, state, init, s->rows_max))
			return far_fail(req, FAR_RESOURCE, ENOMEM, "no memory for table %" PRId64, table);
		e->rule = rule;
		e->open = true;
	} else if (e->table.dim != (unsigned)dim || memcmp(&e->table.init, &init, sizeof init) != 0 ||
		   e->rule.optimizer != rule.optimizer || memcmp(&e->rule.epsilon, &epsilon, sizeof epsilon) != 0) {
		return far_fail(req, FAR_INVALID, 0,
				"table %" PRId64 " exists with dimension %u, init %g, optimizer %s and epsilon %g",
				table, e->table.dim, (double)e->table.init, ps_optimizer_names[e->rule.optimizer],
				(double)e->rule.epsilon);
	}
	return return_none(req);
}

static enum far_status on_pull(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	struct ps_server *s = server_of(req, user);
	struct request r = {0};
	if (s == NULL || (r.entry = entry_of(s, req, args[0].u.i)) == NULL || !keys_of(req, &args[1].u.t, &r))
		return FAR_OK;
	const struct ps_table *t = &r.entry->table;
	uint64_t shape[2] = {r.n, t->dim};
	void *data;
	enum far_status status = far_return_tensor(req, FAR_F32, 2, shape, &data);
	if (status != FAR_OK)
		return status;
	/* A read creates no rows, so a client that reads random keys cannot fill the table. */
	for (size_t i = 0; i < r.n; i++) {
		float *out = (float *)data + i * t->dim;
		const float *row = ps_table_find(t, r.keys[i]);
		if (row)
			memcpy(out, row, t->dim * sizeof *out);
		for (unsigned d = 0; !row && d < t->dim; d++)
			out[d] = t->init;
	}
	r.entry->pulls++;
	r.entry->keys_pulled += r.n;
	s->served++;
	return FAR_OK;
}

static enum far_status push_now(struct far_req *req, const struct far_val *args, void *user, bool pull)
{
	struct ps_server *s = server_of(req, user);
	struct request r = {0};
	if (s == NULL || !push_request(s, req, args, &r))
		return FAR_OK;
	ps_rule_apply(&r.entry->rule, &r.entry->table, s->rows, r.grads, r.n, r.rate, 1.0f);
	count_push(s, &r);
	return pull ? return_rows(req, s, &r) : return_none(req);
}

static enum far_status on_push(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return push_now(req, args, user, false);
}

static enum far_status on_push_pull(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return push_now(req, args, user, true);
}

/* Does this push belong to the open step? Answers the request when not. */
static bool step_accepts(struct far_req *req, const struct ps_step *st, int rank, int64_t step, int64_t workers)
{
	if (rank < 0 || rank >= PS_WORLD_MAX || workers < 1 || workers > PS_WORLD_MAX)
		far_fail(req, FAR_INVALID, 0, "rank %d or %" PRId64 " workers is out of range", rank, workers);
	else if (step != st->number)
		far_fail(req, FAR_INVALID, 0, "step %" PRId64 " is pushed while step %" PRId64 " is open", step,
			 st->number);
	else if (st->workers && (unsigned)workers != st->workers)
		far_fail(req, FAR_INVALID, 0, "step %" PRId64 " has %u workers, this push has %" PRId64, step,
			 st->workers, workers);
	else if (st->seats[rank].done)
		far_fail(req, FAR_INVALID, 0, "rank %d has pushed step %" PRId64 " already", rank, step);
	else
		return true;
	return false;
}

static enum far_status push_bsp(struct far_req *req, const struct far_val *args, void *user, bool pull)
{
	struct ps_server *s = server_of(req, user);
	struct request r = {0};
	if (s == NULL || !push_request(s, req, args, &r))
		return FAR_OK;
	struct ps_entry *e = r.entry;
	if (e->step == NULL && (e->step = calloc(1, sizeof *e->step)) == NULL)
		return far_fail(req, FAR_RESOURCE, ENOMEM, "no memory for bulk-synchronous steps");
	struct ps_step *st = e->step;
	int rank = far_req_from(req).worker;
	int64_t step = args[4].u.i, workers = args[5].u.i, more = args[6].u.i;
	if (!step_accepts(req, st, rank, step, workers))
		return FAR_OK;
	/* The mean gradient of a step is scaled once. */
	if (e->rule.optimizer != PS_SGD && st->workers && memcmp(&st->rate, &r.rate, sizeof r.rate) != 0)
		return far_fail(req, FAR_INVALID, 0, "step %" PRId64 " has learning rate %g, this push has %g", step,
				(double)st->rate, (double)r.rate);
	/* The reply is secured before the push is taken: a push that fails has changed nothing. */
	bool last = more == 0 && st->arrived + 1 == (unsigned)workers;
	struct far_deferred *reply = NULL;
	if (ps_step_add(st, &e->table, rank, s->rows, r.grads, r.n, r.rate))
		return far_fail(req, FAR_RESOURCE, 0, "no room for the pushes of step %" PRId64 " (bound %zu bytes)",
				step, PS_STEP_BYTES_MAX);
	if (more == 0 && !last && far_defer(req, &reply) != FAR_OK) {
		ps_step_abort(st, FAR_RESOURCE, "the server has too many open requests");
		return far_fail(req, FAR_RESOURCE, 0, "the server has too many open requests");
	}
	st->workers = (unsigned)workers;
	st->rate = r.rate;
	count_push(s, &r);
	if (more)
		return return_none(req);
	st->seats[rank].done = true;
	st->seats[rank].reply = reply;
	st->seats[rank].wants_rows = pull;
	st->arrived++;
	if (!last)
		return FAR_OK;
	ps_step_finish(st, &e->table, &e->rule);
	return pull ? return_rows(req, s, &r) : return_none(req);
}

static enum far_status on_push_bsp(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return push_bsp(req, args, user, false);
}

static enum far_status on_push_pull_bsp(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	return push_bsp(req, args, user, true);
}

static bool barrier_ok(struct far_req *req, int64_t barrier)
{
	if (barrier >= 0 && barrier < PS_BARRIERS)
		return true;
	far_fail(req, FAR_INVALID, 0, "barrier %" PRId64 " is not in [0, %d)", barrier, PS_BARRIERS);
	return false;
}

static enum far_status on_arrive(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	struct ps_server *s = server_of(req, user);
	int rank = far_req_from(req).worker;
	if (s == NULL || !barrier_ok(req, args[0].u.i))
		return FAR_OK;
	if (rank >= 0 && rank < PS_WORLD_MAX)
		s->arrived[args[0].u.i][rank] = true;
	return return_none(req);
}

/* i64 [arrived, served]. */
static enum far_status on_arrived(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	struct ps_server *s = server_of(req, user);
	if (s == NULL || !barrier_ok(req, args[0].u.i))
		return FAR_OK;
	int lost = atomic_load_explicit(&s->service->lost, memory_order_relaxed);
	if (lost >= 0)
		return far_fail(req, FAR_PEER_LOST, 0, "rank %d was lost before the barrier", lost);
	uint64_t shape[1] = {2};
	void *data;
	enum far_status status = far_return_tensor(req, FAR_I64, 1, shape, &data);
	if (status != FAR_OK)
		return status;
	int64_t *out = data;
	out[0] = 0;
	for (int r = 0; r < PS_WORLD_MAX; r++)
		out[0] += s->arrived[args[0].u.i][r];
	out[1] = s->served;
	return FAR_OK;
}

static enum far_status on_leave(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)args;
	(void)n;
	struct ps_server *s = server_of(req, user);
	if (s == NULL)
		return FAR_OK;
	int rank = far_req_from(req).worker;
	if (rank >= 0 && rank < PS_WORLD_MAX && !s->gone[rank]) {
		s->gone[rank] = true;
		atomic_fetch_add_explicit(&s->service->left, 1, memory_order_release);
	}
	return return_none(req);
}

static enum far_status on_stats(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	struct ps_server *s = server_of(req, user);
	struct ps_entry *e = s ? entry_of(s, req, args[0].u.i) : NULL;
	if (e == NULL)
		return FAR_OK;
	uint64_t shape[1] = {PS_STATS};
	void *data;
	enum far_status status = far_return_tensor(req, FAR_I64, 1, shape, &data);
	if (status != FAR_OK)
		return status;
	int64_t *out = data;
	out[PS_STAT_ROWS] = (int64_t)e->table.rows;
	out[PS_STAT_PULLS] = (int64_t)e->pulls;
	out[PS_STAT_PUSHES] = (int64_t)e->pushes;
	out[PS_STAT_KEYS_PULLED] = (int64_t)e->keys_pulled;
	out[PS_STAT_KEYS_PUSHED] = (int64_t)e->keys_pushed;
	out[PS_STAT_STEPS] = e->step ? (int64_t)e->step->finished : 0;
	return FAR_OK;
}

static void abort_steps(struct ps_server *s, enum far_status status, const char *text)
{
	for (int t = 0; t < PS_TABLES; t++)
		if (s->tables[t].step)
			ps_step_abort(s->tables[t].step, status, text);
}

/* A lost member never completes a step: its waiters get the error now, not at their deadline. Workers that left in
 * order are not missed. */
static enum far_status on_watch(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	struct ps_server *s = server_of(req, user);
	if (s == NULL)
		return FAR_OK;
	struct far_agent *agent = far_req_agent(req);
	int world = far_world_size(agent);
	for (int r = 0; r < world && r < PS_WORLD_MAX; r++) {
		struct far_worker_info info;
		if (s->gone[r] || far_worker_by_rank(agent, r, &info, NULL) != FAR_OK || info.alive)
			continue;
		char text[256];
		snprintf(text, sizeof text, "member \"%s\" (rank %d) was lost in the middle of a step", info.name, r);
		abort_steps(s, FAR_PEER_LOST, text);
		int none = -1;
		atomic_compare_exchange_strong_explicit(&s->service->lost, &none, r, memory_order_release,
							memory_order_relaxed);
	}
	if (args[0].u.i)
		abort_steps(s, FAR_SHUTDOWN, "the parameter server was stopped");
	return return_none(req);
}

void ps_functions(struct ps_service *s, struct far_function out[PS_FUNCTIONS])
{
	static const struct far_function list[PS_FUNCTIONS] = {
		{"ps::create(int table, int dim, float init, int optimizer, float epsilon) -> none", FAR_KIND_INLINE,
		 on_create, NULL},
		{"ps::pull(int table, Tensor keys) -> Tensor", FAR_KIND_INLINE, on_pull, NULL},
		{"ps::push(int table, Tensor keys, Tensor grads, float lr) -> none", FAR_KIND_INLINE, on_push, NULL},
		{"ps::push_pull(int table, Tensor keys, Tensor grads, float lr) -> Tensor", FAR_KIND_INLINE,
		 on_push_pull, NULL},
		{"ps::push_bsp(int table, Tensor keys, Tensor grads, float lr, int step, int workers, int more) -> "
		 "none",
		 FAR_KIND_INLINE, on_push_bsp, NULL},
		{"ps::push_pull_bsp(int table, Tensor keys, Tensor grads, float lr, int step, int workers, int more) "
		 "-> Tensor",
		 FAR_KIND_INLINE, on_push_pull_bsp, NULL},
		{"ps::arrive(int barrier) -> none", FAR_KIND_INLINE, on_arrive, NULL},
		{"ps::arrived(int barrier) -> Tensor", FAR_KIND_INLINE, on_arrived, NULL},
		{"ps::leave() -> none", FAR_KIND_INLINE, on_leave, NULL},
		{"ps::stats(int table) -> Tensor", FAR_KIND_INLINE, on_stats, NULL},
		{"ps::watch(int stop) -> none", FAR_KIND_INLINE, on_watch, NULL},
	};
	memcpy(out, list, sizeof list);
	for (int i = 0; i < PS_FUNCTIONS; i++)
		out[i].user = s;
}
