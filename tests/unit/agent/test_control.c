/* SPDX-License-Identifier: BSD-3-Clause */
/** What the control thread of an agent waits for before it leaves, and what it reads of the agent. The test's thread,
 * which steps the agents. */
#include "agents_fixture.h"
#include "core/call.h"

#include <string.h>

static struct slow {
	struct shard_task task;
	enum agent_state seen[2];
	bool done;
} slow;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static void setup(void)
{
	static const struct far_msg_handler handler = {.id = 1, .kind = FAR_KIND_INLINE, .fn = echo};
	agents_begin(2, &(struct far_opts){.messages = &handler, .messages_n = 1});
	memset(&slow, 0, sizeof slow);
}

TestSuite(control, .init = setup, .fini = agents_end);

/* The shard of agent 0 does not run; its control thread, and the other agent, do. */
static void turns_without_a_shard(unsigned n)
{
	while (n--) {
		agents_pass(1000);
		agent_step_ctl(agents[0], clock_now(agents[0]->clock));
		agent_step(agents[1], clock_now(agents[1]->clock));
	}
	for (unsigned i = 0; i < 2; i++)
		slow.seen[i] = agent_state(agents[i]);
}

static void leave_both(void)
{
	for (unsigned i = 0; i < 2; i++)
		agent_leave(agents[i], 0);
}

static void until_left(void)
{
	for (unsigned turns = 0; turns < 200000 && agent_state(agents[0]) != AGENT_LEFT; turns++)
		agents_turn();
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(agent_state(agents[i]), AGENT_LEFT);
}

static void note_task(struct shard *s, struct shard_task *task)
{
	slow.done = true;
}

/* A task, such as that of a released reference, may lead to messages. */
Test(control, leaves_when_tasks_are_run)
{
	slow.task.run = note_task;
	shard_add_task(agents[0]->shards[0], &slow.task);
	leave_both();
	turns_without_a_shard(20000);
	cr_assert(!slow.done && slow.seen[1] == AGENT_LEAVING, "the other one has not waited");
	until_left();
	cr_assert(slow.done);
}

static void completes_slowly(void *user, const struct completion *o)
{
	cr_assert_eq(o->status, FAR_OK);
	leave_both();
	turns_without_a_shard(20000);
	slow.done = true;
}

static void call_task(struct shard *s, struct shard_task *task)
{
	const struct call_start start = {.worker = 1,
					 .fn = 1,
					 .deadline = TIME_NEVER,
					 .left = TIME_NEVER,
					 .done = completes_slowly,
					 .user = task,
					 .data = "hello",
					 .len = 6};
	cr_assert_eq(shard_call(s, &start), 0);
}

/* What the completion of a call releases may lead to messages, as tasks do. */
Test(control, leaves_when_completions_have_returned)
{
	slow.task.run = call_task;
	shard_add_task(agents[0]->shards[0], &slow.task);
	for (unsigned turns = 0; turns < 200000 && !slow.done; turns++)
		agents_turn();
	cr_assert(slow.done && slow.seen[0] == AGENT_LEAVING && slow.seen[1] == AGENT_LEAVING, "one has not waited");
	until_left();
}
