/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Set-up and end of shm connections. The refusal of another user's connection needs a second user id and is not tested
 * here. The test's thread.
 */
#include "base/clock.h"
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct test_port a, b;

static void setup(void)
{
	shm_dir_setup();
	test_port_open(&a, 1);
	test_port_open(&b, 2);
}

static unsigned sockets(void)
{
	unsigned n = 0;
	DIR *d = opendir(shm_test_dir);
	struct dirent *e;
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static unsigned open_files(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	cr_assert_eq(sockets(), 0u, "a socket was left behind");
	shm_dir_teardown();
}

TestSuite(shm_port, .init = setup, .fini = teardown);

static uint64_t soon(uint64_t ns)
{
	return clock_now(&clock_monotonic) + ns;
}

static int no_event(void *ctx, const struct nic_event *ev)
{
	cr_assert_fail("an event");
	return 0;
}

static int connect_to(struct test_port *from, const struct nic_addr *addr, uint64_t deadline)
{
	struct nic_err err = {""};
	return from->port->ops->connect(from->port, &(struct nic_connect){0, addr, 0, "hello", 5, deadline, from},
					&err);
}

Test(shm_port, connect_and_reply_are_carried)
{
	uint32_t pa, pb;
	test_ports_connect(&a, &b, &pa, &pb);
	cr_assert_eq(a.events[0].user, &a);
	cr_assert_eq(a.events[0].handshake_len, 7u);
	cr_assert_eq(memcmp(a.events[0].handshake, "welcome", 7), 0);
	cr_assert_eq(memcmp(b.events[0].handshake, "hello", 5), 0);
	cr_assert_null(b.events[1].user);
}

Test(shm_port, connect_rejected)
{
	struct nic_addr addr;
	b.refuse = -EACCES;
	b.port->ops->address(b.port, &addr);
	unsigned files = open_files();
	cr_assert_eq(connect_to(&a, &addr, soon(UINT64_C(10000000000))), 0);
	test_ports_step(&a, 1, &b, 1);
	cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
	cr_assert_eq(a.events[0].error, -EACCES);
	cr_assert_eq(a.events[0].peer, NIC_PEER_NONE);
	cr_assert_eq(a.events[0].user, &a);
	cr_assert(strstr(a.events[0].text, ".sock"));
	cr_assert_eq(b.events_n, 1u);
	cr_assert_eq(open_files(), files, "a descriptor was left open");
}

Test(shm_port, nobody_there)
{
	struct nic_addr addr;
	b.port->ops->address(b.port, &addr);
	addr.blob[addr.len - 6] ^= 1;
	unsigned files = open_files();
	if (connect_to(&a, &addr, soon(1000000)) == 0) {
		test_ports_step(&a, 1, NULL, 0);
		cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
	}
	cr_assert_eq(open_files(), files);
}

/* A cleaner removes the sockets' files, or the directory with them. Expect a connection that is up to go on, and those
 * who connect later to find everybody, by the address that was published before. */
Test(shm_port, removed_files_are_made_anew)
{
	struct nic_addr addr;
	char path[sizeof addr.blob + 1], command[300];
	b.port->ops->address(b.port, &addr);
	snprintf(path, sizeof path, "%s", (const char *)addr.blob);
	unsigned files = open_files();
	for (int round = 0; round < 3; round++) {
		if (round == 2)
			snprintf(command, sizeof command, "rm -r %s", shm_test_dir);
		else
			snprintf(command, sizeof command, "rm %s", path);
		cr_assert_eq(system(command), 0);
		cr_assert_neq(access(path, F_OK), 0);
		/* Its descriptor is what wakes the control thread. */
		struct pollfd woken = {.fd = b.port->ops->fd(b.port), .events = POLLIN};
		cr_assert_eq(poll(&woken, 1, 10000), 1);
		test_ports_step(&b, 0, &a, 0);
		cr_assert_eq(access(path, F_OK), 0, "round %d", round);
		cr_assert_eq(open_files(), files);
		struct nic_err err = {""};
		cr_assert_eq(a.port->ops->reach(a.port, &addr, &err), 0, "%s", err.text);
	}
	cr_assert_eq(connect_to(&a, &addr, soon(UINT64_C(10000000000))), 0);
	test_ports_step(&a, 1, &b, 1);
	cr_assert_eq(a.events[0].type, NIC_EVENT_UP);
}

/* Nothing reports what is removed. Expect the file looked for by time. */
Test(shm_port, removed_files_without_inotify)
{
	struct nic_addr addr;
	struct shm_port *p = (struct shm_port *)b.port;
	b.port->ops->address(b.port, &addr);
	close(p->inotify_fd);
	p->inotify_fd = -1;
	p->watched = false;
	p->check_at = 0;
	uint64_t now = soon(0), next = b.port->ops->step(b.port, now, no_event, NULL);
	cr_assert_gt(next, now);
	cr_assert_lt(next, now + UINT64_C(60000000000));
	cr_assert_eq(unlink((const char *)addr.blob), 0);
	b.port->ops->step(b.port, next, no_event, NULL);
	cr_assert_eq(access((const char *)addr.blob, F_OK), 0);
}

/* The directory cannot be made now: somebody else's file is in its place. Expect it tried again. */
Test(shm_port, removed_files_that_cannot_be_made)
{
	struct nic_addr addr;
	char command[320];
	b.port->ops->address(b.port, &addr);
	snprintf(command, sizeof command, "rm -r %s && touch %s", shm_test_dir, shm_test_dir);
	cr_assert_eq(system(command), 0);
	uint64_t now = soon(0), next = b.port->ops->step(b.port, now, no_event, NULL);
	cr_assert_lt(next, now + UINT64_C(60000000000));
	snprintf(command, sizeof command, "rm %s", shm_test_dir);
	cr_assert_eq(system(command), 0);
	b.port->ops->step(b.port, next, no_event, NULL);
	cr_assert_eq(access((const char *)addr.blob, F_OK), 0);
}

Test(shm_port, somebody_who_says_nothing)
{
	struct nic_addr addr;
	b.port->ops->address(b.port, &addr);
	cr_assert_eq(connect_to(&a, &addr, soon(2000000)), 0);
	test_ports_step(&a, 1, NULL, 0);
	cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
	cr_assert_eq(a.events[0].error, -ETIMEDOUT);
}

Test(shm_port, malformed_addresses)
{
	struct nic_addr addr = {.driver = "shm", .len = 0};
	cr_assert_lt(connect_to(&a, &addr, soon(1000000)), 0);
	addr.len = NIC_ADDR_BYTES_MAX;
	memset(addr.blob, '/', sizeof addr.blob);
	cr_assert_lt(connect_to(&a, &addr, soon(1000000)), 0);
	addr.len = 5;
	cr_assert_lt(connect_to(&a, &addr, soon(1000000)), 0);
}

/* ---- the end of a peer ---- */

Test(shm_port, closing_is_down_at_the_other_end)
{
	uint32_t pa, pb;
	test_ports_connect(&a, &b, &pa, &pb);
	b.q->ops->detach(b.q, pb);
	test_port_close(&b);
	test_ports_step(&a, 2, NULL, 0);
	cr_assert_eq(a.events[1].type, NIC_EVENT_DOWN);
	cr_assert_eq(a.events[1].peer, pa);
	cr_assert_lt(a.events[1].error, 0);
	a.q->ops->detach(a.q, pa);
	a.port->ops->drop(a.port, pa);
}

Test(shm_port, what_had_arrived_is_received_after_down)
{
	uint32_t pa, pb;
	struct nic_tx tx;
	struct nic_pkt pkts[4];
	test_ports_connect(&a, &b, &pa, &pb);
	cr_assert_eq(b.q->ops->tx_reserve(b.q, pb, 100000, &tx), 0);
	memset(tx.head, 1, 28);
	memset(tx.body, 9, 100000);
	cr_assert_eq(b.q->ops->tx_commit(b.q, &tx), 0);
	b.q->ops->flush(b.q);
	b.q->ops->detach(b.q, pb);
	test_port_close(&b);
	test_ports_step(&a, 2, NULL, 0);
	cr_assert_eq(a.q->ops->recv(a.q, pkts, 4), 1u);
	cr_assert_eq(pkts[0].body[99999], 9);
	a.q->ops->release(a.q, pa, pkts[0].cookie);
	a.q->ops->detach(a.q, pa);
	a.port->ops->drop(a.port, pa);
}

Test(shm_port, a_word_on_a_connection_that_is_up_is_its_end)
{
	uint32_t pa, pb;
	test_ports_connect(&a, &b, &pa, &pb);
	struct shm_link *link = ((struct shm_port *)(void *)a.port)->links[pa];
	cr_assert_eq(send(link->fd, "x", 1, 0), 1);
	test_ports_step(&b, 3, NULL, 0);
	cr_assert_eq(b.events[2].type, NIC_EVENT_DOWN);
}

Test(shm_port, a_peers_place_is_used_again)
{
	unsigned files = 0;
	uint32_t first = 0;
	for (int round = 0; round < 20; round++) {
		uint32_t pa, pb;
		test_ports_connect(&a, &b, &pa, &pb);
		if (round == 0)
			first = pa;
		cr_assert_eq(pa, first);
		a.q->ops->detach(a.q, pa);
		a.port->ops->drop(a.port, pa);
		test_ports_step(&b, 3, NULL, 0);
		cr_assert_eq(b.events[2].type, NIC_EVENT_DOWN);
		b.q->ops->detach(b.q, pb);
		b.port->ops->drop(b.port, pb);
		if (round == 0)
			files = open_files();
		cr_assert_eq(open_files(), files, "a descriptor was left open");
	}
	a.port->ops->drop(a.port, 77);
	a.port->ops->drop(a.port, UINT32_MAX);
	cr_assert_eq(a.q->ops->attach(a.q, 77), -EINVAL);
	cr_assert_eq(a.q->ops->attach(a.q, UINT32_MAX), -EINVAL);
}

/* ---- the directory ---- */

static char *stale_socket(const char *name, int age_s)
{
	static char path[256];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(path, sizeof path, "%s/%s", shm_test_dir, name);
	memcpy(at.sun_path, path, strlen(path));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
	close(fd);
	struct timespec times[2];
	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= age_s;
	times[1] = times[0];
	cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	return path;
}

Test(shm_port, stale_sockets_are_swept)
{
	char path[512];
	struct timespec old[2] = {{1, 0}, {1, 0}};
	struct nic_addr addr;
	stale_socket("0000000000000007.sock", 3600);
	stale_socket("0000000000000008.sock", 0);
	stale_socket("other", 3600);
	/* One that is old and alive. */
	a.port->ops->address(a.port, &addr);
	snprintf(path, sizeof path, "%.*s", (int)addr.len, (const char *)addr.blob);
	cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
	snprintf(path, sizeof path, "%s/file.sock", shm_test_dir);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
	cr_assert_eq(sockets(), 6u);
	shm_dir_sweep(shm_test_dir);
	cr_assert_eq(sockets(), 5u);
	snprintf(path, sizeof path, "%s/0000000000000007.sock", shm_test_dir);
	cr_assert_eq(access(path, F_OK), -1);
	uint32_t pa, pb;
	test_ports_connect(&b, &a, &pa, &pb);
	static const char *const left[] = {"0000000000000008.sock", "other", "file.sock"};
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%s", shm_test_dir, left[i]);
		cr_assert_eq(unlink(path), 0);
	}
}

