/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What clients of a simulated parameter server did and saw, and checks of it. One thread, like the simulation.
 *
 * A server loses its rows when its process ends, so every check is of one incarnation of one server. An operation that
 * began and ended in a incarnation counts in it exactly once; one that overlaps a crash counts in either, both or none.
 */
#ifndef TESTS_SIM_PS_HISTORY_H
#define TESTS_SIM_PS_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_NEVER UINT64_MAX

enum {
	PS_SERVERS = 2,
	PS_CLIENTS = 3,
	PS_INCARNATIONS_MAX = 8,
	PS_SUM_KEYS = 40,
	PS_COUNT_KEYS = 4,
	PS_AGED_KEYS = 6,
	PS_VALUE_KEYS = 8
};

#define PS_TTL_MS UINT64_C(200)

enum ps_event_kind {
	PS_ADD,    /* a push to a sum: `value` */
	PS_COUNT,  /* a push_pull of a counter that was answered at once: `value` is the count after it */
	PS_TRIED,  /* one that was repeated, or never answered: its reply has a later count */
	PS_READ,   /* a pull of a counter: `value` */
	PS_WRITE,  /* an assignment in the table with TTL */
	PS_SEEN,   /* a pull there that found the row */
	PS_GONE,   /* one that did not */
	PS_PUT,    /* an assignment of a value, whose number is that of this event */
	PS_PASSED, /* one of a key that a later position of the same assignment has */
	PS_GOT     /* a pull of a value: `value` is its number; PS_NEVER: there was none */
};

struct ps_event {
	enum ps_event_kind kind;
	unsigned key;        /* of its table, from 0 on */
	unsigned client;     /* of ADD */
	uint64_t begin, end; /* ns; PS_NEVER: it was not answered */
	uint64_t value;
};

/** A process of a server, from the moment it served. */
struct ps_incarnation {
	uint64_t from, to; /* PS_NEVER: it serves */
};

struct ps_history {
	struct ps_event *event;
	size_t n, room;
	struct ps_incarnation incarnation[PS_SERVERS][PS_INCARNATIONS_MAX];
	unsigned incarnations[PS_SERVERS];
	unsigned shards; /* of each server */
	char failure[256];
};

/** Keys of the tables, by their numbers. */
uint64_t ps_key(unsigned number);
/** Server of a key. */
unsigned ps_server_of(const struct ps_history *h, unsigned number);

void ps_history_free(struct ps_history *h);
/** Adds an event and returns its place. */
size_t ps_note(struct ps_history *h, const struct ps_event *event);

/** The least and the greatest sum that a client's pushes of a key can have made in the last incarnation of its server.
 */
void ps_sum_range(const struct ps_history *h, unsigned key, unsigned client, uint64_t *least, uint64_t *most);

/** Checks counters, values and the table with TTL. False: h->failure says what is wrong. */
bool ps_history_check(struct ps_history *h);

#endif
