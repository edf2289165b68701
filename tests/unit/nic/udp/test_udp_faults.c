/* SPDX-License-Identifier: BSD-3-Clause */
/** A queue whose system calls fail as a script says; the calls stand in front of the system's (ld --wrap).
 * The test's thread. */
#include "nic/udp/udp.h"
#include "nic/udp/udp_port.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- the script ---- */

static int errors[64]; /* of the next calls that send, 0: it works */
static unsigned errors_n, next_error;
static unsigned sends, runs;  /* calls; those of one run */
static unsigned messages_max; /* that sendmmsg takes at a time, 0: all */
static bool no_epoll, no_options, no_v6;

static bool fails(void)
{
	sends++;
	if (next_error == errors_n || !errors[next_error++])
		return false;
	errno = errors[next_error - 1];
	return true;
}

ssize_t __real_sendto(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
ssize_t __wrap_sendto(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
ssize_t __wrap_sendto(int fd, const void *at, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	return fails() ? -1 : __real_sendto(fd, at, len, flags, to, to_len);
}

ssize_t __real_sendmsg(int, const struct msghdr *, int);
ssize_t __wrap_sendmsg(int, const struct msghdr *, int);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	runs++;
	return fails() ? -1 : __real_sendmsg(fd, msg, flags);
}

int __real_sendmmsg(int, struct mmsghdr *, unsigned, int);
int __wrap_sendmmsg(int, struct mmsghdr *, unsigned, int);
int __wrap_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	if (messages_max && n > messages_max)
		n = messages_max;
	return fails() ? -1 : __real_sendmmsg(fd, msgs, n, flags);
}

int __real_epoll_ctl(int, int, int, struct epoll_event *);
int __wrap_epoll_ctl(int, int, int, struct epoll_event *);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	if (!no_epoll)
		return __real_epoll_ctl(epfd, op, fd, event);
	errno = ENOSPC;
	return -1;
}

int __real_setsockopt(int, int, int, const void *, socklen_t);
int __wrap_setsockopt(int, int, int, const void *, socklen_t);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (!no_options)
		return __real_setsockopt(fd, level, name, value, len);
	errno = ENOPROTOOPT;
	return -1;
}

int __real_socket(int, int, int);
int __wrap_socket(int, int, int);
int __wrap_socket(int family, int type, int protocol)
{
	if (!no_v6 || family != AF_INET6)
		return __real_socket(family, type, protocol);
	errno = EAFNOSUPPORT;
	return -1;
}

static void script(unsigned n, const int *list)
{
	memcpy(errors, list, n * sizeof *list);
	errors_n = n;
	next_error = sends = runs = 0;
}

#define SCRIPT(...) script(sizeof((int[]){__VA_ARGS__}) / sizeof(int), (int[]){__VA_ARGS__})

/* ---- two ports ---- */

static struct nic_port *a, *b;
static struct nic_queue *qa, *qb;
static struct nic_addr to_b;
static uint32_t peer, other; /* places of a, both lead to b */

static int on_event(void *ctx, const struct nic_event *ev)
{
	cr_assert_eq(ev->type, NIC_EVENT_UP);
	*(uint32_t *)ctx = ev->peer;
	return 0;
}

static struct nic_port *port_open(bool beyond_host)
{
	struct nic_err err = {""};
	struct nic_config config = {
		.queues = 1, .beyond_host = beyond_host, .listen = beyond_host ? NULL : "127.0.0.1"};
	struct nic_port *p = NULL;
	cr_assert_eq(nic_udp_port_ops.open(&config, &p, &err), 0, "%s", err.text);
	return p;
}

static uint32_t dest(void)
{
	struct nic_err err = {""};
	uint32_t i = NIC_PEER_NONE;
	cr_assert_eq(nic_udp_port_ops.connect(a, &(struct nic_connect){0, &to_b, 0, NULL, 0, 0, NULL}, &err), 0, "%s",
		     err.text);
	nic_udp_port_ops.step(a, 0, on_event, &i);
	cr_assert_eq(udp_queue_ops.attach(qa, i), 0);
	return i;
}

