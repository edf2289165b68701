/* SPDX-License-Identifier: BSD-3-Clause */
/** Metrics that the application adds to those of its worker. Any thread; one lock orders additions and readings. */
#ifndef FAR_FEATURES_METRICS_ADDED_H
#define FAR_FEATURES_METRICS_ADDED_H

#include "features/metrics/write.h"

/** The metrics of one reader. */
struct metrics_added;

/** Adds copies of the metrics to a list. INVALID: the metric and what is wrong with it; RESOURCE. */
enum far_status metrics_added_add(struct metrics_added **list, const struct far_metric *metrics, size_t n, size_t bytes,
				  far_metrics_reader *read, void *user, struct far_err *err);
/** Removes the metrics of a reader, which does not run any more then. False: it has none. */
bool metrics_added_remove(struct metrics_added **list, far_metrics_reader *read, void *user);
void metrics_added_free(struct metrics_added **list);

/** Runs the readers and writes their samples, in JSON as a list, else in the format of `o`. */
void metrics_added_write(struct metrics_added *const *list, const struct metrics_report *r, bool json,
			 struct metrics_out *o);

#endif
