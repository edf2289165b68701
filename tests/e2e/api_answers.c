/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Answers whose lines name a call of another session, or of an earlier use of its slot, as a peer may send them: they
 * are dropped, and the calls get their own. A handler's second answer is refused. Two agents in one process, stepped by
 * turns. Main thread; handlers on shard threads.
 */
#include "api_together.h"

#include "agent/agent.h"
#include "core/fast.h"
#include "core/loop.h"

#define OWN 1 /* in place of an id: of the call itself */

static struct together ends[2];
static struct far_err err;
static const float data[] = {1, 2}, forged[] = {-1, -2};

FAR_HANDLER(first)
{
	return far_return(req, &args[0]);
}

static const struct far_function function = {"t::first(Tensor a, Tensor b) -> Tensor", FAR_KIND_INLINE, first, NULL, 0};

static void twice(struct far_req *req, const void *bytes, size_t len, void *user)
{
	CHECK(far_reply(req, bytes, len) == FAR_OK);
	CHECK(far_reply(req, bytes, len) == FAR_INVALID);
}

static const struct far_msg_handler message = {1, FAR_KIND_INLINE, twice, NULL};

static void count(enum far_status status, const void *bytes, size_t len, const struct far_err *e, void *user)
{
	CHECK(status == FAR_OK && len == sizeof data && memcmp(bytes, data, len) == 0);
	++*(int *)user;
}

static void answer_twice(void)
{
	struct shard *s = ends[0].agent->shards[0];
	uint64_t before = s->counters.packets_dropped;
	int answers = 0;
	CHECK_STATUS(
		far_msg_send(ends[0].agent, (struct far_to){1, 0}, 1, data, sizeof data, NULL, count, &answers, &err),
		FAR_OK, &err);
	for (int i = 0, last = 8; last; i++, last -= answers > 0)
		far_shard_poll(ends[i % 2].agent);
	CHECK(answers == 1 && s->counters.packets_dropped == before);
}

/* Worker 1 answers worker 0's call of this id. */
static void forge(uint64_t id)
{
	struct shard *peer = ends[1].agent->shards[0];
	uint8_t body[FAR_LINE_PAYLOAD] = {0};
	size_t at, len;
	line_put_one(body, FAR_F32, 2, &at, &len);
	memcpy(body + at, forged, sizeof forged);
	fast_reply_to(peer, &peer->sessions[session_index(peer, 0, 0)], id, body, len);
	shard_flush(peer);
}

/* Calls a worker; before its answer worker 1 sends one for the call `id`, unless that is 0. Returns the call's id. */
static uint64_t call(int worker, uint64_t id)
{
	struct shard *s = ends[0].agent->shards[0];
	struct far_tensor a = far_tensor_1d(FAR_F32, data, 2);
	struct far_future *f;
	struct far_val v;
	CHECK_STATUS(far_rpc_async_to(ends[0].agent, (struct far_to){worker, -1}, "t::first", FAR_ARGS(&a, &a), NULL,
				      &f, &err),
		     FAR_OK, &err);
	uint64_t before = s->counters.packets_dropped, own = (uint64_t)f->call.gen << 32 | (f->call.slot - 1);
	if (id)
		forge(id == OWN ? own : id);
	enum far_status status = FAR_PENDING;
	for (int i = 0; status == FAR_PENDING; i++) { /* the hang guard bounds it */
		far_shard_poll(ends[i % 2].agent);
		status = far_future_value(f, &v, &err);
	}
	CHECK_STATUS(status, FAR_OK, &err);
	CHECK(memcmp(v.u.t.data, data, sizeof data) == 0);
	CHECK(s->counters.packets_dropped == before + (id != 0));
	far_val_fini(&v);
	far_future_free(f);
	return own;
}

int main(void)
{
	together_begin(
		ends, 2,
		&(struct far_opts){.functions = &function, .functions_n = 1, .messages = &message, .messages_n = 1});
	for (int i = 0; i < 2; i++)
		CHECK_STATUS(far_shard_acquire(ends[1 - i].agent, 0, &err), FAR_OK, &err);
	for (int worker = 0; worker < 2; worker++) /* the first call of a function takes the general code */
		call(worker, 0);
	call(0, OWN);
	uint64_t earlier = call(1, 0);
	CHECK((uint32_t)call(1, earlier) == (uint32_t)earlier);
	answer_twice();
	for (int i = 0; i < 2; i++)
		far_shard_release(ends[1 - i].agent);
	together_all(ends, 2, together_leave);
	return 0;
}
