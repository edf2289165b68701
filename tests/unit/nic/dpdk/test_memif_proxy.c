/* SPDX-License-Identifier: BSD-3-Clause */
/** The proxy in front of a memif server: messages and descriptors in both directions, and which end may disconnect
 * when. The test's thread. */
#include "nic/dpdk/memif_proxy.h"
#include "open_files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/far-proxy-XXXXXX";
static struct memif_proxy_address front, back;
static struct memif_proxy *proxy;
static struct nic_err err;
static int server; /* listens at `back` */
static unsigned files;

static struct memif_proxy_address at(const char *name)
{
	struct memif_proxy_address a = {.un = {.sun_family = AF_UNIX}, .len = sizeof a.un};
	snprintf(a.un.sun_path, sizeof a.un.sun_path, "%s/%s", dir, name);
	return a;
}

static int listen_at(const struct memif_proxy_address *a)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&a->un, a->len), 0);
	cr_assert_eq(listen(fd, 100), 0);
	return fd;
}

static void setup(void)
{
	cr_assert(mkdtemp(dir));
	front = at("front");
	back = at("back");
	server = listen_at(&back);
	files = open_files();
	cr_assert_eq(memif_proxy_open(&front, &back, false, &proxy, &err), 0, "%s", err.text);
}

static void teardown(void)
{
	struct stat st;
	if (proxy)
		memif_proxy_close(proxy);
	cr_assert_neq(lstat(front.un.sun_path, &st), 0, "its socket's file is left");
	cr_assert_eq(open_files(), files, "a descriptor is left");
	close(server);
	unlink(back.un.sun_path);
	rmdir(dir);
}

TestSuite(memif_proxy, .init = setup, .fini = teardown);

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&front.un, front.len), 0, "%s", strerror(errno));
	return fd;
}

static bool has_work(void)
{
	struct pollfd p = {.fd = memif_proxy_fd(proxy), .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

static bool ended(int fd)
{
	char byte;
	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static bool says(int fd, const char *text)
{
	char bytes[300];
	ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
	return n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0;
}

/* The server's end of a client's connection. */
static int accepted(void)
{
	memif_proxy_run(proxy);
	int fd = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	cr_assert_geq(fd, 0);
	return fd;
}

Test(memif_proxy, messages_both_ways)
{
	cr_assert_not(has_work());
	cr_assert_not(memif_proxy_run(proxy));
	int client = dial();
	cr_assert(has_work());
	int at_server = accepted();
	cr_assert_eq(send(at_server, "hello", 5, 0), 5);
	cr_assert(has_work());
	memif_proxy_run(proxy);
	cr_assert(says(client, "hello"));
	cr_assert_eq(send(client, "one", 3, 0), 3);
	cr_assert_eq(send(client, "two", 3, 0), 3);
	cr_assert(memif_proxy_run(proxy), "the server has something to read");
	cr_assert(says(at_server, "one") && says(at_server, "two"), "messages stay apart");
	cr_assert_not(memif_proxy_run(proxy));
	close(client);
	cr_assert(memif_proxy_run(proxy));
	cr_assert(ended(at_server));
	close(at_server);
}

Test(memif_proxy, descriptors)
{
	int client = dial(), at_server = accepted(), given = eventfd(42, EFD_CLOEXEC);
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	char text[8] = "fd";
	struct iovec iov = {text, 2};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof given)};
	memcpy(CMSG_DATA(c), &given, sizeof given);
	cr_assert_eq(sendmsg(client, &msg, 0), 2);
	unsigned before = open_files();
	memif_proxy_run(proxy);
	memset(&control, 0, sizeof control);
	cr_assert_eq(recvmsg(at_server, &msg, MSG_CMSG_CLOEXEC), 2);
	cr_assert_eq(open_files(), before + 1, "the proxy keeps none");
	int got;
	uint64_t count = 0;
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof got);
	cr_assert(read(got, &count, sizeof count) == sizeof count && count == 42);
	close(got);
	close(given);
	close(client);
	close(at_server);
	memif_proxy_run(proxy);
}

/* A server that has said nothing would abort: its connection stays until it has. */
Test(memif_proxy, a_client_that_goes_too_early)
{
	int client = dial(), at_server = accepted();
	close(client);
	for (unsigned i = 0; i < 3; i++)
		memif_proxy_run(proxy);
	cr_assert_not(ended(at_server));
	cr_assert_eq(send(at_server, "hello", 5, 0), 5);
	memif_proxy_run(proxy);
	cr_assert(ended(at_server));
	close(at_server);
}

