/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads libfarcall-etcd.so. Any thread but a poller. */
#include "control/etcd_module.h"

#include "nic/module_dir.h" /* FAR_MODULE_DIR: where meson installs modules */

const struct etcd_ops *etcd_module_load(struct far_err *err)
{
	/* As installed; in the build tree for the library, a program, a test. */
	static const char *const folders[] = {
		"farcall", "etcd", "engine/etcd", "../engine/etcd", "../../engine/etcd", "../../../engine/etcd"};
	static const struct module_wanted wanted = {
		.file = "libfarcall-etcd.so",
		.symbol = "far_etcd_module",
		.abi = ETCD_MODULE_ABI,
		.folders = folders,
		.folders_n = sizeof folders / sizeof *folders,
		.dir = FAR_MODULE_DIR,
		.status = FAR_UNSUPPORTED,
		.purpose = "etcd:// needs the module",
		.remedy = "install the package farcall-etcd, or build Farcall with libcurl4-openssl-dev and "
			  "libjansson-dev, or set FAR_MODULE_DIR",
	};
	const struct etcd_module *m = module_load(&wanted, err);
	return m ? m->ops : NULL;
}
