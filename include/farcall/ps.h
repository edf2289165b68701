/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The parameter server: tables of rows of numbers under 64-bit keys, spread over the shards of several workers. Part of
 * libfarcall-ps. Any thread, unless a function names another one.
 *
 * Servers: each worker that serves calls far_ps_serve() with the same name, list of servers and epoch.
 *
 *   far_ps_serve(agent, "ads", &(struct far_ps_serve_opts){.servers = names, .servers_n = 2}, &server, &err);
 *
 * Clients: any worker of the group.
 *
 *   far_ps_open(agent, "ads", NULL, &ps, &err);
 *   far_ps_table_create(ps, "users", &schema, 0, &table, &err);
 *   far_ps_pull(table, keys, n, &(struct far_ps_pull_opts){.timeout_ns = 300 * FAR_US, .partial = true}, rows, status,
 *               &future, &err);
 *   far_future_wait(future, 0, &answered, &err);
 *
 * Partitions and the view: a hash of the key chooses one of FAR_PS_PARTITIONS partitions. The view maps each partition
 * to a shard of a worker and has an epoch. Clients keep a copy and send its epoch with each request. A server answers a
 * request of an older epoch with its view, and the client sends the keys of that request again, by the new view, within
 * the operation's deadline. A request of a newer epoch waits at the server until the server has that view.
 *
 * Operations: each is one future over all shards. Keys come in any order and may repeat. Each distinct key travels
 * once, but for bags: a push adds the gradients of equal keys in f32, in the order of their positions; of equal keys in
 * an assignment the last position counts. An operation is cut into requests of about half of FAR_PS_CHUNK_BYTES, or of
 * FAR_PS_PART_KEYS keys if these take more, up to FAR_PS_CHUNK_BYTES; at most 8192 keys each. Up to 256 KiB for a shard
 * are sent at once: the first requests of a pull before its last keys are looked at, and of a change the shortest one
 * to each shard. A larger operation is cut into requests of FAR_PS_PART_KEYS keys, and a shard has one at a time, so
 * that a request of another operation waits for one at most. A request is applied at once: no other request to that
 * shard is applied in the middle of it. Different requests of one operation are not ordered. A read of more than 262144
 * keys goes through them in segments of 16384, one after the other: equal keys of different segments travel each. When
 * its deadline passes, the segments that were not begun are late. A change looks at all keys and numbers first, and
 * sends nothing if its deadline passes meanwhile. Pushes to a row are applied as they arrive, within a step of the
 * clocks too, so that sums in f32 may differ in the last bits between two runs.
 *
 * Results: `status` takes an enum far_ps_status for each key. The future completes with an int, the number of positions
 * that a server has answered. With `partial` it completes so at the deadline at the latest. Without `partial` it fails
 * with the first error of a server, or with TIMEOUT, if a key was not answered; `status` and the rows are filled all
 * the same. Positions that were not answered are FAR_PS_LATE or FAR_PS_LOST; their rows are the fallback row. A server
 * that is lost is PEER_LOST, or in a dynamic group UNKNOWN_WORKER, for all functions.
 *
 * Memory: keys, gradients, rows, fallback row and status belong to the operation until its future is complete. An
 * operation cannot be cancelled; it ends at its deadline, and freeing its future does not end it.
 *
 * Dense tables: `dense_rows` in the schema. Every key in [0, dense_rows) has a row, with initial values until it is
 * changed, and no other key has one; the status is FAR_PS_ROW. far_ps_pull_range() and far_ps_push_range() take rows
 * that follow each other, without keys. To erase a row of a dense table gives it its initial values again. Scans, files
 * and statistics have the rows that were changed. A row travels and is found as one: let it have a KiB or more.
 *
 * Tables of values: `value_max` in the schema. A key has a string of bytes in place of a row.
 * far_ps_assign_values() sets values and far_ps_pull_values() reads them; far_ps_erase(), far_ps_exists(), scans,
 * files, bounds of rows, LRU, LFU, TTL and clocks are as of rows. Other operations on such a table are INVALID.
 *
 * Functions at the rows: far_ps_call() runs a function that the servers have registered for each key of a batch, where
 * its row is.
 *
 * Exactly once: a client numbers its changes, and a server applies a numbered request once. far_ps_push() returns the
 * number as a token. A push that was not answered in full may be repeated with its token, the same keys and the same
 * gradients: requests that were applied are not applied again. A server keeps the last 8192 numbers of each of up to
 * 8192 clients; a client takes the place of another that was silent for ten minutes.
 *
 * Restarts: a program that writes checkpoints adds far_ps_client(), far_ps_next() and far_ps_epoch() to each. When it
 * starts again it opens the service with these three (struct far_ps_open_opts) and makes the changes that followed the
 * checkpoint once more: in the same order, each after the one before is complete, with the same keys and numbers.
 * Changes get the numbers that they had, so those that were applied are not applied again. Changes that take more than
 * 8192 numbers after the checkpoint fail with GONE. Clients that exist at the same time differ in far_ps_client().
 */
