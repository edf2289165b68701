/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The udp driver across network namespaces, which this program makes: A and B with a router R between them. Towards A
 * packets of 9000 bytes fit, towards B of 1280. Skipped where namespaces are not to be had, or iproute2 is not there.
 * Main thread of each process.
 */
#include "netns.h"
#include "udp_fixture.h"

enum { A, R, B, BARE, SPACES };

static int spaces[SPACES];

static void enter(int space)
{
	REQUIRE(setns(spaces[space], CLONE_NEWNET) == 0);
}

/* Neighbours are static, not resolved: a resolver that gives up loses a packet that a test waits for. */
static bool neighbour(unsigned net, unsigned host, const char *dev, unsigned mac)
{
	return ip("neigh replace 10.91.%u.%u lladdr 02:00:00:00:%02x:%02x dev %s nud permanent", net, host, net, mac,
		  dev) &&
	       ip("neigh replace fd91:%u::%u lladdr 02:00:00:00:%02x:%02x dev %s nud permanent", net, host, net, mac,
		  dev);
}

/* A worker of the kernel makes a new IPv6 address reachable. */
static bool taken_here(unsigned net, unsigned host, const char *dev)
{
	char command[160];
	struct timespec nap = {.tv_nsec = 1000000};
	snprintf(command, sizeof command, "ip -6 route show table local dev %s | grep -q '^local fd91:%u::%u '", dev,
		 net, host);
	for (unsigned i = 0; i < WAIT_MS; i++) {
		if (system(command) == 0)
			return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

/* One end of the cable between the router and a neighbour, and its mirror image there. */
static bool cable(int space, const char *name, unsigned net, unsigned mtu)
{
	char router[8];
	snprintf(router, sizeof router, "r%u", net);
	return ip("link add r%u address 02:00:00:00:%02x:01 type veth peer name %s address 02:00:00:00:%02x:02 "
		  "netns /proc/%d/fd/%d",
		  net, net, name, net, (int)getpid(), spaces[space]) &&
	       ip("link set r%u mtu %u up", net, mtu) && ip("addr add 10.91.%u.1/24 dev r%u", net, net) &&
	       ip("addr add fd91:%u::1/64 dev r%u nodad", net, net) && setns(spaces[space], CLONE_NEWNET) == 0 &&
	       ip("link set lo up") && ip("link set %s mtu %u up", name, mtu) &&
	       ip("addr add 10.91.%u.2/24 dev %s", net, name) && ip("addr add fd91:%u::2/64 dev %s nodad", net, name) &&
	       taken_here(net, 2, name) && neighbour(net, 1, name, 1) && ip("route add default via 10.91.%u.1", net) &&
	       ip("-6 route add default via fd91:%u::1", net) && setns(spaces[R], CLONE_NEWNET) == 0 &&
	       taken_here(net, 1, router) && neighbour(net, 2, router, 2);
}

static const char *build(void)
{
	if (!netns_enter_new())
		return "no network namespace of our own";
	for (unsigned i = 0; i < SPACES; i++) {
		if (i && unshare(CLONE_NEWNET) < 0)
			return "no second network namespace";
		spaces[i] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		if (spaces[i] < 0)
			return "/proc/thread-self/ns/net cannot be opened";
	}
	if (system("command -v ip >/dev/null 2>&1"))
		return "iproute2 is not installed";
	setns(spaces[R], CLONE_NEWNET);
	if (!ip("link add probe type veth peer name eborp 2>/dev/null"))
		return "no veth devices";
	if (!set("/proc/sys/net/ipv4/ip_forward", "1") || !set("/proc/sys/net/ipv6/conf/all/forwarding", "1"))
		return "/proc/sys/net is read-only";
	return cable(A, "a0", 1, 9000) && cable(B, "b0", 2, 1280) ? NULL : "the network could not be set up";
}

static void end_in(unsigned i, int space, const char *listen, bool beyond_host)
{
	struct nic_err err = {""};
	struct nic_config config = {.queues = 1, .listen = listen, .beyond_host = beyond_host, .id = i + 1};
	enter(space);
	int error = end_open_config(i, &config, &err);
	if (error)
		fprintf(stderr, "open: %s\n", err.text);
	REQUIRE(error == 0);
}

static uint32_t connect_in(unsigned from, int space, unsigned to)
{
	enter(space);
	return connect_attach(from, to);
}

/* Looks, as the engine does when it polls, until the place takes no more than `bytes`. */
static void learn(unsigned e, uint32_t peer, uint64_t bytes)
{
	struct nic_pkt pkts[BURST];
	struct timespec nap = {.tv_nsec = 1000000};
	for (unsigned i = 0; i < WAIT_MS && ends[e].ops->tx_bytes_max(ends[e].q, peer) != bytes; i++) {
		REQUIRE(take(e, pkts, BURST) == 0);
		nanosleep(&nap, NULL);
	}
	REQUIRE(ends[e].ops->tx_bytes_max(ends[e].q, peer) == bytes);
}

/* The first large packet is lost; then the path is known, and what is as large arrives in pieces. */
static void path_mtu(const char *listen_a, const char *listen_b, uint32_t wide, uint32_t narrow)
{
	end_in(0, A, listen_a, true);
	end_in(1, B, listen_b, true);
	uint32_t at_b = connect_in(0, A, 1), at_a = connect_in(1, B, 0);
	struct nic_caps caps;
	driver->caps(ends[0].port, &caps);
	REQUIRE(caps.ip_fragments);
	REQUIRE(ends[0].ops->tx_bytes_max(ends[0].q, at_b) == wide);
	REQUIRE(ends[1].ops->tx_bytes_max(ends[1].q, at_a) == narrow);
	REQUIRE(send_one(0, at_b, 1, UDP_BYTES_MIN) == 0);
	flush(0);
	expect_one(1, 1, UDP_BYTES_MIN);
	for (unsigned i = 0; i < 3; i++) /* in a batch: they must not be cut in silence */
		REQUIRE(send_one(0, at_b, 2, wide) == 0);
	flush(0);
	learn(0, at_b, narrow);
	REQUIRE(send_one(0, at_b, 9, 50) == 0);
	flush(0);
	struct nic_pkt pkt;
	do
		REQUIRE(take_within(1, &pkt, 1, WAIT_MS) == 1);
	while (pkt.body_len == wide);
	REQUIRE(pkt_is(&pkt, 9, 50));
	for (unsigned round = 0; round < 5; round++) {
		REQUIRE(send_one(0, at_b, 3, wide) == 0);
		flush(0);
		expect_one(1, 3, wide);
		for (unsigned i = 0; i < 20; i++)
			REQUIRE(send_one(0, at_b, 4 + i, narrow) == 0);
		flush(0);
		for (unsigned i = 0; i < 20; i++) {
			REQUIRE(take_within(1, &pkt, 1, WAIT_MS) == 1 && pkt_is(&pkt, 4 + i, narrow));
		}
		REQUIRE(send_one(1, at_a, 5, 1000) == 0);
		flush(1);
		expect_one(0, 5, 1000);
	}
	REQUIRE(udp_queue_of(ends[0].q)->port->dests[at_b].segments);
	struct nic_stats s;
	driver->stats(ends[0].port, &s);
	REQUIRE(s.tx_dropped == 0);
}

static void case_path_mtu_v4(void)
{
	path_mtu("10.91.1.2", "10.91.2.2", 8972, 1252);
}

static void case_path_mtu_v6(void)
{
	path_mtu("fd91:1::2", "fd91:2::2", 8952, 1232);
}

/* One socket for everything: IPv4 travels mapped. */
static void case_path_mtu_any(void)
{
	enter(A);
	REQUIRE(ip("route flush cache"));
	path_mtu(NULL, "10.91.2.0/24", 8972, 1252);
}

static void case_jumbo(void)
{
	static const char *const listens[] = {"10.91.1.0/24", "fd91:1::/64"};
	static const unsigned lens[] = {8972, 8952};
	for (unsigned f = 0; f < 2; f++) {
		end_close(0);
		end_close(1);
		end_in(0, A, listens[f], true);
		end_in(1, R, listens[f], true);
		uint32_t at_r = connect_in(0, A, 1);
		REQUIRE(ends[0].ops->tx_bytes_max(ends[0].q, at_r) == lens[f]);
		for (unsigned round = 0; round < 50; round++) {
			for (unsigned i = 0; i < 10; i++)
				REQUIRE(send_one(0, at_r, i, lens[f]) == 0);
			flush(0);
			for (unsigned i = 0; i < 10; i++) {
				struct nic_pkt pkt;
				REQUIRE(take_within(1, &pkt, 1, WAIT_MS) == 1 && pkt_is(&pkt, i, lens[f]));
			}
		}
	}
}

/* Listening at an interface only: the other addresses of the host do not lead there. */
static void case_interface(void)
{
	struct nic_addr addr;
	char text[128], want[64];
	struct nic_pkt pkts[BURST];
	end_in(0, A, "a0", true);
	end_in(1, A, NULL, true);
	driver->address(ends[0].port, &addr);
	driver->address_text(&addr, text, sizeof text);
	unsigned port = udp_queue_of(ends[0].q)->port_number;
	snprintf(want, sizeof want, "udp 10.91.1.2:%u, [fd91:1::2]:%u", port, port);
	REQUIRE(strcmp(text, want) == 0);
	uint32_t peer = connect_in(1, A, 0);
	/* Its own address is reached through loopback. */
	REQUIRE(ends[1].ops->tx_bytes_max(ends[1].q, peer) == UDP_BYTES_MAX);
	REQUIRE(send_one(1, peer, 1, 60000) == 0);
	flush(1);
	expect_one(0, 1, 60000);
	struct udp_ip loopback;
	struct sockaddr_in6 sa;
	REQUIRE(udp_ip_parse("127.0.0.1", &loopback));
	socklen_t len = udp_ip_sockaddr(&loopback, (uint16_t)port, false, &sa);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	REQUIRE(sendto(fd, "x", 1, 0, (struct sockaddr *)&sa, len) == 1);
	close(fd);
	REQUIRE(take(0, pkts, BURST) == 0);
}

static void case_loopback_of_others(void)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	end_in(0, A, NULL, false);
	end_in(1, B, NULL, false);
	driver->address(ends[1].port, &addr);
	enter(A);
	REQUIRE(driver->reach(ends[0].port, &addr, &err) < 0 && strstr(err.text, "another network namespace"));
	REQUIRE(driver->connect(ends[0].port, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err) < 0);
	end_close(1);
	end_in(1, B, "10.91.2.2", true);
	driver->address(ends[1].port, &addr);
	enter(A);
	/* Sockets that are bound to loopback cannot leave the host. */
	REQUIRE(driver->reach(ends[0].port, &addr, &err) < 0 && strstr(err.text, "no route from 127.0.0.1"));
}

static void case_no_route(void)
{
	struct nic_addr addr;
	struct nic_err err = {""};
	end_in(0, A, NULL, true);
	end_in(1, B, "10.91.2.2", true);
	driver->address(ends[1].port, &addr);
	enter(A);
	REQUIRE(driver->reach(ends[0].port, &addr, &err) == 0);
	uint32_t peer = connect_in(0, A, 1);
	REQUIRE(ip("route add prohibit 10.91.2.0/24"));
	REQUIRE(driver->reach(ends[0].port, &addr, &err) == -EACCES && strstr(err.text, "10.91.2.2"));
	/* It was there when the place was made: packets are lost and counted, and no more. */
	for (unsigned i = 0; i < 10; i++)
		REQUIRE(send_one(0, peer, i, 100) == 0);
	flush(0);
	struct nic_stats s;
	driver->stats(ends[0].port, &s);
	REQUIRE(s.tx_dropped == 10);
	REQUIRE(ip("route del prohibit 10.91.2.0/24"));
	REQUIRE(send_one(0, peer, 7, 100) == 0);
	flush(0);
	expect_one(1, 7, 100);
}

/* The remark of A's way to B, once it is, or is not, that a0 has no link. */
static void says_of_link(bool wanted)
{
	struct timespec nap = {.tv_nsec = 1000000};
	struct nic_addr addr;
	struct nic_err err = {""};
	driver->address(ends[1].port, &addr);
	enter(A);
	for (unsigned i = 0; i < WAIT_MS; i++) {
		err.text[0] = 0;
		REQUIRE(driver->reach(ends[0].port, &addr, &err) == 0);
		if (!!strstr(err.text, "the link of a0 is down: see its cable") == wanted)
			return;
		nanosleep(&nap, NULL);
	}
	fprintf(stderr, "\"%s\"\n", err.text);
	REQUIRE(false);
}

/* The cable is pulled, and put in again. The router forgets what IPv6 had there. */
static void case_no_link(void)
{
	static const char *const listens[] = {"10.91.1.2", NULL};
	for (unsigned l = 0; l < 2; l++) {
		end_close(0);
		end_close(1);
		end_in(0, A, listens[l], true);
		end_in(1, B, "10.91.2.2", true);
		says_of_link(false);
		enter(R);
		REQUIRE(ip("link set r1 down"));
		says_of_link(true);
		enter(R);
		REQUIRE(ip("link set r1 up"));
		says_of_link(false);
	}
}

/* A namespace as it is born: nothing is up. */
static void case_bare(void)
{
	struct nic_err err = {""};
	struct nic_config config = {.queues = 1};
	struct nic_port *port;
	enter(BARE);
	REQUIRE(driver->open(&config, &port, &err) == -EADDRNOTAVAIL && strstr(err.text, "ip link set lo up"));
	REQUIRE(driver->probe(&config, &err) == -EADDRNOTAVAIL);
	REQUIRE(set("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1") && ip("link set lo up"));
	for (unsigned beyond = 0; beyond < 2; beyond++) {
		end_close(0);
		end_in(0, BARE, NULL, beyond);
		uint32_t self = connect_in(0, BARE, 0);
		REQUIRE(send_one(0, self, 1, 1000) == 0);
		flush(0);
		expect_one(0, 1, 1000);
	}
	REQUIRE(set("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0") && ip("link set lo down"));
}

int main(void)
{
	static const struct test_case cases[] = {
		{"path MTU, IPv4", case_path_mtu_v4},
		{"path MTU, IPv6", case_path_mtu_v6},
		{"path MTU, all addresses", case_path_mtu_any},
		{"jumbo frames", case_jumbo},
		{"an interface", case_interface},
		{"loopback of others", case_loopback_of_others},
		{"no route", case_no_route},
		{"no link", case_no_link},
		{"nothing is up", case_bare},
	};
	unsigned n = sizeof cases / sizeof *cases;
	alarm(150);
	const char *missing = build();
	if (missing) {
		printf("SKIP: %s\n0 passed, 0 failed, %u skipped\n", missing, n);
		return 77;
	}
	return run_cases(cases, n);
}
