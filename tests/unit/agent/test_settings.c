/* SPDX-License-Identifier: BSD-3-Clause */
/** Options from the environment: one of each kind, what the program sets, values that are none. The test's thread. */
#include "agent/settings.h"

#include <criterion/criterion.h>
#include <farcall/group.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;
static struct far_opts o;
static struct far_err err;

static void setup(void)
{
	static char *none[] = {NULL};
	environ = none;
	memset(&o, 0, sizeof o);
}

TestSuite(settings, .init = setup);

static void read_with(const char *name, const char *value)
{
	memset(&o, 0, sizeof o);
	setenv(name, value, 1);
	cr_assert_eq(settings_read(&o, &err), FAR_OK, "%s=%s: %s", name, value, err.text);
	unsetenv(name);
}

static void refused(const char *name, const char *value, const char *expected)
{
	char text[128];
	struct far_opts before = o;
	setenv(name, value, 1);
	cr_assert_eq(settings_read(&o, &err), FAR_INVALID, "%s=%s", name, value);
	unsetenv(name);
	snprintf(text, sizeof text, "environment variable %s is \"%s\", expected %s", name, value, expected);
	cr_assert_str_eq(err.text, text);
	cr_assert_eq(memcmp(&before, &o, sizeof o), 0, "%s was set even so", name);
}

Test(settings, each_kind)
{
	read_with("FAR_GROUP", "red");
	cr_assert_str_eq(o.group, "red");
	read_with("FAR_IDLE", "busy");
	cr_assert_eq(o.idle, FAR_IDLE_BUSY);
	read_with("FAR_PROGRESS", "caller");
	cr_assert_eq(o.progress, FAR_PROGRESS_CALLER);
	read_with("FAR_LEAKS", "fail");
	cr_assert_eq(o.leaks, FAR_LEAKS_FAIL);
	read_with("FAR_SHARDS", "4294967295");
	cr_assert_eq(o.shards, 4294967295u);
	read_with("FAR_FIBER_STACK_BYTES", "5000000000");
	cr_assert_eq(o.fiber_stack_bytes, (size_t)5000000000);
	read_with("FAR_LEASE_NS", "18446744073709551615");
	cr_assert_eq(o.lease_ns, UINT64_MAX);
	read_with("FAR_RPC_TIMEOUT_NS", "forever");
	cr_assert_eq(o.rpc_timeout_ns, FAR_FOREVER);
	read_with("FAR_PIN_CPU", "0");
	cr_assert_eq(o.pin_cpu, FAR_CPU(0));
}

/* What the program sets stays; its pin_cpus exclude a pin_cpu. Expect a value that is wrong named even so. */
Test(settings, the_program_goes_first)
{
	static const int cpus[] = {0};
	o = (struct far_opts){.group = "mine",
			      .idle = FAR_IDLE_BUSY,
			      .shards = 2,
			      .fiber_stack_bytes = 65536,
			      .rpc_timeout_ns = 5,
			      .pin_cpus = cpus,
			      .pin_cpus_n = 1};
	const struct far_opts before = o;
	setenv("FAR_GROUP", "red", 1);
	setenv("FAR_IDLE", "adaptive", 1);
	setenv("FAR_SHARDS", "3", 1);
	setenv("FAR_FIBER_STACK_BYTES", "7", 1);
	setenv("FAR_RPC_TIMEOUT_NS", "forever", 1);
	setenv("FAR_PIN_CPU", "1", 1);
	cr_assert_eq(settings_read(&o, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(memcmp(&before, &o, sizeof o), 0);
	refused("FAR_SHARDS", "3 ", "a whole number");
}

/* Expect the key that the program names kept from security=none of the environment. */
Test(settings, a_key_of_the_program)
{
	read_with("FAR_SECURITY", "none");
	cr_assert_str_eq(o.security, "none");
	o = (struct far_opts){.key_file = "/some/key"};
	setenv("FAR_SECURITY", "none", 1);
	cr_assert_eq(settings_read(&o, &err), FAR_OK);
	cr_assert_null(o.security);
}

Test(settings, empty_is_not_set)
{
	const struct far_opts none = {0};
	setenv("FAR_SHARDS", "", 1);
	setenv("FAR_IDLE", "", 1);
	setenv("FAR_LOG", "", 1);
	cr_assert_eq(settings_read(&o, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(memcmp(&none, &o, sizeof o), 0);
}

Test(settings, values_that_are_none)
{
	refused("FAR_SHARDS", "-1", "a whole number");
	refused("FAR_SHARDS", "4294967296", "a whole number");
	refused("FAR_CALLS", "0x10", "a whole number");
	refused("FAR_CALLS", "forever", "a whole number");
	refused("FAR_LEASE_NS", "18446744073709551616", "a whole number");
	refused("FAR_FIBER_STACK_BYTES", "64k", "a whole number");
	refused("FAR_PIN_CPU", "2147483647", "a whole number");
	refused("FAR_IDLE", "lazy", "adaptive, busy");
	refused("FAR_CONNECT", "AUTO", "auto, lazy");
	refused("FAR_PROGRESS", "share", "shared, dedicated, caller");
	refused("FAR_LOG", "loud", "none, error, warning, info, debug");
}