#ifndef FARCALL_PS_H
#define FARCALL_PS_H

#include <farcall/agent.h>
#include <farcall/ps_schema.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAR_PS_PARTITIONS   4096
#define FAR_PS_SHARDS_MAX   256               /* shards of a service, of all its servers together */
#define FAR_PS_TABLES_MAX   64                /* tables of a service */
#define FAR_PS_WORKERS_MAX  4096              /* workers with a clock in a table; members of a barrier */
#define FAR_PS_TENANTS_MAX  64                /* of a service */
#define FAR_PS_BARRIERS_MAX 64                /* barriers of a service that clients wait at */
#define FAR_PS_KEYS_MAX     ((size_t)1 << 26) /* keys of an operation */
#define FAR_PS_CHUNK_BYTES                                                                                             \
	((size_t)64 << 10)    /* of a request; more in pushes of more than 64 MiB with a token or repeated keys */
#define FAR_PS_PART_KEYS 128  /* of a request of a large operation; more in pushes that are cut into 1024 of them */
#define FAR_PS_MESSAGE   1000 /* default id of the message handler of a service */
#define FAR_PS_FNS_MAX   64   /* names of functions of a process, ever; likewise of optimizers */
#define FAR_PS_WIDTH_MAX 4096 /* numbers that a function returns for a key */
#define FAR_PS_ARG_MAX   ((size_t)16 << 10) /* bytes of the argument of a function */

struct far_ps;        /* a service, at a client */
struct far_ps_table;  /* a table, at a client */
struct far_ps_server; /* a service, at a server */

/** Status of a key. */
enum far_ps_status {
	FAR_PS_ROW,     /* its row was there */
	FAR_PS_NEW,     /* its row was made by this operation */
	FAR_PS_MISSING, /* it has no row: the fallback row was returned, nothing was erased */
	FAR_PS_WAITING, /* a push to a key that is not admitted yet: counted, the gradient dropped */
	FAR_PS_REFUSED, /* the table is full: the gradient or row was dropped; a pull returns initial values */
	FAR_PS_LATE,    /* no answer by the deadline. A change may have been applied or not */
	FAR_PS_LOST,    /* its server failed the request or was lost. A change may have been applied or not */
	FAR_PS_FAILED,  /* far_ps_call(): the function failed for it, and its row is as it was */
	FAR_PS_APPLIED  /* far_ps_call(), repeated: the function ran for it before; its numbers are not known */
};

/* ---- Any thread; never blocks ---- */

/** "ROW", "NEW", …; "?" for another number. */
const char *far_ps_status_name(enum far_ps_status status);

/* ---- Servers: any thread but handlers and callbacks; these take locks for a moment ---- */

/**
 * Bounds of the tables whose names begin with a prefix. `rows_max` and `bytes_max` are of all these tables together,
 * and divided equally over the shards of the service, rounded up. A table at a bound behaves as one with rows_max: it
 * refuses new keys, or evicts its own rows. A table counts for each tenant whose prefix its name has.
 */
struct far_ps_tenant {
	const char *prefix;   /* "": all tables */
	uint64_t rows_max;    /* 0: no bound */
	uint64_t bytes_max;   /* of keys, rows, state and blocks of values, a new one as the longest; 0: no bound */
	unsigned tables_max;  /* more are RESOURCE; 0: no bound */
	uint64_t reserved[2]; /* 0 */
};

/** Options of a server. A zeroed field has its default. */
struct far_ps_serve_opts {
	const char *const *servers; /* names of the workers that serve, in the same order at each; default: this one */
	size_t servers_n;
	uint64_t epoch;   /* of the view; 0: 1 */
	uint16_t message; /* id of the message handler, the same at all servers and clients; 0: FAR_PS_MESSAGE */
	const struct far_ps_tenant *tenants; /* the same at all servers; copied */
	size_t tenants_n;                    /* at most FAR_PS_TENANTS_MAX */
	uint64_t reserved[2];                /* 0 */
};

/**
 * Serves `name` with all shards of this worker, by an inline message handler, and starts a thread that prepares memory.
 * Partitions are divided equally over the shards of all servers, in the order of the list. `*server` is the caller's:
 * far_ps_server_stop() before the agent is shut down, far_ps_server_free() afterwards. Errors: INVALID (a name, a list
 * without this worker or with a name twice, the handler id is in use, more than FAR_PS_SHARDS_MAX shards, a tenant,
 * `reserved`), UNKNOWN_WORKER, RESOURCE.
 */
