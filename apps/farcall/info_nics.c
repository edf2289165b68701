/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists drivers, ports, addresses and the group key, for `farcall info`. Main thread. */
#include "info_nics.h"

#include "agent/ports.h"
#include "base/random.h"
#include "base/runtime_dir.h"
#include "control/key.h"
#include "info_cards.h"
#include "nic/nic.h"

#include <farcall/status.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_BYTES 160 /* of an address in words */

static const char *const environment[] = {"FAR_NIC", "FAR_LISTEN", "FAR_ADVERTISE", "FAR_DPDK", NULL};

/* Probes one driver; the reason goes to `err` when it does not work. */
static bool works(const char *name, enum key_kind key, struct nic_err *err)
{
	const char *listen = getenv("FAR_LISTEN"), *advertise = getenv("FAR_ADVERTISE"), *device = getenv("FAR_DPDK");
	const struct nic_config config = {.queues = 1,
					  .any_user = key == KEY_NONE,
					  .beyond_host = key != KEY_AUTO,
					  .args = strcmp(name, "dpdk") == 0 && device && *device ? device : NULL,
					  .listen = listen && *listen ? listen : NULL,
					  .advertise = advertise && *advertise ? advertise : NULL};
	const struct nic_port_ops *ops = nic_find(name, err);
	if (!ops)
		return false;
	err->text[0] = 0;
	int rc = ops->probe(&config, err);
	if (rc < 0 && !err->text[0])
		snprintf(err->text, sizeof err->text, "%s", strerror(-rc));
	return rc == 0;
}

static void print_driver(const char *name, enum key_kind key, FILE *out, struct json *j)
{
	struct nic_err err = {.text = ""};
	const char *why;
	bool available = works(name, key, &err), automatic = ports_automatic(name, &why);
	const char *remark = available && err.text[0] ? ": " : "";
	fprintf(out, "  %-8s %s%s%s", name, available ? "available" : "not available: ", remark, err.text);
	if (available && !automatic)
		fprintf(out, "; not of auto: %s", why);
	fprintf(out, "\n");
	if (!j)
		return;
	json_object(j, NULL);
	json_string(j, "name", name);
	json_bool(j, "available", available);
	if (err.text[0])
		json_string(j, available ? "remark" : "reason", err.text);
	json_bool(j, "auto", automatic);
	if (!automatic)
		json_string(j, "not_auto", why);
	json_close(j);
}

/* What drivers find here: of those whose module can be loaded. */
static void print_advice(FILE *out, struct json *j)
{
	if (j)
		json_object(j, "advice");
	for (unsigned i = 0; nic_names[i]; i++) {
		char text[4096] = "";
		struct nic_err err;
		const struct nic_port_ops *ops = nic_find(nic_names[i], &err);
		if (!ops || !ops->advice)
			continue;
		ops->advice(text, sizeof text);
		for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
			fprintf(out, "  %-8s %.*s\n", ops->name, (int)(end - line), line);
		if (j)
			json_string(j, ops->name, text);
	}
	if (j)
		json_close(j);
}

static void print_port(const struct nic_port *port, FILE *out, struct json *j)
{
	char words[ADDRESS_BYTES] = "";
	struct nic_addr addr;
	struct nic_err remark = {""}; /* of the driver, on itself */
	port->ops->address(port, &addr);
	port->ops->address_text(&addr, words, sizeof words);
	bool remarked = port->ops->reach(port, &addr, &remark) == 0 && remark.text[0];
	fprintf(out, "  %s%s%s%s\n", words, remarked ? " (" : "", remarked ? remark.text : "", remarked ? ")" : "");
	if (!j)
		return;
	json_object(j, NULL);
	json_string(j, "driver", port->ops->name);
	json_string(j, "address", words);
	if (remarked)
		json_string(j, "remark", remark.text);
	json_close(j);
}

static void print_ports(const struct ports *ports, FILE *out, struct json *j)
{
	fprintf(out, "\nports here, best first; a session takes the first that both ends have and that leads there\n");
	if (j)
		json_array(j, "ports");
	for (unsigned i = 0; i < ports->published; i++)
		print_port(ports->at[i], out, j);
	if (j)
		json_close(j);
	for (unsigned i = 0; i < ports->refused_n; i++)
		fprintf(out, "  %s is left out: %s\n", ports->refused[i].name, ports->refused[i].why);
	if (ports->n > ports->published)
		fprintf(out, "  shm, for this worker's calls on itself only\n");
}

