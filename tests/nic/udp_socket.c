/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The udp driver through its tables, over loopback: ports of one process. The last line is "N passed, N failed, N
 * skipped"; the exit status is 1 when one failed. Main thread of each process; threads that it starts.
 */
#include "udp_fixture.h"
#include "udp_ports.h"

#include <arpa/inet.h>
#include <pthread.h>

static const char *families[] = {NULL, "::1"}; /* the first is own_address() */

static bool have_v6(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
	bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0;
	close(fd);
	return ok;
}

static unsigned families_n(void)
{
	return have_v6() ? 2 : 1;
}

/* ---- one by one ---- */

static void case_sizes(void)
{
	static const unsigned sizes[] = {0,    1,    2,    15,   16,   17,    63,    64,
					 1232, 1472, 1473, 8972, 8973, 32768, 65486, 65487};
	for (unsigned f = 0; f < families_n(); f++) {
		two(families[f], NULL);
		uint64_t max = ends[0].ops->tx_bytes_max(ends[0].q, at_1);
		REQUIRE(max >= 65487 && max <= 65507);
		for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			REQUIRE(send_one(0, at_1, i, sizes[i]) == 0);
			flush(0);
			expect_one(1, i, sizes[i]);
		}
		REQUIRE(send_one(0, at_1, 7, max) == 0);
		flush(0);
		expect_one(1, 7, max);
		struct nic_tx tx;
		REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, UDP_BYTES_MAX + 1, &tx) == -EMSGSIZE);
		REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, UINT64_MAX, &tx) == -EMSGSIZE);
	}
}

static void case_not_attached(void)
{
	struct nic_tx tx;
	two(families[0], NULL);
	REQUIRE(ends[0].ops->attach(ends[0].q, at_1) == -EINVAL);
	REQUIRE(ends[0].ops->attach(ends[0].q, at_1 + 1) == -EINVAL);
	REQUIRE(ends[0].ops->attach(ends[0].q, NIC_PEER_NONE) == -EINVAL);
	REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1 + 1, 8, &tx) == -EPIPE);
	REQUIRE(ends[0].ops->tx_reserve(ends[0].q, NIC_PEER_NONE, 8, &tx) == -EPIPE);
	REQUIRE(ends[0].ops->tx_bytes_max(ends[0].q, NIC_PEER_NONE) == 0);
	ends[0].ops->detach(ends[0].q, NIC_PEER_NONE);
	ends[0].ops->detach(ends[0].q, at_1);
	REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 8, &tx) == -EPIPE);
	REQUIRE(ends[0].ops->attach(ends[0].q, at_1) == 0);
	driver->drop(ends[0].port, NIC_PEER_NONE);
}

/* ---- batches ---- */

/* Each size in rows that leave at once, until the receiver has long been busy. */
static void equal_rows(void)
{
	static const unsigned lens[] = {1, 24, 100, 128, 1000, 1472};
	for (unsigned round = 0; round < 60; round++) {
		unsigned len = lens[round % 6], n = 1 + round * 7 % UDP_SLOTS;
		for (unsigned i = 0; i < n; i++)
			REQUIRE(send_one(0, at_1, round * 1000 + i, len) == 0);
		flush(0);
		REQUIRE(ends[0].ops->tx_room(ends[0].q, at_1) == UDP_SLOTS);
		expect_row(1, round * 1000, n, len);
	}
	struct nic_stats s;
	driver->stats(ends[0].port, &s);
	REQUIRE(s.tx_packets > 1000 && s.tx_dropped == 0);
	driver->stats(ends[1].port, &s);
	REQUIRE(s.rx_packets > 1000 && s.rx_missed == 0 && s.rx_malformed == 0);
}

static void case_equal(void)
{
	static const char *const args[] = {NULL, "gso=0", "gso=1"};
	for (unsigned f = 0; f < families_n(); f++)
		for (unsigned a = 0; a < 3; a++) {
			two(families[f], args[a]);
			equal_rows();
			REQUIRE(udp_queue_of(ends[1].q)->batched);
		}
}

