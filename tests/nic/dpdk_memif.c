/* SPDX-License-Identifier: BSD-3-Clause */
/** The dpdk driver over memif: two processes, or two ports of one; `dpdk_memif CASE`. Exits with 77 without the module.
 */
#include "dpdk_ends.h"

#include <dirent.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

static char dir[] = "/tmp/farcall-memif-XXXXXX";
static char server_args[256], client_args[256];

static void name_args(const char *more)
{
	snprintf(server_args, sizeof server_args, "net_memif0,role=server,id=3,socket=%s/m.sock,socket-abstract=no%s",
		 dir, more);
	snprintf(client_args, sizeof client_args, "net_memif1,role=client,id=3,socket=%s/m.sock,socket-abstract=no%s",
		 dir, more);
}

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
	for (size_t len = 16; len <= e.caps.body_bytes_max; len += len < 200 ? 1 : 61)
		exchange(&e, 0, peer, &e, 0, seq++, len);
	for (unsigned i = 0; i < 20000; i++)
		exchange(&e, 0, peer, &e, 0, seq++, 16 + i % 100);
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
		for (unsigned i = 0; i < 2000; i++)
			exchange(&e, 0, peer, &e, 0, seq++, 16 + i % 1000);
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

static unsigned open_fds(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
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
	REQUIRE(s.caps.steering == NIC_STEER_QUEUE);
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
	REQUIRE(stats.rx_foreign == 0 && stats.rx_malformed == 0 && stats.tx_dropped == 0);
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
	REQUIRE(send_one(&c, 0, peer, seq, 16) == -EAGAIN);
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

/* One message, then nothing: its memory is back without any further traffic, reception or flush. */
static void case_released(void)
{
	struct end s, c;
	struct nic_addr to;
	struct nic_tx open[2048];
	unsigned n = 0, again = 0;
	name_args("");
	end_open(&s, server_args, 1);
	end_open(&c, client_args, 1);
	s.ops->address(s.port, &to);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, 1, 16);
	struct nic_queue *q = c.q[0];
	while (q->ops->tx_reserve(q, peer, 100, &open[n]) == 0)
		n++;
	REQUIRE(n == c.caps.slots && c.caps.reap_ns == 0);
	while (n)
		q->ops->tx_cancel(q, &open[--n]);
	REQUIRE(send_one(&c, 0, peer, 2, 100) == 0);
	flush(&c, 0);
	while (q->ops->tx_reserve(q, peer, 100, &open[again]) == 0)
		again++;
	REQUIRE(again == c.caps.slots);
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

/* What is wrong is named, and the next one works. */
static void case_args(void)
{
	static const struct {
		const char *args, *says;
		unsigned queues;
	} wrong[] = {
		{NULL, "no device is named", 1},
		{"", "no device is named", 1},
		{",role=server", "names no device", 1},
		{"role=server", "names no device", 1},
		{"memif0", "neither net_", 1},
		{"net_memif0", "role=server on one side", 1},
		{"net_memif0,role=master", "server or client", 1},
		{"net_memif0,role=server,nonsense", "no key=value", 1},
		{"net_memif0,role=server,=1", "no key=value", 1},
		{"net_memif0,role=server,id=-1", "id=-1", 1},
		{"net_memif0,role=server,id=99999999999", "id=99999999999", 1},
		{"net_memif0,role=server,bsize=1", "bsize=1", 1},
		{"net_memif0,role=server,bsize=70000", "bsize=70000", 1},
		{"net_memif0,role=server,zero-copy=yes", "zero-copy=yes", 1},
		{"net_memif0,role=server,huge=2", "huge=2", 1},
		{"net_memif0,role=server,mtu=1", "mtu=1", 1},
		{"net_memif0,role=server,port=65536", "port=65536", 1},
		{"net_memif0,role=server,ip=10.0.0.300", "ip=10.0.0.300", 1},
		{"net_memif0,role=server,ip=10.0.0.3/33", "ip=10.0.0.3/33", 1},
		{"net_memif0,role=server,socket-abstract=no,socket=/nonexistent/dir/m",
		 "cannot listen at /nonexistent/dir/m", 1},
		{"net_memif0,role=server,rsize=99", "Invalid ring size", 1},
		{"net_memif0,role=server,unknown=1", "unknown=1: memif has no such", 1},
		{"net_null0,copy=0,unknown=1", "net_null0 cannot be had", 1},
		{"net_nothing0,iface=lo", "net_nothing0 cannot be had", 1},
		{"net_memif0,role=server,socket-abstract=no,socket=/dev/null", "/dev/null is there already", 1},
		{"net_memif0,role=server", "1 to 16 queues", 0},
		{"net_memif0,role=server", "1 to 16 queues", 17},
		{"net_memif0,role=server", "at most 15 shards", 16},
		{"0000:ff:1f.7", "0000:ff:1f.7", 1},
		{"net_af_packet0", "iface=", 1},
		{"net_af_packet0,iface=lo", "security=none", 1},
	};
	struct end e;
	struct nic_err err;
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		int error = end_try(&e, wrong[i].args, wrong[i].queues, &err);
		if (error >= 0 || !strstr(err.text, wrong[i].says)) {
			fprintf(stderr, "%s: %d, \"%s\" lacks \"%s\"\n", wrong[i].args, error, err.text, wrong[i].says);
			exit(1);
		}
	}
	name_args("");
	end_open(&e, server_args, 1);
	struct end twice;
	REQUIRE(end_try(&twice, server_args, 1, &err) == -EBUSY && strstr(err.text, "in use in this process"));
	struct nic_config config = {.id = 1, .queues = 1, .head_bytes = 28, .args = server_args};
	REQUIRE(e.ops->open(&config, &twice.port, &err) == -EINVAL && strstr(err.text, "28 bytes"));
	int status;
	pid_t child = fork(); /* which has none of EAL's threads */
	if (child == 0)
		_exit(end_try(&twice, "net_null7,copy=0", 1, &err) != -EOPNOTSUPP || !strstr(err.text, "forked"));
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	struct other o;
	struct nic_addr ours;
	e.ops->address(e.port, &ours);
	other_start(&o, client_args, 1, &ours);
	uint32_t peer = end_connect(&e, 0, &o.addr, 0);
	exchange(&e, 0, peer, &e, 0, 1, 16);
	other_end(&o, 0);
	e.ops->close(e.port);
}

