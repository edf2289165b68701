/* SPDX-License-Identifier: BSD-3-Clause */
/** Proofs of the key: forged, repeated and reflected ones, and malformed logins. The test's thread. */
#include "store_keyed.h"

TestSuite(store_proof, .init = keyed_setup, .fini = keyed_teardown);

static void denied(int h, const uint8_t *proof, size_t len)
{
	uint8_t value[STORE_FRAME_MAX];
	size_t n;
	uint64_t before = store_server_drops(server, STORE_DROP_DENIED);
	send_request(h, STORE_PROVE, proof, len);
	int status = answer(h, value, &n);
	cr_assert(status == STORE_DENIED || status == -1, "%d", status);
	cr_assert_eq(store_server_drops(server, STORE_DROP_DENIED), before + 1);
	cr_assert_eq(store_server_clients(server), 0u);
	net->ops->close(net, h);
}

Test(store_proof, forged_repeated_and_reflected_proofs)
{
	struct store_auth g, again;
	uint8_t proof[AUTH_PROOF_BYTES], challenge[STORE_CHALLENGE_BYTES], value[STORE_FRAME_MAX];
	size_t n;
	store_login_make(&g, &who, &random_kernel);
	int h = greet(&g);
	store_proof_make(&g, &right, proof);
	send_request(h, STORE_PROVE, proof, sizeof proof);
	cr_assert_eq(answer(h, value, &n), STORE_OK);
	net->ops->close(net, h);
	answer(dial(), value, &n);
	keyed_teardown();
	keyed_setup();
	/* The same LOGIN and proof once more: the server's nonce is another. */
	again = g;
	h = greet(&again);
	cr_assert_neq(memcmp(again.server_nonce, g.server_nonce, sizeof g.server_nonce), 0);
	denied(h, proof, sizeof proof);
	/* With a wrong key; shortened; the server's own proof, which covers the same. */
	h = greet(&g);
	store_proof_make(&g, &wrong, proof);
	denied(h, proof, sizeof proof);
	h = greet(&g);
	store_proof_make(&g, &right, proof);
	denied(h, proof, sizeof proof - 1);
	h = greet(&g);
	struct store_auth turned = g;
	store_challenge_make(&turned, &right, &random_kernel, challenge);
	turned = g;
	struct auth_key own;
	struct auth_mac m;
	auth_derive(&own, &right, "store", "");
	auth_mac_begin(&m, &own, "server");
	auth_mac_add(&m, g.server_nonce, sizeof g.server_nonce);
	auth_mac_add(&m, g.login, g.login_len);
	auth_mac_end(&m, proof);
	denied(h, proof, sizeof proof);
	/* Each byte of who it says it is counts. */
	for (size_t i = AUTH_NONCE_BYTES; i < g.login_len; i++) {
		h = greet(&g);
		struct store_auth other = g;
		other.login[i] ^= 1;
		store_proof_make(&other, &right, proof);
		denied(h, proof, sizeof proof);
	}
}

Test(store_proof, login_is_checked)
{
	struct store_auth g, out;
	struct store_identity read;
	store_login_make(&g, &who, &random_kernel);
	cr_assert_eq(store_login_read(g.login, g.login_len, &out, &read), 0);
	cr_assert(read.rank == 1 && read.incarnation == 7 && !strcmp(read.group, "g") && !strcmp(read.name, "w1"));
	for (size_t len = 0; len < g.login_len; len++)
		cr_assert_eq(store_login_read(g.login, len, &out, &read), -EPROTO, "%zu", len);
	cr_assert_eq(store_login_read(g.login, g.login_len + 1, &out, &read), -EPROTO);
	struct {
		size_t at;
		uint8_t value;
	} bad[] = {{17, 4} /* rank 1025 */, {19, 0xff}, {28, 0}, {28, 255}, {29, 0}, {29, 255}, {30, 0}, {31, 0}};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		uint8_t login[STORE_LOGIN_MAX];
		memcpy(login, g.login, g.login_len);
		login[bad[i].at] = bad[i].value;
		cr_assert_eq(store_login_read(login, g.login_len, &out, &read), -EPROTO, "%zu", i);
	}
	memset(g.login + 20, 0, 8);
	cr_assert_eq(store_login_read(g.login, g.login_len, &out, &read), -EPROTO, "no incarnation");
}
