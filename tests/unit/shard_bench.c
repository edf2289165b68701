/* SPDX-License-Identifier: BSD-3-Clause */
#include "shard_bench.h"
#include "features/features.h"
#include "value/encoding.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <stdio.h>
#include <string.h>

uint64_t now_ns;
struct fake_queue *queue, *queue2;
struct shard *shard;
struct registry registry;
struct far_deferred *kept[FAR_SESSION_CALLS_MAX];
unsigned kept_n, ran, ctl_wakes;
uint32_t order[1024];
unsigned order_n;
enum far_status second_answer;
uint64_t time_left;
struct shard_limits bench_limits;

static uint64_t fake_now(void *ctx)
{
	(void)ctx;
	return now_ns;
}

static const struct clock_source fake_clock = {fake_now, NULL};

static void ctl_wake(void *ctx)
{
	(void)ctx;
	ctl_wakes++;
}

/* ---- results of calls that the shard makes ---- */

void take_result(void *user, const struct outcome *o)
{
	struct result *r = user;
	r->n++;
	r->status = o->status;
	r->executed = o->executed;
	r->code = o->code;
	r->origin = o->origin;
	r->len = o->len;
	if (o->len)
		memcpy(r->bytes, o->data, o->len < sizeof r->bytes ? o->len : sizeof r->bytes);
}

/* ---- handlers ---- */

static void on_message(struct far_req *req, const void *data, size_t len, void *user)
{
	static char big[FAKE_BODY / 4];
	uint32_t tag = 0;
	void *at;
	ran++;
	if (len >= sizeof tag)
		memcpy(&tag, data, sizeof tag);
	if (order_n < 1024)
		order[order_n++] = tag;
	time_left = far_req_time_left(req);
	switch ((uintptr_t)user) {
	case MSG_ECHO:
		far_reply(req, data, len);
		break;
	case MSG_DEFER:
		cr_assert_eq(far_defer(req, &kept[kept_n++]), FAR_OK);
		break;
	case MSG_TWICE:
		far_reply(req, "one", 3);
		second_answer = far_reply(req, "two", 3);
		cr_assert_eq(far_fail(req, FAR_REMOTE, 0, "no"), FAR_INVALID);
		cr_assert_eq(far_defer(req, &kept[0]), FAR_INVALID);
		break;
	case MSG_BIG:
		memset(big, (int)tag, sizeof big);
		cr_assert_eq(far_reply(req, big, sizeof big), FAR_OK);
		break;
	case MSG_ALLOC:
		cr_assert_eq(far_reply_alloc(req, 1000, &at), FAR_OK);
		memset(at, 'a', 1000);
		break;
	case MSG_FAIL:
		far_fail(req, FAR_REMOTE, -42, "%s", "because");
		break;
	case MSG_DROP:
		cr_assert_eq(far_defer(req, &kept[0]), FAR_OK);
		far_deferred_drop(kept[0]);
		break;
	default:
		break;
	}
}

static enum far_status add_ints(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)user;
	ran++;
	cr_assert_eq(n, 2u);
	cr_assert_eq(args[0].type, FAR_TYPE_INT);
	cr_assert_eq(args[1].type, FAR_TYPE_INT);
	struct far_val sum = far_int(args[0].u.i + args[1].u.i);
	return far_return(req, &sum);
}

static enum far_status returns_busy(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)req;
	(void)args;
	(void)n;
	(void)user;
	ran++;
	return FAR_BUSY;
}

static enum far_status returns_wrong(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)args;
	(void)n;
	(void)user;
	struct far_val s = far_str("not an int");
	return far_return(req, &s);
}

/* ---- set-up ---- */

/* That a worker has begun since the first, whose incarnation is 5: LIFE_OF() of rref_bench.h. */
static uint64_t lives[FAR_WORLD_MAX];

void mail_at(enum mail_type type, uint32_t worker, uint32_t peer, unsigned port)
{
	lives[worker] += type == MAIL_PEER_BACK;
	struct mail m = {
		.type = type, .worker = worker, .peer = peer, .port = (uint16_t)port, .incarnation = 5 + lives[worker]};
	cr_assert(mailbox_put(&shard->mail_in, &m));
	shard_take_mail(shard);
}

void mail(enum mail_type type, uint32_t worker, uint32_t peer)
{
	mail_at(type, worker, peer, 0);
}