/* Sizes without a pattern, to two places in turn; each place's packets keep their order, as loopback keeps it. */
static void case_unequal(void)
{
	struct nic_pkt pkts[BURST];
	end_open_at(2, families[0], NULL, 1);
	two(families[0], NULL);
	uint32_t to[2] = {at_1, connect_attach(0, 2)};
	uint64_t sent[2] = {0, 0}, got[2] = {0, 0};
	for (unsigned round = 0; round < 200; round++) {
		for (unsigned i = 0; i < 60; i++) {
			unsigned k = (round * 7 + i * i) % 3 == 0;
			REQUIRE(send_one(0, to[k], sent[k], sent[k] * sent[k] * 31 % 1400) == 0);
			sent[k]++;
		}
		flush(0);
		for (unsigned k = 0; k < 2; k++)
			while (got[k] < sent[k]) {
				unsigned n = take_within(k + 1, pkts, BURST, WAIT_MS);
				REQUIRE(n > 0);
				for (unsigned i = 0; i < n; i++, got[k]++)
					REQUIRE(pkt_is(&pkts[i], got[k], got[k] * got[k] * 31 % 1400));
			}
	}
}

/* A run whose last packet is smaller, then a larger one: two messages. */
static void case_run_ends(void)
{
	static const unsigned lens[] = {500, 500, 499, 500, 500, 0, 500, 501, 1};
	two(families[0], NULL);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++)
			REQUIRE(send_one(0, at_1, i, lens[i]) == 0);
		flush(0);
		struct nic_pkt pkts[BURST];
		for (unsigned got = 0; got < sizeof lens / sizeof *lens;) {
			unsigned n = take_within(1, pkts, 3, WAIT_MS);
			REQUIRE(n > 0);
			for (unsigned i = 0; i < n; i++, got++)
				REQUIRE(pkt_is(&pkts[i], got, lens[got]));
		}
	}
}

static void case_load(void)
{
	two(families[0], NULL);
	const struct udp_queue *q = udp_queue_of(ends[1].q);
	for (unsigned i = 0; i < 1000; i++) {
		struct nic_pkt pkts[BURST];
		REQUIRE(send_one(0, at_1, i, 100) == 0);
		flush(0);
		expect_one(1, i, 100);
		REQUIRE(take(1, pkts, BURST) == 0);
		REQUIRE(!q->batched);
	}
	/* One packet for each look: there is never another that waits. */
	for (unsigned i = 0; i < 1000; i++) {
		REQUIRE(send_one(0, at_1, i, 100) == 0);
		flush(0);
		expect_one(1, i, 100);
		REQUIRE(!q->batched);
	}
	for (unsigned round = 0; round < 10; round++) {
		for (unsigned i = 0; i < 64; i++)
			REQUIRE(send_one(0, at_1, i, 100) == 0);
		flush(0);
		expect_row(1, 0, 64, 100);
	}
	REQUIRE(q->batched);
	for (unsigned i = 0; i < 1000; i++) {
		struct nic_pkt pkts[BURST];
		REQUIRE(send_one(0, at_1, i, 100) == 0);
		flush(0);
		expect_one(1, i, 100);
		REQUIRE(take(1, pkts, BURST) == 0);
	}
	REQUIRE(!q->batched);
}

/* ---- reservations ---- */

static void case_side_by_side(void)
{
	static struct nic_tx tx[UDP_SLOTS];
	struct nic_tx more;
	two(families[0], NULL);
	for (unsigned lap = 0; lap < 3; lap++) {
		for (unsigned i = 0; i < UDP_SLOTS; i++) {
			REQUIRE(ends[0].ops->tx_room(ends[0].q, at_1) == UDP_SLOTS - i);
			REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, UDP_BYTES_MAX, &tx[i]) == 0);
			fill(tx[i].body, UDP_BYTES_MAX, i);
		}
		REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 1, &more) == -EAGAIN);
		/* The last first, every fifth not at all. */
		for (unsigned i = UDP_SLOTS; i-- > 0;) {
			if (i % 5 == 0) {
				ends[0].ops->tx_cancel(ends[0].q, &tx[i]);
				continue;
			}
			REQUIRE(ends[0].ops->tx_commit(ends[0].q, &tx[i]) == 0);
			flush(0);
			expect_one(1, i, UDP_BYTES_MAX);
		}
		REQUIRE(ends[0].ops->tx_room(ends[0].q, at_1) == UDP_SLOTS);
		ends[0].ops->tx_cancel(ends[0].q, &tx[0]);
		REQUIRE(ends[0].ops->tx_commit(ends[0].q, &tx[0]) == -EPIPE);
	}
}

