/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys that end with the client that holds them: who gets them, and when. The test's thread. */
#include "store_heard.h"

#include <errno.h>

TestSuite(store_hold, .init = heard_setup, .fini = heard_teardown);

Test(store_hold, a_held_key_goes_with_its_client)
{
	watch(here, "k", 0, &heard[0]);
	request_once(remote, STORE_HOLD, "k", "b", "0:");
	request_once(remote, STORE_HOLD, "k", "bb", "0:");
	request_once(third, STORE_HOLD, "k", "c", "2:bb");
	request_once(here, STORE_HOLD, "k", "h", "2:bb");
	request_once(third, STORE_GET, "k", "", "0:bb");
	store_client_destroy(remote);
	remote = NULL;
	settle();
	HEARD(&heard[0], "k=b", "k=bb", "k-");
	request_once(third, STORE_HOLD, "k", "c", "0:");
	request_once(here, STORE_HOLD, "k", "h", "2:c");
}

Test(store_hold, what_the_server_itself_holds_nobody_gets)
{
	request_once(here, STORE_HOLD, "k", "h", "0:");
	request_once(remote, STORE_HOLD, "k", "b", "2:h");
	world->now += 10 * FAR_STORE_SILENT_NS;
	settle();
	request_once(remote, STORE_HOLD, "k", "b", "2:h");
}

Test(store_hold, a_plain_key_cannot_be_held)
{
	request_once(third, STORE_SET, "k", "x", "0:");
	request_once(remote, STORE_HOLD, "k", "b", "2:x");
	request_once(remote, STORE_DELETE, "k", "", "0:");
	request_once(remote, STORE_HOLD, "k", "b", "0:");
	/* Deleted, it is free. */
	request_once(third, STORE_DELETE, "k", "", "0:");
	request_once(third, STORE_HOLD, "k", "c", "0:");
	store_client_destroy(remote);
	remote = NULL;
	request_once(third, STORE_GET, "k", "", "0:c");
}

/* The remote client holds the key and is silent; the third one waits for it. */
static void wait_for_a_silent_holder(void)
{
	request_once(remote, STORE_HOLD, "k", "b", "0:");
	remote_stopped = true;
	send_request(third, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	settle();
}

/* The holder's machine is gone without a packet: another client gets the key after a bound. */
Test(store_hold, a_silent_holder_is_dropped)
{
	wait_for_a_silent_holder();
	send_request(here, STORE_HOLD, "k", "h", 0, 60 * SECOND, &heard[1]);
	settle();
	bool busy = false;
	cr_assert_eq(store_server_step(server, world->now, &busy), world->now + FAR_STORE_SILENT_NS);
	world->now += FAR_STORE_SILENT_NS - 1;
	settle();
	cr_assert_eq(heard[0].n + heard[1].n, 0u);
	world->now += 1;
	settle();
	cr_assert_eq(store_server_drops(server, STORE_DROP_SILENT), 1u);
	cr_assert_str_eq(heard[0].news[0], "0:");
	cr_assert_str_eq(heard[1].news[0], "2:c");
	cr_assert_eq(heard[0].n + heard[1].n, 2u);
	remote_stopped = false;
	settle();
	cr_assert_eq(store_client_connection(remote), STORE_LOST);
	request_once(third, STORE_GET, "k", "", "0:c");
}

/* A member that returns must not get what another one has held meanwhile. */
Test(store_hold, a_request_that_does_not_wait_fails_at_once)
{
	wait_for_a_silent_holder();
	send_request(here, STORE_HOLD, "k", "h", STORE_HOLD_AT_ONCE, TIME_NEVER, &heard[1]);
	settle();
	cr_assert_eq(heard[1].n, 1u);
	cr_assert_str_eq(heard[1].news[0], "2:b");
	cr_assert_eq(heard[0].n, 0u);
	send_request(here, STORE_HOLD, "free", "h", STORE_HOLD_AT_ONCE, TIME_NEVER, &heard[2]);
	settle();
	cr_assert_str_eq(heard[2].news[0], "0:");
}

/* It answers late, but it answers. */
Test(store_hold, a_slow_holder_keeps_its_key)
{
	wait_for_a_silent_holder();
	world->now += FAR_STORE_SILENT_NS - 1;
	settle();
	remote_stopped = false;
	settle();
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], "2:b");
	world->now += FAR_STORE_SILENT_NS;
	settle();
	cr_assert_eq(store_server_drops(server, STORE_DROP_SILENT), 0u);
}

