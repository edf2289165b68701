/* SPDX-License-Identifier: BSD-3-Clause */
/** Many links between two ports of one process. Main thread of each process. */
#ifndef NIC_MANY_H
#define NIC_MANY_H

#include "nic_fixture.h"

#include <sys/resource.h>

enum { MANY_MAX = 4000 };

/* Of each link: what port 1 calls port 0, and port 0 calls port 1. */
static uint32_t many_there[MANY_MAX], many_here[MANY_MAX];

/* Two descriptors at each end of a link, and some. */
static bool many_descriptors(unsigned links)
{
	struct rlimit limit;
	rlim_t need = 4 * (rlim_t)links + 100;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return false;
	if (limit.rlim_cur < need && limit.rlim_max >= need) {
		limit.rlim_cur = need;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= need;
}

/* false: skip_reason or unfit_reason says why. */
static bool many_up(unsigned links)
{
	if (caps.peers_max && caps.peers_max < links)
		unfit_reason = "it has fewer peers";
	else if (!many_descriptors(links))
		skip_reason = "too few descriptors (ulimit -n)";
	if (skip_reason || unfit_reason)
		return false;
	for (unsigned i = 0; i < links; i++)
		pair_up(1, 0, &many_there[i], &many_here[i]);
	return true;
}

#endif
