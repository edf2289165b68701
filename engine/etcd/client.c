/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests to etcd's gateway with libcurl: endpoints in turn, login, repetition, causes of failures. Control thread. */
#include "etcd/client.h"

#include "base/clock.h"

#include <errno.h>
#include <farcall/version.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- endpoints ---- */

void endpoint_failed(struct etcd *e, uint64_t epoch, int error, const char *format, ...)
{
	va_list args;
	if (epoch != e->endpoint_epoch)
		return; /* another request has reported it */
	int n = snprintf(e->trouble_text, sizeof e->trouble_text, "etcd at %.200s: ", e->endpoints[e->endpoint]);
	va_start(args, format);
	vsnprintf(e->trouble_text + n, sizeof e->trouble_text - (size_t)n, format, args);
	va_end(args);
	e->trouble = error;
	e->failures++;
	e->endpoint = (e->endpoint + 1) % e->endpoints_n;
	e->endpoint_epoch++;
	/* All are tried at once, then they rest. */
	if (e->failures % e->endpoints_n)
		return;
	e->retry_at = time_after(e->now, e->retry_ns);
	e->retry_ns = 2 * e->retry_ns < e->retry_ns_max ? 2 * e->retry_ns : e->retry_ns_max;
}

static void endpoint_answered(struct etcd *e)
{
	e->failures = e->refused_n = 0;
	e->trouble = 0;
	e->retry_ns = ETCD_RETRY_MIN_NS;
}

/* What to do about a result of curl; "": wait, or start etcd. `*error`: -errno. */
static const char *remedy_of(const struct etcd *e, CURLcode result, int *error)
{
	*error = -ECONNREFUSED;
	switch (result) {
	case CURLE_COULDNT_RESOLVE_HOST:
		*error = -ENXIO;
		return "; correct the host in init_method";
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_ISSUER_ERROR:
		*error = -EACCES;
		return "; give the CA that signed its certificate (FAR_ETCD_CA), and the host as the certificate names "
		       "it";
	case CURLE_SSL_CACERT_BADFILE:
		*error = -EACCES;
		return "; FAR_ETCD_CA names no readable file of certificates (PEM)";
	case CURLE_SSL_CERTPROBLEM:
		*error = -EACCES;
		return "; correct FAR_ETCD_CERT and FAR_ETCD_KEY, a client's certificate and its key (PEM)";
	case CURLE_SSL_CONNECT_ERROR:
		return "; if it serves without TLS, unset FAR_ETCD_CA";
	case CURLE_RECV_ERROR: /* how TLS 1.3 reports a missing certificate of the client */
	case CURLE_GOT_NOTHING:
		return !e->ca     ? "; if it requires TLS, give the CA that signed its certificate (FAR_ETCD_CA)"
		       : !e->cert ? "; if it requires a certificate, set FAR_ETCD_CERT and FAR_ETCD_KEY"
				  : "";
	case CURLE_OPERATION_TIMEDOUT:
		*error = -ETIMEDOUT;
		return "";
	default:
		return "; start it, or correct init_method";
	}
}

/* Counts endpoints that refuse connections: all of them in turn show that there is no etcd. */
static void refusal_count(struct etcd *e, uint64_t epoch, CURL *easy, CURLcode result)
{
	long error = 0;
	curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &error);
	if (epoch != e->endpoint_epoch)
		return; /* another request has reported it */
	if (result != CURLE_COULDNT_CONNECT || error != ECONNREFUSED) {
		e->refused_n = 0;
		return;
	}
	if (e->refused_n++ == 0)
		e->refused_from = e->attempt_at;
	if (e->refused_n < e->endpoints_n)
		return;
	e->refused_n = 0;
	e->absent_at = e->refused_from;
}

