/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Remote references: the shard's tables and the protocol that keeps a value while references to it exist. Shard
 * thread, but for the functions and fields marked otherwise; engine/PROTOCOL.md, "Remote references", has the states.
 *
 * A struct far_rref begins one of two structures. A struct rref_record is the owner's record of a value of this shard.
 * It is in the table of records, under its id. Each fork of another worker holds it, and so does each request that
 * makes or awaits the value, and each handle here. A struct rref_user is the fork that this worker has of a value of
 * another shard. Both stay with their home shard. Other threads take and drop references, and read the fields that
 * never change.
 */
#ifndef FAR_REFERENCES_RREF_H
#define FAR_REFERENCES_RREF_H

#include "base/list.h"
#include "core/deferred.h"
#include "core/shard.h"
#include "core/timer.h"
#include "features/features.h"
#include "features/references/wire.h"
#include "sync/future.h"
#include "value/classes.h"
#include "value/tree.h"

#include <string.h>

struct rref_open;
struct rref_wait;
struct rref_record;
struct rref_user;

/** A control message to another engine, waiting or under way. It lies in its reference, or in a buffer. */
struct rref_msg {
	struct rref_msg *next; /* session's list */
	struct rref_msg *last; /* of the first in session.msgs: the last one */
	struct shard *home;    /* its shard, for the completion of its batch */
	struct far_rref *rref; /* held, but by a DELETE, which ends it; FORK, DELETE, FAILED: a user's; RECALL: NULL */
	struct far_buf *buf;   /* its own memory; NULL: it has none */
	struct rref_id fork;
	uint8_t kind; /* enum rref_kind */
	uint8_t status;
	/* rref_again.c: failed attempts; a fault has been looked up for it; a delay has been applied */
	uint8_t tries;
	bool marked, delayed;
	uint32_t session;
	uint64_t due;
};

/** A fork: a hold of another worker on a record here. In a buffer, or in the record. */
struct rref_fork {
	struct rref_id id;
	struct rref_record *record; /* held */
	struct far_buf *buf;        /* NULL: it is in the record */
	uint32_t session;
	struct rref_fork *next, **prev; /* session's */
};

/** `user` of a call whose arguments hold references, or that reads a reference: keeps them until the call has ended. In
 * a buffer, or in the reference that the call makes. */
struct rref_call {
	call_done_fn *done;
	void *user;
	struct rref_pins *pins;
	struct far_rref *object; /* whose method is called, or whose type is read: held; NULL: none */
	void (*look)(struct far_rref *object, const struct completion *o); /* called before `done`; NULL: none */
	struct far_buf *buf;                                               /* NULL: it is in `makes` */
	struct rref_user *makes;                                           /* NULL: it makes none */
	const struct function *fn; /* for error texts; NULL: no function is called */
};

/** First member of struct rref_record and of struct rref_user. */
struct far_rref {
	struct rref_base base;
	struct shard_task enter;      /* puts it into its home's list, then ends it: never both at once */
	struct far_buf *buf;          /* its memory */
	_Atomic(struct shard *) home; /* NULL: the agent is gone */
	bool owned;                   /* it begins a record; constant */
	uint16_t types;               /* bit (1 << enum far_type): possible types of the value */
	/* Hash of the class; 0: no object, or an expected record. Received from others; rref_record.made is the real
	 * class. Written by the home, read by any thread: rref_class(). */
	_Atomic uint64_t cls;
	_Atomic(struct far_buf *) type_name; /* NULL: not read yet */
	char owner_name[FAR_NAME_MAX];
	struct far_rref *next, **prev; /* its home's; NULL: not in it */
};

/** The owner's record of a value: expected, then being made, then settled. */
struct rref_record {
	struct far_rref rref;
	struct far_future *value;
	const struct object_class *made; /* the value is an object of this class; NULL: no object */
	void *object;
	struct far_buf *why; /* text of a failure */
	size_t why_len;
	int32_t code;
	uint8_t status;            /* of the value, once settled */
	uint8_t executed;          /* likewise */
	bool expected;             /* named by a message before the request that makes it has come */
	bool settled;              /* the value or its failure is there */
	struct rref_open *awaited; /* requests that wait for the value */
	uint32_t forks_n;
	struct rref_fork first; /* the first of its forks; free while `first.record` is NULL */
};

