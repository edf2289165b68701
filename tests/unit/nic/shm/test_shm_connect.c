/* SPDX-License-Identifier: BSD-3-Clause */
/** Set-up of shm connections with somebody who breaks its rules, on either side. The test's thread. */
#include "base/clock.h"
#include "base/group_key.h"
#include "open_files.h"
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* The message of the set-up, as nic/shm/shm_control.h has it. */
struct message {
	uint64_t magic;
	uint32_t version;
	uint16_t kind, len;
	int32_t status;
	uint16_t queue, doorbell;
	uint8_t bytes[NIC_HANDSHAKE_BYTES_MAX];
};
enum { CONNECT = 1, REPLY = 2 };

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

TestSuite(shm_connect, .init = setup, .fini = teardown);

/* ---- connections of any process to our socket ---- */

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

static struct message good_connect(void)
{
	return (struct message){.magic = SHM_MAGIC, .version = SHM_VERSION, .kind = CONNECT, .len = 3, .bytes = "abc"};
}

/* The port must have closed the connection, reported no event, and kept nothing. */
static void expect_refused(int fd, unsigned files)
{
	struct message answer;
	ssize_t n = 1;
	for (int tries = 0; tries < 1000; tries++) {
		test_ports_step(&b, 0, NULL, 0);
		n = recv(fd, &answer, sizeof answer, 0);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			break;
		if (n > 0)
			cr_assert(n != (ssize_t)sizeof answer || answer.status < 0, "it was accepted");
	}
	cr_assert_leq(n, 0);
	close(fd);
	for (unsigned i = 0; i < b.events_n; i++)
		cr_assert_neq(b.events[i].type, NIC_EVENT_UP);
	cr_assert_eq(open_files(), files, "a descriptor was left open");
}

static void refuse_note(struct message message, size_t len, const int *fds, unsigned fds_n)
{
	unsigned files = open_files();
	int fd = dial(&b);
	test_ports_step(&b, 0, NULL, 0);
	say(fd, &message, len, fds, fds_n);
	expect_refused(fd, files);
}

/* Everything else is right, so that each refusal is for its own reason. */
static void make_fds(int fds[3])
{
	fds[0] = shm_pair_create();
	fds[1] = eventfd(0, EFD_NONBLOCK);
	fds[2] = shm_bells_create();
}

