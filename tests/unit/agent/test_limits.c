/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What "full" does: small bounds are filled to the brim, refuse beyond, and are used again. The test's thread.
 */
/* clang-format off */
/*
 * The rows of the resource graph (engine/README.md) and their tests: <folder>/<name> is tests/unit/<folder>/test_<name>.c,
 * e2e/<name> is tests/e2e/<name>.c, "limits" is this file.
 *
 * - pending calls of a session: limits: pending_calls; core/call: credits; e2e/api_busy: window_full; e2e/api_limits:
 *   peer_calls
 * - calls that wait for a session or a credit: limits: calls_that_wait, pending_calls, handed_over_without_room;
 *   core/waiting: the_list_is_bounded, for_a_credit; e2e/api_limits: peer_calls; e2e/api_busy: thousand
 * - sessions: nic/shm/shm_queues: all_peers_of_a_port; control/session: a_refusal_is_reported_…
 * - call slots: limits: call_slots; e2e/api_limits: call_slots
 * - submission ring: limits: submissions, ring_of_two; sync/submit: full_is_eagain_…; e2e/api_limits: submissions;
 *   e2e/api_busy: ring_full
 * - calls that may be repeated: limits: repeatable_calls; e2e/api_retry
 * - ring slots: nic/shm/shm_queue: ring_full_and_recovery; core/reply: no_slot_for_an_answer
 * - bulk memory: nic/shm/shm_bulk, nic/shm/shm_queue: bulk_full_and_recovery; core/call: calls_that_cannot_be_sent;
 *   core/reply: answers_wait_for_bulk_memory_…; e2e/api_busy: answers_wait, requests_too_many_bytes
 * - paused requests: core/reply: pausing_is_bounded
 * - one-way messages: rendezvous/send: the_window_of_one_ways; e2e/api_large: posts
 * - rendezvous messages of a session: rendezvous/send: fragments_stay_within_the_window
 * - rendezvous messages with memory: rendezvous/receive: lanes_wait_for_memory
 * - calls with arguments in shared memory: memory/heads: each_is_its_own_and_comes_back; value/encoding_split:
 *   what_cannot_stay_is_for_a_copy
 * - memory of a rendezvous message: rendezvous/receive: without_memory_it_is_refused
 * - bytes granted over a connection: transport/grant, transport/incast: every turn is audited
 * - memory of the process: memory/mem: exhaustion_is_an_error_of_that_call; memory/buf: exhaustion_…; e2e/api_memory
 * - deferred records: limits: deferred_requests, an_answer_without_a_record; core/deferred: deferred_records_are_bounded;
 *   core/fiber: without_a_record_it_cannot_wait; e2e/api_limits: deferred (fibers and blocking handlers too)
 * - fibers: core/fiber: one_more_than_there_are_is_refused; e2e/api_fibers
 * - requests that wait for a thread: e2e/api_blocking: full; e2e/api_limits: one_place_for_a_blocking_request
 * - threads for blocking handlers: e2e/api_blocking: late
 * - a fiber's abandoned waits: core/fiber: a_repeated_wait_listens_once
 * - futures: api/then: running_out_of_futures_…
 * - callbacks, collections, scopes: limits_process: without_buffers
 * - waits that one future is in: sync/future: a_watch_gives_its_places_back; api/wait: any_number_of_threads_…
 * - strings of a call: value/encoding: strings_are_copied_and_bounded, values_that_an_application_got_wrong_…
 * - items, depth, entries of a dict: value/encoding_trees: items_are_bounded, depth_is_bounded; value/dict: long_ones
 * - objects of custom types: value/encoding_trees: what_an_application_got_wrong_is_named
 * - custom types: limits_process: custom_types
 * - classes of objects: value/classes: bounded
 * - values, forks of a shard: references/rref_serve, references/rref_make: records_are_bounded
 * - control messages about references: references/rref_control: control_messages_need_no_credit,
 *   control_messages_wait_for_room
 * - their retries: references/rref_again: fork_given_up, owner_never_has_room
 * - references in a message: e2e/api_rref: too_many
 * - calls that are delayed on purpose: faults/fault: late_without_end
 * - overloads: value/registry: overloads_are_bounded
 * - mailboxes: limits: mailbox_of_one; core/waiting, control/mails: a_full_mailbox_is_tried_again; e2e/api_limits: every
 *   agent there has mailboxes of one
 * - sleepers: sync/progress: places_are_bounded_and_come_back
 * - connections without LOGIN: control/store_load: idle_connections_lock_nobody_out, without_login_one_goes_…
 * - keys beyond those: control/store_room: a_full_table_has_room_for_members; control/leave: of_a_full_store
 * - closing the store: control/leave: a_connection_left_open, the_store_ends_after_the_last_request
 * - a worker without a NIC: control/join: a_refused_worker_…, rank_0_is_refused_…; e2e/store_load.sh
 * - descriptors: control/store_load: without_descriptors; control/join: out_of_descriptors_…
 * - processes that are watched: control/host_watch: half_of_the_descriptors_are_for_others
 * - WAITs: control/store_server: too_many_pending_waits_drop_their_client; control/store_wait: waits_of_all_are_bounded
 * - replies that are not read: control/store_load: requests_wait_for_a_client_that_does_not_read,
 *   a_client_that_does_not_read_is_dropped, many_that_do_not_read_are_dropped
 * - store: limits_process: clients_of_the_store; control/store_client: limits_of_key_and_value,
 *   requests_outstanding_are_bounded; control/kv: keys_are_bounded; control/store_watch: watches_of_a_client_are_bounded,
 *   too_slow_for_what_is_deleted_is_dropped; control/store_hold: undecided_holds_of_a_client_are_bounded
 */