Test(store_hold, who_gives_up_meanwhile_does_not_get_it)
{
	request_once(remote, STORE_HOLD, "k", "b", "0:");
	remote_stopped = true;
	send_request(third, STORE_HOLD, "k", "c", 0, SECOND, &heard[0]);
	send_request(here, STORE_HOLD, "k", "h", 0, SECOND, &heard[1]);
	settle();
	store_client_destroy(third);
	third = NULL;
	settle();
	world->now += SECOND;
	settle();
	cr_assert(heard[1].result == -ETIMEDOUT || strcmp(heard[1].news[0], "3:") == 0);
	store_client_destroy(remote);
	remote = NULL;
	settle();
	request_once(here, STORE_GET, "k", "", "1:");
}

/* The holder goes while others wait: the first has it, the others hear so, and watchers see it pass. */
Test(store_hold, a_key_passes_to_the_first_who_wants_it)
{
	watch(here, "k", 0, &heard[2]);
	wait_for_a_silent_holder();
	send_request(here, STORE_HOLD, "k", "h", 0, 60 * SECOND, &heard[1]);
	settle();
	store_client_destroy(remote);
	remote = NULL;
	settle();
	cr_assert_str_eq(heard[0].news[0], "0:");
	cr_assert_str_eq(heard[1].news[0], "2:c");
	HEARD(&heard[2], "k=b", "k=c");
}

/* The first that waits may have died meanwhile: the next one is not rejected before that is known. */
Test(store_hold, a_key_passes_on_from_a_dead_client)
{
	struct store_msg hold = {
		.op = STORE_HOLD, .id = 8, .timeout_ns = UINT64_MAX, .key = (const uint8_t *)"k", .key_len = 1};
	uint8_t f[STORE_FRAME_MAX];
	int dead = net->ops->connect(net, "h", PORT);
	request_once(remote, STORE_HOLD, "k", "b", "0:");
	remote_stopped = true;
	net->ops->send(net, dead, f, raw(f, STORE_LOGIN, "", 0));
	net->ops->send(net, dead, f, store_msg_encode(&hold, f));
	settle();
	send_request(third, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	settle();
	store_client_destroy(remote);
	remote = NULL;
	world->now += FAR_STORE_SILENT_NS - 1;
	settle();
	cr_assert_eq(heard[0].n, 0u, "decided by %s", heard[0].news[0]);
	net->ops->close(net, dead);
	settle();
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], "0:");
	request_once(here, STORE_GET, "k", "", "0:c");
}

/* The store's own process does not die before the store: the next one hears so at once. */
Test(store_hold, a_key_that_passes_to_the_server_itself_stays_there)
{
	wait_for_a_silent_holder();
	store_client_destroy(third);
	third = store_client_create(store_stream_tcp(net, "h", PORT));
	send_request(here, STORE_HOLD, "k", "h", 0, 60 * SECOND, &heard[1]);
	settle();
	heard[0].n = 0;
	send_request(third, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	settle();
	store_client_destroy(remote);
	remote = NULL;
	bool busy = false;
	store_server_step(server, world->now, &busy);
	store_client_step(third, world->now, &busy);
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], "2:h");
	settle();
	cr_assert_str_eq(heard[1].news[0], "0:");
}

Test(store_hold, undecided_holds_of_a_client_are_bounded)
{
	request_once(remote, STORE_HOLD, "k", "b", "0:");
	remote_stopped = true;
	for (int i = 0; i <= FAR_STORE_CONTESTS_MAX; i++)
		send_request(third, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	settle();
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], "4:");
}

/* Frames that a process sent before it died may arrive after the check whether it runs. */
Test(store_hold, frames_of_a_dead_process_do_not_show_that_it_runs)
{
	uint8_t f[STORE_FRAME_MAX];
	int h = net->ops->connect(net, "h", PORT);
	net->ops->send(net, h, f, raw(f, STORE_LOGIN, "", 0));
	net->ops->send(net, h, f, raw(f, STORE_HOLD, "k", 0));
	settle();
	send_request(third, STORE_HOLD, "k", "c", 0, 60 * SECOND, &heard[0]);
	settle();
	net->ops->send(net, h, f, raw(f, STORE_GET, "k", 0));
	settle();
	cr_assert_eq(heard[0].n, 0u, "decided by %s", heard[0].news[0]);
	net->ops->close(net, h);
	settle();
	cr_assert_eq(heard[0].n, 1u);
	cr_assert_str_eq(heard[0].news[0], "0:");
	request_once(here, STORE_GET, "k", "", "0:c");
}
