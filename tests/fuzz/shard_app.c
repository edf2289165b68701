/* SPDX-License-Identifier: BSD-3-Clause */
/** The application's side of fuzz_shard. One thread, which holds the shard's token throughout. */
#include "shard_app.h"

#include "base/hash.h"
#include "base/must.h"
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/context.h"
#include "core/fiber.h"
#include "core/fiber_pool.h"
#include "core/idle.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/queues.h"
#include "core/session.h"
#include "core/shard.h"
#include "features/audit/audit.h"
#include "features/features.h"
#include "features/rendezvous/rendezvous.h"

#include <errno.h>
#include <farcall/message.h>
#include <farcall/object.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIBERS = 4, OBJECTS = 64, BIG_BYTES = 300000 };

struct app app;
static uint64_t objects[OBJECTS];

static uint64_t fake_now(void *ctx)
{
	return app.now;
}

static const struct clock_source fake_clock = {fake_now, NULL};

static void ctl_wake(void *ctx)
{
}

static void name_of(const struct far_agent *agent, uint32_t worker, char *name)
{
	snprintf(name, FAR_NAME_MAX, "w%u", worker);
}

static void complete(struct far_future *f, const struct completion *o)
{
	struct completion plain = *o;
	plain.tree = NULL;
	if (o->tree)
		buf_ref(o->tree);
	future_complete_in(NULL, f, &plain, o->tree);
}

static void on_done(void *user, const struct completion *o)
{
	unsigned sum = 0;
	for (size_t i = 0; i < o->len; i++) /* all of it can be read */
		sum += ((const uint8_t *)o->data)[i];
	app.calls_done += 1 + (sum > UINT32_MAX / 2);
}

/* ---- handlers ---- */

static void keep(struct far_req *req)
{
	struct far_deferred *d;
	if (app.kept_n < APP_KEPT && far_defer(req, &d) == FAR_OK)
		app.kept[app.kept_n++] = d;
	else
		far_fail(req, FAR_BUSY, 0, "too many are open");
}

static void reply_big(struct far_req *req)
{
	void *bytes = calloc(1, BIG_BYTES);
	must(bytes);
	far_reply(req, bytes, BIG_BYTES);
	free(bytes);
}

static void on_message(struct far_req *req, const void *data, size_t len, void *user)
{
	void *at;
	switch ((uintptr_t)user) {
	case MSG_ECHO:
		far_reply(req, data, len);
		break;
	case MSG_DEFER:
		keep(req);
		break;
	case MSG_BIG:
		reply_big(req);
		break;
	case MSG_ALLOC:
		if (far_reply_alloc(req, 10 * len, &at) == FAR_OK)
			memset(at, 'a', 10 * len);
		break;
	case MSG_FAIL:
		far_fail(req, FAR_REMOTE, -42, "%s", "because");
		break;
	case MSG_CALL:
		app_call(1 + (uint32_t)len % APP_PEERS, (unsigned)len / 2, FAR_MS, 0);
		far_reply(req, NULL, 0);
		break;
	default:
		break;
	}
}

static void on_fiber(struct far_req *req, const void *data, size_t len, void *user)
{
	if ((uintptr_t)user == MSG_WAIT)
		shard_wait(app.shard, app.future, len % 2 ? app.now + FAR_MS : TIME_NEVER);
	else
		fiber_pause(shard_in_fiber(), len % 2 ? FAR_MS : 0);
	far_reply(req, data, len);
}

static enum far_status add_ints(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	must(n == 2 && args[0].type == FAR_TYPE_INT && args[1].type == FAR_TYPE_INT);
	struct far_val sum = far_int((int64_t)((uint64_t)args[0].u.i + (uint64_t)args[1].u.i));
	return far_return(req, &sum);
}

/* Any argument comes back; a reference is kept. */
static enum far_status give_back(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	must(n == 1);
	if (args[0].type == FAR_TYPE_RREF && app.rrefs_n < APP_KEPT) {
		rref_ref(&args[0].u.rref->base);
		app.rrefs[app.rrefs_n++] = args[0].u.rref;
	}
	return far_return(req, &args[0]);
}