enum far_status far_ps_serve(struct far_agent *agent, const char *name, const struct far_ps_serve_opts *opts,
			     struct far_ps_server **server, struct far_err *err);

/**
 * Gives a server a view of a later epoch, with another list of servers, which may be one without this worker. Each
 * server of both lists gets each epoch. Rows do not move: a shard erases those of partitions that it did not own all
 * the time, or all rows if its epochs are not consecutive, some 500 at a time; this function waits for it, and so do
 * requests to the shard's rows. New owners begin without rows and, if they are new servers, without tables:
 * far_ps_table_create() makes these there. Errors: INVALID (the epoch is not later; else as far_ps_serve()),
 * UNKNOWN_WORKER, RESOURCE; TIMEOUT: a shard erases rows for more than 10 s, and goes on.
 */
enum far_status far_ps_server_view(struct far_ps_server *server, const char *const *servers, size_t servers_n,
				   uint64_t epoch, struct far_err *err);

/** Ends the thread and the requests that wait at this server, with SHUTDOWN, and refuses later ones. Blocks until its
 * shards have done so, at most 10 s each: TIMEOUT. Before far_shutdown(), when clients are done. */
enum far_status far_ps_server_stop(struct far_ps_server *server, struct far_err *err);

/** Frees the tables, after the agent was shut down. NULL: nothing. */
void far_ps_server_free(struct far_ps_server *server);

/* ---- Servers: functions that run at the rows, and optimizers. Any thread; unregistering may block ----
 *
 * They belong to the process, and serve all its servers. A program registers them before far_ps_serve(), or a plugin
 * (<farcall/plugin.h>) in its `start`; its `stop` unregisters them. `farcall pserver --functions FILE.so` loads such a
 * plugin, which FAR_PLUGIN_PATH must permit. Each server of a service needs them. */

/** What a function gets for one key. Valid while it runs. */
struct far_ps_fn_args {
	const struct far_ps_schema *schema; /* of the table */
	uint64_t key;
	bool made;    /* the row had initial values until now */
	float *row;   /* [schema->dim], whatever type it is stored in */
	float *state; /* [state_floats], of the optimizer; NULL: there is none */
	unsigned state_floats;
	const void *arg; /* the caller's, [arg_len]; aligned to 8 bytes */
	size_t arg_len;
	double *values; /* [width] numbers for the caller; 0 at first */
};

/** A function that runs at the rows. A zeroed field has its default. */
struct far_ps_fn {
	const char *name; /* 1 to FAR_PS_NAME_MAX - 1 bytes; copied */
	/** Runs for one key, on the thread of the key's shard: no other request to that shard is applied meanwhile, so
	 * it must not block, and should take microseconds. It may change row and state. Another status than OK: they
	 * stay as they were, the key is FAR_PS_FAILED, and the caller gets the status. So does INVALID if it leaves a
	 * number that is NaN or infinite. */
	enum far_status (*run)(const struct far_ps_fn_args *args, void *user);
	void *user;
	unsigned width;       /* numbers that it returns for a key, at most FAR_PS_WIDTH_MAX */
	bool reads;           /* it changes nothing: what it writes to row and state is dropped */
	uint64_t reserved[3]; /* 0 */
};

/** Registers a function. Errors: INVALID (a field; the name is registered), RESOURCE (FAR_PS_FNS_MAX of them). */
enum far_status far_ps_fn_register(const struct far_ps_fn *fn, struct far_err *err);
/** Removes it, and waits until it does not run any more. Not within itself. Errors: GONE: no such function. */
enum far_status far_ps_fn_unregister(const char *name, struct far_err *err);

/** An optimizer of the application. A zeroed field has its default. */
struct far_ps_rule_fn {
	const char *name; /* as of struct far_ps_fn */
	/** Changes a row [dim] and its state by a gradient, which was clipped and has l1 and l2. On the thread of the
	 * row's shard, as struct far_ps_fn.run. `rule` is that of the schema; `rate` that of the push. What it leaves
	 * is not checked: it must be finite. */
	void (*apply)(const struct far_ps_rule *rule, float *row, float *state, const float *grad, unsigned dim,
		      float rate, void *user);
	void *user;
	unsigned state_each, state_more; /* floats of state of a row: state_each * dim + state_more */
	uint64_t reserved[3];            /* 0 */
};