/** This worker's fork of a value that another shard owns. */
struct rref_user {
	struct far_rref rref;
	struct rref_id fork;
	bool failed;              /* the value was not made, or the owner did not know the reference */
	bool owner_notified;      /* `failed`, and the owner was sent FAILED and has a fork, to be deleted */
	bool counted;             /* in unknown_n */
	struct far_future *known; /* done when the owner has confirmed the fork, or with the reason why not */
	struct far_future *own;   /* far_rref_of(): the value, for this handle; NULL: the owner has it */
	struct rref_msg msg, accept;
	uint32_t session;        /* with the owner */
	uint32_t accept_session; /* of the sender of the result, + 1; 0: no ACCEPT is owed */
	struct rref_call making; /* the call that makes the value */
	struct rref_wait *waits; /* requests that must not run before `known` is done */
};

/** The record that it begins; NULL: it is a user's. Any thread. */
static inline struct rref_record *rref_as_record(const struct far_rref *r)
{
	static_assert(offsetof(struct rref_record, rref) == 0, "a record begins with its reference");
	return r->owned ? (struct rref_record *)(uintptr_t)r : NULL;
}

/** The user's fork that it begins; NULL: it is a record. Any thread. */
static inline struct rref_user *rref_as_user(const struct far_rref *r)
{
	static_assert(offsetof(struct rref_user, rref) == 0, "a user's fork begins with its reference");
	return r->owned ? NULL : (struct rref_user *)(uintptr_t)r;
}

/** `name` may be cut; the array was all zeroes. */
static inline void rref_owner_is(struct far_rref *r, const char *name)
{
	memcpy(r->owner_name, name, strnlen(name, sizeof r->owner_name - 1));
}

static inline uint64_t rref_class(const struct far_rref *r)
{
	return atomic_load_explicit(&r->cls, memory_order_relaxed);
}
static inline void rref_class_set(struct far_rref *r, uint64_t cls)
{
	atomic_store_explicit(&r->cls, cls, memory_order_relaxed);
}

/** Holds the references of a result until the receiver confirms that their owners have its forks. In a buffer. */
struct rref_pins {
	struct far_buf *buf;
	uint64_t first; /* number of the first fork; they follow each other */
	uint32_t n, left;
	struct rref_pins *next, **prev; /* session's */
	struct far_rref *at[];          /* held; NULL: confirmed */
};

/** The references of a message that is being written: names a fork for each, and holds it. `put_ctx` of the plan. */
struct rref_sharing {
	struct rref_pins *pins;
	uint64_t incarnation;
	unsigned creator;
};

enum rref_purpose { RREF_TO_CALL, RREF_TO_MAKE, RREF_TO_FETCH, RREF_TO_METHOD, RREF_TO_TYPE };

/** A request that is open for the sake of references: its arguments are not known to their owners yet, its result makes
 * a value, or it awaits one. In a buffer, with the body. */
struct rref_open {
	struct shard_task task; /* runs it */
	struct far_buf *buf;
	struct far_deferred *record;
	struct rref_record *value;      /* to make or to fetch: held */
	struct rref_record *object;     /* of the method: held; its `object` is read when the handler runs */
	struct rref_open *next, **prev; /* of the record that it awaits; NULL: none */
	uint8_t purpose;                /* enum rref_purpose */
	bool over;                      /* its caller no longer waits */
	bool started;                   /* the handler has the record */
	bool unchecked;                 /* the overload is chosen here, by the arguments */
	bool refused;                   /* none fits: the record has the answer */
	uint8_t failed;                 /* enum far_status: the owner of an argument does not have it */
	uint64_t deadline;
	struct rref_id fork;  /* to make: the maker's */
	uint32_t unknown;     /* references of the arguments that their owners have not confirmed */
	struct far_buf *held; /* holds them, until the handler does */
	const char *name;
	uint32_t from, from_shard;
	uint64_t len;
	alignas(64) uint8_t body[];
};

struct rref_wait {
	struct rref_wait *next;
	struct far_buf *buf;
	struct rref_open *open;
};

/** Open addressing by id, half full at most. */
struct rref_table {
	struct rref_slot {
		struct rref_id id;
		void *at; /* NULL: free */
	} * slots;
	uint32_t slots_n, n;
};

/** References that were left at the end. Several shards write. */
struct rref_leaks {
	_Atomic unsigned named_n;
	char first[FAR_ERR_TEXT_MAX - 96]; /* text of the first one that was reported */
	bool serves;                       /* this worker served: what it holds of its own values is no leak */
	bool lost; /* a peer was lost, or left at its deadline: what such peers held is no leak */
};

/** Control messages that wait equally long, so that the first is due first. */
struct rref_delayed {
	struct rref_msg *first, *last;
};

#define RREF_DELAYED_QUEUES 6u

