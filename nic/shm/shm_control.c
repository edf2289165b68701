/* SPDX-License-Identifier: BSD-3-Clause */
/** Sends and receives the control messages of a connection set-up. Control thread; non-blocking. */
#include "nic/shm/shm_control.h"

#include "nic/shm/shm_layout.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void shm_control_close_fds(int fds[SHM_CONTROL_FDS])
{
	for (int i = 0; i < SHM_CONTROL_FDS; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

int shm_control_send(int fd, const struct shm_control_msg *message, const int *fds, unsigned fds_n)
{
	struct iovec iov = {(void *)(uintptr_t)message, sizeof *message};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(SHM_CONTROL_FDS * sizeof(int))];
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
	return sendmsg(fd, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int shm_control_recv(int fd, struct shm_control_msg *message, int fds[SHM_CONTROL_FDS])
{
	struct iovec iov = {message, sizeof *message};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
	for (int i = 0; i < SHM_CONTROL_FDS; i++)
		fds[i] = -1;
	ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < got; i++) {
			int one;
			memcpy(&one, CMSG_DATA(c) + i * sizeof(int), sizeof one);
			if (i < SHM_CONTROL_FDS && fds[i] < 0)
				fds[i] = one;
			else
				close(one);
		}
	}
	if (n == 0) { /* the end, or an empty message, which may carry descriptors, too */
		shm_control_close_fds(fds);
		return 0;
	}
	if (n != sizeof *message || message->magic != SHM_MAGIC || message->version != SHM_VERSION ||
	    message->len > NIC_HANDSHAKE_BYTES_MAX) {
		shm_control_close_fds(fds);
		return -EPROTO;
	}
	if (msg.msg_flags & MSG_CTRUNC) { /* more descriptors than a message may carry, or than we may open */
		shm_control_close_fds(fds);
		return -EMFILE;
	}
	return 1;
}

struct shm_control_msg shm_control_make(enum shm_control_kind kind, int status, const void *bytes, size_t len)
{
	struct shm_control_msg message = {
		.magic = SHM_MAGIC, .version = SHM_VERSION, .kind = (uint16_t)kind, .status = status};
	message.len = (uint16_t)len;
	if (len)
		memcpy(message.bytes, bytes, len);
	return message;
}
