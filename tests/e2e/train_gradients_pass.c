/* SPDX-License-Identifier: BSD-3-Clause */
/** What passes do with gradients: hooks that make calls, messages, copies. Threads of the test and of its agents. */
#include "train_gradients.h"

#include <pthread.h>
#include <stdatomic.h>

enum { N = 64, SMALL = 10, VIEWS = 40, RACERS = 20, ROUNDS = 4, LONG = 40000 };

/* ---- handlers ---- */

/* A handler's step: the context that came, and a tape. */
static enum far_status received(struct far_req *req, const struct far_val *v, struct step *s)
{
	struct far_err err;
	s->rank = far_self(far_req_agent(req)).worker;
	s->context = far_context_of(trains[s->rank], req, v, &err);
	if (!s->context)
		return far_fail(req, err.status, err.code, "%s", err.text);
	CHECK(far_tape_new(pool, &s->tape, &err) == FAR_OK);
	return FAR_OK;
}

enum far_status answer(struct far_req *req, struct step *s, struct far_var *y)
{
	enum far_status status = far_tape_return(s->tape, s->context, y, req);
	far_tape_free(s->tape);
	far_context_free(s->context);
	return status;
}

/** Uses the context while a hook of it waits: sends a variable, reads the counts and the gradients. */
FAR_HANDLER(uses)
{
	struct far_err err;
	struct far_context *context;
	struct far_context_counts counts;
	int rank = far_self(far_req_agent(req)).worker;
	const float one = 1;
	struct far_var *var = leaf_of(&one, 1, true);
	OK(far_context_find(trains[rank], req, (uint64_t)args[0].u.i, &context, &err));
	CHECK(far_context_send(context, var, &err).type != FAR_TYPE_NONE);
	far_context_counts_read(context, &counts);
	int64_t leaves = (int64_t)far_grads_count(far_context_grads(context));
	far_context_free(context);
	far_var_free(var);
	return far_return_int(req, leaves);
}

/** Has worker args[1] do that. */
FAR_HANDLER(forwards)
{
	struct far_err err;
	struct far_val out;
	const struct far_call_opts opts = {.timeout_ns = WAIT_NS};
	if (far_rpc_sync(far_req_agent(req), name_of((int)args[1].u.i), "g::uses", args, 1, &opts, &out, &err))
		return far_fail(req, err.status, err.code, "%s", err.text);
	return far_return(req, &out);
}

struct hook {
	int rank;
	struct far_context *context;
	int runs;
};
static struct hook server_hooks[2]; /* of its variable, of its parameter */

/** A third worker calls back to this one, where the pass runs. */
static enum far_status calls(void *user, struct far_var *var, struct far_gradient *g, struct far_err *err)
{
	struct hook *h = user;
	const struct far_call_opts opts = {.timeout_ns = WAIT_NS};
	h->runs++;
	return far_rpc_sync(agent_of(h->rank), name_of(OLD), "g::forwards",
			    FAR_ARGS((int64_t)far_context_id(h->context), h->rank), &opts, NULL, err);
}

/** x * w, with hooks. */
FAR_HANDLER(hooked)
{
	struct step s;
	struct far_err err;
	const float two = 2;
	enum far_status status = received(req, &args[0], &s);
	if (status)
		return status;
	struct far_var *w = leaf_of(&two, 1, true);
	for (int i = 0; i < 2; i++)
		server_hooks[i] = (struct hook){SERVER, s.context, 0}; /* the context ends after the passes */
	struct far_var *x = far_tape_recv(s.tape, s.context, &args[0]);
	OK(far_var_hook(x, FAR_HOOK_BEFORE, calls, &server_hooks[0], &err));
	OK(far_var_hook(w, FAR_HOOK_AFTER, calls, &server_hooks[1], &err));
	struct far_var *y = far_tape_mul(s.tape, x, w);
	far_var_free(w);
	return answer(req, &s, y);
}

/** The sum of args[0], each times two. */
FAR_HANDLER(doubled)
{
	struct step s;
	enum far_status status = received(req, far_list_get(&args[0], 0), &s);
	if (status)
		return status;
	struct far_var *sum = NULL;
	for (size_t i = 0; i < far_len(&args[0]); i++) {
		struct far_var *x = far_tape_recv(s.tape, s.context, far_list_get(&args[0], i));
		x = far_tape_scale(s.tape, x, 2);
		sum = sum ? far_tape_add(s.tape, sum, x) : x;
	}
	return answer(req, &s, sum);
}

