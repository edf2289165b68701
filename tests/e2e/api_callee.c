/* SPDX-License-Identifier: BSD-3-Clause */
/** Handles of workers and functions: what they call, while others hold the shard and while the thread does, what misuse
 * gives, and what they are worth once the worker has died and another incarnation has come. */
#include "api_spawn.h"
#include "handlers.h"

static struct far_agent *agent;
static struct far_err err;
static int runs;

static enum far_status count(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = far_int(++runs);
	return far_return(req, &out);
}

static enum far_status which(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = far_str(user);
	return far_return(req, &out);
}

static char either[] = "either", tensors[] = "tensor";
static enum far_status make(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	static int object;
	return far_return_object(req, &object);
}

static enum far_status bump(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = far_int(++*(int *)object);
	return far_return(req, &out);
}

static const struct far_function constructor = {"t::Cell() -> t::Cell", FAR_KIND_INLINE, make, NULL};
static const struct far_method bumps = {"bump(Tensor a) -> int", FAR_KIND_INLINE, bump, NULL};
static const struct far_class cell_class = {
	.name = "t::Cell", .constructors = &constructor, .constructors_n = 1, .methods = &bumps, .methods_n = 1};
static const struct far_function table[] = {
	{"t::count(Tensor a) -> int", FAR_KIND_INLINE, count, NULL},
	{"t::die() -> none", FAR_KIND_INLINE, handler_die, NULL},
	{"t::which(Tensor|int a) -> str", FAR_KIND_INLINE, which, either},
	{"t::which(Tensor a) -> str", FAR_KIND_INLINE, which, tensors},
};

static struct far_callee *find(const struct far_worker *w, const char *function)
{
	struct far_callee *c;
	CHECK_STATUS(far_callee_find(w, function, &c, &err), FAR_OK, &err);
	return c;
}