Test(memif_proxy, a_server_that_goes)
{
	int client = dial(), at_server = accepted();
	cr_assert_eq(send(at_server, "bye", 3, 0), 3);
	close(at_server);
	memif_proxy_run(proxy);
	cr_assert(says(client, "bye"), "what it sent arrives");
	cr_assert(ended(client));
	close(client);
}

/* A client that connects while there is no server waits for it. */
Test(memif_proxy, before_the_server)
{
	close(server);
	unlink(back.un.sun_path);
	int client = dial();
	cr_assert_eq(send(client, "early", 5, 0), 5);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_not(memif_proxy_run(proxy));
	cr_assert_not(ended(client));
	server = listen_at(&back);
	int at_server = accepted();
	memif_proxy_run(proxy);
	cr_assert(says(at_server, "early"));
	close(client);
	close(at_server);
	memif_proxy_run(proxy);
}

/* A message that is longer than memif's ends the connection. */
Test(memif_proxy, messages_that_are_too_long)
{
	char bytes[257];
	memset(bytes, 'x', sizeof bytes);
	int client = dial(), at_server = accepted();
	cr_assert_eq(send(at_server, "hello", 5, 0), 5);
	cr_assert_eq(send(client, bytes, 256, 0), 256);
	memif_proxy_run(proxy);
	cr_assert_eq(recv(at_server, bytes, sizeof bytes, 0), 256);
	cr_assert_eq(send(client, bytes, 257, 0), 257);
	memif_proxy_run(proxy);
	cr_assert(says(client, "hello") && ended(client) && ended(at_server));
	close(client);
	close(at_server);
}

/* Further clients wait to be accepted, and are when others go; meanwhile the listener wakes nobody. */
Test(memif_proxy, more_clients_than_it_has_room_for)
{
	static int clients[MEMIF_PROXY_CLIENTS_MAX + 1], servers[MEMIF_PROXY_CLIENTS_MAX + 1];
	for (unsigned i = 0; i <= MEMIF_PROXY_CLIENTS_MAX; i++) {
		clients[i] = dial();
		memif_proxy_run(proxy);
		servers[i] = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		cr_assert_eq(servers[i] >= 0, i < MEMIF_PROXY_CLIENTS_MAX, "%u", i);
	}
	memif_proxy_run(proxy);
	cr_assert_not(has_work());
	close(servers[5]);
	memif_proxy_run(proxy);
	cr_assert(ended(clients[5]));
	memif_proxy_run(proxy);
	servers[MEMIF_PROXY_CLIENTS_MAX] = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	cr_assert_geq(servers[MEMIF_PROXY_CLIENTS_MAX], 0);
	servers[5] = -1;
	for (unsigned i = 0; i <= MEMIF_PROXY_CLIENTS_MAX; i++) {
		close(clients[i]);
		if (servers[i] >= 0)
			close(servers[i]);
	}
}

/* Its file is for our user alone; a dead one is replaced, and what is alive or no socket is not. */
Test(memif_proxy, its_file)
{
	struct stat st;
	struct memif_proxy *other = NULL;
	cr_assert_eq(stat(front.un.sun_path, &st), 0);
	cr_assert(S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600);
	cr_assert_eq(memif_proxy_open(&front, &back, false, &other, &err), -EADDRINUSE);
	cr_assert(strstr(err.text, front.un.sun_path) && strstr(err.text, "another process is memif's server"), "%s",
		  err.text);
	memif_proxy_close(proxy);
	proxy = NULL;
	close(listen_at(&front)); /* its process is gone, its file is not */
	cr_assert_eq(memif_proxy_open(&front, &back, true, &proxy, &err), 0, "%s", err.text);
	memif_proxy_close(proxy);
	proxy = NULL;
	fclose(fopen(front.un.sun_path, "w"));
	cr_assert_eq(memif_proxy_open(&front, &back, false, &other, &err), -EADDRINUSE);
	cr_assert(strstr(err.text, "it is not a socket"), "%s", err.text);
	cr_assert_eq(unlink(front.un.sun_path), 0, "it is left alone");
	front = at("nowhere/front");
	cr_assert_eq(memif_proxy_open(&front, &back, false, &other, &err), -ENOENT);
	cr_assert(strstr(err.text, "cannot listen at"), "%s", err.text);
}

Test(memif_proxy, users)
{
	int ends[2];
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	cr_assert_not(memif_proxy_is_other_user(ends[0]));
	cr_assert(memif_proxy_is_other_user(-1), "what cannot be found out is another user's");
	close(ends[0]);
	close(ends[1]);
}