/** The sum of args[0], each transposed: the gradients are views. */
FAR_HANDLER(turned)
{
	struct step s;
	enum far_status status = received(req, far_list_get(&args[0], 0), &s);
	if (status)
		return status;
	struct far_var *sum = NULL;
	for (size_t i = 0; i < far_len(&args[0]); i++) {
		struct far_var *x = far_tape_recv(s.tape, s.context, far_list_get(&args[0], i));
		x = far_tape_transpose(s.tape, x, 0, 1);
		sum = sum ? far_tape_add(s.tape, sum, x) : x;
	}
	return answer(req, &s, sum);
}

/** Passes a variable on to worker args[1], and its result back. */
FAR_HANDLER(passed_on)
{
	struct step s;
	struct far_err err;
	enum far_status status = received(req, &args[0], &s);
	if (status)
		return status;
	struct far_val x = send_var(&s, far_tape_recv(s.tape, s.context, &args[0])), list = far_list(&x, 1), out;
	OK(far_rpc_sync(far_req_agent(req), name_of((int)args[1].u.i), "g::doubled", &list, 1, NULL, &out, &err));
	struct far_var *y = far_tape_recv(s.tape, s.context, &out);
	far_val_fini(&out);
	return answer(req, &s, y);
}

static struct step *waited_for; /* of the trainer */
static struct far_var *waited_leaves[2];

static enum far_status same(void *user, const struct far_tensor *const *in, size_t n, struct far_tensor *const *out,
			    size_t m, struct far_err *err)
{
	if (out[0]->dtype == FAR_DTYPE_NONE) {
		*out[0] = *in[0];
		out[0]->data = NULL;
		return FAR_OK;
	}
	return far_op_copy(in[0], out[0], err);
}

/** Returns when the trainer has the gradients that were ready before. */
static enum far_status waits(void *user, const struct far_tensor *const *grads, size_t m,
			     const struct far_tensor *const *in, size_t n, const struct far_tensor *const *out,
			     struct far_tensor *const *dx, struct far_err *err)
{
	struct far_grads *at = far_context_grads(waited_for->context);
	struct far_gradient g;
	for (int i = 0; i < (int)(WAIT_NS / FAR_MS); i++) {
		if (far_grads_get(at, waited_leaves[0], &g) && far_grads_get(at, waited_leaves[1], &g))
			return far_op_copy(grads[0], dx[0], err);
		usleep(1000);
	}
	return FAR_TIMEOUT;
}

/** The counts of the step's context on a worker. */
struct far_context_counts counts_on(const struct step *s, int rank)
{
	struct far_err err;
	struct far_context *context;
	struct far_context_counts counts;
	OK(far_context_find(trains[rank], NULL, far_context_id(s->context), &context, &err));
	far_context_counts_read(context, &counts);
	far_context_free(context);
	return counts;
}

/** Returns when the server has received another gradient, and has kept it: this one runs. */
static enum far_status waits_for_others(void *user, const struct far_tensor *const *grads, size_t m,
					const struct far_tensor *const *in, size_t n,
					const struct far_tensor *const *out, struct far_tensor *const *dx,
					struct far_err *err)
{
	for (int i = 0; i < (int)(WAIT_NS / FAR_MS); i++) {
		if (counts_on(waited_for, SERVER).bytes_kept >= LONG * sizeof(float))
			return far_op_copy(grads[0], dx[0], err);
		usleep(1000);
	}
	return FAR_TIMEOUT;
}

static _Atomic int hook_runs, hook_done;

/** Fails while a hook of the trainer runs. */
static enum far_status fails_meanwhile(void *user, const struct far_tensor *const *grads, size_t m,
				       const struct far_tensor *const *in, size_t n,
				       const struct far_tensor *const *out, struct far_tensor *const *dx,
				       struct far_err *err)
{
	for (int i = 0; i < (int)(WAIT_NS / FAR_MS) && !hook_runs; i++)
		usleep(1000);
	return FAR_REMOTE;
}

/** Returns after the pass has ended. */
static enum far_status outlasts(void *user, struct far_var *var, struct far_gradient *g, struct far_err *err)
{
	hook_runs = 1;
	for (int i = 0; i < (int)(WAIT_NS / FAR_MS) && counts_on(waited_for, TRAINER).passes > 0; i++)
		usleep(1000);
	hook_done = 1;
	return FAR_OK;
}

/* Answers with the function of the argument. */
static enum far_status apply(struct far_req *req, const struct far_val *x, const struct far_tape_function *function)
{
	struct step s;
	struct far_var *y;
	enum far_status status = received(req, x, &s);
	if (status)
		return status;
	struct far_var *var = far_tape_recv(s.tape, s.context, x);
	far_tape_apply(s.tape, function, &var, 1, &y, 1);
	return answer(req, &s, y);
}

