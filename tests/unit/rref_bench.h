/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets about references, made by hand, from two other workers, PEER and OTHER; and what a shard is to say to them.
 */
#ifndef RREF_BENCH_H
#define RREF_BENCH_H

#include "features/references/rref.h"
#include "shard_bench.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <string.h>

#define OUR_LIFE   rref_life(SELF, BENCH_LIFE)
#define LIFE_OF(w) rref_life(w, 5)
#define ID(w, n)   rref_name(LIFE_OF(w), 0, 0, n)

static unsigned runs;
static struct far_rref *seen;

/* Answers with the number of references that its owner knows of. */
static inline enum far_status count_known(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	int64_t known = 0;
	(void)user;
	runs++;
	for (size_t i = 0; i < n; i++) {
		seen = args[i].u.rref;
		known += rref_known(seen) && !seen->failed;
	}
	struct far_val v = far_int(known);
	return far_return(req, &v);
}

static inline void add_function(const char *signature)
{
	struct far_function f = {signature, FAR_KIND_INLINE, count_known, NULL};
	runs = 0;
	cr_assert_eq(registry_add(&registry, &f, NULL), FAR_OK);
}

static inline struct rref_function hashes(const char *function)
{
	const struct function *fn = registry_find(&registry, function);
	cr_assert_not_null(fn);
	return (struct rref_function){fn->signature.name_hash, fn->signature.canonical_hash};
}

/* ---- requests of PEER's and OTHER's ---- */

static inline void from(uint32_t nic, uint16_t fn, uint32_t number, const void *body, size_t len)
{
	put(nic, request(fn, number, UINT64_MAX), body, len);
	passes(2);
}

static inline void make(uint32_t number, uint32_t worker, uint64_t id, uint64_t fork, uint64_t life)
{
	uint8_t body[FAR_LINE_PAYLOAD + sizeof(struct rref_remote)];
	size_t len = two_ints(body, 3, 4);
	struct rref_remote m = {
		.owner = life, .id = ID(worker, id), .fork = ID(PEER, fork), .function = hashes("t::add")};
	memcpy(body + len, &m, sizeof m);
	from(NIC_PEER, RREF_REMOTE, number, body, len + sizeof m);
}

static inline void fetch(uint32_t nic, uint32_t number, uint32_t worker, uint64_t id)
{
	struct rref_fetch f = {OUR_LIFE, ID(worker, id)};
	from(nic, RREF_FETCH, number, &f, sizeof f);
}

static inline void word(uint32_t nic, uint32_t number, enum rref_kind kind, uint32_t status, uint64_t owner,
			struct rref_id id, struct rref_id fork)
{
	struct rref_op op = {(uint32_t)kind, status, owner, id, fork};
	from(nic, RREF_CONTROL, number, &op, sizeof op);
}

/* ---- what is expected ---- */

static inline const struct fake_packet *sent_to(uint32_t nic, struct shm_head *h, enum head_type type)
{
	const struct fake_packet *p = fake_queue_sent(queue, h);
	cr_assert_not_null(p, "nothing was sent");
	cr_assert_eq(p->peer, nic);
	if (h->type != type && h->type == HEAD_ERROR)
		cr_assert_fail("an error: %.*s", (int)p->body_len, (const char *)fake_body(p));
	cr_assert_eq(h->type, type);
	return p;
}

static inline void expect_said(uint32_t nic, uint32_t number, enum far_status status)
{
	struct shm_head h;
	const struct fake_packet *p = sent_to(nic, &h, HEAD_REPLY);
	cr_assert_eq(h.call, number);
	cr_assert_eq(p->body_len, 1u);
	cr_assert_eq(*(const uint8_t *)fake_body(p), (uint8_t)status);
}

static inline void expect_seven(uint32_t nic, uint32_t number)
{
	struct shm_head h;
	const struct fake_packet *p = sent_to(nic, &h, HEAD_REPLY);
	cr_assert_eq(h.call, number);
	cr_assert_eq(p->body_len, 3u);
	cr_assert(memcmp(fake_body(p), "\x01\x02\x0e", 3) == 0);
}

static inline void expect_made(uint32_t number)
{
	expect_reply(number, NULL, 0);
}

/* The words that leave in one batch: how many, the first in *op. Its head is to be answered with. */
static inline unsigned expect_words(uint32_t nic, struct rref_op *op, struct shm_head *h)
{
	const struct fake_packet *p = sent_to(nic, h, HEAD_REQUEST);
	cr_assert_eq(h->fn, RREF_CONTROL);
	cr_assert_eq(p->body_len % sizeof *op, 0u);
	memcpy(op, fake_body(p), sizeof *op);
	return (unsigned)(p->body_len / sizeof *op);
}

static inline void say(uint32_t nic, struct shm_head h, const uint8_t *statuses, size_t n)
{
	h.type = HEAD_REPLY;
	h.fn = 0;
	h.flags = 0;
	put(nic, h, statuses, n);
	passes(2);
}

static inline void expect_word(uint32_t nic, enum rref_kind kind, struct rref_id fork, enum far_status said)
{
	struct rref_op op;
	struct shm_head h;
	cr_assert_eq(expect_words(nic, &op, &h), 1u);
	cr_assert_eq(op.kind, (uint32_t)kind, "%u instead of %u", op.kind, (unsigned)kind);
	cr_assert(op.fork.life == fork.life && op.fork.number == fork.number);
	say(nic, h, &(uint8_t){(uint8_t)said}, 1);
}

static inline void expect_empty(void)
{
	passes(2);
	expect_nothing();
	cr_assert_eq(shard->rrefs->records.n, 0u);
	cr_assert_eq(shard->rrefs->forks.n, 0u);
	cr_assert_null(shard->rrefs->list);
	cr_assert_eq(shard->rrefs->notes_n, 0u);
}

/* ---- requests with references ---- */

static inline size_t payload(uint8_t *body, const struct rref_wire *w, size_t n, const char *function)
{
	struct rref_function f = hashes(function);
	size_t len = 0;
	bool wide = 1 + n * (1 + RREF_WIRE_BYTES) > FAR_LINE_PAYLOAD;
	body[len++] = (uint8_t)(n | (wide ? 0x80 : 0));
	for (size_t i = 0; i < n; i++) {
		body[len++] = 10;
		rref_put(body + len, &w[i]);
		len += RREF_WIRE_BYTES;
	}
	memcpy(body + len, &f, sizeof f);
	return len + sizeof f;
}

static inline struct rref_wire wire(uint32_t owner, uint64_t id, uint64_t fork)
{
	return (struct rref_wire){.owner = owner == SELF ? OUR_LIFE : LIFE_OF(owner),
				  .id = ID(PEER, id),
				  .fork = ID(PEER, fork),
				  .types = 4};
}

static inline void call_with(uint32_t number, const struct rref_wire *w, size_t n)
{
	uint8_t body[512];
	size_t len = payload(body, w, n, "t::known");
	from(NIC_PEER, RREF_CALL, number, body, len);
}

static inline void expect_ran(uint32_t number, int64_t known)
{
	struct shm_head h;
	uint8_t want[3] = {1, 2, (uint8_t)(2 * known)};
	const struct fake_packet *p = sent_to(NIC_PEER, &h, HEAD_REPLY);
	cr_assert_eq(h.call, number);
	cr_assert(p->body_len == 3 && memcmp(fake_body(p), want, 3) == 0);
	cr_assert_eq(runs, 1u);
}

#endif