void transfer_failed(struct etcd *e, uint64_t epoch, CURL *easy, CURLcode result, const struct buffer *in)
{
	char text[ETCD_TEXT_MAX];
	long status = 0;
	int error;
	refusal_count(e, epoch, easy, result);
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK) {
		const char *remedy = remedy_of(e, result, &error);
		endpoint_failed(e, epoch, error, "%s%s", curl_easy_strerror(result), remedy);
	} else if (message_error(in->data, in->len, text, sizeof text) >= 0) {
		endpoint_failed(e, epoch, -EAGAIN, "%s", text);
	} else if (status == 400 && !e->ca) {
		endpoint_failed(e, epoch, -EACCES,
				"it requires TLS; give the CA that signed its certificate (FAR_ETCD_CA)");
	} else {
		endpoint_failed(e, epoch, -ENOTSUP,
				"no gateway of etcd v3 (HTTP status %ld); give the address of clients of etcd 3.4 or "
				"later, without --enable-grpc-gateway=false",
				status);
	}
}

CURL *transfer_make(struct etcd *e, const char *path, const char *body, struct curl_slist **headers)
{
	char url[ETCD_URL_MAX + 32], *authorization = NULL;
	CURL *easy = curl_easy_init();
	struct curl_slist *list = easy ? curl_slist_append(NULL, "Content-Type: application/json") : NULL, *more = list;
	if (list && e->token && asprintf(&authorization, "Authorization: %s", e->token) > 0)
		more = curl_slist_append(list, authorization);
	free(authorization);
	if (!list || !more) {
		curl_slist_free_all(list);
		curl_easy_cleanup(easy);
		return NULL;
	}
	if (e->attempt_epoch != e->endpoint_epoch)
		e->attempt_at = e->now;
	e->attempt_epoch = e->endpoint_epoch;
	snprintf(url, sizeof url, "%s%s", e->endpoints[e->endpoint], path);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, list);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, e->timeout_ms);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, e->timeout_ms);
	if (e->ca)
		curl_easy_setopt(easy, CURLOPT_CAINFO, e->ca);
	if (e->cert)
		curl_easy_setopt(easy, CURLOPT_SSLCERT, e->cert);
	if (e->key)
		curl_easy_setopt(easy, CURLOPT_SSLKEY, e->key);
	*headers = list;
	return easy;
}

/* ---- requests ---- */

static size_t received(char *data, size_t size, size_t n, void *user)
{
	struct request *r = user;
	return buffer_put(&r->in, data, size * n, ETCD_REPLY_MAX) ? size * n : 0;
}

/* Ends an attempt. */
static void request_stop(struct etcd *e, struct request *r)
{
	if (r->easy) {
		curl_multi_remove_handle(e->multi, r->easy);
		curl_easy_cleanup(r->easy);
	}
	curl_slist_free_all(r->headers);
	buffer_free(&r->in);
	r->easy = NULL;
	r->headers = NULL;
	r->fd = -1;
}

static void request_free(struct etcd *e, struct request *r)
{
	request_stop(e, r);
	free(r->body);
	free(r);
}

static int request_add(struct etcd *e, enum request_kind kind, const char *path, char *body, etcd_done_fn *done,
		       void *user)
{
	struct request *r = body ? calloc(1, sizeof *r) : NULL, **at = &e->requests;
	if (!r) {
		free(body);
		return -ENOMEM;
	}
	*r = (struct request){.kind = kind, .path = path, .body = body, .fd = -1, .done = done, .user = user};
	while (*at)
		at = &(*at)->next;
	*at = r;
	return 0;
}

static void request_start(struct etcd *e, struct request *r)
{
	r->easy = transfer_make(e, r->path, r->body, &r->headers);
	if (!r->easy)
		return;
	r->endpoint_epoch = e->endpoint_epoch;
	r->sent_at = e->now;
	if (r->kind == REQUEST_LEASE)
		curl_easy_setopt(r->easy, CURLOPT_TIMEOUT_MS, e->lease_timeout_ms);
	curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
	curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, received);
	curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
	curl_multi_add_handle(e->multi, r->easy);
}