/* clang-format on */
#include "agent/agent.h"
#include "agent/limits.h"
#include "control/store.h"
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/waiting.h"
#include "memory/buf.h"
#include "shard_fixture.h"
#include "value/types.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/farcall.h>
#include <stdio.h>
#include <string.h>

Test(limits, defaults_and_rounding)
{
	struct far_limits l, d;
	struct far_err err;
	far_limits_read(NULL, &d);
	cr_assert_eq(limits_resolve(&(struct far_opts){0}, &l, &err), FAR_OK);
	cr_assert_eq(memcmp(&l, &d, sizeof l), 0);
	cr_assert_eq(d.peer_calls, (unsigned)FAR_SESSION_CALLS_MAX);
	cr_assert_eq(d.peer_waiting, 1024u, "as agent.h documents");
	struct far_opts odd = {.submit_slots = 1,
			       .mailbox_slots = 1,
			       .calls = 1,
			       .deferred = 1,
			       .peer_calls = 1,
			       .peer_waiting = 1,
			       .retry_window = 1,
			       .fibers = 1,
			       .blocking_threads = 1,
			       .blocking_queue = 1};
	cr_assert_eq(limits_resolve(&odd, &l, &err), FAR_OK);
	cr_assert_eq(l.submit_slots, 2u);
	cr_assert_eq(l.blocking_queue, 2u);
	cr_assert_eq(l.mailbox_slots, 1u);
	cr_assert_eq(l.calls + l.deferred + l.peer_calls + l.peer_waiting + l.retry_window + l.fibers +
			     l.blocking_threads,
		     7u);
	odd.submit_slots = 1025;
	odd.mailbox_slots = 3;
	odd.blocking_queue = 33000;
	odd.calls = 1000;
	cr_assert_eq(limits_resolve(&odd, &l, &err), FAR_OK);
	cr_assert_eq(l.submit_slots, 2048u);
	cr_assert_eq(l.mailbox_slots, 4u);
	cr_assert_eq(l.blocking_queue, 65536u);
	cr_assert_eq(l.calls, 1000u, "only what must be is a power of two");
}

