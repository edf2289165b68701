/* SPDX-License-Identifier: BSD-3-Clause */
/** What `farcall pserver` and `farcall tables` have in common. Main thread. */
#ifndef PSERVER_SERVICE_H
#define PSERVER_SERVICE_H

#include "apps/cli/options.h"
#include "group.h"
#include <farcall/ps.h>

#define SERVICE_NAME "default"

/* Rows of an option table that fill a struct group. */
#define SERVICE_GROUP_OPTIONS(g)                                                                                       \
	{"init-method",                                                                                                \
	 0,                                                                                                            \
	 OPTION_TEXT,                                                                                                  \
	 &(g).init_method,                                                                                             \
	 0,                                                                                                            \
	 0,                                                                                                            \
	 "URL",                                                                                                        \
	 "store of the group: tcp://HOST:PORT, file:///PATH, or env:// (default)",                                     \
	 NULL},                                                                                                        \
		{"rank", 0, OPTION_COUNT, &(g).rank_flag, 0, PS_WORLD_MAX - 1, "N", "this member (default: RANK)",     \
		 NULL},                                                                                                \
		{"world-size",                                                                                         \
		 0,                                                                                                    \
		 OPTION_COUNT,                                                                                         \
		 &(g).world_flag,                                                                                      \
		 1,                                                                                                    \
		 PS_WORLD_MAX,                                                                                         \
		 "N",                                                                                                  \
		 "members of the group (default: WORLD_SIZE)",                                                         \
		 NULL},                                                                                                \
		{"nic", 0, OPTION_TEXT, &(g).nic, 0, 0, "NAME", "driver to use (default: the best available)", NULL},  \
	{                                                                                                              \
		"security", 0, OPTION_CHOICE, &(g).security, 0, 0, "WORD",                                             \
			"none: the group has no key and trusts every process that reaches it (default: FAR_KEY_FILE, " \
			"or a "                                                                                        \
			"key for one host)",                                                                           \
			group_security_words                                                                           \
	}

#endif
