/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Contexts. Any thread.
 *
 * The first value of a context that a worker receives makes it call far::context::hold on the worker that began the
 * context. That call is answered when the context ends, and fails when its worker is lost: either frees the context.
 */
#include "compress.h"
#include "objects.h"
#include "tape.h"

#include <stdlib.h>
#include <time.h>

#define COUNTER_BITS 48
#define NUMBER_MASK  ((UINT64_C(1) << (COUNTER_BITS - 1)) - 1) /* half of them: the rest is for the next ones */

/* A worker that waits for the end of a context. */
struct hold {
	struct hold *next;
	struct far_deferred *request;
};

/* ---- the state of an agent ---- */

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * FAR_SEC + (uint64_t)t.tv_nsec;
}

enum far_status far_train_new(struct far_pool *pool, struct far_train **out, struct far_err *err)
{
	struct far_train *train = calloc(1, sizeof *train);
	if (!train || !wire_start()) {
		free(train);
		return fail_memory(err, "training", sizeof *train);
	}
	train->pool = pool;
	train->now_ns = now_ns;
	pthread_mutex_init(&train->lock, NULL);
	*out = train;
	return FAR_OK;
}

/** A copy of a[0, n) followed by b[0, m). NULL: no memory. */
static void *joined(const void *a, size_t n, const void *b, size_t m, size_t size)
{
	char *all = malloc((n + m) * size);
	if (all && n)
		memcpy(all, a, n * size);
	if (all && m)
		memcpy(all + n * size, b, m * size);
	return all;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum far_status train_opts_make(struct far_train *train, const struct far_opts *opts, struct train_opts *out,
				struct far_err *err)
{
	const struct far_function functions[] = {
		{"far::context::hold(int context) -> none", FAR_KIND_INLINE, context_hold_handler, train, 0},
		{"far::backward::expect(int context, int pass, int flags, Tensor ids, List gradients) -> "
		 "bool|List",
		 FAR_KIND_FIBER, pass_expect_handler, train, 0},
		{"far::backward::finish(int context, int pass) -> none", FAR_KIND_FIBER, pass_finish_handler, train, 0},
		{"far::backward::gradient(int context, int pass, List gradients) -> none", FAR_KIND_FIBER,
		 pass_gradient_handler, train, 0},
		{"far::backward::large(int context, int pass, List gradients) -> none", FAR_KIND_BLOCKING,
		 pass_large_handler, train, 0},
		{"far::backward::packed(int context, int pass, List gradients) -> none", FAR_KIND_FIBER,
		 pass_packed_handler, train, 0},
		{"far::backward::packed_large(int context, int pass, List gradients) -> none", FAR_KIND_BLOCKING,
		 pass_packed_large_handler, train, 0},
		{"far::backward::run(int context, int pass) -> none", FAR_KIND_BLOCKING, pass_run_handler, train, 0},
		{"far::backward::abort(int context, int pass) -> none", FAR_KIND_FIBER, pass_abort_handler, train, 0},
	};
	struct far_opts *all = &out->all;
	*all = opts ? *opts : (struct far_opts){0};
	objects_fill(&out->objects, train);
	out->functions = joined(all->functions, all->functions_n, functions, COUNT(functions), sizeof *functions);
	out->classes = joined(out->objects.classes, COUNT(out->objects.classes), all->classes, all->classes_n,
			      sizeof *all->classes);
	out->types = joined(all->types, all->types_n, &wire_type, 1, sizeof wire_type);
	if (!out->functions || !out->classes || !out->types) {
		train_opts_free(out);
		return fail_memory(err, "training", sizeof functions);
	}
	all->functions = out->functions;
	all->functions_n += COUNT(functions);
	all->classes = out->classes;
	all->classes_n += COUNT(out->objects.classes);
	all->types = out->types;
	all->types_n++;
	return FAR_OK;
}

void train_opts_free(struct train_opts *opts)
{
	free(opts->functions);
	free(opts->classes);
	free(opts->types);
}

enum far_status far_train_init_rpc(struct far_train *train, const char *name, int rank, int world_size,
				   const struct far_opts *opts, struct far_agent **agent, struct far_err *err)
{
	struct train_opts with;
	pthread_mutex_lock(&train->lock);
	bool again = train->joined;
	train->joined = true;
	pthread_mutex_unlock(&train->lock);
	if (again)
		return fail(err, FAR_INVALID, "far_train_init_rpc: this far_train has an agent already");
	TRY(train_opts_make(train, opts, &with, err));
	enum far_status status = far_init_rpc(name, rank, world_size, &with.all, agent, err);
	if (!status)
		atomic_store(&train->agent, *agent);
	train_opts_free(&with);
	return status;
}

struct far_agent *train_agent(struct far_train *train, const struct far_req *req)
{
	if (req)
		atomic_store(&train->agent, far_req_agent(req));
	return atomic_load(&train->agent);
}

size_t far_train_contexts(struct far_train *train)
{
	size_t n = 0;
	pthread_mutex_lock(&train->lock);
	for (const struct far_context *c = train->contexts; c; c = c->next)
		n++;
	pthread_mutex_unlock(&train->lock);
	return n;
}

void error_on_node(struct far_agent *agent, int32_t rank, struct far_err *err)
{
	struct far_worker_info info;
	char text[FAR_ERR_TEXT_MAX];
	bool known = far_worker_by_rank(agent, rank, &info, NULL) == FAR_OK;
	int n = snprintf(text, sizeof text, "error on node %d (%s): ", rank, known ? info.name : "?");
	memmove(err->text + n, err->text, sizeof err->text - (size_t)n);
	memcpy(err->text, text, (size_t)n);
	err->text[sizeof err->text - 1] = '\0';
}

/* ---- contexts ---- */

static struct far_context *context_new(struct far_train *train, uint64_t id, bool owned, struct far_err *err)
{
	struct far_context *context = pool_zero(train->pool, sizeof *context);
	if (!context || far_grads_new(train->pool, &context->grads, err)) {
		pool_give(context);
		fail_memory(err, "context", sizeof *context);
		return NULL;
	}
	context->train = train;
	context->id = id;
	context->owned = owned;
	context->forwards = wire_forwards();
	atomic_init(&context->refs, 2); /* the list's, the caller's */
	pthread_mutex_init(&context->lock, NULL);
	return context;
}

struct far_context *context_ref(struct far_context *context)
{
	atomic_fetch_add_explicit(&context->refs, 1, memory_order_relaxed);
	return context;
}

static void context_unref(struct far_context *context)
{
	if (atomic_fetch_sub_explicit(&context->refs, 1, memory_order_acq_rel) != 1)
		return;
	spreads_free(context);
	for (size_t i = 0; i < context->sent_n; i++)
		wire_unref(context->sent[i]);
	pool_give(context->sent);
	while (context->origins) {
		struct origin *origin = context->origins;
		context->origins = origin->next;
		pool_give(origin);
	}
	far_compressor_free(context->compressor);
	far_grads_free(context->grads);
	pthread_mutex_destroy(&context->lock);
	pool_give(context);
}

/** Takes the context off the list and answers those that wait for its end. */
static void context_end(struct far_context *context)
{
	struct far_train *train = context->train;
	pthread_mutex_lock(&train->lock);
	struct far_context **at = &train->contexts;
	while (*at && *at != context)
		at = &(*at)->next;
	bool listed = *at != NULL;
	if (listed)
		*at = context->next;
	if (listed && context->owned)
		train->open--;
	atomic_store(&context->ended, true);
	struct hold *holds = context->holds;
	context->holds = NULL;
	pthread_mutex_unlock(&train->lock);
	while (holds) {
		struct hold *hold = holds;
		holds = hold->next;
		far_deferred_return(hold->request, NULL);
		pool_give(hold);
	}
	if (listed)
		context_unref(context);
}

/** The first number of a worker: another one after a restart, as others may still hold contexts from before. */
static uint64_t first_number(struct far_agent *agent)
{
	struct far_worker_info self;
	bool known = far_worker_by_rank(agent, far_self(agent).worker, &self, NULL) == FAR_OK;
	return known ? self.incarnation & NUMBER_MASK : 0;
}

enum far_status far_context_begin(struct far_train *train, struct far_context **out, struct far_err *err)
{
	struct far_agent *agent = train_agent(train, NULL);
	if (!agent)
		return fail(err, FAR_INVALID, "far_context_begin: far_train_init_rpc() comes first");
	struct far_context *context = context_new(train, 0, true, err);
	if (!context)
		return FAR_RESOURCE;
	pthread_mutex_lock(&train->lock);
	if (train->next == 0)
		train->next = first_number(agent);
	bool room = train->open < FAR_CONTEXTS_MAX;
	if (room) {
		train->open++;
		context->id = (uint64_t)far_self(agent).worker << COUNTER_BITS | train->next++;
		context->next = train->contexts;
		train->contexts = context;
	}
	pthread_mutex_unlock(&train->lock);
	if (!room) {
		context_unref(context);
		context_unref(context);
		return fail(err, FAR_RESOURCE, "far_context_begin: %d contexts of this worker are open; free some",
			    FAR_CONTEXTS_MAX);
	}
	*out = context;
	return FAR_OK;
}

uint64_t far_context_id(const struct far_context *context)
{
	return context->id;
}

struct far_grads *far_context_grads(struct far_context *context)
{
	return context->grads;
}

void far_context_counts_read(struct far_context *context, struct far_context_counts *out)
{
	pthread_mutex_lock(&context->lock);
	out->passes = spreads_count(context);
	out->sent = context->sent_grad;
	out->received = context->received;
	pthread_mutex_unlock(&context->lock);
	out->messages_sent = atomic_load_explicit(&context->messages_sent, memory_order_relaxed);
	out->gradients_sent = atomic_load_explicit(&context->gradients_sent, memory_order_relaxed);
	out->bytes_sent = atomic_load_explicit(&context->bytes_sent, memory_order_relaxed);
	out->bytes_kept = atomic_load_explicit(&context->bytes_kept, memory_order_relaxed);
	out->bytes_copied =
		atomic_load_explicit(&context->bytes_copied, memory_order_relaxed) + grads_bytes_copied(context->grads);
}

void far_context_compress(struct far_context *context, struct far_compressor *compressor)
{
	compressor_ref(compressor);
	pthread_mutex_lock(&context->lock);
	struct far_compressor *before = context->compressor;
	context->compressor = compressor;
	pthread_mutex_unlock(&context->lock);
	far_compressor_free(before);
}

void far_context_free(struct far_context *context)
{
	if (context)
		context_unref(context);
}

void far_context_end(struct far_context *context)
{
	if (!context)
		return;
	if (context->owned)
		context_end(context);
	context_unref(context);
}

static enum far_status has_ended(uint64_t id, struct far_err *err)
{
	return fail(err, FAR_INVALID, "context %llu has ended", (unsigned long long)id);
}

enum far_status context_check(const struct far_context *context, struct far_err *err)
{
	return atomic_load(&context->ended) ? has_ended(context->id, err) : FAR_OK;
}

/** With train->lock. */
static struct far_context *find(struct far_train *train, uint64_t id)
{
	struct far_context *context = train->contexts;
	while (context && context->id != id)
		context = context->next;
	return context;
}

struct far_context *context_here(struct far_train *train, uint64_t id)
{
	pthread_mutex_lock(&train->lock);
	struct far_context *context = find(train, id);
	if (context)
		context_ref(context);
	pthread_mutex_unlock(&train->lock);
	return context;
}

/** The context has ended, or its worker is lost. Runs on the poller. */
static void on_end(struct far_future *f, void *user)
{
	struct far_context *context = user;
	(void)f;
	context_end(context);
	context_unref(context);
}

/** Waits for the end of a context of another worker. */
static enum far_status hold(struct far_context *context, struct far_agent *agent, struct far_err *err)
{
	struct far_to to = {(int32_t)(context->id >> COUNTER_BITS), -1};
	struct far_call_opts opts = {.timeout_ns = FAR_FOREVER};
	struct far_future *f = NULL;
	TRY(far_rpc_async_to(agent, to, "far::context::hold", FAR_ARGS((int64_t)context->id), &opts, &f, err));
	enum far_status status = far_future_on_done(f, on_end, context_ref(context), err);
	if (status)
		context_unref(context);
	far_future_free(f);
	return status;
}

enum far_status far_context_find(struct far_train *train, const struct far_req *req, uint64_t id,
				 struct far_context **out, struct far_err *err)
{
	struct far_agent *agent = train_agent(train, req);
	uint64_t begun_by = id >> COUNTER_BITS;
	struct far_worker_info begun;
	*out = context_here(train, id);
	if (*out)
		return FAR_OK;
	if (!agent || begun_by >= (uint64_t)INT32_MAX || far_worker_by_rank(agent, (int)begun_by, &begun, NULL))
		return fail(err, FAR_INVALID, "context %llu is of no worker", (unsigned long long)id);
	if (begun_by == (uint64_t)far_self(agent).worker)
		return has_ended(id, err);
	struct far_context *context = context_new(train, id, false, err);
	if (!context)
		return FAR_RESOURCE;
	pthread_mutex_lock(&train->lock);
	struct far_context *other = find(train, id);
	if (other) {
		context_ref(other);
	} else {
		context->next = train->contexts;
		train->contexts = context;
	}
	pthread_mutex_unlock(&train->lock);
	if (other) {
		context_unref(context);
		context_unref(context);
		*out = other;
		return FAR_OK;
	}
	enum far_status status = hold(context, agent, err);
	if (status) {
		context_end(context);
		context_unref(context);
		return status;
	}
	*out = context;
	return FAR_OK;
}

enum far_status context_hold_handler(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_train *train = user;
	struct hold *hold = pool_take(train->pool, sizeof *hold);
	enum far_status status = FAR_OK;
	(void)n;
	train_agent(train, req);
	if (!hold)
		return FAR_RESOURCE;
	pthread_mutex_lock(&train->lock);
	struct far_context *context = find(train, (uint64_t)args[0].u.i);
	bool open = context && context->owned;
	if (open)
		status = far_defer(req, &hold->request);
	if (open && !status) {
		hold->next = context->holds;
		context->holds = hold;
	}
	pthread_mutex_unlock(&train->lock);
	if (open && !status)
		return FAR_OK;
	pool_give(hold);
	return open ? status : far_return_none(req);
}

void far_train_free(struct far_train *train)
{
	if (!train)
		return;
	while (train->contexts) {
		/* The requests are gone with the agent. */
		for (struct hold *hold; (hold = train->contexts->holds); pool_give(hold))
			train->contexts->holds = hold->next;
		context_end(train->contexts);
	}
	tokens_free(train);
	pthread_mutex_destroy(&train->lock);
	free(train);
	wire_stop();
}

/* ---- variables ---- */

struct far_context *far_context_of(struct far_train *train, const struct far_req *req, const struct far_val *v,
				   struct far_err *err)
{
	struct far_context *context;
	const struct wire *wire = wire_of(v);
	if (!wire) {
		fail(err, FAR_INVALID, "far_context_of: the value is a %s, not a far::Var",
		     far_type_name((enum far_type)v->type));
		return NULL;
	}
	return far_context_find(train, req, wire->context, &context, err) ? NULL : context;
}

/** Gives `wire` the next number. */
static enum far_status number(struct far_context *context, struct wire *wire, struct far_err *err)
{
	pthread_mutex_lock(&context->lock);
	bool room = pool_grow(context->train->pool, (void **)&context->sent, &context->sent_capacity, context->sent_n,
			      sizeof(struct wire *));
	if (room) {
		context->sent[context->sent_n++] = wire;
		if (wire->var->requires_grad) {
			wire->id = context->sent_n;
			context->sent_grad++;
		}
	}
	pthread_mutex_unlock(&context->lock);
	return room ? FAR_OK : fail_memory(err, "context", context->sent_n * sizeof *context->sent);
}

/** `to`: the only worker that gets it; WIRE_ANYONE. */
static struct far_val send_to(struct far_context *context, struct far_var *var, int32_t to, struct far_err *err)
{
	if (!var) {
		fail(err, FAR_INVALID, "far_context_send: the variable is NULL");
		return far_none();
	}
	if (!context)
		return far_tensor_val(&var->value.t);
	if (context_check(context, err))
		return far_none();
	struct wire *wire = wire_new(var);
	if (!wire) {
		fail_memory(err, "variable", sizeof *wire);
		return far_none();
	}
	wire->context = context->id;
	wire->rank = far_self(train_agent(context->train, NULL)).worker;
	wire->answer_to = to;
	if (number(context, wire, err)) {
		wire_unref(wire);
		return far_none();
	}
	return far_custom(&wire_type, wire);
}

struct far_val far_context_send(struct far_context *context, struct far_var *var, struct far_err *err)
{
	return send_to(context, var, WIRE_ANYONE, err);
}

uint64_t context_received(const struct far_context *context, int32_t rank)
{
	const struct origin *origin = context->origins;
	while (origin && origin->rank != rank)
		origin = origin->next;
	return origin ? origin->received : 0;
}

/** Counts a received variable. False: no memory. */
static bool count_received(struct far_context *context, const struct wire *wire)
{
	struct origin *origin = context->origins;
	while (origin && origin->rank != wire->rank)
		origin = origin->next;
	if (!origin) {
		origin = pool_take(context->train->pool, sizeof *origin);
		if (!origin)
			return false;
		*origin = (struct origin){context->origins, wire->rank, 0};
		context->origins = origin;
	}
	origin->received++;
	context->received++;
	if (!wire->var && wire->forwards < context->forwards)
		context->forwards = wire->forwards;
	return true;
}

/** A variable of a received value. */
static struct far_var *received(struct far_pool *pool, struct far_context *context, const struct far_val *v,
				struct far_err *err)
{
	struct far_var *var = NULL;
	struct wire *wire = wire_of(v);
	if (v->type == FAR_TYPE_TENSOR)
		return far_var_new(pool, far_val_tensor(v), false, &var, err) ? NULL : var;
	if (!wire) {
		fail(err, FAR_INVALID, "far_tape_recv: the value is a %s, not a far::Var or Tensor",
		     far_type_name((enum far_type)v->type));
		return NULL;
	}
	bool grad = context && wire->id > 0;
	if (context && wire->context != context->id) {
		fail(err, FAR_INVALID, "far_tape_recv: the variable is of context %llu, not of %llu",
		     (unsigned long long)wire->context, (unsigned long long)context->id);
		return NULL;
	}
	var = wire_var(pool, wire, grad, err);
	if (var && grad) {
		var->sent_context = wire->context;
		var->sent_id = wire->id;
		var->sent_rank = wire->rank;
		if (wire->var)
			atomic_fetch_add_explicit(&wire->copies, 1, memory_order_relaxed);
		pthread_mutex_lock(&context->lock);
		bool counted = count_received(context, wire);
		pthread_mutex_unlock(&context->lock);
		if (!counted) {
			far_var_free(var);
			fail_memory(err, "variable", sizeof(struct origin));
			return NULL;
		}
	}
	return var;
}

struct far_var *far_tape_recv(struct far_tape *tape, struct far_context *context, const struct far_val *v)
{
	struct far_err err;
	if (far_tape_status(tape, NULL))
		return NULL;
	struct far_var *var = received(far_tape_pool(tape), context, v, &err);
	if (!var)
		far_tape_fail(tape, &err);
	return var ? tape_adopt(tape, var) : NULL;
}

enum far_status far_tape_return(struct far_tape *tape, struct far_context *context, struct far_var *var,
				struct far_req *req)
{
	struct far_err err;
	enum far_status status = far_tape_status(tape, &err);
	if (!status) {
		struct far_val v = send_to(context, var, far_req_from(req).worker, &err);
		status = v.type == FAR_TYPE_NONE ? err.status : FAR_OK;
		if (!status)
			return far_return(req, &v);
	}
	return far_fail(req, status, err.code, "%s", err.text);
}