Test(limits, out_of_range_is_named)
{
	struct far_opts o = {0};
	const struct {
		unsigned *field;
		const char *name;
		unsigned max;
	} all[] = {{&o.submit_slots, "submit_slots", 65536},
		   {&o.mailbox_slots, "mailbox_slots", 16384},
		   {&o.calls, "calls", 262144},
		   {&o.deferred, "deferred", 262144},
		   {&o.peer_calls, "peer_calls", 202},
		   {&o.peer_waiting, "peer_waiting", 32768},
		   {&o.retry_window, "retry_window", 1024},
		   {&o.fibers, "fibers", 65536},
		   {&o.blocking_threads, "blocking_threads", 1024},
		   {&o.blocking_queue, "blocking_queue", 65536}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const unsigned wrong[] = {all[i].max + 1, 0x80000000u, UINT32_MAX};
		struct far_limits l;
		struct far_err err;
		char text[64];
		*all[i].field = all[i].max;
		cr_assert_eq(limits_resolve(&o, &l, &err), FAR_OK);
		for (size_t k = 0; k < 3; k++) {
			*all[i].field = wrong[k];
			cr_assert_eq(limits_resolve(&o, &l, &err), FAR_INVALID);
			snprintf(text, sizeof text, "options: %s is %u", all[i].name, wrong[k]);
			cr_assert(strstr(err.text, text), "%s lacks %s", err.text, text);
			snprintf(text, sizeof text, "[1, %u]", all[i].max);
			cr_assert(strstr(err.text, text), "%s lacks %s", err.text, text);
		}
		*all[i].field = 0;
	}
}

/* ---- the smallest rings ---- */

Test(limits, ring_of_two)
{
	static struct submit_cell cells[2];
	static struct submit_ring ring;
	struct call_start start = {.done = take_result, .data = "x", .len = 1};
	submit_init(&ring, cells, 2, NULL);
	for (int wrapped = 0; wrapped < 2; wrapped++) {
		for (uintptr_t i = 1; i < 100; i += 2) {
			start.user = (void *)i;
			cr_assert_eq(submit_put(&ring, &start), 0);
			start.user = (void *)(i + 1);
			cr_assert_eq(submit_put(&ring, &start), 0);
			cr_assert_eq(submit_put(&ring, &start), -EAGAIN);
			for (uintptr_t k = i; k <= i + 1; k++) {
				cr_assert_eq(submit_peek(&ring)->user, (void *)k);
				submit_pop(&ring, submit_peek(&ring));
			}
			cr_assert_null(submit_peek(&ring));
			cr_assert_eq(submit_waiting(&ring), 0u);
		}
		/* As after that many laps. */
		const uint32_t at = UINT32_MAX - 7;
		atomic_store(&ring.tail, at);
		atomic_store(&ring.head, at);
		atomic_store(&ring.next, &cells[0]);
		atomic_store(&ring.due, at + 1);
		atomic_store(&cells[0].turn, at);
		atomic_store(&cells[1].turn, at);
	}
}

Test(limits, mailbox_of_one)
{
	static struct mail slot;
	static struct mailbox box;
	struct mail m = {.type = MAIL_CONNECT};
	mailbox_init(&box, &slot, 1);
	for (m.worker = 0; m.worker < 100; m.worker++) {
		struct mail out;
		cr_assert(mailbox_put(&box, &m));
		cr_assert_not(mailbox_put(&box, &m));
		cr_assert(mailbox_get(&box, &out));
		cr_assert_eq(out.worker, m.worker);
		cr_assert_not(mailbox_get(&box, &out));
	}
}

/* ---- a shard of small bounds ---- */

enum {
	MSG_KEEP = 50,
	MSG_RETRIED,
	SLOTS = 5,
	PEER_CALLS = 3,
	WAITING = 4,
	RECORDS = 2,
	RING = 4,
	WINDOW = 2,
	NOBODY = 3
};