/** Registers an optimizer for tables of rule FAR_PS_USER. Errors as far_ps_fn_register(). */
enum far_status far_ps_rule_register(const struct far_ps_rule_fn *rule, struct far_err *err);
/** Removes it, and waits until it does not run any more. Pushes to tables of this rule fail with NO_FUNCTION until one
 * of its name and state is registered again. Errors: GONE: no such rule. */
enum far_status far_ps_rule_unregister(const char *name, struct far_err *err);

/* ---- Clients: any thread but handlers and callbacks; these block ---- */

/** Options of far_ps_open(). A zeroed field has its default. */
struct far_ps_open_opts {
	uint64_t timeout_ns;  /* of the call; 0: the agent's default */
	uint16_t message;     /* as in struct far_ps_serve_opts */
	uint64_t client;      /* of a program that has started again: its far_ps_client(); 0: a random number */
	uint64_t next;        /* likewise its far_ps_next(); 0: 1. INVALID without `client` */
	uint64_t epoch;       /* likewise its far_ps_epoch(); 0: any */
	uint64_t reserved[1]; /* 0 */
};

/**
 * Opens a service: requests its view from the members of the group, then all its shards, until all have answered.
 * `opts` may be NULL. `*ps` is the caller's, for far_ps_close(), and refers to the agent. Errors: INVALID, also: two
 * servers were given different lists of servers for one epoch; TIMEOUT: no member serves `name`, or not all servers
 * answer; GONE: the view has another epoch than opts.epoch; RESOURCE, SHUTDOWN.
 */
enum far_status far_ps_open(struct far_agent *agent, const char *name, const struct far_ps_open_opts *opts,
			    struct far_ps **ps, struct far_err *err);

/**
 * Makes a table on every shard, or opens it if it exists with the same schema. `timeout_ns` 0: the agent's default.
 * `*table` is the caller's, for far_ps_table_free(). Errors: INVALID (the schema, by its field; the name; the table
 * exists with another schema, by its first field that differs; a server's optimizer `rule.name` has other state),
 * NO_FUNCTION (a server lacks it, by the names of both), UNSUPPORTED (replicas, hedge_after_ns), RESOURCE, TIMEOUT,
 * PEER_LOST. After an error of one server the others may have the table.
 */
enum far_status far_ps_table_create(struct far_ps *ps, const char *name, const struct far_ps_schema *schema,
				    uint64_t timeout_ns, struct far_ps_table **table, struct far_err *err);

/** Opens a table that exists. Errors: GONE (a shard has no such table); else as far_ps_table_create(). */
enum far_status far_ps_table_open(struct far_ps *ps, const char *name, uint64_t timeout_ns, struct far_ps_table **table,
				  struct far_err *err);

/** Writes the names of the tables to names[0, *n), sorted. `timeout_ns` as above. Errors: INVALID, TIMEOUT, PEER_LOST,
 * SHUTDOWN. */
enum far_status far_ps_tables(struct far_ps *ps, uint64_t timeout_ns, char names[FAR_PS_TABLES_MAX][FAR_PS_NAME_MAX],
			      size_t *n, struct far_err *err);

/** Removes a table with its rows from all shards; their memory returns within milliseconds. Operations of handles that
 * are still open fail with GONE, also when a table of this name and another `dim` was made meanwhile. Errors: GONE: a
 * shard has no such table (the others have dropped it); else as far_ps_tables(). */
enum far_status far_ps_table_drop(struct far_ps *ps, const char *name, uint64_t timeout_ns, struct far_err *err);

/** A key and about how often it was used of late. */
struct far_ps_hot_key {
	uint64_t key;
	uint64_t uses; /* requests with it, estimated from one in 61; older ones count half, a quarter, … */
};

/**
 * Finds the keys of a table that were pulled or pushed most, and writes them to hot[0, *n), most used first. `*n` is
 * the room before; a shard reports 512 keys at most. Errors: INVALID, GONE, RESOURCE, TIMEOUT, PEER_LOST, SHUTDOWN.
 */
enum far_status far_ps_hot(struct far_ps_table *table, uint64_t timeout_ns, struct far_ps_hot_key *hot, size_t *n,
			   struct far_err *err);

/** Rows of a scan. */
struct far_ps_rows {
	size_t n;
	uint64_t *keys;
	float *rows;       /* [n * dim] */
	float *state;      /* [n * far_ps_table_state()] */
	uint64_t *ages_ms; /* milliseconds since the last push or assignment, in steps of 64; 0 in tables without TTL */
	uint64_t *offsets; /* [n + 1] in a table of values: value i is values[offsets[i], offsets[i + 1]); else NULL */
	char *values;
};

