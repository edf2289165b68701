/* SPDX-License-Identifier: BSD-3-Clause */
/** Optimizers and modules on other workers; data-parallel training beside them. M1, N1, N2, N3.
 * Main thread of each process. */
#include "train.h"

#include <string.h>

/* ---- M1 ---- */

/* The remote parameters of a test, and the same ones here. */
struct twin {
	struct far_rref *remote;
	struct far_var *local;
};

static struct twin twin(const char *to, int distance)
{
	struct twin t = {REMOTE(to, "t::weight", FAR_ARGS(distance)), leaf_of(2, 2, 0, true)};
	struct far_tensor v;
	OK(far_var_edit(t.local, &v, &err));
	for (int i = 0; i < 4; i++)
		((float *)v.data)[i] = 0.5f + 0.25f * (float)i + (float)distance;
	return t;
}

static struct far_var *get(struct far_context *c, struct far_rref *r)
{
	struct far_val v = {0};
	OK(far_rref_rpc_sync(r, "get", FAR_ARGS((int64_t)far_context_id(c)), NULL, &v, &err));
	struct far_var *var = far_tape_recv(tape, c, &v);
	far_val_fini(&v);
	return var;
}

static void same_values(struct twin *t)
{
	struct far_val v = {0};
	OK(far_rref_rpc_sync(t->remote, "value", FAR_NOARGS, NULL, &v, &err));
	HOLDS(!memcmp(far_val_tensor(&v)->data, far_var_tensor(t->local)->data, 4 * sizeof(float)));
	far_val_fini(&v);
}

static struct far_optimizer_opts options(int kind)
{
	struct far_optimizer_opts o = far_optimizer_defaults((enum far_optimizer_kind)kind);
	o.lr = 0.05;
	if (kind == FAR_OPTIMIZER_SGD) {
		o.momentum = 0.9;
		o.nesterov = true;
	}
	if (kind != FAR_OPTIMIZER_RPROP && kind != FAR_OPTIMIZER_ROWWISE_ADAGRAD && kind != FAR_OPTIMIZER_FTRL)
		o.weight_decay = 0.01;
	return o;
}

static struct far_var *loss_of(struct far_var *a, struct far_var *b, struct far_var *x)
{
	struct far_var *y = far_tape_matmul(tape, b, far_tape_tanh(tape, far_tape_matmul(tape, a, x)));
	struct far_var *root = far_tape_mean(tape, far_tape_mul(tape, y, y), NULL, 0, false);
	OK(far_tape_status(tape, &err));
	return root;
}

/* A few steps of one rule, remote and local: the same bits. */
static void steps(int kind)
{
	struct far_optimizer_opts o = options(kind);
	struct twin a = twin(peer(1), 0), b = twin(peer(2), 1);
	struct far_rref *params[] = {a.remote, b.remote};
	struct far_var *vars[] = {a.local, b.local}, *x = leaf_of(2, 3, 0.3, false);
	struct far_dist_optimizer *remote = NULL;
	struct far_optimizer *local = NULL;
	OK(far_dist_optimizer_new(train, &o, params, 2, 0, &remote, &err));
	OK(far_optimizer_new(pool, &o, vars, 2, &local, &err));
	for (int i = 0; i < 3; i++) {
		struct far_context *c = begin();
		struct far_grads *grads;
		OK(far_grads_new(pool, &grads, &err));
		struct far_var *root = loss_of(a.local, b.local, x);
		OK(far_grads_backward(grads, &root, 1, NULL, &err));
		OK(far_optimizer_step(local, grads, &err));
		far_grads_free(grads);
		BACKWARD(c, loss_of(get(c, a.remote), get(c, b.remote), x));
		OK(far_dist_optimizer_step(remote, c, 0, &err));
		far_context_end(c);
		far_tape_reset(tape);
		same_values(&a);
		same_values(&b);
	}
	far_dist_optimizer_free(remote);
	far_optimizer_free(local);
	far_rref_free(a.remote);
	far_rref_free(b.remote);
}

TRAIN(M1, dist_optim)
{
	for (int kind = 0; kind < FAR_OPTIMIZER_COUNT; kind++)
		steps(kind);
}