struct rref_shard {
	struct rref_table records, forks;
	struct far_rref *list;       /* all that have their home here */
	struct far_rref *last;       /* at the end: records of objects, held until no handler runs any more */
	struct rref_record *calling; /* whose inline method runs */
	struct shard_task *releasing, **releasing_last; /* references without a hold, in order */
	struct far_buf *spare;                          /* for a struct rref_open without a body */
	_Atomic uint64_t count;                         /* names given; any thread */
	/* Receives the report of leaks after an orderly shutdown; NULL: no report */
	_Atomic(struct rref_leaks *) leaks;
	_Atomic bool leaving;   /* far_shutdown() has begun: what peers hold whose sessions end is kept for it */
	struct rref_left *left; /* that */
	uint32_t left_n;
	_Atomic uint64_t unknown_n;   /* any thread: users that their owners have not confirmed, or not given up */
	_Atomic uint64_t releasing_n; /* in `releasing`, or being run */
	_Atomic uint64_t owned_n, users_n, forks_n, msgs_n; /* any thread reads them */
	struct shard_timer again;                           /* retries control messages that found no room */
	bool retry_armed;
	struct rref_delayed
		late[RREF_DELAYED_QUEUES]; /* control messages that are sent later: [0] on purpose, else by failures */
	uint32_t late_n;
	struct shard_timer due_timer;
	uint64_t due_at; /* when the first is due; 0: none is */
	struct rref_op batch[RREF_OPS_MAX];
};

/* rref_table.c */
bool rref_table_init(struct rref_table *t, uint32_t slots);
void rref_table_free(struct rref_table *t);
void *rref_table_find(const struct rref_table *t, struct rref_id id);
/** false: it is half full. */
bool rref_table_put(struct rref_table *t, struct rref_id id, void *at);
void rref_table_remove(struct rref_table *t, struct rref_id id);

/* rref.c */
bool rref_shard_init(struct shard *s);
void rref_shard_free(struct shard *s);
/** Takes names, one after the other; returns the first count. Any thread. */
uint64_t rref_names(struct shard *s, uint32_t n);
static inline struct rref_id rref_name(uint64_t incarnation, unsigned creator, unsigned owner_shard, uint64_t count)
{
	return (struct rref_id){incarnation, (uint64_t)creator << 56 | (uint64_t)owner_shard << RREF_COUNT_BITS |
						     (count & RREF_COUNT_MASK)};
}
/** A user's fork that is to be at home with `s`, held once; NULL: no memory. Any thread. */
struct rref_user *rref_new(struct shard *s, const struct rref_wire *w);
/** Ends it before another thread or worker has it. */
void rref_discard(struct rref_user *u);
/** Ends it: it has no hold. */
void rref_end(struct shard *s, struct rref_user *u);
/** Takes it into the home's list. Any thread, once. */
void rref_enter(struct far_rref *r);
/** The record of an id, held, as one that is expected if there is none yet; NULL: no room. */
struct rref_record *rref_record(struct shard *s, struct rref_id id);
/** The same, held, only if there is one. */
struct rref_record *rref_find(struct shard *s, struct rref_id id);
/** Settles the record, with its value or a failure. `tree`: o->buf is a tree. Once; later ones are dropped. */
void rref_settle(struct shard *s, struct rref_record *r, const struct completion *o, bool tree);
/** A fork that a session has. false: no room. */
bool rref_fork_add(struct shard *s, struct rref_record *r, struct rref_id fork, uint32_t session);
void rref_fork_end(struct shard *s, struct rref_fork *f);
/** True once its owner has confirmed it, or never will. */
static inline bool rref_known(const struct far_rref *r)
{
	return r->owned || future_done(rref_as_user(r)->known);
}
/** The worker is lost, and its session with it: ends its holds here, and the control messages to it. */
void rref_session_down(struct shard *s, struct session *se);
/* rref_recall.c */
/** The session is down, and its worker still a member: forks and control messages stay. */
void rref_session_lost(struct shard *s, struct session *se);
/** The answer to a RECALL; its message ends with it. */
void rref_recalled(struct shard *s, struct rref_msg *msg, enum far_status status);
/** A RECALL of the peer's: OK, or BUSY while some reference waits for its owner's answer. */
enum far_status rref_on_recall(const struct shard *s, const struct session *se, const struct rref_op *op);
/* rref_leak.c */
/** Names one that is still here. */
void rref_leak_report(const struct shard *s, const struct far_rref *r, struct rref_leaks *leaks);
/** Names what a peer holds of ours; `leaks` NULL: does nothing. */
void rref_leaks_of(const struct shard *s, const struct session *se, struct rref_leaks *leaks);
/** Keeps that, its session being about to end. */
void rref_leaks_keep(struct shard *s, const struct session *se);
/** Names what was kept, and forgets it; `leaks` NULL: only that. */
void rref_leaks_left(struct shard *s, struct rref_leaks *leaks);
/** The end of the shard: prints to stderr what it holds of others and others hold of it. */
void rref_close(struct shard *s);
/** Ends the references in `releasing`; returns how many. */
unsigned rref_release_all(struct shard *s);