/* The ring of slots turns while the oldest one stays open. */
static void case_held_open(void)
{
	struct nic_tx held, tx;
	two(families[0], NULL);
	for (unsigned lap = 0; lap < 5; lap++) {
		REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 60000, &held) == 0);
		fill(held.body, 60000, lap);
		for (unsigned i = 0; i < UDP_SLOTS - 1; i++) {
			unsigned len = i % 3 ? 50000 + i : 77;
			REQUIRE(send_one(0, at_1, i, len) == 0);
			flush(0);
			expect_one(1, i, len);
		}
		REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 1, &tx) == -EAGAIN);
		REQUIRE(ends[0].ops->tx_commit(ends[0].q, &held) == 0);
		flush(0);
		expect_one(1, lap, 60000);
	}
}

static void case_detach(void)
{
	struct nic_tx open[2];
	struct nic_pkt pkts[BURST];
	two(families[0], NULL);
	REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 100, &open[0]) == 0);
	REQUIRE(ends[0].ops->tx_reserve(ends[0].q, at_1, 100, &open[1]) == 0);
	REQUIRE(send_one(0, at_1, 5, 50) == 0);
	ends[0].ops->detach(ends[0].q, at_1); /* the last words leave */
	expect_one(1, 5, 50);
	driver->drop(ends[0].port, at_1);
	REQUIRE(ends[0].ops->tx_commit(ends[0].q, &open[0]) == 0);
	ends[0].ops->tx_cancel(ends[0].q, &open[1]);
	flush(0);
	REQUIRE(take(1, pkts, BURST) == 0);
	uint32_t again = connect_attach(0, 1);
	REQUIRE(again == at_1);
	REQUIRE(ends[0].ops->tx_room(ends[0].q, again) == UDP_SLOTS);
	REQUIRE(send_one(0, again, 6, 60) == 0);
	flush(0);
	expect_one(1, 6, 60);
}

/* ---- sleep ---- */

static void wake_round(unsigned i)
{
	struct nic_pkt pkts[BURST];
	struct pollfd p = {.fd = ends[1].ops->wake_fd(ends[1].q), .events = POLLIN};
	ends[1].ops->arm(ends[1].q);
	REQUIRE(take(1, pkts, BURST) == 0);
	REQUIRE(poll(&p, 1, 0) == 0);
	REQUIRE(send_one(0, at_1, i, 8) == 0);
	flush(0);
	REQUIRE(poll(&p, 1, WAIT_MS) == 1);
	ends[1].ops->wake_clear(ends[1].q);
	REQUIRE(take(1, pkts, BURST) == 1 && pkt_is(&pkts[0], i, 8));
	ends[1].ops->disarm(ends[1].q);
}

static void *wake_from_thread(void *q)
{
	((struct nic_queue *)q)->ops->wake(q);
	return NULL;
}

static void case_wake(void)
{
	const char *const listens[] = {families[0], NULL};
	for (unsigned l = 0; l < 2; l++) {
		two(listens[l], NULL);
		struct pollfd p = {.fd = ends[1].ops->wake_fd(ends[1].q), .events = POLLIN};
		for (unsigned i = 0; i < 300; i++) {
			wake_round(i);
			/* Traffic in between takes the sockets out of the epoll set. */
			for (unsigned k = 0; k < i % 100; k++) {
				struct nic_pkt pkts[BURST];
				REQUIRE(send_one(0, at_1, k, 80) == 0);
				flush(0);
				while (take(1, pkts, BURST) == 0)
					;
			}
		}
		pthread_t thread;
		REQUIRE(poll(&p, 1, 0) == 0);
		REQUIRE(pthread_create(&thread, NULL, wake_from_thread, ends[1].q) == 0);
		REQUIRE(poll(&p, 1, WAIT_MS) == 1);
		pthread_join(thread, NULL);
		ends[1].ops->wake_clear(ends[1].q);
		REQUIRE(poll(&p, 1, 0) == 0);
		REQUIRE(ends[1].ops->deadline(ends[1].q) == UINT64_MAX);
	}
}

