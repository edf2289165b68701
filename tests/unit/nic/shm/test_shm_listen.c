/* SPDX-License-Identifier: BSD-3-Clause */
/** The listening socket of a port: its name, and its file, which others remove. The test's thread. */
#include "base/clock.h"
#include "base/runtime_dir.h"
#include "open_files.h"
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct test_port a, b;

static void setup(void)
{
	shm_dir_setup();
	test_port_open(&a, 1);
	test_port_open(&b, 2);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	shm_dir_teardown();
}

TestSuite(shm_listen, .init = setup, .fini = teardown);

static int no_event(void *ctx, const struct nic_event *ev)
{
	cr_assert_fail("an event");
	return 0;
}

static bool has_inotify(const struct test_port *t)
{
	return ((struct shm_port *)t->port)->inotify_fd >= 0;
}

/* A port that had no inotify descriptor may have one later. */
static unsigned other_files(void)
{
	return open_files() - has_inotify(&a) - has_inotify(&b);
}

/* A cleaner removes the sockets' files, or the directory with them. Expect a connection that is up to go on, and those
 * who connect later to find everybody, by the address that was published before. */
Test(shm_listen, removed_files_are_made_anew)
{
	struct nic_addr addr;
	char path[sizeof addr.blob + 1], command[300];
	b.port->ops->address(b.port, &addr);
	snprintf(path, sizeof path, "%s", (const char *)addr.blob);
	unsigned files = other_files();
	struct shm_port *p = (struct shm_port *)b.port;
	for (int round = 0; round < 3; round++) {
		if (round == 2)
			snprintf(command, sizeof command, "rm -r %s", shm_test_dir);
		else
			snprintf(command, sizeof command, "rm %s", path);
		cr_assert_eq(system(command), 0);
		cr_assert_neq(access(path, F_OK), 0);
		/* Its descriptor is what wakes the control thread, unless the user's inotify descriptors are used up.
		 */
		struct pollfd woken = {.fd = b.port->ops->fd(b.port), .events = POLLIN};
		if (p->watched)
			cr_assert_eq(poll(&woken, 1, 10000), 1);
		else
			p->check_at = 0;
		test_ports_step(&b, 0, &a, 0);
		cr_assert_eq(access(path, F_OK), 0, "round %d", round);
		cr_assert_eq(other_files(), files);
		struct nic_err err = {""};
		cr_assert_eq(a.port->ops->reach(a.port, &addr, &err), 0, "%s", err.text);
	}
	cr_assert_eq(connect_to(&a, &addr, soon(UINT64_C(10000000000))), 0);
	test_ports_step(&a, 1, &b, 1);
	cr_assert_eq(a.events[0].type, NIC_EVENT_UP);
}

/* Nothing reports what is removed. Expect the file looked for by time. */
Test(shm_listen, removed_files_without_inotify)
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
Test(shm_listen, removed_files_that_cannot_be_made)
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

static int open_in(const char *dir, uint64_t id, struct nic_port **port, struct nic_err *err)
{
	const struct nic_config config = {.runtime_dir = dir, .id = id, .queues = 1, .head_bytes = 28};
	return nic_shm_port_ops.open(&config, port, err);
}

/* The longest directory that is taken is not cut. */
Test(shm_listen, the_longest_directory)
{
	char dir[RUNTIME_DIR_BYTES + 1];
	struct nic_port *port;
	struct nic_addr addr;
	struct nic_err err = {""};
	int n = snprintf(dir, sizeof dir, "%s/", shm_test_dir);
	memset(dir + n, 'd', sizeof dir - (size_t)n);
	dir[RUNTIME_DIR_BYTES - 1] = '\0';
	cr_assert_eq(open_in(dir, 0x1234abcd, &port, &err), 0, "%s", err.text);
	port->ops->address(port, &addr);
	cr_assert_eq(strncmp((const char *)addr.blob, dir, strlen(dir)), 0);
	cr_assert_str_eq((const char *)addr.blob + strlen(dir), "/000000001234abcd.sock");
	cr_assert_eq(access((const char *)addr.blob, F_OK), 0);
	cr_assert_eq(port->ops->reach(port, &addr, &err), 0, "%s", err.text);
	port->ops->close(port);
	cr_assert_neq(access((const char *)addr.blob, F_OK), 0);
	cr_assert_eq(rmdir(dir), 0, "nothing is left in it");
	memcpy(dir + RUNTIME_DIR_BYTES - 1, "d", 2);
	cr_assert_eq(open_in(dir, 1, &port, &err), -ENAMETOOLONG);
	cr_assert(strstr(err.text, "FAR_RUNTIME_DIR"), "%s", err.text);
}

/* Where its name is taken by a directory there is no listening, and nothing is left. */
Test(shm_listen, a_name_that_is_taken)
{
	char path[128];
	struct nic_port *port = NULL;
	struct nic_err err = {""};
	snprintf(path, sizeof path, "%s/%016x.sock", shm_test_dir, 77u);
	cr_assert_eq(mkdir(path, 0700), 0);
	unsigned files = open_files();
	cr_assert_lt(open_in(shm_test_dir, 77, &port, &err), 0);
	cr_assert(strstr(err.text, "cannot listen on") && strstr(err.text, shm_test_dir), "%s", err.text);
	cr_assert_eq(open_files(), files);
	memcpy(path + strlen(path) - 5, ".new", 5);
	cr_assert_neq(access(path, F_OK), 0, "%s", path);
	memcpy(path + strlen(path) - 4, ".sock", 6);
	cr_assert_eq(rmdir(path), 0);
}