static void setup(void)
{
	a = port_open(false);
	b = port_open(false);
	qa = nic_udp_port_ops.queue(a, 0);
	qb = nic_udp_port_ops.queue(b, 0);
	nic_udp_port_ops.address(b, &to_b);
	peer = dest();
	other = dest();
}

static void teardown(void)
{
	nic_udp_port_ops.close(a);
	nic_udp_port_ops.close(b);
}

TestSuite(udp_faults, .init = setup, .fini = teardown);

static int commit(uint32_t to, uint8_t value, unsigned len)
{
	struct nic_tx tx;
	int error = udp_queue_ops.tx_reserve(qa, to, len, &tx);
	if (error)
		return error;
	memset(tx.body, value, len);
	return udp_queue_ops.tx_commit(qa, &tx);
}

static void flush(void)
{
	udp_queue_ops.flush(qa);
}

/* What b has received, the values of all packets in a row. */
static const char *received(void)
{
	static char text[512];
	struct nic_pkt pkts[16];
	text[0] = 0;
	for (unsigned n; (n = udp_queue_ops.recv(qb, pkts, 16)) > 0;)
		for (unsigned i = 0; i < n; i++) {
			for (unsigned k = 1; k < pkts[i].body_len; k++)
				cr_assert_eq(pkts[i].body[k], pkts[i].body[0]);
			udp_append(text, sizeof text, "%c", pkts[i].body[0]);
		}
	return text;
}

static uint64_t dropped(void)
{
	struct nic_stats s;
	nic_udp_port_ops.stats(a, &s);
	return s.tx_dropped;
}

static uint32_t room(void)
{
	return udp_queue_ops.tx_room(qa, peer);
}

static void commit_row(const char *values, unsigned len)
{
	for (; *values; values++)
		cr_assert_eq(commit(peer, (uint8_t)*values, len), 0);
}

/* ---- no room ---- */

static void no_room(int error)
{
	struct nic_pkt pkts[4];
	SCRIPT(error);
	commit_row("x", 100);
	flush();
	cr_assert_str_eq(received(), "");
	cr_assert_eq(room(), UDP_SLOTS - 1);
	cr_assert_neq(udp_queue_ops.deadline(qa), UINT64_MAX);
	cr_assert_eq(udp_queue_ops.recv(qa, pkts, 4), 0u); /* tries again */
	cr_assert_eq(udp_queue_ops.deadline(qa), UINT64_MAX);
	cr_assert_str_eq(received(), "x");
	cr_assert_eq(room(), UDP_SLOTS);
	cr_assert_eq(dropped(), 0u);
}

Test(udp_faults, full_socket_buffer_one_packet)
{
	no_room(EAGAIN);
}

Test(udp_faults, full_device_queue_one_packet)
{
	no_room(ENOBUFS);
}

Test(udp_faults, full_in_the_middle_of_a_batch)
{
	messages_max = 2;
	SCRIPT(0, EAGAIN, 0, ENOBUFS);
	for (unsigned i = 0; i < 7; i++) /* sizes that grow are messages of their own */
		cr_assert_eq(commit(peer, (uint8_t)('a' + i), 10 + i), 0);
	flush();
	cr_assert_str_eq(received(), "ab");
	flush();
	cr_assert_str_eq(received(), "cd");
	flush();
	cr_assert_str_eq(received(), "efg");
	cr_assert_eq(room(), UDP_SLOTS);
}

/* As long as the socket is full, commits do not try it; a flush does so once. */
Test(udp_faults, full_and_committed_to)
{
	int full[64];
	for (unsigned i = 0; i < 64; i++)
		full[i] = EAGAIN;
	script(64, full);
	unsigned n = 0;
	while (commit(peer, 'x', 60000) == 0)
		n++;
	cr_assert_eq(n, UDP_SLOTS);
	cr_assert_eq(commit(peer, 'x', 1), -EAGAIN);
	cr_assert_eq(room(), 0u);
	cr_assert_eq(sends, 1u);
	flush();
	flush();
	cr_assert_eq(sends, 3u);
	script(0, full);
	for (unsigned i = 0; i < UDP_SLOTS && room() < UDP_SLOTS; i++) {
		flush();
		received();
	}
	cr_assert_eq(room(), UDP_SLOTS);
}