/* Addresses of others: who can be reached, and why not. */
static void case_reach(void)
{
	struct end s, c, other, two;
	struct nic_addr to_s, to_c, to;
	struct nic_err err = {""};
	char at[256];
	name_args("");
	end_open(&s, server_args, 1);
	end_open(&c, client_args, 1);
	s.ops->address(s.port, &to_s);
	c.ops->address(c.port, &to_c);
	REQUIRE(to_s.len <= 208 && strcmp(to_s.driver, "dpdk") == 0);
	REQUIRE(s.ops->reach(s.port, &to_c, &err) == 0);
	REQUIRE(s.ops->reach(s.port, &to_s, &err) == 0); /* itself */
	s.ops->address_text(&to_s, at, sizeof at);
	REQUIRE(strstr(at, "memif id 3") && strstr(at, "server"));
	const struct {
		const char *args, *says;
	} unreachable[] = {
		{"net_memif2,role=server,id=4,socket=%s/m.sock,socket-abstract=no", "id 4 here, 3 there"},
		{"net_memif2,role=client,id=3,socket=%s/other,socket-abstract=no", "another socket"},
		{"net_memif2,role=client,id=3,socket=%s/a.sock,socket-abstract=yes", "another socket"},
		{"net_null0,copy=0%s", "is memif"},
	};
	for (unsigned i = 0; i < sizeof unreachable / sizeof *unreachable; i++) {
		snprintf(at, sizeof at, unreachable[i].args, i < 3 ? dir : "");
		end_open(&other, at, 1);
		REQUIRE(other.ops->reach(other.port, &to_s, &err) == -EHOSTUNREACH);
		if (!strstr(err.text, unreachable[i].says)) {
			fprintf(stderr, "%s: %s\n", at, err.text);
			exit(1);
		}
		other.ops->close(other.port);
	}
	snprintf(at, sizeof at, "net_memif3,role=server,id=5,socket=%s/m.sock,socket-abstract=no", dir);
	end_open(&other, at, 1);
	snprintf(at, sizeof at, "net_memif4,role=client,id=5,socket=%s/m.sock,socket-abstract=no", dir);
	end_open(&two, at, 2);
	other.ops->address(other.port, &to);
	REQUIRE(two.ops->reach(two.port, &to, &err) == -EHOSTUNREACH && strstr(err.text, "2 here, 1 there"));
	other.ops->close(other.port);
	two.ops->close(two.port);
	/* Nonsense of every length and with every byte changed: an error or a place, never more. */
	for (unsigned i = 0; i < to_s.len; i++) {
		to = to_s;
		to.len = (uint16_t)i;
		REQUIRE(c.ops->reach(c.port, &to, &err) == -EINVAL);
		to = to_s;
		to.blob[i] = (uint8_t)~to.blob[i];
		c.ops->address_text(&to, at, sizeof at);
		if (c.ops->connect(c.port, 0, &to, 0, NULL, 0, now_ns(), NULL, &err) == 0)
			continue;
		REQUIRE(err.text[0]);
	}
	REQUIRE(c.ops->connect(c.port, 1, &to_s, 0, NULL, 0, now_ns(), NULL, &err) == -EINVAL);
	REQUIRE(c.ops->connect(c.port, 0, &to_s, 1, NULL, 0, now_ns(), NULL, &err) == -EINVAL);
	c.ops->close(c.port); /* with places that nobody was told of */
	s.ops->close(s.port);
}