static void close_fds(int fds[3])
{
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

/* Accepted, up, and down again. */
static void expect_accepted(struct message message, const int fds[3])
{
	int fd = dial(&b);
	b.events_n = 0;
	say(fd, &message, sizeof message, fds, 3);
	test_ports_step(&b, 2, NULL, 0);
	cr_assert_eq(b.events[1].type, NIC_EVENT_UP);
	close(fd);
	test_ports_step(&b, 3, NULL, 0);
	cr_assert_eq(b.events[2].type, NIC_EVENT_DOWN);
	b.port->ops->drop(b.port, b.events[2].peer);
	b.events_n = 0;
}

static int no_event(void *ctx, const struct nic_event *ev)
{
	cr_assert_fail("event %d", (int)ev->type);
	return 0;
}

static void step_ahead(uint64_t seconds)
{
	b.port->ops->step(b.port, clock_now(&clock_monotonic) + seconds * UINT64_C(1000000000), no_event, NULL);
}

Test(shm_connect, a_process_that_waits_for_a_core_is_waited_for)
{
	struct message message = good_connect();
	unsigned files = open_files();
	int fds[3], fd = dial(&b);
	test_ports_step(&b, 0, NULL, 0);
	step_ahead(50);
	make_fds(fds);
	say(fd, &message, sizeof message, fds, 3);
	close_fds(fds);
	test_ports_step(&b, 2, NULL, 0);
	cr_assert_eq(b.events[1].type, NIC_EVENT_UP);
	close(fd);
	test_ports_step(&b, 3, NULL, 0);
	b.port->ops->drop(b.port, b.events[2].peer);
	/* One that sends nothing is not, in the end. */
	fd = dial(&b);
	test_ports_step(&b, 3, NULL, 0);
	step_ahead(70);
	cr_assert_eq(recv(fd, &message, sizeof message, 0), 0);
	close(fd);
	cr_assert_eq(open_files(), files);
}

Test(shm_connect, garbage_on_the_socket)
{
	int fds[3];
	make_fds(fds);
	struct message message = good_connect(), garbage;
	expect_accepted(message, fds);
	memset(&garbage, 0xa5, sizeof garbage);
	refuse_note(garbage, sizeof garbage, fds, 3);
	refuse_note(garbage, 1, NULL, 0);
	refuse_note(message, sizeof message - 1, fds, 3);
	message.magic++;
	refuse_note(message, sizeof message, fds, 3);
	message = good_connect();
	message.version++;
	refuse_note(message, sizeof message, fds, 3);
	message = good_connect();
	message.kind = REPLY;
	refuse_note(message, sizeof message, fds, 3);
	message = good_connect();
	message.len = NIC_HANDSHAKE_BYTES_MAX + 1;
	refuse_note(message, sizeof message, fds, 3);
	/* Queues that the port does not have, bells beyond the page. */
	static const uint16_t queues[] = {1, SHM_QUEUES_MAX - 1, SHM_QUEUES_MAX, UINT16_MAX};
	for (unsigned i = 0; i < 4; i++) {
		message = good_connect();
		message.queue = queues[i];
		refuse_note(message, sizeof message, fds, 3);
	}
	static const uint16_t bells[] = {SHM_BELLS, SHM_BELLS + 1, UINT16_MAX};
	for (unsigned i = 0; i < 3; i++) {
		message = good_connect();
		message.doorbell = bells[i];
		refuse_note(message, sizeof message, fds, 3);
	}
	message = good_connect();
	message.doorbell = SHM_BELLS - 1;
	expect_accepted(message, fds);
	close_fds(fds);
}

Test(shm_connect, descriptors_that_are_missing_or_wrong)
{
	int fds[3], blocking = eventfd(0, 0), null = open("/dev/null", O_RDWR | O_NONBLOCK), many[20];
	make_fds(fds);
	const int pair = fds[0], event = fds[1], bells = fds[2];
	struct message message = good_connect();
	refuse_note(message, sizeof message, NULL, 0);
	refuse_note(message, sizeof message, &pair, 1);
	refuse_note(message, sizeof message, fds, 2);
	refuse_note(message, sizeof message, (int[]){event, pair, bells}, 3);
	refuse_note(message, sizeof message, (int[]){event, event, bells}, 3);
	refuse_note(message, sizeof message, (int[]){null, event, bells}, 3);
	refuse_note(message, sizeof message, (int[]){pair, event, pair}, 3);
	refuse_note(message, sizeof message, (int[]){bells, event, bells}, 3);
	refuse_note(message, sizeof message, (int[]){pair, event, null}, 3);
	refuse_note(message, sizeof message, (int[]){pair, event, event}, 3);
	/* A kick must never block the shard. */
	refuse_note(message, sizeof message, (int[]){pair, blocking, bells}, 3);
	for (int i = 0; i < 20; i++)
		many[i] = null;
	refuse_note(message, sizeof message, many, 20);
	close_fds(fds);
	close(blocking);
	close(null);
}

static int memfd_with(off_t bytes, const void *header, size_t header_bytes, int seals)
{
	int fd = memfd_create("test-pair", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(fd, bytes), 0);
	if (header)
		cr_assert_eq(pwrite(fd, header, header_bytes, 0), (ssize_t)header_bytes);
	if (seals)
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

Test(shm_connect, memory_that_is_not_a_pair)
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
	const size_t head = sizeof good;
	int other[3], fds[12], n = 0;
	make_fds(other);
	for (int i = 0; i < 5; i++)
		fds[n++] = memfd_with(size, &h[i], head, seals);
	fds[n++] = memfd_with(size, &good, head, 0);
	fds[n++] = memfd_with(size, &good, head, F_SEAL_SHRINK | F_SEAL_GROW);
	fds[n++] = memfd_with(size, &good, head, F_SEAL_GROW | F_SEAL_SEAL);
	fds[n++] = memfd_with(size - 4096, &good, head, seals);
	fds[n++] = memfd_with(size + 4096, &good, head, seals);
	fds[n++] = memfd_with(10, NULL, 0, seals);
	for (int i = 0; i < n; i++) {
		refuse_note(good_connect(), sizeof(struct message), (int[]){fds[i], other[1], other[2]}, 3);
		void *map;
		cr_assert_eq(shm_pair_map(fds[i], &map), -EPROTO);
		close(fds[i]);
	}
	/* And the same with nothing wrong is accepted, so that the test says something. */
	int pair = memfd_with(size, &good, head, seals);
	expect_accepted(good_connect(), (int[]){pair, other[1], other[2]});
	close(pair);
	close_fds(other);
}

Test(shm_connect, memory_that_is_not_doorbells)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	const off_t size = (off_t)sizeof(struct shm_doorbells);
	struct {
		uint64_t magic;
		uint32_t version, bells;
	} good = {SHM_MAGIC, SHM_VERSION, SHM_BELLS}, h[3] = {good, good, good};
	h[0].magic++;
	h[1].version++;
	h[2].bells *= 2;
	int other[3], fds[12], n = 0;
	make_fds(other);
	for (int i = 0; i < 3; i++)
		fds[n++] = memfd_with(size, &h[i], sizeof good, seals);
	fds[n++] = memfd_with(size, &good, sizeof good, 0);
	fds[n++] = memfd_with(size, &good, sizeof good, F_SEAL_SHRINK | F_SEAL_GROW);
	fds[n++] = memfd_with(size, &good, sizeof good, F_SEAL_GROW | F_SEAL_SEAL);
	fds[n++] = memfd_with(size - 4096, &good, sizeof good, seals);
	fds[n++] = memfd_with(size + 4096, &good, sizeof good, seals);
	fds[n++] = memfd_with(10, NULL, 0, seals);
	for (int i = 0; i < n; i++) {
		refuse_note(good_connect(), sizeof(struct message), (int[]){other[0], other[1], fds[i]}, 3);
		struct shm_doorbells *bells;
		cr_assert_eq(shm_bells_map(fds[i], &bells), -EPROTO);
		close(fds[i]);
	}
	int bells = memfd_with(size, &good, sizeof good, seals);
	expect_accepted(good_connect(), (int[]){other[0], other[1], bells});
	close(bells);
	close_fds(other);
}

