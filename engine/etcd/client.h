/* SPDX-License-Identifier: BSD-3-Clause */
/** Internals of the module: endpoints, requests, the watch. Control thread. */
#ifndef FAR_ETCD_CLIENT_H
#define FAR_ETCD_CLIENT_H

#include "etcd/changes.h"

#include <curl/curl.h>

#define ETCD_ENDPOINTS_MAX 16
#define ETCD_URL_MAX       320
#define ETCD_REPLY_MAX     ((size_t)64 << 20) /* bytes of one reply; a page of keys has fewer */
#define ETCD_RETRY_MIN_NS  UINT64_C(50000000) /* until a request is sent again; doubles up to ETCD_RETRY_MAX_NS */
#define ETCD_RETRY_MAX_NS  UINT64_C(1000000000)

enum request_kind { REQUEST_TXN, REQUEST_LEASE, REQUEST_LOGIN };

/** A request: waiting (no `easy`), or under way. */
struct request {
	struct request *next;
	enum request_kind kind;
	const char *path;
	char *body;
	CURL *easy;
	struct curl_slist *headers;
	uint64_t endpoint_epoch; /* of the attempt */
	uint64_t sent_at;        /* when the attempt began */
	int fd;                  /* socket on which its answer is awaited; −1: none */
	struct buffer in;
	etcd_done_fn *done;
	void *user;
};

/** The watch: closed (no `easy`), or open. */
struct watch_stream {
	bool wanted;
	CURL *easy;
	struct curl_slist *headers;
	char *body;
	uint64_t endpoint_epoch;
	int error; /* -errno that change() returns; 0: none */
	bool paused;
	struct changes changes;
	struct kv_bytes key, end;
};

struct etcd {
	CURLM *multi;
	int epoll;
	uint64_t timer_at; /* of the multi handle; TIME_NEVER: none */
	uint64_t now;
	char endpoints[ETCD_ENDPOINTS_MAX][ETCD_URL_MAX]; /* URL without a path */
	unsigned endpoints_n, endpoint;                   /* the present one */
	uint64_t endpoint_epoch;                          /* counts its changes */
	uint64_t retry_at, retry_ns;
	unsigned failures;                  /* attempts since the last answer */
	unsigned refused_n;                 /* endpoints that have refused a connection, one after the other */
	uint64_t attempt_epoch, attempt_at; /* begin of the first attempt of an epoch */
	uint64_t refused_from, absent_at;   /* begin of the first of those attempts; that of a round of all */
	int trouble;                        /* -errno of the last attempt; 0: etcd answers */
	char trouble_text[ETCD_TEXT_MAX], trouble_out[ETCD_TEXT_MAX];
	char *user, *password, *ca, *cert, *key, *token;
	long timeout_ms, lease_timeout_ms;
	uint64_t retry_ns_max;
	struct request *requests;
	struct watch_stream watch;
};

/* ---- client.c ---- */

/** A new transfer to the present endpoint, not started; `*headers` is to be freed after it. NULL: no memory. */
CURL *transfer_make(struct etcd *e, const char *path, const char *body, struct curl_slist **headers);
/** The attempt of that epoch failed: `error` with the cause and the remedy. The next endpoint is the present one. */
void endpoint_failed(struct etcd *e, uint64_t epoch, int error, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/** Likewise, for a transfer: result of curl, or status of HTTP and body. */
void transfer_failed(struct etcd *e, uint64_t epoch, CURL *easy, CURLcode result, const struct buffer *in);

/* ---- watch.c ---- */

/** Opens the watch if it is closed, and closes it if its endpoint has failed. */
void watch_step(struct etcd *e);
/** The transfer has ended. */
void watch_ended(struct etcd *e, CURLcode result);
void watch_close(struct etcd *e);
int etcd_watch(struct etcd *e, const struct etcd_range *of, int64_t revision);
int etcd_change(struct etcd *e, struct etcd_kv *out, int64_t *revision);

#endif
