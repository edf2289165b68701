/* SPDX-License-Identifier: BSD-3-Clause */
/** The proof of the group's key between two ends, message by message: each is changed, repeated or sent to the other
 * end once. The test's thread. */
#include "base/group_key.h"
#include "nic/shm/shm.h"
#include "nic/shm/shm_control.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct group_key ours, others, unknown;
static struct shm_port *from, *to;
static struct shm_link *connector, *acceptor;

static void link_down(void)
{
	if (!connector)
		return;
	close(connector->fd);
	close(acceptor->fd);
	free(connector);
	free(acceptor);
	connector = acceptor = NULL;
}

/* In place of the one before. */
static void link_up(void)
{
	int ends[2];
	link_down();
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
	connector = calloc(1, sizeof *connector);
	acceptor = calloc(1, sizeof *acceptor);
	connector->fd = ends[0];
	acceptor->fd = ends[1];
	connector->remote_queue = 0x0102;
	snprintf(connector->to.sun_path, sizeof connector->to.sun_path, "%s", to->path);
}

static void setup(void)
{
	struct auth_key key = {{1, 2, 3}};
	group_key_set(&ours, &key, "group");
	key.bytes[0]++;
	group_key_set(&others, &key, "group");
	from = calloc(1, sizeof *from);
	to = calloc(1, sizeof *to);
	from->key = to->key = &ours;
	snprintf(to->path, sizeof to->path, "/run/peer/0000000000000001.sock");
	link_up();
}

static void teardown(void)
{
	link_down();
	free(from);
	free(to);
}

TestSuite(shm_proof, .init = setup, .fini = teardown);

static struct shm_control_msg message_at(const struct shm_link *link)
{
	struct shm_control_msg message;
	int fds[SHM_CONTROL_FDS];
	cr_assert_eq(shm_control_recv(link->fd, &message, fds), 1);
	cr_assert(fds[0] == -1 && fds[1] == -1 && fds[2] == -1, "descriptors come after the proof");
	return message;
}

/* The three messages up to the acceptor's judgement, each changed by `spoil` first. */
static int handshake(void (*spoil)(unsigned step, struct shm_control_msg *message))
{
	cr_assert_eq(shm_auth_begin(from, connector), 0);
	for (unsigned step = 0;; step++) {
		struct shm_link *at = step == 1 ? connector : acceptor;
		struct shm_control_msg message = message_at(at);
		if (spoil)
			spoil(step, &message);
		int error = step == 1 ? shm_challenge_take(from, at, &message) : shm_proof_take(to, at, &message);
		if (error || step == 2)
			return error;
	}
}

Test(shm_proof, both_have_the_key)
{
	cr_assert_eq(handshake(NULL), 0);
	cr_assert(connector->authenticated && acceptor->authenticated);
	cr_assert_eq(acceptor->remote_queue, 0x0102);
	/* Nothing of the key is on the wire twice: other nonces, other proofs. */
	uint8_t nonce[AUTH_NONCE_BYTES];
	memcpy(nonce, acceptor->acceptor_nonce, sizeof nonce);
	link_up();
	cr_assert_eq(handshake(NULL), 0);
	cr_assert_neq(memcmp(nonce, acceptor->acceptor_nonce, sizeof nonce), 0);
}

Test(shm_proof, another_key)
{
	to->key = &others;
	cr_assert_eq(handshake(NULL), -EKEYREJECTED);
	cr_assert(!connector->authenticated && !acceptor->authenticated);
	struct shm_control_msg message;
	int fds[SHM_CONTROL_FDS];
	cr_assert_eq(shm_control_recv(acceptor->fd, &message, fds), -EAGAIN, "no proof for one who has given none");
}

Test(shm_proof, a_key_that_is_not_known_yet)
{
	to->key = &unknown;
	cr_assert_eq(handshake(NULL), -EACCES);
	link_up();
	to->key = &ours;
	from->key = &unknown;
	cr_assert_eq(handshake(NULL), -EKEYREJECTED);
	cr_assert(!connector->authenticated && !acceptor->authenticated);
}

