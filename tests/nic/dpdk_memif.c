/* SPDX-License-Identifier: BSD-3-Clause */
/** The dpdk driver over memif: two processes, or two ports of one; `dpdk_memif CASE`. Exits with 77 without the module.
 */
#include "dpdk_ends.h"

#include <dirent.h>

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
		end_open(&s, at, 1);
		snprintf(at, sizeof at, "net_memif%u,role=client,id=%u,socket=%s/%s,socket-abstract=%s", i + 1, i % 3,
			 dir, abstract ? "a" : "f", abstract ? "yes" : "no");
		end_open(&c, at, 1);
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

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"echo", case_echo}, {"restart", case_restart}, {"again", case_again}};
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
