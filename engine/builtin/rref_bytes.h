/* SPDX-License-Identifier: BSD-3-Clause */
/** References that were written as bytes: each is kept here until a worker claims it. Any thread. */
#ifndef FAR_BUILTIN_RREF_BYTES_H
#define FAR_BUILTIN_RREF_BYTES_H

#include <farcall/rref.h>

struct rref_keep;

/** far::rref_claim(int number) -> rref. */
extern const struct far_function rref_claim_function;
#define rref_claim_name "far::rref_claim"

/** At start. NULL: no memory. */
struct rref_keep *rref_keep_create(void);
/** At stop: frees the references that nobody claimed. */
void rref_keep_destroy(struct rref_keep *k);
/** Keeps a reference to the handle, under a number. FAR_RESOURCE. Any thread. */
enum far_status rref_keep_put(struct rref_keep *k, struct far_rref *r, uint64_t *number);
/** Takes the reference of that number out: the caller's. NULL: there is none. Any thread. */
struct far_rref *rref_keep_take(struct rref_keep *k, uint64_t number);

#endif
