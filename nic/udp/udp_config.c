/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses nic=udp:..., listen= and advertise=. Pure functions; any thread. */
#include "nic/udp/udp_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nic=udp:key=value,... ---- */

static bool number_parse(const char *text, size_t len, uint64_t *out)
{
	uint64_t value = 0;
	if (!len || len > 10)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	*out = value;
	return true;
}

enum { KEY_PORT, KEY_MTU, KEY_GSO, KEY_RCVBUF, KEY_SNDBUF, KEYS };

static const struct {
	const char *name;
	uint64_t least, most;
} keys[KEYS] = {
	[KEY_PORT] = {"port", 1, 65535},
	[KEY_MTU] = {"mtu", UDP_MTU_MIN, UDP_MTU_MAX},
	[KEY_GSO] = {"gso", 0, 1},
	[KEY_RCVBUF] = {"rcvbuf", 4096, UDP_BUFFER_BYTES_MAX},
	[KEY_SNDBUF] = {"sndbuf", 4096, UDP_BUFFER_BYTES_MAX},
};

static int key_find(const char *name, size_t len)
{
	for (int k = 0; k < KEYS; k++)
		if (strlen(keys[k].name) == len && memcmp(keys[k].name, name, len) == 0)
			return k;
	return -1;
}

static int arg_parse(const char *arg, size_t len, uint64_t values[KEYS], bool given[KEYS], struct nic_err *err)
{
	const char *equals = memchr(arg, '=', len);
	size_t name_len = equals ? (size_t)(equals - arg) : len;
	int k = key_find(arg, name_len);
	if (k < 0)
		return udp_error(
			err, -EINVAL,
			"udp: nic=udp:%.*s is not a key; the keys are port, mtu, gso, rcvbuf, sndbuf, dscp, listen",
			(int)(len < 60 ? len : 60), arg);
	uint64_t value = 0;
	if (!equals || !number_parse(equals + 1, len - name_len - 1, &value) || value < keys[k].least ||
	    value > keys[k].most)
		return udp_error(err, -EINVAL, "udp: nic=udp:%.*s: %s must be a number in [%llu, %llu]",
				 (int)(len < 60 ? len : 60), arg, keys[k].name, (unsigned long long)keys[k].least,
				 (unsigned long long)keys[k].most);
	if (given[k])
		return udp_error(err, -EINVAL, "udp: nic=udp: %s is given twice", keys[k].name);
	values[k] = value;
	given[k] = true;
	return 0;
}

/* False: another key. */
static bool listen_parse(const char *arg, size_t len, char out[UDP_LISTEN_BYTES], int *error, struct nic_err *err)
{
	static const char key[] = "listen=";
	size_t before = sizeof key - 1;
	if (len < before || memcmp(arg, key, before) != 0)
		return false;
	size_t n = len - before;
	if (n == 0 || n >= UDP_LISTEN_BYTES)
		*error = udp_error(
			err, -EINVAL,
			"udp: nic=udp:%.*s: listen must be an interface, a subnet or an address of 1 to %zu bytes",
			(int)(len < 60 ? len : 60), arg, (size_t)UDP_LISTEN_BYTES - 1);
	else if (out[0])
		*error = udp_error(err, -EINVAL, "udp: nic=udp: listen is given twice");
	else
		memcpy(out, arg + before, n);
	return true;
}

/* False: another key. */
static bool dscp_parse(const char *arg, size_t len, struct nic_dscp *out, bool *given, int *error, struct nic_err *err)
{
	static const char key[] = "dscp=";
	size_t before = sizeof key - 1;
	if (len < before || memcmp(arg, key, before) != 0)
		return false;
	if (*given)
		*error = udp_error(err, -EINVAL, "udp: nic=udp: dscp is given twice");
	else if (nic_dscp_parse(arg + before, len - before, out))
		*error = udp_error(err, -EINVAL, "udp: nic=udp:%.*s: dscp is " NIC_DSCP_FORM,
				   (int)(len < 60 ? len : 60), arg);
	*given = true;
	return true;
}