static enum far_status kept_status;

static void keep(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_deferred *d;
	kept_status = far_defer(req, &d);
	if (kept_status)
		far_fail(req, kept_status, 0, "%s", "no record");
	else
		kept[kept_n++] = d;
}

static void setup(void)
{
	fixture_limits = (struct shard_limits){.submit_slots = RING,
					       .mailbox_slots = 2,
					       .calls = SLOTS,
					       .deferred = RECORDS,
					       .peer_calls = PEER_CALLS,
					       .peer_waiting = WAITING,
					       .retry_window = WINDOW};
	shard_setup();
	struct far_msg_handler m = {MSG_KEEP, FAR_KIND_INLINE, keep, NULL};
	cr_assert_eq(registry_add_message(&registry, &m, NULL), FAR_OK);
}

TestSuite(limits_of_a_shard, .init = setup, .fini = shard_teardown);

static int call_to(struct result *r, uint32_t worker, uint64_t timeout, uint64_t retry_ns)
{
	struct call_start start = {.worker = worker,
				   .fn = MSG_ECHO,
				   .deadline = timeout == FAR_FOREVER ? TIME_NEVER : now_ns + timeout,
				   .left = timeout,
				   .retry_ns = retry_ns,
				   .done = take_result,
				   .user = r,
				   .id = &r->id,
				   .data = "x",
				   .len = 1};
	memset(r, 0, sizeof *r);
	return shard_call(shard, &start);
}

/* The header of the request that went out last, and its answer. */
static union packet_head sent(void)
{
	union packet_head h;
	cr_assert_not_null(fake_queue_sent(queue, &h));
	cr_assert_eq(h.type, PACKET_REQUEST);
	return h;
}

static void reply(union packet_head h, uint32_t peer)
{
	union packet_head a = {.reply = {.type = PACKET_REPLY,
					 .slot = h.call.slot,
					 .generation = h.call.generation,
					 .flags = h.flags & PACKET_RETRY}};
	put(peer, a, "r", 1);
	passes(1);
}

Test(limits_of_a_shard, pending_calls)
{
	enum { ALL = PEER_CALLS + WAITING };
	static struct result r[ALL + 1], other;
	union packet_head h[PEER_CALLS];
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < PEER_CALLS; i++) {
			cr_assert_eq(call_to(&r[i], PEER, i ? FAR_FOREVER : 1, 0), 0);
			h[i] = sent();
		}
		for (unsigned i = PEER_CALLS; i < ALL; i++)
			cr_assert_eq(call_to(&r[i], PEER, FAR_FOREVER, 0), 0);
		expect_nothing();
		cr_assert_eq(call_to(&r[ALL], PEER, FAR_FOREVER, 0), -EAGAIN);
		cr_assert_eq(call_to(&other, OTHER, FAR_FOREVER, 0), 0, "another worker's are its own");
		reply(sent(), NIC_OTHER);
		cr_assert_eq(other.status, FAR_OK);
		/* One that ended here holds its place until the peer's last word. */
		advance(2);
		cr_assert_eq(r[0].status, FAR_TIMEOUT);
		union packet_head cancel;
		cr_assert_not_null(fake_queue_sent(queue, &cancel));
		cr_assert_eq(cancel.type, PACKET_CANCEL);
		cr_assert_eq(call_to(&r[ALL], PEER, FAR_FOREVER, 0), -EAGAIN);
		uint64_t late = shard->counters.replies_late;
		reply(h[0], NIC_PEER);
		cr_assert_eq(shard->counters.replies_late, late + 1);
		h[0] = sent(); /* the first that waited */
		cr_assert_eq(call_to(&r[ALL], PEER, FAR_FOREVER, 0), 0);
		for (unsigned i = 1; i <= WAITING; i++) {
			reply(h[i % PEER_CALLS], NIC_PEER);
			h[i % PEER_CALLS] = sent();
		}
		for (unsigned i = 0; i < PEER_CALLS; i++)
			reply(h[i], NIC_PEER);
		for (unsigned i = 1; i <= ALL; i++)
			cr_assert(r[i].n == 1 && r[i].status == FAR_OK);
		cr_assert_eq(shard->sessions[PEER].calls_active, 0);
	}
	expect_nothing();
}

