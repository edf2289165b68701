/* SPDX-License-Identifier: BSD-3-Clause */
/** Fan-outs over six workers: order, scatter, k of n, partial results, errors, back-pressure, where they may start.
 * Main thread of each process. */
#include "fanout_workers.h"

static void refused(const char *function, size_t n, const struct far_fanout_opts *opts, enum far_status want,
		    const char *text)
{
	struct far_future *f = NULL;
	CHECK_STATUS(far_rpc_fanout(agent, function, FAR_ARGS(0), targets, n, opts, results, &f, &err), want, &err);
	CHECK_TEXT(&err, text);
	CHECK(f == NULL);
}

/* Rows of different lengths by different arguments, in the order of the targets; nothing is written beside them. */
static void order(size_t n)
{
	static float rows[MANY * 5 + 1];
	static size_t slices[MANY];
	static struct far_val args[MANY][2];
	size_t floats = 0;
	struct far_future *f;
	to_others(n);
	for (size_t i = 0; i < n; i++) {
		size_t len = 1 + i % 5;
		args[i][0] = far_int((int64_t)i);
		args[i][1] = far_int((int64_t)len);
		targets[i].args = args[i];
		targets[i].args_n = 2;
		slices[i] = len * sizeof(float);
		floats += len;
	}
	memset(rows, 0xa5, sizeof rows);
	struct far_fanout_opts opts = {.recv_buf = rows, .slices = slices, .dtype = FAR_F32};
	CHECK_STATUS(far_rpc_fanout(agent, "t::row", FAR_NOARGS, targets, n, &opts, results, &f, &err), FAR_OK, &err);
	expect(f, FAR_OK, (int64_t)n);
	const float *at = rows;
	for (size_t i = 0; i < n; i++) {
		const struct far_target_result *r = &results[i];
		CHECK(r->status == FAR_OK && r->executed == FAR_EXECUTED_YES && !r->hedged);
		CHECK(r->from.worker == targets[i].to.worker && r->len == slices[i]);
		CHECK(r->value.type == FAR_TYPE_TENSOR && r->value.u.t.data == at && !r->value.own);
		for (size_t j = 0; j < slices[i] / sizeof(float); j++)
			CHECK(*at++ == (float)(targets[i].to.worker * 1000 + (int)i));
	}
	CHECK(at == rows + floats && *(const unsigned char *)at == 0xa5);
}

static void values(void)
{
	struct far_future *f;
	float want[6] = {1, 2, 3, 4, 5, 6}, got[6] = {0}, bad[6] = {0};
	struct far_tensor t = far_tensor_2d(FAR_F32, want, 2, 3), out = far_tensor_2d(FAR_F32, got, 2, 3),
			  flat = far_tensor_1d(FAR_F32, bad, 6), ints = far_tensor_2d(FAR_I32, bad, 2, 3);
	char text[5], short_text[4] = "abc";
	struct far_val args[] = {far_tensor_val(&t), far_tensor_val(&t), far_tensor_val(&t),  far_str("four"),
				 far_str("four"),    far_float(0.5),     far_bytes("xyz", 3), far_none()};
	double number = 0;
	to_others(8);
	for (int i = 0; i < 8; i++) {
		targets[i].args = &args[i];
		targets[i].args_n = 1;
	}
	targets[0].out = &out;
	targets[1].out = &flat;
	targets[2].out = &ints;
	targets[3].recv_buf = text;
	targets[3].cap = sizeof text;
	targets[4].recv_buf = short_text;
	targets[4].cap = sizeof short_text;
	targets[5].recv_buf = &number;
	targets[5].cap = sizeof number;
	struct far_fanout_opts opts = {.errors = FAR_ERRORS_COLLECT};
	CHECK_STATUS(far_rpc_fanout(agent, "t::same", FAR_NOARGS, targets, 8, &opts, results, &f, &err), FAR_OK, &err);
	enum far_status first = far_future_wait(f, 0, NULL, &err);
	CHECK(first == FAR_PROTOCOL || first == FAR_TOO_LARGE);
	far_future_free(f);
	CHECK_TEXT(&err, "3 of 8 targets failed");
	CHECK(results[0].status == FAR_OK && memcmp(got, want, sizeof got) == 0);
	CHECK(results[1].status == FAR_PROTOCOL && results[2].status == FAR_PROTOCOL && bad[0] == 0);
	CHECK(results[3].status == FAR_OK && strcmp(text, "four") == 0 && results[3].len == 4);
	CHECK(results[4].status == FAR_TOO_LARGE && results[4].len == 5 && strcmp(short_text, "abc") == 0);
	CHECK(results[4].executed == FAR_EXECUTED_YES && strstr(results[4].text, "slice"));
	CHECK(results[5].status == FAR_OK && number == 0.5 && results[5].value.u.f == 0.5);
	/* Without a slice a value has memory of its own. */
	CHECK(results[6].status == FAR_OK && results[6].value.own && memcmp(results[6].value.u.s.data, "xyz", 3) == 0);
	CHECK(results[7].status == FAR_OK && results[7].value.type == FAR_TYPE_NONE);
	for (int i = 0; i < 8; i++)
		far_val_fini(&results[i].value);
}

