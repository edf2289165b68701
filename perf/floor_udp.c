/* SPDX-License-Identifier: BSD-3-Clause */
/** Raw packets over connected UDP sockets, batched with GSO and GRO. The measuring thread. */
#include "floor_udp.h"
#include "nic/udp/udp_addr.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef UDP_SEGMENT /* of headers older than the kernel */
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define BUFFER_BYTES  ((size_t)64 << 10) /* more than a datagram, or those of one operation together, can have */
#define PAYLOAD_MAX   65487u             /* of a datagram with the longer one of the two headers */
#define SOCKET_BYTES  (4 << 20)          /* requested; the kernel may give less */
#define HEADERS_V4    28u
#define HEADERS_V6    48u
#define PROBE_PORT    9u /* nothing is sent there */
#define ADDRESS_BYTES (INET6_ADDRSTRLEN + 16)

/* What `queue` of a struct floor_nic points to. */
struct floor_udp {
	struct nic_queue queue;
	int fd;
	uint64_t sum; /* of all bytes received: the receiver reads them, as ours does */
	unsigned char out[BUFFER_BYTES], in[BUFFER_BYTES];
};

static struct floor_udp *udp_of(struct nic_queue *q)
{
	return (struct floor_udp *)q;
}

static unsigned send_one(struct floor_udp *u, uint64_t number, unsigned bytes)
{
	memcpy(u->out, &number, sizeof number);
	return send(u->fd, u->out, bytes, 0) == (ssize_t)bytes;
}

static unsigned udp_tx(struct nic_queue *q, uint32_t peer, uint64_t first, unsigned n, unsigned bytes)
{
	struct floor_udp *u = udp_of(q);
	unsigned most = PAYLOAD_MAX / bytes;
	uint16_t segment = (uint16_t)bytes;
	union {
		char room[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr head;
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof segment), .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT}};
	(void)peer;
	n = n < most ? n : most;
	n = n < FLOOR_NIC_BURST ? n : FLOOR_NIC_BURST;
	if (n <= 1)
		return send_one(u, first, bytes);
	for (unsigned i = 0; i < n; i++) {
		uint64_t number = first + i;
		memcpy(u->out + (size_t)i * bytes, &number, sizeof number);
	}
	memcpy(CMSG_DATA(&control.head), &segment, sizeof segment);
	struct iovec data = {u->out, (size_t)n * bytes};
	struct msghdr m = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
	return sendmsg(u->fd, &m, 0) == (ssize_t)data.iov_len ? n : 0;
}

/* Bytes of each of the datagrams that were received together, the last one may have less; `len` when it is one. */
static size_t segment_of(struct msghdr *m, size_t len)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
			int segment;
			memcpy(&segment, CMSG_DATA(c), sizeof segment);
			return segment > 0 ? (size_t)segment : len;
		}
	return len;
}

static unsigned udp_rx(struct nic_queue *q, unsigned max, uint64_t *last)
{
	struct floor_udp *u = udp_of(q);
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr head;
	} control;
	struct iovec data = {u->in, sizeof u->in};
	struct msghdr m = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
	(void)max; /* what the kernel has gathered comes as a whole */
	ssize_t got = recvmsg(u->fd, &m, 0);
	if (got <= 0)
		return 0;
	size_t len = (size_t)got, segment = segment_of(&m, len), tail = (len - 1) / segment * segment;
	if (len - tail < sizeof *last)
		return 0;
	memcpy(last, u->in + tail, sizeof *last);
	u->sum += floor_read(u->in, len);
	return (unsigned)(tail / segment) + 1;
}

static const struct nic_raw_ops raw_ops = {udp_tx, udp_rx};

static int gather(struct floor_nic *n, bool on)
{
	int value = on;
	return setsockopt(n->fd, SOL_UDP, UDP_GRO, &value, sizeof value) < 0 ? -errno : 0;
}