/* Somebody else listens where a worker should: its answers are not believed. */
static void rogue_answer(const struct message *answer, size_t len, const int *fds, unsigned fds_n)
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

Test(shm_connect, answers_that_are_not_believed)
{
	struct message message = {.magic = SHM_MAGIC, .version = SHM_VERSION, .kind = REPLY};
	int fds[3], blocking = eventfd(0, 0);
	make_fds(fds);
	const int event = fds[1], bells = fds[2];
	unsigned files = open_files();
	rogue_answer(NULL, 0, NULL, 0);
	rogue_answer(&message, sizeof message, NULL, 0);
	rogue_answer(&message, sizeof message, &event, 1);
	rogue_answer(&message, sizeof message, (int[]){blocking, bells}, 2);
	rogue_answer(&message, sizeof message, (int[]){event, event}, 2);
	rogue_answer(&message, sizeof message, (int[]){event, fds[0]}, 2);
	rogue_answer(&message, 7, (int[]){event, bells}, 2);
	message.doorbell = SHM_BELLS;
	rogue_answer(&message, sizeof message, (int[]){event, bells}, 2);
	message.doorbell = 0;
	message.kind = CONNECT;
	rogue_answer(&message, sizeof message, (int[]){event, bells}, 2);
	message.kind = REPLY;
	message.status = 5;
	rogue_answer(&message, sizeof message, (int[]){event, bells}, 2);
	message.status = INT_MIN;
	rogue_answer(&message, sizeof message, NULL, 0);
	message.status = -1234567;
	rogue_answer(&message, sizeof message, NULL, 0);
	cr_assert_eq(open_files(), files, "a descriptor was left open");
	close_fds(fds);
	close(blocking);
}

/* ---- no descriptors left ---- */

/* No descriptor above those that are open. */
static struct rlimit no_more_files(void)
{
	struct rlimit old, limit;
	int next = dup(0);
	cr_assert_geq(next, 0);
	close(next);
	getrlimit(RLIMIT_NOFILE, &old);
	limit = old;
	limit.rlim_cur = (rlim_t)next;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return old;
}