/* ---- classes of service ---- */

static int send_urgent(uint64_t seq, unsigned len, uint8_t priority)
{
	struct nic_tx tx;
	int error = ends[0].ops->tx_reserve(ends[0].q, at_1, len, &tx);
	if (error)
		return error;
	memset(tx.body, 0, len);
	memcpy(tx.body, &seq, sizeof seq);
	tx.priority = priority;
	return ends[0].ops->tx_commit(ends[0].q, &tx);
}

/* What the kernel says of the next datagram at end 1; -1: it said nothing. */
static int class_of_next(int fd, uint64_t *seq)
{
	uint8_t bytes[2048];
	alignas(struct cmsghdr) uint8_t control[128];
	struct iovec iov = {bytes, sizeof bytes};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	REQUIRE(poll(&p, 1, 10000) == 1);
	REQUIRE(recvmsg(fd, &msg, MSG_DONTWAIT) >= (ssize_t)sizeof *seq);
	memcpy(seq, bytes, sizeof *seq);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
			return *CMSG_DATA(c);
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)
			return *(int *)(void *)CMSG_DATA(c);
	}
	return -1;
}

/* Rows of equal and unequal packets of all priorities, alone and together. Expect each in the class of its own, and in
 * its order. */
static void classes(const char *listen, const char *args, const uint8_t tos[8])
{
	uint64_t sent = 0, got = 0, seq;
	static uint8_t priorities[4096];
	int on = 1;
	two(listen, args);
	int fd = udp_queue_of(ends[1].q)->sockets[0].fd;
	REQUIRE(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on) == 0);
	if (strchr(listen, ':'))
		REQUIRE(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on) == 0);
	for (unsigned round = 0; round < 40; round++) {
		unsigned n = round < 16 ? 1 : round, stay = 1 + round % 5;
		for (unsigned i = 0; i < n; i++, sent++) {
			priorities[sent] = (uint8_t)(round < 16 ? round % 8 : (round + i / stay) % 8);
			REQUIRE(send_urgent(sent, round % 2 ? 200 : 100 + i % 7, priorities[sent]) == 0);
		}
		flush(0);
		for (; got < sent; got++) {
			int is = class_of_next(fd, &seq);
			REQUIRE(seq == got);
			if (is != tos[priorities[seq]])
				fprintf(stderr, "%s, %s: priority %u has class %d\n", listen, args ? args : "-",
					priorities[seq], is);
			REQUIRE(is == tos[priorities[seq]]);
		}
	}
}

static void case_classes(void)
{
	static const uint8_t selectors[8] = {0, 32, 64, 96, 128, 160, 192, 224}, none[8] = {0};
	static const uint8_t chosen[8] = {4, 4, 4, 4, 252, 40, 184, 184};
	for (unsigned f = 0; f < families_n(); f++) {
		classes(families[f], NULL, selectors);
		classes(families[f], "gso=0", selectors);
		classes(families[f], "dscp=off", none);
		classes(families[f], "dscp=1/1/1/1/63/10/46/46", chosen);
	}
}

/* Threads use the queue one after the other, as the holders of a shard do. */
static void *use_queue(void *arg)
{
	struct nic_pkt pkts[BURST];
	unsigned *n = arg;
	for (unsigned i = 0; i < 50; i++) {
		struct nic_tx tx;
		if (ends[0].ops->tx_reserve(ends[0].q, at_1, 200, &tx))
			return NULL;
		fill(tx.body, 200, i);
		ends[0].ops->tx_commit(ends[0].q, &tx);
		ends[0].ops->flush(ends[0].q);
		while (ends[1].ops->recv(ends[1].q, pkts, BURST) == 0)
			;
		*n += pkt_is(&pkts[0], i, 200);
	}
	return NULL;
}

