/* SPDX-License-Identifier: BSD-3-Clause */
/** Bulk of the verbs driver over the fake device: what is exposed can be read by one peer, and by nobody afterwards.
 * The test's thread. */
#include "verbs_fixture.h"

#include "nic/verbs/bulk.h"

#include <poll.h>
#include <stdlib.h>

#define BULK "fake0,gid=2,bulk=65536"

enum { PORTS_MAX = 4, PATIENCE = 20000, BYTES = 1 << 20 };

static struct verbs_port *ports[PORTS_MAX];
static unsigned ports_n;
static uint8_t *memory[PORTS_MAX]; /* 2 × BYTES each, the engine's of that port */

/* Events of a queue, by `user`. */
static struct to_poller {
	unsigned exposed, withdrawn, read, failed;
} to_poller[PORTS_MAX][64];

static struct nic_queue *queue_of(unsigned i)
{
	return &ports[i]->queues[0]->base;
}

static const struct nic_bulk_ops *ops(void)
{
	return verbs_bulk_queue_ops.bulk;
}

/* Registered on request. */
static bool piece(const void *at, size_t len, void **base, size_t *bytes)
{
	for (unsigned i = 0; i < PORTS_MAX; i++) {
		size_t from = (size_t)((uintptr_t)at - (uintptr_t)memory[i]);
		if (!memory[i] || (uintptr_t)at < (uintptr_t)memory[i] || from + len > 2 * BYTES)
			continue;
		*base = memory[i];
		*bytes = (size_t)2 * BYTES;
		return true;
	}
	return false;
}

static unsigned open_with(const char *args)
{
	const struct nic_config config = {.queues = 1, .args = args, .memory_block = piece};
	struct nic_port *port = NULL;
	cr_assert_eq(verbs_port_ops.open(&config, &port, &err), 0, "%s", err.text);
	unsigned i = ports_n++;
	ports[i] = (struct verbs_port *)port;
	memory[i] = aligned_alloc(4096, (size_t)2 * BYTES);
	for (unsigned k = 0; k < 2 * BYTES; k++)
		memory[i][k] = (uint8_t)(k * 31 + k / 4096 + i);
	return i;
}

static void begin(void)
{
	fake_verbs_reset();
	memset(&fake_cm, 0, sizeof fake_cm);
	memset(to_poller, 0, sizeof to_poller);
	fake_verbs.limits.max_mw = 100000;
	fake_verbs.limits.max_qp_rd_atom = 16;
	fake_verbs.limits.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
}

static void close_all(void)
{
	for (unsigned i = 0; i + 1 < ports_n; i++)
		verbs_port_ops.close(&ports[i]->base);
	fixture_close(ports[ports_n - 1]);
	for (unsigned i = 0; i < PORTS_MAX; i++) {
		free(memory[i]);
		memory[i] = NULL;
	}
	ports_n = 0;
	cr_assert(fake_verbs.mws == 0 && fake_cm.ids == 0 && fake_cm.channels == 0);
}

static void take(unsigned i)
{
	struct nic_pkt pkts[8];
	unsigned n = queue_of(i)->ops->recv(queue_of(i), pkts, 8);
	for (unsigned k = 0; k < n; k++) {
		if (pkts[k].peer != NIC_PEER_BULK)
			continue;
		cr_assert(!pkts[k].head && !pkts[k].body && pkts[k].cookie < 64);
		struct to_poller *t = &to_poller[i][pkts[k].cookie];
		t->exposed += pkts[k].body_len == NIC_BULK_EXPOSED;
		t->withdrawn += pkts[k].body_len == NIC_BULK_WITHDRAWN;
		t->read += pkts[k].body_len == NIC_BULK_READ;
		t->failed += pkts[k].body_len == NIC_BULK_READ_FAILED;
	}
}

static void turn(void)
{
	for (unsigned i = 0; i < ports_n; i++) {
		fixture_step(ports[i]);
		take(i);
	}
	usleep(200);
}

static bool until(const unsigned *count, unsigned least)
{
	for (unsigned i = 0; i < PATIENCE && *count < least; i++)
		turn();
	return *count >= least;
}