static void requests_start(struct etcd *e)
{
	bool login = e->user && !e->token, login_pending = false;
	if (e->now < e->retry_at)
		return;
	for (const struct request *r = e->requests; r; r = r->next)
		login_pending |= r->kind == REQUEST_LOGIN;
	if (login && !login_pending)
		request_add(e, REQUEST_LOGIN, "/v3/auth/authenticate", message_login(e->user, e->password), NULL, NULL);
	for (struct request *r = e->requests; r; r = r->next)
		if (!r->easy && (!login || r->kind == REQUEST_LOGIN))
			request_start(e, r);
}

static void request_remove(struct etcd *e, struct request *r)
{
	struct request **at = &e->requests;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
}

static void login_ended(struct etcd *e, struct request *r, CURLcode result, long status)
{
	char text[ETCD_TEXT_MAX] = "";
	char *token = result == CURLE_OK && status == 200 ? message_token(r->in.data, r->in.len) : NULL;
	int code = result == CURLE_OK ? message_error(r->in.data, r->in.len, text, sizeof text) : -1;
	if (token) {
		endpoint_answered(e);
		free(e->token);
		e->token = token;
		request_remove(e, r);
		request_free(e, r);
		return;
	}
	if (code == GRPC_FAILED)
		endpoint_failed(e, r->endpoint_epoch, -EACCES, "%s; unset FAR_ETCD_USER", text);
	else if (code == GRPC_INVALID || code == GRPC_DENIED || code == GRPC_UNAUTHENTICATED)
		endpoint_failed(e, r->endpoint_epoch, -EACCES,
				"%s; correct FAR_ETCD_USER and the password in the file FAR_ETCD_PASSWORD_FILE", text);
	else
		transfer_failed(e, r->endpoint_epoch, r->easy, result, &r->in);
	request_stop(e, r);
}

/* The error of a reply; 1: the request is sent again. */
static int error_of(struct etcd *e, const struct request *r, int code, const char *text)
{
	if (code == GRPC_UNAUTHENTICATED && e->user) {
		free(e->token);
		e->token = NULL;
		return 1;
	}
	if (code == GRPC_UNAUTHENTICATED || (code == GRPC_INVALID && strstr(text, "user name is empty"))) {
		endpoint_failed(e, r->endpoint_epoch, -EACCES,
				"%s; set FAR_ETCD_USER, and FAR_ETCD_PASSWORD_FILE to a file with the password", text);
		return 1;
	}
	switch (code) {
	case GRPC_NOT_FOUND:
		return -ENOENT;
	case GRPC_EXISTS:
	case GRPC_FAILED: /* as which a lease is granted twice */
		return -EEXIST;
	case GRPC_DENIED:
		return -EACCES;
	case GRPC_EXHAUSTED:
		return strstr(text, "space") ? -ENOSPC : 1;
	case GRPC_OUT_OF_RANGE:
		return -ESTALE;
	case GRPC_INVALID:
	case GRPC_UNIMPLEMENTED:
		return -EIO;
	default: /* no leader, timeouts: of this moment, or of this endpoint */
		endpoint_failed(e, r->endpoint_epoch, -EAGAIN, "%s", text);
		return 1;
	}
}

static void request_ended(struct etcd *e, struct request *r, CURLcode result)
{
	struct message m = {.reply.error = 0};
	char text[ETCD_TEXT_MAX] = "";
	long status = 0;
	curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
	if (r->kind == REQUEST_LOGIN) {
		login_ended(e, r, result, status);
		return;
	}
	int code = result == CURLE_OK ? message_error(r->in.data, r->in.len, text, sizeof text) : -1;
	int rc = code >= 0 ? error_of(e, r, code, text) : 1;
	if (code < 0 && result == CURLE_OK && status == 200)
		rc = message_read(&m, r->in.data, r->in.len);
	if (rc == -EPROTO || rc == -ENOMEM || (rc == 1 && code < 0)) {
		transfer_failed(e, r->endpoint_epoch, r->easy, result, &r->in);
		rc = 1;
	}
	if (rc == 1) {
		request_stop(e, r);
		return;
	}
	endpoint_answered(e);
	m.reply.error = rc;
	request_remove(e, r);
	r->done(r->user, &m.reply);
	message_free(&m);
	request_free(e, r);
}

/* ---- the loop ---- */

