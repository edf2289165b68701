/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and closes the NIC ports of an agent. Application thread, at start and stop; makes system calls. */
#include "agent/ports.h"

#include "agent/nic_spec.h"
#include "base/error.h"
#include "base/log.h"
#include "core/packet.h"
#include "core/queues.h"
#include "memory/budget.h"
#include "memory/region.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Drivers by cost of a call, best first; other drivers follow in the order in which they are named. */
static const char *const preferred[] = {"shm", "verbs", "dpdk", "udp"};
#define PREFERRED (sizeof preferred / sizeof *preferred)

static size_t rank_of(const char *name)
{
	size_t rank = 0;
	while (rank < PREFERRED && strcmp(preferred[rank], name) != 0)
		rank++;
	return rank;
}

static const char *from_env(const char *option, const char *name)
{
	const char *env = option ? NULL : getenv(name);
	return option ? option : env && *env ? env : NULL;
}

/* True if there is an RDMA device, so that loading the verbs module is worthwhile. */
static bool has_rdma(void)
{
	DIR *d = opendir("/sys/class/infiniband");
	const struct dirent *e;
	bool any = false;
	while (d && !any && (e = readdir(d)))
		any = e->d_name[0] != '.';
	if (d)
		closedir(d);
	return any;
}

bool ports_automatic(const char *driver, const char **why)
{
	const char *device = getenv("FAR_DPDK");
	*why = "only when it is named";
	if (strcmp(driver, "shm") == 0 || strcmp(driver, "udp") == 0)
		return true;
	if (strcmp(driver, "verbs") == 0) {
		*why = "there is no RDMA device";
		return has_rdma();
	}
	if (strcmp(driver, "dpdk") != 0)
		return false;
	*why = "FAR_DPDK names no device";
	return device && *device;
}

/* Fills in the drivers of "auto". */
static void automatic(struct nic_spec *spec)
{
	const char *why;
	for (size_t i = 0; i < PREFERRED; i++) {
		if (!ports_automatic(preferred[i], &why))
			continue;
		struct nic_spec_entry *e = &spec->entries[spec->n++];
		snprintf(e->name, sizeof e->name, "%s", preferred[i]);
		e->has_args = strcmp(e->name, "dpdk") == 0;
		if (e->has_args)
			snprintf(e->args, sizeof e->args, "%s", getenv("FAR_DPDK"));
	}
}

enum far_status ports_check_checksum(const char *word, struct far_err *err)
{
	if (!word || strcmp(word, "on") == 0 || strcmp(word, "off") == 0)
		return FAR_OK;
	return err_set(err, FAR_INVALID, "checksum is \"%.64s\"; it can be \"on\", \"off\" or left out", word);
}

/* Puts the transport above a datagram port. A port that cannot be used even so is closed. */
static int complete(const struct ports_config *config, struct nic_port **port, struct nic_err *why)
{
	struct nic_caps caps;
	int error = 0;
	(*port)->ops->caps(*port, &caps);
	if (transport_needed(&caps)) {
		const struct transport_config link = {.queues = config->queues,
						      .head_bytes = sizeof(union packet_head),
						      .limit_ns = config->peer_limit_ns,
						      .unchecked =
							      config->checksum && strcmp(config->checksum, "off") == 0,
						      .clock = config->env ? config->env->clock : NULL,
						      .random = config->env ? config->env->random : NULL,
						      .key = config->key,
						      .signal = config->env ? config->env->ctl_due : NULL,
						      .signal_ctx = config->env ? config->env->ctx : NULL};
		error = transport_open(*port, &link, port, why);
		if (!error)
			(*port)->ops->caps(*port, &caps);
	}
	if (!error && caps.slots < SHARD_RING_SLOTS) {
		snprintf(why->text, sizeof why->text, "%s: %u packets in flight towards a peer, %u are needed",
			 (*port)->ops->name, caps.slots, SHARD_RING_SLOTS);
		error = -EINVAL;
	}
	if (error)
		(*port)->ops->close(*port);
	return error;
}