/* A parameter that no loss used stays as it is, though its worker takes part in the step. */
TRAIN(M1, dist_optim_none_grads)
{
	struct far_optimizer_opts o = options(FAR_OPTIMIZER_SGD);
	struct twin a = twin(peer(1), 0), b = twin(peer(1), 1), far = twin(peer(2), 0);
	struct far_rref *params[] = {a.remote, b.remote, far.remote};
	struct far_dist_optimizer *remote = NULL;
	struct far_val v = {0};
	OK(far_dist_optimizer_new(train, &o, params, 3, 0, &remote, &err));
	struct far_context *c = begin();
	BACKWARD(c, total(get(c, a.remote)));
	OK(far_dist_optimizer_step(remote, c, 0, &err));
	same_values(&b);
	same_values(&far);
	OK(far_rref_rpc_sync(a.remote, "value", FAR_NOARGS, NULL, &v, &err));
	HOLDS(((float *)far_val_tensor(&v)->data)[0] < 0.5f);
	far_val_fini(&v);
	far_context_end(c);
	far_dist_optimizer_free(remote);
	far_rref_free(a.remote);
	far_rref_free(b.remote);
	far_rref_free(far.remote);
}

TRAIN(M1, dist_optim_exception_on_constructor)
{
	struct far_optimizer_opts o = options(FAR_OPTIMIZER_ADAM);
	struct twin a = twin(peer(1), 0), b = twin(peer(2), 1);
	struct far_rref *params[] = {a.remote, b.remote}, *same[] = {a.remote, a.remote};
	struct far_rref *number = REMOTE(peer(1), "t::contexts", FAR_NOARGS);
	struct far_dist_optimizer *remote = NULL;
	o.beta1 = 2;
	FAILS(FAR_INVALID, far_dist_optimizer_new(train, &o, params, 2, 0, &remote, &err));
	SAYS("beta1");
	SAYS(peer(1));
	o.beta1 = 0.9;
	FAILS(FAR_INVALID, far_dist_optimizer_new(train, &o, same, 2, 0, &remote, &err));
	FAILS(FAR_INVALID, far_dist_optimizer_new(train, &o, params, 0, 0, &remote, &err));
	FAILS(FAR_INVALID, far_dist_optimizer_new(train, &o, &number, 1, 0, &remote, &err));
	SAYS("no reference to a far::Parameter");
	far_rref_free(a.remote);
	far_rref_free(b.remote);
	far_rref_free(number);
}

/* A rule that refuses sparse gradients fails its step on the worker that has them. */
TRAIN(M1, dist_optim_exception)
{
	struct far_optimizer_opts o = options(FAR_OPTIMIZER_ADAM);
	struct twin a = twin(peer(1), 0);
	struct far_dist_optimizer *remote = NULL;
	uint64_t two = 2;
	int64_t rows[] = {1, 1};
	struct far_tensor index = far_tensor_nd(FAR_I64, rows, 1, &two, NULL);
	OK(far_dist_optimizer_new(train, &o, &a.remote, 1, 0, &remote, &err));
	struct far_context *c = begin();
	struct far_var *table = get(c, a.remote);
	BACKWARD(c, total(far_tape_embedding(tape, table, far_tape_input(tape, &index), true)));
	FAILS(FAR_UNSUPPORTED, far_dist_optimizer_step(remote, c, 0, &err));
	SAYS(peer(1));
	same_values(&a);
	OK(far_dist_optimizer_set_lr(remote, 0.5, 0, &err));
	FAILS(FAR_INVALID, far_dist_optimizer_set_lr(remote, -1, 0, &err));
	far_context_end(c);
	far_dist_optimizer_free(remote);
	far_rref_free(a.remote);
}

/* ---- N1 ---- */

static struct far_rref *module_on(const char *to)
{
	struct far_rref *m = NULL;
	OK(far_remote_module_new(train, to, "t::linear", FAR_ARGS(2, 3), 0, &m, &err));
	OK(far_remote_module_train(m, false, 0, &err));
	return m;
}

/* The same module here. */
static struct far_var *expected(struct far_var *x)
{
	struct far_init init = {.seed = 1};
	struct far_module *m;
	OK(far_module_linear(pool, &init, 2, 3, true, &m, &err));
	struct far_var *y = far_tape_tanh(tape, far_module_forward(m, tape, x));
	OK(far_tape_status(tape, &err));
	far_module_free(m);
	return y;
}

static void same(struct far_var *a, struct far_var *b)
{
	OK(far_tape_status(tape, &err));
	HOLDS(far_tensor_bytes(far_var_tensor(a)) == far_tensor_bytes(far_var_tensor(b)));
	HOLDS(!memcmp(far_var_tensor(a)->data, far_var_tensor(b)->data, far_tensor_bytes(far_var_tensor(a))));
}

static void forward_sync(const char *to)
{
	struct far_rref *m = module_on(to);
	struct far_context *c = begin();
	struct far_var *x = ramp(4, 2, 0.2);
	same(far_remote_module_forward(m, c, tape, x, 0), expected(x));
	same(far_remote_module_forward(m, NULL, tape, x, 0), expected(x)); /* without a gradient */
	far_context_end(c);
	far_rref_free(m);
}