void mail_silent(uint32_t worker, uint32_t peer)
{
	struct mail m = {.type = MAIL_PEER_DOWN,
			 .worker = worker,
			 .peer = peer,
			 .status = FAR_UNREACHABLE,
			 .incarnation = 5 + lives[worker]};
	cr_assert(mailbox_put(&shard->mail_in, &m));
	shard_take_mail(shard);
}

void mail_lost(uint32_t worker)
{
	struct mail m = {.type = MAIL_UNREACHED, .worker = worker, .status = FAR_PEER_LOST};
	cr_assert(mailbox_put(&shard->mail_in, &m));
	shard_take_mail(shard);
}

static void complete(struct far_future *f, const struct outcome *o)
{
	struct outcome plain = *o;
	plain.tree = NULL;
	if (o->tree)
		buf_ref(o->tree);
	future_complete_in(NULL, f, &plain, o->tree);
}

static void name_of(const struct far_agent *agent, uint32_t worker, char *name)
{
	(void)agent;
	snprintf(name, FAR_NAME_MAX, "w%u", worker);
}

static void setup(unsigned ports, bool costs)
{
	now_ns = UINT64_C(5000000000);
	queue = fake_queue_new();
	queue2 = ports > 1 ? fake_queue_new() : NULL;
	registry_init(&registry);
	for (uint16_t i = MSG_ECHO; i <= MSG_CALL; i++) {
		struct far_msg_handler m = {i, FAR_KIND_INLINE, on_message, (void *)(uintptr_t)i};
		cr_assert_eq(registry_add_message(&registry, &m, NULL), FAR_OK);
	}
	struct far_function f[] = {{"t::add(int a, int b) -> int", FAR_KIND_INLINE, add_ints, NULL},
				   {"t::busy() -> none", FAR_KIND_INLINE, returns_busy, NULL},
				   {"t::wrong() -> int", FAR_KIND_INLINE, returns_wrong, NULL}};
	for (size_t i = 0; i < sizeof f / sizeof *f; i++)
		cr_assert_eq(registry_add(&registry, &f[i], NULL), FAR_OK);
	struct shard_config config = {.ports = {{&queue->base, SHARD_RING_SLOTS, FAKE_PEERS, false}},
				      .ports_n = ports,
				      .world = WORLD,
				      .name = "me",
				      .clock = &fake_clock,
				      .registry = &registry,
				      .features = engine_features,
				      .limits = bench_limits,
				      .ctl_wake = ctl_wake,
				      .complete = complete,
				      .name_of = name_of,
				      .rank = SELF,
				      .incarnation = BENCH_LIFE};
	if (queue2)
		config.ports[1] = (struct shard_port){&queue2->base, SHARD_RING_SLOTS, FAKE_PEERS, costs};
	shard = shard_create(&config);
	cr_assert_not_null(shard);
	cr_assert(shard_enter(shard));
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	mail_at(MAIL_PEER_UP, OTHER, NIC_OTHER, ports - 1);
}

void shard_setup(void)
{
	setup(1, false);
}

void shard_setup_second(bool costs)
{
	setup(2, costs);
}

/* Whatever a test did: nothing is open, nothing is held, nothing was lost. */
void shard_teardown(void)
{
	session_close_all(shard);
	shard_pass(shard);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	cr_assert_eq(shard->counters.requests_active, 0u);
	cr_assert_eq(shard->rrefs->records.n, 0u);
	cr_assert_eq(shard->rrefs->forks.n, 0u);
	cr_assert_null(shard->rrefs->list);
	cr_assert_eq(shard->rrefs->notes_n, 0u);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
	cr_assert_eq(queue->open_tx, 0u, "a reservation was neither committed nor cancelled");
	cr_assert_eq(queue->in_held, 0u, "a packet was not released");
	cr_assert_eq(queue->out_flushed, queue->out_n, "a packet was not flushed");
	for (unsigned w = 0; w < WORLD; w++)
		cr_assert_eq(shard->sessions[w].calls_active, 0);
	shard_leave(shard);
	shard_destroy(shard);
	registry_fini(&registry);
	fake_queue_free(queue);
	if (queue2) {
		cr_assert_eq(queue2->open_tx, 0u);
		cr_assert_eq(queue2->in_held, 0u);
		cr_assert_eq(queue2->out_flushed, queue2->out_n, "a packet was not flushed");
		fake_queue_free(queue2);
	}
}

/* ---- packets ---- */

void put(uint32_t peer, struct shm_head h, const void *body, size_t len)
{
	fake_queue_put(queue, peer, &h, body, len);
}