/* As a link would: again, when it is not to be had yet, or the connection was found broken. */
static struct nic_bulk_key expose(unsigned i, uint32_t peer, const void *at, uint64_t len, uint64_t user,
				  uint32_t *handle)
{
	struct nic_bulk_key key = {0, 0};
	struct to_poller *t = &to_poller[i][user];
	unsigned exposed = t->exposed, withdrawn = t->withdrawn;
	bool posted = false;
	for (unsigned n = 0; n < PATIENCE && t->exposed == exposed; n++) {
		int error = posted ? 0 : ops()->expose(queue_of(i), peer, at, len, user, handle, &key);
		cr_assert(error == 0 || error == -EAGAIN, "%d", error);
		posted = error == 0 && t->withdrawn == withdrawn;
		withdrawn = t->withdrawn;
		turn();
	}
	cr_assert_eq(t->exposed, exposed + 1);
	t->withdrawn = 0;
	return key;
}

/* Into the second half of its memory; 0, or why it was not posted. */
static int read_it(unsigned i, uint32_t peer, struct nic_bulk_key key, uint64_t offset, uint32_t len, uint64_t user)
{
	int error = -EAGAIN;
	for (unsigned n = 0; n < PATIENCE && (error == -EAGAIN || error == -ENOMEM); n++) {
		error = ops()->read(queue_of(i), peer, &key, offset, memory[i] + BYTES + offset, len, user);
		turn();
	}
	return error;
}

static bool reads(unsigned i, uint32_t peer, struct nic_bulk_key key, uint64_t offset, uint32_t len, uint64_t user)
{
	unsigned fine = to_poller[i][user].read, bad = to_poller[i][user].failed;
	if (read_it(i, peer, key, offset, len, user))
		return false;
	for (unsigned n = 0; n < PATIENCE && to_poller[i][user].read == fine && to_poller[i][user].failed == bad; n++)
		turn();
	return to_poller[i][user].read > fine;
}

/* ---- as it is meant ---- */

Test(verbs_bulk, a_window_for_each_message)
{
	begin();
	struct nic_caps caps;
	unsigned a = open_with(BULK), b = open_with(BULK);
	verbs_port_ops.caps(&ports[a]->base, &caps);
	cr_assert(caps.one_sided && caps.bulk_bytes_min == 65536 && caps.rx_slots == 512);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), to_a = fixture_dest(ports[b], ports[a], 0), h1, h2;
	struct nic_bulk_key one = expose(a, to_b, memory[a], BYTES / 2, 1, &h1);
	struct nic_bulk_key two = expose(a, to_b, memory[a] + BYTES / 2, BYTES / 2, 2, &h2);
	cr_assert_neq((uint32_t)one.key, (uint32_t)two.key, "a key is of one message");
	for (uint32_t at = 0; at < BYTES / 2; at += 100000)
		cr_assert(reads(b, to_a, one, at, BYTES / 2 - at < 100000 ? BYTES / 2 - at : 100000, 3));
	cr_assert_eq(memcmp(memory[b] + BYTES, memory[a], BYTES / 2), 0);
	ops()->withdraw(queue_of(a), h1);
	cr_assert(until(&to_poller[a][1].withdrawn, 1));
	/* The other one is untouched, and packets go on beside it. */
	cr_assert(reads(b, to_a, two, 0, BYTES / 2, 4));
	cr_assert_eq(memcmp(memory[b] + BYTES, memory[a] + BYTES / 2, BYTES / 2), 0);
	ops()->withdraw(queue_of(a), h2);
	ops()->withdraw(queue_of(a), h2);
	cr_assert(until(&to_poller[a][2].withdrawn, 1));
	turn();
	cr_assert(to_poller[a][1].withdrawn == 1 && to_poller[a][2].withdrawn == 1 && to_poller[a][1].exposed == 1);
	cr_assert_eq(fake_verbs.binds, 2);
	cr_assert_eq(fake_verbs.invalidated, 2);
	cr_assert_eq(ports[a]->queues[0]->rc->ops_n + ports[b]->queues[0]->rc->ops_n, 0);
	close_all();
}

/* Both ways by one connection, and keys change from message to message though windows are the same. */
Test(verbs_bulk, keys_change)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), to_a = fixture_dest(ports[b], ports[a], 0), h;
	uint64_t before = 0;
	for (unsigned i = 1; i <= 40; i++) {
		bool there = i % 2;
		struct nic_bulk_key key =
			expose(there ? a : b, there ? to_b : to_a, memory[there ? a : b], 65536, i, &h);
		cr_assert_neq(key.key, before);
		before = key.key;
		cr_assert(reads(there ? b : a, there ? to_a : to_b, key, 0, 65536, i));
		ops()->withdraw(queue_of(there ? a : b), h);
		cr_assert(until(&to_poller[there ? a : b][i].withdrawn, 1));
	}
	cr_assert_leq(fake_cm.connects, 2);
	close_all();
}

