/* SPDX-License-Identifier: BSD-3-Clause */
/** ARP of a port: requests that it answers, routers that it resolves, and routes. The frames are made by the driver's
 * own resolver (test_resolver.c). The test's thread. */
#include "nic/dpdk/dpdk.h"
#include "nic/dpdk/resolver.h"
#include "readable.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct dpdk_port p;
static struct dpdk_queue q;
static const struct frame_addr them = {.mac = {2, 0, 0, 0, 0, 9}, .ip = {10, 8, 0, 9}};
static const struct frame_addr router = {.mac = {2, 0, 0, 0, 0, 254}, .ip = {10, 8, 0, 254}};
static struct nic_err err;

static void setup(void)
{
	p.args.class = DPDK_OWN;
	snprintf(p.args.name, sizeof p.args.name, "net0");
	p.blob = (struct dpdk_blob){.prefix = 24, .mac = {2, 0, 0, 0, 0, 1}, .ip = {10, 8, 0, 1}, .port = 7471};
	p.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	p.queues[0] = &q;
	p.queues_n = 1;
	q.port = &p;
	q.me = dpdk_blob_frame_addr(&p.blob);
	cr_assert_eq(host_wake_open(&q.wake, -1, &err), 0);
	cr_assert_eq(dpdk_neighbour_open(&p, &err), 0, "%s", err.text);
	cr_assert(q.exception_path && q.responds);
}

static void teardown(void)
{
	free(q.exception_path);
	host_wake_close(&q.wake);
	close(p.event_fd);
}

TestSuite(dpdk_neighbour, .init = setup, .fini = teardown);

/* A request of `from` for this address. */
static void asked(const struct frame_addr *from, const uint8_t *ip)
{
	uint8_t frame[CONTROL_FRAME_BYTES_MAX];
	unsigned len = resolver_write_request(from, ip, NULL, frame);
	dpdk_neighbour_rx(&q, frame, len);
}

static unsigned waiting(struct exception_ring *r)
{
	return atomic_load(&r->tail) - atomic_load(&r->head);
}

/* The next frame that the port sends; copied out. */
static bool sent(struct exception_frame *out)
{
	const struct exception_frame *f = exception_next(&q.exception_path->out);
	if (!f)
		return false;
	*out = *f;
	exception_release(&q.exception_path->out);
	return true;
}

Test(dpdk_neighbour, answers_requests_for_its_address)
{
	struct exception_frame f;
	struct resolver_update news;
	asked(&them, q.me.ip);
	cr_assert(is_readable(p.event_fd), "the control thread is woken");
	cr_assert_not(sent(&f));
	cr_assert_eq(dpdk_neighbour_step(&p, 1000), UINT64_MAX);
	cr_assert(is_readable(q.wake.fd), "the poller is, too");
	cr_assert(sent(&f) && !sent(&f));
	cr_assert(resolver_read(&them, f.bytes, f.len, &news));
	cr_assert(memcmp(news.ip, q.me.ip, 4) == 0 && news.has_mac && memcmp(news.mac, q.me.mac, 6) == 0);
	/* For others, and where the kernel answers: no. */
	asked(&them, router.ip);
	cr_assert_eq(waiting(&q.exception_path->in), 0u);
	q.responds = false;
	asked(&them, q.me.ip);
	dpdk_neighbour_step(&p, 2000);
	cr_assert_not(sent(&f));
}

/* A flood fills its ring, and costs a step a part of it; the thread is woken again for the rest. */
Test(dpdk_neighbour, floods)
{
	struct exception_frame f;
	for (unsigned i = 0; i < 100; i++)
		asked(&them, q.me.ip);
	cr_assert_eq(waiting(&q.exception_path->in), EXCEPTION_SLOTS);
	unsigned steps = 0, answers = 0;
	while (waiting(&q.exception_path->in)) {
		uint64_t wakes = 0;
		unsigned before = waiting(&q.exception_path->in);
		cr_assert_eq(read(p.event_fd, &wakes, sizeof wakes), (ssize_t)sizeof wakes);
		cr_assert_eq(wakes, 1u, "once for all of them");
		dpdk_neighbour_step(&p, 1000);
		cr_assert_lt(waiting(&q.exception_path->in), before);
		cr_assert_eq(is_readable(p.event_fd), waiting(&q.exception_path->in) > 0);
		cr_assert_lt(++steps, 10u);
	}
	cr_assert_gt(steps, 1u);
	while (sent(&f))
		answers++;
	cr_assert_eq(answers, EXCEPTION_SLOTS);
}

static struct dpdk_blob peer_at(uint8_t net, uint8_t host)
{
	return (struct dpdk_blob){.prefix = 24, .mac = {2, 0, 0, 0, net, host}, .ip = {10, 8, net, host}, .port = 1};
}

