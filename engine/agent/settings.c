/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options from the environment, FAR_ and the name of the option in capitals. Start only. The options of networks
 * (FAR_NIC, FAR_LISTEN, FAR_ADVERTISE, FAR_CHECKSUM) and of keys (FAR_KEY_FILE, FAR_KEY) are read where they are used:
 * ports.c, control/key.c.
 */
#include "agent/settings.h"

#include "base/error.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum kind {
	SETTING_TEXT,   /* const char * */
	SETTING_WORDS,  /* an enum */
	SETTING_NUMBER, /* unsigned */
	SETTING_SIZE,   /* size_t */
	SETTING_WIDE,   /* uint64_t; a time may be "forever" */
	SETTING_CPU     /* int, FAR_CPU() of the number */
};

static const struct setting {
	const char *name; /* of the option */
	size_t at;
	enum kind kind;
	const char *words[4]; /* of an enum, in order from 0 */
} settings[] = {
#define SETTING(name, ...)                                                                                             \
	{                                                                                                              \
#name, offsetof(struct far_opts, name), __VA_ARGS__                                                    \
	}
	SETTING(init_method, SETTING_TEXT),
	SETTING(group, SETTING_TEXT),
	SETTING(security, SETTING_TEXT),
	SETTING(rpc_timeout_ns, SETTING_WIDE),
	SETTING(init_timeout_ns, SETTING_WIDE),
	SETTING(progress, SETTING_WORDS, {"shared", "dedicated", "caller"}),
	SETTING(idle, SETTING_WORDS, {"adaptive", "busy"}),
	SETTING(pin_cpu, SETTING_CPU),
	SETTING(shards, SETTING_NUMBER),
	SETTING(connect, SETTING_WORDS, {"auto", "lazy"}),
	SETTING(fibers, SETTING_NUMBER),
	SETTING(fiber_stack_bytes, SETTING_SIZE),
	SETTING(blocking_threads, SETTING_NUMBER),
	SETTING(blocking_queue, SETTING_NUMBER),
	SETTING(max_message_bytes, SETTING_WIDE),
	SETTING(submit_slots, SETTING_NUMBER),
	SETTING(calls, SETTING_NUMBER),
	SETTING(peer_calls, SETTING_NUMBER),
	SETTING(peer_waiting, SETTING_NUMBER),
	SETTING(retry_window, SETTING_NUMBER),
	SETTING(deferred, SETTING_NUMBER),
	SETTING(mailbox_slots, SETTING_NUMBER),
	SETTING(peer_limit_ns, SETTING_WIDE),
	SETTING(leaks, SETTING_WORDS, {"report", "ignore", "fail"}),
	SETTING(rref_retry_ns, SETTING_WIDE),
	SETTING(members_max, SETTING_NUMBER),
	SETTING(lease_ns, SETTING_WIDE),
#undef SETTING
};

static bool number(const char *text, uint64_t max, uint64_t *out)
{
	char *end;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	*out = n;
	return isdigit((unsigned char)text[0]) && !*end && !errno && n <= max;
}

static bool word(const struct setting *s, const char *text, unsigned *out)
{
	for (unsigned i = 0; i < 4 && s->words[i]; i++) {
		*out = i;
		if (strcmp(s->words[i], text) == 0)
			return true;
	}
	return false;
}

/* Sets an option that has its default. False: `text` is no value of it. */
static bool set(const struct setting *s, struct far_opts *o, const char *text)
{
	void *at = (char *)o + s->at;
	uint64_t n = 0;
	unsigned u = 0;
	int cpu;
	switch (s->kind) {
	case SETTING_TEXT:
		if (!*(const char **)at)
			*(const char **)at = text;
		return true;
	case SETTING_WORDS:
		if (!word(s, text, &u))
			return false;
		if (!*(unsigned *)at)
			*(unsigned *)at = u;
		return true;
	case SETTING_NUMBER:
		if (!number(text, UINT32_MAX, &n))
			return false;
		if (!*(unsigned *)at)
			*(unsigned *)at = (unsigned)n;
		return true;
	case SETTING_SIZE:
		if (!number(text, SIZE_MAX, &n))
			return false;
		if (!*(size_t *)at)
			*(size_t *)at = (size_t)n;
		return true;
	case SETTING_WIDE:
		if (strcmp(text, "forever") == 0)
			n = FAR_FOREVER;
		else if (!number(text, UINT64_MAX, &n))
			return false;
		if (!*(uint64_t *)at)
			*(uint64_t *)at = n;
		return true;
	case SETTING_CPU:
		if (!number(text, INT32_MAX - 1, &n))
			return false;
		cpu = FAR_CPU((int)n);
		if (!*(int *)at && !o->pin_cpus_n)
			*(int *)at = cpu;
		return true;
	}
	return false;
}

enum far_status settings_read(struct far_opts *o, struct far_err *err)
{
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
		char name[40] = "FAR_";
		for (size_t k = 0; settings[i].name[k]; k++)
			name[4 + k] = (char)toupper((unsigned char)settings[i].name[k]);
		const char *text = getenv(name);
		/* A key that the program names is no default to replace. */
		if (o->key_file && settings[i].at == offsetof(struct far_opts, security))
			continue;
		if (!text || !*text || set(&settings[i], o, text))
			continue;
		const char *const *words = settings[i].words;
		return err_set(err, FAR_INVALID, "environment variable %s is \"%.64s\", expected %s%s%s%s%s", name,
			       text, words[0] ? words[0] : "a whole number", words[1] ? ", " : "",
			       words[1] ? words[1] : "", words[1] && words[2] ? ", " : "",
			       words[1] && words[2] ? words[2] : "");
	}
	const char *level = getenv("FAR_LOG");
	if (level && *level && log_level_of(level) < 0)
		return err_set(err, FAR_INVALID,
			       "environment variable FAR_LOG is \"%.64s\", expected none, error, warning, info, debug",
			       level);
	return FAR_OK;
}
