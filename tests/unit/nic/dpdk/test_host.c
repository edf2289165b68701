/* SPDX-License-Identifier: BSD-3-Clause */
/** On a pair of interfaces in a network namespace of each test's own. The test's thread. */
#include "nic/dpdk/host.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const uint8_t v4[4] = {10, 77, 1, 5};

static void run(const char *command)
{
	int rc = system(command);
	cr_assert_eq(rc, 0, "%s: status %d", command, rc);
}

/* A worker of the kernel makes a new IPv6 address reachable: until then what is sent to it leaves by the cable. */
static void wait_local(const char *ip)
{
	char command[160];
	snprintf(command, sizeof command, "ip -6 route show table local dev far0 | grep -q '^local %s '", ip);
	for (unsigned i = 0; system(command) != 0; i++) {
		cr_assert_lt(i, 20000, "the kernel takes nothing for %s", ip);
		usleep(1000);
	}
}

static void setup(void)
{
	/* A process with threads, as Criterion's are, cannot become root of a user namespace of its own. */
	if (unshare(CLONE_NEWNET) < 0)
		cr_skip_test("a network namespace: %s; needs CAP_SYS_ADMIN, as under `unshare -Ur`", strerror(errno));
	if (system("ip link add far0 type veth peer name far1 2>/dev/null") != 0)
		cr_skip_test("`ip link add ... type veth` does not work here: CAP_NET_ADMIN, iproute2, veth");
	run("ip link set far0 address 02:00:00:00:07:01 mtu 1400");
	run("ip addr add 10.77.1.5/24 dev far0; ip addr add fd77::5/64 dev far0 nodad");
	run("ip link set far0 up; ip link set far1 up; ip link set lo up");
	run("ip -6 addr add fe80::7/64 dev far0 nodad; ip addr add 10.88.0.1/16 dev far0");
	wait_local("fd77::5");
	wait_local("fe80::7");
}

static struct host_iface read_far0(void)
{
	struct host_iface iface;
	struct nic_err err;
	cr_assert_eq(host_iface_read("far0", &iface, &err), 0, "%s", err.text);
	return iface;
}

/* The kernel notices a carrier that comes or goes somewhat later. */
static struct host_iface read_far0_running(bool running)
{
	struct host_iface iface = read_far0();
	for (unsigned i = 0; i < 20000 && iface.running != running; i++) {
		usleep(1000);
		iface = read_far0();
	}
	return iface;
}

Test(host, facts, .init = setup)
{
	struct host_iface iface = read_far0_running(true);
	char text[HOST_IP_TEXT_BYTES];
	cr_assert_str_eq(iface.name, "far0");
	cr_assert_str_eq(iface.driver, "veth");
	cr_assert_eq(iface.index, (int)if_nametoindex("far0"));
	cr_assert_eq(memcmp(iface.mac, "\2\0\0\0\7\1", 6), 0);
	cr_assert_eq(iface.mtu, 1400);
	cr_assert_geq(iface.queues, 1);
	cr_assert(iface.up && iface.running);
	cr_assert_geq(iface.ips_n, 4);
	cr_assert_str_eq(host_ip_text(iface.ips[0].v6, iface.ips[0].bytes, text), "10.77.1.5");
	cr_assert_eq(iface.ips[0].prefix, 24);
	cr_assert_str_eq(host_ip_text(iface.ips[2].v6, iface.ips[2].bytes, text), "fd77::5");
	cr_assert_eq(iface.ips[2].prefix, 64);
	cr_assert_eq(iface.ips[3].bytes[0], 0xfe, "what is of the link only comes last");
	cr_assert(host_iface_has_carrier("far0"));
	run("ip link set far1 down");
	iface = read_far0_running(false);
	cr_assert(iface.up && !iface.running && !host_iface_has_carrier("far0"));
	run("ip link set far0 down");
	iface = read_far0();
	cr_assert(!iface.up && !iface.running && !host_iface_has_carrier("far0"));
	cr_assert(host_iface_has_carrier("nowhere"), "nothing is known of it");
}

Test(host, queues, .init = setup)
{
	run("ip link add far2 numrxqueues 3 numtxqueues 3 type veth peer name far3");
	struct host_iface iface;
	cr_assert_eq(host_iface_read("far2", &iface, NULL), 0);
	cr_assert_eq(iface.queues, 3);
	run("ip link add far4 numrxqueues 1 numtxqueues 4 type veth peer name far5");
	cr_assert_eq(host_iface_read("far4", &iface, NULL), 0);
	cr_assert_eq(iface.queues, 1, "pairs");
}