Test(verbs_bulk, wakes_who_sleeps)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), to_a = fixture_dest(ports[b], ports[a], 0), h;
	struct nic_bulk_key key = expose(a, to_b, memory[a], BYTES, 1, &h);
	cr_assert(reads(b, to_a, key, 0, 1, 2), "its memory is registered");
	fake_verbs.reads_held = true;
	cr_assert_eq(read_it(b, to_a, key, 0, BYTES, 3), 0);
	struct nic_queue *q = queue_of(b);
	q->ops->wake_clear(q);
	q->ops->arm(q);
	take(b);
	struct pollfd fd = {.fd = q->ops->wake_fd(q), .events = POLLIN};
	cr_assert_eq(poll(&fd, 1, 0), 0);
	fake_verbs.reads_held = false;
	cr_assert_eq(poll(&fd, 1, 30000), 1);
	q->ops->wake_clear(q);
	q->ops->disarm(q);
	cr_assert(until(&to_poller[b][3].read, 1));
	close_all();
}

/* ---- what others may not ---- */

static void say_key(unsigned i, uint32_t peer, struct nic_bulk_key key)
{
	struct nic_queue *q = queue_of(i);
	struct nic_tx tx;
	uint64_t words[] = {__builtin_bswap64(key.key), __builtin_bswap64(key.addr)};
	cr_assert_eq(q->ops->tx_reserve(q, peer, sizeof words + 1, &tx), 0);
	memcpy(tx.body + 1, words, sizeof words); /* wherever the engine may put it */
	cr_assert_eq(q->ops->tx_commit(q, &tx), 0);
	fixture_flush(ports[i]);
}

/* All that leaves is looked through: what connections say in their set-up, and the keys that are handed out. */
Test(verbs_bulk, keys_of_regions_stay_here)
{
	begin();
	fake_verbs.keys_watched = true;
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), to_a = fixture_dest(ports[b], ports[a], 0), h;
	for (unsigned i = 1; i <= 40; i++) {
		struct nic_bulk_key key = expose(a, to_b, memory[a] + i, 65536, i, &h);
		if (i == 1)
			cr_assert_geq(fake_verbs.keys_looked, sizeof(struct verbs_connect_request),
				      "words of a connection");
		say_key(a, to_b, key);
		cr_assert_eq(fake_verbs.keys_seen, 0, "in message %u", i);
		cr_assert(reads(b, to_a, key, 0, 65536, i));
		ops()->withdraw(queue_of(a), h);
		cr_assert(until(&to_poller[a][i].withdrawn, 1));
	}
	cr_assert(fake_verbs.keys_looked >= 40 * 17 && fake_verbs.keys_seen == 0);
	/* Who did it would be seen. */
	say_key(a, to_b, (struct nic_bulk_key){fake_verbs_region_key(memory[a]), 0});
	cr_assert_eq(fake_verbs.keys_seen, 1);
	close_all();
}

Test(verbs_bulk, nothing_after_it_was_withdrawn)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), to_a = fixture_dest(ports[b], ports[a], 0), h;
	struct nic_bulk_key key = expose(a, to_b, memory[a], BYTES, 1, &h);
	cr_assert(reads(b, to_a, key, 0, BYTES, 2));
	ops()->withdraw(queue_of(a), h);
	cr_assert(until(&to_poller[a][1].withdrawn, 1));
	cr_assert(!reads(b, to_a, key, 0, 64, 3));
	cr_assert_eq(to_poller[b][3].failed, 1);
	cr_assert_eq(fake_verbs.read_naks, 1);
	/* That broke the connection; the next one is made when it is wanted, with windows of its own. */
	struct nic_bulk_key next = expose(a, to_b, memory[a], BYTES, 4, &h);
	cr_assert_neq(next.key >> 32, key.key >> 32);
	cr_assert(reads(b, to_a, next, 0, BYTES, 5));
	/* One that is being read: what was not read yet is not. */
	fake_verbs.reads_held = true;
	cr_assert_eq(read_it(b, to_a, next, 0, BYTES, 6), 0);
	ops()->withdraw(queue_of(a), h);
	cr_assert(until(&to_poller[a][4].withdrawn, 1));
	memset(memory[a], 0xee, BYTES); /* it is the caller's again */
	fake_verbs.reads_held = false;
	cr_assert(until(&to_poller[b][6].failed, 1));
	cr_assert_eq(to_poller[b][6].read, 0);
	cr_assert_neq(memory[b][BYTES], 0xee);
	close_all();
}