/* What holds other values has memory of its own, and no place in a slice. */
static void trees(void)
{
	struct far_future *f;
	char slice[64] = "unchanged";
	struct far_val items[2] = {far_int(7), far_str("seven")}, arg = far_list(items, 2);
	struct far_fanout_opts opts = {.errors = FAR_ERRORS_COLLECT};
	to_others(2);
	for (int i = 0; i < 2; i++) {
		targets[i].args = &arg;
		targets[i].args_n = 1;
	}
	targets[1].recv_buf = slice;
	targets[1].cap = sizeof slice;
	CHECK_STATUS(far_rpc_fanout(agent, "t::same", FAR_NOARGS, targets, 2, &opts, results, &f, &err), FAR_OK, &err);
	expect(f, FAR_UNSUPPORTED, 0);
	CHECK(results[1].status == FAR_UNSUPPORTED && strcmp(slice, "unchanged") == 0);
	const struct far_val *v = &results[0].value;
	CHECK(results[0].status == FAR_OK && v->type == FAR_TYPE_LIST && v->u.list.n == 2);
	CHECK(v->u.list.items[0].u.i == 7 && strcmp(v->u.list.items[1].u.s.data, "seven") == 0);
	far_val_fini(&results[0].value);
}

static void message_replies(void)
{
	struct far_future *f;
	char replies[3][8], big[100000];
	static char big_back[sizeof big + 1];
	memset(replies, '-', sizeof replies);
	memset(big, 'b', sizeof big);
	to_others(4);
	targets[1].data = "longer than it may be";
	targets[1].len = 21;
	targets[2].data = "";
	targets[3].data = big;
	targets[3].len = sizeof big;
	for (int i = 0; i < 3; i++) {
		targets[i].recv_buf = replies[i];
		targets[i].cap = 7;
	}
	targets[3].recv_buf = big_back;
	targets[3].cap = sizeof big;
	struct far_fanout_opts opts = {.errors = FAR_ERRORS_COLLECT};
	CHECK_STATUS(far_msg_fanout(agent, ECHO, "common", 7, targets, 4, &opts, results, &f, &err), FAR_OK, &err);
	expect(f, FAR_TOO_LARGE, 0);
	CHECK(results[0].status == FAR_OK && results[0].len == 7 && strcmp(replies[0], "common") == 0);
	CHECK(replies[0][7] == '-');
	CHECK(results[1].status == FAR_TOO_LARGE && results[1].len == 21 && memcmp(replies[1], "--------", 8) == 0);
	CHECK(results[2].status == FAR_OK && results[2].len == 0 && replies[2][0] == '-');
	CHECK(results[3].status == FAR_OK && memcmp(big_back, big, sizeof big) == 0 && big_back[sizeof big] == 0);
	/* Nowhere to put a reply. */
	to_others(1);
	CHECK_STATUS(far_msg_fanout(agent, ECHO, "x", 1, targets, 1, NULL, results, &f, &err), FAR_OK, &err);
	expect(f, FAR_TOO_LARGE, 0);
	CHECK_STATUS(far_msg_fanout(agent, 999, "x", 1, targets, 1, NULL, NULL, &f, &err), FAR_OK, &err);
	expect(f, FAR_NO_FUNCTION, 0);
	CHECK(err.executed == FAR_EXECUTED_NO && strcmp(err.origin, "worker1") == 0);
}

