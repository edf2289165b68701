/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of drivers, and drivers by name. The test's thread. */
#include "nic/nic.h"

#include <criterion/criterion.h>
#include <string.h>

static struct nic_err err;

Test(nic_drivers, by_name)
{
	cr_assert_eq(nic_find("shm", &err), &nic_shm_port_ops);
	cr_assert_eq(nic_find("udp", &err), &nic_udp_port_ops);
	cr_assert_eq(nic_find("lossy", &err), &nic_lossy_port_ops);
	cr_assert_null(nic_find("shmm", &err));
	cr_assert(strstr(err.text, "no NIC driver \"shmm\"") && strstr(err.text, "farcall info"), "%s", err.text);
	cr_assert_null(nic_find("", &err));
	cr_assert_null(nic_find("SHM", &err));
	cr_assert_null(nic_find("a-name-that-is-much-longer-than-any-name-of-a-driver", &err));
	cr_assert(strstr(err.text, "\"a-name-that-is-much-longer-than-any-name\""), "%s", err.text);
}

/* Those that may be selected automatically are in the same order as among all, and lossy is not one of them. */
Test(nic_drivers, selected_in_the_order_of_all)
{
	unsigned at = 0;
	for (unsigned i = 0; nic_drivers[i]; i++) {
		while (nic_names[at] && strcmp(nic_names[at], nic_drivers[i]->name) != 0)
			at++;
		cr_assert_not_null(nic_names[at], "%s", nic_drivers[i]->name);
		cr_assert_neq(nic_drivers[i], &nic_lossy_port_ops);
	}
	for (unsigned i = 0; nic_names[i]; i++) {
		err.text[0] = 0;
		cr_assert(nic_find(nic_names[i], &err) || !strstr(err.text, "no NIC driver"), "%s: %s", nic_names[i],
			  err.text);
	}
}

/* Operations that callers do not check for. */
Test(nic_drivers, none_is_missing)
{
	const struct nic_port_ops *const all[] = {&nic_shm_port_ops, &nic_udp_port_ops, &nic_lossy_port_ops};
	for (unsigned i = 0; i < 3; i++) {
		const struct nic_port_ops *o = all[i];
		cr_assert(o->probe && o->open && o->close && o->caps && o->address && o->address_text && o->reach, "%s",
			  o->name);
		cr_assert(o->stats && o->queue && o->connect && o->step && o->fd && o->drop, "%s", o->name);
		cr_assert_leq(strlen(o->name), sizeof((struct nic_addr *)0)->driver - 1);
	}
}
