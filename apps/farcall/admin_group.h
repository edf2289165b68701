/* SPDX-License-Identifier: BSD-3-Clause */
/** Selects the group of a command. Groups of one user may have the same name; then the store's address decides. Main
 * thread. */
#ifndef FARCALL_ADMIN_GROUP_H
#define FARCALL_ADMIN_GROUP_H

#include "admin_client.h"
#include "apps/cli/options.h"

#include <farcall/status.h>

#define ADMIN_STORE_MAX 600 /* bytes of an address with its NUL */

/** Entries of an option table; `choice` is a struct admin_choice. */
#define ADMIN_CHOICE_OPTIONS(choice)                                                                                   \
	{"group", 'g', OPTION_TEXT, &(choice).group, 0, 0, "NAME", "the group (default: any)", NULL},                  \
	{                                                                                                              \
		"store", 's', OPTION_TEXT, &(choice).store, 0, 0, "ADDRESS",                                           \
			"the address of its store, as 127.0.0.1:29500 (default: any)", NULL                            \
	}

/** NULL: any. */
struct admin_choice {
	const char *group, *store;
};

/** A worker's group and store from its answer to "info". False: it gave none. */
bool admin_group_of(const struct admin_worker *w, char group[FAR_NAME_MAX], char store[ADMIN_STORE_MAX]);
/** Is it of a chosen group. False without an answer. */
bool admin_is_chosen(const struct admin_worker *w, const struct admin_choice *choice);
/** Prints each group of the workers on stderr, a line each, as the options that choose it. */
void admin_groups_print(const struct admin_workers *w, const struct admin_choice *choice);

#endif