Test(shm_port, a_directory_that_is_not_ours_alone)
{
	struct nic_err err = {""};
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)], path[256];
	snprintf(path, sizeof path, "%s/sub", shm_test_dir);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_assert_eq(chmod(path, 0750), 0);
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), -EPERM);
	cr_assert(strstr(err.text, "FAR_RUNTIME_DIR"));
	cr_assert_eq(shm_dir_open(path, true, dir, sizeof dir, &err), 0);
	cr_assert_eq(chmod(path, 0700), 0);
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), 0);
	cr_assert_str_eq(dir, path);
	cr_assert_eq(rmdir(path), 0);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), -ENOTDIR);
	unlink(path);
	snprintf(path, sizeof path, "%s/none/at/all", shm_test_dir);
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), -ENOENT);
	memset(path, 'x', sizeof path - 1);
	path[0] = '/';
	path[sizeof path - 1] = '\0';
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), -ENAMETOOLONG);
	cr_assert(strstr(err.text, "FAR_RUNTIME_DIR"));
}

Test(shm_port, configurations_that_cannot_be)
{
	struct nic_err err;
	struct nic_port *port;
	struct nic_config c = {.runtime_dir = shm_test_dir, .id = 9, .queues = 0, .head_bytes = 28};
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.queues = SHM_QUEUES_MAX + 1;
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	cr_assert(strstr(err.text, "queues"));
	c.queues = 1;
	c.head_bytes = 0;
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.head_bytes = SHM_REF_OFFSET + 1;
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.head_bytes = 28;
	cr_assert_eq(nic_shm_port_ops.probe(&c, &err), 0);
	cr_assert_eq(sockets(), 2u, "probing leaves nothing behind");
}