FAR_HANDLER(failing)
{
	static const struct far_tape_function function = {"test::fails_meanwhile", same, fails_meanwhile, NULL};
	return apply(req, &args[0], &function);
}

FAR_HANDLER(waiting)
{
	static const struct far_tape_function function = {"test::waits_for_others", same, waits_for_others, NULL};
	return apply(req, &args[0], &function);
}

/** waits(x) + 2 (a + b), for the list of a, b and x. */
FAR_HANDLER(slow)
{
	static const struct far_tape_function function = {"test::waits", same, waits, NULL};
	struct step s;
	struct far_var *v[3], *x;
	enum far_status status = received(req, far_list_get(&args[0], 0), &s);
	if (status)
		return status;
	for (size_t i = 0; i < 3; i++)
		v[i] = far_tape_recv(s.tape, s.context, far_list_get(&args[0], i));
	far_tape_apply(s.tape, &function, &v[2], 1, &x, 1);
	return answer(req, &s, far_tape_add(s.tape, x, far_tape_scale(s.tape, far_tape_add(s.tape, v[0], v[1]), 2)));
}

/* ---- tests ---- */

static struct far_var *nested_leaf;
static struct step *nested_step;

/** A pass of the same context inside the pass that runs this hook. */
static enum far_status passes(void *user, struct far_var *var, struct far_gradient *g, struct far_err *err)
{
	struct far_val v = send_var(nested_step, nested_leaf), list = far_list(&v, 1), out;
	struct far_tape *tape;
	CHECK(far_tape_new(pool, &tape, err) == FAR_OK);
	enum far_status status =
		far_rpc_sync(agent_of(TRAINER), name_of(SERVER), "g::doubled", &list, 1, NULL, &out, err);
	if (!status) {
		struct far_var *root =
			far_tape_sum(tape, far_tape_recv(tape, nested_step->context, &out), NULL, 0, false);
		far_val_fini(&out);
		status = far_backward(nested_step->context, &root, 1, NULL, WAIT_NS, err);
	}
	far_tape_free(tape);
	return status;
}

void hooks_make_calls(void)
{
	struct far_err err;
	const float three = 3;
	struct step s = step_begin(TRAINER);
	struct hook mine = {TRAINER, s.context, 0};
	struct far_var *x = leaf_of(&three, 1, true);
	nested_leaf = leaf_of(&three, 1, true);
	nested_step = &s;
	OK(far_var_hook(x, FAR_HOOK_BEFORE, calls, &mine, &err));
	OK(far_var_hook(x, FAR_HOOK_AFTER, passes, NULL, &err));
	struct far_val v = send_var(&s, x);
	struct far_var *y = call_var(&s, SERVER, "g::hooked", &v, 1);
	OK(backward_of(&s, y, &err));
	CHECK(mine.runs == 1 && server_hooks[0].runs == 1 && server_hooks[1].runs == 1);
	CHECK(gradient_of(&s, x)[0] == 2 && gradient_of(&s, nested_leaf)[0] == 2);
	step_end(&s);
	far_var_free(x);
	far_var_free(nested_leaf);
}

static void passed_on_copies(size_t n, uint64_t bytes)
{
	static float ones[LONG];
	struct far_err err;
	for (size_t i = 0; i < n; i++)
		ones[i] = 1;
	struct step s = step_begin(TRAINER);
	struct far_var *x = leaf_of(ones, n, true);
	struct far_val v = send_var(&s, x);
	OK(backward_of(&s, call_var(&s, SERVER, "g::passed_on", &v, 1), &err));
	CHECK(gradient_of(&s, x)[n - 1] == 2);
	struct far_context_counts c = counts_on(&s, SERVER);
	CHECK(c.messages_sent == 2 && c.gradients_sent == 2 && c.bytes_sent == 2 * n * sizeof(float));
	CHECK(c.bytes_copied == bytes);
	step_end(&s);
	far_var_free(x);
}

