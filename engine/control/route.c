/* SPDX-License-Identifier: BSD-3-Clause */
/* Selects paths to members, explains the choice, and publishes it to application threads. Control thread. */
#include "control/route.h"

#include "base/text.h"
#include "control/group.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESSES_TEXT 120 /* bytes of one side's addresses in an error text */

/* A text that is appended to, and cut when it is full. */
struct text {
	char *at;
	size_t len, cap;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
	va_list args;
	if (t->len + 1 >= t->cap)
		return;
	va_start(args, format);
	size_t room = t->cap - t->len;
	int n = vsnprintf(t->at + t->len, room, format, args);
	va_end(args);
	if (n >= 0 && (size_t)n >= room) { /* cut: nothing is appended any more */
		text_end(t->at, t->cap, (int)t->cap);
		t->len = t->cap;
	} else {
		t->len += n > 0 ? (size_t)n : 0;
	}
}

static unsigned ports_published(const struct group *g)
{
	return g->config.ports_n - g->config.private_n;
}

static bool same_driver(const struct nic_port *port, const struct nic_addr *addr)
{
	return strncmp(addr->driver, port->ops->name, sizeof addr->driver) == 0;
}

static int reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *why)
{
	why->text[0] = 0;
	int error = port->ops->reach(port, addr, why);
	if (error && !why->text[0])
		snprintf(why->text, sizeof why->text, "%s: %s", port->ops->name, strerror(-error));
	return error;
}

static void address_text(const struct nic_port *port, const struct nic_addr *addr, char *out, size_t cap)
{
	out[0] = 0;
	port->ops->address_text(addr, out, cap);
}

bool route_next(const struct group *g, const struct info *info, unsigned from, struct route *out)
{
	struct nic_err why;
	for (unsigned n = from; n < ports_published(g) * INFO_PORTS_MAX; n++) {
		const struct nic_port *port = g->config.ports[n / INFO_PORTS_MAX];
		unsigned a = n % INFO_PORTS_MAX;
		if (a >= info->addrs_n || !same_driver(port, &info->addrs[a]) || reach(port, &info->addrs[a], &why))
			continue;
		*out = (struct route){n, (uint16_t)(n / INFO_PORTS_MAX), info->addrs[a]};
		return true;
	}
	return false;
}

void route_diagnosis(const struct group *g, unsigned port, const struct info *info, char *out, size_t cap)
{
	const struct nic_port *of = g->config.ports[port];
	struct nic_err why = {""};
	for (unsigned a = 0; a < info->addrs_n && !why.text[0]; a++)
		if (same_driver(of, &info->addrs[a]) && reach(of, &info->addrs[a], &why))
			why.text[0] = 0;
	snprintf(out, cap, "%s%s", why.text[0] ? ": " : "", why.text);
}

void route_self(const struct group *g, struct route *out)
{
	const struct nic_port *port = g->config.ports[g->config.self];
	*out = (struct route){.port = (uint16_t)g->config.self};
	port->ops->address(port, &out->addr);
}

bool route_common(const struct group *g, const struct info *info)
{
	for (unsigned i = 0; i < ports_published(g); i++)
		for (unsigned a = 0; a < info->addrs_n; a++)
			if (same_driver(g->config.ports[i], &info->addrs[a]))
				return true;
	return false;
}

/* Appends the reasons against each path before number `until`; returns their number. */
static unsigned add_reasons(const struct group *g, const struct info *info, unsigned until, const char *failed,
			    const char *between, struct text *t)
{
	unsigned reasons = 0, tried = 0;
	for (unsigned i = 0; i < ports_published(g) && i * INFO_PORTS_MAX < until; i++) {
		const struct nic_port *port = g->config.ports[i];
		unsigned theirs = 0;
		for (unsigned a = 0; a < info->addrs_n; a++) {
			struct nic_err why;
			if (!same_driver(port, &info->addrs[a]))
				continue;
			theirs++;
			if (i * INFO_PORTS_MAX + a >= until)
				continue;
			if (reach(port, &info->addrs[a], &why))
				add(t, "%s%s", reasons++ ? between : "", why.text);
			else
				tried++;
		}
		if (!theirs)
			add(t, "%s%s: the other side has none", reasons++ ? between : "", port->ops->name);
	}
	if (tried && failed[0])
		add(t, "%s%s", reasons++ ? between : "", failed);
	return reasons;
}

void route_diagnoses(const struct group *g, const struct info *info, char *out, size_t cap)
{
	struct text t = {out, 0, cap};
	out[0] = 0;
	for (unsigned i = 0; i < ports_published(g); i++)
		for (unsigned a = 0; a < info->addrs_n; a++) {
			struct nic_err why;
			if (!same_driver(g->config.ports[i], &info->addrs[a]))
				continue;
			reach(g->config.ports[i], &info->addrs[a], &why);
			/* A diagnosis of the port is the same for each address. */
			if (why.text[0] && !strstr(out, why.text))
				add(&t, "%s%s", t.len ? "; " : "", why.text);
		}
}

void route_why(const struct group *g, const struct info *info, const struct route *chosen, const char *failed,
	       char *out, size_t cap)
{
	char reasons[192];
	struct text t = {out, 0, cap}, r = {reasons, 0, sizeof reasons};
	unsigned until = chosen ? chosen->number : UINT32_MAX;
	out[0] = reasons[0] = 0;
	unsigned n = add_reasons(g, info, until, failed, "; ", &r);
	if (!chosen)
		add(&t, "%s", n ? reasons : "it has published no address");
	else if (n)
		add(&t, "%s is the best that is left: %s", g->config.ports[chosen->port]->ops->name, reasons);
	else
		add(&t, "%s is the best that both have", g->config.ports[chosen->port]->ops->name);
}