/* The peer's own limit is another: it may have as many as the ring is made for. */
Test(limits_of_a_shard, the_peers_calls_are_not_ours)
{
	for (uint32_t i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		put_request(MSG_ECHO, i, "e", 1);
	passes(20);
	for (uint32_t i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		expect_reply(i, "e", 1);
	cr_assert_not(shard->sessions[PEER].protocol_error);
}

static int hand_over(struct result *r, uint32_t worker)
{
	struct call_start start = {.worker = worker,
				   .fn = MSG_ECHO,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = take_result,
				   .user = r,
				   .id = &r->id,
				   .data = "x",
				   .len = 1};
	memset(r, 0, sizeof *r);
	return waiting_submit(shard, &start);
}

/* Refused when it is handed over, be the places taken by what lies in the ring or by what waits, and never later. */
Test(limits_of_a_shard, handed_over_without_room)
{
	enum { ALL = PEER_CALLS + WAITING };
	static struct result r[ALL + 2];
	union packet_head h[ALL + 1];
	unsigned n = 0;
	for (; n < WAITING; n++)
		cr_assert_eq(hand_over(&r[n], PEER), 0);
	cr_assert_eq(hand_over(&r[n], PEER), -EAGAIN);
	passes(1);
	for (; n < ALL; n++)
		cr_assert_eq(hand_over(&r[n], PEER), 0);
	cr_assert_eq(hand_over(&r[n], PEER), -EAGAIN);
	passes(1);
	cr_assert_eq(submit_waiting(&shard->submit), 0u);
	cr_assert_eq(hand_over(&r[n], PEER), -EAGAIN, "they wait elsewhere");
	for (unsigned i = 0; i < PEER_CALLS; i++)
		h[i] = sent();
	expect_nothing();
	reply(h[0], NIC_PEER);
	cr_assert_eq(hand_over(&r[n++], PEER), 0);
	passes(1);
	cr_assert_eq(hand_over(&r[n], PEER), -EAGAIN);
	for (unsigned i = 1; i < n; i++) {
		if (i + PEER_CALLS - 1 < n)
			h[i + PEER_CALLS - 1] = sent();
		reply(h[i], NIC_PEER);
	}
	for (unsigned i = 0; i < n; i++)
		cr_assert(r[i].n == 1 && r[i].status == FAR_OK);
	expect_nothing();
	cr_assert_eq(shard->counters.busy_refusals, 0u);
}

/* The peer's memory is short when the shard takes them over. Expect no failure, and all of them sent when it is not. */
Test(limits_of_a_shard, handed_over_while_the_ring_is_full)
{
	static struct result r[WAITING];
	queue->no_slots = true;
	for (unsigned i = 0; i < WAITING; i++)
		cr_assert_eq(hand_over(&r[i], PEER), 0);
	passes(1);
	cr_assert_eq(submit_waiting(&shard->submit), 0u);
	for (unsigned i = 0; i < WAITING; i++)
		cr_assert_eq(r[i].n, 0u);
	queue->no_slots = false;
	passes(20);
	for (unsigned i = 0; i < WAITING; i++)
		reply(sent(), NIC_PEER);
	passes(1);
	for (unsigned i = 0; i < WAITING; i++)
		cr_assert(r[i].n == 1 && r[i].status == FAR_OK);
	cr_assert_eq(waiting_slots_used(shard, PEER), 0u);
}

Test(limits_of_a_shard, submissions)
{
	static struct result r[RING + 1];
	for (int lap = 0; lap < 5; lap++) {
		for (unsigned i = 0; i < RING; i++)
			cr_assert_eq(hand_over(&r[i], i % 2 ? PEER : OTHER), 0);
		cr_assert_eq(hand_over(&r[RING], PEER), -EAGAIN);
		cr_assert_eq(r[RING].n, 0u, "what is refused is never completed");
		cr_assert_eq(waiting_slots_used(shard, PEER), RING / 2u, "nor does it count as waiting");
		cr_assert_eq(submit_waiting(&shard->submit), (uint32_t)RING);
		passes(1);
		cr_assert_eq(submit_waiting(&shard->submit), 0u);
		for (unsigned i = 0; i < RING; i++)
			reply(sent(), i % 2 ? NIC_PEER : NIC_OTHER);
		for (unsigned i = 0; i < RING; i++)
			cr_assert(r[i].n == 1 && r[i].status == FAR_OK);
	}
}

Test(limits_of_a_shard, call_slots)
{
	static struct result r[SLOTS + 1];
	union packet_head h[SLOTS];
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < SLOTS; i++) {
			cr_assert_eq(call_to(&r[i], i < PEER_CALLS ? PEER : OTHER, FAR_FOREVER, 0), 0);
			h[i] = sent();
			cr_assert_lt(h[i].call.slot, (uint32_t)SLOTS);
		}
		cr_assert_lt(shard->sessions[OTHER].calls_active, PEER_CALLS, "that session has room");
		cr_assert_eq(call_to(&r[SLOTS], OTHER, FAR_FOREVER, 0), -EAGAIN);
		cr_assert_eq(queue->open_tx, 0u, "the ring slot was given back");
		cr_assert_eq(call_to(&r[SLOTS], OTHER, FAR_FOREVER, FAR_SEC), -EAGAIN);
		reply(h[1], NIC_PEER);
		cr_assert_eq(call_to(&r[SLOTS], OTHER, FAR_FOREVER, 0), 0);
		reply(sent(), NIC_OTHER);
		for (unsigned i = 0; i < SLOTS; i++)
			if (i != 1)
				reply(h[i], i < PEER_CALLS ? NIC_PEER : NIC_OTHER);
		for (unsigned i = 0; i <= SLOTS; i++)
			cr_assert(r[i].n == 1 && r[i].status == FAR_OK);
	}
	/* A cancel, and an answer for a slot beyond those that there are. */
	cr_assert_eq(call_to(&r[0], PEER, FAR_FOREVER, 0), 0);
	union packet_head cancelled = sent(), word;
	cr_assert(call_cancel(shard, &r[0].id));
	cr_assert_eq(r[0].status, FAR_CANCELLED);
	cr_assert_not_null(fake_queue_sent(queue, &word));
	cr_assert_eq(word.type, PACKET_CANCEL);
	reply(cancelled, NIC_PEER);
	h[0].call.slot = SLOTS;
	reply(h[0], NIC_PEER);
	cr_assert_eq(dropped(), 1u);
}

