/* SPDX-License-Identifier: BSD-3-Clause */
/* The module of etcd://: loaded from where FAR_MODULE_DIR says, and refused with the remedy. The test's thread. */
#include "control/etcd_module.h"
#include "etcd_dir.h"

TestSuite(etcd_module, .init = etcd_dir_make, .fini = own_dir_remove);

static void refused(const char *part)
{
	struct far_err err = {.status = FAR_OK};
	cr_assert_null(etcd_module_load(&err));
	cr_assert_eq(err.status, FAR_UNSUPPORTED);
	cr_assert(strstr(err.text, "etcd:// needs the module"), "%s", err.text);
	cr_assert(strstr(err.text, part), "\"%s\" lacks \"%s\"", err.text, part);
}

Test(etcd_module, is_loaded_once)
{
	struct far_err err;
	etcd_dir_link(getenv("FAKE_ETCD"));
	const struct etcd_ops *ops = etcd_module_load(&err);
	cr_assert_not_null(ops, "%s", err.text);
	cr_assert_eq(etcd_module_load(&err), ops);
}

Test(etcd_module, what_is_none_is_refused)
{
	refused("libfarcall-etcd.so, which cannot be loaded");
	refused("unset FAR_MODULE_DIR or correct it");
	put("libfarcall-etcd.so", "no shared object");
	refused("libfarcall-etcd.so, which cannot be loaded");
}

/* Another shared object, with another symbol. */
Test(etcd_module, another_module_is_refused)
{
	etcd_dir_link(getenv("FAKE_NIC"));
	refused("no module of Farcall's");
	refused("install both from one build");
}
