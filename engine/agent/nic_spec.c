/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses far_opts.nic. Any thread; no state. */
#include "agent/nic_spec.h"

#include "base/error.h"

#include <string.h>

static bool is_name(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_-", s[i]))
			return false;
	return len > 0;
}

/* Parses one entry, without the blanks around it. */
static enum far_status entry_read(const char *s, size_t len, struct nic_spec *out, struct far_err *err)
{
	while (len && (*s == ' ' || *s == '\t')) {
		s++;
		len--;
	}
	while (len && (s[len - 1] == ' ' || s[len - 1] == '\t'))
		len--;
	int shown = len > 60 ? 60 : (int)len;
	const char *colon = memchr(s, ':', len);
	size_t name_len = colon ? (size_t)(colon - s) : len, args_len = colon ? len - name_len - 1 : 0;
	if (len == 0)
		return err_set(err, FAR_INVALID,
			       "nic: entry %u is empty; write drivers separated by ',' or ';', or \"auto\"",
			       out->n + 1);
	if (!is_name(s, name_len) || name_len >= sizeof out->entries[0].name)
		return err_set(err, FAR_INVALID,
			       "nic: \"%.*s\" does not begin with the name of a driver; `farcall info` lists them",
			       shown, s);
	if (args_len >= NIC_SPEC_ARGS_BYTES)
		return err_set(err, FAR_INVALID, "nic: the arguments of \"%.*s:\" are longer than %d bytes",
			       (int)name_len, s, NIC_SPEC_ARGS_BYTES - 1);
	if (out->n == NIC_SPEC_ENTRIES)
		return err_set(err, FAR_INVALID, "nic: at most %d ports; leave \"%.*s\" out", NIC_SPEC_ENTRIES, shown,
			       s);
	struct nic_spec_entry *e = &out->entries[out->n];
	memcpy(e->name, s, name_len);
	e->has_args = colon != NULL;
	if (args_len)
		memcpy(e->args, colon + 1, args_len);
	for (unsigned i = 0; i < out->n; i++)
		if (strcmp(out->entries[i].name, e->name) == 0 && strcmp(out->entries[i].args, e->args) == 0)
			return err_set(err, FAR_INVALID, "nic: \"%.*s\" is named twice; leave one out", shown, s);
	out->n++;
	return FAR_OK;
}

enum far_status nic_spec_parse(const char *text, struct nic_spec *out, struct far_err *err)
{
	memset(out, 0, sizeof *out);
	for (;;) {
		size_t len = strcspn(text, ",;:");
		if (text[len] == ':')
			len += strcspn(text + len, ";");
		enum far_status status = entry_read(text, len, out, err);
		if (status)
			return status;
		if (!text[len])
			break;
		text += len + 1;
	}
	for (unsigned i = 0; i < out->n; i++) {
		if (strcmp(out->entries[i].name, "auto") != 0)
			continue;
		if (out->n > 1 || out->entries[i].has_args)
			return err_set(err, FAR_INVALID, "nic: \"auto\" stands alone; else name the drivers");
		out->automatic = true;
		out->n = 0;
	}
	return FAR_OK;
}