Test(host, not_an_interface, .init = setup)
{
	struct host_iface iface;
	struct nic_err err;
	cr_assert_eq(host_iface_read("nosuch0", &iface, &err), -ENODEV);
	cr_assert(strstr(err.text, "\"nosuch0\""), "%s", err.text);
	cr_assert_eq(host_iface_read("", &iface, &err), -ENODEV);
	cr_assert_eq(host_iface_read("a-name-that-is-too-long", &iface, &err), -ENODEV);
	cr_assert(strstr(err.text, "a-name-that-is-too-long"), "%s", err.text);
	cr_assert_eq(host_iface_read("lo", &iface, &err), -EPROTOTYPE);
	cr_assert(strstr(err.text, "no Ethernet frames"), "%s", err.text);
}

Test(host, address_to_be_reached_at, .init = setup)
{
	static const struct {
		const char *listen, *ip;
		int error;
	} cases[] = {
		{NULL, "10.77.1.5", 0},
		{"far0", "10.77.1.5", 0},
		{"10.88.0.0/16", "10.88.0.1", 0},
		{"10.88.0.1", "10.88.0.1", 0},
		{"0.0.0.0/0", "10.77.1.5", 0},
		{"::/0", "fd77::5", 0},
		{"fd77::/16", "fd77::5", 0},
		{"fe80::/10", NULL, 0},
		{"10.77.1.5/32", "10.77.1.5", 0},
		{"10.77.1.4/31", "10.77.1.5", 0},
		{"10.77.1.6/31", NULL, -EADDRNOTAVAIL},
		{"10.77.1.6", NULL, -EADDRNOTAVAIL},
		{"fd78::/16", NULL, -EADDRNOTAVAIL},
		{"far1", NULL, -EINVAL},
		{"", NULL, -EINVAL},
		{"10.77.1.5/33", NULL, -EINVAL},
		{"fd77::5/129", NULL, -EINVAL},
		{"10.77.1.5/", NULL, -EINVAL},
		{"10.77.1.5/-1", NULL, -EINVAL},
		{"10.77.1.5/8x", NULL, -EINVAL},
		{"10.77.1", NULL, -EINVAL},
		{"fd77:5", NULL, -EINVAL},
	};
	struct host_iface iface = read_far0();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct host_ip *ip = NULL;
		struct nic_err err = {""};
		char text[HOST_IP_TEXT_BYTES];
		cr_assert_eq(host_iface_ip(&iface, cases[i].listen, &ip, &err), cases[i].error, "%s: %s",
			     cases[i].listen, err.text);
		if (cases[i].ip)
			cr_assert_str_eq(host_ip_text(ip->v6, ip->bytes, text), cases[i].ip);
		if (cases[i].error)
			cr_assert(strstr(err.text, "far0") && (!*cases[i].listen || strstr(err.text, cases[i].listen)),
				  "%s", err.text);
	}
}

Test(host, no_address_yet, .init = setup)
{
	const struct host_ip *ip;
	struct host_iface iface;
	struct nic_err err;
	run("ip link add far6 type veth peer name far7; ip link set far6 addrgenmode none; ip link set far6 up");
	cr_assert_eq(host_iface_read("far6", &iface, NULL), 0);
	cr_assert_eq(host_iface_ip(&iface, NULL, &ip, &err), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "no IP address"), "%s", err.text);
	run("ip addr add fd79::1/64 dev far6"); /* without a carrier it stays tentative */
	cr_assert_eq(host_iface_read("far6", &iface, NULL), 0);
	cr_assert_eq(host_iface_ip(&iface, NULL, &ip, &err), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "duplicate"), "%s", err.text);
	run("ip link set far6 down");
	cr_assert_eq(host_iface_read("far6", &iface, NULL), 0);
	cr_assert_eq(host_iface_ip(&iface, NULL, &ip, &err), -ENETDOWN);
	cr_assert(strstr(err.text, "far6"), "%s", err.text);
}

Test(host, on_the_link, .init = setup)
{
	struct host_iface iface = read_far0();
	uint8_t ip[16];
	static const struct {
		const char *ip;
		bool on;
	} cases[] = {{"10.77.1.255", true}, {"10.77.2.1", false},     {"10.88.255.1", true}, {"10.89.0.1", false},
		     {"fd77::ffff", true},  {"fd77:0:0:1::5", false}, {"fe80::1:2", true},   {"a4d:105::", false}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		bool v6 = strchr(cases[i].ip, ':');
		cr_assert_eq(inet_pton(v6 ? AF_INET6 : AF_INET, cases[i].ip, ip), 1);
		cr_assert_eq(host_iface_on_link(&iface, v6, ip), cases[i].on, "%s", cases[i].ip);
	}
}

