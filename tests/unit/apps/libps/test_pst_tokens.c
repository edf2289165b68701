/* SPDX-License-Identifier: BSD-3-Clause */
/** Tokens of requests count once within a window. The test's thread. */
#include "apps/libps/pst_tokens.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>

TestSuite(pst_tokens);

static enum pst_token once(struct pst_tokens *t, uint64_t client, uint64_t token, uint64_t now)
{
	enum pst_token state = pst_tokens_check(t, client, token, now);
	if (state == PST_TOKEN_NEW)
		pst_tokens_done(t, client, token, now);
	return state;
}

Test(pst_tokens, a_token_counts_once_in_any_order)
{
	struct pst_tokens t;
	pst_tokens_init(&t, 10, 60, &pst_memory_default);
	cr_assert_eq(once(&t, 7, 5, 0), PST_TOKEN_NEW);
	cr_assert_eq(once(&t, 7, 5, 0), PST_TOKEN_SEEN);
	cr_assert_eq(once(&t, 7, 3, 0), PST_TOKEN_NEW);
	cr_assert_eq(once(&t, 8, 5, 0), PST_TOKEN_NEW, "another client");
	cr_assert_eq(once(&t, 7, 3, 0), PST_TOKEN_SEEN);
	cr_assert_eq(once(&t, 7, 4, 0), PST_TOKEN_NEW);
	pst_tokens_fini(&t);
}

Test(pst_tokens, a_check_alone_marks_nothing)
{
	struct pst_tokens t;
	pst_tokens_init(&t, 10, 60, &pst_memory_default);
	cr_assert_eq(pst_tokens_check(&t, 7, 5, 0), PST_TOKEN_NEW);
	cr_assert_eq(pst_tokens_check(&t, 7, 5, 0), PST_TOKEN_NEW);
	pst_tokens_fini(&t);
}

Test(pst_tokens, the_window_ends_where_it_says)
{
	struct pst_tokens t;
	pst_tokens_init(&t, 10, 60, &pst_memory_default);
	const uint64_t w = PST_TOKENS_WINDOW;
	once(&t, 1, w, 0);
	cr_assert_eq(once(&t, 1, 1, 0), PST_TOKEN_NEW, "the first of the window");
	once(&t, 1, w + 1, 0);
	cr_assert_eq(once(&t, 1, 1, 0), PST_TOKEN_OLD);
	cr_assert_eq(once(&t, 1, 2, 0), PST_TOKEN_NEW);
	once(&t, 1, 3 * w, 0);
	cr_assert_eq(once(&t, 1, 2 * w, 0), PST_TOKEN_OLD);
	cr_assert_eq(once(&t, 1, 2 * w + 1, 0), PST_TOKEN_NEW, "a bit of an older window is not taken for it");
	cr_assert_eq(once(&t, 1, UINT64_MAX, 0), PST_TOKEN_NEW);
	cr_assert_eq(once(&t, 1, UINT64_MAX, 0), PST_TOKEN_SEEN);
	cr_assert_eq(once(&t, 1, UINT64_MAX - w, 0), PST_TOKEN_OLD);
	pst_tokens_fini(&t);
}

