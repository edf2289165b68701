/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The client of etcd v3: the module libfarcall-etcd.so has it, with libcurl and jansson, and the store etcd:// loads
 * it. The module needs no symbol of libfarcall. It repeats each request, at one endpoint after the other, until etcd
 * has answered it; so a transaction has to recognize that it was committed before. Stepped; nothing blocks. Control
 * thread.
 */
#ifndef FAR_CONTROL_ETCD_MODULE_H
#define FAR_CONTROL_ETCD_MODULE_H

#include "base/module.h"
#include "control/kv.h"

#include <farcall/status.h>

/* Raised with every change of what this header declares. */
#define ETCD_MODULE_ABI 2u

#define ETCD_CLAUSES_MAX 4 /* comparisons, operations of a transaction's branch */

struct etcd;

struct etcd_config {
	const char *endpoints;       /* "host:port[,host:port…]" */
	const char *user, *password; /* NULL: no authentication */
	const char *ca, *cert,
		*key; /* files, PEM; `ca` NULL: without TLS; `cert` and `key` NULL: no client certificate */
	uint64_t lease_timeout_ns;   /* the same of requests about leases, and the longest rest after failures */
	uint64_t request_timeout_ns; /* after which the next endpoint is tried */
};

/** A key, or the keys [key, end) if `end` has bytes. */
struct etcd_range {
	struct kv_bytes key, end;
};

enum etcd_target { ETCD_MODIFIED, ETCD_CREATED };

/** True if the revision of each key in the range equals `revision`, or is greater; of a range without keys it is 0. */
struct etcd_compare {
	struct etcd_range of;
	enum etcd_target target;
	bool greater; /* instead of equal */
	int64_t revision;
};

enum etcd_op_kind { ETCD_PUT, ETCD_DELETE, ETCD_GET };

struct etcd_op {
	enum etcd_op_kind kind;
	struct etcd_range of;
	struct kv_bytes value; /* ETCD_PUT */
	int64_t lease;         /* ETCD_PUT; 0: none */
	int64_t revision;      /* ETCD_GET; 0: the present one */
	int64_t limit;         /* ETCD_GET: keys at most, the earliest changed first; 0: all */
	int64_t revision_min;  /* ETCD_GET: keys that changed before it are left out */
};

/** The operations `then` if all comparisons are true, else the others. */
struct etcd_txn {
	struct etcd_compare compares[ETCD_CLAUSES_MAX];
	struct etcd_op then[ETCD_CLAUSES_MAX], otherwise[ETCD_CLAUSES_MAX];
	unsigned compares_n, then_n, otherwise_n;
};

/** A key as etcd has it. Borrowed. */
struct etcd_kv {
	struct kv_bytes key, value;
	int64_t revision; /* of its last change */
	int64_t lease;    /* 0: none */
	bool deleted;
};

/** The answer to a request. Borrowed. */
struct etcd_reply {
	int error; /* 0; -ENOENT: no such lease; -EEXIST: the lease is there; -ENOSPC; -EACCES; -EIO: etcd refused it */
	bool succeeded;   /* of a transaction: the comparisons were true */
	bool more;        /* ETCD_GET: there are more keys than `limit` */
	int64_t revision; /* of the store */
	int64_t ttl_s;    /* of a lease: that is left; −1: there is no such lease */
	size_t kvs_n;
	const struct etcd_kv *kvs; /* of all ETCD_GET of the branch, in order */
};

typedef void etcd_done_fn(void *user, const struct etcd_reply *reply);

enum etcd_lease { ETCD_GRANT, ETCD_KEEP, ETCD_REVOKE };

struct etcd_ops {
	/** NULL: `err` has the reason. Nothing is sent yet. */
	struct etcd *(*create)(const struct etcd_config *config, struct far_err *err);
	/** Ends all requests without a callback. */
	void (*destroy)(struct etcd *e);
	/** A descriptor that is readable when step() has something to do. */
	int (*fd)(const struct etcd *e);
	/** Callbacks come from here. Returns the absolute time of the next call at the latest. */
	uint64_t (*step)(struct etcd *e, uint64_t now, bool *busy);
	/** Sends a transaction. 0 or -ENOMEM: then without a callback. */
	int (*txn)(struct etcd *e, const struct etcd_txn *t, etcd_done_fn *done, void *user);
	/** Grants, keeps alive or revokes a lease. As txn(). */
	int (*lease)(struct etcd *e, enum etcd_lease what, int64_t id, int64_t ttl_s, etcd_done_fn *done, void *user);
	/** Watches the keys from that revision on, in place of those before. 0 or -ENOMEM. */
	int (*watch)(struct etcd *e, const struct etcd_range *of, int64_t revision);
	/** The next change: 1; 0: none yet; -ESTALE: etcd has compacted changes, read all and watch anew; another
	 * -errno: the watch was refused. The change is valid until the next call. `*revision`: all changes up to it
	 * were returned. */
	int (*change)(struct etcd *e, struct etcd_kv *out, int64_t *revision);
	/** Why requests are not answered: 0; -EACCES (user, password or certificates: it stays so), -ENOTSUP (no
	 * gateway of v3: likewise), another -errno. `text` names endpoint, cause and remedy; valid until the next call.
	 */
	int (*trouble)(const struct etcd *e, const char **text);
	/** When the last round of attempts began in which every endpoint refused its connection; 0: there was none. */
	uint64_t (*absent)(const struct etcd *e);
	/** When the last request about a lease was sent whose bytes the only endpoint's host has received, unanswered;
	 * 0: none. Of several endpoints another one may serve. */
	uint64_t (*arrived)(const struct etcd *e);
};

/** Content of `far_etcd_module`. */
struct etcd_module {
	struct module_head head; /* ETCD_MODULE_ABI */
	const struct etcd_ops *ops;
};

/** The operations of the module, loaded by the first call of the process. It stays loaded. NULL: `err` has the reason
 * and the remedy. Any thread. */
const struct etcd_ops *etcd_module_load(struct far_err *err);

#endif
