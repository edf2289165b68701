/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses what follows "lossy:" in nic=; nic/README.md tables it. Not by strtod(), which depends on the locale. Any
 * thread. */
#include "nic/lossy/lossy.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Parses a decimal with up to nine fractional digits, in units of 1e-9. NULL: malformed, or an integer part of more
 * than nine digits. */
static const char *read_decimal(const char *at, const char *end, uint64_t *nano)
{
	uint64_t whole = 0, part = 0;
	unsigned digits = 0, part_digits = 0;
	for (; at < end && *at >= '0' && *at <= '9'; at++, digits++)
		whole = digits < 9 ? whole * 10 + (uint64_t)(*at - '0') : UINT64_MAX;
	if (at < end && *at == '.')
		for (at++; at < end && *at >= '0' && *at <= '9'; at++, part_digits++)
			part = part_digits < 9 ? part * 10 + (uint64_t)(*at - '0') : UINT64_MAX;
	if (digits + part_digits == 0 || digits > 9 || part_digits > 9)
		return NULL;
	for (; part_digits < 9; part_digits++)
		part *= 10;
	*nano = whole * UINT64_C(1000000000) + part;
	return at;
}

/* Parses a chance: "0.01" or "1%". */
static const char *read_chance(const char *at, const char *end, uint64_t *chance)
{
	uint64_t nano;
	at = read_decimal(at, end, &nano);
	if (at && at < end && *at == '%') {
		nano /= 100;
		at++;
	}
	if (!at || nano > UINT64_C(1000000000))
		return NULL;
	*chance = (nano << 32) / UINT64_C(1000000000);
	return at;
}

static const char *read_time(const char *at, const char *end, uint64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
	uint64_t nano;
	at = read_decimal(at, end, &nano);
	for (unsigned i = 0; at && i < sizeof units / sizeof *units; i++) {
		size_t len = strlen(units[i].name);
		if ((size_t)(end - at) != len || memcmp(at, units[i].name, len) != 0)
			continue;
		if (nano / UINT64_C(1000000000) > LOSSY_DELAY_NS_MAX / units[i].ns)
			return NULL;
		*ns = nano / UINT64_C(1000000000) * units[i].ns +
		      nano % UINT64_C(1000000000) * units[i].ns / UINT64_C(1000000000);
		return *ns >= 1 && *ns <= LOSSY_DELAY_NS_MAX ? end : NULL;
	}
	return NULL;
}

static const char *read_number(const char *at, const char *end, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t x = 0;
	const char *begin = at;
	for (; at < end && *at >= '0' && *at <= '9'; at++) {
		uint64_t digit = (uint64_t)(*at - '0');
		if (x > (UINT64_MAX - digit) / 10)
			return NULL;
		x = x * 10 + digit;
	}
	if (at == begin || x < min || x > max)
		return NULL;
	*out = x;
	return at;
}

/* Keys, in the order of their bits in `seen`. */
enum key { KEY_OVER, KEY_DROP, KEY_DUPLICATE, KEY_DELAY, KEY_REORDER, KEY_CORRUPT, KEY_SEED, KEY_BYTES, KEYS };

static const struct {
	const char *name, *wanted;
} keys[KEYS] = {
	[KEY_OVER] = {"over", "a driver's name"},
	[KEY_DROP] = {"drop", "a chance: 0 to 1, or 0% to 100%"},
	[KEY_DUPLICATE] = {"duplicate", "a chance: 0 to 1, or 0% to 100%"},
	[KEY_DELAY] = {"delay", "a chance and the longest delay: 0.01:2ms (ns, us, ms, s; at most 10s)"},
	[KEY_REORDER] = {"reorder", "a chance and how many packets may overtake: 0.01:8 (1 to 1024)"},
	[KEY_CORRUPT] = {"corrupt", "a chance: 0 to 1, or 0% to 100%"},
	[KEY_SEED] = {"seed", "a number of 64 bits"},
	[KEY_BYTES] = {"bytes", "the largest body, 64 to 65535"},
};

