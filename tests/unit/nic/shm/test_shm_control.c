/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages of the set-up over a pair of sockets, and what else may come out of one. The test's thread. */
#include "nic/shm/shm_control.h"

#include "nic/shm/shm_layout.h"
#include "open_files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int ends[2];

static void setup(void)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
}

TestSuite(shm_control, .init = setup);

/* Sends `len` bytes with `fds_n` descriptors of the same file. */
static void send_raw(const void *bytes, size_t len, int fd, unsigned fds_n)
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
		for (unsigned i = 0; i < fds_n; i++)
			memcpy(CMSG_DATA(c) + i * sizeof fd, &fd, sizeof fd);
	}
	cr_assert_eq(sendmsg(ends[0], &msg, MSG_NOSIGNAL), (ssize_t)len);
}

Test(shm_control, arrives_with_its_descriptors)
{
	struct shm_control_msg got, sent = shm_control_make(SHM_CONTROL_CONNECT, -EACCES, "hello", 5);
	int out[SHM_CONTROL_FDS], in[SHM_CONTROL_FDS];
	struct stat a, b;
	sent.queue = 3;
	sent.doorbell = 4095;
	cr_assert(sent.magic == SHM_MAGIC && sent.version == SHM_VERSION && sent.len == 5);
	for (unsigned n = 0; n <= SHM_CONTROL_FDS; n++) {
		for (unsigned i = 0; i < SHM_CONTROL_FDS; i++)
			out[i] = eventfd(i, EFD_CLOEXEC);
		cr_assert_eq(shm_control_recv(ends[1], &got, in), -EAGAIN);
		cr_assert(in[0] == -1 && in[1] == -1 && in[2] == -1);
		cr_assert_eq(shm_control_send(ends[0], &sent, out, n), 0);
		cr_assert_eq(shm_control_recv(ends[1], &got, in), 1);
		cr_assert_eq(memcmp(&got, &sent, sizeof got), 0);
		for (unsigned i = 0; i < SHM_CONTROL_FDS; i++) {
			cr_assert_eq(in[i] >= 0, i < n);
			uint64_t count = 0;
			if (i > 0 && i < n)
				cr_assert(read(in[i], &count, sizeof count) == sizeof count && count == i, "in order");
			cr_assert_eq(fstat(out[i], &a), 0, "the sender's stay open");
			cr_assert(in[i] < 0 || fstat(in[i], &b) == 0);
		}
		shm_control_close_fds(in);
		cr_assert(in[0] == -1 && in[2] == -1);
		shm_control_close_fds(out);
	}
}

Test(shm_control, ends_of_a_stream)
{
	struct shm_control_msg got, sent = shm_control_make(SHM_CONTROL_REPLY, 0, NULL, 0);
	int in[SHM_CONTROL_FDS];
	cr_assert_eq(sent.len, 0);
	close(ends[0]);
	cr_assert_eq(shm_control_recv(ends[1], &got, in), 0);
	cr_assert_eq(shm_control_send(ends[1], &sent, NULL, 0), -EPIPE, "and no signal");
	cr_assert_eq(shm_control_recv(-1, &got, in), -EBADF);
	cr_assert_eq(shm_control_send(-1, &sent, NULL, 0), -EBADF);
}

/* No descriptor is kept of what is no message. */
Test(shm_control, what_is_no_message)
{
	const struct shm_control_msg good = shm_control_make(SHM_CONTROL_CONNECT, 0, "hello", 5);
	struct shm_control_msg bad[3] = {good, good, good}, got;
	int in[SHM_CONTROL_FDS], fd = eventfd(0, EFD_CLOEXEC);
	unsigned files = open_files();
	bad[0].magic ^= 1;
	bad[1].version++;
	bad[2].len = NIC_HANDSHAKE_BYTES_MAX + 1;
	for (unsigned i = 0; i < 3; i++) {
		send_raw(&bad[i], sizeof bad[i], fd, SHM_CONTROL_FDS);
		cr_assert_eq(shm_control_recv(ends[1], &got, in), -EPROTO, "%u", i);
		cr_assert_eq(open_files(), files, "%u", i);
	}
	send_raw(&good, sizeof good - 1, fd, SHM_CONTROL_FDS);
	cr_assert_eq(shm_control_recv(ends[1], &got, in), -EPROTO);
	cr_assert_eq(open_files(), files);
	/* Without a byte it reads as the end. */
	send_raw(&good, 0, fd, SHM_CONTROL_FDS);
	cr_assert_eq(shm_control_recv(ends[1], &got, in), 0);
	cr_assert_eq(open_files(), files, "descriptors of an empty message");
	/* The longest handshake is one. */
	struct shm_control_msg longest = good;
	longest.len = NIC_HANDSHAKE_BYTES_MAX;
	send_raw(&longest, sizeof longest, fd, 0);
	cr_assert_eq(shm_control_recv(ends[1], &got, in), 1);
}

/* More descriptors than a message has are closed; more than fit the buffer make it invalid. */
Test(shm_control, too_many_descriptors)
{
	const struct shm_control_msg good = shm_control_make(SHM_CONTROL_CONNECT, 0, NULL, 0);
	struct shm_control_msg got;
	int in[SHM_CONTROL_FDS], fd = eventfd(0, EFD_CLOEXEC);
	unsigned files = open_files();
	for (unsigned n = SHM_CONTROL_FDS + 1; n <= 32; n++) {
		send_raw(&good, sizeof good, fd, n);
		int kind = shm_control_recv(ends[1], &got, in);
		cr_assert(kind == (n <= 8 ? 1 : -EMFILE), "%u: %d", n, kind);
		cr_assert_eq(open_files(), files + (kind == 1 ? SHM_CONTROL_FDS : 0));
		shm_control_close_fds(in);
	}
	cr_assert_eq(open_files(), files);
}

Test(shm_control, no_descriptor_is_free)
{
	const struct shm_control_msg good = shm_control_make(SHM_CONTROL_CONNECT, 0, NULL, 0);
	struct shm_control_msg got;
	struct rlimit before, few;
	int in[SHM_CONTROL_FDS], fd = eventfd(0, EFD_CLOEXEC);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	send_raw(&good, sizeof good, fd, SHM_CONTROL_FDS);
	few = before;
	few.rlim_cur = (rlim_t)fd + 2; /* for one of the three */
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	int kind = shm_control_recv(ends[1], &got, in);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	cr_assert_eq(kind, -EMFILE);
	cr_assert(in[0] == -1 && in[1] == -1 && in[2] == -1);
}
