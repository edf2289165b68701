/* SPDX-License-Identifier: BSD-3-Clause */
/** The server of libfarcall-metrics over loopback: what each request gets, and why it does not start. The test's
 * thread, and the server's. */
#include "features/metrics/module.h"
#include "open_files.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern const struct metrics_http_module far_metrics_http_module;

static struct metrics_http *server;
static unsigned port;
static char why[128], reply[4096];
static bool no_memory;

/* The server's thread. */
static char *text(void *ctx, bool openmetrics, size_t *len)
{
	if (no_memory || ctx != &server)
		return NULL;
	char *t = strdup(openmetrics ? "open 1\n" : "plain 1\n");
	*len = strlen(t);
	return t;
}

static struct metrics_http *start(const char *host, unsigned at, unsigned *bound)
{
	why[0] = '\0';
	return far_metrics_http_module.start(host, at, text, &server, bound, why, sizeof why);
}

static void setup(void)
{
	server = start("127.0.0.1", 0, &port);
	cr_assert(server && port, "%s", why);
}

static void teardown(void)
{
	server->stop(server);
}

TestSuite(metrics_http, .init = setup, .fini = teardown, .timeout = 30);

static int connected(void)
{
	const struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_geq(fd, 0);
	cr_assert_eq(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
	return fd;
}

/* Sends a request; returns the status of the reply. */
static int get(const char *method, const char *path, const char *accept)
{
	int fd = connected(), status = 0;
	dprintf(fd, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n%s%s%s\r\n", method, path,
		accept ? "Accept: " : "", accept ? accept : "", accept ? "\r\n" : "");
	size_t len = 0;
	for (ssize_t n; len < sizeof reply - 1 && (n = read(fd, reply + len, sizeof reply - 1 - len)) > 0;)
		len += (size_t)n;
	reply[len] = '\0';
	close(fd);
	cr_assert_eq(sscanf(reply, "HTTP/1.1 %d", &status), 1, "%s", reply);
	return status;
}

static const char *body(void)
{
	const char *end = strstr(reply, "\r\n\r\n");
	cr_assert_not_null(end);
	return end + 4;
}

Test(metrics_http, the_format_that_is_accepted)
{
	cr_assert_eq(get("GET", "/metrics", NULL), 200);
	cr_assert(strstr(reply, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "%s", reply);
	cr_assert_str_eq(body(), "plain 1\n");
	cr_assert_eq(get("GET", "/metrics", "application/openmetrics-text; version=1.0.0"), 200);
	cr_assert(strstr(reply, "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "%s",
		  reply);
	cr_assert_str_eq(body(), "open 1\n");
	cr_assert_eq(get("HEAD", "/metrics", NULL), 200);
	cr_assert_str_eq(body(), "");
}

/* Expect a status and a text that states what is served. */
Test(metrics_http, what_is_not_served)
{
	cr_assert_eq(get("POST", "/metrics", NULL), 405);
	cr_assert_str_eq(body(), "only GET and HEAD are served\n");
	cr_assert_eq(get("GET", "/", NULL), 404);
	cr_assert_str_eq(body(), "the metrics are at /metrics\n");
	cr_assert_eq(get("GET", "/metrics/x", NULL), 404);
	no_memory = true;
	cr_assert_eq(get("GET", "/metrics", NULL), 503);
	cr_assert_str_eq(body(), "the worker has no memory for its metrics\n");
	no_memory = false;
	cr_assert_eq(get("GET", "/metrics", NULL), 200, "it serves on");
}

/* Names, addresses of no form, and the port of a server that runs. */
Test(metrics_http, does_not_start)
{
	static const char *const hosts[] = {"localhost", "", "1.2.3", "::g", "127.0.0.1 "};
	unsigned bound = 77;
	for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
		char want[64];
		snprintf(want, sizeof want, "\"%s\" is no IP address", hosts[i]);
		cr_assert_null(start(hosts[i], 0, &bound));
		cr_assert_str_eq(why, want);
	}
	cr_assert_null(start("127.0.0.1", port, &bound));
	cr_assert(strstr(why, "in use"), "%s", why);
	cr_assert_eq(bound, 77u);
}

/* Expect its thread and descriptors gone, and another server to serve on. */
Test(metrics_http, its_end_leaves_nothing)
{
	unsigned before = open_files(), bound;
	struct metrics_http *other = start("127.0.0.1", 0, &bound);
	cr_assert(other && bound != port, "%s", why);
	cr_assert_gt(open_files(), before);
	other->stop(other);
	cr_assert_eq(open_files(), before);
	cr_assert_eq(get("GET", "/metrics", NULL), 200);
}
