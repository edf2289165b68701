/* SPDX-License-Identifier: BSD-3-Clause */
/** One end of a link in each state that a peer can have, and packets built by hand that it receives. */
#ifndef LINK_STATES_H
#define LINK_STATES_H

#include "link_bench.h"
#include "transport/port.h"

enum { FIRST = 1000 }; /* packet number that connections begin with */

/* Of end 1, which receives. */
enum state { NONE, CONNECTING, ACCEPTING, REFUSING, UNCONFIRMED, UP, DOWN, CLOSING, STATES };

enum data { WHOLE, BEGINNING, MIDDLE, END, PIECE, DATA_KINDS };

enum auth { RIGHT, WRONG_TOKEN, WRONG_LIFE, AUTHS };

struct packet {
	struct wire_head head;
	uint8_t rest[512];
	uint32_t len;
};

enum counter { NOTHING, UNKNOWN, REFUSED, ENDED, DUPLICATE, NO_MEMORY, MALFORMED };

struct expect {
	unsigned sent; /* kinds */
	enum counter counter;
	unsigned ups, downs, fails, got;
};

#define SENT(kind) (1u << WIRE_##kind)

extern const char *const state_names[], *const data_names[], *const kind_names[], *const auth_names[];

/* Of end 1, which receives. */
extern struct link_port *port;
/** Of both ends, from the next enter() on; NULL, as at first: nothing is proven. */
extern const struct group_key *states_key;
extern struct link_queue *queue;
extern struct link_peer *peer; /* NULL: there is none */
extern unsigned sent;          /* bits of kinds that it sent */
extern uint8_t hello[];        /* of end 0, as it was sent */
extern uint32_t hello_len;

/** Makes the state. From then on no time passes, and end 1 is alone: what it sends is noted and goes nowhere. */
void enter(enum state state);
/** Whatever came: when its peers are dropped and its set-ups over, nothing is left. Nothing of the test either. */
void leave(const char *what);

/** The HELLO in `packet` has a cookie of end 1, as if that had challenged it now. */
void give_cookie(uint8_t *packet);

void put_head(struct packet *k, enum wire_kind kind, enum auth auth);
/** A fragment of ten bytes, of a message of thirty that begins so that this is its beginning, middle or end. */
void put_data(struct packet *k, enum data data, uint32_t number);
/** A packet of any kind that fits the state but for `auth`; HELLO is of a new set-up. */
void build(struct packet *k, enum wire_kind kind, enum auth auth);
void receive(struct packet *k);
struct transport_stats states_stats(void);
/** And what follows is `want`, and nothing else. */
void run(struct packet *k, const struct expect *want, const char *what);

#endif
