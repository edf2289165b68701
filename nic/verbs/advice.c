/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes the lines of `farcall info` about RDMA devices; if there is no device, probe() gives the reason. Control
 * thread. */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* GIDs printed of each port: an interface may have many addresses. */
#define GIDS_PRINTED 8

/* A text being written: the next byte, and the bytes that are left behind it. */
struct page {
	char *at;
	size_t left;
};

__attribute__((format(printf, 2, 3))) static void print_line(struct page *page, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int n = vsnprintf(page->at, page->left, format, list);
	va_end(list);
	if (n < 0 || (size_t)n + 2 > page->left) {
		*page->at = 0; /* drops an incomplete line */
		page->left = 0;
		return;
	}
	page->at[n] = '\n';
	page->at[n + 1] = 0;
	page->at += n + 1;
	page->left -= (size_t)n + 1;
}

static const char *gid_use(const struct ibv_gid_entry *gid, bool ethernet, bool iwarp)
{
	if (iwarp)
		return verbs_gid_is_loopback(gid->gid.raw) ? "iWARP, this host only" : "iWARP";
	if (!ethernet)
		return "InfiniBand";
	if (gid->gid_type != IBV_GID_TYPE_ROCE_V2)
		return "RoCE v1, not used";
	if (verbs_gid_is_loopback(gid->gid.raw))
		return "RoCE v2, this host only";
	return verbs_gid_is_link_local(gid->gid.raw) ? "RoCE v2, link-local: only by gid=" : "RoCE v2";
}

/* A device that opened, and its addresses on all ports. */
struct device {
	struct ibv_context *context;
	const char *name;
	struct ibv_device_attr limits;
	bool iwarp;
	struct ibv_gid_entry *gids;
	int gids_n;
};

static unsigned print_gids(struct page *page, const struct device *d, unsigned port, bool ethernet)
{
	const struct ibv_gid_entry *gids = d->gids;
	unsigned printed = 0, usable = 0;
	for (int i = 0; i < d->gids_n; i++) {
		char text[VERBS_GID_TEXT_MAX], name[IF_NAMESIZE] = "";
		if (gids[i].port_num != port)
			continue;
		usable += !ethernet ||
			  (gids[i].gid_type == IBV_GID_TYPE_ROCE_V2 && !verbs_gid_is_link_local(gids[i].gid.raw));
		if (printed++ >= GIDS_PRINTED)
			continue;
		if (gids[i].ndev_ifindex)
			if_indextoname(gids[i].ndev_ifindex, name);
		char index[24] = ""; /* iWARP's addresses are in no table that gid= could refer to */
		if (!d->iwarp)
			snprintf(index, sizeof index, " gid %u", gids[i].gid_index);
		print_line(page, "%s port %u%s: %s (%s%s%s)", d->name, port, index,
			   verbs_gid_text(gids[i].gid.raw, text), gid_use(&gids[i], ethernet, d->iwarp),
			   *name ? ", " : "", name);
	}
	if (printed > GIDS_PRINTED)
		print_line(page, "%s port %u has %u more GIDs", d->name, port, printed - GIDS_PRINTED);
	return usable;
}

