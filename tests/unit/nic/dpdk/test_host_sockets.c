/* SPDX-License-Identifier: BSD-3-Clause */
/** Reserved ports, kicks and the descriptors that a queue sleeps on, on a pair of interfaces in a network namespace of
 * each test's own. The test's thread. */
#include "veth.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/stat.h>

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

Test(host_sockets, held_ports, .init = veth_setup)
{
	struct host_iface iface = veth_read();
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

Test(host_sockets, ports_that_cannot_be_held, .init = veth_setup)
{
	struct host_iface iface = veth_read();
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
Test(host_sockets, a_gap_in_the_ports, .init = veth_setup)
{
	struct host_iface iface = veth_read();
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

Test(host_sockets, kicks_by_udp, .init = veth_setup)
{
	struct host_iface iface = veth_read();
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
Test(host_sockets, kick_of_nobody, .init = veth_setup)
{
	struct host_kick nobody, nowhere = {.len = 0};
	host_kick_udp(&nobody, false, (const uint8_t[4]){10, 77, 1, 5}, 9, 0);
	int sender = host_kick_sender(&nobody);
	for (int i = 0; i < 3; i++) {
		host_kick_send(sender, &nobody);
		host_kick_send(sender, &nowhere);
	}
	close(sender);
}

Test(host_sockets, kicks_by_path)
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

Test(host_sockets, wake_without_kicks)
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