TRAIN(N1, forward_sync)
{
	forward_sync(peer(1));
}

TRAIN(N1, forward_sync_script)
{
	forward_sync(peer(0));
}

static void forward_async(const char *to)
{
	enum { N = 10 };
	struct far_rref *m = module_on(to);
	struct far_context *c = begin();
	struct far_future *f[N];
	struct far_var *x = ramp(4, 2, 0.2);
	for (int i = 0; i < N; i++)
		OK(far_remote_module_forward_async(m, c, x, 0, &f[i], &err));
	for (int i = 0; i < N; i++) {
		struct far_val v = TAKE(f[i]);
		same(far_tape_recv(tape, c, &v), expected(x));
		far_val_fini(&v);
	}
	far_context_end(c);
	far_rref_free(m);
}

TRAIN(N1, forward_async)
{
	forward_async(peer(1));
}

TRAIN(N1, forward_async_script)
{
	forward_async(peer(2));
}

/* Constructors take arguments by position, keyword and default, as every function. */
TRAIN(N1, forward_with_kwargs)
{
	struct far_rref *m = NULL;
	struct far_context *c = begin();
	struct far_var *x = ramp(4, 2, 0.2);
	OK(far_remote_module_new(train, peer(1), "t::linear", FAR_ARGS(2, FAR_KW("seed", 1), FAR_KW("outputs", 3)), 0,
				 &m, &err));
	OK(far_remote_module_train(m, false, 0, &err));
	struct far_val v = far_context_send(c, x, &err), out = {0};
	v = FAR_KW("x", v);
	OK(far_rref_rpc_sync(m, "forward", &v, 1, NULL, &out, &err));
	same(far_tape_recv(tape, c, &out), expected(x));
	far_val_fini(&out);
	far_context_end(c);
	far_rref_free(m);
}

TRAIN(N1, bad_module)
{
	struct far_rref *m = NULL;
	FAILS(FAR_INVALID, far_remote_module_new(train, peer(1), "t::contexts", FAR_NOARGS, 0, &m, &err));
	SAYS("not a far::Module");
	FAILS(FAR_INVALID, far_remote_module_new(train, peer(1), "t::weight", FAR_NOARGS, 0, &m, &err));
	SAYS("far::Parameter");
	FAILS(FAR_INVALID, far_remote_module_new(train, peer(1), "t::linear", FAR_ARGS(0, 3), 0, &m, &err));
	FAILS(FAR_UNKNOWN_WORKER, far_remote_module_new(train, "nobody", "t::linear", FAR_ARGS(2, 3), 0, &m, &err));
	HOLDS(!m);
}

TRAIN(N1, remote_parameters)
{
	struct far_rref *m = module_on(peer(1)), *p[8];
	size_t n = 0;
	OK(far_remote_module_parameters(train, m, 0, p, 8, &n, &err));
	HOLDS(n == 2);
	struct far_val v = {0};
	OK(far_rref_rpc_sync(p[0], "value", FAR_NOARGS, NULL, &v, &err));
	HOLDS(far_val_tensor(&v)->shape[0] == 3 && far_val_tensor(&v)->shape[1] == 2);
	far_val_fini(&v);
	OK(far_rref_rpc_sync(p[1], "value", FAR_NOARGS, NULL, &v, &err));
	HOLDS(far_val_tensor(&v)->ndim == 1 && far_val_tensor(&v)->shape[0] == 3);
	far_val_fini(&v);
	struct far_rref *beyond = REMOTE(peer(1), "far::Parameter", FAR_ARGS(m, 2));
	FAILS(FAR_INVALID, far_rref_rpc_sync(beyond, "value", FAR_NOARGS, NULL, NULL, &err));
	far_rref_free(beyond);
	far_rref_free(p[0]);
	far_rref_free(p[1]);
	far_rref_free(m);
}

TRAIN(N1, get_module_rref)
{
	struct far_rref *m = module_on(peer(1));
	HOLDS(strcmp(far_rref_class(m), "far::Module") == 0 && far_rref_owner(m).worker == peer_rank(1));
	far_rref_free(m);
}

/* Dropout of half the elements: on in training, off after. */
TRAIN(N1, train_eval)
{
	struct far_rref *m = module_on(peer(1));
	struct far_var *x = ramp(64, 2, 0.2), *y;
	size_t zeros = 0;
	OK(far_remote_module_train(m, true, 0, &err));
	y = far_remote_module_forward(m, NULL, tape, x, 0);
	OK(far_tape_status(tape, &err));
	for (size_t i = 0; i < 64 * 3; i++)
		zeros += ((float *)far_var_tensor(y)->data)[i] == 0;
	HOLDS(zeros > 20);
	OK(far_remote_module_train(m, false, 0, &err));
	same(far_remote_module_forward(m, NULL, tape, x, 0), expected(x));
	far_rref_free(m);
}

