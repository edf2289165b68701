/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists the groups of this user on this host, by name and store. Main thread. */
#include "admin_group.h"

#include <stdio.h>
#include <string.h>

#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,:/"

bool admin_group_of(const struct admin_worker *w, char group[FAR_NAME_MAX], char store[ADMIN_STORE_MAX])
{
	return w->text && admin_string(w->text, "group", group, FAR_NAME_MAX) &&
	       admin_string(w->text, "store", store, ADMIN_STORE_MAX);
}

bool admin_is_chosen(const struct admin_worker *w, const struct admin_choice *choice)
{
	char group[FAR_NAME_MAX], store[ADMIN_STORE_MAX];
	return admin_group_of(w, group, store) && (!choice->group || strcmp(choice->group, group) == 0) &&
	       (!choice->store || strcmp(choice->store, store) == 0);
}

static bool is_first(const struct admin_workers *w, unsigned i, const struct admin_choice *same)
{
	for (unsigned k = 0; k < i; k++)
		if (admin_is_chosen(&w->of[k], same))
			return false;
	return true;
}

void admin_groups_print(const struct admin_workers *w, const struct admin_choice *choice)
{
	char group[FAR_NAME_MAX], store[ADMIN_STORE_MAX];
	for (unsigned i = 0; i < w->n; i++) {
		struct admin_choice same = {group, store};
		unsigned n = 0;
		if (!admin_is_chosen(&w->of[i], choice) || !admin_group_of(&w->of[i], group, store) ||
		    !is_first(w, i, &same))
			continue;
		for (unsigned k = i; k < w->n; k++)
			n += admin_is_chosen(&w->of[k], &same);
		const char *quote = strspn(store, PLAIN) == strlen(store) ? "" : "'"; /* to be copied to a shell */
		fprintf(stderr, "  --group %s --store %s%s%s   %u worker%s\n", group, quote, store, quote, n,
			n == 1 ? "" : "s");
	}
}