static void misuse(const struct far_worker *w, struct far_callee *count_there)
{
	struct far_worker none = {0}, other = *w;
	struct far_callee *c;
	struct far_val v;
	CHECK_STATUS(far_worker_find(NULL, "worker1", &other, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_worker_find(agent, "worker1", NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_worker_find(agent, NULL, &other, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK_STATUS(far_worker_find(agent, "worker9", &other, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK_TEXT(&err, "worker9");
	CHECK_STATUS(far_callee_find(NULL, "t::count", &c, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_callee_find(&none, "t::count", &c, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_callee_find(w, "t::count", NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_callee_find(w, NULL, &c, &err), FAR_NO_FUNCTION, &err);
	CHECK_STATUS(far_callee_find(w, "t::none", &c, &err), FAR_NO_FUNCTION, &err);
	CHECK_TEXT(&err, "t::none");
	other.to.shard = 1;
	CHECK_STATUS(far_callee_find(&other, "t::count", &c, &err), FAR_INVALID, &err);
	other.to = (struct far_to){2, -1};
	CHECK(far_callee_find(&other, "t::count", &c, &err) != FAR_OK);
	struct far_future *f;
	CHECK_STATUS(far_callee_rpc_sync(NULL, FAR_NOARGS, NULL, &v, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_callee_rpc_async(NULL, FAR_NOARGS, NULL, &f, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_callee_rpc_async(count_there, FAR_NOARGS, NULL, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_callee_rpc_sync(count_there, FAR_NOARGS, NULL, &v, &err), FAR_BAD_ARGS, &err);
	CHECK_STATUS(far_callee_rpc_sync(count_there, FAR_ARGS(1), NULL, &v, &err), FAR_BAD_ARGS, &err);
	far_callee_free(NULL);
}

/* Calls it, both ways, with arguments that fit a line and others. */
static void call(struct far_callee *c, int *expected)
{
	float data[500] = {1, 2};
	struct far_tensor small = far_tensor_1d(FAR_F32, data, 2), large = far_tensor_1d(FAR_F32, data, 500);
	struct far_call_opts opts = {.timeout_ns = 20 * FAR_SEC};
	struct far_val v;
	struct far_future *f;
	for (int i = 0; i < 6; i++) {
		const struct far_tensor *t = i % 3 == 2 ? &large : &small;
		const struct far_call_opts *o = i == 4 ? &opts : NULL;
		CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(t), o, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == ++*expected);
		CHECK_STATUS(far_callee_rpc_async(c, FAR_ARGS(t), o, &f, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_wait(f, 20 * FAR_SEC, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == ++*expected);
		far_future_free(f);
	}
}

static void call_holding(struct far_callee *c, int *expected)
{
	call(c, expected);
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	call(c, expected);
	far_shard_release(agent);
}

static void chosen(struct far_callee *c, const char *expected)
{
	float data[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2);
	struct far_val v;
	for (int i = 0; i < 3; i++) {
		CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(&t), NULL, &v, &err), FAR_OK, &err);
		CHECK(strcmp(v.u.s.data, expected) == 0);
		far_val_fini(&v);
	}
}

/* An overload that is registered later takes part. */
static void overloads(const struct far_worker *w)
{
	struct far_callee *c = find(w, "t::which");
	chosen(c, either);
	CHECK_STATUS(far_register_function(agent, &table[3], &err), FAR_OK, &err);
	chosen(c, tensors);
	far_callee_free(c);
}

static void refused(struct far_callee *c, const char *text)
{
	float data[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2);
	struct far_call_opts opts = {.timeout_ns = 20 * FAR_SEC};
	struct far_future *f;
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(&t), i ? &opts : NULL, NULL, &err), FAR_PEER_LOST, &err);
		CHECK(err.executed == FAR_EXECUTED_NO);
		CHECK_TEXT(&err, text);
		CHECK_STATUS(far_callee_rpc_async(c, FAR_ARGS(&t), i ? &opts : NULL, &f, &err), FAR_PEER_LOST, &err);
		CHECK_TEXT(&err, text);
	}
}

static void bump_there(struct far_rref *r, int expected)
{
	float data[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2);
	struct far_val v;
	CHECK_STATUS(far_rref_rpc_sync(r, "bump", FAR_ARGS(&t), NULL, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == expected);
}

static struct far_rref *object_there(void)
{
	struct far_rref *r;
	CHECK_STATUS(far_remote(agent, "worker1", "t::Cell", FAR_NOARGS, NULL, &r, &err), FAR_OK, &err);
	for (int i = 1; i <= 3; i++)
		bump_there(r, i);
	return r;
}

/* An object that was lost with its owner. */
static void lost(struct far_rref *r)
{
	float data[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2);
	struct far_future *f;
	CHECK_STATUS(far_rref_rpc_sync(r, "bump", FAR_ARGS(&t), NULL, NULL, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "former incarnation");
	CHECK_STATUS(far_rref_rpc_async(r, "bump", FAR_ARGS(&t), NULL, &f, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "former incarnation");
}

static int caller(void)
{
	struct far_opts opts = {.functions = table, .functions_n = 3, .classes = &cell_class, .classes_n = 1};
	struct far_worker w, again;
	struct far_worker_info info;
	float data[2] = {1, 2};
	struct far_tensor t = far_tensor_1d(FAR_F32, data, 2);
	int expected = 0;
	agent = check_join(&opts);
	CHECK_STATUS(far_worker_find(agent, "worker1", &w, &err), FAR_OK, &err);
	CHECK(w.agent == agent && w.to.worker == 1 && w.to.shard == -1);
	struct far_callee *c = find(&w, "t::count");
	misuse(&w, c);
	call_holding(c, &expected);
	overloads(&w);
	struct far_rref *was = object_there();
	/* One for a worker that has died. */
	CHECK_STATUS(far_rpc_sync_to(agent, w.to, "t::die", FAR_NOARGS, NULL, NULL, &err), FAR_PEER_LOST, &err);
	CHECK(err.executed == FAR_EXECUTED_MAYBE);
	CHECK_STATUS(far_callee_rpc_sync(c, FAR_ARGS(&t), NULL, NULL, &err), FAR_PEER_LOST, &err);
	do {
		CHECK_STATUS(far_worker_by_name(agent, "worker1", &info, &err), FAR_OK, &err);
		usleep(1000);
	} while (!info.alive || info.incarnation == w.incarnation);
	/* One for a worker that was replaced, while the fast path to the other incarnation is open. */
	CHECK_STATUS(far_worker_find(agent, "worker1", &again, &err), FAR_OK, &err);
	CHECK(again.incarnation == info.incarnation);
	struct far_callee *fresh = find(&again, "t::count"), *none;
	expected = 0;
	call_holding(fresh, &expected);
	refused(c, "another incarnation");
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	refused(c, "another incarnation");
	far_shard_release(agent);
	CHECK_STATUS(far_callee_find(&w, "t::count", &none, &err), FAR_PEER_LOST, &err);
	call_holding(fresh, &expected); /* the others have run nothing there */
	/* An object of the former incarnation, while the fast path to one of the other is open. */
	struct far_rref *is = object_there();
	lost(was);
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	bump_there(is, 4);
	lost(was);
	bump_there(is, 5); /* nothing of the others has run there */
	far_shard_release(agent);
	far_rref_free(was);
	far_rref_free(is);
	far_callee_free(c);
	check_leave(agent);
	far_callee_free(fresh);
	return 0;
}

static int worker(int rank)
{
	struct far_opts opts = {.functions = table, .functions_n = 4, .classes = &cell_class, .classes_n = 1};
	if (rank == 0)
		return caller();
	agent = check_join(&opts);
	check_leave(agent);
	return 0;
}

int main(void)
{
	struct spawned s = spawn(2, worker);
	int status;
	CHECK(waitpid(s.pids[1], &status, 0) == s.pids[1] && WIFSIGNALED(status));
	s.pids[1] = spawn_one(&s, 1, -1, worker);
	return spawn_wait(&s, -1);
}
