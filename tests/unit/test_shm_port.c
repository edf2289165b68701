/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Set-up and end of shm connections. The refusal of another user's connection needs a second user id and is not tested
 * here.
 */
#include "base/clock.h"
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The message of the set-up, as nic/shm/shm_port.c has it. */
struct note {
	uint64_t magic;
	uint32_t version;
	uint16_t kind, len;
	int32_t status;
	uint32_t reserved;
	uint8_t bytes[NIC_HELLO_BYTES_MAX];
};
enum { HELLO = 1, WELCOME = 2 };

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

static int connect_to(struct test_port *from, const struct nic_addr *addr, uint64_t deadline)
{
	struct nic_err err = {""};
	return from->port->ops->connect(from->port, 0, addr, 0, "hello", 5, deadline, from, &err);
}

Test(shm_port, hello_and_reply_are_carried)
{
	uint32_t pa, pb;
	test_ports_connect(&a, &b, &pa, &pb);
	cr_assert_eq(a.events[0].user, &a);
	cr_assert_eq(a.events[0].hello_len, 7u);
	cr_assert_eq(memcmp(a.events[0].hello, "welcome", 7), 0);
	cr_assert_eq(memcmp(b.events[0].hello, "hello", 5), 0);
	cr_assert_null(b.events[1].user);
}

Test(shm_port, hello_refused)
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

/* ---- whoever talks to our socket ---- */

static int dial(struct test_port *p)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct nic_addr addr;
	p->port->ops->address(p->port, &addr);
	memcpy(to.sun_path, addr.blob, addr.len);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

static void say(int fd, const void *bytes, size_t len, const int *fds, unsigned fds_n)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(32 * sizeof(int))];
	} control;
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (fds_n) {
		memset(&control, 0, sizeof control);
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(fds_n * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fds_n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fds_n * sizeof(int));
	}
	cr_assert_eq(sendmsg(fd, &msg, MSG_NOSIGNAL), (ssize_t)len);
}

static struct note good_hello(void)
{
	return (struct note){.magic = SHM_MAGIC, .version = SHM_VERSION, .kind = HELLO, .len = 3, .bytes = "abc"};
}

/* The port must have closed the connection, told nobody, and kept nothing. */
static void expect_refused(int fd, unsigned files)
{
	struct note answer;
	ssize_t n = 1;
	for (int tries = 0; tries < 1000; tries++) {
		test_ports_step(&b, 0, NULL, 0);
		n = recv(fd, &answer, sizeof answer, 0);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			break;
		if (n > 0)
			cr_assert(n != (ssize_t)sizeof answer || answer.status < 0, "it was welcomed");
	}
	cr_assert_leq(n, 0);
	close(fd);
	for (unsigned i = 0; i < b.events_n; i++)
		cr_assert_neq(b.events[i].type, NIC_EVENT_UP);
	cr_assert_eq(open_files(), files, "a descriptor was left open");
}

static void refuse_note(struct note note, size_t len, const int *fds, unsigned fds_n)
{
	unsigned files = open_files();
	int fd = dial(&b);
	test_ports_step(&b, 0, NULL, 0);
	say(fd, &note, len, fds, fds_n);
	expect_refused(fd, files);
}

Test(shm_port, garbage_on_the_socket)
{
	int fds[2] = {shm_pair_create(), eventfd(0, EFD_NONBLOCK)};
	struct note note = good_hello(), garbage;
	memset(&garbage, 0xa5, sizeof garbage);
	refuse_note(garbage, sizeof garbage, fds, 2);
	refuse_note(garbage, 1, NULL, 0);
	refuse_note(note, sizeof note - 1, fds, 2);
	note.magic++;
	refuse_note(note, sizeof note, fds, 2);
	note = good_hello();
	note.version++;
	refuse_note(note, sizeof note, fds, 2);
	note = good_hello();
	note.kind = WELCOME;
	refuse_note(note, sizeof note, fds, 2);
	note = good_hello();
	note.len = NIC_HELLO_BYTES_MAX + 1;
	refuse_note(note, sizeof note, fds, 2);
	close(fds[0]);
	close(fds[1]);
}

Test(shm_port, descriptors_that_are_missing_or_wrong)
{
	int pair = shm_pair_create(), event = eventfd(0, EFD_NONBLOCK), blocking = eventfd(0, 0);
	int null = open("/dev/null", O_RDWR | O_NONBLOCK), many[20];
	struct note note = good_hello();
	refuse_note(note, sizeof note, NULL, 0);
	refuse_note(note, sizeof note, &pair, 1);
	refuse_note(note, sizeof note, (int[]){event, pair}, 2);
	refuse_note(note, sizeof note, (int[]){event, event}, 2);
	refuse_note(note, sizeof note, (int[]){null, event}, 2);
	/* A kick must never block the shard. */
	refuse_note(note, sizeof note, (int[]){pair, blocking}, 2);
	for (int i = 0; i < 20; i++)
		many[i] = null;
	refuse_note(note, sizeof note, many, 20);
	close(pair);
	close(event);
	close(blocking);
	close(null);
}

