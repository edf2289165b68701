/* SPDX-License-Identifier: BSD-3-Clause */
/** The streams' own structures. The thread of the simulated world. */
#ifndef FAR_APPS_SIM_STREAMS_H
#define FAR_APPS_SIM_STREAMS_H

#include "apps/sim/ctl_net.h"

#define BACKLOG_MAX 1024u /* connections that wait for accept() */

enum piece_kind {
	PIECE_OPEN,   /* connect: requests the remote end */
	PIECE_OPENED, /* there is one */
	PIECE_DATA,
	PIECE_FIN,
	PIECE_RESET
};

struct piece {
	struct piece *next;
	enum piece_kind kind;
	int error; /* RESET */
	uint64_t at;
	size_t len;
	uint8_t bytes[];
};

enum end_state {
	END_NONE,    /* of a stream that is not accepted, or was closed */
	END_OPENING, /* connect() is under way */
	END_OPEN
};

struct end {
	struct stream *stream;
	struct net *net; /* NULL: closed, or not accepted yet */
	const struct sim_host *host;
	enum end_state state;
	int error;      /* returned by every later operation */
	bool eof;       /* nothing comes after what is in `in` */
	bool unread;    /* its owner has not seen an error or the end yet */
	bool want_room; /* set_want(), or a send() that found none */
	bool closed;    /* by its owner */
	bool vanished;  /* its host lost its power */
	uint8_t *in;    /* in[head, tail) is to be read */
	size_t head, tail, cap;
	/* on its way to this end */
	struct piece *first, **last;
	size_t flying;
	uint64_t sent_until; /* when the last piece arrives */
	uint64_t stalled_at, retry_ns;
	sim_event event;
	sim_event keep_alive; /* the other end's host lost its power: when this one is given up */
};

struct stream {
	struct sim_streams *world;
	struct sim_random random;
	struct end end[2]; /* who connected, and the other */
	uint16_t port;
	struct stream *next_waiting; /* for accept() */
	struct stream *next, **prev; /* of the world */
};

enum handle_kind { HANDLE_FREE, HANDLE_LISTENER, HANDLE_STREAM };

struct handle {
	enum handle_kind kind;
	uint16_t port; /* LISTENER */
	unsigned waiting_n;
	struct stream *waiting, **waiting_last;
	struct end *end; /* STREAM */
	bool unwatched;  /* not polled for reading at present */
};

struct net {
	struct ctl_net base;
	struct sim_streams *world;
	struct sim_host *host;
	void (*wake)(void *ctx);
	void *ctx;
	bool cut_off;
	uint64_t linger_ns; /* how much later the other ends are notified that it closed */
	struct handle *handles;
	int handles_n;
	struct net *next;
};

struct sim_streams {
	struct sim *sim;
	struct sim_streams_config config;
	struct net *nets;
	struct stream *streams;
	uint64_t made;
	uint64_t *cut;                     /* a bit for each pair of hosts; NULL: none was ever cut */
	uint64_t dark[SIM_HOSTS_MAX / 64]; /* hosts without power */
};

/* streams.c */
struct sim_host *streams_host(const struct sim_streams *s, const char *name);
/** Who listens there; NULL: nobody. */
struct handle *streams_listener(const struct sim_streams *s, const struct sim_host *host, uint16_t port,
				struct net **net);
void streams_set_dark(struct sim_streams *s, const struct sim_host *host, bool dark);

struct stream *stream_new(struct sim_streams *s, uint16_t port);
void stream_free(struct stream *st);
/** Frees it when nobody has to do with it any more. */
void stream_let_go(struct stream *st);
static inline struct end *end_other(struct end *e)
{
	return &e->stream->end[e == &e->stream->end[0]];
}
/** Has its owner look. */
void end_notify(struct end *e);
/** A piece on its way to an end; false: no memory. */
bool end_send(struct end *to, enum piece_kind kind, int error, const void *bytes, size_t len);
/** Forgets what is on its way. */
void end_forget(struct end *to);
/** Every operation fails with it from now on; its owner is woken. */
void end_fail(struct end *e, int error);

#endif