static int socket_watch(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
	struct etcd *e = user;
	struct epoll_event ev = {
		.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u), .data.fd = fd};
	struct request *r = NULL;
	(void)known;
	curl_easy_getinfo(easy, CURLINFO_PRIVATE, &r);
	if (r) /* all was sent when only the answer is awaited */
		r->fd = what == CURL_POLL_IN ? fd : -1;
	if (what == CURL_POLL_REMOVE)
		epoll_ctl(e->epoll, EPOLL_CTL_DEL, fd, NULL);
	else if (epoll_ctl(e->epoll, EPOLL_CTL_MOD, fd, &ev) < 0 && epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -1;
	return 0;
}

static int timer_set(CURLM *multi, long ms, void *user)
{
	struct etcd *e = user;
	(void)multi;
	e->timer_at = ms < 0 ? TIME_NEVER : time_after(e->now, (uint64_t)ms * 1000000);
	return 0;
}

static void sockets_run(struct etcd *e, bool *busy)
{
	struct epoll_event ev[16];
	int running, n = epoll_wait(e->epoll, ev, 16, 0);
	for (int i = 0; i < n; i++) {
		int mask = (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? CURL_CSELECT_IN : 0) |
			   (ev[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0);
		curl_multi_socket_action(e->multi, ev[i].data.fd, mask, &running);
		*busy = true;
	}
	if (e->now >= e->timer_at) {
		e->timer_at = TIME_NEVER;
		curl_multi_socket_action(e->multi, CURL_SOCKET_TIMEOUT, 0, &running);
		*busy = true;
	}
}

static uint64_t etcd_step(struct etcd *e, uint64_t now, bool *busy)
{
	CURLMsg *m;
	int left;
	e->now = now;
	requests_start(e);
	watch_step(e);
	sockets_run(e, busy);
	while ((m = curl_multi_info_read(e->multi, &left))) {
		struct request *r = e->requests;
		CURLcode result = m->data.result;
		CURL *easy = m->easy_handle;
		*busy = true;
		if (m->msg != CURLMSG_DONE)
			continue;
		if (result == CURLE_OK)
			e->refused_n = 0; /* also if it has answered with an error */
		while (r && r->easy != easy)
			r = r->next;
		if (r)
			request_ended(e, r, result);
		else if (easy == e->watch.easy)
			watch_ended(e, result);
	}
	bool rests = now < e->retry_at && e->retry_at < e->timer_at;
	return rests ? e->retry_at : e->timer_at;
}

static int etcd_txn(struct etcd *e, const struct etcd_txn *t, etcd_done_fn *done, void *user)
{
	return request_add(e, REQUEST_TXN, "/v3/kv/txn", message_txn(t), done, user);
}

static int etcd_lease(struct etcd *e, enum etcd_lease what, int64_t id, int64_t ttl_s, etcd_done_fn *done, void *user)
{
	static const char *const paths[] = {"/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"};
	return request_add(e, REQUEST_LEASE, paths[what], message_lease(id, what == ETCD_GRANT ? ttl_s : 0), done,
			   user);
}

static int etcd_fd(const struct etcd *e)
{
	return e->epoll;
}

static int etcd_trouble(const struct etcd *e, const char **text)
{
	/* Of several endpoints one may serve. */
	bool all = e->failures >= e->endpoints_n;
	*text = e->trouble ? e->trouble_text : "";
	return !e->trouble || all ? e->trouble : -EAGAIN;
}

static uint64_t etcd_absent(const struct etcd *e)
{
	return e->absent_at;
}

static uint64_t etcd_arrived(const struct etcd *e)
{
	uint64_t at = 0;
	int bytes;
	for (const struct request *r = e->requests; r && e->endpoints_n == 1; r = r->next)
		if (r->kind == REQUEST_LEASE && r->fd >= 0 && ioctl(r->fd, SIOCOUTQ, &bytes) == 0 && bytes == 0)
			at = r->sent_at;
	return at;
}

/* ---- create and destroy ---- */

static void etcd_destroy(struct etcd *e)
{
	while (e->requests) {
		struct request *r = e->requests;
		e->requests = r->next;
		request_free(e, r);
	}
	watch_close(e);
	free((void *)e->watch.key.data);
	free((void *)e->watch.end.data);
	if (e->multi)
		curl_multi_cleanup(e->multi);
	if (e->epoll >= 0)
		close(e->epoll);
	if (e->password)
		explicit_bzero(e->password, strlen(e->password));
	free(e->user);
	free(e->password);
	free(e->ca);
	free(e->cert);
	free(e->key);
	free(e->token);
	free(e);
}

static bool text_copy(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

/* False: too many, or too long. */
static bool endpoints_read(struct etcd *e, const char *list, bool tls)
{
	while (*list) {
		size_t len = strcspn(list, ",");
		if (e->endpoints_n == ETCD_ENDPOINTS_MAX || len == 0 || len > ETCD_URL_MAX - 16)
			return false;
		snprintf(e->endpoints[e->endpoints_n++], ETCD_URL_MAX, "http%s://%.*s", tls ? "s" : "", (int)len, list);
		list += len + (list[len] == ',');
	}
	return e->endpoints_n > 0;
}

static void curl_begin(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static struct etcd *etcd_fail(struct etcd *e, struct far_err *err, enum far_status status, const char *text)
{
	if (err) {
		*err = (struct far_err){.status = status};
		snprintf(err->text, sizeof err->text, "%s", text);
	}
	if (e)
		etcd_destroy(e);
	return NULL;
}

static struct etcd *etcd_create(const struct etcd_config *c, struct far_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct timespec ts;
	struct etcd *e = calloc(1, sizeof *e);
	pthread_once(&once, curl_begin);
	if (!e)
		return etcd_fail(e, err, FAR_RESOURCE, "no memory for the client of etcd");
	clock_gettime(CLOCK_MONOTONIC, &ts);
	e->now = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
	e->timer_at = TIME_NEVER;
	e->endpoint_epoch = 1;
	e->retry_ns = ETCD_RETRY_MIN_NS;
	e->timeout_ms = (long)(c->request_timeout_ns / 1000000);
	e->lease_timeout_ms = (long)(c->lease_timeout_ns / 1000000);
	e->retry_ns_max = c->lease_timeout_ns < ETCD_RETRY_MAX_NS ? c->lease_timeout_ns : ETCD_RETRY_MAX_NS;
	e->epoll = epoll_create1(EPOLL_CLOEXEC);
	e->multi = curl_multi_init();
	bool copied = text_copy(&e->user, c->user) && text_copy(&e->password, c->password) &&
		      text_copy(&e->ca, c->ca) && text_copy(&e->cert, c->cert) && text_copy(&e->key, c->key);
	if (e->epoll < 0 || !e->multi || !copied)
		return etcd_fail(e, err, FAR_RESOURCE, "no memory or descriptors for the client of etcd");
	if (!endpoints_read(e, c->endpoints, e->ca))
		return etcd_fail(e, err, FAR_INVALID, "etcd:// takes 1 to 16 endpoints host:port, separated by commas");
	curl_multi_setopt(e->multi, CURLMOPT_SOCKETFUNCTION, socket_watch);
	curl_multi_setopt(e->multi, CURLMOPT_SOCKETDATA, e);
	curl_multi_setopt(e->multi, CURLMOPT_TIMERFUNCTION, timer_set);
	curl_multi_setopt(e->multi, CURLMOPT_TIMERDATA, e);
	return e;
}

static const struct etcd_ops ops = {.create = etcd_create,
				    .destroy = etcd_destroy,
				    .fd = etcd_fd,
				    .step = etcd_step,
				    .txn = etcd_txn,
				    .lease = etcd_lease,
				    .watch = etcd_watch,
				    .change = etcd_change,
				    .trouble = etcd_trouble,
				    .absent = etcd_absent,
				    .arrived = etcd_arrived};

extern const struct etcd_module far_etcd_module;
__attribute__((visibility("default")))
const struct etcd_module far_etcd_module = {{ETCD_MODULE_ABI, FAR_VERSION}, &ops};
