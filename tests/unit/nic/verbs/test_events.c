/* SPDX-License-Identifier: BSD-3-Clause */
/** The port goes down and up, its address disappears, the device is removed. The test's thread. */
#include "verbs_fixture.h"

#include <stdlib.h>
#include <sys/stat.h>

static void until_down(struct verbs_port *p, enum verbs_down down)
{
	for (unsigned i = 0; i < 5000 && p->down != down; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(p->down, down);
}

static int reach_self(struct verbs_port *p)
{
	struct nic_addr addr;
	verbs_port_ops.address(&p->base, &addr);
	return verbs_port_ops.reach(&p->base, &addr, &err);
}

Test(verbs_events, port_down_and_up)
{
	struct verbs_port *p = fixture_open(NULL, 1);
	fake_verbs.port_state = IBV_PORT_DOWN;
	fake_verbs_event(IBV_EVENT_PORT_ERR);
	until_down(p, VERBS_PORT_DOWN);
	cr_assert_eq(reach_self(p), -ENETDOWN);
	cr_assert(strstr(err.text, "port 1 is down"));
	verbs_queue_broken(p->queues[0]); /* as soft-RoCE does then */
	for (unsigned i = 0; i < 50; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(fixture_state(p, 0), VERBS_BROKEN);
	fake_verbs.port_state = IBV_PORT_ACTIVE;
	fake_verbs_event(IBV_EVENT_PORT_ACTIVE);
	until_down(p, VERBS_UP);
	for (unsigned i = 0; i < 5000 && fixture_state(p, 0) == VERBS_BROKEN; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(fixture_state(p, 0), VERBS_RECOVERED);
	cr_assert_eq(reach_self(p), 0);
	fake_verbs.gids[2].gid.raw[15]++;
	fake_verbs_event(IBV_EVENT_GID_CHANGE);
	until_down(p, VERBS_GID_GONE);
	cr_assert_eq(reach_self(p), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "has lost address 127.0.0.1"));
	fixture_close(p);
}

/* The device is let go of when all queues have left it, and not before; what remains does no harm. */
Test(verbs_events, device_is_removed)
{
	struct verbs_port *p = fixture_open(NULL, 2);
	struct nic_pkt pkts[4];
	uint32_t peer = fixture_dest(p, p, 0);
	fixture_commit(p, peer, 1, 100, 0);
	fixture_flush(p);
	fixture_commit(p, peer, 2, 100, 0); /* waits */
	fake_verbs_event(IBV_EVENT_DEVICE_FATAL);
	until_down(p, VERBS_GONE);
	for (unsigned i = 0; i < 20; i++)
		fixture_step(p);
	cr_assert_eq(fake_verbs.qps, 2);
	cr_assert_eq(verbs_queue_ops.recv(&p->queues[0]->base, pkts, 4), 0);
	cr_assert_eq(fixture_state(p, 0), VERBS_RELEASED);
	fixture_step(p);
	cr_assert_eq(fake_verbs.qps, 2);
	verbs_queue_ops.flush(&p->queues[1]->base);
	for (unsigned i = 0; i < 5000 && fake_verbs.contexts; i++, usleep(1000))
		fixture_step(p);
	cr_assert(fake_verbs.contexts == 0 && fake_verbs.qps == 0 && fake_verbs.ahs == 0);
	/* The holder does not know of it. */
	for (uint64_t i = 0; i < 1000; i++)
		cr_assert_eq(fixture_commit(p, peer, i, 100, 7), 0);
	fixture_flush(p);
	verbs_queue_ops.arm(&p->queues[0]->base);
	verbs_queue_ops.wake_clear(&p->queues[0]->base);
	cr_assert_eq(verbs_queue_ops.recv(&p->queues[0]->base, pkts, 4), 0);
	verbs_queue_ops.disarm(&p->queues[0]->base);
	verbs_queue_ops.wake(&p->queues[0]->base);
	cr_assert(fixture_stats(p).tx_dropped >= 1001);
	fixture_connect_self(p, -ENODEV);
	cr_assert(strstr(err.text, "was removed or has failed"));
	verbs_queue_ops.detach(&p->queues[0]->base, peer);
	verbs_port_ops.drop(&p->base, peer);
	fixture_close(p);
}

/* While a neighbour is resolved, and a queue is broken. */
Test(verbs_events, device_is_removed_in_the_middle)
{
	struct verbs_port *p = fixture_open(NULL, 1);
	struct nic_pkt pkts[4];
	fake_verbs.ah_delay_ms = 50;
	fixture_connect_self(p, 0);
	verbs_queue_broken(p->queues[0]);
	fake_verbs_event(IBV_EVENT_DEVICE_FATAL);
	until_down(p, VERBS_GONE);
	verbs_queue_ops.recv(&p->queues[0]->base, pkts, 4);
	cr_assert_eq(fixture_state(p, 0), VERBS_RELEASED);
	for (unsigned i = 0; i < 5000 && fake_verbs.contexts; i++, usleep(1000))
		fixture_step(p);
	cr_assert_eq(fake_verbs.contexts, 0);
	for (unsigned i = 0; i < 5000 && !ups && !fails; i++, usleep(1000))
		fixture_step(p);
	cr_assert(ups + fails == 1, "one of the two: it is settled");
	fixture_close(p);
}

/* It reports nothing, and its node stays; what is there now of the same name is another device. */
Test(verbs_events, device_is_removed_in_silence)
{
	char dir[] = "/tmp/farcall-entry.XXXXXX", entry[64], other[64];
	cr_assert(mkdtemp(dir));
	snprintf(entry, sizeof entry, "%s/uverbs0", dir);
	snprintf(other, sizeof other, "%s/uverbs1", dir);
	fake_verbs.entry = entry;
	for (unsigned how = 0; how < 2; how++) {
		cr_assert_eq(mkdir(entry, 0700), 0);
		struct verbs_port *p = fixture_open(NULL, 1);
		uint64_t now = verbs_now(), next = verbs_port_ops.step(&p->base, now, on_event, NULL);
		cr_assert_leq(next, now + VERBS_ENTRY_NS);
		cr_assert_eq(verbs_port_ops.step(&p->base, next, on_event, NULL), next + VERBS_ENTRY_NS);
		cr_assert_eq(p->down, VERBS_UP);
		cr_assert_eq(mkdir(other, 0700), 0);
		cr_assert_eq(how ? rename(other, entry) : rmdir(entry), 0);
		verbs_port_ops.step(&p->base, next + VERBS_ENTRY_NS - 1, on_event, NULL);
		cr_assert_eq(p->down, VERBS_UP, "not looked at before its time");
		verbs_port_ops.step(&p->base, next + VERBS_ENTRY_NS, on_event, NULL);
		cr_assert_eq(p->down, VERBS_GONE);
		verbs_queue_ops.flush(&p->queues[0]->base);
		for (unsigned i = 0; i < 5000 && fake_verbs.contexts; i++, usleep(1000))
			fixture_step(p);
		cr_assert_eq(fake_verbs.contexts, 0);
		fixture_close(p);
		cr_assert_eq(rmdir(how ? entry : other), 0);
	}
	rmdir(dir);
}