static int memfd_with(off_t bytes, const struct shm_header *header, int seals)
{
	int fd = memfd_create("test-pair", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(fd, bytes), 0);
	if (header)
		cr_assert_eq(pwrite(fd, header, sizeof *header, 0), (ssize_t)sizeof *header);
	if (seals)
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

Test(shm_port, memory_that_is_not_a_pair)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	const off_t size = (off_t)SHM_TOTAL_BYTES;
	const struct shm_header good = {.magic = SHM_MAGIC,
					.version = SHM_VERSION,
					.slots = SHM_SLOTS,
					.bulk_bytes = SHM_BULK_BYTES,
					.total_bytes = SHM_TOTAL_BYTES};
	struct shm_header h[5] = {good, good, good, good, good};
	h[0].magic++;
	h[1].version++;
	h[2].slots /= 2;
	h[3].bulk_bytes++;
	h[4].total_bytes++;
	int event = eventfd(0, EFD_NONBLOCK), fds[12], n = 0;
	for (int i = 0; i < 5; i++)
		fds[n++] = memfd_with(size, &h[i], seals);
	fds[n++] = memfd_with(size, &good, 0);
	fds[n++] = memfd_with(size, &good, F_SEAL_SHRINK | F_SEAL_GROW);
	fds[n++] = memfd_with(size, &good, F_SEAL_GROW | F_SEAL_SEAL);
	fds[n++] = memfd_with(size - 4096, &good, seals);
	fds[n++] = memfd_with(size + 4096, &good, seals);
	fds[n++] = memfd_with(10, NULL, seals);
	for (int i = 0; i < n; i++) {
		refuse_note(good_hello(), sizeof(struct note), (int[]){fds[i], event}, 2);
		void *map;
		cr_assert_eq(shm_pair_map(fds[i], &map), -EPROTO);
		close(fds[i]);
	}
	/* And the same with nothing wrong is welcomed, so that the test says something. */
	int pair = memfd_with(size, &good, seals), fd = dial(&b);
	b.events_n = 0;
	struct note note = good_hello();
	say(fd, &note, sizeof note, (int[]){pair, event}, 2);
	test_ports_step(&b, 2, NULL, 0);
	cr_assert_eq(b.events[1].type, NIC_EVENT_UP);
	close(fd);
	test_ports_step(&b, 3, NULL, 0);
	cr_assert_eq(b.events[2].type, NIC_EVENT_DOWN);
	b.port->ops->drop(b.port, b.events[2].peer);
	close(pair);
	close(event);
}

/* Somebody else listens where a worker should: its answers are not believed. */
static void rogue_answer(const struct note *answer, size_t len, const int *fds, unsigned fds_n)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct nic_addr addr = {.driver = "shm"};
	snprintf(at.sun_path, sizeof at.sun_path, "%s/rogue", shm_test_dir);
	addr.len = (uint16_t)strlen(at.sun_path);
	memcpy(addr.blob, at.sun_path, addr.len);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
	cr_assert_eq(listen(listener, 1), 0);
	a.events_n = 0;
	cr_assert_eq(connect_to(&a, &addr, soon(UINT64_C(10000000000))), 0);
	int fd = accept(listener, NULL, NULL);
	cr_assert_geq(fd, 0);
	if (answer)
		say(fd, answer, len, fds, fds_n);
	close(fd);
	test_ports_step(&a, 1, NULL, 0);
	cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
	cr_assert_lt(a.events[0].error, 0);
	cr_assert_neq(a.events[0].text[0], '\0');
	close(listener);
	unlink(at.sun_path);
}

Test(shm_port, answers_that_are_not_believed)
{
	struct note note = {.magic = SHM_MAGIC, .version = SHM_VERSION, .kind = WELCOME};
	int event = eventfd(0, EFD_NONBLOCK), blocking = eventfd(0, 0);
	rogue_answer(NULL, 0, NULL, 0);
	rogue_answer(&note, sizeof note, NULL, 0);
	rogue_answer(&note, sizeof note, &blocking, 1);
	rogue_answer(&note, 7, &event, 1);
	note.kind = HELLO;
	rogue_answer(&note, sizeof note, &event, 1);
	note.kind = WELCOME;
	note.status = 5;
	rogue_answer(&note, sizeof note, &event, 1);
	note.status = INT_MIN;
	rogue_answer(&note, sizeof note, NULL, 0);
	note.status = -1234567;
	rogue_answer(&note, sizeof note, NULL, 0);
	close(event);
	close(blocking);
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
	struct nic_config c = {.runtime_dir = shm_test_dir, .id = 9, .queues = 2, .head_bytes = 28};
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.queues = 1;
	c.head_bytes = 0;
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.head_bytes = SHM_REF_OFFSET + 1;
	cr_assert_eq(nic_shm_port_ops.open(&c, &port, &err), -EINVAL);
	c.head_bytes = 28;
	cr_assert_eq(nic_shm_port_ops.probe(&c, &err), 0);
	cr_assert_eq(sockets(), 2u, "probing leaves nothing behind");
}
