/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Set-up and end of shm connections. The refusal of another user's connection needs a second user id and is not tested
 * here. The test's thread.
 */
#include "base/clock.h"
#include "open_files.h"
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct test_port a, b;

static void setup(void)
{
	shm_dir_setup();
	test_port_open(&a, 1);
	test_port_open(&b, 2);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	cr_assert_eq(shm_test_sockets(), 0u, "a socket was left behind");
	shm_dir_teardown();
}

TestSuite(shm_port, .init = setup, .fini = teardown);

Test(shm_port, connect_and_reply_are_carried)
{
	uint32_t pa, pb;
	test_ports_connect(&a, &b, &pa, &pb);
	cr_assert_eq(a.events[0].user, &a);
	cr_assert_eq(a.events[0].handshake_len, 7u);
	cr_assert_eq(memcmp(a.events[0].handshake, "welcome", 7), 0);
	cr_assert_eq(memcmp(b.events[0].handshake, "hello", 5), 0);
	cr_assert_null(b.events[1].user);
}

Test(shm_port, connect_rejected)
{
	struct nic_addr addr;
	b.refuse = -EACCES;
	b.port->ops->address(b.port, &addr);
	unsigned files = open_files();
	cr_assert_eq(connect_to(&a, &addr, soon(UINT64_C(10000000000))), 0);
	test_ports_step(&a, 1, &b, 1);
	cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
	cr_assert_eq(a.events[0].error, -EACCES);
	cr_assert_eq(a.events[0].peer, NIC_PEER_NONE);
	cr_assert_eq(a.events[0].user, &a);
	cr_assert(strstr(a.events[0].text, ".sock"));
	cr_assert_eq(b.events_n, 1u);
	cr_assert_eq(open_files(), files, "a descriptor was left open");
}

Test(shm_port, nobody_there)
{
	struct nic_addr addr;
	b.port->ops->address(b.port, &addr);
	addr.blob[addr.len - 6] ^= 1;
	unsigned files = open_files();
	if (connect_to(&a, &addr, soon(1000000)) == 0) {
		test_ports_step(&a, 1, NULL, 0);
		cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
	}
	cr_assert_eq(open_files(), files);
}

Test(shm_port, somebody_who_says_nothing)
{
	struct nic_addr addr;
	b.port->ops->address(b.port, &addr);
	cr_assert_eq(connect_to(&a, &addr, soon(2000000)), 0);
	test_ports_step(&a, 1, NULL, 0);
	cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
	cr_assert_eq(a.events[0].error, -ETIMEDOUT);
}

/* ---- the end of a peer ---- */

static unsigned ups;

/* b replies to the second attempt between the port's look at its sockets and its look at the deadlines. */
static int reply_meanwhile(void *ctx, const struct nic_event *ev)
{
	cr_assert_eq(ev->type, NIC_EVENT_UP, "%s", ev->text ? ev->text : "");
	if (ups++ == 0)
		test_ports_step(&b, 4, NULL, 0);
	return 0;
}

/* Given up, it would end at b as the connection of a process that has died. */
Test(shm_port, a_reply_at_the_deadline_is_taken)
{
	struct nic_addr addr;
	uint64_t deadline = soon(UINT64_C(10000000000));
	b.port->ops->address(b.port, &addr);
	cr_assert_eq(connect_to(&a, &addr, deadline + 1), 0);
	test_ports_step(&b, 2, NULL, 0);
	cr_assert_eq(connect_to(&a, &addr, deadline), 0);
	a.port->ops->step(a.port, deadline, reply_meanwhile, NULL);
	cr_assert_eq(ups, 2u);
	test_ports_step(&b, 4, NULL, 0);
	cr_assert_eq(b.events_n, 4u);
	for (unsigned i = 0; i < 4; i++)
		cr_assert_neq(b.events[i].type, NIC_EVENT_DOWN);
}

Test(shm_port, closing_is_down_at_the_other_end)
{
	uint32_t pa, pb;
	test_ports_connect(&a, &b, &pa, &pb);
	b.q->ops->detach(b.q, pb);
	test_port_close(&b);
	test_ports_step(&a, 2, NULL, 0);
	cr_assert_eq(a.events[1].type, NIC_EVENT_DOWN);
	cr_assert_eq(a.events[1].peer, pa);
	cr_assert_lt(a.events[1].error, 0);
	a.q->ops->detach(a.q, pa);
	a.port->ops->drop(a.port, pa);
}

Test(shm_port, what_had_arrived_is_received_after_down)
{
	uint32_t pa, pb;
	struct nic_tx tx;
	struct nic_pkt pkts[4];
	test_ports_connect(&a, &b, &pa, &pb);
	cr_assert_eq(b.q->ops->tx_reserve(b.q, pb, 100000, &tx), 0);
	memset(tx.head, 1, 28);
	memset(tx.body, 9, 100000);
	cr_assert_eq(b.q->ops->tx_commit(b.q, &tx), 0);
	b.q->ops->flush(b.q);
	b.q->ops->detach(b.q, pb);
	test_port_close(&b);
	test_ports_step(&a, 2, NULL, 0);
	cr_assert_eq(a.q->ops->recv(a.q, pkts, 4), 1u);
	cr_assert_eq(pkts[0].body[99999], 9);
	a.q->ops->release(a.q, pa, pkts[0].cookie);
	a.q->ops->detach(a.q, pa);
	a.port->ops->drop(a.port, pa);
}

Test(shm_port, a_word_on_a_connection_that_is_up_is_its_end)
{
	uint32_t pa, pb;
	test_ports_connect(&a, &b, &pa, &pb);
	struct shm_link *link = ((struct shm_port *)(void *)a.port)->links[pa];
	cr_assert_eq(send(link->fd, "x", 1, 0), 1);
	test_ports_step(&b, 3, NULL, 0);
	cr_assert_eq(b.events[2].type, NIC_EVENT_DOWN);
}

Test(shm_port, a_peers_place_is_used_again)
{
	unsigned files = 0;
	uint32_t first = 0;
	for (int round = 0; round < 20; round++) {
		uint32_t pa, pb;
		test_ports_connect(&a, &b, &pa, &pb);
		if (round == 0)
			first = pa;
		cr_assert_eq(pa, first);
		a.q->ops->detach(a.q, pa);
		a.port->ops->drop(a.port, pa);
		test_ports_step(&b, 3, NULL, 0);
		cr_assert_eq(b.events[2].type, NIC_EVENT_DOWN);
		b.q->ops->detach(b.q, pb);
		b.port->ops->drop(b.port, pb);
		if (round == 0)
			files = open_files();
		cr_assert_eq(open_files(), files, "a descriptor was left open");
	}
	a.port->ops->drop(a.port, 77);
	a.port->ops->drop(a.port, UINT32_MAX);
	cr_assert_eq(a.q->ops->attach(a.q, 77), -EINVAL);
	cr_assert_eq(a.q->ops->attach(a.q, UINT32_MAX), -EINVAL);
}

Test(shm_port, configurations_that_cannot_be)
{
	struct nic_err err;
	struct nic_port *port;
	struct nic_config c = {.runtime_dir = shm_test_dir, .id = 9, .queues = 0, .head_bytes = 28};
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.queues = SHM_QUEUES_MAX + 1;
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	cr_assert(strstr(err.text, "queues"));
	c.queues = 1;
	c.head_bytes = 0;
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.head_bytes = SHM_REF_OFFSET + 1;
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.head_bytes = 28;
	cr_assert_eq(nic_shm_port_ops.probe(&c, &err), 0);
	cr_assert_eq(shm_test_sockets(), 2u, "probing leaves nothing behind");
}
