/* SPDX-License-Identifier: BSD-3-Clause */
/** What serves an agent's metrics: the admin socket, and the module for HTTP. Start and stop; answer(): the admin
 * thread; http_text(): the module's thread. */
#include "control/admin.h"
#include "agent/init.h"
#include "agent/metrics.h"
#include "base/error.h"
#include "base/log.h"
#include "features/metrics/module.h"
#include "nic/module_dir.h" /* FAR_MODULE_DIR: where meson installs modules */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_EVERY     64u
#define SAMPLE_EVERY_MAX 1000000u

/* A whole number without sign, at most `max`. */
static bool number(const char *text, unsigned long max, unsigned long *out, const char **end)
{
	char *stop;
	*out = strtoul(text, &stop, 10);
	*end = stop;
	return *text >= '0' && *text <= '9' && stop - text < 10 && *out <= max;
}

enum far_status agent_sample_every(uint32_t *out, struct far_err *err)
{
	const char *text = getenv("FAR_METRICS_SAMPLE"), *end;
	unsigned long n = SAMPLE_EVERY;
	if (text && *text && (!number(text, SAMPLE_EVERY_MAX, &n, &end) || *end))
		return err_set(err, FAR_INVALID,
			       "environment variable FAR_METRICS_SAMPLE is \"%.64s\", expected a number from 0 (no "
			       "latency is measured) to %u",
			       text, SAMPLE_EVERY_MAX);
	*out = (uint32_t)n;
	return FAR_OK;
}

/* ---- the admin socket ---- */

static enum far_status write_metrics(struct far_agent *a, enum far_metrics_format format, struct metrics_out *o,
				     struct far_err *err)
{
	struct metrics_report *r;
	enum far_status status = agent_report(a, &r, err);
	if (status)
		return status;
	metrics_write(r, format, o);
	agent_report_free(r);
	return FAR_OK;
}

static bool answer(void *ctx, const char *request, char **text, size_t *len, const char **reason)
{
	static const char *const formats[] = {[FAR_METRICS_TEXT] = "text",
					      [FAR_METRICS_JSON] = "json",
					      [FAR_METRICS_PROMETHEUS] = "prometheus",
					      [FAR_METRICS_OPENMETRICS] = "openmetrics"};
	struct far_agent *a = ctx;
	struct metrics_out o = {0};
	struct far_err err;
	enum far_status status = FAR_INVALID;
	*reason = "the request is not known; expected info, debug, or metrics and a format: text, json, "
		  "prometheus, openmetrics";
	if (strcmp(request, "info") == 0) {
		agent_info_write(a, &o);
		status = FAR_OK;
	} else if (strcmp(request, "debug") == 0) {
		status = agent_debug_write(a, &o, &err);
	} else if (strncmp(request, "metrics ", 8) == 0) {
		for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++)
			if (strcmp(request + 8, formats[i]) == 0)
				status = write_metrics(a, (enum far_metrics_format)i, &o, &err);
	}
	if (status == FAR_RESOURCE || o.failed)
		*reason = "the worker has no memory for the answer";
	if (status || o.failed) {
		free(o.text);
		return false;
	}
	*text = o.text;
	*len = o.len;
	return true;
}

static enum far_status start_admin(struct far_agent *a, struct far_err *err)
{
	const char *wanted = getenv("FAR_ADMIN");
	char why[512];
	if (wanted && *wanted && strcmp(wanted, "on") != 0 && strcmp(wanted, "off") != 0)
		return err_set(err, FAR_INVALID, "environment variable FAR_ADMIN is \"%.64s\", expected on or off",
			       wanted);
	if (wanted && strcmp(wanted, "off") == 0)
		return FAR_OK;
	a->admin = admin_start(answer, a, why, sizeof why);
	if (!a->admin)
		log_line(FAR_LOG_INFO, "worker \"%s\" has no admin socket for `farcall top`: %s", a->name, why);
	return FAR_OK;
}

/* ---- HTTP ---- */

/* "HOST:PORT", or "HOST:PORT+", which adds the rank. */
static bool parse_address(const char *text, int rank, char host[METRICS_HOST_MAX], unsigned *port)
{
	const char *colon = strrchr(text, ':'), *end;
	unsigned long n;
	if (!colon || colon == text || colon - text >= METRICS_HOST_MAX || !number(colon + 1, 65535, &n, &end))
		return false;
	bool bracketed = *text == '[' && colon[-1] == ']';
	snprintf(host, METRICS_HOST_MAX, "%.*s", (int)(colon - text) - 2 * bracketed, text + bracketed);
	n += strcmp(end, "+") == 0 ? (unsigned long)rank : 0;
	*port = (unsigned)n;
	return n <= 65535 && (!*end || strcmp(end, "+") == 0);
}

static char *http_text(void *ctx, bool openmetrics, size_t *len)
{
	struct metrics_out o = {0};
	struct far_err err;
	if (write_metrics(ctx, openmetrics ? FAR_METRICS_OPENMETRICS : FAR_METRICS_PROMETHEUS, &o, &err) || o.failed) {
		free(o.text);
		return NULL;
	}
	*len = o.len;
	return o.text;
}

static const struct metrics_http_module *load_module(struct far_err *err)
{
	/* As installed; in the build tree for the library, a program, a test. */
	static const char *const folders[] = {"farcall", ".", "engine", "../engine", "../../engine", "../../../engine"};
	static const struct module_wanted wanted = {
		.file = "libfarcall-metrics.so",
		.symbol = "far_metrics_http_module",
		.abi = METRICS_HTTP_ABI,
		.folders = folders,
		.folders_n = sizeof folders / sizeof *folders,
		.dir = FAR_MODULE_DIR,
		.status = FAR_UNSUPPORTED,
		.purpose = "FAR_METRICS needs the module",
		.remedy = "install the package farcall-metrics, or unset FAR_METRICS",
	};
	return module_load(&wanted, err);
}

static enum far_status start_http(struct far_agent *a, struct far_err *err)
{
	const char *at = getenv("FAR_METRICS");
	char host[METRICS_HOST_MAX], why[256];
	unsigned port;
	if (!at || !*at)
		return FAR_OK;
	if (!parse_address(at, a->rank, host, &port))
		return err_set(err, FAR_INVALID,
			       "environment variable FAR_METRICS is \"%.64s\", expected HOST:PORT, or HOST:PORT+ for "
			       "PORT plus the rank of the worker, as in 127.0.0.1:9464+",
			       at);
	const struct metrics_http_module *m = load_module(err);
	if (!m)
		return FAR_UNSUPPORTED;
	a->http = m->start(host, port, http_text, a, &a->metrics_port, why, sizeof why);
	return a->http ? FAR_OK
		       : err_set(err, FAR_SYSTEM, "cannot serve metrics at %s port %u (FAR_METRICS): %s", host, port,
				 why);
}

/* ---- start and stop ---- */

enum far_status agent_init_metrics(struct init *in)
{
	enum far_status status = start_http(in->a, in->err);
	if (!status && (status = start_admin(in->a, in->err)))
		agent_fini_metrics(in->a);
	return status;
}

void agent_fini_metrics(struct far_agent *a)
{
	admin_stop(a->admin);
	if (a->http)
		((const struct metrics_http *)a->http)->stop(a->http);
}
