/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports with several queues, and with all the peers that a port can have. The test's thread. */
#include "base/clock.h"
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

static struct test_port a, b;

static void setup(void)
{
	shm_dir_setup();
	test_port_open_queues(&a, 1, 3);
	test_port_open_queues(&b, 2, SHM_QUEUES_MAX);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	shm_dir_teardown();
}

TestSuite(shm_queues, .init = setup, .fini = teardown);

static struct nic_queue *queue(struct test_port *p, unsigned i)
{
	return p->port->ops->queue(p->port, i);
}

static int send_tag(struct nic_queue *q, uint32_t peer, uint32_t tag)
{
	struct nic_tx tx;
	int error = q->ops->tx_reserve(q, peer, 4, &tx);
	if (error)
		return error;
	memset(tx.head, 0, 28);
	memcpy(tx.body, &tag, 4);
	error = q->ops->tx_commit(q, &tx);
	q->ops->flush(q);
	return error;
}

static void expect_tag(struct nic_queue *q, uint32_t peer, uint32_t tag)
{
	struct nic_pkt pkts[2];
	uint32_t got;
	cr_assert_eq(q->ops->recv(q, pkts, 2), 1u);
	memcpy(&got, pkts[0].body, 4);
	cr_assert_eq(got, tag);
	cr_assert_eq(pkts[0].peer, peer);
}

static void expect_nothing(struct nic_queue *q)
{
	struct nic_pkt pkt;
	cr_assert_eq(q->ops->recv(q, &pkt, 1), 0u);
}

Test(shm_queues, as_many_as_were_asked_for)
{
	for (unsigned i = 0; i < 3; i++)
		cr_assert_not_null(queue(&a, i));
	cr_assert_null(queue(&a, 3));
	cr_assert_null(queue(&a, UINT32_MAX));
	cr_assert_not_null(queue(&b, SHM_QUEUES_MAX - 1));
	cr_assert_null(queue(&b, SHM_QUEUES_MAX));
}

Test(shm_queues, each_pair_has_packets_of_its_own)
{
	uint32_t to[3][SHM_QUEUES_MAX], from[3][SHM_QUEUES_MAX];
	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < SHM_QUEUES_MAX; j++)
			test_ports_link(&a, i, &b, j, &to[i][j], &from[i][j]);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < SHM_QUEUES_MAX; j++) {
			cr_assert_eq(send_tag(queue(&a, i), to[i][j], i * 100 + j), 0);
			for (unsigned k = 0; k < SHM_QUEUES_MAX; k++)
				if (k != j)
					expect_nothing(queue(&b, k));
			expect_tag(queue(&b, j), from[i][j], i * 100 + j);
			cr_assert_eq(send_tag(queue(&b, j), from[i][j], 7), 0);
			expect_tag(queue(&a, i), to[i][j], 7);
		}
}

Test(shm_queues, each_wakes_its_own)
{
	uint32_t to[3], from[3];
	for (unsigned i = 0; i < 3; i++)
		test_ports_link(&b, i, &a, i, &from[i], &to[i]);
	for (unsigned i = 0; i < 3; i++)
		queue(&a, i)->ops->arm(queue(&a, i));
	cr_assert_eq(send_tag(queue(&b, 1), from[1], 5), 0);
	for (unsigned i = 0; i < 3; i++) {
		struct pollfd p = {.fd = queue(&a, i)->ops->wake_fd(queue(&a, i)), .events = POLLIN};
		cr_assert_eq(poll(&p, 1, 0), i == 1);
	}
	expect_tag(queue(&a, 1), to[1], 5);
}

static void expect_self_connections(void)
{
	uint32_t to[3][3], from[3][3];
	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < 3; j++) {
			test_ports_link(&a, i, &a, j, &to[i][j], &from[i][j]);
			cr_assert_eq(to[i][j] == from[i][j], i == j);
		}
	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < 3; j++) {
			cr_assert_eq(send_tag(queue(&a, i), to[i][j], 1 + i * 3 + j), 0);
			expect_tag(queue(&a, j), from[i][j], 1 + i * 3 + j);
			if (i == j)
				continue;
			cr_assert_eq(send_tag(queue(&a, j), from[i][j], 50), 0);
			expect_tag(queue(&a, i), to[i][j], 50);
		}
	/* One end's drop is the other's DOWN, at its queue. */
	queue(&a, 0)->ops->detach(queue(&a, 0), to[0][2]);
	a.events_n = 0;
	a.port->ops->drop(a.port, to[0][2]);
	test_ports_step(&a, 1, NULL, 0);
	cr_assert_eq(a.events[0].type, NIC_EVENT_DOWN);
	cr_assert_eq(a.events[0].peer, from[0][2]);
	cr_assert_eq(a.events[0].queue, 2u);
}

Test(shm_queues, a_port_connected_to_itself)
{
	expect_self_connections();
}