/**
 * Reads all rows of some partitions, of `*partition` and those behind it, in the order of their keys' hashes, and sets
 * `*partition` to the next one: begin with 0, and go on below FAR_PS_PARTITIONS. The rows of a partition are those
 * between two requests of others; partitions are read one after the other. A step reads partitions of about
 * FAR_PS_CHUNK_BYTES, but at least one. It takes requests of at most 1024 rows, about 0.1 us a row; a shard serves
 * others in between, and copies the rows of the partition that these change. No use of the rows is counted. `*rows` is
 * the caller's, for far_ps_rows_free(). Errors: INVALID, GONE (the table was dropped), BUSY (64 large partitions of a
 * shard are being read), RESOURCE, TIMEOUT, PEER_LOST, SHUTDOWN.
 */
enum far_status far_ps_scan(struct far_ps_table *table, unsigned *partition, uint64_t timeout_ns,
			    struct far_ps_rows *rows, struct far_err *err);
void far_ps_rows_free(struct far_ps_rows *rows);

/** Options of far_ps_save() and far_ps_load(). A zeroed field has its default. */
struct far_ps_save_opts {
	uint64_t timeout_ns;  /* of each request to a server; 0: the agent's default */
	uint64_t reserved[4]; /* 0 */
};

/** What was saved or loaded. */
struct far_ps_saved {
	uint64_t tables, rows;
	uint64_t bytes;   /* of data files */
	uint64_t refused; /* rows of a load that found no room in their shard: `rows_max` is divided over the shards */
	uint64_t reserved[4];
};

/**
 * Saves all tables of the service to a directory of this host, which is made if it is missing, while the servers go on
 * serving. Rows are scanned as by far_ps_scan(): each partition is saved between two requests of others. Saved are
 * schemas, keys, rows and optimizer state bit for bit, and ages of tables with TTL; not the counts of admission, LRU
 * and LFU, the clocks, and the numbers of changes.
 *
 * The calling thread compresses and writes: the shards only read rows, one request at a time. A file has one partition,
 * or as many as make a MiB, in frames of at most a MiB with a CRC32C each, compressed by zstd if the library was built
 * with it. Some files are written at a time, by io_uring where the kernel permits it. When all are on disk a new
 * manifest takes the place of the old one in one step, and then the old files are removed. After an error or a crash
 * the directory has what was saved before. `opts` and `saved` may be NULL. Errors: INVALID; BUSY: the directory is in
 * use by another save or load; RESOURCE: the disk is full, or no memory; SYSTEM: another error of the disk, with its
 * number in err.code; GONE: the view has changed, or a table was dropped; TIMEOUT, PEER_LOST, SHUTDOWN.
 */
enum far_status far_ps_save(struct far_ps *ps, const char *directory, const struct far_ps_save_opts *opts,
			    struct far_ps_saved *saved, struct far_err *err);

/**
 * Loads what far_ps_save() has saved, to any number of servers. All files are read and checked first; then the tables
 * are made, which must not have rows yet; then their rows are restored bit for bit. Clocks begin at 0. Let no other
 * client change these tables meanwhile. `opts` and `loaded` may be NULL.
 *
 * Errors, with no row loaded: INVALID: a file is missing a part, damaged or malformed, by its name; a table exists with
 * another schema or with rows; UNSUPPORTED: another version of the files, or they are compressed and this library was
 * built without zstd; BUSY: a save to this directory; SYSTEM: no
 * such file or directory. Errors that may leave a part of the rows: GONE: the view has changed; RESOURCE, TIMEOUT,
 * PEER_LOST, SHUTDOWN. Drop the tables then, and load again.
 */
enum far_status far_ps_load(struct far_ps *ps, const char *directory, const struct far_ps_save_opts *opts,
			    struct far_ps_saved *loaded, struct far_err *err);

/* ---- Clients: any thread; these never block ---- */

/** The schema, valid as long as the table. */
const struct far_ps_schema *far_ps_table_schema(const struct far_ps_table *table);
/** Floats of optimizer state of a row. */
unsigned far_ps_table_state(const struct far_ps_table *table);

/** Give a handle back. Pending operations go on. A service is freed with its last table and operation. NULL: nothing.
 */
void far_ps_table_free(struct far_ps_table *table);
void far_ps_close(struct far_ps *ps);

/** Epoch of the view that the client has. */
uint64_t far_ps_epoch(const struct far_ps *ps);

/** The client's name in the servers' records of changes, and the number of its next change: what a program keeps to go
 * on after a restart. */
uint64_t far_ps_client(const struct far_ps *ps);
uint64_t far_ps_next(const struct far_ps *ps);

