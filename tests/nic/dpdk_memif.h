/* SPDX-License-Identifier: BSD-3-Clause */
/** What the cases of the dpdk driver over memif have in common. Main thread of each process. */
#ifndef DPDK_MEMIF_H
#define DPDK_MEMIF_H

#include "dpdk_ends.h"

#include <dirent.h>

static char dir[] = "/tmp/farcall-memif-XXXXXX";
static char server_args[256], client_args[256];

static void name_args(const char *more)
{
	snprintf(server_args, sizeof server_args, "net_memif0,role=server,id=3,socket=%s/m.sock,socket-abstract=no%s",
		 dir, more);
	snprintf(client_args, sizeof client_args, "net_memif1,role=client,id=3,socket=%s/m.sock,socket-abstract=no%s",
		 dir, more);
}

static unsigned open_fds(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

#endif