int udp_args_parse(const char *args, unsigned queues, struct udp_args *out, struct nic_err *err)
{
	uint64_t values[KEYS] = {
		[KEY_MTU] = UDP_MTU_MAX, [KEY_RCVBUF] = UDP_BUFFER_BYTES, [KEY_SNDBUF] = UDP_BUFFER_BYTES};
	bool given[KEYS] = {false};
	char listen[UDP_LISTEN_BYTES] = "";
	struct nic_dscp dscp;
	bool dscp_given = false;
	nic_dscp_init(&dscp);
	for (const char *at = args; at && *at;) {
		size_t len = strcspn(at, ",");
		int error = 0;
		if (!listen_parse(at, len, listen, &error, err) &&
		    !dscp_parse(at, len, &dscp, &dscp_given, &error, err))
			error = arg_parse(at, len, values, given, err);
		if (error)
			return error;
		at += len;
		at += *at == ',';
	}
	if (values[KEY_PORT] + queues > 65536)
		return udp_error(err, -EINVAL, "udp: nic=udp:port=%u leaves no ports for %u queues; use %u at most",
				 (unsigned)values[KEY_PORT], queues, 65536 - queues);
	out->port = (unsigned)values[KEY_PORT];
	out->mtu = (unsigned)values[KEY_MTU];
	out->offload = !given[KEY_GSO] ? UDP_OFFLOAD_AUTO : values[KEY_GSO] ? UDP_OFFLOAD_ALWAYS : UDP_OFFLOAD_NEVER;
	out->rcvbuf = (unsigned)values[KEY_RCVBUF];
	out->sndbuf = (unsigned)values[KEY_SNDBUF];
	out->dscp = dscp;
	memcpy(out->listen, listen, sizeof listen);
	return 0;
}

/* ---- listen= ---- */

static void take(struct udp_listen *out, unsigned most, const struct udp_ip *ip, bool host_only)
{
	for (unsigned i = 0; i < out->n; i++)
		if (udp_ip_same(&out->ips[i].ip, ip))
			return;
	if (out->n < most)
		out->ips[out->n++] = (struct udp_published){.ip = *ip, .host_only = host_only};
}

static void take_loopback(const struct udp_ifaces *ifaces, struct udp_listen *out)
{
	for (unsigned i = 0; i < ifaces->n; i++) {
		const struct udp_iface *at = &ifaces->at[i];
		if (at->ip.family && at->up && at->loopback && udp_ip_loopback(&at->ip))
			take(out, UDP_ADDRS_MAX, &at->ip, false);
	}
}

/* Takes all addresses: those of the default route first, then others, then bridges, whose subnets are the same on many
 * hosts and which only local containers reach. Loopback is last and always has room. */
static void take_everything(const struct udp_ifaces *ifaces, bool v6, struct udp_listen *out)
{
	enum { PREFERRED, PLAIN, BRIDGES, RANKS };
	for (unsigned rank = 0; rank < RANKS; rank++)
		for (unsigned i = 0; i < ifaces->n; i++) {
			const struct udp_iface *at = &ifaces->at[i];
			unsigned own = at->preferred ? PREFERRED : at->bridge ? BRIDGES : PLAIN;
			if (at->ip.family && at->up && own == rank && udp_ip_publishable(&at->ip) &&
			    !udp_ip_loopback(&at->ip) && !udp_ip_link_local(&at->ip) &&
			    (v6 || at->ip.family == AF_INET))
				take(out, UDP_ADDRS_MAX - 2, &at->ip, rank == BRIDGES);
		}
	struct udp_listen loopback = {.n = 0};
	take_loopback(ifaces, &loopback);
	for (unsigned i = 0; i < loopback.n; i++)
		if (v6 || loopback.ips[i].ip.family == AF_INET)
			take(out, UDP_ADDRS_MAX, &loopback.ips[i].ip, false);
}

static void take_interface(const struct udp_ifaces *ifaces, const char *name, bool link_local, struct udp_listen *out)
{
	for (unsigned i = 0; i < ifaces->n; i++) {
		const struct udp_iface *at = &ifaces->at[i];
		if (at->ip.family && at->up && strcmp(at->name, name) == 0 &&
		    udp_ip_link_local(&at->ip) == link_local && udp_ip_publishable(&at->ip))
			take(out, UDP_ADDRS_MAX, &at->ip, false);
	}
}

static void take_subnet(const struct udp_ifaces *ifaces, const struct udp_ip *net, unsigned prefix,
			struct udp_listen *out)
{
	for (unsigned i = 0; i < ifaces->n; i++) {
		const struct udp_iface *at = &ifaces->at[i];
		if (at->up && udp_ip_within(&at->ip, net, prefix) &&
		    (!udp_ip_link_local(&at->ip) || udp_ip_link_local(net)))
			take(out, UDP_ADDRS_MAX, &at->ip, false);
	}
}

/* All of 127.0.0.0/8 is loopback, though only one address of it is listed. */
static void take_address(const struct udp_ifaces *ifaces, const struct udp_ip *ip, struct udp_listen *out)
{
	for (unsigned i = 0; i < ifaces->n; i++) {
		const struct udp_iface *at = &ifaces->at[i];
		if (!at->up || (ip->scope && at->ip.scope != ip->scope))
			continue;
		if (udp_ip_same(&at->ip, ip))
			take(out, UDP_ADDRS_MAX, &at->ip, false);
		else if (at->loopback && ip->family == AF_INET && udp_ip_within(ip, &at->ip, at->prefix) && at->prefix)
			take(out, UDP_ADDRS_MAX, ip, false);
	}
}

static bool is_interface(const struct udp_ifaces *ifaces, const char *name)
{
	for (unsigned i = 0; i < ifaces->n; i++)
		if (strcmp(ifaces->at[i].name, name) == 0)
			return true;
	return false;
}

