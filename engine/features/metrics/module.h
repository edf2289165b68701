/* SPDX-License-Identifier: BSD-3-Clause */
/** Interface between the library and libfarcall-metrics, which serves metrics over HTTP and is loaded on demand.
 * Its server has a thread of its own. */
#ifndef FAR_FEATURES_METRICS_MODULE_H
#define FAR_FEATURES_METRICS_MODULE_H

#include "base/module.h"

#include <stdbool.h>
#include <stddef.h>

#define METRICS_HTTP_ABI 2u
#define METRICS_HOST_MAX 64

/** A running server; what else it has is the module's. */
struct metrics_http {
	void (*stop)(struct metrics_http *server); /* blocks until its requests have ended */
};

/** The metrics in OpenMetrics' format or in that of Prometheus. */
typedef char *metrics_http_text(void *ctx, bool openmetrics, size_t *len);

struct metrics_http_module {
	struct module_head head; /* METRICS_HTTP_ABI */
	/** Starts a server on an IP address and a port (0: any), which answers with text(ctx, openmetrics, &len), of
	 * malloc(), or with 503 if that is NULL. NULL: with the reason in why[0, cap). Start only. */
	struct metrics_http *(*start)(const char *host, unsigned port, metrics_http_text *text, void *ctx,
				      unsigned *bound, char *why, size_t cap);
};

#endif