/* Without a directory, and nobody else gets at it. */
Test(shm_queues, a_private_port)
{
	struct nic_config config = {.runtime_dir = "/proc/no-such-directory", .queues = 3, .head_bytes = 28};
	struct nic_err err = {""};
	struct nic_addr addr;
	uint64_t soon = clock_now(&clock_monotonic) + UINT64_C(10000000000);
	test_port_close(&a);
	cr_assert_lt(nic_shm_port_ops.open(&config, &a.port, &err), 0);
	config.args = "privately";
	cr_assert_eq(nic_shm_port_ops.open(&config, &a.port, &err), -EINVAL);
	cr_assert(strstr(err.text, "privately"), "%s", err.text);
	config.args = "private";
	cr_assert_eq(nic_shm_port_ops.open(&config, &a.port, &err), 0, "%s", err.text);
	b.port->ops->address(b.port, &addr);
	cr_assert_eq(a.port->ops->connect(a.port, &(struct nic_connect){0, &addr, 1, NULL, 0, soon, &a}, &err),
		     -ECONNREFUSED);
	a.port->ops->address(a.port, &addr);
	cr_assert_lt(b.port->ops->reach(b.port, &addr, &err), 0);
	cr_assert_lt(b.port->ops->connect(b.port, &(struct nic_connect){0, &addr, 1, NULL, 0, soon, &b}, &err), 0);
	expect_self_connections();
}

Test(shm_queues, a_peer_belongs_to_one)
{
	uint32_t to, from;
	test_ports_link(&a, 1, &b, 5, &to, &from);
	struct nic_queue *own = queue(&a, 1), *other = queue(&a, 2);
	cr_assert_eq(own->ops->attach(own, to), -EINVAL, "attached twice");
	cr_assert_eq(other->ops->attach(other, to), -EINVAL);
	cr_assert_eq(send_tag(other, to, 1), -EPIPE);
	other->ops->detach(other, to);
	cr_assert_eq(send_tag(own, to, 2), 0);
	expect_tag(queue(&b, 5), from, 2);
	own->ops->detach(own, to);
	cr_assert_eq(other->ops->attach(other, to), -EINVAL);
	cr_assert_eq(own->ops->attach(own, to), 0);
	cr_assert_eq(send_tag(queue(&b, 5), from, 3), 0);
	expect_tag(own, to, 3);
}

Test(shm_queues, one_that_is_not_there)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	uint64_t soon = clock_now(&clock_monotonic) + UINT64_C(10000000000);
	a.port->ops->address(a.port, &addr);
	cr_assert_eq(
		b.port->ops->connect(b.port, &(struct nic_connect){SHM_QUEUES_MAX, &addr, 0, NULL, 0, soon, &b}, &err),
		-EINVAL);
	cr_assert(strstr(err.text, "queue 16"), "%s", err.text);
	cr_assert_eq(
		b.port->ops->connect(b.port, &(struct nic_connect){0, &addr, SHM_QUEUES_MAX, NULL, 0, soon, &b}, &err),
		-EINVAL);
	cr_assert(strstr(err.text, "queue 16"), "%s", err.text);
	cr_assert_eq(b.port->ops->connect(b.port, &(struct nic_connect){0, &addr, 3, NULL, 0, soon, &b}, &err), 0);
	test_ports_step(&b, 1, &a, 0);
	cr_assert_eq(b.events[0].type, NIC_EVENT_FAILED);
	cr_assert(strstr(b.events[0].text, "no queue 3"), "%s", b.events[0].text);
	cr_assert_eq(a.events_n, 0u, "the engine got an event");
	/* Itself, from one that is there to one that is not. */
	b.events_n = 0;
	cr_assert_eq(a.port->ops->connect(a.port, &(struct nic_connect){0, &addr, 3, NULL, 0, soon, &a}, &err), 0);
	test_ports_step(&a, 1, NULL, 0);
	cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
}

/* Links of a queue to itself need no descriptors, so all that a port can have fit a process. */
Test(shm_queues, all_peers_of_a_port, .timeout = 60)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	struct nic_queue *q = queue(&a, 0);
	struct nic_pkt pkts[16];
	a.port->ops->address(a.port, &addr);
	for (unsigned i = 0; i < SHM_PEERS_MAX; i++) {
		int error = a.port->ops->connect(a.port, &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, NULL},
						 &err);
		if (error == -ENOMEM)
			cr_skip_test("no address space for %u links: %s", i, err.text);
		cr_assert_eq(error, 0, "%s", err.text);
		a.events_n = 0;
		test_ports_step(&a, 1, NULL, 0);
		cr_assert_eq(a.events[0].peer, i);
		cr_assert_eq(q->ops->attach(q, i), 0);
	}
	cr_assert_eq(a.port->ops->connect(a.port, &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, NULL}, &err),
		     -ENOSPC);
	cr_assert(strstr(err.text, "4096 peers"), "%s", err.text);
	static uint8_t got[SHM_PEERS_MAX];
	for (unsigned i = 0; i < SHM_PEERS_MAX; i++)
		cr_assert_eq(send_tag(q, i, i), 0);
	/* By bounded passes: in each, at least one of some bells is answered. */
	unsigned total = 0;
	for (unsigned pass = 0; pass < 2 * SHM_PEERS_MAX && total < SHM_PEERS_MAX; pass++) {
		unsigned n = q->ops->recv(q, pkts, 16);
		for (unsigned k = 0; k < n; k++)
			got[pkts[k].peer]++;
		total += n;
	}
	for (unsigned i = 0; i < SHM_PEERS_MAX; i++)
		cr_assert_eq(got[i], 1, "%u packets from %u", got[i], i);
	/* A place that becomes free is used again, and only that. */
	q->ops->detach(q, 4000);
	a.port->ops->drop(a.port, 4000);
	a.events_n = 0;
	cr_assert_eq(a.port->ops->connect(a.port, &(struct nic_connect){1, &addr, 1, NULL, 0, UINT64_MAX, NULL}, &err),
		     0);
	test_ports_step(&a, 1, NULL, 0);
	cr_assert_eq(a.events[0].peer, 4000u);
	cr_assert_eq(q->ops->attach(q, 4000), -EINVAL);
}