/* By whom, with which key, which bytes. */
Test(verbs_bulk, only_what_was_handed_out)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK), c = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), to_a = fixture_dest(ports[b], ports[a], 0), h, hc;
	uint32_t to_c = fixture_dest(ports[a], ports[c], 0), c_to_a = fixture_dest(ports[c], ports[a], 0);
	for (unsigned i = 0; i < 5; i++) {
		struct nic_bulk_key key = expose(a, to_b, memory[a] + 4096, 65536, 10 + i, &h), bad = key;
		struct nic_bulk_key other = expose(a, to_c, memory[a], 4096, 20 + i, &hc);
		unsigned naks = fake_verbs.read_naks;
		bool got = false;
		cr_assert(reads(b, to_a, key, 0, 65536, 1));
		if (i == 0)
			got = reads(b, to_a, key, 1, 65536, 2); /* one byte behind it */
		bad.addr--;
		if (i == 1)
			got = reads(b, to_a, bad, 0, 65536, 2); /* one before */
		bad = key;
		bad.key ^= 1;
		if (i == 2)
			got = reads(b, to_a, bad, 0, 64, 2);
		/* The region's own key opens nothing. */
		bad.key = key.key >> 32 << 32 | fake_verbs_region_key(memory[a]);
		cr_assert_neq((uint32_t)bad.key, 0);
		if (i == 3)
			got = reads(b, to_a, bad, 0, 64, 2);
		/* Another peer with the right key, by its own connection. */
		bad.key = other.key >> 32 << 32 | (uint32_t)key.key;
		if (i == 4)
			got = reads(c, c_to_a, bad, 0, 64, 2);
		cr_assert(!got, "case %u", i);
		cr_assert_eq(fake_verbs.read_naks, naks + 1, "case %u", i);
		cr_assert(until(&to_poller[a][i == 4 ? 20 + i : 10 + i].withdrawn, 1), "with its connection");
	}
	/* Nothing of these comes to the network. */
	struct nic_bulk_key key = expose(a, to_b, memory[a], 65536, 30, &h), bad = key;
	cr_assert_eq(ops()->read(queue_of(c), c_to_a, &key, 0, memory[c], 64, 1), -ENOTCONN);
	cr_assert_eq(ops()->read(queue_of(b), to_a, &key, UINT64_MAX - key.addr + 1, memory[b], 64, 1), -EINVAL);
	bad.addr = UINT64_MAX - 32;
	cr_assert_eq(ops()->read(queue_of(b), to_a, &bad, 0, memory[b], 64, 1), -EINVAL);
	cr_assert_eq(ops()->read(queue_of(b), to_a, &key, 0, memory[b], 0, 1), -EINVAL);
	cr_assert_eq(ops()->read(queue_of(b), 4711, &key, 0, memory[b], 64, 1), -EPIPE);
	cr_assert_eq(ops()->expose(queue_of(a), to_b, memory[a], 0, 1, &h, &key), -EINVAL);
	cr_assert_eq(ops()->expose(queue_of(a), 4711, memory[a], 64, 1, &h, &key), -EPIPE);
	close_all();
}

Test(verbs_bulk, who_has_none)
{
	begin();
	unsigned a = open_with(BULK), b = open_with("fake0,gid=2,bulk=off");
	struct nic_bulk_key key;
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), h;
	cr_assert_null(queue_of(b)->ops->bulk);
	cr_assert_eq(ops()->expose(queue_of(a), to_b, memory[a], 65536, 1, &h, &key), -EOPNOTSUPP);
	cr_assert_eq(verbs_port_ops.mem_register(&ports[b]->base, memory[b], 4096, &err), -EOPNOTSUPP);
	cr_assert(strstr(err.text, "bulk="));
	close_all();
}

/* ---- ways out ---- */