/* Reports bulk=auto for the first address that a port would choose. */
static void print_bulk(struct page *page, const struct device *d, unsigned port, const struct ibv_port_attr *attr)
{
	const struct ibv_gid_entry *gids = d->gids;
	struct verbs_choice on = {.context = d->context,
				  .port = (uint8_t)port,
				  .attr = *attr,
				  .ethernet = attr->link_layer == IBV_LINK_LAYER_ETHERNET,
				  .rc = d->iwarp,
				  .iwarp = d->iwarp};
	const struct ibv_gid_entry *gid = NULL;
	struct nic_err why;
	for (int i = 0; i < d->gids_n && !gid; i++)
		if (gids[i].port_num == port && gids[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !verbs_gid_is_link_local(gids[i].gid.raw))
			gid = &gids[i];
	if (attr->state != IBV_PORT_ACTIVE || (!gid && on.ethernet && !d->iwarp))
		return; /* other lines report that */
	snprintf(on.device, sizeof on.device, "%s", d->name);
	if (gid)
		on.gid = *gid;
	if (verbs_bulk_probe(&on, &d->limits, &why))
		print_line(page, "%s port %u: bulk=auto is off: %s", d->name, port, why.text);
	else
		print_line(page, "%s port %u: bulk=auto is on: messages of %u bytes and more are read by RDMA", d->name,
			   port, VERBS_BULK_AUTO_BYTES);
}

static void print_port(struct page *page, const struct device *d, unsigned port)
{
	const char *device = d->name;
	struct ibv_port_attr attr;
	if (ibv_query_port(d->context, (uint8_t)port, &attr)) {
		print_line(page, "%s port %u: cannot be queried", device, port);
		return;
	}
	bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	print_line(page, "%s port %u: %s, %s, MTU %u%s", device, port, ethernet ? "Ethernet" : "InfiniBand",
		   ibv_port_state_str(attr.state), 128u << attr.active_mtu,
		   attr.state == IBV_PORT_ACTIVE ? ""
		   : ethernet                    ? "; ip link set its interface up, and check its cable"
						 : "; check its cable and the subnet manager (opensm)");
	if (print_gids(page, d, port, ethernet) == 0)
		print_line(page, "%s port %u: no address to use; give its interface an IP address", device, port);
	print_bulk(page, d, port, &attr);
}

static void print_device(struct page *page, struct ibv_device *device)
{
	struct device d = {.name = ibv_get_device_name(device), .iwarp = device->transport_type == IBV_TRANSPORT_IWARP};
	if (device->transport_type != IBV_TRANSPORT_IB && !d.iwarp) {
		print_line(page, "%s: neither InfiniBand, RoCE nor iWARP; use udp over its interface", d.name);
		return;
	}
	errno = 0;
	d.context = ibv_open_device(device);
	if (!d.context) {
		struct nic_err err;
		verbs_cannot_open(d.name, device->dev_name, errno ? errno : EIO, &err);
		print_line(page, "%s", err.text);
		return;
	}
	struct nic_err why = {""};
	d.gids_n = ibv_query_device(d.context, &d.limits) ? -EIO
		   : d.iwarp                              ? verbs_rc_addresses(d.name, &d.gids, &why)
							  : verbs_gid_table(d.context, &d.gids);
	if (d.gids_n < 0) {
		print_line(page, "%s: its ports cannot be queried%s%s", d.name, why.text[0] ? "; " : "", why.text);
	} else {
		print_line(page, "%s: up to %d queue pairs of %d packets, %d address handles, firmware %.40s", d.name,
			   d.limits.max_qp, d.limits.max_qp_wr, d.limits.max_ah,
			   d.limits.fw_ver[0] ? d.limits.fw_ver : "none");
		print_line(page,
			   verbs_has_windows(&d.limits)
				   ? "%s: memory windows of type 2; bulk= lets peers read messages by RDMA"
				   : "%s: no memory windows of type 2; messages go in packets",
			   d.name);
		for (unsigned port = 1; port <= d.limits.phys_port_cnt; port++)
			print_port(page, &d, port);
	}
	free(d.gids);
	ibv_close_device(d.context);
}

void verbs_advice(char *out, size_t cap)
{
	struct page page = {out, cap};
	struct rlimit limit;
	int n = 0;
	if (cap)
		*out = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n && list; i++)
		print_device(&page, list[i]);
	if (n > 0 && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		print_line(&page,
			   "memory that may be locked: %llu KiB (ulimit -l); a port of one shard takes up to %zu",
			   (unsigned long long)limit.rlim_cur / 1024,
			   ((size_t)VERBS_RX_SLOTS * (VERBS_RX_BODY_AT + 4096) + (size_t)VERBS_TX_RING * 4096) / 1024);
	}
	if (list)
		ibv_free_device_list(list);
}
