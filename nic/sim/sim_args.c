/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses a port's arguments; encodes and decodes its address. Any thread. */
#include "nic/sim/sim_port.h"

#include <errno.h>
#include <string.h>

static const uint8_t magic[4] = {'F', 'S', 'I', 'M'};

/* Parses a number in this range. NULL: there is none. */
static const char *read_number(const char *at, const char *end, uint32_t min, uint32_t max, unsigned *out)
{
	uint64_t x = 0;
	const char *begin = at;
	for (; at < end && *at >= '0' && *at <= '9' && x <= max; at++)
		x = x * 10 + (uint64_t)(*at - '0');
	if (at == begin || at != end || x < min || x > max)
		return NULL;
	*out = (unsigned)x;
	return at;
}

static bool word_is(const char *at, size_t len, const char *word)
{
	return strlen(word) == len && memcmp(at, word, len) == 0;
}

static int read_word(const char *at, const char *end, struct sim_nic *nic, struct nic_err *err)
{
	const struct {
		const char *name;
		unsigned *to, min, max;
	} numbers[] = {
		{"rx=", &nic->rx_slots, 1, 1u << 20},     {"tx=", &nic->tx_slots, 1, 1u << 20},
		{"align=", &nic->body_align, 1, 64},      {"queues=", &nic->queues_max, 1, SIM_QUEUES_MAX},
		{"peers=", &nic->peers_max, 1, 1u << 20},
	};
	const struct {
		const char *name;
		bool *to, value;
	} words[] = {{"hash", &nic->hash, true},
		     {"hold", &nic->zero_copy, true},
		     {"copy", &nic->zero_copy, false},
		     {"kick", &nic->kick, true}};
	size_t len = (size_t)(end - at);
	int shown = len < 60 ? (int)len : 60;
	for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
		if (word_is(at, len, words[i].name)) {
			*words[i].to = words[i].value;
			return 0;
		}
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		size_t name = strlen(numbers[i].name);
		if (len < name || memcmp(at, numbers[i].name, name) != 0)
			continue;
		if (read_number(at + name, end, numbers[i].min, numbers[i].max, numbers[i].to))
			return 0;
		return sim_error(err, -EINVAL, "sim: \"%.*s\": %s takes %u to %u", shown, at, numbers[i].name,
				 numbers[i].min, numbers[i].max);
	}
	return sim_error(err, -EINVAL,
			 "sim: \"%.*s\" is none of rx=, tx=, align=, queues=, peers=, hash, copy, hold, kick", shown,
			 at);
}

int sim_args_parse(const char *text, struct sim_nic *nic, struct nic_err *err)
{
	struct sim_nic n = *nic;
	for (const char *at = text ? text : ""; *at;) {
		const char *end = strchr(at, ',');
		end = end ? end : at + strlen(at);
		int error = read_word(at, end, &n, err);
		if (error)
			return error;
		at = *end ? end + 1 : end;
	}
	if (n.body_align & (n.body_align - 1))
		return sim_error(err, -EINVAL, "sim: align=%u is no power of two", n.body_align);
	*nic = n;
	return 0;
}

/* ---- addresses ---- */

static void put(uint8_t *at, uint64_t x, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = (uint8_t)(x >> 8 * i);
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
	uint64_t x = 0;
	for (unsigned i = 0; i < bytes; i++)
		x |= (uint64_t)at[i] << 8 * i;
	return x;
}

static uint8_t check_of(const uint8_t *blob)
{
	return (uint8_t)sim_mix(get(blob, 8) ^ sim_mix(get(blob + 8, 8) ^ sim_mix(get(blob + 16, 3))));
}

void sim_addr_encode(const struct sim_addr *a, uint8_t blob[SIM_ADDR_BYTES])
{
	memcpy(blob, magic, sizeof magic);
	put(blob + 4, a->world, 8);
	put(blob + 12, a->host, 4);
	blob[16] = a->rail;
	blob[17] = a->queues;
	blob[18] = a->hash;
	blob[19] = check_of(blob);
}

bool sim_addr_decode(const struct nic_addr *addr, struct sim_addr *out)
{
	const uint8_t *blob = addr->blob;
	if (addr->len != SIM_ADDR_BYTES || memcmp(blob, magic, sizeof magic) != 0 || blob[19] != check_of(blob))
		return false;
	*out = (struct sim_addr){.world = get(blob + 4, 8),
				 .host = (uint32_t)get(blob + 12, 4),
				 .rail = blob[16],
				 .queues = blob[17],
				 .hash = blob[18] == 1};
	return out->host < SIM_HOSTS_MAX && out->rail < SIM_RAILS_MAX && out->queues >= 1 &&
	       out->queues <= SIM_QUEUES_MAX && blob[18] <= 1;
}

int sim_address_host(const struct nic_addr *addr, unsigned *host, unsigned *rail)
{
	struct sim_addr a;
	if (!sim_addr_decode(addr, &a))
		return -EINVAL;
	*host = a.host;
	*rail = a.rail;
	return 0;
}