static int client(const char *ip, uint16_t port)
{
	bool v6 = strchr(ip, ':');
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	cr_assert_eq(inet_pton(v6 ? AF_INET6 : AF_INET, ip, v6 ? (void *)&in6.sin6_addr : (void *)&in.sin_addr), 1);
	cr_assert_eq(connect(fd, v6 ? (void *)&in6 : (void *)&in, v6 ? sizeof in6 : sizeof in), 0);
	return fd;
}

/* On this host an answer of "port unreachable" is at the socket when send() returns. */
static bool is_refused(const char *ip, uint16_t port)
{
	int fd = client(ip, port);
	char reply;
	cr_assert_eq(send(fd, "x", 1, 0), 1);
	ssize_t got = recv(fd, &reply, 1, MSG_DONTWAIT);
	int error = errno;
	close(fd);
	cr_assert_eq(got, -1);
	cr_assert(error == ECONNREFUSED || error == EAGAIN, "%s", strerror(error));
	return error == ECONNREFUSED;
}

Test(host, held_ports, .init = setup)
{
	struct host_iface iface = read_far0();
	static const char *const listens[] = {"10.77.1.5", "fd77::5"};
	for (int i = 0; i < 2; i++) {
		struct host_sockets held, again;
		struct nic_err err;
		const struct host_ip *ip;
		cr_assert_eq(host_iface_ip(&iface, listens[i], &ip, &err), 0);
		cr_assert_eq(host_reserve_ports(&held, &iface, ip, 0, 16, &err), 0, "%s", err.text);
		cr_assert_eq(held.n, 16);
		for (unsigned p = 0; p < 16; p++) {
			cr_assert_not(is_refused(listens[i], (uint16_t)(held.first + p)));
			struct pollfd in = {.fd = held.fds[p], .events = POLLIN};
			cr_assert_eq(poll(&in, 1, 0), 0, "nothing is kept");
		}
		cr_assert_eq(host_reserve_ports(&again, &iface, ip, (uint16_t)(held.first + 15), 1, &err), -EADDRINUSE);
		char port[16];
		snprintf(port, sizeof port, "port %u ", held.first + 15u);
		cr_assert(strstr(err.text, port) && strstr(err.text, listens[i]), "%s", err.text);
		uint16_t first = held.first;
		host_sockets_close(&held);
		host_sockets_close(&held);
		cr_assert(is_refused(listens[i], first), "released");
		cr_assert_eq(host_reserve_ports(&held, &iface, ip, first, 3, &err), 0, "%s", err.text);
		cr_assert_eq(held.first, first);
		host_sockets_close(&held);
	}
}

Test(host, ports_that_cannot_be_held, .init = setup)
{
	struct host_iface iface = read_far0();
	struct host_ip unassigned = {.prefix = 24, .usable = true, .bytes = {10, 77, 1, 99}};
	struct host_sockets held;
	struct nic_err err;
	cr_assert_eq(host_reserve_ports(&held, &iface, &unassigned, 7000, 1, &err), -EADDRNOTAVAIL);
	cr_assert(strstr(err.text, "10.77.1.99"), "%s", err.text);
	cr_assert_eq(host_reserve_ports(&held, &iface, &iface.ips[0], 65535, 2, &err), -EINVAL);
	cr_assert_eq(host_reserve_ports(&held, &iface, &iface.ips[0], 7000, 0, &err), -EINVAL);
	cr_assert_eq(host_reserve_ports(&held, &iface, &iface.ips[0], 7000, FAR_SHARDS_MAX + 1, &err), -EINVAL);
	cr_assert_eq(held.n, 0);
	cr_assert_eq(host_reserve_ports(&held, &iface, &iface.ips[0], 65534, 2, &err), 0, "%s", err.text);
	host_sockets_close(&held);
}

/* A taken port in the middle: those before it are let go of. */
Test(host, a_gap_in_the_ports, .init = setup)
{
	struct host_iface iface = read_far0();
	struct host_sockets middle, held;
	struct nic_err err;
	cr_assert_eq(host_reserve_ports(&middle, &iface, &iface.ips[0], 7003, 1, &err), 0);
	cr_assert_eq(host_reserve_ports(&held, &iface, &iface.ips[0], 7000, 5, &err), -EADDRINUSE);
	cr_assert(strstr(err.text, "port 7003 "), "%s", err.text);
	cr_assert_eq(held.n, 0);
	cr_assert_eq(host_reserve_ports(&held, &iface, &iface.ips[0], 7000, 3, &err), 0, "%s", err.text);
	host_sockets_close(&held);
	host_sockets_close(&middle);
}

