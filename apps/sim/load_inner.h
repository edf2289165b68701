/* SPDX-License-Identifier: BSD-3-Clause */
/** What the two halves of the application share. */
#ifndef SIM_LOAD_INNER_H
#define SIM_LOAD_INNER_H

#include "sim/load.h"

#define LOAD_NUMBER       8u /* bytes of a call's number, before its pattern */
#define LOAD_CODE(number) ((int32_t)((number) % 1000000u + 1u))
#define LOAD_FN_ECHO      "sim::echo"
#define LOAD_FN_SLOW      "sim::slow"
#define LOAD_FN_FETCH     "sim::fetch"

enum load_id {
	LOAD_ID_ECHO = 1,
	LOAD_ID_FIBER,
	LOAD_ID_SLOW,
	LOAD_ID_FAIL,
	LOAD_ID_ONEWAY,
	LOAD_ID_DEFERRED,
	LOAD_ID_NESTED
};

/** The shard that this runs on. */
uint8_t load_shard(void);
/** On a fiber: until that time has passed, or whoever waits for the fiber has given up. */
void load_sleep(uint64_t ns);
/** A call from inside the handler of `req` to another worker. */
enum far_status load_nested(struct load_worker *w, struct far_req *req, uint32_t depth);
/** Requests that are to be answered later: their process is gone. */
void load_forget_laters(struct load_worker *w);

#endif