/** What a pull does for a key without a row. In a table with admission FAR_PS_MAKE is as FAR_PS_INITIAL. */
enum far_ps_miss {
	FAR_PS_FALLBACK, /* returns the fallback row */
	FAR_PS_INITIAL,  /* returns the values that a new row would have; the status is FAR_PS_MISSING */
	FAR_PS_MAKE      /* makes the row */
};

/** Options of a pull. A zeroed field has its default. */
struct far_ps_pull_opts {
	uint64_t timeout_ns; /* 0: the agent's default */
	bool partial;
	enum far_dtype wire; /* of rows in messages: FAR_F32 (default), FAR_BF16, FAR_F16, or FAR_I8 with a scale */
	enum far_ps_miss miss;
	const float *fallback; /* [dim]; NULL: zeros */
	uint64_t clock;        /* this worker's step: the pull waits until every worker has advanced to step `clock` -
				  staleness. 0: does not wait. INVALID in a table without a clock */
	uint64_t reserved[4];  /* 0 */
};

/**
 * Copies the rows of n keys to rows[n * dim]; status [n] or NULL. `opts` may be NULL. Errors, with no future: INVALID
 * (NULL, more than FAR_PS_KEYS_MAX keys, an option), RESOURCE, SHUTDOWN.
 */
enum far_status far_ps_pull(struct far_ps_table *table, const uint64_t *keys, size_t n,
			    const struct far_ps_pull_opts *opts, float *rows, uint8_t *status,
			    struct far_future **future, struct far_err *err);

/** How the rows of a bag become one. */
enum far_ps_pool {
	FAR_PS_SUM,
	FAR_PS_MEAN /* the sum divided by the sum of weights; zeros if that is 0 */
};

/** Bags of keys: bag b has the keys [offsets[b], offsets[b + 1]). A bag may be empty: its row is zeros. */
struct far_ps_bags {
	const uint64_t *offsets; /* [n + 1]; offsets[0] is 0, none is less than the one before */
	size_t n;
	const float *weights; /* [offsets[n]], finite, of rows in the sum; NULL: 1 */
	enum far_ps_pool pool;
	uint64_t reserved[2]; /* 0 */
};

/**
 * Pools the rows of each bag to rows[bags->n * dim]. Each shard adds the rows that it has, in f32 and in the order of
 * keys; the sums travel, in opts.wire, and the client adds them. The order of additions depends on the view. A key that
 * repeats counts each time, and travels each time.
 *
 * A key without a row counts with what opts.miss gives for it, and a key that was not answered with the fallback row,
 * both with their weights. status [bags->n] or NULL: the status of the bag's key whose status has the highest number,
 * of an empty bag FAR_PS_ROW. The future completes with the number of bags that have an answer for each key. `*bags` is
 * not kept; its arrays belong to the operation until the future is complete. Errors: INVALID also for offsets and
 * weights; else as far_ps_pull().
 */
enum far_status far_ps_pull_bags(struct far_ps_table *table, const uint64_t *keys, const struct far_ps_bags *bags,
				 const struct far_ps_pull_opts *opts, float *rows, uint8_t *status,
				 struct far_future **future, struct far_err *err);

/** Options of a change. A zeroed field has its default. */
struct far_ps_push_opts {
	uint64_t timeout_ns; /* 0: the agent's default */
	bool partial;
	enum far_dtype wire; /* of gradients and rows in messages, as in struct far_ps_pull_opts */
	float rate;          /* of this push; 0: that of the schema */
	/** NULL, or in and out: 0 begins a change and returns its token, before the function returns; another value
	 * repeats the change of that token, with the same keys, numbers and `wire`. Requests that were applied before
	 * answer with the present state of their keys, FAR_PS_ROW or FAR_PS_MISSING. GONE, with nothing sent: the
	 * client numbered 4096 requests since, or its view has changed; whether the change was applied is unknown then.
	 * INVALID: no token of this client. */
	uint64_t *token;
	uint64_t reserved[4]; /* 0 */
};

/**
 * Applies gradients [n * dim] by the table's rule. The sums of equal keys are one gradient. A gradient or sum that is
 * NaN or infinite (also in `wire`) is INVALID, by its key, and nothing was sent. BUSY: the numbers of
 * pending changes would span more than 8192; a change takes as many as the shard with most of its requests gets, at
 * most 64 at a time unless it has a token or repeated keys. TOO_LARGE: with a token or repeated keys, more than 1024
 * requests of 8192 keys or 8 MiB. Else as far_ps_pull().
 */
enum far_status far_ps_push(struct far_ps_table *table, const uint64_t *keys, size_t n, const float *grads,
			    const struct far_ps_push_opts *opts, uint8_t *status, struct far_future **future,
			    struct far_err *err);