Test(shm_connect, no_descriptor_for_what_came_with_connect)
{
	struct message message = good_connect(), answer;
	int fds[3], fd = dial(&b);
	make_fds(fds);
	test_ports_step(&b, 0, NULL, 0);
	say(fd, &message, sizeof message, fds, 3);
	unsigned files = open_files();
	struct rlimit old = no_more_files();
	test_ports_step(&b, 0, NULL, 0);
	setrlimit(RLIMIT_NOFILE, &old);
	cr_assert_eq(recv(fd, &answer, sizeof answer, 0), (ssize_t)sizeof answer);
	cr_assert_eq(answer.status, -EMFILE);
	cr_assert_eq(b.events_n, 0u);
	cr_assert_eq(open_files(), files - 1, "what was left open: all but the connection");
	close(fd);
	close_fds(fds);
	uint32_t pa, pb;
	test_ports_connect(&a, &b, &pa, &pb);
}

Test(shm_connect, no_descriptor_for_what_came_with_reply)
{
	struct nic_addr addr;
	b.port->ops->address(b.port, &addr);
	cr_assert_eq(connect_to(&a, &addr, soon(UINT64_C(10000000000))), 0);
	test_ports_step(&b, 2, NULL, 0);
	struct rlimit old = no_more_files();
	test_ports_step(&a, 1, NULL, 0);
	setrlimit(RLIMIT_NOFILE, &old);
	cr_assert_eq(a.events[0].type, NIC_EVENT_FAILED);
	cr_assert_eq(a.events[0].error, -EMFILE);
	cr_assert(strstr(a.events[0].text, "ulimit -n"), "%s", a.events[0].text);
	test_ports_step(&b, 3, NULL, 0);
	cr_assert_eq(b.events[2].type, NIC_EVENT_DOWN);
}

/* ---- ports with a key ---- */

enum { AUTH = 3, CHALLENGE = 4, RESPONSE = 5 };

static struct group_key here, there;

static void open_keyed(struct test_port *p, uint64_t id, const struct group_key *key)
{
	struct nic_err err = {""};
	struct nic_config config = {.runtime_dir = shm_test_dir, .id = id, .queues = 1, .head_bytes = 28, .key = key};
	test_port_close(p);
	memset(p, 0, sizeof *p);
	cr_assert_eq(nic_shm_port_ops.open(&config, &p->port, &err), 0, "%s", err.text);
	p->q = p->port->ops->queue(p->port, 0);
}

static void keys_make(const char *ours, const char *theirs)
{
	struct auth_key key = {""};
	memset(&here, 0, sizeof here);
	memset(&there, 0, sizeof there);
	memcpy(key.bytes, ours, strlen(ours));
	if (*ours)
		group_key_set(&here, &key, "g");
	memset(&key, 0, sizeof key);
	memcpy(key.bytes, theirs, strlen(theirs));
	if (*theirs)
		group_key_set(&there, &key, "g");
}

/* a connects to b: UP at both, or FAILED at a and nothing at b, and no descriptor is left. */
static void meets(const struct group_key *ka, const struct group_key *kb, int error)
{
	struct nic_addr addr;
	open_keyed(&a, 1, ka);
	open_keyed(&b, 2, kb);
	unsigned files = open_files();
	b.port->ops->address(b.port, &addr);
	cr_assert_eq(connect_to(&a, &addr, soon(UINT64_C(10000000000))), 0);
	test_ports_step(&a, 1, &b, error ? 0 : 2);
	cr_assert_eq(a.events[0].type, error ? NIC_EVENT_FAILED : NIC_EVENT_UP);
	cr_assert_eq(a.events[0].error, error, "%d", a.events[0].error);
	cr_assert_eq(b.events_n, error ? 0u : 2u);
	if (error)
		cr_assert_eq(open_files(), files);
}

Test(shm_connect, keys_of_both_ends)
{
	keys_make("key", "key");
	meets(&here, &there, 0);
	meets(&here, NULL, -EPROTO);
	meets(NULL, &there, -EKEYREJECTED);
	keys_make("key", "kez");
	meets(&here, &there, -EKEYREJECTED);
	keys_make("key", "");
	meets(&here, &there, -EACCES);
	keys_make("", "key");
	meets(&here, &there, -EKEYREJECTED);
}

