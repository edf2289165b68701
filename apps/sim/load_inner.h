/* SPDX-License-Identifier: BSD-3-Clause */
/** What the two halves of the application share. The thread of the simulated world. */
#ifndef SIM_LOAD_INNER_H
#define SIM_LOAD_INNER_H

#include "sim/load.h"

#define LOAD_NUMBER       8u /* bytes of a call's number, before its pattern */
#define LOAD_CODE(number) ((int32_t)((number) % 1000000u + 1u))
#define LOAD_FN_ECHO      "sim::echo"
#define LOAD_FN_SLOW      "sim::slow"
#define LOAD_FN_FETCH     "sim::fetch"
#define LOAD_FN_SOME      "sim::some"
/* Has that incarnation of a worker LOAD_FN_SOME. */
#define LOAD_HAS_SOME(incarnation) ((incarnation) % 2 == 1)
#define LOAD_FN_HOLD               "sim::hold"
#define LOAD_FN_KEEP               "sim::keep"
#define LOAD_CLASS                 "sim::Box"

enum load_id {
	LOAD_ID_ECHO = 1,
	LOAD_ID_FIBER,
	LOAD_ID_SLOW,
	LOAD_ID_FAIL,
	LOAD_ID_ONEWAY,
	LOAD_ID_DEFERRED,
	LOAD_ID_NESTED
};

/** One call of an application. */
struct load_job {
	struct load_worker *w;
	const struct load_incarnation *alive;
	enum load_kind kind;
	uint32_t to;
	uint64_t timeout_ns;
	size_t number;
	uint8_t *request;
	size_t len;
	struct far_call_opts opts;
};

/** The shard that this runs on. */
uint8_t load_shard(void);
/** On a fiber: sleeps until that time, or until the wait of the fiber is cancelled. */
void load_sleep(uint64_t ns);
/** A call from inside the handler of `req` to another worker. */
enum far_status load_nested(struct load_worker *w, struct far_req *req, uint32_t depth);
/** Requests that are to be answered later: their process is gone. */
void load_forget_laters(struct load_worker *w);

/* ---- load.c ---- */

struct far_to load_to(const struct load *load, size_t number);
/** The process is gone, and its fibers are only being cleaned up. */
bool load_over(const struct load_worker *w, uint32_t incarnation);
void load_end_call(struct load_worker *w, uint32_t incarnation, size_t number, enum far_status status,
		   const struct far_err *err);
/** What becomes of a call that could not be started: BUSY, after a while, means again. */
enum far_status load_tried(const struct load_job *j, uint64_t until, enum far_status status, struct far_err *err);

/* ---- load_serve.c ---- */

/** Notes that a handler runs for the request data[0, len). false: nobody has sent it. */
bool load_arrived(struct load_worker *w, const void *data, size_t len, uint64_t *number);

/* ---- load_refs.c ---- */

/** One operation on references, by chance. */
void load_refs(const struct load_job *j);
/** Gives back all that the worker keeps. */
void load_refs_drop(struct load_worker *w);
enum far_status load_fn_hold(struct far_req *req, const struct far_val *args, size_t n, void *user);
enum far_status load_fn_keep(struct far_req *req, const struct far_val *args, size_t n, void *user);
enum far_status load_fn_box(struct far_req *req, const struct far_val *args, size_t n, void *user);
enum far_status load_box_look(struct far_req *req, void *object, const struct far_val *args, size_t n, void *user);
void load_box_free(void *object, void *user);

#endif
