/* SPDX-License-Identifier: BSD-3-Clause */
/** A shard and the thread that holds it. The test's thread, and threads that it starts. */
#include "core/call.h"
#include "core/context.h"
#include "core/shard.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>

TestSuite(core_shard, .init = shard_setup, .fini = shard_teardown);

/* A handler's name is what a wait in it is refused with, and is gone afterwards. */
Test(core_shard, the_context_is_restored)
{
	cr_assert(shard_held(shard));
	put_request(MSG_ECHO, 1, NULL, 0);
	passes(1);
	cr_assert_null(shard_in_handler());
}

#ifndef NDEBUG
static void *call_from_elsewhere(void *user)
{
	struct call_start start = {
		.worker = PEER, .deadline = UINT64_MAX, .left = UINT64_MAX, .done = take_result, .user = user};
	shard_call(shard, &start);
	return NULL;
}

/* Call the shard on a thread that does not hold it. Expect the end of the process, in debug builds. */
Test(core_shard, another_thread_ends_the_process, .signal = SIGABRT)
{
	struct result r = {0};
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, call_from_elsewhere, &r), 0);
	pthread_join(thread, NULL);
}
#endif