static void case_threads(void)
{
	two(NULL, NULL);
	for (unsigned i = 0; i < 8; i++) {
		unsigned n = 0;
		pthread_t thread;
		REQUIRE(pthread_create(&thread, NULL, use_queue, &n) == 0);
		pthread_join(thread, NULL);
		REQUIRE(n == 50);
	}
}

/* A queue of two sockets: neither is overlooked by the look before a sleep, or when both are cold. */
static void case_two_sockets(void)
{
	struct nic_pkt pkts[BURST];
	struct sockaddr_in6 sa;
	struct udp_ip six = {.family = 0};
	if (!have_v6())
		return;
	two(NULL, NULL);
	REQUIRE(udp_queue_of(ends[1].q)->sockets_n == 2 && udp_ip_parse("::1", &six));
	socklen_t len = udp_ip_sockaddr(&six, udp_queue_of(ends[1].q)->port_number, false, &sa);
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	REQUIRE(sendto(fd, "cold", 4, 0, (struct sockaddr *)&sa, len) == 4);
	REQUIRE(take(1, pkts, BURST) == 1 && pkts[0].body_len == 4);
	end_close(0);
	two(NULL, NULL); /* another port number */
	len = udp_ip_sockaddr(&six, udp_queue_of(ends[1].q)->port_number, false, &sa);
	for (unsigned i = 0; i < 20; i++) {
		REQUIRE(send_one(0, at_1, i, 30) == 0);
		flush(0);
		while (take(1, pkts, BURST) == 0)
			;
		REQUIRE(sendto(fd, "armed", 5, 0, (struct sockaddr *)&sa, len) == 5);
		if (i % 2) { /* polled now and then */
			while (take(1, pkts, BURST) == 0)
				;
		} else {
			ends[1].ops->arm(ends[1].q);
			REQUIRE(take(1, pkts, BURST) == 1);
			ends[1].ops->disarm(ends[1].q);
		}
		REQUIRE(pkts[0].body_len == 5);
		/* So that the socket is cold for the next round. */
		udp_queue_of(ends[1].q)->hot_n -= udp_queue_of(ends[1].q)->sockets[1].hot_passes > 0;
		udp_queue_of(ends[1].q)->sockets[1].hot_passes = 0;
	}
	close(fd);
}

/* ---- who else is there ---- */

static void case_unexpected(void)
{
	static uint8_t junk[UDP_BYTES_MAX];
	static const unsigned lens[] = {0, 1, 96, 1500, UDP_BYTES_MAX};
	struct nic_pkt pkts[BURST];
	two(families[0], NULL);
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons(udp_queue_of(ends[1].q)->port_number),
				 .sin_addr.s_addr = inet_addr(families[0])};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 5; i++)
			REQUIRE(sendto(fd, junk, lens[i], 0, (struct sockaddr *)&sa, sizeof sa) == (ssize_t)lens[i]);
		for (unsigned got = 0; got < 5;) {
			unsigned n = take_within(1, pkts, BURST, WAIT_MS);
			REQUIRE(n > 0);
			for (unsigned i = 0; i < n; i++, got++)
				REQUIRE(pkts[i].body_len == lens[got] && pkts[i].peer == NIC_PEER_NONE && pkts[i].head);
		}
	}
	close(fd);
	REQUIRE(send_one(0, at_1, 1, 100) == 0);
	flush(0);
	expect_one(1, 1, 100);
}

static void case_full(void)
{
	struct nic_stats s;
	struct nic_pkt pkts[BURST];
	end_open_at(0, families[0], "gso=0", 1);
	end_open_at(1, families[0], "rcvbuf=4096", 1);
	at_1 = connect_attach(0, 1);
	for (unsigned i = 0; i < 500; i++) {
		REQUIRE(send_one(0, at_1, i, 1000) == 0);
		flush(0);
	}
	uint64_t got = 0;
	for (unsigned n; (n = take(1, pkts, BURST)) > 0;)
		got += n;
	driver->stats(ends[1].port, &s);
	REQUIRE(got > 0 && got < 500 && s.rx_packets == got && s.rx_missed == 500 - got);
	REQUIRE(send_one(0, at_1, 9, 100) == 0);
	flush(0);
	expect_one(1, 9, 100);
}