/** A push and then a pull of the same keys, each request at once: `rows` [n * dim] are the rows after the push. A key
 * without a row after it (FAR_PS_WAITING, FAR_PS_REFUSED) gets the values of a new row. */
enum far_status far_ps_push_pull(struct far_ps_table *table, const uint64_t *keys, size_t n, const float *grads,
				 const struct far_ps_push_opts *opts, float *rows, uint8_t *status,
				 struct far_future **future, struct far_err *err);

/** Rows [first, first + n) of a dense table, in rows[n * dim]: as far_ps_pull() of these keys. The future completes
 * with n. Of the options: timeout_ns, wire, clock. INVALID also: the table is not dense, or has no such rows. */
enum far_status far_ps_pull_range(struct far_ps_table *table, uint64_t first, size_t n,
				  const struct far_ps_pull_opts *opts, float *rows, struct far_future **future,
				  struct far_err *err);

/** As far_ps_push() of the keys [first, first + n) of a dense table. The future completes with n. Of the options all
 * but `partial`. */
enum far_status far_ps_push_range(struct far_ps_table *table, uint64_t first, size_t n, const float *grads,
				  const struct far_ps_push_opts *opts, struct far_future **future, struct far_err *err);

/** Sets rows [n * dim], and their optimizer state [n * far_ps_table_state() floats] unless NULL (then it begins anew).
 * Rows are made as needed, without admission. Errors and repetition as far_ps_push(); INVALID also: a number is too
 * large for the type that the table stores, or state is below 0 though its root is taken. opts.rate is not used. */
enum far_status far_ps_assign(struct far_ps_table *table, const uint64_t *keys, size_t n, const float *rows,
			      const float *state, const struct far_ps_push_opts *opts, uint8_t *status,
			      struct far_future **future, struct far_err *err);

/**
 * Reads the values of n keys: value i is copied to values[i * stride], and lens[i] is its length; of one longer than
 * `stride` the first `stride` bytes are copied. A key without a value is FAR_PS_MISSING and has length 0, as one that
 * was not answered. Counts as a use for LRU and LFU. Of the options: timeout_ns, partial, clock. Else as far_ps_pull().
 */
enum far_status far_ps_pull_values(struct far_ps_table *table, const uint64_t *keys, size_t n,
				   const struct far_ps_pull_opts *opts, void *values, size_t stride, uint32_t *lens,
				   uint8_t *status, struct far_future **future, struct far_err *err);

/** Sets the values of n keys: value i is bytes[offsets[i], offsets[i + 1]), `offsets` [n + 1]. Of equal keys the last
 * position counts. INVALID also: a value longer than schema.value_max, by its key, and nothing was sent. Errors,
 * numbers and repetition as far_ps_push(); opts.rate and opts.wire are not used. */
enum far_status far_ps_assign_values(struct far_ps_table *table, const uint64_t *keys, size_t n, const void *bytes,
				     const uint64_t *offsets, const struct far_ps_push_opts *opts, uint8_t *status,
				     struct far_future **future, struct far_err *err);

/** Removes n keys. Numbered as a push; opts.wire and opts.rate are not used. */
enum far_status far_ps_erase(struct far_ps_table *table, const uint64_t *keys, size_t n,
			     const struct far_ps_push_opts *opts, uint8_t *status, struct far_future **future,
			     struct far_err *err);

/** Finds which of n keys have rows: FAR_PS_ROW or FAR_PS_MISSING. Counts as a use for LRU and LFU. Of the options:
 * timeout_ns, partial, clock. */
enum far_status far_ps_exists(struct far_ps_table *table, const uint64_t *keys, size_t n,
			      const struct far_ps_pull_opts *opts, uint8_t *status, struct far_future **future,
			      struct far_err *err);

/** What far_ps_call() makes of the numbers of its keys. */
enum far_ps_reduce {
	FAR_PS_EACH, /* values[n * width]: of each key */
	FAR_PS_ADD,  /* values[width]: the sum over all keys; 0 if there are none */
	FAR_PS_MIN,  /* the least one; INFINITY */
	FAR_PS_MAX   /* the greatest one; -INFINITY */
};

/** Options of far_ps_call(). A zeroed field has its default. */
struct far_ps_call_opts {
	uint64_t timeout_ns; /* 0: the agent's default */
	bool partial;
	bool read;       /* the function is one that reads; the call has no number then */
	bool make;       /* keys without a row get one, without admission; else the function does not run for them. Not
			    with `read` */
	const void *arg; /* [arg_len] bytes, at most FAR_PS_ARG_MAX; belong to the operation */
	size_t arg_len;
	unsigned width; /* of the function; 0: it returns nothing */
	enum far_ps_reduce reduce;
	uint8_t *errors;      /* [n]: the enum far_status of keys that are FAR_PS_FAILED, else 0; NULL */
	uint64_t *token;      /* as in struct far_ps_push_opts. NULL with `read` */
	uint64_t reserved[4]; /* 0 */
};

