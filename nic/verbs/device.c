/* SPDX-License-Identifier: BSD-3-Clause */
/** Chooses a device, a port of it and a GID. Control thread. */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Why a candidate was rejected. The later reason is nearer to a usable device, and is reported. */
enum defect { DEFECT_NAME, DEFECT_KIND, DEFECT_OPEN, DEFECT_DOWN, DEFECT_NO_GID, DEFECT_NETWORK, DEFECTS };

struct search {
	const struct verbs_args *args;
	const struct nic_config *config;
	struct verbs_choice best; /* context NULL: none yet */
	unsigned best_rank;
	bool iwarp; /* the device being checked */
	enum defect defect;
	int error;
	struct nic_err why;
};

enum { RANK_FIRST, RANK_V6, RANK_NONE };

__attribute__((format(printf, 4, 5))) static void record_defect(struct search *s, enum defect defect, int error,
								const char *format, ...)
{
	if (s->error && defect <= s->defect)
		return;
	va_list list;
	va_start(list, format);
	vsnprintf(s->why.text, sizeof s->why.text, format, list);
	va_end(list);
	s->defect = defect;
	s->error = error;
}

static const char *device_name(struct ibv_context *context)
{
	return ibv_get_device_name(context->device);
}

/* RANK_NONE: not usable, with the reason recorded. */
static unsigned rank_gid(struct search *s, const char *device, const struct ibv_gid_entry *gid, bool ethernet)
{
	const uint8_t *raw = gid->gid.raw;
	/* On RoCE listen= may be a whole subnet; on iWARP it is the only way to choose an address. */
	bool named = s->args->gid >= 0 || (s->iwarp && s->config->listen), loopback = verbs_gid_is_loopback(raw);
	char text[VERBS_GID_TEXT_MAX];
	if (s->args->gid >= 0 && (int)gid->gid_index != s->args->gid)
		return RANK_NONE;
	if (ethernet && gid->gid_type != IBV_GID_TYPE_ROCE_V2)
		return RANK_NONE;
	if (!s->config->beyond_host && !loopback) {
		record_defect(s, DEFECT_NETWORK, -EPERM,
			      "verbs: %s, %s, leads to other hosts: give the group a key (FAR_KEY_FILE), or set "
			      "security=none, or use shm",
			      device, verbs_gid_text(raw, text));
		return RANK_NONE;
	}
	if (s->config->listen && !verbs_gid_is_named(gid, s->config->listen)) {
		record_defect(s, DEFECT_NETWORK, -EADDRNOTAVAIL,
			      "verbs: %s has no address in listen=%.60s; it has %s, for example", device,
			      s->config->listen, verbs_gid_text(raw, text));
		return RANK_NONE;
	}
	if (!named && ethernet && (verbs_gid_is_link_local(raw) || (loopback && s->config->beyond_host)))
		return RANK_NONE;
	return !ethernet || verbs_gid_is_v4(raw) ? RANK_FIRST : RANK_V6;
}

static bool better(struct search *s, struct ibv_context *context, unsigned rank)
{
	if (rank >= s->best_rank)
		return false;
	if (s->best.context && s->best.context != context)
		ibv_close_device(s->best.context);
	s->best_rank = rank;
	return true;
}

static void check_port(struct search *s, struct ibv_context *context, uint8_t port, const struct ibv_gid_entry *gids,
		       int gids_n)
{
	const char *device = device_name(context);
	struct ibv_port_attr attr;
	int error = ibv_query_port(context, port, &attr);
	if (error) {
		record_defect(s, DEFECT_OPEN, -error, "verbs: %s port %u cannot be queried: %s", device, port,
			      strerror(error));
		return;
	}
	bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	if (attr.state != IBV_PORT_ACTIVE) {
		record_defect(s, DEFECT_DOWN, -ENETDOWN, "verbs: %s port %u is %s: %s", device, port,
			      ibv_port_state_str(attr.state),
			      ethernet ? "ip link set its interface up, and check its cable"
				       : "it needs a cable and a subnet manager (apt install opensm, on one host)");
		return;
	}
	bool iwarp = s->iwarp;
	if (!iwarp && s->args->rc > 0 && !ethernet) {
		record_defect(
			s, DEFECT_KIND, -EPROTONOSUPPORT,
			"verbs: %s port %u is InfiniBand: connections (rc=1) need RoCE v2 or iWARP; leave rc=1 out",
			device, port);
		return;
	}
	if (!iwarp && 128u << attr.active_mtu < VERBS_MTU_MIN) {
		record_defect(s, DEFECT_DOWN, -EMSGSIZE, "verbs: %s port %u has packets of %u bytes, %u are needed: %s",
			      device, port, 128u << attr.active_mtu, VERBS_MTU_MIN,
			      ethernet ? "ip link set its interface's mtu to 1500 or more"
				       : "see the subnet manager's MTU");
		return;
	}
	record_defect(s, DEFECT_NO_GID, -EADDRNOTAVAIL, "verbs: %s port %u has no %s: %s", device, port,
		      iwarp               ? "IP address"
		      : s->args->gid >= 0 ? "such GID of RoCE v2"
					  : "GID of RoCE v2 with an address",
		      s->args->gid >= 0 && !iwarp
			      ? "see `farcall info`, or leave gid= out"
			      : "give its interface an IP address (ip addr add), other than link-local");
	for (int i = 0; i < gids_n; i++) {
		if (gids[i].port_num != port || (!ethernet && gids[i].gid_index != 0 && s->args->gid < 0))
			continue;
		unsigned rank = rank_gid(s, device, &gids[i], ethernet);
		if (!better(s, context, rank))
			continue;
		s->best.context = context;
		s->best.port = port;
		s->best.attr = attr;
		s->best.gid = gids[i];
		s->best.ethernet = ethernet;
		s->best.iwarp = iwarp;
		s->best.rc = iwarp || s->args->rc > 0;
	}
}