static void errors(void)
{
	struct far_fanout_opts opts = {.k = 3};
	/* Two of five fail, three are enough. */
	to_others(5);
	expect(start("t::fail", 1 << 2 | 1 << 4, 5, &opts), FAR_OK, 3);
	/* One failure too many: the class and code of the first error, and counts. Either error may be the first. */
	opts.k = 4;
	opts.errors = FAR_ERRORS_COLLECT;
	expect(start("t::fail", 1 << 2 | 1 << 4, 5, &opts), FAR_REMOTE, 0);
	CHECK_TEXT(&err, "2 of 5 targets failed, 3 succeeded, 4 had to");
	CHECK((err.code == 42 && strcmp(err.origin, "worker2") == 0) ||
	      (err.code == 44 && strcmp(err.origin, "worker4") == 0));
	CHECK(results[1].status == FAR_REMOTE && results[1].code == 42 && results[1].executed == FAR_EXECUTED_YES);
	CHECK(strcmp(results[3].text, "worker 4 fails on request") == 0);
	/* An answer that never comes does not keep a failed one waiting, but with COLLECT it would. */
	targets[4].to.worker = 99;
	for (int fast = 0; fast < 2; fast++) {
		opts = (struct far_fanout_opts){.k = fast ? 1 : 5, .timeout_ns = FAR_FOREVER};
		opts.errors = fast ? FAR_ERRORS_FAIL_FAST : FAR_ERRORS_COUNT;
		expect(start("t::hold", 0xff, 5, &opts), FAR_UNKNOWN_WORKER, 0);
		CHECK(results[4].status == FAR_UNKNOWN_WORKER && results[4].executed == FAR_EXECUTED_NO);
		CHECK(strstr(results[4].text, "99"));
		CHECK(results[0].status == FAR_CANCELLED && results[0].executed == FAR_EXECUTED_MAYBE);
	}
	/* Arguments of one target that do not fit are that target's. */
	struct far_val wrong = far_str("no number");
	to_others(5);
	targets[2].args = &wrong;
	targets[2].args_n = 1;
	opts = (struct far_fanout_opts){.k = 4};
	expect(start("t::fail", 0, 5, &opts), FAR_OK, 4);
	CHECK(results[2].status == FAR_BAD_ARGS && results[2].executed == FAR_EXECUTED_NO);
	for (int w = 1; w < WORKERS; w++)
		query(w, "t::release");
}

