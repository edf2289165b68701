/* SPDX-License-Identifier: BSD-3-Clause */
/** <farcall/metrics.h>: reads the metrics of an agent, which a task on each shard collects
 * (features/metrics/collect.c). Any thread but handlers. */
#include "agent/metrics.h"
#include "base/error.h"
#include "base/sized.h"
#include "core/context.h"
#include "features/metrics/added.h"

#include <farcall/metrics.h>
#include <stdlib.h>

static enum far_status report(struct far_agent *a, const char *what, struct metrics_report **out, struct far_err *err)
{
	if (shard_serving())
		return err_set(err, FAR_WOULD_DEADLOCK,
			       "%s in a handler or callback would wait for the shard that runs it; call it on another "
			       "thread",
			       what);
	return agent_report(a, out, err);
}

enum far_status far_metrics_read_sized(struct far_agent *a, struct far_metrics *out, size_t bytes, struct far_err *err)
{
	struct metrics_report *r;
	enum far_status status = report(a, "far_metrics_read", &r, err);
	if (status)
		return status;
	sized_out(out, bytes, &r->sum, sizeof r->sum);
	agent_report_free(r);
	return FAR_OK;
}

enum far_status far_metrics_peers_sized(struct far_agent *a, struct far_peer_metrics *out, int cap, size_t bytes,
					struct far_err *err)
{
	struct metrics_report *r;
	enum far_status status = report(a, "far_metrics_peers", &r, err);
	if (status)
		return status;
	for (int i = 0; i < cap && i < (int)r->peers_n; i++)
		sized_out((char *)out + (size_t)i * bytes, bytes, &r->peers[i], sizeof r->peers[i]);
	agent_report_free(r);
	return FAR_OK;
}

enum far_status far_metrics_text(struct far_agent *a, enum far_metrics_format format, char **text, struct far_err *err)
{
	struct metrics_report *r;
	struct metrics_out o = {0};
	if (format > FAR_METRICS_OPENMETRICS)
		return err_set(err, FAR_INVALID, "far_metrics_text: %u is no format", (unsigned)format);
	enum far_status status = report(a, "far_metrics_text", &r, err);
	if (status)
		return status;
	metrics_write(r, format, &o);
	agent_report_free(r);
	if (o.failed || !o.text) {
		free(o.text);
		return err_set(err, FAR_RESOURCE, "out of memory for the text of the metrics");
	}
	*text = o.text;
	return FAR_OK;
}

static enum far_status may_change(const char *what, struct far_err *err)
{
	if (!shard_serving())
		return FAR_OK;
	return err_set(err, FAR_WOULD_DEADLOCK,
		       "%s in a handler or callback would wait for a reading of the metrics; call it on another thread",
		       what);
}

enum far_status far_metrics_add_sized(struct far_agent *a, const struct far_metric *metrics, size_t n, size_t bytes,
				      far_metrics_reader *read, void *user, struct far_err *err)
{
	enum far_status status = may_change("far_metrics_add", err);
	return status ? status : metrics_added_add(&a->added, metrics, n, bytes, read, user, err);
}

enum far_status far_metrics_remove(struct far_agent *a, far_metrics_reader *read, void *user, struct far_err *err)
{
	enum far_status status = may_change("far_metrics_remove", err);
	if (status || metrics_added_remove(&a->added, read, user))
		return status;
	return err_set(err, FAR_INVALID, "this reader has no metrics: it was not added, or removed before");
}

void far_metrics_free(char *text)
{
	free(text);
}
