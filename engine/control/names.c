/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of members for error texts. Control thread. */
#include "control/group.h"

#include <stdio.h>
#include <string.h>

#define MORE_BYTES 24 /* room for " and N more" */

void names_add(struct names *names, int rank, const char *name)
{
	char one[FAR_NAME_MAX + 40];
	int len = *name ? snprintf(one, sizeof one, "%srank %d (worker \"%s\")", names->n ? ", " : "", rank, name)
			: snprintf(one, sizeof one, "%srank %d", names->n ? ", " : "", rank);
	names->n++;
	if (names->shown + 1 < names->n || names->len + (size_t)len + MORE_BYTES > sizeof names->text)
		return;
	memcpy(names->text + names->len, one, (size_t)len + 1);
	names->len += (size_t)len;
	names->shown++;
}

const char *names_end(struct names *names)
{
	if (names->shown < names->n)
		snprintf(names->text + names->len, sizeof names->text - names->len, " and %d more",
			 names->n - names->shown);
	return names->text;
}