/* Writes the address as its driver prints it, whether the driver is open here or not. */
static void address_to_text(const struct group *g, const struct nic_addr *addr, char *out, size_t cap)
{
	for (unsigned i = 0; i < g->config.ports_n; i++)
		if (same_driver(g->config.ports[i], addr)) {
			g->config.ports[i]->ops->address_text(addr, out, cap);
			return;
		}
	if (strncmp(addr->driver, nic_shm_port_ops.name, sizeof addr->driver) == 0)
		nic_shm_port_ops.address_text(addr, out, cap);
	else
		transport_address_text(addr, out, cap);
}

static void add_address(const struct group *g, const struct nic_addr *addr, bool first, struct text *t)
{
	char text[96] = "";
	address_to_text(g, addr, text, sizeof text);
	add(t, "%s%s", first ? "" : ", ", text[0] ? text : addr->driver);
}

void route_none(const struct group *g, const struct info *info, char *out, size_t cap)
{
	char here[ADDRESSES_TEXT] = "no port", there[ADDRESSES_TEXT] = "no port";
	struct text h = {here, 0, sizeof here}, o = {there, 0, sizeof there}, t = {out, 0, cap};
	for (unsigned i = 0; i < ports_published(g); i++) {
		struct nic_addr own;
		g->config.ports[i]->ops->address(g->config.ports[i], &own);
		add_address(g, &own, i == 0, &h);
	}
	for (unsigned a = 0; a < info->addrs_n; a++)
		add_address(g, &info->addrs[a], a == 0, &o);
	add(&t, "%s on one side, %s on the other", here, there);
	if (route_common(g, info)) {
		add(&t, ": ");
		add_reasons(g, info, UINT32_MAX, "", "; ", &t);
	}
}

struct route_version {
	struct ctl_route route; /* constant once published: readers copy it */
	struct route_version *older;
};

static struct route_version *version_find(const struct peer *p, const struct ctl_route *like)
{
	struct route_version *k = p->routes;
	while (k && (strcmp(k->route.nic, like->nic) != 0 || strcmp(k->route.why, like->why) != 0 ||
		     strcmp(k->route.address, like->address) != 0 || strcmp(k->route.ip, like->ip) != 0 ||
		     k->route.port != like->port))
		k = k->older;
	return k;
}

/* Frees all versions but `stays`. */
static void versions_free(struct peer *p, struct route_version *stays)
{
	struct route_version *k = p->routes;
	while (k) {
		struct route_version *older = k->older;
		if (k != stays)
			free(k);
		k = older;
	}
	p->routes = stays;
	if (stays)
		stays->older = NULL;
}

/* Takes IP and port out of "DRIVER 10.0.0.1:7471" or "DRIVER [::1]:7471, more". False: it has none. */
static bool ip_parse(const char *text, struct ctl_route *out)
{
	uint8_t bytes[16];
	const char *host = strchr(text, ' ');
	const char *colon = host ? memrchr(host, ':', strcspn(host, ",")) : NULL;
	if (!colon)
		return false;
	bool v6 = host[1] == '[';
	host += 1 + v6;
	ptrdiff_t len = colon - host - v6;
	if (len <= 0 || len >= (ptrdiff_t)sizeof out->ip)
		return false;
	snprintf(out->ip, sizeof out->ip, "%.*s", (int)len, host);
	out->port = (uint16_t)strtoul(colon + 1, NULL, 10);
	if (inet_pton(v6 ? AF_INET6 : AF_INET, out->ip, bytes) == 1)
		return true;
	out->ip[0] = 0;
	out->port = 0;
	return false;
}

/* Sets the IP: of the address in use, else of the first published one that has one. */
static void route_ip(const struct peer *p, struct ctl_route *out)
{
	const struct group *g = p->group;
	struct info info;
	char text[sizeof out->address];
	if (ip_parse(out->address, out) || !p->info || info_decode(p->info, p->bytes, &info))
		return;
	for (unsigned a = 0; a < info.addrs_n; a++)
		for (unsigned i = 0; i < g->config.ports_n; i++) {
			if (!same_driver(g->config.ports[i], &info.addrs[a]))
				continue;
			address_text(g->config.ports[i], &info.addrs[a], text, sizeof text);
			if (ip_parse(text, out))
				return;
		}
}

void route_publish(struct peer *p, const struct route *route, const char *why)
{
	struct ctl_member *m = &p->group->members[p->rank];
	const struct nic_port *port = route ? p->group->config.ports[route->port] : NULL;
	struct ctl_route like = {.nic = port ? port->ops->name : ""};
	text_set(like.why, sizeof like.why, "%s", why);
	if (port)
		address_text(port, &route->addr, like.address, sizeof like.address);
	route_ip(p, &like);
	/* A session comes and goes by the same paths, so the same route is often published again. */
	struct route_version *kept = version_find(p, &like);
	if (!kept) {
		kept = malloc(sizeof *kept);
		if (!kept)
			return;
		*kept = (struct route_version){like, p->routes};
		p->routes = kept;
	}
	atomic_store_explicit(&m->route, &kept->route, memory_order_seq_cst);
	/* Without readers the others are freed: a later reader finds `kept`. Else the next call frees them. */
	if (atomic_load_explicit(&m->route_readers, memory_order_seq_cst) == 0)
		versions_free(p, kept);
}

void route_free(struct peer *p)
{
	struct ctl_member *m = &p->group->members[p->rank];
	atomic_store_explicit(&m->route, NULL, memory_order_relaxed);
	versions_free(p, NULL);
}