/* The ends of packets lie elsewhere until the flush has returned, sent or not. */
Test(udp_faults, full_with_bytes_elsewhere)
{
	uint8_t memory[4][100];
	struct nic_tx tx;
	messages_max = 1;
	SCRIPT(0, EAGAIN, EAGAIN);
	for (unsigned i = 0; i < 4; i++) { /* sizes that grow are messages of their own */
		cr_assert_eq(udp_queue_ops.tx_reserve(qa, peer, 40 + i, &tx), 0);
		memset(tx.body, 'a' + (int)i, 10);
		memset(memory[i], 'a' + (int)i, sizeof memory[i]);
		udp_queue_ops.tx_refer(qa, &tx, memory[i], 30 + i);
		cr_assert_eq(udp_queue_ops.tx_commit(qa, &tx), 0);
	}
	flush();
	memset(memory, 'z', sizeof memory);
	cr_assert_str_eq(received(), "a");
	flush();
	cr_assert_str_eq(received(), "");
	flush();
	cr_assert_str_eq(received(), "bcd");
	cr_assert_eq(room(), UDP_SLOTS);
}

Test(udp_faults, detached_while_full)
{
	SCRIPT(EAGAIN, EAGAIN);
	commit_row("ab", 100);
	cr_assert_eq(commit(other, 'c', 300), 0);
	flush();
	udp_queue_ops.detach(qa, peer);
	cr_assert_eq(dropped(), 2u);
	flush();
	cr_assert_str_eq(received(), "c");
	cr_assert_eq(room(), 0u);
	cr_assert_eq(udp_queue_ops.tx_room(qa, other), UDP_SLOTS);
}

/* ---- refused ---- */

Test(udp_faults, firewall)
{
	struct nic_err err = {""};
	SCRIPT(EPERM);
	commit_row("x", 100);
	flush();
	cr_assert_eq(sends, 1u);
	cr_assert_eq(dropped(), 1u);
	cr_assert_eq(nic_udp_port_ops.reach(a, &to_b, &err), 0);
	cr_assert(strstr(err.text, "a firewall of this host forbids it"), "%s", err.text);
	commit_row("y", 100);
	flush();
	cr_assert_str_eq(received(), "y");
}

Test(udp_faults, one_of_a_batch)
{
	messages_max = 1;
	SCRIPT(0, EPERM);
	cr_assert_eq(commit(peer, 'a', 10), 0);
	cr_assert_eq(commit(peer, 'b', 20), 0);
	cr_assert_eq(commit(other, 'c', 10), 0);
	flush();
	cr_assert_str_eq(received(), "ac");
	cr_assert_eq(dropped(), 1u);
	cr_assert_eq(room(), UDP_SLOTS);
}

Test(udp_faults, errors_of_earlier_packets)
{
	SCRIPT(ECONNREFUSED, EHOSTUNREACH);
	commit_row("x", 100);
	flush();
	cr_assert_str_eq(received(), "x");
	SCRIPT(EMSGSIZE, ECONNREFUSED);
	commit_row("abc", 100);
	flush();
	cr_assert_str_eq(received(), "abc");
	cr_assert_eq(runs, 3u, "it stays a run");
	SCRIPT(EINTR);
	commit_row("y", 100);
	flush();
	cr_assert_str_eq(received(), "y");
	cr_assert_eq(dropped(), 0u);
}

Test(udp_faults, no_route_any_more)
{
	SCRIPT(ENETUNREACH, ENETUNREACH, ENETUNREACH);
	commit_row("x", 100);
	flush();
	cr_assert_eq(dropped(), 1u);
	cr_assert_eq(room(), UDP_SLOTS);
	commit_row("y", 100);
	flush();
	cr_assert_str_eq(received(), "y");
}

