/* SPDX-License-Identifier: BSD-3-Clause */
/** Another user of the host, nobody, at memif's sockets: as a client, as the server, at those for kicks. Needs root.
 * Main thread of each process. */
#ifndef DPDK_MEMIF_USERS_H
#define DPDK_MEMIF_USERS_H

#include "dpdk_memif_setup.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define NOBODY 65534

static socklen_t abstract_name(struct sockaddr_un *at)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "%s/users", dir));
}

/* Until the other end closes. Messages are taken, descriptors must not come with them. Returns their number. */
static unsigned heard(int fd)
{
	unsigned messages = 0;
	for (;; messages++) {
		char bytes[256], control[CMSG_SPACE(4 * sizeof(int))];
		struct iovec part = {bytes, sizeof bytes};
		struct msghdr m = {
			.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		ssize_t n = recvmsg(fd, &m, 0);
		if (n <= 0)
			return messages;
		REQUIRE(m.msg_controllen == 0);
	}
}

/* Every server of our user that has an abstract name: none greets. Names are there for everybody to read. */
static void connects(pid_t server)
{
	char line[256], own[32];
	FILE *names = fopen("/proc/net/unix", "r");
	struct sockaddr_un at;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	socklen_t len = abstract_name(&at);
	REQUIRE(connect(fd, (struct sockaddr *)&at, len) == 0);
	REQUIRE(heard(fd) == 0);
	snprintf(own, sizeof own, "@farcall-%ld-", (long)server);
	while (names && fgets(line, sizeof line, names))
		REQUIRE(!strstr(line, own)); /* DPDK's own, behind the one that checks */
	REQUIRE(names && fclose(names) == 0);
}

/* The server's files. */
static void opens(pid_t server)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int stream = socket(AF_UNIX, SOCK_SEQPACKET, 0), kicks = socket(AF_UNIX, SOCK_DGRAM, 0);
	snprintf(at.sun_path, sizeof at.sun_path, "%s/m.sock", dir);
	REQUIRE(connect(stream, (struct sockaddr *)&at, sizeof at) < 0 && errno == EACCES);
	snprintf(at.sun_path, sizeof at.sun_path, "%s/m.sock.s3.0", dir);
	REQUIRE(sendto(kicks, "k", 1, 0, (struct sockaddr *)&at, sizeof at) < 0 && errno == EACCES);
}

static int listening = -1;

/* Who waits for clients in the server's place gets nothing of theirs. */
static void serves(pid_t client)
{
	for (int i = 0; i < 2; i++) { /* a client tries again */
		int fd = accept(listening, NULL, NULL);
		REQUIRE(fd >= 0);
		heard(fd);
		close(fd);
	}
}

/* Runs it as nobody while `e` is stepped. */
static void as_nobody(void (*what)(pid_t other), struct end *e, bool listens)
{
	pid_t us = getpid(), pid;
	int status, ready[2];
	char byte = 1;
	REQUIRE(pipe(ready) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		struct sockaddr_un at;
		socklen_t len = abstract_name(&at);
		alarm(150);
		REQUIRE(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
		if (listens) {
			listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
			REQUIRE(bind(listening, (struct sockaddr *)&at, len) == 0 && listen(listening, 8) == 0);
		}
		REQUIRE(write(ready[1], &byte, 1) == 1);
		what(us);
		_exit(0);
	}
	REQUIRE(read(ready[0], &byte, 1) == 1);
	if (listens) {
		char args[256];
		snprintf(args, sizeof args, "net_memif1,role=client,id=3,socket=%s/users,socket-abstract=yes", dir);
		end_open(e, args, 1);
	}
	while (waitpid(pid, &status, WNOHANG) == 0)
		end_step(e);
	REQUIRE(status == 0);
	close(ready[0]);
	close(ready[1]);
}

static void case_users(void)
{
	struct end e;
	char args[256];
	if (geteuid() != 0) {
		printf("SKIP: another user: missing right: root\n");
		rmdir(dir);
		exit(77);
	}
	name_args("");
	REQUIRE(chmod(dir, 0711) == 0);
	mode_t mask = umask(0);
	end_open(&e, server_args, 1);
	as_nobody(opens, &e, false);
	e.ops->close(e.port);
	umask(mask);
	snprintf(args, sizeof args, "net_memif0,role=server,id=3,socket=%s/users,socket-abstract=yes", dir);
	end_open(&e, args, 1);
	as_nobody(connects, &e, false);
	e.ops->close(e.port);
	as_nobody(serves, &e, true);
	e.ops->close(e.port);
}

#endif
