/* SPDX-License-Identifier: BSD-3-Clause */
/** A port of the transport: what it refuses to open over, its addresses, its capabilities. The test's thread. */
#include "transport/mail.h"
#include "transport/port.h"
#include "transport_fixture.h"

#include "base/random.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static struct nic_port_ops ops;
static struct nic_caps caps;
static uint16_t own_len;
static unsigned closed;

static void fake_caps(const struct nic_port *p, struct nic_caps *out)
{
	*out = caps;
}

static void fake_address(const struct nic_port *p, struct nic_addr *out)
{
	*out = (struct nic_addr){.len = own_len};
	snprintf(out->driver, sizeof out->driver, "fake");
}

static void fake_close(struct nic_port *p)
{
	closed++;
}

static struct nic_port lower = {&ops};

static void setup(void)
{
	fixture_init();
	ops = (struct nic_port_ops){.name = "fake", .caps = fake_caps, .address = fake_address, .close = fake_close};
	caps = (struct nic_caps){.body_bytes_max = 1500, .queues_max = 1, .peers_max = 10};
	own_len = 6;
	closed = 0;
}

TestSuite(transport_port, .init = setup, .fini = fixture_fini);

/* Each thing that makes it impossible. Expect what is wrong, with the bound, and the port below left to the caller. */
Test(transport_port, what_it_cannot_be_opened_over)
{
	struct nic_err err = {""};
	struct nic_port *p = NULL;
	struct transport_config config = {.queues = 1, .head_bytes = FIXTURE_HEAD};
	config.head_bytes = 27;
	cr_assert_eq(transport_open(&lower, &config, &p, &err), -EINVAL);
	cr_assert_str_eq(err.text, "fake: the transport needs heads of 28 bytes, not 27");
	config.head_bytes = FIXTURE_HEAD;
	config.queues = 0;
	cr_assert_eq(transport_open(&lower, &config, &p, &err), -EINVAL);
	config.queues = FAR_TRANSPORT_QUEUES_MAX + 1;
	cr_assert_eq(transport_open(&lower, &config, &p, &err), -EINVAL);
	cr_assert(strstr(err.text, "queues, not"), "%s", err.text);
	config.queues = 1;
	caps.body_bytes_max = TRANSPORT_PACKET_MIN - 1;
	cr_assert_eq(transport_open(&lower, &config, &p, &err), -EINVAL);
	cr_assert_str_eq(err.text, "fake: packets of 575 bytes are too small for the transport; it needs 576");
	caps.body_bytes_max = TRANSPORT_PACKET_MIN;
	own_len = NIC_ADDR_BYTES_MAX - TRANSPORT_ID_BYTES + 1;
	cr_assert_eq(transport_open(&lower, &config, &p, &err), -EINVAL);
	cr_assert(strstr(err.text, "leaves no room for the transport's identity"), "%s", err.text);
	cr_assert_null(p);
	cr_assert_eq(closed, 0u);
}

Test(transport_port, needed_over_datagrams_alone)
{
	struct nic_caps c = {.connected = true, .reliable = true, .ordered = true};
	cr_assert_not(transport_needed(&c));
	for (unsigned i = 0; i < 3; i++) {
		struct nic_caps less = c;
		*(i == 0 ? &less.connected : i == 1 ? &less.reliable : &less.ordered) = false;
		cr_assert(transport_needed(&less));
	}
}