/* ---- no segmentation offload ---- */

static void without_runs(unsigned n, const int *list)
{
	script(n, list);
	commit_row("abcdefgh", 100);
	flush();
	cr_assert_str_eq(received(), "abcdefgh");
	cr_assert_eq(runs, n);
	script(0, list);
	commit_row("ijkl", 100);
	flush();
	cr_assert_str_eq(received(), "ijkl");
	cr_assert_eq(runs, 0u, "it is remembered");
	cr_assert_eq(commit(other, 'm', 100), 0);
	cr_assert_eq(commit(other, 'n', 100), 0);
	flush();
	cr_assert_str_eq(received(), "mn");
	cr_assert_eq(runs, 1u, "of that place only");
	cr_assert_eq(dropped(), 0u);
}

Test(udp_faults, device_without_segmentation)
{
	without_runs(1, (int[]){EIO});
}

Test(udp_faults, kernel_without_segmentation)
{
	without_runs(1, (int[]){EINVAL});
}

Test(udp_faults, segments_beyond_the_device)
{
	without_runs(2, (int[]){EMSGSIZE, EMSGSIZE});
}

/* ---- the rest ---- */

Test(udp_faults, cannot_be_woken)
{
	struct pollfd p = {.fd = udp_queue_ops.wake_fd(qb), .events = POLLIN};
	cr_assert_eq(poll(&p, 1, 0), 0);
	no_epoll = true;
	udp_queue_ops.arm(qb);
	cr_assert_eq(poll(&p, 1, 0), 1, "it must not sleep");
	udp_queue_ops.wake_clear(qb);
	udp_queue_ops.disarm(qb);
	no_epoll = false;
	udp_queue_ops.arm(qb);
	cr_assert_eq(poll(&p, 1, 0), 0);
	commit_row("x", 10);
	flush();
	cr_assert_eq(poll(&p, 1, 10000), 1);
	udp_queue_ops.disarm(qb);
}

Test(udp_faults, kernel_without_receive_offload)
{
	no_options = true;
	for (unsigned i = 0; i < 50; i++) {
		commit_row("abcdefgh", 100);
		flush();
		cr_assert_str_eq(received(), "abcdefgh");
	}
}

Test(udp_faults, kernel_without_ipv6)
{
	no_v6 = true;
	struct nic_port *p = port_open(true);
	struct nic_addr addr;
	char text[256];
	nic_udp_port_ops.address(p, &addr);
	nic_udp_port_ops.address_text(&addr, text, sizeof text);
	cr_assert(strstr(text, "127.0.0.1:"));
	cr_assert_not(strchr(text, '['), "%s", text);
	nic_udp_port_ops.close(p);
}

/* Neither buffers nor offloads can be had: each has its line and its remedy, and no byte too many is written. */
Test(udp_faults, advice)
{
	char all[1024];
	size_t len = nic_udp_advice(all, sizeof all);
	cr_assert(len > 0 && len == strlen(all) && all[len - 1] == '\n');
	cr_assert(strstr(all, "segmentation offload: ") && strstr(all, "IPv6: "));
	no_options = no_v6 = true;
	len = nic_udp_advice(all, sizeof all);
	cr_assert(strstr(all, "net.core.rmem_max=4194304") && strstr(all, "net.core.wmem_max=4194304"), "%s", all);
	cr_assert(strstr(all, "segmentation offload: no") && strstr(all, "receive offload: no") &&
		  strstr(all, "IPv6: no"));
	for (size_t cap = 0; cap < len + 2; cap++) {
		char *out = malloc(cap + 1);
		cr_assert_not_null(out);
		out[cap] = 'x';
		cr_assert(nic_udp_advice(out, cap) <= (cap ? cap - 1 : 0) && out[cap] == 'x');
		free(out);
	}
}
