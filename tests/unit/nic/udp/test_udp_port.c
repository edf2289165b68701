/* SPDX-License-Identifier: BSD-3-Clause */
/** Ports: what opens, destinations and their events, and what addresses of others may say. The test's thread. */
#include "open_files.h"
#include "udp_script.h"

#include <poll.h>
#include <stdio.h>

TestSuite(udp_port, .init = setup, .fini = teardown);

static struct nic_err err;

static void refused(struct nic_config config, int error, const char *why)
{
	struct nic_port *port = NULL;
	unsigned files = open_files();
	cr_assert_eq(nic_udp_port_ops.open(&config, &port, &err), error, "%s: %s", why, err.text);
	cr_assert(strstr(err.text, why), "%s: %s", why, err.text);
	cr_assert(!port && open_files() == files, "%s", why);
	cr_assert_eq(nic_udp_port_ops.probe(&config, &err), error, "%s", why);
}

Test(udp_port, does_not_open)
{
	refused((struct nic_config){.queues = 0}, -EINVAL, "1 to 16 queues, not 0");
	refused((struct nic_config){.queues = 17}, -EINVAL, "1 to 16 queues, not 17");
	refused((struct nic_config){.queues = 1, .head_bytes = 28}, -EINVAL, "a head of 28 bytes");
	refused((struct nic_config){.queues = 1, .args = "colour=red"}, -EINVAL, "colour");
	refused((struct nic_config){.queues = 1, .listen = "198.51.100.77"}, -EADDRNOTAVAIL, "198.51.100.77");
	struct nic_port *port = NULL;
	unsigned files = open_files();
	no_epoll = true;
	const struct nic_config config = {.queues = 3, .listen = "127.0.0.1"};
	cr_assert_eq(nic_udp_port_ops.open(&config, &port, &err), -ENOSPC);
	no_epoll = false;
	cr_assert(!port && open_files() == files, "what was opened before is closed");
}

/* A port of several queues has a number for each, in a row if the first was chosen. */
Test(udp_port, a_port_that_is_taken)
{
	char args[64], other_port[64];
	struct nic_port *port = NULL;
	const uint16_t taken = ((struct udp_port *)(void *)b)->queues[0]->port_number;
	snprintf(args, sizeof args, "port=%u", taken);
	snprintf(other_port, sizeof other_port, "port %u: ", taken);
	const struct nic_config config = {.queues = 1, .args = args, .listen = own_address()};
	cr_assert_eq(nic_udp_port_ops.open(&config, &port, &err), -EADDRINUSE);
	cr_assert(strstr(err.text, other_port) && strstr(err.text, "choose another one by nic=udp:port=N"), "%s",
		  err.text);
}

Test(udp_port, promises)
{
	struct nic_caps caps;
	struct nic_addr addr;
	struct nic_port *port = NULL;
	char text[NIC_TEXT_BYTES_MAX];
	const struct nic_config config = {.queues = 4, .listen = "127.0.0.1", .args = "mtu=1500"};
	cr_assert_eq(nic_udp_port_ops.open(&config, &port, &err), 0, "%s", err.text);
	port->ops->caps(port, &caps);
	cr_assert(!caps.connected && !caps.reliable && caps.wake && caps.checksum && caps.head_bytes_max == 0);
	cr_assert(caps.body_bytes_max == 1472 && caps.queues_max == 16 && caps.slots == UDP_SLOTS);
	for (unsigned i = 0; i < 4; i++)
		cr_assert(port->ops->queue(port, i) &&
			  port->ops->queue(port, i) != port->ops->queue(port, (i + 1) % 4));
	cr_assert_null(port->ops->queue(port, 4));
	port->ops->address(port, &addr);
	cr_assert_str_eq(addr.driver, "udp");
	port->ops->address_text(&addr, text, sizeof text);
	cr_assert_eq(strncmp(text, "udp 127.0.0.1:", 14), 0, "%s", text);
	addr.len--;
	port->ops->address_text(&addr, text, sizeof text);
	cr_assert_str_eq(text, "udp (malformed)");
	port->ops->address_text(&addr, text, 0);
	port->ops->close(port);
	nic_udp_port_ops.caps(a, &caps);
	cr_assert_eq(caps.body_bytes_max, UDP_BYTES_MAX);
}

static unsigned ups, failed;
static uint32_t last;
static char failed_text[NIC_TEXT_BYTES_MAX];
static int failed_error;
static void *last_user;