/* rref_control.c: control messages between engines */
/** Sends the message with the next batch. */
void rref_msg_send(struct shard *s, uint32_t session, struct rref_msg *msg);
/** The same for one that was delayed. */
void rref_msg_resend(struct shard *s, struct rref_msg *msg);
/** Ends a message: it was answered, or never will be. */
void rref_msg_done(struct shard *s, struct rref_msg *msg, enum far_status status, const char *text);
void rref_msgs_drop(struct shard *s, struct session *se, enum far_status status);
/** A batch of another engine's. */
void rref_control(struct far_req *req, const uint8_t *body, uint64_t len);
/** Sends FORK, DELETE or FAILED of a user's fork: its message is free. */
void rref_user_send(struct shard *s, struct rref_user *u, enum rref_kind kind, enum far_status status);
/** Ends the wait for the owner, which has the fork, or does not. */
void rref_known_end(struct shard *s, struct rref_user *u, const struct completion *o);

/* rref_again.c: control messages that are sent later */
/** Retries one that failed. false: it has failed too often. */
bool rref_msg_retry(struct shard *s, struct rref_msg *msg);
/** A RECALL that was answered BUSY. */
void rref_recall_again(struct shard *s, struct rref_msg *msg);
/** Applies faults (fault.h). true: the message fails or is delayed, and is handled. */
bool rref_msg_fault(struct shard *s, struct rref_msg *msg);
/** Ends those to a session. */
void rref_delayed_drop(struct shard *s, uint32_t session, enum far_status status, const char *text);

/* rref_share.c: references in messages */
/** Prepares plan->put_rref; the reference must be known or about to be. 0 or -ENOMEM. Any thread. */
int rref_share(struct shard *s, struct values_plan *plan, struct rref_sharing *sharing);
void rref_pins_release(struct rref_pins *pins);
/** A result with references has left, or has not: they wait for the receiver's ACCEPT, or are released. */
void rref_pins_sent(struct shard *s, struct far_deferred *d);
void rref_pins_accepted(struct shard *s, struct session *se, struct rref_id fork);

/** Arguments or results that came by a session: `arena` of the reader. */
struct rref_adopting {
	struct values_arena arena;
	struct shard *shard;
	struct session *session;
	bool result;            /* the sender holds its own until it gets ACCEPT */
	struct rref_open *open; /* counts those that are not confirmed */
};
int rref_adopt(struct values_arena *arena, const uint8_t *src, struct far_val *v);
/** Reads a reply with references: o->tree, which is the caller's to give back, or the error in `o` and `err`. */
void rref_adopt_result(struct shard *s, struct session *se, const uint8_t *body, uint64_t len, struct completion *o,
		       struct far_err *err);

/* object.c: methods, and what a value is */
/** A call of a method by a holder whose fork the owner has: the object must be there. */
void object_called(struct far_req *req, struct rref_id id, const uint8_t *body, uint64_t len);
void object_serve(struct far_req *req, uint16_t message, const uint8_t *body, uint64_t len);
/** Waits for the object of a request, if it is not there yet. */
void object_await(struct rref_open *open);
/** May the request's function run now; false: it has been refused. */
bool object_may_run(struct rref_open *open);
/** The answer to RREF_TYPE, of a record that is settled. */
void object_type(const struct rref_record *r, struct far_deferred *d);
/** What the value is, into buf; returns buf. */
const char *object_type_text(const struct rref_record *r, char *buf, size_t len);
/** Keeps an object that a deferred request is of. 0 or -ENOMEM. */
int object_keep(struct shard *s, struct far_buf **held);
/** Handler of all methods: `user` is a struct method. */
enum far_status object_enter(struct far_req *req, const struct far_val *args, size_t n, void *user);