static enum far_status defer_typed(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	keep(req);
	return FAR_OK;
}

static enum far_status wait_typed(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	int error = shard_wait(app.shard, app.future, TIME_NEVER);
	if (error)
		return FAR_CANCELLED;
	return n ? far_return(req, &args[0]) : far_return(req, &(struct far_val){.type = FAR_TYPE_NONE});
}

static enum far_status new_object(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	if (args[0].u.i < 0 || app.objects_n == OBJECTS)
		return far_fail(req, FAR_REMOTE, 5, "below zero");
	uint64_t *object = &objects[app.objects_n++];
	*object = 1;
	enum far_status status = far_return_object(req, object);
	if (status) /* nobody destroys it */
		app.objects_ended++;
	return status;
}

static void end_object(void *object, void *user)
{
	must(*(uint64_t *)object == 1); /* once */
	*(uint64_t *)object = 0;
	app.objects_ended++;
}

static enum far_status method(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user)
{
	must(*(uint64_t *)object == 1);
	switch ((uintptr_t)user) {
	case 1:
		return defer_typed(req, args, n, NULL);
	case 2: {
		enum far_status status = wait_typed(req, args, n, NULL);
		must(*(uint64_t *)object == 1);
		return status;
	}
	default:
		return give_back(req, args, n, NULL);
	}
}

/* ---- set-up ---- */

static void register_all(void)
{
	static const struct far_function functions[] = {
		{"t::add(int a, int b) -> int", FAR_KIND_INLINE, add_ints, NULL},
		{"t::same(Any x) -> Any", FAR_KIND_INLINE, give_back, NULL},
		{"t::known(rref r) -> rref", FAR_KIND_INLINE, give_back, NULL},
		{"t::later() -> Any", FAR_KIND_INLINE, defer_typed, NULL},
		{"t::wait(Any x) -> Any", FAR_KIND_FIBER, wait_typed, NULL}};
	static const struct far_function made_by[] = {
		{"t::Thing(int n) -> t::Thing", FAR_KIND_INLINE, new_object, NULL},
		{"t::thing_later() -> t::Thing", FAR_KIND_INLINE, defer_typed, NULL}};
	static const struct far_method methods[] = {{"same(Any x) -> Any", FAR_KIND_INLINE, method, NULL},
						    {"later() -> Any", FAR_KIND_INLINE, method, (void *)(uintptr_t)1},
						    {"wait() -> Any", FAR_KIND_FIBER, method, (void *)(uintptr_t)2}};
	static const struct far_class cls = {.name = "t::Thing",
					     .constructors = made_by,
					     .constructors_n = 2,
					     .methods = methods,
					     .methods_n = 3,
					     .destroy = end_object};
	static const char *const names[] = {"t::add",  "t::same",  "t::known",       "t::later",
					    "t::wait", "t::Thing", "t::thing_later", "t::nobody"};
	static const char *const method_names[] = {"same", "later", "wait"};
	struct far_err err;
	for (uint16_t i = MSG_ECHO; i <= MSG_LAST; i++) {
		bool fiber = i >= MSG_WAIT;
		struct far_msg_handler m = {i, fiber ? FAR_KIND_FIBER : FAR_KIND_INLINE, fiber ? on_fiber : on_message,
					    (void *)(uintptr_t)i};
		must(registry_add_message(&app.registry, &m, NULL) == FAR_OK);
	}
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
		must(registry_add(&app.registry, &functions[i], &err) == FAR_OK);
	must(registry_add_class(&app.registry, &cls, object_enter, NULL, &err) == FAR_OK);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		app.functions[app.functions_n++] = registry_find(&app.registry, names[i]); /* the last: NULL */
	for (size_t i = 0; i < sizeof method_names / sizeof *method_names; i++)
		app.functions[app.functions_n++] = registry_find_method(
			&app.registry, registry_find_class(&app.registry, hash64("t::Thing", 8)), method_names[i]);
}