static const struct nic_budget budget = {
	.take = budget_take, .force = budget_force, .give = budget_give, .is_short = budget_is_short};

static int open_one(const struct ports_config *config, const char *name, const char *args, struct nic_port **out,
		    struct nic_err *why)
{
	const struct nic_port_ops *ops = nic_find(name, why);
	bool shm = strcmp(name, "shm") == 0;
	/* Below the transport a driver sees no heads: all of a packet is body. */
	struct nic_config nic = {.id = config->id,
				 .any_user = config->any_user,
				 .beyond_host = config->beyond_host,
				 .key = config->key,
				 .queues = config->queues,
				 .head_bytes = shm ? sizeof(union packet_head) : 0,
				 .args = args,
				 .memory_block = region_piece,
				 .memory = region.base,
				 .memory_bytes = region.bytes,
				 .budget = &budget,
				 .listen = shm ? NULL : config->listen,
				 .advertise = shm ? NULL : config->advertise};
	if (!ops)
		return -ENOENT;
	why->text[0] = 0;
	int error = ops->open(&nic, out, why);
	if (!error)
		error = complete(config, out, why);
	if (error && !why->text[0])
		snprintf(why->text, sizeof why->text, "%s: %s", name, strerror(-error));
	return error;
}

static bool has_ip(const struct nic_port *port)
{
	struct nic_caps caps;
	port->ops->caps(port, &caps);
	return caps.ip != NIC_IP_NONE;
}

/* Inserts a port by preference; ports of equal preference stay in the order of the entries. */
static void insert(struct ports *ports, struct nic_port *port)
{
	unsigned i = ports->n++;
	for (; i > 0 && rank_of(ports->at[i - 1]->ops->name) > rank_of(port->ops->name); i--)
		ports->at[i] = ports->at[i - 1];
	ports->at[i] = port;
}

static void refuse(struct ports *ports, const char *name, const struct nic_err *why)
{
	unsigned i = ports->refused_n++;
	snprintf(ports->refused[i].name, sizeof ports->refused[i].name, "%s", name);
	memcpy(ports->refused[i].why, why->text, sizeof ports->refused[i].why);
}

static enum far_status open_all(const struct ports_config *config, const struct nic_spec *spec, struct ports *out,
				struct far_err *err)
{
	for (unsigned i = 0; i < spec->n; i++) {
		const struct nic_spec_entry *e = &spec->entries[i];
		struct nic_err why = {.text = ""};
		struct nic_port *port;
		if (strcmp(e->name, "shm") == 0 && e->has_args)
			return err_set(err, FAR_INVALID, "nic: \"shm:%.60s\": shm takes no arguments", e->args);
		int error = open_one(config, e->name, e->has_args ? e->args : NULL, &port, &why);
		if (!error)
			insert(out, port);
		else if (spec->automatic)
			refuse(out, e->name, &why);
		else
			return err_set(err, error == -ENOENT || error == -EINVAL ? FAR_INVALID : FAR_UNREACHABLE,
				       "nic \"%s\" cannot be opened: %s", e->name, why.text);
	}
	return FAR_OK;
}

/* No port could be opened: reports every driver's reason, as far as they fit. */
static enum far_status none_opened(const struct ports *ports, bool quiet, struct far_err *err)
{
	char text[FAR_ERR_TEXT_MAX];
	size_t len = 0;
	for (unsigned i = 0; i < ports->refused_n && len < sizeof text; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i ? "; " : "", ports->refused[i].why);
	if (!quiet)
		log_line(FAR_LOG_ERROR, "no NIC could be opened: %s", text);
	return err_set(err, FAR_UNREACHABLE, "no NIC could be opened: %s", text);
}