static socklen_t length_of(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void address_text(const struct sockaddr_storage *a, char *out, size_t cap)
{
	char host[INET6_ADDRSTRLEN] = "?";
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
	bool six = a->ss_family == AF_INET6;
	inet_ntop(a->ss_family, six ? (const void *)&v6->sin6_addr : &v4->sin_addr, host, sizeof host);
	snprintf(out, cap, six ? "[%s]:%u" : "%s:%u", host, ntohs(six ? v6->sin6_port : v4->sin_port));
}

/* Is there a way to this address, and from where. */
static bool probe(const struct udp_ip *ip, struct sockaddr_storage *to, struct sockaddr_storage *from)
{
	struct sockaddr_in6 there;
	socklen_t len = udp_ip_sockaddr(ip, PROBE_PORT, false, &there), from_len = sizeof *from;
	int fd = socket(ip->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool way = fd >= 0 && connect(fd, (struct sockaddr *)&there, len) == 0 &&
		   getsockname(fd, (struct sockaddr *)from, &from_len) == 0;
	memset(to, 0, sizeof *to);
	memcpy(to, &there, len);
	if (fd >= 0)
		close(fd);
	return way;
}

/* Within one network namespace by loopback; else to the first of the others' addresses that there is a way to. */
static bool choose(const struct nic_addr *server, struct sockaddr_storage *to, struct sockaddr_storage *from)
{
	struct udp_addr a;
	if (!udp_addr_decode(server->blob, server->len, &a))
		return false;
	bool here = a.host && a.host == udp_host_id() && a.netns == udp_netns_id();
	for (int loopback = here; loopback >= 0; loopback--)
		for (unsigned i = 0; i < a.ips_n; i++)
			if (udp_ip_loopback(&a.ips[i].ip) == (loopback != 0) && probe(&a.ips[i].ip, to, from))
				return true;
	return false;
}

static int bind_socket(int fd, const struct sockaddr_storage *at, struct sockaddr_storage *bound)
{
	struct sockaddr_storage any = *at;
	socklen_t len = sizeof *bound;
	int bytes = SOCKET_BYTES;
	if (any.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&any)->sin6_port = 0;
	else
		((struct sockaddr_in *)&any)->sin_port = 0;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes); /* as much as it may be */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	if (bind(fd, (const struct sockaddr *)&any, length_of(&any)) < 0 ||
	    getsockname(fd, (struct sockaddr *)bound, &len) < 0)
		return -errno;
	return 0;
}

/* A socket at the address of `at`, whose port it fills in. */
static int open_end(struct floor_nic *n, struct sockaddr_storage *at, char text[FLOOR_TEXT_BYTES])
{
	struct sockaddr_storage bound;
	struct floor_udp *u = calloc(1, sizeof *u);
	char name[ADDRESS_BYTES];
	if (!u) {
		snprintf(text, FLOOR_TEXT_BYTES, "out of memory");
		return -ENOMEM;
	}
	u->fd = socket(at->ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc = u->fd < 0 ? -errno : bind_socket(u->fd, at, &bound);
	*n = (struct floor_nic){.queue = &u->queue, .fd = u->fd, .gather = gather};
	/* Requested now: a kernel without it would fail in the middle of a round. */
	if (rc == 0 && gather(n, false) < 0)
		rc = -EOPNOTSUPP;
	if (rc == 0) {
		*at = bound;
		return 0;
	}
	address_text(at, name, sizeof name);
	if (rc == -EOPNOTSUPP)
		snprintf(text, FLOOR_TEXT_BYTES, "this kernel has no UDP_GRO; the floor needs Linux 5.0");
	else
		snprintf(text, FLOOR_TEXT_BYTES, "cannot open a UDP socket at %s: %s", name, strerror(-rc));
	floor_udp_close(n);
	return rc;
}

/* What the path takes in a datagram, as far as is known now. */
static uint32_t payload_max(int fd, int family)
{
	int mtu = 0;
	socklen_t len = sizeof mtu;
	bool six = family == AF_INET6;
	unsigned headers = six ? HEADERS_V6 : HEADERS_V4;
	if (getsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu, &len) < 0 ||
	    mtu < (int)(headers + FLOOR_PAYLOAD_BYTES))
		mtu = 1280; /* what every path takes */
	uint32_t bytes = (uint32_t)mtu - headers;
	return bytes < PAYLOAD_MAX ? bytes : PAYLOAD_MAX;
}

static int connect_end(struct floor_nic *n, const struct sockaddr_storage *to, char text[FLOOR_TEXT_BYTES])
{
	int room = 0;
	socklen_t len = sizeof room;
	char where[ADDRESS_BYTES];
	if (connect(n->fd, (const struct sockaddr *)to, length_of(to)) < 0) {
		int rc = -errno;
		address_text(to, where, sizeof where);
		snprintf(text, FLOOR_TEXT_BYTES, "cannot send UDP packets to %s: %s", where, strerror(-rc));
		return rc;
	}
	getsockopt(n->fd, SOL_SOCKET, SO_RCVBUF, &room, &len);
	n->bytes_max = payload_max(n->fd, to->ss_family);
	/* The kernel counts what a packet takes in memory, up to twice of what it carries. */
	n->window = (uint32_t)room / 4 / n->bytes_max;
	n->window = n->window ? n->window : 1;
	n->ops = &raw_ops;
	return 0;
}

int floor_udp_open(struct floor_nic *n, struct floor_shared *s, char text[FLOOR_TEXT_BYTES])
{
	struct floor_meeting *m = &s->meeting;
	if (!choose(&m->server, &m->to, &m->from)) {
		char where[ADDRESS_BYTES * 4];
		nic_udp_port_ops.address_text(&m->server, where, sizeof where);
		snprintf(text, FLOOR_TEXT_BYTES, "there is no way to any address of the other process: %s", where);
		return -EHOSTUNREACH;
	}
	int rc = open_end(n, &m->from, text);
	if (rc < 0)
		return rc;
	rc = floor_nic_meet(s, FLOOR_MEET_SOCKET, text);
	if (rc == 0)
		rc = connect_end(n, &m->to, text);
	if (rc < 0)
		floor_udp_close(n);
	return rc;
}

void floor_udp_accept(struct floor_nic *n, struct floor_shared *s)
{
	struct floor_meeting *m = &s->meeting;
	floor_udp_close(n);
	m->error = open_end(n, &m->to, m->text);
	if (m->error == 0)
		m->error = connect_end(n, &m->from, m->text);
	if (m->error)
		floor_udp_close(n);
}

void floor_udp_close(struct floor_nic *n)
{
	if (n->gather == gather) {
		struct floor_udp *u = udp_of(n->queue);
		if (u->fd >= 0)
			close(u->fd);
		free(u);
	}
	*n = (struct floor_nic){.fd = -1};
}
