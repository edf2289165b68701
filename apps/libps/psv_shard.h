/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One shard of a server: its tables, its token windows, and the requests that wait for a clock or a view. The thread
 * that polls the shard; `tables_n` and the tables are also read by the thread that prepares memory.
 */
#ifndef PSV_SHARD_H
#define PSV_SHARD_H

#include "pst_tokens.h"
#include "psv_barrier.h"
#include "psv_hot.h"
#include "psv_schema.h"
#include "psv_view.h"
#include <pthread.h>
#include <stdatomic.h>

struct psv_tenant;

#define PSV_WAKE_EVERY_NS    (100 * FAR_MS)     /* while requests wait */
#define PSV_WAITERS_MAX      4096u              /* requests that wait at a shard */
#define PSV_WAITER_BYTES_MAX ((size_t)64 << 20) /* of these */
#define PSV_CUTS_MAX         64u                /* large partitions of a shard that are being read */
#define PSV_CUT_IDLE_NS      (10 * FAR_SEC)     /* after which a reader has gone */
#define PSV_QUIET_NS         (10 * FAR_MS)      /* without a request with keys: slices of scans are long */

/* The clock of a worker of the application. */
struct psv_clock {
	uint64_t step;
	uint64_t incarnation; /* of the member that advanced it last; 0: none has */
	int32_t rank;         /* of that member */
	bool excused;         /* that member is lost, and nobody has advanced the clock since */
};

struct psv_function;

/* The optimizer of a table of the user's rule. */
struct psv_user_rule {
	struct psv_function *function; /* NULL: the table has another rule */
	struct far_ps_rule rule;
};

struct psv_table {
	struct psv_table *next_dropped;
	struct pst_table *rows;
	char name[PSV_NAME_BYTES];
	uint64_t id;
	struct psv_schema schema;
	struct psv_rows layout;
	struct psv_clock *clocks; /* [schema.workers] */
	uint64_t clock;           /* the least of those that are not excused */
	uint64_t keys_pulled, keys_pushed, duplicates;
	uint64_t pulls, pushes, scans;        /* requests; partitions */
	uint64_t requests, served, served_ns; /* with keys; those of them that were measured, and their time */
	struct psv_hot hot;
	struct psv_user_rule user;
	struct far_ps_schema of_user; /* the schema as functions see it */
};

/* A request that is kept until its clock or view has come. */
struct psv_waiter {
	struct psv_waiter *next;
	struct far_deferred *reply;
	struct far_to from;
	uint64_t deadline_ns; /* UINT64_MAX: none */
	size_t len;
	_Alignas(8) unsigned char data[];
};

struct psv_shard {
	struct far_ps_server *server;
	struct far_to self;
	const struct psv_view *view;
	int slot; /* of this shard in the view; -1: it owns nothing */
	_Atomic(struct psv_table *) table[FAR_PS_TABLES_MAX];
	_Atomic unsigned tables_n;
	_Atomic(struct psv_table *) dropped; /* freed by the thread that prepares memory */
	struct pst_tokens tokens;
	struct psv_waiter *waiters, **waiters_end; /* for a clock or a view, in the order of their arrival */
	unsigned waiters_n;                        /* those at barriers, too */
	size_t waiters_bytes;                      /* likewise */
	struct psv_barriers barriers;              /* at slot 0 */
	unsigned cuts_n;                           /* of all tables */
	uint64_t cut_last;                         /* id of the last cut */
	uint64_t keyed_ns;                         /* time of the last request with keys */
	char *slice; /* [slice_room]: of scans, kept: memory of this size from the system costs faults each time */
	size_t slice_room;
	bool lost[FAR_PS_PARTITIONS];          /* partitions whose rows are being erased, for a new view */
	bool clearing;                         /* there are such */
	unsigned clear_partition, clear_table; /* where that goes on */
	uint64_t clear_from;                   /* likewise, a hash; 0: the partition's first */
	uint8_t status[PST_CHUNK_KEYS];        /* of the request that is being served */
	uint32_t value_at[PST_CHUNK_KEYS + 1]; /* likewise, of values */
};

struct far_ps_server {
	struct far_agent *agent;
	uint64_t service; /* psv_name_id() */
	char name[PSV_NAME_BYTES];
	uint16_t message;
	unsigned shards;
	struct psv_shard *shard;         /* [shards] */
	_Atomic(struct psv_view *) view; /* the newest, with the older ones behind it */
	pthread_mutex_t lock;            /* of writers of `view` */
	struct psv_tenant *tenants;      /* [tenants_n]; psv_tenant.h */
	size_t tenants_n;
	_Atomic unsigned waiting; /* requests that wait, cuts, and shards that erase rows */
	_Atomic bool stopping;    /* requests are refused */
	_Atomic bool ahead_stop;  /* the thread ends */
	bool ahead_runs;
	pthread_t ahead; /* prepares memory */
};

/** Initialises an empty shard. */
void psv_shard_init(struct psv_shard *shard, struct far_ps_server *server, struct far_to self);
/** Frees tables, after the agent is gone: no request waits. */
void psv_shard_fini(struct psv_shard *shard);

/** Frees the dropped tables. The thread that prepares memory, while it looks at no table. */
void psv_shard_free_dropped(struct psv_shard *shard);

/** One turn of the thread that prepares memory, or of what a simulation has in its place: prepares slabs and frees
 * dropped tables. True: it prepared one. */
bool psv_server_look(struct far_ps_server *server);
/** Has each shard take over a new view and erase the rows that it lost, excuse workers that are lost, and answer
 * requests that need not wait any more. Blocks until they have. */
enum far_status psv_server_wake(struct far_ps_server *server, struct far_err *err);

/** The message handler; `user` is the server. Inline. */
void psv_shard_serve(struct far_req *req, const void *data, size_t len, void *user);

#endif
