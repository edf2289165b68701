/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Preloaded: the queues of an interface, which veth calls "rx" and "tx" though they go together, are called "combined",
 * as network cards do. So DPDK's net_af_xdp serves more than one of them. Main thread of each process.
 */
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>

typedef int ioctl_fn(int, unsigned long, void *);

int ioctl(int fd, unsigned long request, ...)
{
	static ioctl_fn *next;
	va_list args;
	va_start(args, request);
	void *arg = va_arg(args, void *);
	va_end(args);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "ioctl");
	if (!next)
		abort();
	int rc = next(fd, request, arg);
	struct ethtool_channels *c = rc == 0 && request == SIOCETHTOOL ? (void *)((struct ifreq *)arg)->ifr_data : NULL;
	if (c && c->cmd == ETHTOOL_GCHANNELS && c->combined_count == 0) {
		c->combined_count = c->rx_count < c->tx_count ? c->rx_count : c->tx_count;
		c->max_combined = c->max_rx < c->max_tx ? c->max_rx : c->max_tx;
		c->rx_count = c->tx_count = 0;
	}
	return rc;
}