/* The context stays open if it is the best one. */
static void check_ports(struct search *s, struct ibv_context *context)
{
	const char *device = device_name(context);
	struct ibv_device_attr limits;
	struct ibv_gid_entry *gids = NULL;
	int error = ibv_query_device(context, &limits);
	if (!error && s->iwarp) {
		struct nic_err why;
		error = verbs_rc_addresses(device, &gids, &why);
		if (error < 0) {
			record_defect(s, DEFECT_OPEN, error, "%s", why.text);
			return;
		}
	}
	int n = s->iwarp ? error : error ? -error : verbs_gid_table(context, &gids);
	if (n < 0) {
		record_defect(s, DEFECT_OPEN, n, "verbs: the ports of %s cannot be queried: %s", device, strerror(-n));
		return;
	}
	if (s->args->port > limits.phys_port_cnt)
		record_defect(s, DEFECT_KIND, -EINVAL, "verbs: %s has %u ports, not a port %u", device,
			      limits.phys_port_cnt, s->args->port);
	for (unsigned port = 1; port <= limits.phys_port_cnt; port++)
		if (!s->args->port || s->args->port == port)
			check_port(s, context, (uint8_t)port, gids, n);
	free(gids);
}

/* Checks the arguments against the kind of device. */
static bool fits(struct search *s, enum ibv_transport_type type, const char *name)
{
	const struct verbs_args *a = s->args;
	if (type != IBV_TRANSPORT_IB && type != IBV_TRANSPORT_IWARP)
		record_defect(s, DEFECT_KIND, -EPROTONOSUPPORT,
			      "verbs: %s is neither InfiniBand, RoCE nor iWARP; use udp over its interface", name);
	else if (s->iwarp && a->rc == 0)
		record_defect(s, DEFECT_KIND, -EINVAL, "verbs: %s is iWARP, which has no datagrams: leave rc=0 out",
			      name);
	else if (s->iwarp && a->gid >= 0)
		record_defect(s, DEFECT_KIND, -EINVAL,
			      "verbs: %s is iWARP, whose addresses are not GIDs: give listen= instead of gid=%d", name,
			      a->gid);
	else if (!s->iwarp && a->connections && a->rc != 1 && !a->bulk && a->bulk_mode != VERBS_BULK_AUTO)
		record_defect(
			s, DEFECT_KIND, -EINVAL,
			"verbs: %s sends datagrams, but connections=%u is for connections: give rc=1 or bulk= with it, "
			"or leave it out",
			name, a->connections);
	else
		return true;
	return false;
}

static void check_device(struct search *s, struct ibv_device *device)
{
	const char *name = ibv_get_device_name(device);
	if (s->args->device[0] && strcmp(s->args->device, name) != 0)
		return;
	s->iwarp = device->transport_type == IBV_TRANSPORT_IWARP;
	if (!fits(s, device->transport_type, name))
		return;
	errno = 0;
	struct ibv_context *context = ibv_open_device(device);
	if (!context) {
		int error = errno ? errno : EIO;
		struct nic_err why;
		error = verbs_cannot_open(name, device->dev_name, error, &why);
		record_defect(s, DEFECT_OPEN, error, "%s", why.text);
		return;
	}
	check_ports(s, context);
	if (s->best.context != context) {
		ibv_close_device(context);
		return;
	}
	snprintf(s->best.device, sizeof s->best.device, "%s", name);
	snprintf(s->best.node, sizeof s->best.node, "%s", device->dev_name);
}

static void name_all(struct ibv_device **list, int n, char *out, size_t cap)
{
	size_t len = 0;
	out[0] = 0;
	for (int i = 0; i < n && len < cap; i++)
		len += (size_t)snprintf(out + len, cap - len, "%s%s", i ? ", " : "", ibv_get_device_name(list[i]));
}

int verbs_device_open(const struct verbs_args *args, const struct nic_config *config, struct verbs_choice *out,
		      struct nic_err *err)
{
	struct search s = {.args = args, .config = config, .best_rank = RANK_NONE};
	char names[128];
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list || n <= 0) {
		if (list)
			ibv_free_device_list(list);
		return verbs_no_devices(err);
	}
	for (int i = 0; i < n; i++)
		check_device(&s, list[i]);
	name_all(list, n, names, sizeof names);
	ibv_free_device_list(list);
	if (s.best.context) {
		*out = s.best;
		return 0;
	}
	if (s.error)
		return verbs_error(err, s.error, "%s", s.why.text);
	return verbs_error(err, -ENODEV, "verbs: there is no device \"%.64s\"; there are: %s", args->device, names);
}