/* Rejects `listen` and `advertise` when no port has a network address. */
static enum far_status check_addresses(const struct ports_config *config, const struct ports_config *given,
				       const struct nic_spec *spec, const struct ports *ports, struct far_err *err)
{
	const char *what = config->listen ? "listen" : "advertise";
	const char *stated = config->listen ? config->listen : config->advertise;
	/* From the environment they are ignored, since that may be shared by groups on one host. */
	bool matters = spec->automatic || given->listen || given->advertise;
	if (!stated || !matters)
		return FAR_OK;
	for (unsigned i = 0; i < ports->n; i++)
		if (has_ip(ports->at[i]))
			return FAR_OK;
	for (unsigned i = 0; i < ports->refused_n; i++)
		if (strcmp(ports->refused[i].name, "udp") == 0)
			return err_set(err, FAR_UNREACHABLE, "%s is \"%.64s\", but no port has an address: %s", what,
				       stated, ports->refused[i].why);
	return err_set(err, FAR_INVALID,
		       "%s is \"%.64s\", but none of the ports has an address of a network; add udp to nic, or leave "
		       "%s out",
		       what, stated, what);
}

/* Selects the port for sessions of the worker with itself: shm, opened without directory and named socket if needed. */
static enum far_status add_self(const struct ports_config *config, struct ports *out, struct far_err *err)
{
	struct nic_err why = {.text = ""};
	out->published = out->n;
	for (out->self = 0; out->self < out->n; out->self++)
		if (strcmp(out->at[out->self]->ops->name, "shm") == 0)
			return FAR_OK;
	if (open_one(config, "shm", "private", &out->at[out->n], &why))
		return err_set(err, FAR_UNREACHABLE, "no port for the sessions of this worker with itself: %s",
			       why.text);
	out->n++;
	return FAR_OK;
}

static_assert(NIC_SPEC_ENTRIES + 1 <= FAR_PORTS_MAX, "room for one more");

enum far_status ports_open(const struct ports_config *given, struct ports *out, struct far_err *err)
{
	struct ports_config config = *given;
	struct nic_spec spec;
	config.nic = from_env(given->nic, "FAR_NIC");
	config.listen = from_env(given->listen, "FAR_LISTEN");
	config.advertise = from_env(given->advertise, "FAR_ADVERTISE");
	config.checksum = from_env(given->checksum, "FAR_CHECKSUM");
	memset(out, 0, sizeof *out);
	enum far_status status = ports_check_checksum(config.checksum, err);
	if (!status)
		status = nic_spec_parse(config.nic ? config.nic : "auto", &spec, err);
	if (status)
		return status;
	if (spec.automatic)
		automatic(&spec);
	status = open_all(&config, &spec, out, err);
	if (!status)
		status = check_addresses(&config, given, &spec, out, err);
	if (!status && out->n == 0)
		status = none_opened(out, config.quiet, err);
	if (!status)
		status = add_self(&config, out, err);
	if (status)
		ports_close(out);
	else
		transport_join(out->at, out->n);
	return status;
}

enum far_status ports_adopt(const struct ports_config *config, struct ports *out, struct far_err *err)
{
	struct agent_env *env = config->env;
	struct nic_err why = {.text = ""};
	int error = env->ports_n >= 1 && env->ports_n <= FAR_PORTS_MAX && env->self < env->ports_n ? 0 : -EINVAL;
	memset(out, 0, sizeof *out);
	if (error)
		snprintf(why.text, sizeof why.text,
			 "%u ports, with port %u for sessions of the worker with itself; use 1 to %d ports",
			 env->ports_n, env->self, FAR_PORTS_MAX);
	for (unsigned i = 0; i < env->ports_n; i++) {
		struct nic_port *port = env->ports[i];
		if (error)
			port->ops->close(port);
		else if (!(error = complete(config, &port, &why))) /* closes a port that it rejects */
			out->at[out->n++] = port;
	}
	env->ports_n = 0;
	out->published = out->n;
	out->self = env->self;
	if (!error) {
		transport_join(out->at, out->n);
		return FAR_OK;
	}
	ports_close(out);
	return err_set(err, error == -ENOMEM ? FAR_RESOURCE : FAR_INVALID, "the ports cannot be used: %s", why.text);
}

void ports_close(struct ports *ports)
{
	while (ports->n) {
		struct nic_port *port = ports->at[--ports->n];
		port->ops->close(port);
	}
}