/* Against a plain set. */
Test(pst_tokens, random_tokens)
{
	enum { CLIENTS = 5, TOKENS = 20000 };
	static uint8_t seen[CLIENTS][TOKENS + 1];
	uint64_t highest[CLIENTS] = {0}, seed = 12;
	struct pst_tokens t;
	pst_tokens_init(&t, CLIENTS, 60, &pst_memory_default);
	for (int i = 0; i < 200000; i++) {
		unsigned c = (unsigned)(draw64(&seed) % CLIENTS);
		uint64_t ahead = draw64(&seed) % 100 ? draw64(&seed) % 30 : draw64(&seed) % 1500;
		uint64_t token = highest[c] + ahead > 1300 ? highest[c] + ahead - draw64(&seed) % 1300 : 1 + ahead;
		if (token > TOKENS)
			token = TOKENS;
		enum pst_token got = once(&t, c, token, 0), want = PST_TOKEN_NEW;
		if (highest[c] >= PST_TOKENS_WINDOW && token <= highest[c] - PST_TOKENS_WINDOW)
			want = PST_TOKEN_OLD;
		else if (seen[c][token])
			want = PST_TOKEN_SEEN;
		cr_assert_eq(got, want, "client %u, token %lu, highest %lu", c, (unsigned long)token,
			     (unsigned long)highest[c]);
		if (want == PST_TOKEN_NEW) {
			seen[c][token] = 1;
			highest[c] = token > highest[c] ? token : highest[c];
		}
	}
	pst_tokens_fini(&t);
}

Test(pst_tokens, a_client_gives_its_place_only_after_its_time)
{
	struct pst_tokens t;
	pst_tokens_init(&t, 3, 60, &pst_memory_default);
	once(&t, 1, 1, 100);
	once(&t, 2, 1, 110);
	once(&t, 3, 1, 120);
	cr_assert_eq(once(&t, 4, 1, 159), PST_TOKEN_FULL);
	cr_assert_eq(once(&t, 1, 1, 159), PST_TOKEN_SEEN, "it is used again");
	cr_assert_eq(once(&t, 4, 1, 169), PST_TOKEN_FULL);
	cr_assert_eq(once(&t, 4, 1, 170), PST_TOKEN_NEW, "in the place of client 2");
	cr_assert_eq(once(&t, 1, 1, 170), PST_TOKEN_SEEN);
	cr_assert_eq(once(&t, 3, 1, 170), PST_TOKEN_SEEN);
	cr_assert_eq(t.clients, 3);
	pst_tokens_fini(&t);
}

Test(pst_tokens, many_clients_come_and_go)
{
	struct pst_tokens t;
	pst_tokens_init(&t, 500, 10, &pst_memory_default);
	for (uint64_t i = 0; i < 5000; i++)
		cr_assert_eq(once(&t, i * 77, 1, i), i < 500 || true ? PST_TOKEN_NEW : PST_TOKEN_FULL);
	for (uint64_t i = 4500; i < 5000; i++)
		cr_assert_eq(once(&t, i * 77, 1, 5000), PST_TOKEN_SEEN);
	pst_tokens_fini(&t);
}

Test(pst_tokens, without_memory_nothing_changes)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_tokens t;
	pst_tokens_init(&t, 1000, 10, &f.memory);
	for (uint64_t i = 1; i <= 100; i++) {
		for (uint64_t at = 1;; at++) {
			f.fail_at = f.gets + at;
			enum pst_token state = pst_tokens_check(&t, i, 1, 0);
			f.fail_at = 0;
			if (state == PST_TOKEN_NEW)
				break;
			cr_assert_eq(state, PST_TOKEN_NO_MEMORY);
			cr_assert_eq(t.clients, i - 1);
			for (uint64_t j = 1; j < i; j++)
				cr_assert_eq(pst_tokens_check(&t, j, 1, 0), PST_TOKEN_SEEN);
		}
		pst_tokens_done(&t, i, 1, 0);
	}
	pst_tokens_fini(&t);
	cr_assert_eq(f.blocks, 0);
}

static void *saved(const struct pst_tokens *t, uint64_t now, size_t *n)
{
	*n = pst_tokens_bytes(t);
	char *bytes = malloc(*n);
	pst_tokens_save(t, now, bytes);
	return bytes;
}