void gradients_share_messages(void)
{
	struct far_err err;
	struct far_context_counts c;
	float ones[N];
	struct far_var *x[SMALL];
	struct far_val items[SMALL];
	struct step s = step_begin(TRAINER);
	for (int i = 0; i < N; i++)
		ones[i] = 1;
	for (int i = 0; i < SMALL; i++) {
		x[i] = leaf_of(ones, N, true);
		items[i] = send_var(&s, x[i]);
	}
	struct far_val list = far_list(items, SMALL);
	OK(backward_of(&s, call_var(&s, SERVER, "g::doubled", &list, 1), &err));
	for (int i = 0; i < SMALL; i++)
		CHECK(gradient_of(&s, x[i])[N - 1] == 2);
	c = counts_on(&s, TRAINER);
	CHECK(c.messages_sent == 1 && c.gradients_sent == 1 && c.bytes_sent == sizeof ones);
	CHECK(c.bytes_copied == SMALL * sizeof ones); /* leaves keep theirs */
	c = counts_on(&s, SERVER);
	CHECK(c.messages_sent == 1 && c.gradients_sent == SMALL && c.bytes_sent == SMALL * sizeof ones);
	CHECK(c.bytes_copied == 0);
	step_end(&s);

	/* What is passed on is not copied either, but for a short one that came before all edges were known. */
	passed_on_copies(N, N * sizeof(float));
	passed_on_copies(LONG / 8, 0);
	for (int i = 0; i < SMALL; i++)
		far_var_free(x[i]);
}

void views_are_sent(void)
{
	struct far_err err;
	float elements[6] = {1, 2, 3, 4, 5, 6};
	struct far_var *x[VIEWS];
	struct far_val items[VIEWS];
	struct far_tensor t = far_tensor_2d(FAR_F32, elements, 2, 3), turned_t = far_tensor_2d(FAR_F32, elements, 3, 2);
	struct step s = step_begin(TRAINER);
	for (int i = 0; i < VIEWS; i++) {
		OK(far_var_new(pool, &t, true, &x[i], &err));
		items[i] = send_var(&s, x[i]);
	}
	struct far_val list = far_list(items, VIEWS);
	struct far_var *y = call_var(&s, SERVER, "g::turned", &list, 1);
	OK(backward_of(&s, far_tape_mul(s.tape, y, far_tape_input(s.tape, &turned_t)), &err));
	for (int i = 0; i < VIEWS; i++)
		for (int k = 0; k < 6; k++)
			CHECK(gradient_of(&s, x[i])[k] == elements[2 * (k % 3) + k / 3]);
	CHECK(counts_on(&s, SERVER).messages_sent == 1);
	step_end(&s);
	for (int i = 0; i < VIEWS; i++)
		far_var_free(x[i]);
}

void gradients_wait_for_no_function(void)
{
	struct far_err err;
	const float one = 1;
	struct far_val items[3];
	struct far_var *x[3];
	struct step s = step_begin(TRAINER);
	waited_for = &s;
	for (int i = 0; i < 3; i++) {
		x[i] = leaf_of(&one, 1, true);
		items[i] = send_var(&s, x[i]);
	}
	waited_leaves[0] = x[0];
	waited_leaves[1] = x[1];
	struct far_val list = far_list(items, 3);
	OK(backward_of(&s, call_var(&s, SERVER, "g::slow", &list, 1), &err));
	CHECK(gradient_of(&s, x[0])[0] == 2 && gradient_of(&s, x[1])[0] == 2 && gradient_of(&s, x[2])[0] == 1);
	struct far_context_counts c = counts_on(&s, SERVER);
	CHECK(c.messages_sent == 2 && c.gradients_sent == 3); /* two before the function, together */
	step_end(&s);
	for (int i = 0; i < 3; i++)
		far_var_free(x[i]);
}

/* The server runs a function of the pass while a long gradient comes from a third worker: it keeps its request. */
void gradients_arrive_while_others_run(void)
{
	static float ones[LONG];
	struct far_err err;
	struct step s = step_begin(TRAINER);
	waited_for = &s;
	for (int i = 0; i < LONG; i++)
		ones[i] = 1;
	struct far_var *a = leaf_of(ones, N, true), *b = leaf_of(ones, LONG, true);
	struct far_val v = send_var(&s, a), args[2] = {send_var(&s, b), far_int(SERVER)};
	struct far_var *y = call_var(&s, OLD, "g::passed_on", args, 2);
	struct far_var *sum = far_tape_sum(s.tape, y, NULL, 0, false);
	y = far_tape_sum(s.tape, call_var(&s, SERVER, "g::waiting", &v, 1), NULL, 0, false);
	OK(backward_of(&s, far_tape_add(s.tape, sum, y), &err));
	for (int i = 0; i < LONG; i++)
		CHECK(gradient_of(&s, b)[i] == 2 && gradient_of(&s, a)[i % N] == 1);
	step_end(&s);
	far_var_free(a);
	far_var_free(b);
}

