/* SPDX-License-Identifier: BSD-3-Clause */
/** Internals of the store etcd:// (store_etcd.c): its keys, lease and frames. Control thread of each member. */
#ifndef FAR_CONTROL_STORE_ETCD_H
#define FAR_CONTROL_STORE_ETCD_H

#include "control/etcd_module.h"
#include "control/store_table.h"
#include "control/url.h"

#include <farcall/status.h>

#define PREFIX           "farcall/"
#define PREFIX_END       "farcall0"
#define KEEPS            10                   /* keep-alives in the time of a lease */
#define TIMEOUT_NS       UINT64_C(3000000000) /* of one attempt of a request */
#define LEASE_GRANTED_NS UINT64_C(1600000000) /* etcd's shortest lease, 2 s, serves its holder longer than that */
#define AGAIN_NS         UINT64_C(200000000)  /* until a group that is closed, or does not answer, is tried again */
#define LEAVE_MS         2000                 /* that the end of a client may block */
#define PAGE_KEYS        1000                 /* keys of one reply */
#define PASSWORD_MAX     256
#define KEY_BYTES        (sizeof PREFIX - 1 + FAR_STORE_KEY_MAX)

/** State of a key in etcd. A missing key stays until the watch has reached its revision. */
struct known {
	struct known *next;
	uint64_t hash;
	int64_t revision; /* of its last change; missing: at which it was */
	bool exists;
	uint64_t load; /* the last load that has found it */
	size_t key_len;
	uint8_t key[];
};

enum phase {
	PHASE_GRANT, /* no lease */
	PHASE_LOGIN, /* waits for the frame LOGIN, or for its transaction */
	PHASE_LOAD,  /* reads all keys */
	PHASE_READY,
	PHASE_NEW_LEASE, /* the lease ran out */
	PHASE_REHOLD     /* holds its keys anew */
};

/** What the next transaction of a login expects. */
enum login {
	LOGIN_FIRST, /* a group without members */
	LOGIN_NEXT,  /* a group with members, none of them of this rank before */
	LOGIN_KNOCK, /* a group with members that may have died, as has the one of this rank */
	LOGIN_ANSWER /* one of them is alive: the knock is answered */
};

enum effect { EFFECT_NONE, EFFECT_PUT, EFFECT_DELETE };

struct etcd_store {
	struct store_stream base;
	struct ctl_net *net;
	const struct etcd_ops *ops;
	struct etcd *etcd;
	enum phase phase;
	bool requested; /* a request of the frame, or of the phase, is under way */
	bool keeping;   /* a keep-alive is under way */
	bool was_ready, left;
	bool fresh; /* the key of the first frame was read since it came */
	enum login login;
	int error; /* -errno that ends the attempt; 0: none */
	int64_t lease, old_lease;
	int64_t lease_s; /* time of `lease`: as requested, until etcd has granted another one */
	uint64_t now, keep_at, retry_at;
	uint64_t renewing_at, renewed_at; /* when the last renewal was requested; the last one that is acknowledged */
	int64_t knocked; /* lease that holds the key of the first frame, whose client got a query whether it is alive;
			    0: none */
	uint64_t op;     /* number of the last write */
	enum effect effect; /* of the first frame's transaction */
	int64_t put_lease;
	uint64_t load;
	int64_t load_revision;
	struct store_table table;
	struct known *known;
	struct kv *scratch;    /* where frames are tried */
	struct send_buffer in; /* frames that are not run yet */
	struct store_identity who;
	int64_t page; /* revision from which the next page has keys; 0: none was read */
	char endpoints[URL_PATH_MAX];
	char text[FAR_ERR_TEXT_MAX]; /* why the attempt ended */
};

/** A key as etcd has it, in memory of the caller. */
struct name {
	size_t len;
	uint8_t data[2 * FAR_STORE_KEY_MAX];
};

/** The key in etcd of a key of the store. */
struct kv_bytes etcd_store_name_key(struct name *n, struct kv_bytes key);
/** A key in etcd, printed. */
__attribute__((format(printf, 2, 3))) struct kv_bytes etcd_store_name_print(struct name *n, const char *format, ...);
bool etcd_store_is_equal(struct kv_bytes a, struct kv_bytes b);
/** Ends the attempt. */
void etcd_store_fail(struct etcd_store *s, int error, const char *text);
/** The pointer to the key, or the NULL at the end of the list. */
struct known **etcd_store_known_find(struct etcd_store *s, struct kv_bytes key);
/** 0 or -ENOMEM. */
int etcd_store_known_set(struct etcd_store *s, struct kv_bytes key, int64_t revision, bool exists);
/** Forgets missing keys up to this revision. */
void etcd_store_known_forget(struct etcd_store *s, int64_t upto);
/** The key as etcd had it at `revision`; `kv` NULL: missing. 0 or -ENOMEM. */
int etcd_store_key_apply(struct etcd_store *s, struct kv_bytes key, int64_t revision, const struct etcd_kv *kv);
/** The same, of a key as etcd returns it. */
int etcd_store_kv_apply(struct etcd_store *s, const struct etcd_kv *kv);
/** NULL: the reply does not have it. */
const struct etcd_kv *etcd_store_reply_find(const struct etcd_reply *r, struct kv_bytes key);
/** Reads the next page of all keys. */
void etcd_store_load(struct etcd_store *s);
/** Applies changes of the watch. */
void etcd_store_changes_take(struct etcd_store *s, bool *busy);
/** A request of the frame, or of the phase, was made with this result. */
void etcd_store_request(struct etcd_store *s, int rc);
/** True if the reply ends the attempt. */
bool etcd_store_is_refused(struct etcd_store *s, const struct etcd_reply *r);
/** The lease ran out. */
void etcd_store_lease_lose(struct etcd_store *s);
/** Requests a lease. */
void etcd_store_grant(struct etcd_store *s);
/** Keeps the lease alive when it is due. */
void etcd_store_keep(struct etcd_store *s);
/** Holds the next key with the new lease. */
void etcd_store_rehold(struct etcd_store *s);
/** Begins what LOGIN does in etcd. */
void etcd_store_login_begin(struct etcd_store *s, const struct store_msg *m);
/** The first frame; false: none is complete. */
bool etcd_store_frame_first(struct etcd_store *s, struct store_msg *m, size_t *len);
/** Runs frames until a request is under way. */
void etcd_store_frames_run(struct etcd_store *s, bool *busy);

/**
 * A knock: the key [GROUP]/knock/HOLDER/L, HOLDER being a lease, 0 that of any member. A client that is alive
 * answers by deleting it.
 */
struct kv_bytes etcd_store_name_knock(const struct etcd_store *s, struct name *n, int64_t holder);
/** Answers it if it is a knock at this client. */
void etcd_store_knock_answer(struct etcd_store *s, const struct etcd_kv *kv);
/** Begins to contest the key of the first frame, which that lease holds. */
void etcd_store_knock(struct etcd_store *s, int64_t holder);
/** True if the holder has answered. */
bool etcd_store_knock_is_answered(struct etcd_store *s);

/** The ranges of a group's keys in etcd. */
struct group_names {
	struct name first, client, after, end, self, closed, rank, info, knock;
	struct etcd_range before_clients, clients, after_clients, all;
};

/** Fills the names of this client's group. */
void etcd_store_group_names(const struct etcd_store *s, struct group_names *g);

/** The one key of that name. */
static inline struct etcd_range of_name(const struct name *n)
{
	return (struct etcd_range){.key = {n->data, n->len}};
}

#endif
