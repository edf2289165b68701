/* SPDX-License-Identifier: BSD-3-Clause */
/* The first start-up steps of an agent: its options, checked and completed, and the group's key. Start and stop only.
 */
#include "agent/init.h"

#include "agent/limits.h"
#include "agent/pin.h"
#include "agent/quota.h"
#include "agent/settings.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/random.h"
#include "control/url.h"
#include "core/fiber.h"
#include "memory/physical.h"
#include "memory/region.h"

#include <stdio.h>
#include <string.h>

/* Default of max_message_bytes of a stepped agent, which must not depend on the machine. */
#define STEPPED_MESSAGE_BYTES (UINT64_C(1) << 30)

static uint64_t half_of_memory(void)
{
	uint64_t half = physical_bytes(CGROUP_SELF, CGROUP_ROOT) / 2;
	return half > FAR_MSG_EAGER_MAX ? half : FAR_MSG_EAGER_MAX;
}

/* Logs once per process that security is off. */
static void warn_open(void)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	if (!atomic_flag_test_and_set_explicit(&warned, memory_order_relaxed))
		log_line(
			FAR_LOG_WARNING,
			"security=none: the store, the ports of all NIC drivers and the sockets of shm are open to "
			"every process that reaches them, of other users and other hosts, too; set a group key instead "
			"(`farcall key`)");
}

enum far_status agent_init_key(struct init *in)
{
	struct far_agent *a = in->a;
	enum far_status status = FAR_OK;
	if (!in->opts.group)
		in->opts.group = "default";
	if (!in->env)
		status = key_choose(in->opts.key_file, in->opts.security, true, &in->key, in->err);
	else
		in->key.kind = in->env->key ? KEY_GIVEN : KEY_NONE;
	if (in->env && in->env->key)
		in->key.key = *in->env->key;
	if (!status && in->key.kind == KEY_GIVEN)
		group_key_set(&a->key, &in->key.key, in->opts.group);
	if (!status && in->key.kind == KEY_NONE && !in->env)
		warn_open();
	return status;
}

void agent_fini_key(struct far_agent *a)
{
	auth_erase(&a->key, sizeof a->key);
}

enum far_status agent_init_name(struct init *in)
{
	struct url url;
	const char *d = strstr(in->name, "%d");
	if (!d)
		return ctl_check_name(in->name, in->err);
	enum far_status status = url_parse(in->opts.init_method, in->rank, in->world, &url, in->err);
	if (!status)
		snprintf(in->expanded, sizeof in->expanded, "%.*s%d%s", (int)(d - in->name), in->name, url.rank, d + 2);
	in->name = in->expanded;
	return status ? status : ctl_check_name(in->name, in->err);
}

enum far_status agent_init_options(struct init *in)
{
	struct far_opts *o = &in->opts;
	enum far_status status = in->env ? FAR_OK : settings_read(o, in->err);
	if (!status)
		status = ports_check_checksum(o->checksum, in->err);
	if (status)
		return status;
	if (o->shards == 0)
		o->shards = 1;
	if (o->shards > FAR_SHARDS_MAX)
		return err_set(in->err, FAR_INVALID, "options: shards is %u; it must be in [1, %d]", o->shards,
			       FAR_SHARDS_MAX);
	if ((unsigned)o->progress > FAR_PROGRESS_CALLER || (unsigned)o->idle > FAR_IDLE_BUSY ||
	    (unsigned)o->connect > FAR_CONNECT_LAZY || (unsigned)o->leaks > FAR_LEAKS_FAIL)
		return err_set(in->err, FAR_INVALID,
			       "options: progress is %u, idle %u, connect %u, leaks %u; one is no value of its enum",
			       (unsigned)o->progress, (unsigned)o->idle, (unsigned)o->connect, (unsigned)o->leaks);
	status = pin_check(o, in->err);
	if (status)
		return status;
	struct far_agent *a = in->a;
	status = limits_resolve(o, &a->limits, in->err);
	if (status)
		return status;
	a->leaks = o->leaks;
	a->rref_retry_ns = o->rref_retry_ns;
	a->fiber_stack_bytes = o->fiber_stack_bytes ? o->fiber_stack_bytes : FAR_STACK_BYTES;
	if (a->fiber_stack_bytes < FAR_STACK_MIN || a->fiber_stack_bytes > FAR_STACK_MAX)
		return err_set(in->err, FAR_INVALID,
			       "options: fiber_stack_bytes is %zu; it must be in [%zu, %zu], or 0 for %zu",
			       a->fiber_stack_bytes, FAR_STACK_MIN, FAR_STACK_MAX, FAR_STACK_BYTES);
	if (o->rpc_timeout_ns == 0)
		o->rpc_timeout_ns = FAR_RPC_TIMEOUT_NS;
	if (o->init_timeout_ns == 0)
		o->init_timeout_ns = FAR_INIT_TIMEOUT_NS;
	if (o->max_message_bytes == 0)
		o->max_message_bytes = in->env ? STEPPED_MESSAGE_BYTES : half_of_memory();
	if (o->max_message_bytes < FAR_MESSAGE_LIMIT_MIN)
		return err_set(in->err, FAR_INVALID, "max_message_bytes is %llu; it must be at least %llu",
			       (unsigned long long)o->max_message_bytes, (unsigned long long)FAR_MESSAGE_LIMIT_MIN);
	if (o->max_message_bytes > FAR_MSG_BYTES_MAX)
		o->max_message_bytes = FAR_MSG_BYTES_MAX;
	in->caller = o->progress == FAR_PROGRESS_CALLER && !in->env;
	if (in->caller && o->idle == FAR_IDLE_BUSY)
		return err_set(
			in->err, FAR_INVALID,
			"options: idle is FAR_IDLE_BUSY, but no thread polls with FAR_PROGRESS_CALLER; leave one out");
	if (in->caller)
		o->progress = FAR_PROGRESS_SHARED;
	if (o->idle == FAR_IDLE_BUSY || in->env)
		o->progress = FAR_PROGRESS_DEDICATED;
	if (!in->env)
		o->idle = quota_apply(o->idle, o->shards, &a->cpu_scarce);
	future_reserve();
	if (region_reserve(in->err) == FAR_INVALID) /* without address space later calls fail with RESOURCE */
		return FAR_INVALID;
	in->a->clock = in->env ? in->env->clock : &clock_monotonic;
	in->a->progress = o->progress;
	atomic_init(&in->a->incarnation, random_next(in->env ? in->env->random : &random_kernel));
	atomic_init(&in->a->lease, TIME_NEVER);
	agent_set_timeout(in->a, o->rpc_timeout_ns);
	return FAR_OK;
}
