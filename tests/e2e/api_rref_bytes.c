/* SPDX-License-Identifier: BSD-3-Clause */
/** References that travel as bytes: to the owner, to a third worker, more than once, revoked, damaged. No leak is left.
 * Main thread of each process; handlers on shard threads. */
#include "check.h"

static struct far_agent *agent;
static struct far_err err;

/* Reads a reference out of bytes, and fetches its value: on a fiber, and then in a callback. */
static enum far_status read_value(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_rref *r;
	struct far_val v;
	struct far_err e;
	enum far_status status = far_rref_deserialize(far_req_agent(req), args[0].u.s.data, args[0].u.s.len, 0, &r, &e);
	if (status)
		return far_fail(req, status, 0, "%s", e.text);
	CHECK_STATUS(far_rref_to_here(r, 0, &v, &e), FAR_OK, &e);
	far_rref_free(r);
	status = far_return(req, &v);
	far_val_fini(&v);
	return status;
}

/* Answers with the reference itself. */
static enum far_status read_later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_future *f;
	struct far_err e;
	enum far_status status =
		far_rref_deserialize_async(far_req_agent(req), args[0].u.s.data, args[0].u.s.len, 0, &f, &e);
	if (status)
		return far_fail(req, status, 0, "%s", e.text);
	status = far_return_future(req, f);
	far_future_free(f);
	return status;
}

static const struct far_function table[] = {
	{"t::read(bytes b) -> Any", FAR_KIND_FIBER, read_value, NULL, 0},
	{"t::later(bytes b) -> rref", FAR_KIND_INLINE, read_later, NULL, 0},
};

/* The bytes of a reference to a number on worker `owner`, whose handle is freed. */
static struct far_val serialized(const char *owner, int number, uint8_t bytes[FAR_RREF_BYTES])
{
	struct far_rref *r;
	CHECK_STATUS(far_remote(agent, owner, "far::identity", FAR_ARGS(number), NULL, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_serialize(r, bytes, &err), FAR_OK, &err);
	far_rref_free(r);
	return far_bytes(bytes, FAR_RREF_BYTES);
}

static void journeys(void)
{
	static const char *const workers[] = {"worker0", "worker1", "worker2"};
	uint8_t bytes[FAR_RREF_BYTES];
	struct far_val b, v, x;
	for (int owner = 0; owner < 3; owner++) {
		for (int to = 0; to < 3; to++) {
			b = serialized(workers[owner], 10 * owner + to, bytes);
			CHECK_STATUS(far_rref_flush(agent, 0, &err), FAR_OK, &err); /* nothing else holds the value */
			CHECK_STATUS(far_rpc_sync(agent, workers[to], "t::read", &b, 1, NULL, &v, &err), FAR_OK, &err);
			CHECK(v.type == FAR_TYPE_INT && v.u.i == 10 * owner + to);
			CHECK_STATUS(far_rpc_sync(agent, workers[to], "t::read", &b, 1, NULL, &v, &err), FAR_GONE,
				     &err);
			b = serialized(workers[owner], 7, bytes);
			CHECK_STATUS(far_rpc_sync(agent, workers[to], "t::later", &b, 1, NULL, &v, &err), FAR_OK, &err);
			CHECK(v.type == FAR_TYPE_RREF && far_rref_owner(v.u.rref).worker == owner);
			CHECK_STATUS(far_rref_to_here(v.u.rref, 0, &x, &err), FAR_OK, &err);
			CHECK(x.u.i == 7);
			far_val_fini(&v);
		}
	}
}

/* Both bytes of one handle count. */
static void twice(void)
{
	uint8_t a[FAR_RREF_BYTES], b[FAR_RREF_BYTES];
	struct far_rref *r, *x, *y;
	struct far_val v;
	CHECK_STATUS(far_remote(agent, "worker1", "far::identity", FAR_ARGS(5), NULL, &r, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_serialize(r, a, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_serialize(r, b, &err), FAR_OK, &err);
	CHECK(memcmp(a, b, sizeof a) != 0);
	far_rref_free(r);
	CHECK_STATUS(far_rref_deserialize(agent, a, sizeof a, 0, &x, &err), FAR_OK, &err);
	far_rref_free(x);
	CHECK_STATUS(far_rref_flush(agent, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_deserialize(agent, b, sizeof b, 0, &y, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_to_here(y, 0, &v, &err), FAR_OK, &err);
	CHECK(v.u.i == 5);
	far_rref_free(y);
}

static void errors(void)
{
	uint8_t bytes[FAR_RREF_BYTES];
	struct far_rref *r;
	struct far_val b = serialized("worker1", 1, bytes);
	CHECK_STATUS(far_rref_serialize(NULL, bytes, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rref_deserialize(agent, bytes, sizeof bytes, 0, NULL, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rref_deserialize(agent, bytes, sizeof bytes - 1, 0, &r, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rref_revoke(agent, bytes, sizeof bytes, &err), FAR_OK, &err);
	CHECK_STATUS(far_rref_revoke(agent, bytes, sizeof bytes, &err), FAR_GONE, &err);
	CHECK_STATUS(far_rref_deserialize(agent, bytes, sizeof bytes, 0, &r, &err), FAR_GONE, &err);
	CHECK_TEXT(&err, "claimed or revoked");
	CHECK_STATUS(far_rpc_sync(agent, "worker2", "t::read", &b, 1, NULL, NULL, &err), FAR_GONE, &err);
	bytes[8] ^= 1; /* another incarnation */
	CHECK_STATUS(far_rref_deserialize(agent, bytes, sizeof bytes, 0, &r, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker0");
	bytes[8] ^= 1;
	bytes[4] = 200; /* no such rank */
	CHECK_STATUS(far_rref_deserialize(agent, bytes, sizeof bytes, 0, &r, &err), FAR_INVALID, &err);
	bytes[4] = 0;
	bytes[0] ^= 1;
	CHECK_STATUS(far_rref_deserialize(agent, bytes, sizeof bytes, 0, &r, &err), FAR_INVALID, &err);
}

int main(void)
{
	const struct far_opts opts = {.functions = table, .functions_n = 2, .leaks = FAR_LEAKS_FAIL};
	agent = check_join(&opts);
	if (check_rank() == 0) {
		journeys();
		twice();
		errors();
	} else {
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	}
	check_leave(agent);
	return 0;
}