struct shm_head request(uint16_t fn, uint32_t call, uint64_t left)
{
	return (struct shm_head){.type = HEAD_REQUEST,
				 .fn = fn,
				 .call = call,
				 .gen = call + 100,
				 .time_low = (uint32_t)left,
				 .time_high = (uint32_t)(left >> 32)};
}

void put_request(uint16_t fn, uint32_t call, const void *body, size_t len)
{
	put(NIC_PEER, request(fn, call, UINT64_MAX), body, len);
}

void put_typed(unsigned fn, const void *body, size_t len)
{
	struct shm_head h = request((uint16_t)fn, 1, UINT64_MAX);
	h.flags = HEAD_TYPED;
	put(NIC_PEER, h, body, len);
}

void put_cancel(uint32_t call)
{
	struct shm_head h = {.type = HEAD_CANCEL, .call = call, .gen = call + 100};
	put(NIC_PEER, h, NULL, 0);
}

void passes(unsigned n)
{
	while (n--)
		shard_pass(shard);
}

/* The clock moves, timers run. */
void advance(uint64_t ns)
{
	now_ns += ns;
	shard_run_timers(shard, now_ns);
	passes(1);
}

unsigned executed_of(const struct shm_head *h)
{
	return h->flags >> HEAD_EXECUTED_SHIFT;
}

const struct fake_packet *expect(struct shm_head *h, enum head_type type, uint32_t call)
{
	const struct fake_packet *p = fake_queue_sent(queue, h);
	cr_assert_not_null(p, "nothing was sent for call %u", call);
	cr_assert_eq(h->type, type, "call %u: type %d", call, h->type);
	cr_assert_eq(h->call, call);
	cr_assert_eq(h->gen, call + 100);
	cr_assert_eq(p->peer, (uint32_t)NIC_PEER);
	return p;
}

void expect_error(uint32_t call, enum far_status status, enum far_executed executed, const char *part)
{
	struct shm_head h;
	char text[512] = {0};
	const struct fake_packet *p = expect(&h, HEAD_ERROR, call);
	memcpy(text, fake_body(p), p->body_len);
	cr_assert_eq(h.fn, status, "%s instead of %s: %s", far_status_name((enum far_status)h.fn),
		     far_status_name(status), text);
	cr_assert_eq(executed_of(&h), (unsigned)executed);
	cr_assert(strstr(text, part), "\"%s\" lacks \"%s\"", text, part);
}

void expect_reply(uint32_t call, const void *bytes, size_t len)
{
	struct shm_head h;
	const struct fake_packet *p = expect(&h, HEAD_REPLY, call);
	cr_assert_eq(p->body_len, len);
	cr_assert(len == 0 || memcmp(fake_body(p), bytes, len) == 0);
}

void expect_nothing(void)
{
	struct shm_head h;
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	cr_assert_null(p, "type %d, call %u was sent", p ? h.type : 0, p ? h.call : 0);
}

uint64_t dropped(void)
{
	return shard->counters.packets_dropped;
}

bool posted(enum mail_type type)
{
	struct mail m;
	bool found = false;
	while (mailbox_get(&shard->mail_out, &m))
		found |= m.type == type && m.worker == PEER;
	return found;
}

/* ---- calls ---- */

int call(struct result *r, uint64_t timeout, const void *data, size_t len)
{
	struct call_start start = {.worker = PEER,
				   .fn = MSG_ECHO,
				   .deadline = timeout == FAR_FOREVER ? TIME_NEVER : now_ns + timeout,
				   .left = timeout,
				   .done = take_result,
				   .user = r,
				   .data = data,
				   .len = len};
	memset(r, 0, sizeof *r);
	return shard_call(shard, &start);
}

/* Makes a call and returns the header that went out. */
struct shm_head called(struct result *r, uint64_t timeout)
{
	struct shm_head h;
	cr_assert_eq(call(r, timeout, "hello", 5), 0);
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	cr_assert_not_null(p);
	cr_assert_eq(h.type, HEAD_REQUEST);
	return h;
}

void answer(struct shm_head h, enum head_type type, uint16_t fn, unsigned flags, const char *text)
{
	struct shm_head a = {.type = (uint8_t)type, .flags = (uint8_t)flags, .fn = fn, .call = h.call, .gen = h.gen};
	put(NIC_PEER, a, text, strlen(text));
	passes(1);
}

size_t two_ints(uint8_t *body, int64_t a, int64_t b)
{
	struct far_val v[] = {far_int(a), far_int(b)};
	struct values_plan plan;
	size_t len = values_size(v, 2, &plan, NULL);
	values_write(v, 2, &plan, body);
	return len;
}
