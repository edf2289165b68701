/* SPDX-License-Identifier: BSD-3-Clause */
/** Sending when the socket buffer is full, packets are refused, or the kernel has no segmentation offload.
 * The test's thread. */
#include "udp_script.h"

TestSuite(udp_send, .init = setup, .fini = teardown);

/* ---- no room ---- */

static void no_room(int error)
{
	struct nic_pkt pkts[4];
	SCRIPT(error);
	commit_row("x", 100);
	flush();
	cr_assert_str_eq(received(), "");
	cr_assert_eq(room(), UDP_SLOTS - 1);
	cr_assert_neq(udp_queue_ops.deadline(qa), UINT64_MAX);
	cr_assert_eq(udp_queue_ops.recv(qa, pkts, 4), 0u); /* tries again */
	cr_assert_eq(udp_queue_ops.deadline(qa), UINT64_MAX);
	cr_assert_str_eq(received(), "x");
	cr_assert_eq(room(), UDP_SLOTS);
	cr_assert_eq(dropped(), 0u);
}

Test(udp_send, full_socket_buffer_one_packet)
{
	no_room(EAGAIN);
}

Test(udp_send, full_device_queue_one_packet)
{
	no_room(ENOBUFS);
}

Test(udp_send, full_in_the_middle_of_a_batch)
{
	messages_max = 2;
	SCRIPT(0, EAGAIN, 0, ENOBUFS);
	for (unsigned i = 0; i < 7; i++) /* sizes that grow are messages of their own */
		cr_assert_eq(commit(peer, (uint8_t)('a' + i), 10 + i), 0);
	flush();
	cr_assert_str_eq(received(), "ab");
	flush();
	cr_assert_str_eq(received(), "cd");
	flush();
	cr_assert_str_eq(received(), "efg");
	cr_assert_eq(room(), UDP_SLOTS);
}

/* As long as the socket is full, commits do not try it; a flush does so once. */
Test(udp_send, full_and_committed_to)
{
	int full[64];
	for (unsigned i = 0; i < 64; i++)
		full[i] = EAGAIN;
	script(64, full);
	unsigned n = 0;
	while (commit(peer, 'x', 60000) == 0)
		n++;
	cr_assert_eq(n, UDP_SLOTS);
	cr_assert_eq(commit(peer, 'x', 1), -EAGAIN);
	cr_assert_eq(room(), 0u);
	cr_assert_eq(sends, 1u);
	flush();
	flush();
	cr_assert_eq(sends, 3u);
	script(0, full);
	for (unsigned i = 0; i < UDP_SLOTS && room() < UDP_SLOTS; i++) {
		flush();
		received();
	}
	cr_assert_eq(room(), UDP_SLOTS);
}

/* The ends of packets lie elsewhere until the flush has returned, sent or not. */
Test(udp_send, full_with_bytes_elsewhere)
{
	uint8_t memory[4][100];
	struct nic_tx tx;
	messages_max = 1;
	SCRIPT(0, EAGAIN, EAGAIN);
	for (unsigned i = 0; i < 4; i++) { /* sizes that grow are messages of their own */
		cr_assert_eq(udp_queue_ops.tx_reserve(qa, peer, 40 + i, &tx), 0);
		memset(tx.body, 'a' + (int)i, 10);
		memset(memory[i], 'a' + (int)i, sizeof memory[i]);
		udp_queue_ops.tx_refer(qa, &tx, memory[i], 30 + i);
		cr_assert_eq(udp_queue_ops.tx_commit(qa, &tx), 0);
	}
	flush();
	memset(memory, 'z', sizeof memory);
	cr_assert_str_eq(received(), "a");
	flush();
	cr_assert_str_eq(received(), "");
	flush();
	cr_assert_str_eq(received(), "bcd");
	cr_assert_eq(room(), UDP_SLOTS);
}

Test(udp_send, detached_while_full)
{
	SCRIPT(EAGAIN, EAGAIN);
	commit_row("ab", 100);
	cr_assert_eq(commit(other, 'c', 300), 0);
	flush();
	udp_queue_ops.detach(qa, peer);
	cr_assert_eq(dropped(), 2u);
	flush();
	cr_assert_str_eq(received(), "c");
	cr_assert_eq(room(), 0u);
	cr_assert_eq(udp_queue_ops.tx_room(qa, other), UDP_SLOTS);
}

/* ---- refused ---- */

Test(udp_send, firewall)
{
	struct nic_err err = {""};
	SCRIPT(EPERM);
	commit_row("x", 100);
	flush();
	cr_assert_eq(sends, 1u);
	cr_assert_eq(dropped(), 1u);
	cr_assert_eq(nic_udp_port_ops.reach(a, &to_b, &err), 0);
	cr_assert(strstr(err.text, "a firewall of this host forbids it"), "%s", err.text);
	commit_row("y", 100);
	flush();
	cr_assert_str_eq(received(), "y");
}

Test(udp_send, one_of_a_batch)
{
	messages_max = 1;
	SCRIPT(0, EPERM);
	cr_assert_eq(commit(peer, 'a', 10), 0);
	cr_assert_eq(commit(peer, 'b', 20), 0);
	cr_assert_eq(commit(other, 'c', 10), 0);
	flush();
	cr_assert_str_eq(received(), "ac");
	cr_assert_eq(dropped(), 1u);
	cr_assert_eq(room(), UDP_SLOTS);
}

Test(udp_send, errors_of_earlier_packets)
{
	SCRIPT(ECONNREFUSED, EHOSTUNREACH);
	commit_row("x", 100);
	flush();
	cr_assert_str_eq(received(), "x");
	SCRIPT(EMSGSIZE, ECONNREFUSED);
	commit_row("abc", 100);
	flush();
	cr_assert_str_eq(received(), "abc");
	cr_assert_eq(runs, 3u, "it stays a run");
	SCRIPT(EINTR);
	commit_row("y", 100);
	flush();
	cr_assert_str_eq(received(), "y");
	cr_assert_eq(dropped(), 0u);
}

Test(udp_send, no_route_any_more)
{
	SCRIPT(ENETUNREACH, ENETUNREACH, ENETUNREACH);
	commit_row("x", 100);
	flush();
	cr_assert_eq(dropped(), 1u);
	cr_assert_eq(room(), UDP_SLOTS);
	commit_row("y", 100);
	flush();
	cr_assert_str_eq(received(), "y");
}

/* ---- no segmentation offload ---- */

static void without_runs(unsigned n, const int *list)
{
	script(n, list);
	commit_row("abcdefgh", 100);
	flush();
	cr_assert_str_eq(received(), "abcdefgh");
	cr_assert_eq(runs, n);
	script(0, list);
	commit_row("ijkl", 100);
	flush();
	cr_assert_str_eq(received(), "ijkl");
	cr_assert_eq(runs, 0u, "it is remembered");
	cr_assert_eq(commit(other, 'm', 100), 0);
	cr_assert_eq(commit(other, 'n', 100), 0);
	flush();
	cr_assert_str_eq(received(), "mn");
	cr_assert_eq(runs, 1u, "of that place only");
	cr_assert_eq(dropped(), 0u);
}

Test(udp_send, device_without_segmentation)
{
	without_runs(1, (int[]){EIO});
}

Test(udp_send, kernel_without_segmentation)
{
	without_runs(1, (int[]){EINVAL});
}

Test(udp_send, segments_beyond_the_device)
{
	without_runs(2, (int[]){EMSGSIZE, EMSGSIZE});
}