static void refusals(void)
{
	struct far_fanout_opts opts = {.k = 3};
	int buffer;
	to_others(2);
	refused("t::fail", 2, &opts, FAR_INVALID, "k is 3");
	refused("t::fail", FAR_FANOUT_MAX + 1, NULL, FAR_INVALID, "4097 targets");
	refused("t::none", 2, NULL, FAR_NO_FUNCTION, "t::none");
	refused("t::rank", 2, NULL, FAR_BAD_ARGS, "t::rank");
	opts = (struct far_fanout_opts){.slice_bytes = 4};
	refused("t::fail", 2, &opts, FAR_INVALID, "slices need");
	opts = (struct far_fanout_opts){.recv_buf = &buffer, .slice_bytes = SIZE_MAX};
	refused("t::fail", 2, &opts, FAR_INVALID, "more than any buffer");
	opts.slice_bytes = 2;
	targets[1].recv_buf = &buffer;
	targets[1].cap = 2;
	refused("t::fail", 2, &opts, FAR_INVALID, "target 1");
	targets[1].recv_buf = NULL;
	refused("t::fail", 2, NULL, FAR_INVALID, "`cap`");
	targets[1].cap = 0;
	targets[1].data = "x";
	refused("t::fail", 2, NULL, FAR_INVALID, "message");
	targets[1].data = NULL;
	opts = (struct far_fanout_opts){.hedge_after_ns = FAR_MS};
	refused("t::once", 2, &opts, FAR_INVALID, "t::once");
	CHECK_TEXT(&err, "FAR_IDEMPOTENT");
	opts = (struct far_fanout_opts){.errors = (enum far_fanout_errors)9};
	refused("t::fail", 2, &opts, FAR_INVALID, "errors");
	struct far_future *f;
	opts = (struct far_fanout_opts){.hedge_after_ns = FAR_MS};
	CHECK(far_msg_fanout(agent, ECHO, "x", 1, targets, 2, &opts, NULL, &f, &err) == FAR_INVALID);
	CHECK_TEXT(&err, "message 1");
	CHECK(far_msg_fanout(agent, ECHO, "x", 1, targets, 2, NULL, NULL, NULL, &err) == FAR_INVALID);
	/* Nobody to call is no error. */
	expect(start("t::fail", 0, 0, NULL), FAR_OK, 0);
}

/* A fan-out over `n` targets whose deadline comes after `answers` of them have answered. On a busy machine it may come
 * before: then once more with twice the time. */
static void by_deadline(const char *function, int64_t arg, size_t n, struct far_fanout_opts *opts, size_t answers)
{
	enum far_status want = opts->partial && answers ? FAR_OK : FAR_TIMEOUT;
	for (opts->timeout_ns = 20 * FAR_MS;; opts->timeout_ns *= 2) {
		struct far_val v = {0};
		struct far_future *f = start(function, arg, n, opts);
		enum far_status status = far_future_wait(f, 0, &v, &err);
		size_t ok = 0;
		far_future_free(f);
		for (size_t i = 0; i < n; i++)
			ok += results[i].status == FAR_OK;
		CHECK(ok <= answers && (ok == answers || opts->timeout_ns < HANG_GUARD_S * FAR_SEC / 8));
		if (ok < answers)
			continue;
		CHECK(status == want && (want || (v.type == FAR_TYPE_INT && v.u.i == (int64_t)answers)));
		return;
	}
}

/* Answers of some only. */
static void k_and_deadlines(void)
{
	struct far_fanout_opts opts = {.k = 3, .timeout_ns = FAR_FOREVER};
	to_others(5);
	expect(start("t::hold", 1 << 1 | 1 << 5, 5, &opts), FAR_OK, 3);
	CHECK(results[0].status == FAR_CANCELLED && results[4].status == FAR_CANCELLED);
	CHECK(results[1].status == FAR_OK && results[1].value.u.i == 2);
	/* Their callees were notified. */
	CHECK(query(1, "t::release") == 1 && query(5, "t::release") == 1);
	opts = (struct far_fanout_opts){.partial = false};
	by_deadline("t::hold", 1 << 3, 5, &opts, 4);
	CHECK(results[2].status == FAR_TIMEOUT && results[2].executed == FAR_EXECUTED_MAYBE);
	CHECK(strstr(results[2].text, "no answer to t::hold within the time-out of ") &&
	      strstr(results[2].text, " ms"));
	CHECK_TEXT(&err, "no answer to t::hold within the time-out of ");
	CHECK_TEXT(&err, " ms: 4 of 5 targets had succeeded");
	CHECK(results[1].status == FAR_OK);
	opts.partial = true;
	by_deadline("t::hold", 1 << 3 | 1 << 4, 5, &opts, 3);
	CHECK(results[2].status == FAR_TIMEOUT && results[3].status == FAR_TIMEOUT && results[4].status == FAR_OK);
	/* Nothing came at all. */
	by_deadline("t::hold", 0xff, 5, &opts, 0);
	/* Errors do not end it, and when all have ended there is no need to wait. */
	opts.timeout_ns = FAR_FOREVER;
	expect(start("t::fail", 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4, 5, &opts), FAR_OK, 1);
	expect(start("t::fail", 0xff, 5, &opts), FAR_REMOTE, 0);
	for (int w = 1; w < WORKERS; w++)
		query(w, "t::release");
}