Test(limits_of_a_shard, calls_that_wait)
{
	static struct result r[WAITING + 1];
	for (unsigned i = 0; i < WAITING; i++)
		cr_assert_eq(call_to(&r[i], NOBODY, FAR_FOREVER, 0), 0);
	cr_assert_eq(call_to(&r[WAITING], NOBODY, FAR_FOREVER, 0), -EAGAIN);
	cr_assert_eq(r[WAITING].n, 0u);
	mail(MAIL_PEER_UP, NOBODY, 7);
	cr_assert_eq(call_to(&r[WAITING], NOBODY, FAR_FOREVER, 0), 0, "some have left the queue");
	for (unsigned i = 0; i <= WAITING; i++)
		reply(sent(), 7);
	for (unsigned i = 0; i <= WAITING; i++)
		cr_assert(r[i].n == 1 && r[i].status == FAR_OK);
	cr_assert_eq(shard->counters.calls_waiting, 0u);
}

Test(limits_of_a_shard, repeatable_calls)
{
	static struct result first, r;
	for (int round = 0; round < 3; round++) {
		cr_assert_eq(call_to(&first, PEER, FAR_FOREVER, FAR_SEC), 0);
		union packet_head h = sent();
		for (unsigned i = 1; i < WINDOW; i++) {
			cr_assert_eq(call_to(&r, PEER, FAR_FOREVER, FAR_SEC), 0);
			reply(sent(), NIC_PEER);
			cr_assert_eq(r.status, FAR_OK);
		}
		cr_assert_eq(call_to(&r, PEER, FAR_FOREVER, FAR_SEC), -EAGAIN, "the first has not ended");
		cr_assert_eq(call_to(&r, PEER, FAR_FOREVER, 0), 0, "others need no place");
		reply(sent(), NIC_PEER);
		reply(h, NIC_PEER);
		cr_assert_eq(first.status, FAR_OK);
	}
}

