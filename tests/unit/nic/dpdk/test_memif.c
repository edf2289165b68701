/* SPDX-License-Identifier: BSD-3-Clause */
/** memif ports: their sockets, servers that share one, peers that connect, go and come back. The test's thread, which
 * steps both ends. */
#include "nic/dpdk/dpdk.h"
#include "own_dir.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { TRIES = 5000 };

static struct dpdk_port p[2];
static struct nic_config config = {.queues = 1, .runtime_dir = top};
static struct nic_err err;

static void setup(void)
{
	own_dir_make();
	cr_assert_eq(dpdk_eal_start(0, false, &err), 0, "%s", err.text);
}

TestSuite(dpdk_memif, .init = setup, .fini = own_dir_remove, .timeout = 60);

static int prepare(unsigned i, const char *role, const char *socket)
{
	char text[256];
	snprintf(text, sizeof text, "net_memif%u,role=%s,id=%u,socket=%s,socket-abstract=%s", i, role, i, socket,
		 *socket == '/' ? "no" : "yes");
	memset(&p[i], 0, sizeof p[i]);
	cr_assert_eq(dpdk_args_parse(text, &p[i].args, &err), 0, "%s", err.text);
	p[i].queues_n = 1;
	p[i].fd = epoll_create1(EPOLL_CLOEXEC);
	return dpdk_memif_prepare(&p[i], &config, &err);
}

static void undo(unsigned i)
{
	dpdk_memif_close(&p[i]);
	close(p[i].fd);
}

static bool exists(const char *name)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", top, name);
	return access(path, F_OK) == 0;
}

/* Expect DPDK's own socket in the runtime directory, the same for both, and the public one until the last has left. */
Test(dpdk_memif, servers_share_a_socket)
{
	char path[80], want[96];
	snprintf(path, sizeof path, "%s/m", top);
	snprintf(want, sizeof want, ",socket=%s/memif-", top);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(prepare(i, "server", path), 0, "%s", err.text);
		cr_assert(strstr(p[i].args.devargs, want), "%s", p[i].args.devargs);
		cr_assert(strstr(p[i].args.devargs, ",socket-abstract=no"), "%s", p[i].args.devargs);
	}
	cr_assert_str_eq(strstr(p[0].args.devargs, want), strstr(p[1].args.devargs, want));
	undo(0);
	cr_assert(exists("m"));
	undo(1);
	cr_assert_not(exists("m"));
}

/* A client connects to the public socket, by a path or by a name. */
Test(dpdk_memif, a_client_names_the_socket)
{
	char path[80], want[128];
	snprintf(path, sizeof path, "%s/m", top);
	cr_assert_eq(prepare(0, "client", path), 0, "%s", err.text);
	snprintf(want, sizeof want, ",socket=%s,socket-abstract=no", path);
	cr_assert(strstr(p[0].args.devargs, want), "%s", p[0].args.devargs);
	cr_assert_eq(prepare(1, "client", "a-name"), 0, "%s", err.text);
	cr_assert(strstr(p[1].args.devargs, ",socket=a-name,socket-abstract=yes"), "%s", p[1].args.devargs);
	undo(0);
	undo(1);
}

/* A runtime directory that DPDK cannot be given, one that cannot be, and arguments without room for it. */
Test(dpdk_memif, servers_that_cannot_be)
{
	char comma[80], path[80];
	snprintf(path, sizeof path, "%s/m", top);
	snprintf(comma, sizeof comma, "%s/a,b", top);
	config.runtime_dir = comma;
	cr_assert_eq(prepare(0, "server", path), -EINVAL);
	cr_assert(strstr(err.text, "contains a comma; set FAR_RUNTIME_DIR"), "%s", err.text);
	undo(0);
	config.runtime_dir = "/dev/null";
	cr_assert_lt(prepare(0, "server", path), 0);
	cr_assert(strstr(err.text, "memif's server has no runtime directory: "), "%s", err.text);
	undo(0);
	config.runtime_dir = top;
	cr_assert_eq(prepare(0, "server", path), 0);
	undo(0);
	p[0].fd = epoll_create1(EPOLL_CLOEXEC);
	memset(p[0].args.devargs, 'x', sizeof p[0].args.devargs - 20);
	p[0].args.devargs[sizeof p[0].args.devargs - 20] = '\0';
	cr_assert_eq(dpdk_memif_prepare(&p[0], &config, &err), -EINVAL);
	cr_assert(strstr(err.text, "the arguments of net_memif0 take more than 511 bytes"), "%s", err.text);
	undo(0);
	cr_assert_not(exists("m"));
}

