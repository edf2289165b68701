/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses HOST:PORT and binds listeners for `perf serve`. Main thread. */
#include "address.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 16

static int port_parse(const char *s, long min)
{
	size_t n = strlen(s);
	if (n == 0 || n > 5 || strspn(s, "0123456789") != n)
		return -1;
	long port = strtol(s, NULL, 10);
	return port >= min && port <= 65535 ? (int)port : -1;
}

int address_parse(const char *s, bool zero, struct address *out, char text[ADDRESS_TEXT_MAX])
{
	const char *colon = strrchr(s, ':');
	const char *host = s;
	size_t n = colon ? (size_t)(colon - s) : 0;
	if (n >= 2 && s[0] == '[' && s[n - 1] == ']') {
		host++;
		n -= 2;
	} else if (memchr(s, ':', n)) {
		snprintf(text, ADDRESS_TEXT_MAX, "\"%.128s\": write an IPv6 address in brackets, [::1]:29500", s);
		return -EINVAL;
	}
	if (n == 0 || n >= sizeof out->host || strcspn(host, " \t/?#@[]") < n) {
		snprintf(text, ADDRESS_TEXT_MAX, "\"%.128s\" is not HOST:PORT, such as 127.0.0.1:29500", s);
		return -EINVAL;
	}
	int port = port_parse(colon + 1, zero ? 0 : 1);
	if (port < 0) {
		snprintf(text, ADDRESS_TEXT_MAX, "\"%.128s\": the port is not a number from %d to 65535", s, !zero);
		return -EINVAL;
	}
	memcpy(out->host, host, n);
	out->host[n] = 0;
	out->port = (uint16_t)port;
	return 0;
}

void address_url(const struct address *a, char url[ADDRESS_TEXT_MAX])
{
	bool v6 = strchr(a->host, ':') != NULL;
	snprintf(url, ADDRESS_TEXT_MAX, "tcp://%s%s%s:%u", v6 ? "[" : "", a->host, v6 ? "]" : "", a->port);
}

static bool loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 24 == 127;
	return sa->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

static int listen_at(const struct addrinfo *at, uint16_t *port)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof sa;
	int on = 1;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 || bind(fd, at->ai_addr, at->ai_addrlen) < 0 ||
	    listen(fd, BACKLOG) < 0 || getsockname(fd, (struct sockaddr *)&sa, &len) < 0) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	*port = ntohs(sa.ss_family == AF_INET ? ((struct sockaddr_in *)&sa)->sin_port
					      : ((struct sockaddr_in6 *)&sa)->sin6_port);
	return fd;
}

int address_listen(struct address *a, bool any, char text[ADDRESS_TEXT_MAX])
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE}, *list = NULL;
	char service[8];
	snprintf(service, sizeof service, "%u", a->port);
	int fd = -ENXIO;
	int rc = getaddrinfo(a->host, service, &hints, &list);
	if (rc) {
		snprintf(text, ADDRESS_TEXT_MAX, "cannot find the address of host \"%.128s\": %s", a->host,
			 gai_strerror(rc));
		return -1;
	}
	for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
		if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
			continue;
		if (!any && !loopback(at->ai_addr)) {
			snprintf(
				text, ADDRESS_TEXT_MAX,
				"%.128s is not a loopback address; listen on 127.0.0.1, or pass --security none to let "
				"anybody in who reaches it, or give both processes a key (FAR_KEY_FILE)",
				a->host);
			freeaddrinfo(list);
			return -1;
		}
		fd = listen_at(at, &a->port);
	}
	freeaddrinfo(list);
	if (fd >= 0)
		return fd;
	snprintf(text, ADDRESS_TEXT_MAX, "cannot listen on %.128s:%u: %s%s", a->host, a->port, strerror(-fd),
		 fd == -EADDRINUSE ? "; choose another port, or 0 for any that is free" : "");
	return -1;
}
