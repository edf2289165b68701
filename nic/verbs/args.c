/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses nic=verbs:DEVICE[,KEY=VALUE…]. Control thread. */
#include "nic/verbs/bulk.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORM "nic=verbs, nic=verbs:rxe0, or nic=verbs:mlx5_0,port=1,gid=3,rx_slots=512"

/* InfiniBand has 16 service levels. */
#define SL_MAX  15
#define SL_FORM "off, or eight numbers of [0, 15] with '/' between them, for priorities 0 to 7"

static int bad_key(struct nic_err *err, const char *key, const char *value, const char *wanted)
{
	return verbs_error(err, -EINVAL, "verbs: %s=%.60s: %s", key, value, wanted);
}

static int number(const char *text, unsigned long min, unsigned long max, unsigned *out)
{
	char *end;
	errno = 0;
	unsigned long n = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || n < min || n > max)
		return -EINVAL;
	*out = (unsigned)n;
	return 0;
}

static int take_sl(struct verbs_args *a, const char *text)
{
	uint8_t sl[VERBS_PRIORITIES] = {0};
	if (strcmp(text, "off") != 0)
		for (unsigned i = 0; i < VERBS_PRIORITIES; i++) {
			char *end;
			unsigned long n = strtoul(text, &end, 10);
			if (!isdigit((unsigned char)*text) || n > SL_MAX || *end != (i == NIC_PRIORITY_MAX ? 0 : '/'))
				return -EINVAL;
			sl[i] = (uint8_t)n;
			text = end + 1;
		}
	memcpy(a->sl, sl, sizeof sl);
	return 0;
}

static int take_bulk(struct verbs_args *a, const char *text)
{
	bool automatic = strcmp(text, "auto") == 0, off = strcmp(text, "off") == 0;
	a->bulk = 0;
	a->bulk_mode = automatic ? VERBS_BULK_AUTO : off ? VERBS_BULK_OFF : VERBS_BULK_BYTES;
	return automatic || off ? 0 : number(text, VERBS_BULK_MIN, VERBS_BULK_MAX, &a->bulk);
}

static int take_pair(struct verbs_args *a, const char *key, const char *value, struct nic_err *err)
{
	unsigned n = 0;
	if (strcmp(key, "device") == 0) {
		if (!*value || strlen(value) >= sizeof a->device)
			return bad_key(err, key, value, "an RDMA device; `farcall info` lists them");
		snprintf(a->device, sizeof a->device, "%s", value);
	} else if (strcmp(key, "port") == 0) {
		if (number(value, 1, 255, &a->port))
			return bad_key(err, key, value, "a port of the device, 1 to 255");
	} else if (strcmp(key, "gid") == 0) {
		if (number(value, 0, VERBS_GIDS_MAX - 1, &n))
			return bad_key(err, key, value, "an index of the port's GID table; `farcall info` lists them");
		a->gid = (int)n;
	} else if (strcmp(key, "rx_slots") == 0) {
		if (number(value, VERBS_RX_SLOTS_MIN, VERBS_RX_SLOTS_MAX, &a->rx_slots))
			return bad_key(err, key, value, "receive buffers of a queue, 64 to 16384");
	} else if (strcmp(key, "mtu") == 0) {
		if (number(value, VERBS_MTU_MIN, 4096, &a->mtu))
			return bad_key(err, key, value, "bytes of a packet, 1024 to 4096");
	} else if (strcmp(key, "rc") == 0) {
		if (number(value, 0, 1, &n))
			return bad_key(err, key, value, "1 for connections, 0 for datagrams");
		a->rc = (int)n;
	} else if (strcmp(key, "connections") == 0) {
		if (number(value, VERBS_CONNS_MIN, VERBS_CONNS_MAX, &a->connections))
			return bad_key(err, key, value, "connections of a queue at once, 2 to 1024");
	} else if (strcmp(key, "bulk") == 0) {
		if (take_bulk(a, value))
			return bad_key(
				err, key, value,
				"auto, off, or the size from which messages are read by RDMA, 16384 to 16777216");
	} else if (strcmp(key, "dscp") == 0) {
		if (nic_dscp_parse(value, strlen(value), &a->dscp))
			return bad_key(err, key, value, NIC_DSCP_FORM);
	} else if (strcmp(key, "sl") == 0) {
		if (take_sl(a, value))
			return bad_key(err, key, value, SL_FORM);
	} else {
		return verbs_error(err, -EINVAL,
				   "verbs: \"%.60s\" is none of device, port, gid, rx_slots, mtu, rc, connections, "
				   "bulk, dscp, sl: " FORM,
				   key);
	}
	return 0;
}

/* The first word may be a device name without a key. */
static int take_word(struct verbs_args *a, char *word, bool first, struct nic_err *err)
{
	char *value = strchr(word, '=');
	if (first && !value && *word && !strpbrk(word, " \t"))
		return take_pair(a, "device", word, err);
	if (!value || value == word)
		return verbs_error(err, -EINVAL, "verbs: \"%.60s\" is not key=value: " FORM, word);
	*value++ = 0;
	return take_pair(a, word, value, err);
}

int verbs_args_parse(const char *text, struct verbs_args *out, struct nic_err *err)
{
	char copy[512];
	*out = (struct verbs_args){.gid = -1, .rc = -1, .rx_slots = VERBS_RX_SLOTS};
	nic_dscp_init(&out->dscp);
	if (!text || !*text)
		return 0;
	if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
		return verbs_error(err, -EINVAL, "verbs: the arguments exceed %zu bytes", sizeof copy - 1);
	int error = 0;
	bool first = true;
	for (char *word = copy, *next; word && !error; word = next, first = false) {
		next = strchr(word, ',');
		if (next)
			*next++ = 0;
		error = take_word(out, word, first, err);
	}
	if (!error && out->gid >= 0 && !out->device[0])
		return verbs_error(err, -EINVAL, "verbs: gid=%d needs a device: " FORM, out->gid);
	return error;
}