/* What EAL does to a process that has other plans. */
static void case_affinity(void)
{
	struct end e;
	cpu_set_t before, after;
	char path[64], line[256];
	name_args("");
	REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
	end_open(&e, server_args, 1);
	REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
	REQUIRE(CPU_EQUAL(&before, &after));
	DIR *d = opendir("/proc/self/task");
	struct dirent *task;
	unsigned threads = 0;
	while ((task = readdir(d))) {
		pid_t tid = atoi(task->d_name);
		if (tid <= 0 || tid == getpid())
			continue;
		REQUIRE(sched_getaffinity(tid, sizeof after, &after) == 0);
		REQUIRE(CPU_EQUAL(&before, &after));
		snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
		FILE *f = fopen(path, "r");
		bool blocked = false;
		while (f && fgets(line, sizeof line, f)) {
			unsigned long long mask;
			if (sscanf(line, "SigBlk: %llx", &mask) == 1)
				blocked = mask >> (SIGTERM - 1) & mask >> (SIGPIPE - 1) & mask >> (SIGUSR1 - 1) & 1;
		}
		REQUIRE(f && fclose(f) == 0 && blocked);
		threads++;
	}
	closedir(d);
	REQUIRE(threads >= 1);
	e.ops->close(e.port);
}

/* With FAR_TEST_HUGE=0 or 1 it is asked for. */
static void case_huge(void)
{
	const char *asked = getenv("FAR_TEST_HUGE");
	struct end s, c;
	struct nic_addr to;
	struct nic_err err;
	char more[32] = "", line[512];
	if (asked)
		snprintf(more, sizeof more, ",huge=%s", asked);
	name_args(more);
	int error = end_try(&s, server_args, 1, &err);
	if (error) {
		fprintf(stderr, "%s\n", err.text);
		rmdir(dir);
		exit(1);
	}
	end_open(&c, client_args, 1);
	s.ops->address(s.port, &to);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	for (unsigned i = 0; i < 1000; i++)
		exchange(&c, 0, peer, &s, 0, 1 + i, 16 + i);
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long kb, huge = 0;
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "Private_Hugetlb: %lu kB", &kb) == 1 ||
		    sscanf(line, "Shared_Hugetlb: %lu kB", &kb) == 1)
			huge += kb;
	REQUIRE(f && fclose(f) == 0);
	printf("%s in use\n", huge ? "huge pages" : "no huge pages");
	struct end other;
	error = end_try(&other, huge ? "net_null0,huge=0" : "net_null0,huge=1", 1, &err);
	REQUIRE(error && strstr(err.text, huge ? "runs already, with huge pages" : "huge"));
	s.ops->close(s.port);
	c.ops->close(c.port);
}