/* Connections break: both sides get an event, and their memory back. */
Test(verbs_bulk, broken_connections)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), to_a = fixture_dest(ports[b], ports[a], 0), h, h2;
	for (unsigned i = 1; i <= 3; i++) {
		struct nic_bulk_key key = expose(a, to_b, memory[a], BYTES, i, &h);
		expose(a, to_b, memory[a] + BYTES, BYTES, 20 + i, &h2);
		fake_verbs.reads_held = true;
		cr_assert_eq(read_it(b, to_a, key, 0, BYTES, i), 0);
		cr_assert_eq(verbs_port_ops.mem_unregister(&ports[a]->base, memory[a], (size_t)2 * BYTES, &err),
			     -EBUSY);
		if (i == 2)
			ops()->withdraw(queue_of(a), h);
		cr_assert_geq(fake_verbs_break_all(IBV_QPT_RC), 2);
		fake_verbs.reads_held = false;
		cr_assert(until(&to_poller[a][i].withdrawn, 1));
		cr_assert(until(&to_poller[a][20 + i].withdrawn, 1));
		cr_assert(until(&to_poller[b][i].failed, 1));
		cr_assert_eq(verbs_port_ops.mem_unregister(&ports[a]->base, memory[a], (size_t)2 * BYTES, &err), 0,
			     "%s", err.text);
	}
	cr_assert_eq(ports[a]->queues[0]->rc->ops_n + ports[b]->queues[0]->rc->ops_n, 0);
	close_all();
}

/* The other end is closed. */
Test(verbs_bulk, the_other_end_goes)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), h;
	expose(a, to_b, memory[a], BYTES, 1, &h);
	verbs_port_ops.close(&ports[b]->base);
	ports_n = 1;
	cr_assert(until(&to_poller[a][1].withdrawn, 1));
	close_all();
}

Test(verbs_bulk, the_device_goes)
{
	begin();
	unsigned a = open_with(BULK);
	uint32_t to = fixture_dest(ports[a], ports[a], 0), h;
	struct nic_bulk_key key = expose(a, to, memory[a], 65536, 1, &h);
	fake_verbs.reads_held = true;
	cr_assert_eq(read_it(a, to, key, 0, 65536, 2), 0);
	fake_verbs_event(IBV_EVENT_DEVICE_FATAL);
	fixture_step(ports[a]);
	ops()->withdraw(queue_of(a), h);
	cr_assert_eq(ops()->expose(queue_of(a), to, memory[a], 65536, 3, &h, &key), -EAGAIN);
	cr_assert(until(&to_poller[a][1].withdrawn, 1));
	cr_assert(until(&to_poller[a][2].failed, 1));
	cr_assert(fake_verbs.contexts == 0 && fake_verbs.mws == 0 && fake_verbs.mrs == 0);
	cr_assert_eq(verbs_port_ops.mem_register(&ports[a]->base, memory[a], 4096, &err), -ENODEV);
	fake_verbs.reads_held = false;
	close_all();
}

/* ---- bounds ---- */

Test(verbs_bulk, as_many_windows_as_there_are)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), handles[VERBS_WINDOWS], h;
	struct nic_bulk_key key;
	for (unsigned i = 0; i < VERBS_WINDOWS; i++)
		expose(a, to_b, memory[a], 65536, i, &handles[i]);
	cr_assert_eq(ops()->expose(queue_of(a), to_b, memory[a], 65536, 50, &h, &key), -EAGAIN);
	ops()->withdraw(queue_of(a), handles[3]);
	cr_assert(until(&to_poller[a][3].withdrawn, 1));
	expose(a, to_b, memory[a], 65536, 50, &h);
	close_all();
}

/* A connection with something exposed is not closed for another one's sake; afterwards it is. */
Test(verbs_bulk, busy_ones_are_kept)
{
	begin();
	unsigned a = open_with(BULK ",connections=2"), b[3];
	uint32_t to[3], h[3], back;
	struct nic_bulk_key key[3] = {{0, 0}};
	for (unsigned i = 0; i < 3; i++) {
		b[i] = open_with(BULK);
		to[i] = fixture_dest(ports[a], ports[b[i]], 0);
	}
	for (unsigned i = 0; i < 2; i++)
		key[i] = expose(a, to[i], memory[a], 65536, i, &h[i]);
	for (unsigned n = 0; n < 300; n++) {
		cr_assert_eq(ops()->expose(queue_of(a), to[2], memory[a], 65536, 2, &h[2], &key[2]), -EAGAIN);
		turn();
	}
	cr_assert(!to_poller[a][0].withdrawn && !to_poller[a][1].withdrawn);
	back = fixture_dest(ports[b[0]], ports[a], 0);
	cr_assert(reads(b[0], back, key[0], 0, 65536, 5));
	ops()->withdraw(queue_of(a), h[0]);
	cr_assert(until(&to_poller[a][0].withdrawn, 1));
	expose(a, to[2], memory[a], 65536, 2, &h[2]);
	cr_assert(!to_poller[a][1].withdrawn);
	close_all();
}