/* The graph is the caller's again when far_backward() returns, though a hook was in it when the pass failed. */
void errors_wait_for_hooks(void)
{
	struct far_err err;
	const float one = 1;
	struct step s = step_begin(TRAINER);
	struct far_var *a = leaf_of(&one, 1, true), *b = leaf_of(&one, 1, true);
	waited_for = &s;
	OK(far_var_hook(a, FAR_HOOK_BEFORE, outlasts, NULL, &err));
	struct far_val v = send_var(&s, a), list = far_list(&v, 1), w = send_var(&s, b);
	struct far_var *x = call_var(&s, SERVER, "g::doubled", &list, 1), *y = call_var(&s, OLD, "g::failing", &w, 1);
	CHECK_STATUS(backward_of(&s, far_tape_add(s.tape, x, y), &err), FAR_REMOTE, &err);
	CHECK_TEXT(&err, "error on node 2 (worker2)");
	CHECK(hook_runs && hook_done);
	step_end(&s);
	far_var_free(a);
	far_var_free(b);
}

/* ---- threads ---- */

/* A thread that trains. Two have one context and one leaf in common. */
struct racer {
	pthread_t thread;
	const struct step *common;
	struct far_var *leaf;
	const char *function;
};

static void *race(void *user)
{
	const struct racer *r = user;
	struct far_err err;
	struct step s = *r->common;
	OK(far_tape_new(pool, &s.tape, &err));
	for (int round = 0; round < ROUNDS; round++) {
		struct far_val v = send_var(&s, r->leaf), list = far_list(&v, 1);
		bool listed = strcmp(r->function, "g::doubled") == 0;
		struct far_var *y = call_var(&s, (s.rank + 1) % WORKERS, r->function, listed ? &list : &v, 1);
		OK(backward_of(&s, y, &err));
		far_tape_reset(s.tape);
	}
	far_tape_free(s.tape);
	return NULL;
}

/* 20 threads on three workers. Half of the passes are too long for fibers, and their gradients for messages. */
void threads_train_together(void)
{
	static struct racer racers[RACERS];
	static struct step steps[RACERS / 2];
	static float ones[LONG];
	struct far_var *leaves[RACERS / 2];
	for (int i = 0; i < LONG; i++)
		ones[i] = 1;
	for (int i = 0; i < RACERS / 2; i++) {
		steps[i] = step_begin(i % WORKERS);
		leaves[i] = leaf_of(ones, i % 2 ? LONG : N, true);
	}
	for (int i = 0; i < RACERS; i++) {
		racers[i] = (struct racer){.common = &steps[i / 2],
					   .leaf = leaves[i / 2],
					   .function = i % 2 ? "g::doubled" : "g::passed_on"};
		CHECK(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
	}
	for (int i = 0; i < RACERS; i++)
		CHECK(pthread_join(racers[i].thread, NULL) == 0);
	for (int i = 0; i < RACERS / 2; i++) {
		const float *g = gradient_of(&steps[i], leaves[i]);
		for (int k = 0; k < (i % 2 ? LONG : N); k++)
			CHECK(g[k] == 2 * 2 * ROUNDS);
		step_end(&steps[i]);
		far_var_free(leaves[i]);
	}
}

const struct far_function *gradient_functions(size_t *n)
{
	static const struct far_function functions[] = {
		{"g::uses(int context) -> int", FAR_KIND_BLOCKING, uses, NULL, 0},
		{"g::forwards(int context, int to) -> int", FAR_KIND_BLOCKING, forwards, NULL, 0},
		{"g::hooked(far::Var x) -> far::Var", FAR_KIND_FIBER, hooked, NULL, 0},
		{"g::doubled(List xs) -> far::Var", FAR_KIND_FIBER, doubled, NULL, 0},
		{"g::turned(List xs) -> far::Var", FAR_KIND_FIBER, turned, NULL, 0},
		{"g::passed_on(far::Var x, int to=2) -> far::Var", FAR_KIND_FIBER, passed_on, NULL, 0},
		{"g::waiting(far::Var x) -> far::Var", FAR_KIND_FIBER, waiting, NULL, 0},
		{"g::failing(far::Var x) -> far::Var", FAR_KIND_FIBER, failing, NULL, 0},
		{"g::slow(List xs) -> far::Var", FAR_KIND_FIBER, slow, NULL, 0},
		{"g::holds(int context) -> far::Var", FAR_KIND_FIBER, holds_handler, NULL, 0},
		{"g::relays(int context) -> far::Var", FAR_KIND_FIBER, relays_handler, NULL, 0},
		{"g::compressed(far::Var x, Tensor w, int how) -> far::Var", FAR_KIND_FIBER, compressed_handler, NULL,
		 0},
	};
	*n = sizeof functions / sizeof *functions;
	return functions;
}
