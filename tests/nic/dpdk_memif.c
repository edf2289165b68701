/* SPDX-License-Identifier: BSD-3-Clause */
/** The dpdk driver over memif: two processes, or two ports of one; `dpdk_memif CASE`. Exits with 77 without the module.
 * Main thread of each process. */
#include "dpdk_memif_users.h"

static void disconnect(struct end *e, unsigned queue, uint32_t peer)
{
	e->q[queue]->ops->detach(e->q[queue], peer);
	e->ops->drop(e->port, peer);
}

/* The server is the other process, or the client is. */
static void two_processes(bool serve)
{
	struct end e;
	struct other o;
	struct nic_addr ours;
	end_open(&e, serve ? server_args : client_args, 1);
	e.ops->address(e.port, &ours);
	other_start(&o, serve ? client_args : server_args, 1, &ours);
	uint32_t peer = end_connect(&e, 0, &o.addr, 0);
	uint64_t seq = 1;
	size_t last = e.caps.body_bytes_max - 49;
	for (size_t len = 16; len < last; len += len < 200 ? 50 : 211, seq += 50)
		exchange_burst(&e, 0, peer, &e, 0, (struct burst){seq, 50, len});
	exchange_burst(&e, 0, peer, &e, 0, (struct burst){seq, 50, last});
	seq += 50;
	for (unsigned i = 0; i < 20000; i += 50, seq += 50)
		exchange_burst(&e, 0, peer, &e, 0, (struct burst){seq, 50, 16 + i % 100});
	disconnect(&e, 0, peer);
	other_end(&o, 0);
	e.ops->close(e.port);
}

static void case_echo(void)
{
	name_args("");
	two_processes(true);
	two_processes(false);
	name_args(",bsize=9000");
	two_processes(true);
}

/* Traffic goes on while the other process is killed, and with the next one. */
static void restart(bool serve)
{
	struct end e;
	struct nic_addr ours;
	name_args("");
	end_open(&e, serve ? server_args : client_args, 1);
	e.ops->address(e.port, &ours);
	uint64_t seq = 1;
	for (unsigned round = 0; round < 8; round++) {
		struct other o;
		other_start(&o, serve ? client_args : server_args, 1, &ours);
		uint32_t peer = end_connect(&e, 0, &o.addr, 0);
		for (unsigned i = 0; i < 2000; i += 50, seq += 50)
			exchange_burst(&e, 0, peer, &e, 0, (struct burst){seq, 50, 16 + i % 1000});
		struct nic_pkt pkts[BURST];
		kill(o.pid, SIGKILL);
		for (uint64_t until = now_ns() + 30000000; now_ns() < until;) {
			for (unsigned i = 0; i < BURST; i++)
				send_one(&e, 0, peer, seq, 1000);
			flush(&e, 0);
			e.q[0]->ops->recv(e.q[0], pkts, BURST);
			end_step(&e);
		}
		other_end(&o, SIGKILL);
		disconnect(&e, 0, peer);
	}
	e.ops->close(e.port);
}

/* What a killed process leaves; the next one replaces it. */
static void remove_left(const char *name)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	REQUIRE(unlink(path) == 0);
}

static void case_restart(void)
{
	restart(true);
	remove_left("m.sock.c3.0");
	restart(false);
	remove_left("m.sock");
	remove_left("m.sock.s3.0");
}

/* Both ends in one process, many times; each server leaves one descriptor (see nic/dpdk/memif.c). */
static void case_again(void)
{
	unsigned before = 0;
	for (unsigned i = 0; i < 12; i++) {
		struct end s, c;
		struct nic_addr to;
		char at[256];
		bool abstract = i % 2;
		snprintf(at, sizeof at, "net_memif%u,role=server,id=%u,socket=%s/%s,socket-abstract=%s", i, i % 3, dir,
			 abstract ? "a" : "f", abstract ? "yes" : "no");
		if (i % 3)
			end_open(&s, at, 1);
		char other[256];
		snprintf(other, sizeof other, "net_memif%u,role=client,id=%u,socket=%s/%s,socket-abstract=%s", i + 1,
			 i % 3, dir, abstract ? "a" : "f", abstract ? "yes" : "no");
		end_open(&c, other, 1);
		if (i % 3 == 0) /* either may be first */
			end_open(&s, at, 1);
		s.ops->address(s.port, &to);
		uint32_t peer = end_connect(&c, 0, &to, 0);
		for (unsigned k = 0; k < 200; k++)
			exchange(&c, 0, peer, &s, 0, 1 + k, 16 + k);
		disconnect(&c, 0, peer);
		(i % 4 < 2 ? &s : &c)->ops->close((i % 4 < 2 ? &s : &c)->port);
		(i % 4 < 2 ? &c : &s)->ops->close((i % 4 < 2 ? &c : &s)->port);
		if (i == 1)
			before = open_fds();
	}
	REQUIRE(open_fds() == before + 10);
}

