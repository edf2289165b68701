/* SPDX-License-Identifier: BSD-3-Clause */
/** A port of the dpdk driver on a device that drops what it is given: what is refused before EAL starts, destinations
 * and their events, what close leaves. The test's thread. */
#include "nic/dpdk/dpdk.h"
#include "open_files.h"
#include "readable.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static const struct nic_port_ops *ops = &dpdk_port_ops;
static struct nic_port *port;
static struct nic_addr own;
static struct nic_err err;

static void begin(void)
{
	const struct nic_config config = {.queues = 2, .args = "net_null0,no-rx=1", .beyond_host = true};
	cr_assert_eq(ops->open(&config, &port, &err), 0, "%s", err.text);
	ops->address(port, &own);
}

static void end(void)
{
	if (port)
		ops->close(port);
	port = NULL;
}

TestSuite(dpdk_port, .fini = end);

/* Expect the same answer of probe() and open(), without a start of EAL. */
Test(dpdk_port, refused_before_anything_begins)
{
	static const struct {
		unsigned queues, head;
		const char *args;
		int error;
		const char *part;
	} cases[] = {{0, 0, "net_null0", -EINVAL, "dpdk: 1 to 16 queues, not 0"},
		     {17, 0, "net_null0", -EINVAL, "dpdk: 1 to 16 queues, not 17"},
		     {1, 28, "net_null0", -EINVAL, "no packet heads, but a head of 28 bytes"},
		     {1, 0, "net_null0,=1", -EINVAL, "is not key=value"},
		     {1, 0, "0000:03:00.0", -EPERM, "dpdk: 0000:03:00.0 leads to other hosts: give the group a key"},
		     {1, 0, "net_af_packet0,iface=far9", -EPERM, "dpdk: far9 leads to other hosts"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct nic_config config = {
			.queues = cases[i].queues, .head_bytes = cases[i].head, .args = cases[i].args};
		cr_assert_eq(ops->probe(&config, &err), cases[i].error, "case %zu: %s", i, err.text);
		cr_assert(strstr(err.text, cases[i].part), "%s", err.text);
		err.text[0] = '\0';
		cr_assert_eq(ops->open(&config, &port, &err), cases[i].error, "case %zu", i);
		cr_assert(strstr(err.text, cases[i].part), "%s", err.text);
		cr_assert_null(port);
	}
}

/* One device, opened twice in turn. Expect no descriptor left, and a second port of it refused meanwhile. */
Test(dpdk_port, close_leaves_nothing)
{
	const struct nic_config config = {.queues = 1, .args = "net_null0,no-rx=1", .beyond_host = true};
	struct nic_port *second = NULL;
	begin();
	end();
	unsigned before = open_files();
	begin();
	cr_assert_eq(ops->open(&config, &second, &err), -EBUSY);
	cr_assert(strstr(err.text, "net_null0 is in use in this process"), "%s", err.text);
	end();
	cr_assert_eq(open_files(), before);
}

Test(dpdk_port, properties)
{
	struct nic_caps caps;
	struct nic_stats stats;
	begin();
	struct dpdk_port *p = (struct dpdk_port *)port;
	ops->caps(port, &caps);
	cr_assert(caps.wake && caps.zero_copy_rx && !caps.poll_costs && caps.ip == NIC_IP_DRIVER);
	cr_assert(caps.peers_max == DPDK_DESTS_MAX && caps.queues_max == DPDK_QUEUES_MAX && caps.slots == DPDK_TX_MAX);
	cr_assert(caps.body_bytes_max == 1472 && caps.body_align == DPDK_BODY_ALIGN);
	cr_assert(ops->queue(port, 0) && ops->queue(port, 1) && !ops->queue(port, 2));
	cr_assert_not(ops->is_loopback(port, 0));
	cr_assert_str_eq(own.driver, "dpdk");
	for (unsigned i = 0; i < 2; i++) {
		p->queues[i]->counters.tx_packets = 10 + i;
		p->queues[i]->counters.unexpected = 100 + i;
		p->queues[i]->counters.missed = 1000 + i;
	}
	ops->stats(port, &stats);
	cr_assert(stats.tx_packets == 21 && stats.rx_unexpected == 201 && stats.rx_missed == 2001);
}

static struct {
	unsigned n;
	struct nic_event last;
	uint32_t drops; /* a destination that the callback drops; NIC_PEER_NONE: none */
} events = {.drops = NIC_PEER_NONE};

static int on_event(void *ctx, const struct nic_event *ev)
{
	events.n++;
	events.last = *ev;
	if (events.drops != NIC_PEER_NONE)
		ops->drop(port, events.drops);
	return 0;
}

static int connect_to(unsigned queue, unsigned remote, void *user)
{
	const struct nic_connect c = {.queue = queue, .addr = &own, .remote_queue = remote, .user = user};
	return ops->connect(port, &c, &err);
}

/* Queues of the port itself. Expect UP from the next step() on, once, by which the queue reaches the other. */
Test(dpdk_port, destinations)
{
	struct nic_pkt pkt;
	struct nic_tx tx;
	begin();
	ops->step(port, 1, on_event, NULL);
	cr_assert_eq(connect_to(0, 1, &tx), 0, "%s", err.text);
	cr_assert(events.n == 0 && is_readable(ops->fd(port)));
	ops->step(port, 1, on_event, NULL);
	cr_assert(events.n == 1 && events.last.type == NIC_EVENT_UP && events.last.user == &tx && !events.last.queue);
	ops->step(port, 1, on_event, NULL);
	cr_assert(events.n == 1 && !is_readable(ops->fd(port)));
	struct nic_queue *q = ops->queue(port, 0), *to = ops->queue(port, 1);
	uint32_t peer = events.last.peer;
	cr_assert_eq(to->ops->attach(to, peer), -EINVAL, "another queue's");
	cr_assert_eq(q->ops->attach(q, peer), 0);
	cr_assert_eq(q->ops->tx_reserve(q, peer, 5, &tx), 0);
	memcpy(tx.body, "hello", 5);
	cr_assert_eq(q->ops->tx_commit(q, &tx), 0);
	q->ops->flush(q);
	cr_assert_eq(to->ops->recv(to, &pkt, 1), 1u);
	cr_assert(pkt.body_len == 5 && memcmp(pkt.body, "hello", 5) == 0);
	ops->drop(port, peer);
	ops->drop(port, peer);
	ops->drop(port, DPDK_DESTS_MAX);
	cr_assert_eq(q->ops->tx_reserve(q, peer, 5, &tx), -EPIPE);
}

/* Dropped before their event, by the caller and by the callback of another one. Expect no event of them. */
Test(dpdk_port, destinations_that_are_dropped_early)
{
	int users[3];
	begin();
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(connect_to(0, 1, &users[i]), 0, "%s", err.text);
	ops->drop(port, 2);
	events.drops = 1;
	ops->step(port, 1, on_event, NULL);
	cr_assert(events.n == 1 && events.last.peer == 0 && events.last.user == &users[0]);
	events.drops = NIC_PEER_NONE;
	cr_assert_eq(connect_to(1, 0, &users[2]), 0, "the list goes on");
	ops->step(port, 1, on_event, NULL);
	cr_assert(events.n == 2 && events.last.user == &users[2] && events.last.queue == 1);
}

/* Queues that there are not, and addresses of no port. */
Test(dpdk_port, destinations_that_cannot_be)
{
	begin();
	cr_assert_eq(connect_to(2, 0, NULL), -EINVAL);
	cr_assert(strstr(err.text, "there is no queue 2; the port has 2"), "%s", err.text);
	cr_assert_eq(connect_to(0, 2, NULL), -EINVAL);
	cr_assert(strstr(err.text, "net_null0 has no queue 2, only 2"), "%s", err.text);
	own.blob[0] ^= 1; /* its version */
	cr_assert_lt(connect_to(0, 0, NULL), 0);
	own.blob[0] ^= 1;
	own.len--;
	cr_assert_lt(connect_to(0, 0, NULL), 0);
	ops->step(port, 1, on_event, NULL);
	cr_assert_eq(events.n, 0u);
}