static bool is_awake(const struct host_wake *wake)
{
	struct pollfd in = {.fd = wake->fd, .events = POLLIN};
	return poll(&in, 1, 0) == 1;
}

static void check_wake(struct host_wake *wake, const struct host_kick *to)
{
	int sender = host_kick_sender(to);
	cr_assert_geq(sender, 0);
	cr_assert_not(is_awake(wake));
	host_wake_signal(wake);
	host_wake_signal(wake);
	cr_assert(is_awake(wake));
	host_wake_clear(wake);
	cr_assert_not(is_awake(wake));
	host_kick_send(sender, to);
	cr_assert(is_awake(wake));
	host_wake_clear(wake);
	cr_assert_not(is_awake(wake));
	host_wake_clear(wake); /* and of nothing */
	unsigned rounds = 0;
	for (unsigned i = 0; i < 3 * FAR_KICKS_CLEARED_MAX; i++)
		host_kick_send(sender, to);
	host_wake_signal(wake);
	for (; is_awake(wake); rounds++)
		host_wake_clear(wake);
	cr_assert(rounds >= 1 && rounds <= 4, "%u", rounds);
	close(sender);
}

Test(host, kicks_by_udp, .init = setup)
{
	struct host_iface iface = read_far0();
	struct host_sockets kicks;
	struct nic_err err;
	for (unsigned i = 0; i < iface.ips_n; i++) {
		const struct host_ip *ip = &iface.ips[i];
		if (!ip->usable)
			continue;
		cr_assert_eq(host_kick_open_udp(&kicks, &iface, ip, 4, &err), 0, "%s", err.text);
		for (unsigned q = 0; q < 4; q++) {
			struct host_wake wake;
			struct host_kick to;
			cr_assert_eq(host_wake_open(&wake, kicks.fds[q], &err), 0, "%s", err.text);
			host_kick_udp(&to, ip->v6, ip->bytes, (uint16_t)(kicks.first + q), iface.index);
			check_wake(&wake, &to);
			host_wake_close(&wake);
			host_wake_close(&wake);
		}
	}
}

/* Who kicks somebody that is gone learns nothing and loses nothing. */
Test(host, kick_of_nobody, .init = setup)
{
	struct host_kick nobody, nowhere = {.len = 0};
	host_kick_udp(&nobody, false, v4, 9, 0);
	int sender = host_kick_sender(&nobody);
	for (int i = 0; i < 3; i++) {
		host_kick_send(sender, &nobody);
		host_kick_send(sender, &nowhere);
	}
	close(sender);
}

Test(host, kicks_by_path)
{
	char dir[] = "/tmp/far-host-XXXXXX", path[64], other[200];
	struct host_kick to;
	struct host_wake wake;
	struct nic_err err;
	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/q0.kick", dir);
	int kick = host_kick_open_unix(path, &err);
	cr_assert_geq(kick, 0, "%s", err.text);
	cr_assert_eq(host_kick_open_unix(path, &err), -EADDRINUSE);
	cr_assert(strstr(err.text, path), "%s", err.text);
	cr_assert_eq(host_kick_unix(&to, path), 0);
	cr_assert_eq(host_wake_open(&wake, kick, &err), 0);
	check_wake(&wake, &to);
	host_wake_close(&wake);
	int sender = host_kick_sender(&to);
	host_kick_send(sender, &to); /* nobody listens any more */
	close(sender);
	kick = host_kick_open_unix(path, &err);
	cr_assert_geq(kick, 0, "a dead one is replaced: %s", err.text);
	close(kick);
	unlink(path);
	FILE *f = fopen(path, "w");
	fputs("mine", f);
	fclose(f);
	struct stat st;
	cr_assert_eq(host_kick_open_unix(path, &err), -EADDRINUSE);
	cr_assert(stat(path, &st) == 0 && st.st_size == 4, "a file is left alone");
	unlink(path);
	rmdir(dir);
	memset(other, 'x', sizeof other);
	other[sizeof other - 1] = '\0';
	cr_assert_eq(host_kick_open_unix(other, &err), -ENAMETOOLONG);
	cr_assert_eq(host_kick_unix(&to, other), -ENAMETOOLONG);
}

Test(host, wake_without_kicks)
{
	struct host_wake wake;
	struct nic_err err;
	cr_assert_eq(host_wake_open(&wake, -1, &err), 0, "%s", err.text);
	host_wake_signal(&wake);
	cr_assert(is_awake(&wake));
	host_wake_clear(&wake);
	cr_assert_not(is_awake(&wake));
	host_wake_close(&wake);
}
