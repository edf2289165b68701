/* SPDX-License-Identifier: BSD-3-Clause */
/** Modules that are found, those that are not, and those of another build. $FAKE_NIC_MODULES holds them.
 * The test's thread. */
#include "nic/module.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/far-module-XXXXXX";
static struct nic_err err;

static void setup(void)
{
	if (!getenv("FAKE_NIC_MODULES"))
		cr_skip_test("FAKE_NIC_MODULES is not set: run it by `meson test nic/module`");
	cr_assert(mkdtemp(dir));
}

static void teardown(void)
{
	char command[64];
	snprintf(command, sizeof command, "rm -r %s", dir);
	cr_assert_eq(system(command), 0);
}

TestSuite(nic_module, .init = setup, .fini = teardown);

/* What loading the driver gives if this file is its module. Each is in a directory of its own: the loader knows what it
 * has loaded by its path. */
static const struct nic_port_ops *load(const char *target)
{
	static unsigned number;
	char at[48], path[96];
	snprintf(at, sizeof at, "%s/%u", dir, number++);
	snprintf(path, sizeof path, "%s/libfarcall-nic-dpdk.so", at);
	cr_assert_eq(mkdir(at, 0700), 0);
	cr_assert_eq(symlink(target, path), 0);
	cr_assert_eq(setenv("FAR_MODULE_DIR", at, 1), 0);
	err.text[0] = 0;
	return nic_module_load("dpdk", &err);
}

static const struct nic_port_ops *load_fake(const char *name)
{
	char target[512];
	snprintf(target, sizeof target, "%s/libfake_%s.so", getenv("FAKE_NIC_MODULES"), name);
	cr_assert_eq(access(target, R_OK), 0, "%s", target);
	return load(target);
}

static void refused(const char *name, const char *why)
{
	cr_assert_null(load_fake(name));
	cr_assert(strstr(err.text, why) && strstr(err.text, dir), "%s: %s", name, err.text);
	cr_assert(strstr(err.text, "install"), "%s", err.text);
}

Test(nic_module, of_this_build)
{
	const struct nic_port_ops *ops = load_fake("good");
	cr_assert(ops, "%s", err.text);
	cr_assert_str_eq(ops->name, "dpdk");
	cr_assert_eq(nic_module_load("dpdk", &err), ops, "it stays loaded");
	cr_assert_eq(nic_find("dpdk", &err), ops);
}

/* With another ABI nothing else of it is read; then sizes and version, then the name. */
Test(nic_module, of_another_build)
{
	refused("abi", "has module interface 4711");
	refused("version", "is of Farcall 9.9.9");
	refused("bytes", "with another driver interface");
	refused("empty", "has no symbol far_nic_module");
	cr_assert_null(load_fake("name"));
	cr_assert(strstr(err.text, "holds driver \"other\", not \"dpdk\""), "%s", err.text);
}

Test(nic_module, no_module)
{
	cr_assert_null(load("/etc/passwd"));
	cr_assert(strstr(err.text, "driver \"dpdk\" cannot be loaded") && strstr(err.text, dir), "%s", err.text);
	cr_assert_null(load("/nowhere/at/all"));
	cr_assert(strstr(err.text, "there is no") && strstr(err.text, "libfarcall-nic-dpdk.so (FAR_MODULE_DIR)"), "%s",
		  err.text);
	cr_assert_null(nic_module_load("verbs", &err));
	cr_assert(strstr(err.text, "driver \"verbs\" is a module") && strstr(err.text, "unset FAR_MODULE_DIR"), "%s",
		  err.text);
}

/* The path of the directory is cut, the remedy is not. */
Test(nic_module, a_directory_with_a_long_name)
{
	static char name[9000];
	memset(name, 'x', sizeof name - 1);
	name[0] = '/';
	setenv("FAR_MODULE_DIR", name, 1);
	cr_assert_null(nic_module_load("dpdk", &err));
	cr_assert(strstr(err.text, "unset FAR_MODULE_DIR or correct it"), "%s", err.text);
}