TRAIN(N1, unsupported_methods)
{
	struct far_rref *m = module_on(peer(1));
	const char *const names[] = {"register_buffer", "add_module", "apply", "cuda", "to", "state_dict", "zero_grad"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		FAILS(FAR_NO_FUNCTION, far_rref_rpc_sync(m, names[i], FAR_NOARGS, NULL, NULL, &err));
		SAYS(names[i]);
	}
	far_rref_free(m);
}

/* ---- N2: the reference is the handle ---- */

TRAIN(N2, send_remote_module_over_the_wire)
{
	struct far_rref *m = module_on(peer(1));
	struct far_context *c = begin();
	struct far_var *x = ramp(4, 2, 0.2);
	/* Another worker calls the module through the reference that it received. */
	struct far_rref *input = REMOTE(peer(2), "t::identity", (struct far_val[]){sent(c, x)}, 1);
	struct far_rref *y = NULL;
	OK(far_remote_module_forward_rref(m, input, 0, &y, &err));
	same(FETCH_VAR(c, y), expected(x));
	struct far_val back = CALL(peer(2), "far::identity", FAR_ARGS(m));
	HOLDS(far_rref_same(back.u.rref, m));
	same(far_remote_module_forward(back.u.rref, c, tape, x, 0), expected(x));
	far_val_fini(&back);
	far_rref_free(input);
	far_rref_free(y);
	far_rref_free(m);
	far_context_end(c);
}

TRAIN(N2, create_remote_module_from_module_rref)
{
	struct far_rref *m = module_on(peer(1)), *again = far_rref_ref(m);
	struct far_var *x = ramp(4, 2, 0.2);
	far_rref_free(m);
	same(far_remote_module_forward(again, NULL, tape, x, 0), expected(x));
	far_rref_free(again);
}

/* A handle is a reference, which goes into calls of its own agent alone. */
static void not_elsewhere(const char *to)
{
	struct far_opts opts = {.init_method = conform_own_url(HERE)};
	struct far_agent *lone;
	struct far_rref *m = module_on(to);
	OK(far_init_rpc("lone", 0, 1, &opts, &lone, &err));
	FAILS(FAR_INVALID, far_rpc_sync(lone, "lone", "far::identity", FAR_ARGS(m), NULL, NULL, &err));
	SAYS("another agent");
	OK(far_shutdown(lone, FAR_FOREVER, &err));
	far_rref_free(m);
}

TRAIN(N2, remote_module_py_pickle_not_supported)
{
	not_elsewhere(peer(1));
}

TRAIN(N2, remote_module_py_pickle_not_supported_script)
{
	not_elsewhere(peer(0));
}

/* ---- N3 ---- */

/* Modules on three workers as one, trained: every parameter has its gradient, and the loss falls. */
TRAIN(N3, backward_no_ddp)
{
	struct far_rref *m[3], *p[6];
	struct far_dist_optimizer *o = NULL;
	struct far_optimizer_opts opts = options(FAR_OPTIMIZER_ADAM);
	struct far_var *x = ramp(8, 2, 0.2), *target = leaf_of(8, 2, 0.25, false);
	const int sizes[4] = {2, 5, 4, 2};
	double first = 0, last = 0;
	for (int i = 0; i < 3; i++) {
		size_t n;
		OK(far_remote_module_new(train, peer(1 + i), "t::linear", FAR_ARGS(sizes[i], sizes[i + 1], i), 0, &m[i],
					 &err));
		OK(far_remote_module_train(m[i], false, 0, &err));
		OK(far_remote_module_parameters(train, m[i], 0, p + 2 * i, 2, &n, &err));
	}
	OK(far_dist_optimizer_new(train, &opts, p, 6, 0, &o, &err));
	for (int i = 0; i < 30; i++) {
		struct far_context *c = begin();
		struct far_var *y = far_remote_module_chain(m, 3, c, tape, x, 0);
		struct far_var *loss = far_tape_mse(tape, y, target, FAR_OP_REDUCE_MEAN);
		OK(far_tape_status(tape, &err));
		last = far_var_scalar(loss);
		first = i ? first : last;
		BACKWARD(c, loss);
		OK(far_dist_optimizer_step(o, c, 0, &err));
		far_context_end(c);
		far_tape_reset(tape);
	}
	HOLDS(last < first / 4);
	far_dist_optimizer_free(o);
	for (int i = 0; i < 6; i++)
		far_rref_free(p[i]);
	for (int i = 0; i < 3; i++)
		far_rref_free(m[i]);
}