static int knock(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(at.sun_path, sizeof at.sun_path, "%s/m.sock", dir);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
	return fd;
}

static void steps(struct end *s, struct end *c, unsigned ms)
{
	for (uint64_t until = now_ns() + ms * UINT64_C(1000000); now_ns() < until;) {
		end_step(s);
		if (c)
			end_step(c);
	}
}

/* Who connects to a server and leaves, or stays and says nonsense, disturbs neither it nor its client. */
static void case_knock(void)
{
	struct end s, c;
	struct nic_addr to;
	uint8_t nonsense[300];
	int fds[80];
	name_args("");
	end_open(&s, server_args, 1);
	s.ops->address(s.port, &to);
	for (unsigned i = 0; i < 50; i++) {
		close(knock());
		steps(&s, NULL, i % 3);
	}
	end_open(&c, client_args, 1);
	uint32_t peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, 1, 100);
	unsigned before = open_fds();
	for (unsigned i = 0; i < 200; i++) {
		memset(nonsense, (int)(i * 37), sizeof nonsense);
		nonsense[0] = (uint8_t)(i % 10); /* all types of message, and some that there are not */
		nonsense[1] = 0;
		int fd = knock();
		steps(&s, &c, i % 2);
		/* 128 bytes are the length of a message. */
		ssize_t n = send(fd, nonsense, i % 3 ? 128 : 1 + i, MSG_NOSIGNAL);
		REQUIRE(n > 0 || errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN);
		steps(&s, &c, i % 2);
		close(fd);
		exchange(&c, 0, peer, &s, 0, 2 + i, 100);
	}
	for (unsigned i = 0; i < 80; i++) { /* more than are served */
		fds[i] = knock();
		steps(&s, &c, 1);
	}
	steps(&s, &c, 20);
	exchange(&c, 0, peer, &s, 0, 1000, 100);
	struct pollfd p = {.fd = s.ops->fd(s.port), .events = POLLIN};
	for (uint64_t limit = now_ns() + HANG_NS; poll(&p, 1, 0) > 0;) { /* nor is the control core kept busy */
		REQUIRE(now_ns() < limit);
		steps(&s, &c, 20);
	}
	for (unsigned i = 0; i < 80; i++)
		close(fds[i]);
	steps(&s, &c, 100);
	exchange(&c, 0, peer, &s, 0, 1001, 100);
	REQUIRE(open_fds() == before);
	/* Its client can still come back. */
	c.ops->close(c.port);
	end_open(&c, client_args, 1);
	peer = end_connect(&c, 0, &to, 0);
	exchange(&c, 0, peer, &s, 0, 1002, 100);
	c.ops->close(c.port);
	s.ops->close(s.port);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"echo", case_echo},         {"restart", case_restart},   {"again", case_again},
		     {"queues", case_queues},     {"sleep", case_sleep},       {"full", case_full},
		     {"released", case_released}, {"raw", case_raw},           {"args", case_args},
		     {"reach", case_reach},       {"affinity", case_affinity}, {"huge", case_huge},
		     {"knock", case_knock}};
	alarm(55);
	if (argc == 4 && strcmp(argv[1], "--echo") == 0)
		return echo_main(argv[2], (unsigned)atoi(argv[3]));
	REQUIRE(mkdtemp(dir));
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		if (argc == 1 || strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			printf("%s: ok\n", cases[i].name);
		}
	REQUIRE(rmdir(dir) == 0); /* nothing is left in it */
	return 0;
}