static void many(size_t n)
{
	static int64_t ranks[FAR_FANOUT_MAX + 1];
	struct far_fanout_opts opts = {.recv_buf = ranks, .slice_bytes = sizeof ranks[0]};
	/* All of them at one worker: more than may be pending there. */
	memset(targets, 0, sizeof targets);
	for (size_t i = 0; i < n; i++)
		targets[i].to = (struct far_to){3, 0};
	ranks[n] = -7;
	expect(start("t::fail", 0, n, &opts), FAR_OK, (int64_t)n);
	for (size_t i = 0; i < n; i++)
		CHECK(ranks[i] == 3 && results[i].status == FAR_OK);
	CHECK(ranks[n] == -7);
	order(n < MANY ? n : MANY);
}

/* One worker takes nothing more: the others' answers come, and its own when there is room again. */
static void back_pressure(void)
{
	static struct far_future *held[WINDOW];
	struct far_fanout_opts opts = {.k = 4, .timeout_ns = FAR_FOREVER};
	struct far_call_opts forever = {.timeout_ns = FAR_FOREVER};
	nothing_left();
	to_others(5);
	for (int i = 0; i < WINDOW; i++)
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::hold", FAR_ARGS(0xff), &forever, &held[i], &err),
			     FAR_OK, &err);
	expect(start("t::fail", 0, 5, &opts), FAR_OK, 4);
	CHECK(results[0].status == FAR_CANCELLED && results[0].executed == FAR_EXECUTED_NO);
	opts.k = 0;
	opts.partial = true;
	by_deadline("t::fail", 0, 5, &opts, 4);
	CHECK(results[0].status == FAR_TIMEOUT && results[0].executed == FAR_EXECUTED_NO);
	/* No answer of its own shows this one that there is room. */
	opts.timeout_ns = FAR_FOREVER;
	struct far_future *f = start("t::fail", 0, 5, &opts);
	CHECK_STATUS(far_rpc_sync(agent, "worker2", "t::relay", FAR_ARGS(1), NULL, NULL, &err), FAR_OK, &err);
	expect(f, FAR_OK, 5);
	for (int i = 0; i < WINDOW; i++) {
		CHECK_STATUS(far_future_wait(held[i], 0, NULL, &err), FAR_OK, &err);
		far_future_free(held[i]);
	}
}

static void held_shard(void)
{
	if (far_shard_acquire(agent, 0, &err) != FAR_OK)
		return;
	order(64);
	many(300);
	k_and_deadlines();
	far_shard_release(agent);
}

static int calls(int r)
{
	agent = join();
	if (rank == 0) {
		static const size_t sizes[] = {1, 8, 64, MANY};
		for (int i = 0; i < 4; i++)
			many(sizes[i]);
		many(FAR_FANOUT_MAX);
		values();
		trees();
		message_replies();
		errors();
		refusals();
		k_and_deadlines();
		back_pressure();
		held_shard();
		for (int w = 0; w < WORKERS; w++) {
			CHECK(query(w, "t::nested") == 15);
			CHECK(query(w, "t::nested_blocking") == 15);
		}
		nothing_left();
	}
	check_leave(agent);
	return 0;
}

int main(void)
{
	return run_both(calls, -1);
}
