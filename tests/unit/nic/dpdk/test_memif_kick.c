/* SPDX-License-Identifier: BSD-3-Clause */
/** Socket addresses of memif ports, and kicks between the two ends. The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/far-kick-XXXXXX";
static struct dpdk_port server, client;
static struct nic_err err;

static void setup(void)
{
	cr_assert(mkdtemp(dir));
	server.args = (struct dpdk_args){.class = DPDK_MEMIF, .server = true, .id = 7};
	snprintf(server.args.socket, sizeof server.args.socket, "%s/memif", dir);
	client.args = server.args;
	client.args.server = false;
}

static void teardown(void)
{
	cr_assert_eq(rmdir(dir), 0, "a socket was left behind");
}

TestSuite(dpdk_memif_kick, .init = setup, .fini = teardown);

Test(dpdk_memif_kick, addresses)
{
	struct dpdk_args a = {.socket = "/run/m"};
	struct sockaddr_un at;
	cr_assert_eq(dpdk_memif_address(&a, ".x", &at), sizeof at);
	cr_assert_str_eq(at.sun_path, "/run/m.x");
	a.abstract = true;
	cr_assert_eq(dpdk_memif_address(&a, ".x", &at), offsetof(struct sockaddr_un, sun_path) + 1 + 8);
	cr_assert(at.sun_path[0] == 0 && strcmp(at.sun_path + 1, "/run/m.x") == 0);
	/* The longest, with its NUL or the one in front of it. */
	for (unsigned abstract = 0; abstract < 2; abstract++) {
		a.abstract = abstract;
		memset(a.socket, 'x', sizeof a.socket - 1);
		a.socket[sizeof at.sun_path - 1 - abstract] = 0;
		cr_assert_eq(dpdk_memif_address(&a, "", &at), abstract ? sizeof at - 1 : sizeof at);
		cr_assert_eq(dpdk_memif_address(&a, ".", &at), 0u);
	}
}

/* Each queue of each end has a socket of its own, and the peer knows it. */
static void kicks(void)
{
	enum { QUEUES = 2 };
	int fds[2][QUEUES];
	struct dpdk_port *ports[2] = {&server, &client};
	for (unsigned p = 0; p < 2; p++)
		for (unsigned i = 0; i < QUEUES; i++) {
			fds[p][i] = dpdk_memif_kick_open(ports[p], i, &err);
			cr_assert_geq(fds[p][i], 0, "%s", err.text);
		}
	for (unsigned p = 0; p < 2; p++)
		for (unsigned i = 0; i < QUEUES; i++) {
			struct host_kick to;
			dpdk_memif_peer_kick(ports[!p], i, &to);
			int sender = host_kick_sender(&to);
			cr_assert_geq(sender, 0);
			host_kick_send(sender, &to);
			close(sender);
			for (unsigned other = 0; other < 2 * QUEUES; other++) {
				struct pollfd in = {.fd = fds[other / QUEUES][other % QUEUES], .events = POLLIN};
				cr_assert_eq(poll(&in, 1, 0), other / QUEUES == p && other % QUEUES == i);
			}
			char byte;
			cr_assert_geq(recv(fds[p][i], &byte, 1, MSG_DONTWAIT), 0);
		}
	/* A second process with the same id. */
	cr_assert_lt(dpdk_memif_kick_open(&server, 0, &err), 0);
	cr_assert(strstr(err.text, server.args.socket), "%s", err.text);
	for (unsigned p = 0; p < 2; p++)
		for (unsigned i = 0; i < QUEUES; i++) {
			close(fds[p][i]);
			dpdk_memif_kick_unlink(ports[p], i);
		}
}

Test(dpdk_memif_kick, by_path)
{
	kicks();
}

Test(dpdk_memif_kick, by_abstract_name)
{
	server.args.abstract = client.args.abstract = true;
	kicks();
}

Test(dpdk_memif_kick, one_id_for_each)
{
	int fd = dpdk_memif_kick_open(&server, 0, &err);
	cr_assert_geq(fd, 0, "%s", err.text);
	cr_assert_eq(dpdk_memif_kick_open(&server, 0, &err), -EADDRINUSE);
	cr_assert(strstr(err.text, "another process is memif's server with id 7") && strstr(err.text, "another id="),
		  "%s", err.text);
	client.args.server = true;
	client.args.id = 8;
	int other = dpdk_memif_kick_open(&client, 0, &err);
	cr_assert_geq(other, 0, "%s", err.text);
	close(fd);
	close(other);
	dpdk_memif_kick_unlink(&server, 0);
	dpdk_memif_kick_unlink(&client, 0);
}

Test(dpdk_memif_kick, a_path_that_is_too_long)
{
	memset(server.args.socket, 'x', 106);
	server.args.socket[106] = 0;
	cr_assert_eq(dpdk_memif_kick_open(&server, 0, &err), -ENAMETOOLONG);
	cr_assert(strstr(err.text, "takes up to 80 bytes"), "%s", err.text);
	dpdk_memif_kick_unlink(&server, 0);
}