Test(pst_tokens, a_saved_window_is_the_same_elsewhere)
{
	struct pst_tokens a, b;
	pst_tokens_init(&a, 100, 60, &pst_memory_default);
	pst_tokens_init(&b, 100, 60, &pst_memory_default);
	uint64_t seed = 3;
	for (int i = 0; i < 3000; i++)
		once(&a, draw64(&seed) % 40, 1 + draw64(&seed) % 3000, 50);
	size_t n;
	void *bytes = saved(&a, 55, &n);
	cr_assert_eq(pst_tokens_load(&b, 1000, bytes, n, NULL), FAR_OK);
	for (uint64_t c = 0; c < 40; c++)
		for (uint64_t token = 1; token <= 3000; token++)
			cr_assert_eq(pst_tokens_check(&a, c, token, 50), pst_tokens_check(&b, c, token, 995));
	free(bytes);
	pst_tokens_fini(&a);
	pst_tokens_fini(&b);
}

Test(pst_tokens, two_windows_become_their_union)
{
	struct pst_tokens a, b;
	pst_tokens_init(&a, 100, 60, &pst_memory_default);
	pst_tokens_init(&b, 100, 60, &pst_memory_default);
	const uint64_t last = 2 * PST_TOKENS_WINDOW, until = PST_TOKENS_WINDOW + PST_TOKENS_WINDOW / 2;
	for (uint64_t token = 2; token <= last; token += 2)
		once(&a, 1, token, 0);
	for (uint64_t token = 3; token <= until; token += 3)
		once(&b, 1, token, 0);
	once(&b, 2, 9, 0);
	size_t n;
	void *bytes = saved(&a, 0, &n);
	cr_assert_eq(pst_tokens_load(&b, 0, bytes, n, NULL), FAR_OK);
	for (uint64_t token = 1; token <= last; token++) {
		enum pst_token want = token <= last - PST_TOKENS_WINDOW                      ? PST_TOKEN_OLD
				      : token % 2 == 0 || (token % 3 == 0 && token <= until) ? PST_TOKEN_SEEN
											     : PST_TOKEN_NEW;
		cr_assert_eq(pst_tokens_check(&b, 1, token, 0), want, "token %lu", (unsigned long)token);
	}
	cr_assert_eq(pst_tokens_check(&b, 2, 9, 0), PST_TOKEN_SEEN);
	/* The older window into the newer one: the same. */
	struct pst_tokens c;
	pst_tokens_init(&c, 100, 60, &pst_memory_default);
	for (uint64_t token = 3; token <= until; token += 3)
		once(&c, 1, token, 0);
	size_t m;
	void *older = saved(&c, 0, &m);
	cr_assert_eq(pst_tokens_load(&a, 0, older, m, NULL), FAR_OK);
	for (uint64_t token = 1; token <= last; token++)
		cr_assert_eq(pst_tokens_check(&a, 1, token, 0), pst_tokens_check(&b, 1, token, 0));
	free(bytes);
	free(older);
	pst_tokens_fini(&a);
	pst_tokens_fini(&b);
	pst_tokens_fini(&c);
}

Test(pst_tokens, bytes_that_are_damaged_are_refused)
{
	struct pst_tokens a, b;
	pst_tokens_init(&a, 100, 60, &pst_memory_default);
	pst_tokens_init(&b, 1, 60, &pst_memory_default);
	once(&a, 1, 5, 0);
	once(&a, 2, 6, 0);
	size_t n;
	unsigned char *bytes = saved(&a, 0, &n);
	for (size_t i = 0; i < n; i++) {
		bytes[i] ^= 0x10;
		cr_assert_eq(pst_tokens_load(&a, 0, bytes, n, NULL), FAR_PROTOCOL, "byte %zu", i);
		bytes[i] ^= 0x10;
	}
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(pst_tokens_load(&a, 0, bytes, i, NULL), FAR_PROTOCOL, "%zu bytes", i);
	cr_assert_eq(pst_tokens_load(&b, 0, bytes, n, NULL), FAR_RESOURCE);
	cr_assert_eq(b.clients, 0);
	free(bytes);
	pst_tokens_fini(&a);
	pst_tokens_fini(&b);
}