/* Expect the driver's address and an identity behind it, which states the number of queues, and differs each time. */
Test(transport_port, addresses)
{
	struct nic_addr a, b, split;
	uint64_t id[2];
	end_open(0, 3);
	end_open(1, 1);
	const struct transport_port *p = (const struct transport_port *)fixture.ends[0].port;
	p->base.ops->address(&p->base, &a);
	fixture.ends[1].port->ops->address(fixture.ends[1].port, &b);
	cr_assert(transport_addr_split(&a, &split, &id[0]));
	cr_assert(split.len == p->own.len && memcmp(split.blob, p->own.blob, split.len) == 0);
	cr_assert_eq(id[0], p->id);
	cr_assert_eq(TRANSPORT_ID_QUEUES(id[0]), 3u);
	cr_assert(transport_addr_split(&b, &split, &id[1]));
	cr_assert_eq(TRANSPORT_ID_QUEUES(id[1]), 1u);
	cr_assert_neq(id[0], id[1]);
	a.len = TRANSPORT_ID_BYTES;
	cr_assert_not(transport_addr_split(&a, &split, &id[0]));
	a.len = NIC_ADDR_BYTES_MAX + 1;
	cr_assert_not(transport_addr_split(&a, &split, &id[0]));
	struct nic_err err = {""};
	cr_assert_eq(p->base.ops->reach(&p->base, &a, &err), -EINVAL);
	cr_assert(strstr(err.text, "malformed address"), "%s", err.text);
}

/* A driver below that reaches nothing. Expect the port to reach itself all the same, without the driver's words. */
static int fake_reach(const struct nic_port *p, const struct nic_addr *addr, struct nic_err *err)
{
	snprintf(err->text, sizeof err->text, "no route");
	return -ENETUNREACH;
}

Test(transport_port, it_reaches_itself)
{
	struct nic_addr own, other;
	struct nic_err err = {""};
	end_open(0, 1);
	end_open(1, 1);
	struct transport_port *p = (struct transport_port *)fixture.ends[0].port;
	p->base.ops->address(&p->base, &own);
	fixture.ends[1].port->ops->address(fixture.ends[1].port, &other);
	struct nic_port_ops mute = *p->lower->ops;
	const struct nic_port_ops *was = p->lower->ops;
	mute.reach = fake_reach;
	p->lower->ops = &mute;
	cr_assert_eq(p->base.ops->reach(&p->base, &own, &err), 0);
	cr_assert_str_empty(err.text);
	cr_assert_eq(p->base.ops->reach(&p->base, &other, &err), -ENETUNREACH);
	cr_assert_str_eq(err.text, "no route");
	p->lower->ops = was;
}

Test(transport_port, capabilities_and_queues)
{
	struct nic_caps c;
	end_open(0, 2);
	struct nic_port *p = fixture.ends[0].port;
	p->ops->caps(p, &c);
	cr_assert(c.connected && c.reliable && c.ordered && !transport_needed(&c));
	cr_assert_eq(c.head_bytes_max, FIXTURE_HEAD);
	cr_assert_leq(c.peers_max, FAR_TRANSPORT_PEERS_MAX);
	cr_assert(p->ops->queue(p, 0) && p->ops->queue(p, 1) && p->ops->queue(p, 0) != p->ops->queue(p, 1));
	cr_assert_null(p->ops->queue(p, 2));
	cr_assert_neq(transport_lower(p), p);
	cr_assert_eq(transport_lower(transport_lower(p)), transport_lower(p), "a driver's port has none below");
	/* Counters of a port that is none of the transport are 0. */
	struct transport_stats stats;
	memset(&stats, 0xee, sizeof stats);
	transport_stats_read(transport_lower(p), &stats);
	cr_assert(stats.resent == 0 && stats.refused == 0);
}

/* A step is requested. Expect the descriptor readable until there was one. */
Test(transport_port, a_signal_makes_it_readable)
{
	end_open(0, 1);
	struct transport_port *p = (struct transport_port *)fixture.ends[0].port;
	struct pollfd fd = {.fd = p->base.ops->fd(&p->base), .events = POLLIN};
	fixture_turn();
	cr_assert_eq(poll(&fd, 1, 0), 0);
	transport_port_signal(p);
	transport_port_signal(p);
	cr_assert_eq(poll(&fd, 1, 0), 1);
	fixture_turn();
	cr_assert_eq(poll(&fd, 1, 0), 0);
}
