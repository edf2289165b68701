/* SPDX-License-Identifier: BSD-3-Clause */
/** How connections to the store begin, with keys that fit and keys that do not. The test's thread. */
#include "store_keyed.h"

TestSuite(store_admit, .init = keyed_setup, .fini = keyed_teardown);

Test(store_admit, keys_of_both_ends)
{
	const struct auth_key *same = &right, *other = &wrong;
	ends(client(&same, false, 1, "w1"), STORE_CONNECTED, 0);
	ends(client(&same, false, STORE_RANK_NONE, ""), STORE_CONNECTED, 0);
	ends(client(&other, false, 1, "w1"), STORE_LOST, -EKEYREJECTED);
	ends(client(NULL, false, 1, "w1"), STORE_LOST, -ENOKEY);
	/* It was not even sent a proof. */
	cr_assert_eq(store_server_drops(server, STORE_DROP_DENIED), 0u);
	store_server_set_key(server, NULL, NULL);
	ends(client(NULL, false, 1, "w1"), STORE_CONNECTED, 0);
	ends(client(&same, false, 1, "w1"), STORE_LOST, -EKEYREVOKED);
}

Test(store_admit, patient_client_takes_the_key_that_comes)
{
	const struct auth_key *key = NULL;
	struct store_client *c = client(&key, true, 1, "w1");
	steps(&c, 1);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTING);
	cr_assert_eq(store_client_error(c), -ENOKEY);
	key = &wrong;
	steps(&c, 1);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTING);
	cr_assert_eq(store_client_error(c), -EKEYREJECTED);
	key = &right;
	ends(c, STORE_CONNECTED, 0);
}

Test(store_admit, nothing_is_done_before_the_proof)
{
	static const enum store_op ops[] = {STORE_SET, STORE_GET, STORE_WAIT, STORE_DELETE, STORE_WATCH, STORE_HOLD};
	struct store_auth g;
	uint8_t value[STORE_FRAME_MAX];
	size_t n;
	for (size_t i = 0; i < 2 * sizeof ops / sizeof *ops; i++) {
		store_login_make(&g, &who, &random_kernel);
		int h = i & 1 ? greet(&g) : dial();
		send_request(h, ops[i / 2], NULL, 0);
		cr_assert_eq(answer(h, value, &n), -1, "%zu", i);
		cr_assert_eq(store_server_clients(server), 0u);
	}
	/* LOGIN twice, PROVE first, PROVE twice, a LOGIN of nobody. */
	store_login_make(&g, &who, &random_kernel);
	int h = greet(&g);
	send_request(h, STORE_LOGIN, g.login, g.login_len);
	cr_assert_eq(answer(h, value, &n), -1);
	h = dial();
	send_request(h, STORE_PROVE, value, AUTH_PROOF_BYTES);
	cr_assert_eq(answer(h, value, &n), -1);
	uint8_t proof[AUTH_PROOF_BYTES];
	h = greet(&g);
	store_proof_make(&g, &right, proof);
	send_request(h, STORE_PROVE, proof, sizeof proof);
	cr_assert_eq(answer(h, value, &n), STORE_OK);
	send_request(h, STORE_PROVE, proof, sizeof proof);
	cr_assert_eq(answer(h, value, &n), -1);
	h = dial();
	send_request(h, STORE_LOGIN, NULL, 0);
	cr_assert_eq(answer(h, value, &n), -1);
	cr_assert_eq(store_server_clients(server), 0u);
}