/* rref_serve.c: requests */
/** A copy of the request, with a record; NULL: it was refused. */
struct rref_open *rref_open_new(struct far_req *req, enum rref_purpose purpose, const uint8_t *body, uint64_t len);
/** Makes the references of its arguments our own, and runs it when they, and its object, are there. */
void rref_take_arguments(struct far_req *req, struct rref_open *open);
/** Runs it if nothing is awaited; `unknown` has been 1 more than that. */
void rref_open_go(struct shard *s, struct rref_open *open);
/** The function of a request; NULL: it was refused. */
const struct function *rref_function_of(struct far_req *req, struct rref_function f);
/** True if the request is for this incarnation and this shard; false: it was refused. */
bool rref_names_us(struct far_req *req, uint64_t owner, struct rref_id id);
void rref_malformed(struct far_req *req);
/** Copies the last n bytes of a body, and takes them off its length. false: there are fewer; it was refused. */
static inline bool rref_trailer(struct far_req *req, const uint8_t *body, uint64_t *len, void *trailer, size_t n)
{
	if (*len < n) {
		rref_malformed(req);
		return false;
	}
	*len -= n;
	memcpy(trailer, body + *len, n); /* a peer may rewrite the body */
	return true;
}
/** The record of an id, held; NULL: no room, and the request was refused. */
struct rref_record *rref_record_of(struct far_req *req, struct rref_id id);
/** Ends a request whose function did not run. */
void rref_fail(struct far_deferred *d, enum far_status status, const char *text);
/** Takes the request that the inline handler which has just returned has answered, for answer_deferred(); NULL: none.
 */
static inline struct far_deferred *rref_take_answered(struct shard *s)
{
	struct far_deferred *d = s->answered;
	s->answered = NULL;
	if (d) {
		d->owned = false;
		atomic_store_explicit(&d->state, DEFERRED_ANSWERED, memory_order_relaxed);
	}
	return d;
}
/** There is no room to keep the request open. */
void rref_refuse_open(struct far_req *req);
/** Ends a request that was not run. */
void rref_refuse(struct far_req *req, enum far_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/** Ends a request with the failure of a record's value. */
void rref_copy_failure(const struct rref_record *r, struct far_deferred *d, enum far_executed executed);
void rref_serve(struct far_req *req, uint16_t message, const uint8_t *body, uint64_t len);
/** The owner of an argument has answered: one less to wait for. */
void rref_open_step(struct shard *s, struct rref_open *open);
/** The caller no longer waits for the answer. */
void rref_record_gone(struct shard *s, struct far_deferred *d);
/** Puts a value that holds references into the record, or an error. The owner of the record, any thread. */
void rref_answer_value(struct far_deferred *d, const struct far_val *value, struct values_plan *plan);
/** Ends a fetch that waits, with the record's value. */
void rref_fetched(struct shard *s, struct rref_open *open);
void rref_open_free(struct rref_open *open);
/** The arguments' references of a request that is over. */
void rref_release_held(struct far_deferred *d);

/* rref_make.c: requests to make a value */
/** `body` before its end, which is a request to make a value; `object`: by a method of that. */
/** The type of a value that `fn` is to make. */
void rref_will_be(struct rref_record *r, const struct function *fn);
void rref_serve_make(struct far_req *req, const struct rref_remote *m, struct rref_record *object, const uint8_t *body,
		     uint64_t len);
/** A typed request with PACKET_NAMED: of a method of the object of that name, or to keep the value under it. */
void rref_serve_named(struct far_req *req, bool method, const uint8_t *body, uint64_t len);
/** It was answered: takes the value out of it. false: it waits on. */
void rref_answered(struct shard *s, struct far_deferred *d);
/** The caller no longer waits for the value. After a cancel the caller sends the reason: FAILED. */
void rref_make_gone(struct shard *s, struct rref_open *open);

/* ---- calls whose arguments hold references ---- */

void rref_call_done(void *user, const struct completion *o);
/** Would a request with PACKET_NAMED, over a session to this incarnation of the callee, make the value there where its
 * reference says. */
bool rref_call_reaches(const struct call_start *start, uint64_t incarnation);
/** feature_hooks.message_name. */
void rref_message_name(uint16_t message, call_done_fn *done, void *user, char *buf, size_t len);
/**
 * Making a value ended early, as a time-out does. Control messages may pass the request, which may still wait here: so
 * the slot holds the reference until the owner's last answer, lest a DELETE comes before the request and leaves a value
 * without a holder. The slot has another completion from now on.
 */
void rref_call_ended_early(struct shard *s, struct call *c);
/** The owner's last answer has come, or never will. */
void rref_call_over(struct shard *s, struct call *c);
/** Construction failed: the owner keeps the error in place of the value for its holders, until the last hold is
 * given back. */
void rref_make_failed(struct shard *s, struct rref_user *u, enum far_status status);

#endif