/* False: `listen` has none of the valid forms. */
static bool choose_named(const struct udp_ifaces *ifaces, const char *listen, struct udp_listen *out)
{
	struct udp_ip ip;
	unsigned prefix;
	if (is_interface(ifaces, listen)) {
		take_interface(ifaces, listen, false, out);
		if (!out->n)
			take_interface(ifaces, listen, true, out);
	} else if (udp_subnet_parse(listen, &ip, &prefix)) {
		take_subnet(ifaces, &ip, prefix, out);
	} else if (!udp_ip_parse(listen, &ip)) {
		return false;
	} else if (udp_ip_any(&ip)) {
		out->any = out->v4 = true;
		out->v6 = ip.family == AF_INET6;
		take_everything(ifaces, out->v6, out);
	} else {
		take_address(ifaces, &ip, out);
	}
	return true;
}

static int not_found(const struct udp_ifaces *ifaces, const char *listen, bool form, struct nic_err *err)
{
	char exist[NIC_TEXT_BYTES_MAX - 128] = "";
	udp_ifaces_text(ifaces, exist, sizeof exist);
	return udp_error(err, -EADDRNOTAVAIL, "udp: listen=%.48s is %s that is up; there are: %s", listen,
			 form ? "no address here" : "no interface, subnet or address here", *exist ? exist : "none");
}

int udp_listen_choose(const struct udp_ifaces *ifaces, const char *listen, bool beyond_host, struct udp_listen *out,
		      struct nic_err *err)
{
	*out = (struct udp_listen){.any = false};
	if (!listen || !*listen) {
		if (beyond_host) {
			out->any = out->v4 = out->v6 = true;
			take_everything(ifaces, true, out);
		} else {
			take_loopback(ifaces, out);
		}
		if (!out->n)
			return udp_error(
				err, -EADDRNOTAVAIL,
				"udp: this host has no usable address, not even loopback; `ip link set lo up`");
		return 0;
	}
	bool form = choose_named(ifaces, listen, out);
	if (!form || !out->n)
		return not_found(ifaces, listen, form, err);
	for (unsigned i = 0; !beyond_host && i < out->n; i++)
		if (out->any || !udp_ip_loopback(&out->ips[i].ip))
			return udp_error(err, -EACCES,
					 "udp: listen=%.48s is reachable from other hosts, which needs a key "
					 "(FAR_KEY_FILE) or security=none; otherwise use 127.0.0.1 or ::1",
					 listen);
	return 0;
}

/* ---- advertise= ---- */

static int advertise_wrong(const char *advertise, const char *what, struct nic_err *err)
{
	return udp_error(err, -EINVAL,
			 "udp: advertise=%.80s: %s; the form is address[:port[-port]], IPv6 as [address]:port, like "
			 "192.0.2.5:7000-7003",
			 advertise, what);
}

/* Parses "7000" or "7000-7003", one port per queue in order. */
static const char *ports_parse(const char *text, struct udp_addr *addr)
{
	uint64_t first, last;
	const char *dash = strchr(text, '-');
	size_t len = dash ? (size_t)(dash - text) : strlen(text);
	if (!number_parse(text, len, &first) || !first || first > 65535)
		return "a port is a number in [1, 65535]";
	last = first;
	if (dash && (!number_parse(dash + 1, strlen(dash + 1), &last) || last < first || last > 65535))
		return "the last port of a range must be in [first port, 65535]";
	if (last - first + 1 < addr->queues)
		return "each queue (one per shard) needs a port";
	for (unsigned i = 0; i < addr->queues; i++)
		addr->ports[i] = (uint16_t)(first + i);
	return NULL;
}

int udp_advertise(const char *advertise, struct udp_addr *addr, struct nic_err *err)
{
	char copy[UDP_IP_TEXT_MAX + 16];
	const char *ports = NULL;
	struct udp_ip ip;
	if (strlen(advertise) >= sizeof copy)
		return advertise_wrong(advertise, "it is too long", err);
	strcpy(copy, advertise);
	char *bracket = copy[0] == '[' ? strchr(copy, ']') : NULL;
	char *colon = bracket ? (bracket[1] == ':' ? bracket + 1 : NULL) : strchr(copy, ':');
	if (colon && (bracket || !strchr(colon + 1, ':'))) {
		*colon = 0;
		ports = colon + 1;
	}
	if (!udp_ip_parse(copy, &ip))
		return advertise_wrong(advertise, "that is no IP address", err);
	if (!udp_ip_publishable(&ip) || ip.scope)
		return advertise_wrong(advertise, "that address cannot be a destination", err);
	const char *wrong = ports ? ports_parse(ports, addr) : NULL;
	if (wrong)
		return advertise_wrong(advertise, wrong, err);
	addr->ips_n = 1;
	addr->ips[0] = (struct udp_published){.ip = ip};
	return 0;
}