Test(dpdk_neighbour, routes)
{
	struct dpdk_blob near = peer_at(0, 5), far = peer_at(7, 5);
	struct nexthop *hop;
	uint8_t mac[6];
	cr_assert_eq(dpdk_neighbour_resolve(&p, &near, mac, &hop, &err), 0);
	cr_assert(!hop && memcmp(mac, near.mac, 6) == 0, "on the link it is the peer's own");
	cr_assert_eq(dpdk_neighbour_resolve(&p, &far, mac, &hop, &err), -EHOSTUNREACH);
	cr_assert(strstr(err.text, "10.8.7.5 is not in the subnet of 10.8.0.1/24") &&
			  strstr(err.text, "gw= or router="),
		  "%s", err.text);
	p.args.has_router = true;
	memcpy(p.args.router, router.mac, 6);
	cr_assert_eq(dpdk_neighbour_resolve(&p, &far, mac, &hop, &err), 0);
	cr_assert(!hop && memcmp(mac, router.mac, 6) == 0);
	/* What the user has set precedes all else. */
	p.args.static_neighbours_n = 1;
	p.args.static_neighbours[0] = (struct dpdk_static_neighbour){.ip = {10, 8, 0, 5}, .mac = {2, 1, 1, 1, 1, 1}};
	cr_assert_eq(dpdk_neighbour_resolve(&p, &near, mac, &hop, &err), 0);
	cr_assert(!hop && mac[1] == 1);
	p.args.has_router = false;
	cr_assert_eq(dpdk_neighbour_resolve(&p, &near, mac, &hop, &err), 0);
	cr_assert_eq(mac[1], 1, "without a router, too");
	/* And a router's address. */
	p.args.has_gw = true;
	memcpy(p.args.gw, p.args.static_neighbours[0].ip, 4);
	cr_assert_eq(dpdk_neighbour_resolve(&p, &far, mac, &hop, &err), 0);
	cr_assert(!hop && mac[1] == 1);
}

/* A router is solicited until it replies; then its address is used. */
Test(dpdk_neighbour, resolves_a_router)
{
	struct dpdk_blob far = peer_at(7, 5);
	struct exception_frame f;
	struct nexthop *hop, *again;
	uint8_t mac[6] = {1};
	p.args.has_gw = true;
	memcpy(p.args.gw, router.ip, 4);
	cr_assert_eq(dpdk_neighbour_resolve(&p, &far, mac, &hop, &err), 0);
	cr_assert(hop && mac[0] == 0 && !nexthop_is_resolved(hop));
	cr_assert_eq(dpdk_neighbour_resolve(&p, &far, mac, &again, &err), 0);
	cr_assert(again == hop && hop->users == 2);
	uint64_t next = dpdk_neighbour_step(&p, 1000);
	cr_assert_eq(next, 1000 + NEXTHOP_SOLICIT_NS);
	cr_assert(sent(&f));
	uint8_t reply[CONTROL_FRAME_BYTES_MAX];
	unsigned len = responder_write(&router, f.bytes, f.len, reply);
	cr_assert_gt(len, 0u, "it is a request for the router's address");
	dpdk_neighbour_rx(&q, reply, len);
	dpdk_neighbour_step(&p, 2000);
	uint64_t known = atomic_load(&hop->mac);
	cr_assert_eq(memcmp(&known, router.mac, 6), 0);
	cr_assert(nexthop_is_resolved(hop) && !sent(&f));
	cr_assert_eq(dpdk_neighbour_remark(&p, &far, &err), 0);
	nexthop_put(hop);
	nexthop_put(hop);
	cr_assert_eq(dpdk_neighbour_step(&p, UINT64_C(1) << 60), UINT64_MAX, "nobody uses it");
}

Test(dpdk_neighbour, a_router_that_does_not_reply)
{
	struct dpdk_blob far = peer_at(7, 5);
	struct exception_frame f;
	struct nexthop *hop;
	uint8_t mac[6];
	uint64_t now = 1000;
	p.args.has_gw = true;
	memcpy(p.args.gw, router.ip, 4);
	cr_assert_eq(dpdk_neighbour_resolve(&p, &far, mac, &hop, &err), 0);
	err.text[0] = 0;
	cr_assert(dpdk_neighbour_remark(&p, &far, &err) == 0 && !err.text[0], "it has not been asked yet");
	for (unsigned i = 0; i < 2 * NEXTHOP_SOLICITS_MAX; i++) {
		now = dpdk_neighbour_step(&p, now);
		cr_assert(sent(&f), "it is asked on");
	}
	cr_assert(dpdk_neighbour_remark(&p, &far, &err) == 0);
	cr_assert(strstr(err.text, "router 10.8.0.254 has not replied") && strstr(err.text, "(ARP) on net0") &&
			  strstr(err.text, "neighbour=10.8.0.254/MAC"),
		  "%s", err.text);
	p.args.class = DPDK_IFACE;
	snprintf(p.args.iface, sizeof p.args.iface, "eth7");
	cr_assert_eq(dpdk_neighbour_unreachable(&p, hop, &err), -EHOSTUNREACH);
	cr_assert(strstr(err.text, "on eth7: check `ip neigh show 10.8.0.254`"), "%s", err.text);
}

/* Of one port as many routers as there is room for. */
Test(dpdk_neighbour, too_many_routers)
{
	struct dpdk_blob far = peer_at(7, 5);
	struct nexthop *hop;
	uint8_t mac[6];
	p.args.has_gw = true;
	for (unsigned i = 0; i < NEXTHOPS_MAX; i++) {
		memcpy(p.args.gw, (const uint8_t[4]){10, 8, 0, (uint8_t)(100 + i)}, 4);
		cr_assert_eq(dpdk_neighbour_resolve(&p, &far, mac, &hop, &err), 0);
	}
	p.args.gw[3] = 99;
	cr_assert_eq(dpdk_neighbour_resolve(&p, &far, mac, &hop, &err), -ENOSPC);
	cr_assert(!hop && strstr(err.text, "more than 16 routers"), "%s", err.text);
}