static void print_environment(FILE *out, struct json *j)
{
	if (j)
		json_object(j, "environment");
	for (unsigned i = 0; environment[i]; i++) {
		const char *value = getenv(environment[i]);
		if (!value)
			continue;
		fprintf(out, "  %s is \"%s\"\n", environment[i], value);
		if (j)
			json_string(j, environment[i], value);
	}
	if (j)
		json_close(j);
}

/* Which key a worker would use: where it is, and its id; never the key. */
static void print_key(const struct key_choice *key, enum far_status status, const struct far_err *why, FILE *out,
		      struct json *j)
{
	static const char *const kinds[] = {[KEY_AUTO] = "automatic", [KEY_GIVEN] = "given", [KEY_NONE] = "none"};
	char id[KEY_ID_BYTES] = "", dir[RUNTIME_DIR_BYTES] = "";
	const char *from = key->kind == KEY_AUTO && runtime_dir_path(NULL, 0, dir) == 0 ? dir : key->from;
	if (!status && key->kind == KEY_GIVEN)
		key_id(&key->key, id);
	fprintf(out, "group key\n");
	if (status)
		fprintf(out, "  refused: %s\n", why->text);
	else if (key->kind == KEY_GIVEN)
		fprintf(out, "  %s, id %s: store and ports may be reached from other hosts\n", from, id);
	else if (key->kind == KEY_NONE)
		fprintf(out,
			"  none (security=none): every process that reaches the store or a port can join and call\n");
	else
		fprintf(out,
			"  rank 0 makes one in %s for this user's workers on this host; for several hosts set "
			"FAR_KEY_FILE (farcall key)\n",
			from);
	fprintf(out, "\n");
	if (!j)
		return;
	json_object(j, "key");
	json_string(j, "kind", status ? "refused" : kinds[key->kind]);
	json_string(j, "from", from);
	json_string(j, "id", id);
	if (status)
		json_string(j, "error", why->text);
	json_close(j);
}

bool info_nics(const struct info_nics_opts *opts, FILE *out, struct json *j)
{
	struct key_choice key;
	struct far_err key_err;
	enum far_status key_status = key_choose(NULL, opts->security, true, &key, &key_err);
	print_key(&key, key_status, &key_err, out, j);
	auth_erase(&key.key, sizeof key.key);
	const struct ports_config config = {.nic = opts->nic,
					    .id = random_u64(),
					    .any_user = key.kind == KEY_NONE,
					    .beyond_host = key.kind != KEY_AUTO,
					    .queues = 1,
					    .quiet = true};
	struct ports ports;
	struct far_err err = {.status = FAR_OK};
	fprintf(out, "NIC drivers, best first\n");
	if (j)
		json_array(j, "drivers");
	for (unsigned i = 0; nic_names[i]; i++)
		print_driver(nic_names[i], key.kind, out, j);
	if (j)
		json_close(j);
	print_advice(out, j);
	bool opened = ports_open(&config, &ports, &err) == FAR_OK;
	const char *best = opened ? ports.at[0]->ops->name : "";
	fprintf(out, "  %-8s %s%s\n", opts->nic || getenv("FAR_NIC") ? "chosen" : "auto",
		opened ? best : "nothing: ", opened ? "" : err.text);
	if (opened)
		print_ports(&ports, out, j);
	info_cards(out, j);
	print_environment(out, j);
	if (key.kind == KEY_AUTO)
		fprintf(out, "  without a key that is given (FAR_KEY_FILE) only this machine's workers reach them\n");
	if (j) {
		json_string(j, "auto", best);
		if (!opened)
			json_string(j, "ports_error", err.text);
	}
	if (opened)
		ports_close(&ports);
	else if (opts->nic)
		fprintf(stderr, "farcall info: --nic \"%.64s\": %s\n", opts->nic, err.text);
	return opened || !opts->nic;
}
