/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * libfarcall-metrics: serves a worker's metrics over HTTP for Prometheus, with libmicrohttpd. One thread of its own,
 * which the library starts when FAR_METRICS is set.
 */
#include "base/signals.h"
#include "features/metrics/accept.h"
#include "features/metrics/module.h"

#include <arpa/inet.h>
#include <errno.h>
#include <farcall/version.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_MAX    16u
#define CONNECTION_SECONDS 10u /* without a byte; then it is closed */

struct server {
	struct metrics_http public; /* first: it is cast */
	struct MHD_Daemon *daemon;
	metrics_http_text *text;
	void *ctx;
};

static enum MHD_Result reply(struct MHD_Connection *c, unsigned code, const char *type, char *text, size_t len,
			     enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, text, mode);
	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	enum MHD_Result result = MHD_queue_response(c, code, r);
	MHD_destroy_response(r);
	return result;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned code, const char *text)
{
	return reply(c, code, "text/plain; charset=utf-8", (char *)(uintptr_t)text, strlen(text),
		     MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method,
				  const char *version, const char *upload, size_t *upload_size, void **state)
{
	static char seen;
	struct server *s = cls;
	size_t len;
	(void)version;
	(void)upload;
	if (!*state) { /* the head alone; it is called once more */
		*state = &seen;
		return MHD_YES;
	}
	*upload_size = 0;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are served\n");
	if (strcmp(url, "/metrics") != 0)
		return refuse(c, MHD_HTTP_NOT_FOUND, "the metrics are at /metrics\n");
	bool openmetrics = accept_openmetrics(MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT));
	char *text = s->text(s->ctx, openmetrics, &len);
	if (!text)
		return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "the worker has no memory for its metrics\n");
	return reply(c, MHD_HTTP_OK,
		     openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
				 : "text/plain; version=0.0.4; charset=utf-8",
		     text, len, MHD_RESPMEM_MUST_FREE);
}

static void stop(struct metrics_http *public)
{
	struct server *s = (struct server *)public;
	MHD_stop_daemon(s->daemon);
	free(s);
}

/* An IP address of either family. */
static socklen_t address_of(const char *host, unsigned port, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
	memset(out, 0, sizeof *out);
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return sizeof *v4;
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		return sizeof *v6;
	}
	return 0;
}

static struct metrics_http *start(const char *host, unsigned port, metrics_http_text *text, void *ctx, unsigned *bound,
				  char *why, size_t cap)
{
	struct sockaddr_storage at;
	sigset_t masked, before;
	if (!address_of(host, port, &at)) {
		snprintf(why, cap, "\"%s\" is no IP address", host);
		return NULL;
	}
	struct server *s = calloc(1, sizeof *s);
	if (!s) {
		snprintf(why, cap, "out of memory");
		return NULL;
	}
	*s = (struct server){.public = {stop}, .text = text, .ctx = ctx};
	signals_thread_mask(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	errno = 0;
	s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | (at.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0),
				     (uint16_t)port, NULL, NULL, on_request, s, MHD_OPTION_SOCK_ADDR, &at,
				     MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
				     CONNECTION_SECONDS, MHD_OPTION_END);
	int error = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	const union MHD_DaemonInfo *info = s->daemon ? MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
	if (info) {
		*bound = info->port;
		return &s->public;
	}
	snprintf(why, cap, "%s", error ? strerror(error) : "libmicrohttpd does not start");
	if (s->daemon)
		MHD_stop_daemon(s->daemon);
	free(s);
	return NULL;
}

extern const struct metrics_http_module far_metrics_http_module;
__attribute__((visibility("default")))
const struct metrics_http_module far_metrics_http_module = {{METRICS_HTTP_ABI, FAR_VERSION}, start};