static int count(void *ctx, const struct nic_event *ev)
{
	last_user = ev->user;
	if (ev->type == NIC_EVENT_FAILED) {
		failed++;
		failed_error = ev->error;
		cr_assert_eq(ev->peer, NIC_PEER_NONE);
		snprintf(failed_text, sizeof failed_text, "%s", ev->text);
		return 0;
	}
	ups++;
	last = ev->peer;
	return 0;
}

static int connect_to(const struct nic_addr *addr, unsigned queue, unsigned remote)
{
	return a->ops->connect(a, &(struct nic_connect){queue, addr, remote, NULL, 0, 0, &ups}, &err);
}

static void step(void)
{
	cr_assert_eq(a->ops->step(a, 0, count, NULL), UINT64_MAX);
}

Test(udp_port, destinations)
{
	struct pollfd p = {.fd = a->ops->fd(a), .events = POLLIN};
	step();
	cr_assert_eq(poll(&p, 1, 0), 0);
	cr_assert_eq(connect_to(&to_b, 0, 0), 0);
	cr_assert_eq(connect_to(&to_b, 0, 0), 0);
	cr_assert_eq(poll(&p, 1, 0), 1);
	cr_assert_eq(ups, 0u, "events come by step() alone");
	step();
	cr_assert(ups == 2 && last == other + 2 && last_user == &ups);
	cr_assert_eq(poll(&p, 1, 0), 0);
	step();
	cr_assert_eq(ups, 2u);
	cr_assert(a->ops->is_loopback(a, last) && !a->ops->is_loopback(a, last + 1));
	/* A number is used again; dropping one that is not there changes nothing. */
	a->ops->drop(a, last - 1);
	a->ops->drop(a, last - 1);
	a->ops->drop(a, UINT32_MAX);
	cr_assert_eq(connect_to(&to_b, 0, 0), 0);
	step();
	cr_assert_eq(last, other + 1);
	cr_assert_eq(connect_to(&to_b, 0, 0), 0);
	step();
	cr_assert_eq(last, other + 3);
}

/* One that is dropped before its event gets none; its number is free afterwards. */
Test(udp_port, dropped_before_it_is_up)
{
	cr_assert_eq(connect_to(&to_b, 0, 0), 0);
	cr_assert_eq(udp_queue_ops.attach(qa, other + 1), -EINVAL, "not up yet");
	a->ops->drop(a, other + 1);
	step();
	cr_assert_eq(ups + failed, 0u);
	cr_assert_eq(connect_to(&to_b, 0, 0), 0);
	step();
	cr_assert(ups == 1 && last == other + 1);
}

Test(udp_port, queues_that_are_not_there)
{
	cr_assert_eq(connect_to(&to_b, 1, 0), -EINVAL);
	cr_assert(strstr(err.text, "no queue 1; the port has 1"), "%s", err.text);
	cr_assert_eq(connect_to(&to_b, 0, UDP_QUEUES_MAX), -EINVAL);
	cr_assert_eq(connect_to(&to_b, 0, 1), 0);
	step();
	cr_assert(failed == 1 && failed_error == -ECHRNG && last_user == &ups);
	cr_assert(strstr(failed_text, "the peer has no queue 1"), "%s", failed_text);
}

Test(udp_port, addresses_that_lead_nowhere)
{
	struct nic_addr bad = to_b;
	bad.len = NIC_ADDR_BYTES_MAX + 1;
	cr_assert_eq(connect_to(&bad, 0, 0), -EINVAL);
	bad = to_b;
	bad.len--;
	cr_assert_eq(a->ops->reach(a, &bad, &err), -EINVAL);
	cr_assert(strstr(err.text, "malformed address"), "%s", err.text);
	/* The loopback of another host. */
	struct udp_addr there;
	cr_assert(udp_addr_decode(to_b.blob, to_b.len, &there));
	there.host++;
	bad.len = udp_addr_encode(&there, bad.blob);
	cr_assert_lt(a->ops->reach(a, &bad, &err), 0);
	cr_assert(strstr(err.text, own_address()), "%s", err.text);
	cr_assert_lt(connect_to(&bad, 0, 0), 0);
	step();
	cr_assert_eq(ups + failed, 0u, "what connect() refused has no event");
}

Test(udp_port, counts)
{
	struct nic_stats s;
	commit_row("abc", 100);
	flush();
	cr_assert_str_eq(received(), "abc");
	nic_udp_port_ops.stats(a, &s);
	cr_assert(s.tx_packets == 3 && s.tx_bytes == 300 && s.rx_packets == 0 && s.tx_dropped == 0);
	nic_udp_port_ops.stats(b, &s);
	cr_assert(s.rx_packets == 3 && s.rx_bytes == 300 && s.rx_missed == 0 && s.rx_malformed == 0);
}