void app_start(void)
{
	struct far_err err;
	app = (struct app){.now = UINT64_C(5000000000), .queue = fake_queue_new(), .future = future_alloc(NULL)};
	must(app.future);
	registry_init(&app.registry);
	register_all();
	struct shard_config config = {
		.ports = {{&app.queue->base, SHARD_RING_SLOTS, FAKE_PEERS, false}},
		.ports_n = 1,
		.world = APP_WORLD,
		.name = "me",
		.clock = &fake_clock,
		.registry = &app.registry,
		.features = engine_features,
		.message_bytes_max = APP_MESSAGE_MAX,
		.limits = {.submit_slots = 64, .mailbox_slots = 16, .calls = 256, .deferred = 256, .peer_calls = 32},
		.ctl_wake = ctl_wake,
		.complete = complete,
		.name_of = name_of,
		.rank = APP_SELF,
		.incarnation = 0x77};
	app.shard = shard_create(&config);
	must(app.shard && shard_enter(app.shard));
	must(fiber_pool_add(app.shard, FIBERS, (size_t)64 << 10, &err) == FAR_OK);
}

static void on_found(void *ctx, const char *text)
{
	fprintf(stderr, "audit: %s\n", text);
	abort();
}

void app_audit(void)
{
	const struct shard *s = app.shard;
	audit_shard(s, on_found, NULL);
	for (const struct far_rref *r = s->rrefs->list; r; r = r->next)
		must(!r->owned ||
		     (rref_owner_shard(r->base.id) == s->config.index && r->base.id.number & RREF_COUNT_MASK));
}

void app_end(void)
{
	struct shard *s = app.shard;
	session_close_all(s);
	while (app.kept_n)
		app_answer(0, 2);
	while (app.rrefs_n)
		app_give_back(0);
	must(fiber_end_all(s, TIME_NEVER) == 0);
	for (unsigned i = 0; i < 200; i++)
		shard_pass(s);
	app_audit();
	struct audit_level l;
	audit_level_read(s, &l);
	must(l.calls + l.waiting + l.deferred + l.fibers + l.paused + l.backpressured == 0);
	must(l.rendezvous_in + l.rendezvous_out + l.oneways + l.fanouts + l.submitted == 0);
	must(l.rrefs == 0 && l.rref_msgs == 0);
	must(app.calls_done == app.calls_begun && s->wheel.armed_n + s->call_wheel.armed_n == 0);
	must(s->counters.sends_begun == s->counters.sends_ended && s->oneways_n == 0);
	must(app.queue->open_tx == 0 && app.queue->in_held == 0 && app.queue->out_flushed == app.queue->out_n);
	shard_leave(s);
	shard_destroy(s);
	must(app.objects_ended == app.objects_n);
	must(app.future->head.refs == 1);
	buf_unref(&app.future->head);
	registry_fini(&app.registry);
	fake_queue_free(app.queue);
}

/* ---- what it does ---- */

void app_answer(unsigned which, unsigned how)
{
	static char big[BIG_BYTES];
	if (!app.kept_n)
		return;
	struct far_deferred *d = app.kept[which %= app.kept_n];
	app.kept[which] = app.kept[--app.kept_n];
	struct far_val v = app.rrefs_n && how % 8 == 3 ? far_rref_val(app.rrefs[0]) : far_int(how);
	switch (how % 8) {
	case 0:
		far_deferred_reply(d, "an answer", 9);
		break;
	case 1:
		far_deferred_fail(d, FAR_REMOTE, 7, "no");
		break;
	case 2:
		far_deferred_drop(d);
		break;
	case 4:
		far_deferred_reply(d, big, sizeof big);
		break;
	case 5:
		if (app.objects_n < OBJECTS) {
			uint64_t *object = &objects[app.objects_n++];
			*object = 1;
			enum far_status status = far_deferred_return_object(d, object);
			/* One that was not taken is the application's. */
			app.objects_ended += status == FAR_INVALID || status == FAR_RESOURCE;
			break;
		}
		/* fallthrough */
	default:
		far_deferred_return(d, &v);
		break;
	}
}