static struct nic_port *ports[2];

static void open_port(unsigned i, const char *role)
{
	char args[256];
	snprintf(args, sizeof args, "net_memif%u,role=%s,id=7,socket=%s/m,socket-abstract=no", i, role, top);
	config.args = args;
	cr_assert_eq(dpdk_port_ops.open(&config, &ports[i], &err), 0, "%s", err.text);
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	*(uint32_t *)ctx = ev->type == NIC_EVENT_UP ? ev->peer : NIC_PEER_NONE;
	return 0;
}

static void step(void)
{
	uint32_t ignored;
	struct pollfd fds[2] = {{.fd = -1}, {.fd = -1}};
	for (unsigned e = 0; e < 2; e++)
		if (ports[e]) {
			dpdk_port_ops.step(ports[e], 0, on_event, &ignored);
			fds[e] = (struct pollfd){.fd = dpdk_port_ops.fd(ports[e]), .events = POLLIN};
		}
	poll(fds, 2, 1);
}

static bool is_up(unsigned i)
{
	return atomic_load(&((struct dpdk_port *)ports[i])->shut) == DPDK_OPEN;
}

/* Steps both ends until end `i` is up, or down. */
static void until(unsigned i, bool up)
{
	for (unsigned k = 0; k < TRIES && is_up(i) != up; k++)
		step();
	cr_assert_eq(is_up(i), up);
}

/* Queue 0 of end 0 sends to that of end 1; true if it arrives. */
static bool arrives(void)
{
	struct nic_addr addr;
	struct nic_pkt pkt = {.body_len = 0};
	struct nic_tx tx;
	uint32_t peer = NIC_PEER_NONE;
	struct nic_queue *q = dpdk_port_ops.queue(ports[0], 0), *to = dpdk_port_ops.queue(ports[1], 0);
	dpdk_port_ops.address(ports[1], &addr);
	cr_assert_eq(dpdk_port_ops.connect(ports[0], &(struct nic_connect){.addr = &addr}, &err), 0, "%s", err.text);
	dpdk_port_ops.step(ports[0], 0, on_event, &peer);
	cr_assert_eq(q->ops->attach(q, peer), 0);
	cr_assert_eq(q->ops->tx_reserve(q, peer, 5, &tx), 0);
	memcpy(tx.body, "hello", 5);
	cr_assert_eq(q->ops->tx_commit(q, &tx), 0);
	for (unsigned i = 0; i < TRIES && !to->ops->recv(to, &pkt, 1); i++) {
		q->ops->flush(q);
		step();
	}
	return pkt.body_len == 5 && memcmp(pkt.body, "hello", 5) == 0;
}

/* The client begins first, and ends while the server goes on. Expect packets while both are there, none kept while one
 * is not, and another client to take its place. */
Test(dpdk_memif, peers_come_and_go)
{
	open_port(1, "client");
	open_port(0, "server");
	cr_assert(dpdk_port_ops.is_loopback(ports[0], 0));
	for (unsigned i = 0; i < 2; i++) {
		until(0, true);
		until(1, true);
		cr_assert(arrives());
		dpdk_port_ops.close(ports[1]);
		ports[1] = NULL;
		until(0, false);
		if (i == 0)
			open_port(1, "client");
	}
	dpdk_port_ops.close(ports[0]);
	cr_assert_eq(rmdir(top), 0, "a socket was left behind");
}