Test(limits_of_a_shard, deferred_requests)
{
	for (int round = 0; round < 3; round++) {
		kept_n = 0;
		for (uint32_t i = 0; i <= RECORDS; i++)
			put_request(MSG_KEEP, i, NULL, 0);
		passes(1);
		cr_assert_eq(kept_status, FAR_RESOURCE);
		expect_error(RECORDS, FAR_RESOURCE, FAR_EXECUTED_YES, "no record");
		cr_assert_eq(kept_n, (unsigned)RECORDS);
		cr_assert_eq(shard->counters.requests_active, (uint64_t)RECORDS);
		put_request(MSG_ECHO, 9, "e", 1);
		passes(1);
		expect_reply(9, "e", 1);
		for (uint32_t i = 0; i < RECORDS; i++) {
			cr_assert_eq(far_deferred_reply(kept[i], "k", 1), FAR_OK);
			passes(1);
			expect_reply(i, "k", 1);
		}
		cr_assert_eq(shard->counters.requests_active, 0u);
	}
}

/* An answer without bulk memory and without a record to wait in is sent as an error. */
Test(limits_of_a_shard, an_answer_without_a_record)
{
	for (uint32_t i = 0; i < RECORDS; i++)
		put_request(MSG_KEEP, i, NULL, 0);
	passes(1);
	queue->no_bulk = true;
	put_request(MSG_BIG, 7, NULL, 0);
	passes(1);
	expect_error(7, FAR_RESOURCE, FAR_EXECUTED_YES, "no memory");
	queue->no_bulk = false;
	put_request(MSG_ECHO, 8, "e", 1);
	passes(2);
	expect_reply(8, "e", 1);
	while (kept_n)
		far_deferred_drop(kept[--kept_n]);
	passes(1);
	expect_error(1, FAR_REMOTE, FAR_EXECUTED_YES, "");
	expect_error(0, FAR_REMOTE, FAR_EXECUTED_YES, "");
}

/* More sessions are requested than the mailbox holds. Expect each requested once, in order. */
Test(limits_of_a_shard, mailboxes)
{
	enum { SESSIONS = 7 };
	static struct result r[SESSIONS];
	struct mail m;
	for (uint32_t i = 0; i < SESSIONS; i++)
		cr_assert_eq(call_to(&r[i], NOBODY + i, FAR_FOREVER, 0), 0);
	for (uint32_t i = 0; i < SESSIONS; i++) {
		cr_assert(mailbox_get(&shard->mail_out, &m));
		cr_assert_eq(m.type, MAIL_CONNECT);
		cr_assert_eq(m.worker, NOBODY + i);
		if (i % 2)
			shard_take_mail(shard); /* tries again */
	}
	cr_assert_not(mailbox_get(&shard->mail_out, &m));
	session_close_all(shard);
	for (uint32_t i = 0; i < SESSIONS; i++)
		cr_assert(r[i].n == 1 && r[i].executed == FAR_EXECUTED_NO);
}