/* Every queue of one side reaches every queue of the other, and those of its own. */
static void case_queues(void)
{
	struct end s, c;
	struct nic_addr to_s, to_c;
	uint64_t seq = 1;
	name_args("");
	end_open(&s, server_args, 3);
	end_open(&c, client_args, 3);
	s.ops->address(s.port, &to_s);
	c.ops->address(c.port, &to_c);
	REQUIRE(s.caps.steering == NIC_STEER_QUEUE && s.caps.pair_rings);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < 3; k++) {
			uint32_t there = end_connect(&c, i, &to_s, k), back = end_connect(&s, k, &to_c, i);
			uint32_t own = end_connect(&s, i, &to_s, k);
			for (unsigned n = 0; n < 300; n++, seq += 3) {
				exchange(&c, i, there, &s, k, seq, 16 + n);
				exchange(&s, k, back, &c, i, seq + 1, 16 + n);
				exchange(&s, i, own, &s, k, seq + 2, 16 + n);
			}
			disconnect(&c, i, there);
			disconnect(&s, k, back);
			disconnect(&s, i, own);
		}
	struct nic_stats stats;
	s.ops->stats(s.port, &stats);
	REQUIRE(stats.rx_unexpected == 0 && stats.rx_malformed == 0 && stats.tx_dropped == 0);
	REQUIRE(stats.rx_packets >= 9 * 600 && stats.tx_packets >= 9 * 600);
	s.ops->close(s.port);
	c.ops->close(c.port);
}

static bool sleeps(struct end *e, int ms)
{
	struct pollfd p = {.fd = e->q[0]->ops->wake_fd(e->q[0]), .events = POLLIN};
	return poll(&p, 1, ms) == 0;
}

/* No interrupt wakes a memif queue: kicks do, and wake() does. */
static void case_sleep(void)
{
	for (unsigned abstract = 0; abstract < 2; abstract++) {
		struct end s, c;
		struct nic_addr to;
		struct nic_stats stats;
		char at[2][256];
		for (unsigned i = 0; i < 2; i++)
			snprintf(at[i], sizeof at[i], "net_memif%u,role=%s,socket=%s/k,socket-abstract=%s", i,
				 i ? "client" : "server", dir, abstract ? "yes" : "no");
		end_open(&s, at[0], 1);
		end_open(&c, at[1], 1);
		REQUIRE(!s.caps.wake);
		s.ops->address(s.port, &to);
		uint32_t peer = end_connect(&c, 0, &to, 0);
		exchange(&c, 0, peer, &s, 0, 1, 100);
		s.q[0]->ops->arm(s.q[0]);
		REQUIRE(sleeps(&s, 20));
		REQUIRE(send_one(&c, 0, peer, 2, 100) == 0);
		flush(&c, 0);
		for (unsigned i = 0; i < 100; i++) /* more than are cleared at once, and than a socket takes */
			c.q[0]->ops->kick(c.q[0], peer);
		REQUIRE(!sleeps(&s, 10000));
		for (unsigned i = 0; i < 100 && !sleeps(&s, 0); i++)
			s.q[0]->ops->wake_clear(s.q[0]);
		REQUIRE(sleeps(&s, 0));
		s.q[0]->ops->disarm(s.q[0]);
		s.q[0]->ops->wake(s.q[0]);
		REQUIRE(!sleeps(&s, 10000));
		s.q[0]->ops->wake_clear(s.q[0]);
		REQUIRE(sleeps(&s, 0));
		c.ops->stats(c.port, &stats);
		REQUIRE(stats.kicks == 100);
		s.ops->close(s.port);
		for (unsigned i = 0; i < 4; i++)
			c.q[0]->ops->kick(c.q[0], peer); /* nobody is there: lost */
		c.ops->close(c.port);
	}
}