/* What the port's descriptor says is to be reported. */
static void expect_refusal(unsigned i)
{
	struct pollfd p = {.fd = driver->fd(ends[i].port), .events = POLLIN};
	REQUIRE(poll(&p, 1, WAIT_MS) == 1);
	REQUIRE(driver->step(ends[i].port, 0, on_event, &ends[i]) == UINT64_MAX);
	REQUIRE(poll(&p, 1, 0) == 0);
}

static void case_refused(void)
{
	for (unsigned f = 0; f < families_n(); f++) {
		struct nic_addr gone;
		struct nic_err err = {""};
		end_close(2);
		end_open_at(2, families[f], NULL, 1);
		two(families[f], NULL);
		uint32_t at_2 = connect_attach(0, 2);
		driver->address(ends[2].port, &gone);
		end_close(2);
		/* Each packet to the port that is closed comes back as an error of a later call. */
		for (unsigned i = 0; i < 500; i++) {
			REQUIRE(send_one(0, at_2, i, 100) == 0);
			if (i % 3 == 0)
				flush(0);
			REQUIRE(send_one(0, at_1, i, 90 + i % 2) == 0);
			flush(0);
			expect_one(1, i, 90 + i % 2);
			struct nic_pkt pkts[BURST];
			REQUIRE(take(0, pkts, BURST) == 0);
		}
		/* The control thread hears of the place that nobody listens at, and of no other. */
		expect_refusal(0);
		REQUIRE(ends[0].refusals == 1 && ends[0].refused == at_2);
		REQUIRE(send_one(0, at_2, 0, 100) == 0);
		flush(0);
		REQUIRE(send_one(0, at_1, 0, 90) == 0);
		flush(0);
		expect_one(1, 0, 90);
		expect_refusal(0);
		REQUIRE(ends[0].refusals == 2 && ends[0].refused == at_2);
		ends[0].refusals = 0;
		uint8_t byte;
		REQUIRE(recv(udp_queue_of(ends[0].q)->sockets[0].fd, &byte, 1, MSG_ERRQUEUE) < 0 && errno == EAGAIN);
		struct nic_stats s;
		driver->stats(ends[0].port, &s);
		REQUIRE(s.tx_dropped == 0);
		REQUIRE(driver->reach(ends[0].port, &gone, &err) == 0);
		REQUIRE(strstr(err.text, "no process has that port"));
		/* The errors are all taken: nothing keeps the queue awake. */
		struct nic_pkt pkts[BURST];
		struct pollfd p = {.fd = ends[0].ops->wake_fd(ends[0].q), .events = POLLIN};
		ends[0].ops->arm(ends[0].q);
		REQUIRE(take(0, pkts, BURST) == 0);
		REQUIRE(poll(&p, 1, 0) == 0);
		ends[0].ops->disarm(ends[0].q);
	}
}

int main(void)
{
	static const struct test_case cases[] = {
		{"sizes", case_sizes},
		{"not attached", case_not_attached},
		{"equal packets", case_equal},
		{"unequal packets", case_unequal},
		{"ends of runs", case_run_ends},
		{"load", case_load},
		{"classes of service", case_classes},
		{"open side by side", case_side_by_side},
		{"held open", case_held_open},
		{"detach", case_detach},
		{"wake", case_wake},
		{"threads in turn", case_threads},
		{"two sockets", case_two_sockets},
		{"unexpected datagrams", case_unexpected},
		{"receive buffer full", case_full},
		{"refused", case_refused},
		{"several queues", case_queues},
		{"chosen ports", case_port_args},
		{"wrong configurations", case_wrong},
		{"addresses", case_addresses},
		{"all addresses", case_beyond},
		{"many places", case_dests},
	};
	families[0] = own_address();
	return run_cases(cases, sizeof cases / sizeof *cases);
}
