/* SPDX-License-Identifier: BSD-3-Clause */
/** The format of metrics that a request over HTTP wants. The thread of libfarcall-metrics. */
#ifndef FAR_FEATURES_METRICS_ACCEPT_H
#define FAR_FEATURES_METRICS_ACCEPT_H

#include <stdbool.h>

/** True if the header Accept (NULL: there is none) names OpenMetrics 1.0.0, or without a version, with a quality above
 * 0 that is not below that of text/plain. */
bool accept_openmetrics(const char *accept);

#endif