/**
 * Runs the servers' function `name` (far_ps_fn_register()) for each distinct key, at its row. It is atomic for the row,
 * and counts once, as a push does; other operations go on between the requests. Values of equal keys are the same; a
 * reduction has each distinct key once. `values` [n * opts.width], of a reduction [opts.width]; NULL if the width is 0.
 *
 * The status of a key: FAR_PS_ROW or FAR_PS_NEW: it ran. FAR_PS_MISSING: there is no row, and it did not run; in dense
 * tables it runs. FAR_PS_REFUSED: the table is full. FAR_PS_FAILED: see opts.errors. FAR_PS_APPLIED: the call was
 * repeated by its token, and the function had run for the key. Keys with the last four statuses have zeros, and are not
 * part of a reduction. The future completes with the number of positions that have an answer, whichever it is. Errors
 * of the call, and the order of its requests, as far_ps_push(). Errors of the future: NO_FUNCTION: a server has no such
 * function; INVALID: it has another width, or changes rows and opts.read is set, or the reverse.
 */
enum far_status far_ps_call(struct far_ps_table *table, const char *name, const uint64_t *keys, size_t n,
			    const struct far_ps_call_opts *opts, double *values, uint8_t *status,
			    struct far_future **future, struct far_err *err);

/**
 * Advances the clock of worker `worker`, in [0, schema.workers), to `step`, on all shards: the worker has done its
 * pushes of the steps before. Call it when the futures of these are complete. Clocks begin at 0 and never go back; a
 * repeated call has no further effect. The future completes with the number of shards. Errors: INVALID (no such worker,
 * a table without a clock).
 *
 * Pulls do not wait for a worker whose member of the group is lost: a tenth of a second later at most it is excused.
 * Its next far_ps_clock(), from whatever member, readmits it at that step, which may be an earlier one than it had. A
 * worker that has not called this function yet is waited for.
 */
enum far_status far_ps_clock(struct far_ps_table *table, unsigned worker, uint64_t step, uint64_t timeout_ns,
			     struct far_future **future, struct far_err *err);

/**
 * Waits at the barrier `name` of the service until all members of [0, members) have come. A member is a number that one
 * client has at a time. The future completes with 1. A barrier needs no preparation and may be used again and again.
 *
 * A member is excused while the worker that came as this member last is lost: a tenth of a second after its loss at
 * most, the others pass. A member that has not come yet is waited for, also by a barrier that was not used for long:
 * of more than FAR_PS_BARRIERS_MAX names the service forgets one that nobody waits at, and who its members were. So
 * does a new view that gives the first shard to another server; the clients that wait come again by themselves.
 *
 * `timeout_ns` 0: the agent's default. Errors: INVALID (the name; no such member; clients wait at it with another
 * number of members); TIMEOUT, with the missing members in its text: others may have passed if this member's time was
 * over just then. It comes at most 2 s later than `timeout_ns` if the server does not answer. RESOURCE, PEER_LOST,
 * SHUTDOWN.
 */
enum far_status far_ps_barrier(struct far_ps *ps, const char *name, unsigned member, unsigned members,
			       uint64_t timeout_ns, struct far_future **future, struct far_err *err);

/** Statistics of a table, summed over its shards. */
struct far_ps_stats {
	uint64_t rows;                                            /* expired ones too, until they are removed */
	uint64_t bytes;                                           /* of memory held */
	uint64_t row_bytes, state_bytes, index_bytes;             /* parts of it */
	uint64_t made, erased, evicted, expired, refused, waited; /* keys so far */
	uint64_t keys_pulled, keys_pushed;                        /* distinct keys of requests so far */
	uint64_t duplicates;        /* requests that were applied before, by their number */
	uint64_t clock;             /* the least clock of a worker on a shard */
	uint64_t pulls, pushes;     /* requests so far; pushes: all changes that were applied */
	uint64_t scans;             /* partitions that saves and scans have read */
	uint64_t served, served_ns; /* one request in 64, and the time of these at their shards */
	uint64_t reserved[3];
};

/** Reads the statistics into `*stats`, which belongs to the operation until the future is complete. The future
 * completes with the number of shards, or fails if one does not answer. */
enum far_status far_ps_table_stats(struct far_ps_table *table, uint64_t timeout_ns, struct far_ps_stats *stats,
				   struct far_future **future, struct far_err *err);

#ifdef __cplusplus
}
#endif
#endif