/* The other side is not there, then does not receive, then does. */
static void case_full(void)
{
	struct end s, c;
	struct nic_addr to;
	struct nic_stats stats;
	uint64_t seq = 0, got, expected = 0;
	name_args(",rsize=6"); /* 64 slots */
	end_open(&c, client_args, 1);
	end_open(&s, server_args, 1);
	s.ops->address(s.port, &to);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	s.ops->close(s.port);
	for (unsigned i = 0; i < 20000; i++) {
		int error = send_one(&c, 0, peer, i, 16);
		REQUIRE(error == 0); /* dropped, and counted: there is nobody to wait for */
		if (i % 100 == 0)
			flush(&c, 0);
		end_step(&c);
	}
	flush(&c, 0);
	c.ops->stats(c.port, &stats);
	REQUIRE(stats.tx_packets == 20000 && stats.tx_dropped >= 20000 - 64 && stats.tx_dropped <= 20000);
	REQUIRE(c.q[0]->ops->deadline(c.q[0]) == UINT64_MAX);
	disconnect(&c, 0, peer);

	end_open(&s, server_args, 1);
	s.ops->address(s.port, &to);
	peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, UINT64_MAX, 16);
	uint64_t limit = now_ns() + HANG_NS;
	while (send_one(&c, 0, peer, seq, c.caps.body_bytes_max) == 0) {
		REQUIRE(now_ns() < limit);
		flush(&c, 0);
		seq++;
	}
	REQUIRE(seq >= c.caps.slots);
	REQUIRE(c.caps.rx_slots >= 64 && c.caps.rx_slots <= 1024);
	REQUIRE(send_one(&c, 0, peer, seq, 16) == -EAGAIN);
	REQUIRE(c.q[0]->ops->tx_room(c.q[0], peer) == 0);
	/* Some places are kept for the most urgent, and for nobody else. */
	REQUIRE(send_urgent(&c, 0, peer, seq, 16, NIC_PRIORITY_MAX - 1) == -EAGAIN);
	uint64_t others = seq;
	while (send_urgent(&c, 0, peer, seq, 16, NIC_PRIORITY_MAX) == 0)
		seq++;
	REQUIRE(seq - others >= 16 && seq - others <= 64);
	REQUIRE(c.q[0]->ops->tx_room(c.q[0], peer) == 0);
	REQUIRE(c.q[0]->ops->deadline(c.q[0]) != UINT64_MAX);
	/* Nothing more is sent: what waits leaves by being received, and retried by recv(). */
	while (expected < seq) {
		struct nic_pkt pkts[BURST];
		REQUIRE(now_ns() < limit);
		unsigned n = s.q[0]->ops->recv(s.q[0], pkts, BURST);
		for (unsigned i = 0; i < n; i++) {
			REQUIRE(is_whole(&pkts[i], &got));
			REQUIRE(got == expected || (got == UINT64_MAX && expected == 0));
			expected += got != UINT64_MAX;
		}
		c.q[0]->ops->recv(c.q[0], pkts, BURST);
	}
	REQUIRE(c.q[0]->ops->tx_room(c.q[0], peer) >= c.caps.slots);
	REQUIRE(c.q[0]->ops->deadline(c.q[0]) == UINT64_MAX);
	REQUIRE(send_one(&c, 0, peer, 1, c.caps.body_bytes_max + 1) == -EMSGSIZE);
	REQUIRE(send_one(&c, 0, peer + 1, 1, 16) == -EPIPE);
	s.ops->close(s.port);
	c.ops->close(c.port);
}

/* As send_one(), two of three with their end elsewhere, in memory that is written over once the flush has returned. */
static int send_referred(struct end *e, uint32_t peer, uint64_t seq, size_t len)
{
	static uint8_t elsewhere[65536];
	struct nic_queue *q = e->q[0];
	struct nic_tx tx;
	size_t at = 16 + seq % (len - 16);
	int error = q->ops->tx_reserve(q, peer, len, &tx);
	if (error)
		return error;
	q->ops->tx_refer(q, &tx, elsewhere, (uint32_t)len - 1);
	q->ops->tx_cancel(q, &tx);
	REQUIRE(q->ops->tx_reserve(q, peer, len, &tx) == 0);
	uint64_t head[2] = {seq, 0};
	memcpy(tx.body, head, sizeof head);
	for (size_t i = sizeof head; i < len; i++)
		*(i < at ? tx.body + i : elsewhere + i - at) = pattern(seq, i);
	if (seq % 3)
		q->ops->tx_refer(q, &tx, elsewhere, (uint32_t)(len - at));
	else
		memcpy(tx.body + at, elsewhere, len - at);
	error = q->ops->tx_commit(q, &tx);
	if (error)
		q->ops->tx_cancel(q, &tx);
	flush(e, 0);
	memset(elsewhere, 0x77, sizeof elsewhere);
	return error;
}

