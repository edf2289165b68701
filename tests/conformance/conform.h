/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Conformance tests: one Criterion test for each test of the reference, on four workers, each a process of its own.
 *
 * All four run the same body at once, so each is caller and callee: peer(1) is whom it calls as a rule. A worker of
 * CONFORM has joined when its body begins, and leaves after it: nothing of a reference may be left anywhere then. One
 * of CONFORM_BARE does all of that itself. A check that fails ends its worker, and the test with what every worker
 * said; a worker that does not come to its end is named with the line it hangs in.
 *
 * The macros note the line they are in, for that. They and `err` are for the thread that runs the body; handlers and
 * other threads have errors of their own.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <criterion/criterion.h>
#include <farcall/farcall.h>
#include <stdatomic.h>

enum {
	WORLD = 4,
	CONFORM_DEADLINE_S = 75, /* of a test; Criterion's own comes later */
	CONFORM_GUARD_S = 90,
	CONFORM_JOINED = 0,
	CONFORM_ALONE = 1 /* the body joins and leaves, if at all */
};

typedef void conform_body(void);

/** Runs the body in four workers and fails the calling test with what went wrong. */
void conform_run(const char *group, const char *name, conform_body *body, int how);

#define CONFORM_TEST(group, name, how)                                                                                 \
	static void group##_##name##_body(void);                                                                       \
	Test(group, name, .timeout = CONFORM_GUARD_S)                                                                  \
	{                                                                                                              \
		conform_run(#group, #name, group##_##name##_body, how);                                                \
	}                                                                                                              \
	static void group##_##name##_body(void)
#define CONFORM(group, name)      CONFORM_TEST(group, name, CONFORM_JOINED)
#define CONFORM_BARE(group, name) CONFORM_TEST(group, name, CONFORM_ALONE)

/* ---- in a worker ---- */

extern struct far_agent *agent;
extern struct far_err err;
extern int rank;
/** What a worker offers to the others, and the options that it joins with. Bodies of CONFORM_BARE may change these. */
extern struct far_opts conform_opts;

/** "worker<rank>"; peer(): of the rank `distance` further on. Valid as long as the process runs. */
const char *conform_name(int of);
const char *peer(int distance);
int peer_rank(int distance);

void conform_at(const char *here);
__attribute__((format(printf, 2, 3))) _Noreturn void conform_fail(const char *here, const char *format, ...);
void conform_want(const char *here, const char *what, enum far_status got, enum far_status want);
void conform_error_has(const char *here, const char *part);

#define CONFORM_STR_(x) #x
#define CONFORM_STR(x)  CONFORM_STR_(x)
#define HERE            __FILE__ ":" CONFORM_STR(__LINE__)

#define HOLDS(condition)                                                                                               \
	do {                                                                                                           \
		conform_at(HERE);                                                                                      \
		if (!(condition))                                                                                      \
			conform_fail(HERE, "%s does not hold", #condition);                                            \
	} while (0)
/** The call, which fills `err`, ends well; ends with this class. */
#define OK(call)            conform_want(HERE, #call, (conform_at(HERE), (call)), FAR_OK)
#define FAILS(status, call) conform_want(HERE, #call, (conform_at(HERE), (call)), status)
/** The last error has this in its text. */
#define SAYS(part) conform_error_has(HERE, part)

/** Calls that must succeed; arguments as FAR_ARGS(…) or FAR_NOARGS. */
struct far_val conform_call(const char *here, const char *to, const char *fn, const struct far_val *args, size_t n);
struct far_future *conform_async(const char *here, const char *to, const char *fn, const struct far_val *args,
				 size_t n);
struct far_rref *conform_remote(const char *here, const char *to, const char *fn, const struct far_val *args, size_t n);
struct far_val conform_wait(const char *here, struct far_future *f);
struct far_val conform_fetch(const char *here, struct far_rref *r);
#define CALL(to, fn, ...)   conform_call(HERE, to, fn, __VA_ARGS__)
#define ASYNC(to, fn, ...)  conform_async(HERE, to, fn, __VA_ARGS__)
#define REMOTE(to, fn, ...) conform_remote(HERE, to, fn, __VA_ARGS__)
#define WAIT(f)             conform_wait(HERE, f)
#define FETCH(r)            conform_fetch(HERE, r)
/** Waits for it, and gives it back; fetches it, and gives the reference back. */
struct far_val conform_take(const char *here, struct far_future *f);
struct far_val conform_last(const char *here, struct far_rref *r);
#define TAKE(f)       conform_take(HERE, f)
#define FETCH_LAST(r) conform_last(HERE, r)
/** A call that fails with this class, whether the function ran or not. */
void conform_refused(const char *here, enum far_status want, const char *to, const char *fn, const struct far_val *args,
		     size_t n);
#define CALL_FAILS(status, to, fn, ...) conform_refused(HERE, status, to, fn, __VA_ARGS__)
/** Waiting for it, which is given back, or fetching it, fails with this class. */
void conform_wait_fails(const char *here, enum far_status want, struct far_future *f);
void conform_fetch_fails(const char *here, enum far_status want, struct far_rref *r);
#define TAKE_FAILS(status, f)  conform_wait_fails(HERE, status, f)
#define FETCH_FAILS(status, r) conform_fetch_fails(HERE, status, r)

/** What a value must be; it is finished. */
void conform_int(const char *here, struct far_val v, int64_t want);
void conform_text(const char *here, struct far_val v, const char *want);
void conform_none(const char *here, struct far_val v);
#define IS_INT(v, want)  conform_int(HERE, v, want)
#define IS_TEXT(v, want) conform_text(HERE, v, want)
#define IS_NONE(v)       conform_none(HERE, v)

/** Memory for the arguments of this test; never given back. */
void *conform_memory(size_t bytes);
/** A dense f32 tensor of rows × cols, each element x. */
struct far_val full(size_t rows, size_t cols, double x);
void conform_full(const char *here, struct far_val v, size_t rows, size_t cols, double x);
#define IS_FULL(v, rows, cols, x) conform_full(HERE, v, rows, cols, x)

/**
 * What the reference's tests compute with: dense ones as of torch.ones, and sparse ones as lists of three buffers
 * (indices, values, shape), each `x` times a fixed one. Both add up: make(a) + make(b) is make(a + b).
 */
struct operands {
	struct far_val (*make)(double x);
	void (*is)(const char *here, struct far_val v, double x);
};
extern const struct operands dense, sparse;

/** Naps for so long, serving nothing itself. */
void conform_nap(uint64_t ns);
/** Waits until condition(user) holds, by the deadline of the test. */
void conform_until(const char *here, bool (*condition)(void *user), void *user);
#define UNTIL(condition, user) conform_until(HERE, condition, user)
/** Until nothing of any reference is left here. */
void conform_flushed(const char *here);

/** In a process that the worker has forked before it joined: goes on as the worker of this rank. */
void conform_become(int rank);
/** Joins and leaves as CONFORM does. */
void conform_join(const char *here);
void conform_leave(const char *here);
/** Checks the NICs of an agent that the body has made in another way. */
void conform_joined(const char *here);
/** A port that is this worker's until it ends, and a store's address there: for groups beside the test's own. */
int conform_own_port(const char *here);
const char *conform_own_url(const char *here);
/** From here on this worker may end by a signal, or without leaving. */
void conform_may_die(void);
/** This worker may leave with references that somebody holds. */
void conform_may_leak(void);
/** A number per worker that all workers of the test see, 0 at first: sets this worker's; reads somebody's. */
void conform_publish(const char *here, int64_t number);
int64_t conform_published(int of);
/** Sets this worker's number to 1, then waits until every worker's is. Once per test. */
void conform_meet(const char *here);
/** Is the worker of this rank on the caller's machine, as all of them are but in a group that is divided. */
bool conform_is_here(int of);
/** The address of the store of the test. */
const char *conform_host(void);
/** Its worker has reported it on stderr up to now. For the calling worker only. */
bool conform_stderr_has(const char *part);

#endif