static unsigned at_step, at_byte;

static void flip(unsigned step, struct shm_control_msg *message)
{
	if (step == at_step)
		message->bytes[at_byte] ^= 0x10;
}

/* Every byte of every message counts. */
Test(shm_proof, every_byte)
{
	static const unsigned bytes[] = {AUTH_NONCE_BYTES, AUTH_NONCE_BYTES + AUTH_PROOF_BYTES, AUTH_PROOF_BYTES};
	for (at_step = 0; at_step < 3; at_step++)
		for (at_byte = 0; at_byte < bytes[at_step]; at_byte++) {
			cr_assert_eq(handshake(flip), -EKEYREJECTED, "byte %u of message %u", at_byte, at_step);
			cr_assert_not(acceptor->authenticated);
			link_up();
		}
}

static void other_queue(unsigned step, struct shm_control_msg *message)
{
	if (step == 0)
		message->queue ^= 0x0100;
}

static void shorter(unsigned step, struct shm_control_msg *message)
{
	if (step == at_step)
		message->len--;
}

/* A proof is of one queue at one path. */
Test(shm_proof, of_another_place)
{
	cr_assert_eq(handshake(other_queue), -EKEYREJECTED);
	link_up();
	connector->to.sun_path[5] ^= 1;
	cr_assert_eq(handshake(NULL), -EKEYREJECTED);
	for (at_step = 0; at_step < 3; at_step++) {
		link_up();
		cr_assert_eq(handshake(shorter), at_step == 2 ? -EKEYREJECTED : -EPROTO, "message %u", at_step);
	}
}

/* What the acceptor sent proves nothing at the acceptor, in this connection and in another one. */
Test(shm_proof, reflected)
{
	cr_assert_eq(shm_auth_begin(from, connector), 0);
	struct shm_control_msg auth = message_at(acceptor);
	cr_assert_eq(shm_proof_take(to, acceptor, &auth), 0);
	cr_assert(acceptor->challenged && !acceptor->authenticated);
	struct shm_control_msg challenge = message_at(connector);
	struct shm_control_msg back =
		shm_control_make(SHM_CONTROL_RESPONSE, 0, challenge.bytes + AUTH_NONCE_BYTES, AUTH_PROOF_BYTES);
	cr_assert_eq(shm_proof_take(to, acceptor, &back), -EKEYREJECTED);
	cr_assert_eq(shm_proof_take(to, acceptor, &auth), -EKEYREJECTED, "a second beginning");
	cr_assert_not(acceptor->authenticated);
}

Test(shm_proof, out_of_turn)
{
	struct shm_control_msg response = shm_control_make(SHM_CONTROL_RESPONSE, 0, "0123456789abcdef", 16);
	cr_assert_eq(shm_proof_take(to, acceptor, &response), -EKEYREJECTED, "without a challenge");
	struct shm_control_msg connect = shm_control_make(SHM_CONTROL_CONNECT, 0, NULL, 0);
	cr_assert_eq(shm_proof_take(to, acceptor, &connect), -EKEYREJECTED, "without a proof");
	cr_assert_eq(shm_challenge_take(from, connector, &connect), -EPROTO);
	/* A reject passes its reason on, if it is one. */
	struct shm_control_msg reject = shm_control_make(SHM_CONTROL_REPLY, -EACCES, NULL, 0);
	cr_assert_eq(shm_challenge_take(from, connector, &reject), -EACCES);
	reject.status = 0;
	cr_assert_eq(shm_challenge_take(from, connector, &reject), -EPROTO, "an accept before the proof");
	reject.status = INT32_MIN;
	cr_assert_eq(shm_challenge_take(from, connector, &reject), -EPROTO);
	cr_assert(!connector->authenticated && !acceptor->authenticated);
}