/* Also of frames that find the ring full, and those that are sent while there is no peer. */
static void case_referred(void)
{
	struct end s, c;
	struct nic_addr to;
	uint64_t seq = 0, got, expected = 0, limit = now_ns() + HANG_NS;
	name_args(",rsize=6,bsize=4096,mtu=2000");
	end_open(&s, server_args, 1);
	end_open(&c, client_args, 1);
	s.ops->address(s.port, &to);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, UINT64_MAX, 16);
	while (send_referred(&c, peer, seq, 1024 + seq % (c.caps.body_bytes_max - 1023)) == 0) {
		REQUIRE(now_ns() < limit);
		seq++;
	}
	REQUIRE(seq >= c.caps.slots);
	while (expected < seq) {
		struct nic_pkt pkts[BURST];
		REQUIRE(now_ns() < limit);
		unsigned n = s.q[0]->ops->recv(s.q[0], pkts, BURST);
		for (unsigned i = 0; i < n; i++) {
			REQUIRE(is_whole(&pkts[i], &got));
			REQUIRE(got == expected || (got == UINT64_MAX && expected == 0));
			expected += got != UINT64_MAX;
		}
		c.q[0]->ops->recv(c.q[0], pkts, BURST);
	}
	s.ops->close(s.port);
	for (seq = 0; seq < 2000; seq++) { /* more than there are mbufs */
		REQUIRE(now_ns() < limit && send_referred(&c, peer, seq, 1024) == 0);
		end_step(&c);
	}
	c.ops->close(c.port);
}

/* One message, then nothing: its memory is back without any further traffic, reception or flush. */
static void case_released(void)
{
	struct end s, c;
	struct nic_addr to;
	struct nic_tx open[2048];
	unsigned n = 0, again = 0, all;
	name_args("");
	end_open(&s, server_args, 1);
	end_open(&c, client_args, 1);
	s.ops->address(s.port, &to);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, 1, 16);
	struct nic_queue *q = c.q[0];
	while (q->ops->tx_reserve(q, peer, 100, &open[n]) == 0)
		n++;
	/* And those that are kept for the most urgent. */
	REQUIRE(n >= c.caps.slots && n <= c.caps.slots + 64 && c.caps.release_ns == 0);
	all = n;
	while (n)
		q->ops->tx_cancel(q, &open[--n]);
	REQUIRE(send_one(&c, 0, peer, 2, 100) == 0);
	flush(&c, 0);
	while (q->ops->tx_reserve(q, peer, 100, &open[again]) == 0)
		again++;
	REQUIRE(again == all);
	while (again)
		q->ops->tx_cancel(q, &open[--again]);
	s.ops->close(s.port);
	c.ops->close(c.port);
}

static void case_raw(void)
{
	struct end s, c;
	struct nic_addr to;
	uint64_t last = 0, sent = 0, seen = 0, limit = now_ns() + HANG_NS;
	name_args("");
	end_open(&s, server_args, 1);
	end_open(&c, client_args, 1);
	s.ops->address(s.port, &to);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, 1, 16);
	while (seen < 100000) {
		REQUIRE(now_ns() < limit);
		sent += c.q[0]->ops->raw->tx(c.q[0], peer, sent + 1, 7, 16 + (unsigned)(sent % 1000));
		unsigned n = s.q[0]->ops->raw->rx(s.q[0], 32, &last);
		seen += n;
		REQUIRE(n == 0 || last == seen); /* memif loses none, and keeps their order */
	}
	REQUIRE(c.q[0]->ops->raw->tx(c.q[0], peer, 1, 1, 15) == 0);
	REQUIRE(c.q[0]->ops->raw->tx(c.q[0], peer, 1, 1, 60000) == 0);
	s.ops->close(s.port);
	c.ops->close(c.port);
}

static void remove_dir(void)
{
	rmdir(dir);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"echo", case_echo},         {"restart", case_restart},   {"again", case_again},
		     {"queues", case_queues},     {"sleep", case_sleep},       {"full", case_full},
		     {"released", case_released}, {"referred", case_referred}, {"raw", case_raw},
		     {"args", case_args},         {"reach", case_reach},       {"affinity", case_affinity},
		     {"huge", case_huge},         {"knock", case_knock},       {"users", case_users}};
	alarm(290); /* beside much else each of the 16 processes of restart() takes seconds to start */
	if (argc == 4 && strcmp(argv[1], "--echo") == 0)
		return echo_main(argv[2], (unsigned)atoi(argv[3]));
	REQUIRE(mkdtemp(dir) && atexit(remove_dir) == 0);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		if (argc == 1 || strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			printf("%s: ok\n", cases[i].name);
		}
	REQUIRE(rmdir(dir) == 0); /* nothing is left in it */
	return 0;
}