/* No memory may be locked: said, not tried all the time, and tried again. */
Test(verbs_bulk, memory_that_cannot_be_registered)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), h;
	struct nic_bulk_key key;
	static uint8_t stack[65536];
	fake_verbs.reg_most = BYTES;
	int error = -EAGAIN;
	for (unsigned n = 0; n < PATIENCE && error == -EAGAIN; n++) {
		error = ops()->expose(queue_of(a), to_b, memory[a], 65536, 1, &h, &key);
		turn();
	}
	cr_assert_eq(error, -ENOMEM);
	cr_assert(strstr(ports[a]->mems->why.text, "ulimit -l"), "%s", ports[a]->mems->why.text);
	cr_assert_eq(verbs_port_ops.mem_register(&ports[a]->base, memory[a], (size_t)2 * BYTES, &err), -ENOMEM);
	cr_assert(strstr(err.text, "ulimit -l") && strstr(err.text, "bulk=off") && !strstr(err.text, "rx_slots"), "%s",
		  err.text);
	fake_verbs.reg_most = 0;
	error = -ENOMEM;
	for (unsigned n = 0; n < PATIENCE && error; n++) {
		error = ops()->expose(queue_of(a), to_b, memory[a], 65536, 1, &h, &key);
		turn();
	}
	cr_assert_eq(error, 0);
	/* Memory of the application's: when it registers it. */
	error = -EAGAIN;
	for (unsigned n = 0; n < PATIENCE && error == -EAGAIN; n++) {
		error = ops()->expose(queue_of(a), to_b, stack, sizeof stack, 2, &h, &key);
		turn();
	}
	cr_assert_eq(error, -ENOMEM);
	cr_assert_eq(verbs_port_ops.mem_register(&ports[a]->base, stack, sizeof stack, &err), 0);
	expose(a, to_b, stack, sizeof stack, 2, &h);
	cr_assert_eq(verbs_port_ops.mem_unregister(&ports[a]->base, stack, sizeof stack, &err), -EBUSY);
	ops()->withdraw(queue_of(a), h);
	cr_assert(until(&to_poller[a][2].withdrawn, 1));
	cr_assert_eq(verbs_port_ops.mem_unregister(&ports[a]->base, stack, sizeof stack, &err), 0);
	cr_assert_eq(verbs_port_ops.mem_unregister(&ports[a]->base, stack, sizeof stack, &err), -EINVAL);
	cr_assert_eq(verbs_port_ops.mem_register(&ports[a]->base, stack, 0, &err), -EINVAL);
	close_all();
}

/* Windows are not to be had: there is no connection, and packets go. */
Test(verbs_bulk, no_windows_left)
{
	begin();
	unsigned a = open_with(BULK), b = open_with(BULK);
	uint32_t to_b = fixture_dest(ports[a], ports[b], 0), h;
	struct nic_bulk_key key;
	uint64_t got[16];
	fake_verbs.mw_error = ENOMEM;
	for (unsigned n = 0; n < 300; n++) {
		cr_assert_eq(ops()->expose(queue_of(a), to_b, memory[a], 65536, 1, &h, &key), -EAGAIN);
		turn();
	}
	cr_assert_eq(fixture_commit(ports[a], to_b, 7, 100, 0), 0);
	fixture_flush(ports[a]);
	cr_assert_eq(fixture_take(ports[b], 0, got), 1);
	fake_verbs.mw_error = 0;
	expose(a, to_b, memory[a], 65536, 1, &h);
	close_all();
}

static void refused(const char *args, const char *why)
{
	const struct nic_config config = {.queues = 1, .args = args};
	struct nic_port *port = NULL;
	cr_assert_lt(verbs_port_ops.open(&config, &port, &err), 0, "%s", args);
	cr_assert(strstr(err.text, why), "%s", err.text);
}

Test(verbs_bulk, where_it_cannot_be)
{
	begin();
	refused("fake0,gid=2,bulk=1", "16384");
	refused("fake0,gid=2,bulk=on", "16384");
	refused("fake0,gid=2,rc=1,bulk=65536", "leave bulk= out");
	fake_verbs.limits.device_cap_flags = 0;
	refused(BULK, "memory windows of type 2");
	fake_verbs.limits.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2A;
	fake_verbs.limits.max_mw = 1;
	refused(BULK, "memory windows of type 2");
	fake_cm.absent = true;
	fake_verbs.limits.max_mw = 1000;
	refused(BULK, "librdmacm");
	fake_cm.absent = false;
	struct verbs_port *p = fixture_open("fake0,gid=2,bulk=off", 1);
	cr_assert_null(p->rc);
	fixture_close(p);
}