static struct message heard(int fd)
{
	struct message message = {.kind = 0};
	for (int tries = 0; tries < 100; tries++) {
		test_ports_step(&b, 0, NULL, 0);
		if (recv(fd, &message, sizeof message, 0) == (ssize_t)sizeof message)
			return message;
	}
	cr_assert_fail("no answer");
	return message;
}

static struct message made(uint16_t kind, const void *bytes, uint16_t len)
{
	struct message message = {.magic = SHM_MAGIC, .version = SHM_VERSION, .kind = kind, .len = len};
	memcpy(message.bytes, bytes, len);
	return message;
}

static void proof(const char *label, const uint8_t *asker, const uint8_t *challenged, uint16_t queue, uint8_t out[16])
{
	struct auth_key key;
	struct auth_mac m;
	struct nic_addr addr;
	const uint8_t number[2] = {(uint8_t)(queue >> 8), (uint8_t)queue};
	b.port->ops->address(b.port, &addr);
	auth_derive(&key, group_key_get(&there), "shm", "");
	auth_mac_begin(&m, &key, label);
	auth_mac_add(&m, asker, 16);
	auth_mac_add(&m, challenged, 16);
	auth_mac_add(&m, addr.blob, strlen((const char *)addr.blob));
	auth_mac_add(&m, number, 2);
	auth_mac_end(&m, out);
}

/* Sends AUTH, and answers the challenge with what `forge` makes of the two nonces. */
static void answers(unsigned files, const struct message *answer)
{
	int fds[3], fd = dial(&b);
	make_fds(fds);
	struct message auth = made(AUTH, "0123456789abcdef", 16), handshake = good_connect();
	say(fd, &auth, sizeof auth, NULL, 0);
	struct message challenge = heard(fd);
	cr_assert_eq(challenge.kind, CHALLENGE);
	cr_assert_eq(challenge.len, 32);
	struct message own =
		answer ? *answer : made(RESPONSE, challenge.bytes + 16, 16); /* its own proof, turned back */
	say(fd, &own, sizeof own, NULL, 0);
	say(fd, &handshake, sizeof handshake, fds, 3);
	close_fds(fds);
	expect_refused(fd, files);
}

Test(shm_connect, descriptors_follow_the_proof)
{
	uint8_t right[16];
	keys_make("key", "key");
	open_keyed(&b, 2, &there);
	unsigned files = open_files();
	int fds[3];
	make_fds(fds);
	refuse_note(good_connect(), sizeof(struct message), fds, 3);
	refuse_note(made(AUTH, "0123456789abcdef", 15), sizeof(struct message), fds, 3);
	refuse_note(made(RESPONSE, "0123456789abcdef", 16), sizeof(struct message), fds, 3);
	refuse_note(made(CHALLENGE, "0123456789abcdef0123456789abcdef", 32), sizeof(struct message), fds, 3);
	close_fds(fds);
	answers(files, NULL);
	struct message again = made(AUTH, "0123456789abcdef", 16), handshake = good_connect();
	answers(files, &again);
	answers(files, &handshake);
	/* A proof that held in another connection. */
	int fd = dial(&b);
	say(fd, &again, sizeof again, NULL, 0);
	struct message challenge = heard(fd);
	proof("acceptor", again.bytes, challenge.bytes, 0, right);
	cr_assert_eq(memcmp(right, challenge.bytes + 16, 16), 0, "the acceptor's proof is as documented");
	proof("connector", again.bytes, challenge.bytes, 0, right);
	close(fd);
	test_ports_step(&b, 0, NULL, 0);
	struct message kept = made(RESPONSE, right, 16);
	answers(files, &kept);
	/* The right one is accepted, so that the others say something. */
	fd = dial(&b);
	make_fds(fds);
	say(fd, &again, sizeof again, NULL, 0);
	challenge = heard(fd);
	proof("connector", again.bytes, challenge.bytes, 0, right);
	kept = made(RESPONSE, right, 16);
	say(fd, &kept, sizeof kept, NULL, 0);
	say(fd, &handshake, sizeof handshake, fds, 3);
	b.events_n = 0;
	test_ports_step(&b, 2, NULL, 0);
	cr_assert_eq(b.events[1].type, NIC_EVENT_UP);
	close(fd);
	close_fds(fds);
}
