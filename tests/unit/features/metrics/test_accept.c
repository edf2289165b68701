/* SPDX-License-Identifier: BSD-3-Clause */
/** The header Accept of requests for metrics. The test's thread. */
#include "features/metrics/accept.h"

#include <criterion/criterion.h>

#define OPEN "application/openmetrics-text"

Test(features_metrics_accept, headers)
{
	static const struct {
		const char *accept;
		bool openmetrics;
	} cases[] = {
		{NULL, false},
		{"", false},
		{"*/*", false},
		{"text/plain", false},
		{"text/html,application/xhtml+xml,*/*;q=0.8", false},
		{OPEN, true},
		{"APPLICATION/OpenMetrics-Text ; Version = 1.0.0", true},
		{OPEN ";version=1.0.0;charset=utf-8", true},
		{OPEN ";version=0.0.1", false},
		{OPEN ";version=2.0.0, text/plain", false},
		/* Prometheus 2.42, and 3 */
		{OPEN ";version=1.0.0," OPEN ";version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", true},
		{OPEN ";version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", true},
		/* qualities */
		{OPEN ";q=0", false},
		{OPEN ";q=0.000,*/*", false},
		{OPEN ";q=0.001", true},
		{OPEN ";q=0.5,text/plain;q=0.6", false},
		{"text/plain;q=0.501\t, " OPEN ";q=0.51", true},
		{"text/plain;q=1.0, " OPEN ";q=1", true},
		/* a malformed quality counts as 0 */
		{OPEN ";q=", false},
		{OPEN ";q=2", false},
		{OPEN ";q=10", false},
		{OPEN ";q=0.1234", false},
		{OPEN ";q=.5", false},
		{OPEN ";q=1;;,;", true},
		{",;,=;" OPEN ";q", false},
		{OPEN "x", false},
		{"x" OPEN, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		cr_expect(accept_openmetrics(cases[i].accept) == cases[i].openmetrics, "%s",
			  cases[i].accept ? cases[i].accept : "none");
}