void app_give_back(unsigned which)
{
	if (!app.rrefs_n)
		return;
	struct far_rref *r = app.rrefs[which %= app.rrefs_n];
	app.rrefs[which] = app.rrefs[--app.rrefs_n];
	rref_unref(&r->base);
}

void app_wake_fibers(void)
{
	struct completion o = {.status = FAR_OK};
	if (!future_done(app.future))
		future_complete(app.future, &o);
	shard_pass(app.shard);
	if (app.shard->stopped)
		return;
	for (unsigned i = 0; i < 2 * FIBERS && app.future->head.refs > 1; i++)
		shard_pass(app.shard);
	if (app.future->head.refs > 1)
		return;
	buf_unref(&app.future->head);
	app.future = future_alloc(NULL);
	must(app.future);
}

static int call_large(struct call_start *start, size_t len)
{
	void *at;
	struct rendezvous_out *o = rendezvous_out_alloc(len, &at);
	must(o);
	memset(at, 'l', len);
	start->len = o->total;
	start->ready = o->self;
	int error = shard_call(app.shard, start);
	rendezvous_out_unref(o);
	return error;
}

void app_call(uint32_t worker, unsigned how, uint64_t timeout, unsigned value)
{
	static const size_t lens[] = {0, 5, APP_WHOLE, 65, 5000, 300000, 600000, 40};
	static const uint8_t bytes[APP_WHOLE];
	size_t len = lens[value % 8];
	struct call_start start = {.worker = worker,
				   .fn = MSG_ECHO,
				   .deadline = timeout == FAR_FOREVER ? TIME_NEVER : app.now + timeout,
				   .left = timeout,
				   .retry_ns = how & 2 ? 10 * FAR_MS : 0,
				   .done = on_done,
				   .user = (void *)(uintptr_t)(app.calls_begun + 1),
				   .id = &app.ids[app.calls_begun % APP_IDS],
				   .data = bytes,
				   .len = len};
	uint8_t three[] = {1, 2, 6};
	if (how & 1) {
		start.typed = PACKET_TYPED;
		start.fn = (uint16_t)app.functions[how / 4 % 5]->index;
		start.data = three;
		start.len = sizeof three;
		len = 0;
	}
	int error = len > APP_WHOLE ? call_large(&start, len) : shard_call(app.shard, &start);
	app.calls_begun += error == 0;
}

void app_cancel(unsigned n)
{
	if (n < app.calls_begun)
		call_cancel(app.shard, &app.ids[(app.calls_begun - n - 1) % APP_IDS]);
}

void app_oneway(uint32_t worker, uint64_t timeout, size_t len)
{
	static const uint8_t bytes[APP_WHOLE];
	void *at;
	struct rendezvous_out *o = NULL;
	struct call_start start = {.worker = worker,
				   .fn = MSG_ECHO,
				   .deadline = timeout == FAR_FOREVER ? TIME_NEVER : app.now + timeout,
				   .left = timeout,
				   .data = bytes,
				   .len = len};
	_Atomic uint32_t *queued = &app.shard->oneways_queued[session_index(app.shard, worker, 0)];
	if ((len <= APP_WHOLE && oneway_send_now(app.shard, &start) != -EAGAIN) || *queued == FAR_ONEWAYS_QUEUED_MAX)
		return;
	if (len > APP_WHOLE) {
		o = rendezvous_out_alloc(len, &at);
		must(o);
		memset(at, 'o', len);
		start.ready = o->self;
	}
	struct oneway *oneway = oneway_new(&start, o);
	must(oneway);
	if (o)
		rendezvous_out_unref(o);
	atomic_fetch_add(queued, 1);
	oneway_enqueue(app.shard, worker, 0, oneway);
}