static const char *read_over(const char *at, const char *end, struct lossy_args *a)
{
	size_t len = (size_t)(end - at);
	if (len == 0 || len >= sizeof a->over)
		return NULL;
	memcpy(a->over, at, len);
	a->over[len] = '\0';
	return end;
}

/* Parses a chance, and after a ':' what `more` parses. */
static const char *read_delay(const char *at, const char *end, struct lossy_args *a)
{
	at = read_chance(at, end, &a->delay);
	return at && at < end && *at == ':' ? read_time(at + 1, end, &a->delay_ns) : at;
}

static const char *read_reorder(const char *at, const char *end, struct lossy_args *a)
{
	at = read_chance(at, end, &a->reorder);
	return at && at < end && *at == ':' ? read_number(at + 1, end, 1, LOSSY_REORDER_MAX, &a->reorder_by) : at;
}

/* Parses a value and returns its end; anything but `end` is an error. */
static const char *read_value(enum key key, const char *at, const char *end, struct lossy_args *a)
{
	switch (key) {
	case KEY_OVER:
		return read_over(at, end, a);
	case KEY_DROP:
		return read_chance(at, end, &a->drop);
	case KEY_DUPLICATE:
		return read_chance(at, end, &a->duplicate);
	case KEY_DELAY:
		return read_delay(at, end, a);
	case KEY_REORDER:
		return read_reorder(at, end, a);
	case KEY_CORRUPT:
		return read_chance(at, end, &a->corrupt);
	case KEY_SEED:
		return read_number(at, end, 0, UINT64_MAX, &a->seed);
	case KEY_BYTES:
		return read_number(at, end, 64, LOSSY_BODY_MAX, &a->bytes);
	case KEYS:
		break;
	}
	return NULL;
}

static int read_word(const char *at, const char *end, unsigned *seen, struct lossy_args *a, struct nic_err *err)
{
	const char *equals = memchr(at, '=', (size_t)(end - at));
	int shown = end - at < 60 ? (int)(end - at) : 60;
	for (unsigned i = 0; equals && i < KEYS; i++) {
		if (strlen(keys[i].name) != (size_t)(equals - at) ||
		    memcmp(keys[i].name, at, (size_t)(equals - at)) != 0)
			continue;
		if (*seen >> i & 1)
			return lossy_error(err, -EINVAL, "lossy: %s= is there twice", keys[i].name);
		*seen |= 1u << i;
		if (read_value((enum key)i, equals + 1, end, a) != end)
			return lossy_error(err, -EINVAL, "lossy: \"%.*s\": %s= takes %s", shown, at, keys[i].name,
					   keys[i].wanted);
		return 0;
	}
	return lossy_error(
		err, -EINVAL,
		"lossy: \"%.*s\" is none of over=, drop=, duplicate=, delay=, reorder=, corrupt=, seed=, bytes=, args=",
		shown, at);
}

int lossy_args_parse(const char *text, struct lossy_args *out, struct nic_err *err)
{
	struct lossy_args a = {
		.delay_ns = LOSSY_DELAY_NS, .reorder_by = LOSSY_REORDER, .seed = 1, .bytes = LOSSY_BODY_MAX};
	unsigned seen = 0;
	for (const char *at = text ? text : ""; *at;) {
		const char *end = strchr(at, ',');
		if (strncmp(at, "args=", 5) == 0) {
			a.lower_args = at + 5;
			break;
		}
		if (!end)
			end = at + strlen(at);
		int error = read_word(at, end, &seen, &a, err);
		if (error)
			return error;
		at = *end ? end + 1 : end;
	}
	if (!(seen & 1u << KEY_OVER))
		return lossy_error(err, -EINVAL, "lossy: over which driver? Give over=NAME, as in over=udp,drop=0.01");
	*out = a;
	return 0;
}
