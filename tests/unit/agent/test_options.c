/* SPDX-License-Identifier: BSD-3-Clause */
/** The options of an agent as its start completes and refuses them; its name with the rank; its key.
 * The test's thread. */
#include "agent/init.h"
#include "base/error.h"
#include "base/limits.h"
#include "core/fiber.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct far_agent agent;
static struct far_err err;
static struct init in;
static const struct auth_key key = {{1, 2, 3}};
static struct agent_env stepped = {.clock = &clock_monotonic, .random = &random_kernel, .key = &key};

static void setup(void)
{
	in = (struct init){.a = &agent, .name = "w", .rank = 2, .world = 4, .err = &err};
	in.opts.init_method = "tcp://127.0.0.1:7000";
}

TestSuite(options, .init = setup);

static void refused(const char *text)
{
	cr_assert_eq(agent_init_options(&in), FAR_INVALID, "%s", text);
	cr_assert(strstr(err.text, text), "%s", err.text);
	setup();
}

Test(options, defaults)
{
	cr_assert_eq(agent_init_options(&in), FAR_OK, "%s", err.text);
	cr_assert_eq(in.opts.shards, 1u);
	cr_assert_eq(in.opts.init_timeout_ns, FAR_INIT_TIMEOUT_NS);
	cr_assert_eq(agent.rpc_timeout_ns, FAR_RPC_TIMEOUT_NS);
	cr_assert_eq(agent.fiber_stack_bytes, FAR_STACK_BYTES);
	cr_assert_geq(in.opts.max_message_bytes, (uint64_t)FAR_MSG_EAGER_MAX);
	cr_assert_eq(agent.progress, FAR_PROGRESS_SHARED);
	cr_assert_eq(agent.lease, TIME_NEVER);
	cr_assert_neq(agent_incarnation(&agent), 0u);
	cr_assert(!in.caller);
}

/* A worker that its caller steps does not depend on the machine, nor on the environment. */
Test(options, of_a_stepped_agent)
{
	setenv("FAR_SHARDS", "3", 1);
	in.env = &stepped;
	in.opts.progress = FAR_PROGRESS_CALLER;
	cr_assert_eq(agent_init_options(&in), FAR_OK, "%s", err.text);
	cr_assert_eq(in.opts.shards, 1u);
	cr_assert_eq(in.opts.max_message_bytes, UINT64_C(1) << 30);
	cr_assert_eq(agent.progress, FAR_PROGRESS_DEDICATED);
	cr_assert(!in.caller);
}

Test(options, who_polls)
{
	in.opts.progress = FAR_PROGRESS_CALLER;
	cr_assert_eq(agent_init_options(&in), FAR_OK, "%s", err.text);
	cr_assert(in.caller);
	cr_assert_eq(agent.progress, FAR_PROGRESS_SHARED, "a waiting thread may poll, too");
	setup();
	in.opts.idle = FAR_IDLE_BUSY;
	cr_assert_eq(agent_init_options(&in), FAR_OK, "%s", err.text);
	cr_assert_eq(agent.progress, FAR_PROGRESS_DEDICATED);
	setup();
	in.opts.idle = FAR_IDLE_BUSY;
	in.opts.progress = FAR_PROGRESS_CALLER;
	refused("no thread polls with FAR_PROGRESS_CALLER; leave one out");
}

Test(options, out_of_range)
{
	in.opts.shards = FAR_SHARDS_MAX + 1;
	refused("it must be in [1, 16]");
	in.opts.connect = (enum far_connect)7;
	refused("connect 7, leaks 0; one is no value of its enum");
	in.opts.leaks = (enum far_leaks)(FAR_LEAKS_FAIL + 1);
	refused("leaks 3; one is");
	in.opts.fiber_stack_bytes = FAR_STACK_MIN - 1;
	refused("fiber_stack_bytes is");
	in.opts.fiber_stack_bytes = FAR_STACK_MAX + 1;
	refused("fiber_stack_bytes is");
	in.opts.max_message_bytes = FAR_MESSAGE_LIMIT_MIN - 1;
	refused("max_message_bytes is");
	in.opts.checksum = "maybe";
	refused("checksum is \"maybe\"; it can be \"on\", \"off\" or left out");
	in.opts.pin_cpu = -1;
	refused("pin_cpu is -1");
	in.opts.max_message_bytes = UINT64_MAX;
	cr_assert_eq(agent_init_options(&in), FAR_OK, "%s", err.text);
	cr_assert_eq(in.opts.max_message_bytes, FAR_MSG_BYTES_MAX);
}

Test(options, the_rank_in_a_name)
{
	static char name[FAR_NAME_MAX + 8];
	in.name = "node%d-%d";
	cr_assert_eq(agent_init_name(&in), FAR_INVALID, "one %%d is replaced: %s", in.name);
	in.name = "node%d-a";
	cr_assert_eq(agent_init_name(&in), FAR_OK, "%s", err.text);
	cr_assert_str_eq(in.name, "node2-a");
	in.name = "plain";
	cr_assert_eq(agent_init_name(&in), FAR_OK, "%s", err.text);
	cr_assert_str_eq(in.name, "plain");
	memset(name, 'n', FAR_NAME_MAX - 1);
	memcpy(name + FAR_NAME_MAX - 3, "%d", 3); /* the digit takes one byte less */
	in.name = name;
	cr_assert_eq(agent_init_name(&in), FAR_OK, "%s", err.text);
	in.rank = 3;
	in.name = strcat(name, "long");
	cr_assert_eq(agent_init_name(&in), FAR_INVALID, "%s", in.name);
	in.name = "w%d";
	in.rank = 9;
	cr_assert_eq(agent_init_name(&in), FAR_INVALID, "a rank of no worker");
}

/* Expect the key of the group derived, and nothing of it left. */
Test(options, key_of_the_group)
{
	static const struct group_key none;
	in.env = &stepped;
	cr_assert_eq(agent_init_key(&in), FAR_OK, "%s", err.text);
	cr_assert_eq(in.key.kind, KEY_GIVEN);
	cr_assert_str_eq(in.opts.group, "default");
	struct group_key first = agent.key;
	cr_assert_neq(memcmp(&first, &none, sizeof none), 0);
	in.opts.group = "another";
	cr_assert_eq(agent_init_key(&in), FAR_OK, "%s", err.text);
	cr_assert_neq(memcmp(&first, &agent.key, sizeof none), 0, "another group has another key");
	agent_fini_key(&agent);
	cr_assert_eq(memcmp(&agent.key, &none, sizeof none), 0);
	struct agent_env open = {.clock = &clock_monotonic};
	in.env = &open;
	cr_assert_eq(agent_init_key(&in), FAR_OK, "%s", err.text);
	cr_assert_eq(in.key.kind, KEY_NONE);
	cr_assert_eq(memcmp(&agent.key, &none, sizeof none), 0);
}
