/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON of etcd's gateway, with jansson. Any thread; no state. */
#include "etcd/message.h"

#include "etcd/base64.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests ---- */

static json_t *bytes(struct kv_bytes b)
{
	char *text = malloc(BASE64_LEN(b.len) + 1);
	if (!text)
		return NULL;
	base64_encode(b.data, b.len, text);
	json_t *j = json_stringn(text, BASE64_LEN(b.len));
	free(text);
	return j;
}

static json_t *number(int64_t n)
{
	return json_sprintf("%" PRId64, n);
}

static json_t *range(const struct etcd_range *of)
{
	json_t *j = json_pack("{s:o}", "key", bytes(of->key));
	if (j && of->end.len)
		json_object_set_new(j, "range_end", bytes(of->end));
	return j;
}

static json_t *compare(const struct etcd_compare *c)
{
	bool created = c->target == ETCD_CREATED;
	json_t *j = range(&c->of);
	json_object_set_new(j, "target", json_string(created ? "CREATE" : "MOD"));
	json_object_set_new(j, "result", json_string(c->greater ? "GREATER" : "EQUAL"));
	json_object_set_new(j, created ? "create_revision" : "mod_revision", number(c->revision));
	return j;
}

static json_t *operation(const struct etcd_op *o)
{
	static const char *const names[] = {"request_put", "request_delete_range", "request_range"};
	json_t *j = range(&o->of);
	if (o->kind == ETCD_PUT) {
		json_object_set_new(j, "value", bytes(o->value));
		json_object_set_new(j, "lease", number(o->lease));
	} else if (o->kind == ETCD_GET) {
		json_object_set_new(j, "revision", number(o->revision));
		json_object_set_new(j, "limit", number(o->limit));
		json_object_set_new(j, "min_mod_revision", number(o->revision_min));
		json_object_set_new(j, "sort_order", json_string(o->limit ? "ASCEND" : "NONE"));
		json_object_set_new(j, "sort_target", json_string("MOD"));
	}
	return json_pack("{s:o}", names[o->kind], j);
}

/* Appends; NULL: no memory. */
static json_t *append(json_t *list, json_t *item)
{
	if (json_array_append_new(list, item) == 0)
		return list;
	json_decref(list);
	return NULL;
}

static json_t *operations(const struct etcd_op *o, unsigned n)
{
	json_t *j = json_array();
	for (unsigned i = 0; i < n; i++)
		j = append(j, operation(&o[i]));
	return j;
}

/* NULL stays NULL: jansson's functions pass it on. */
static char *text_of(json_t *j)
{
	char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}

char *message_txn(const struct etcd_txn *t)
{
	json_t *compares = json_array();
	for (unsigned i = 0; i < t->compares_n; i++)
		compares = append(compares, compare(&t->compares[i]));
	return text_of(json_pack("{s:o,s:o,s:o}", "compare", compares, "success", operations(t->then, t->then_n),
				 "failure", operations(t->otherwise, t->otherwise_n)));
}

char *message_lease(int64_t id, int64_t ttl_s)
{
	return text_of(ttl_s ? json_pack("{s:o,s:o}", "ID", number(id), "TTL", number(ttl_s))
			     : json_pack("{s:o}", "ID", number(id)));
}

char *message_watch(const struct etcd_range *of, int64_t revision)
{
	json_t *j = range(of);
	json_object_set_new(j, "start_revision", number(revision));
	json_object_set_new(j, "progress_notify", json_true());
	return text_of(json_pack("{s:o}", "create_request", j));
}

char *message_login(const char *user, const char *password)
{
	return text_of(json_pack("{s:s,s:s}", "name", user, "password", password));
}

/* ---- replies ---- */

bool message_number(const json_t *object, const char *name, int64_t *out)
{
	const json_t *j = json_object_get(object, name);
	const char *text = json_string_value(j);
	char *end;
	*out = json_integer_value(j);
	if (!text)
		return !j || json_is_integer(j);
	errno = 0;
	*out = strtoll(text, &end, 10);
	return !errno && end != text && *end == 0 && text[0] != ' ' && strlen(text) == json_string_length(j);
}

bool message_revision(const json_t *object, const char *name, int64_t *out)
{
	return message_number(object, name, out) && *out >= 0 && *out <= ETCD_REVISION_MAX;
}

static bool bytes_read(const json_t *object, const char *name, struct kv_bytes *out, uint8_t **at)
{
	const json_t *j = json_object_get(object, name);
	long n = json_is_string(j) ? base64_decode(json_string_value(j), json_string_length(j), *at) : j ? -1 : 0;
	*out = (struct kv_bytes){*at, n > 0 ? (size_t)n : 0};
	*at += n > 0 ? n : 0;
	return n >= 0;
}

bool message_kv(const json_t *object, struct etcd_kv *out, uint8_t **at)
{
	*out = (struct etcd_kv){.revision = 0};
	return message_revision(object, "mod_revision", &out->revision) && out->revision > 0 &&
	       message_number(object, "lease", &out->lease) && bytes_read(object, "key", &out->key, at) &&
	       bytes_read(object, "value", &out->value, at) && out->key.len;
}

static size_t kvs_count(const json_t *responses)
{
	size_t i, n = 0;
	json_t *r;
	json_array_foreach(responses, i, r) n +=
		json_array_size(json_object_get(json_object_get(r, "response_range"), "kvs"));
	return n;
}

/* The keys of all responses of a transaction: 0 or -EPROTO. */
static int kvs_read(struct message *m, const json_t *responses)
{
	uint8_t *at = m->bytes;
	size_t i, k;
	json_t *r, *kv;
	json_array_foreach(responses, i, r)
	{
		const json_t *got = json_object_get(r, "response_range");
		m->reply.more |= json_is_true(json_object_get(got, "more"));
		json_array_foreach(json_object_get(got, "kvs"), k,
				   kv) if (!message_kv(kv, &m->kvs[m->reply.kvs_n++], &at)) return -EPROTO;
	}
	return 0;
}

int message_read(struct message *m, const char *text, size_t len)
{
	*m = (struct message){.bytes = NULL};
	json_t *whole = json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL);
	const json_t *result = json_object_get(whole, "result"), *j = result ? result : whole;
	const json_t *responses = json_object_get(j, "responses");
	const json_t *header = json_object_get(j, "header");
	bool is = json_is_object(header) && message_revision(header, "revision", &m->reply.revision) &&
		  message_number(j, "TTL", &m->reply.ttl_s);
	int rc = is ? 0 : -EPROTO;
	m->reply.succeeded = json_is_true(json_object_get(j, "succeeded"));
	m->kvs = calloc(kvs_count(responses) + 1, sizeof *m->kvs);
	m->bytes = malloc(len + 1); /* decoded bytes are fewer than those of the text */
	if (!m->kvs || !m->bytes)
		rc = -ENOMEM;
	if (!rc)
		rc = kvs_read(m, responses);
	m->reply.kvs = m->kvs;
	json_decref(whole);
	if (rc)
		message_free(m);
	return rc;
}

void message_free(struct message *m)
{
	free(m->kvs);
	free(m->bytes);
	*m = (struct message){.bytes = NULL};
}

/* A server's text ends in a log, or in a header. */
static bool is_control(char c)
{
	return (unsigned char)c < ' ' || c == 127;
}

char *message_token(const char *text, size_t len)
{
	json_t *j = json_loadb(text, len, 0, NULL);
	const char *token = json_string_value(json_object_get(j, "token")), *at = token;
	while (at && *at && !is_control(*at))
		at++;
	char *copy = token && *token && !*at ? strdup(token) : NULL;
	json_decref(j);
	return copy;
}

int message_error(const char *text, size_t len, char *out, size_t cap)
{
	json_t *j = json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL);
	/* A stream's error is an object. */
	const json_t *e = json_object_get(j, "error"), *of = json_is_object(e) ? e : j;
	const char *what = json_string_value(json_object_get(of, "message"));
	const char *name = json_is_object(e) ? "grpc_code" : "code";
	int64_t code = -1;
	bool is = e && what && json_object_get(of, name) && message_number(of, name, &code) && code >= 0 && code <= 16;
	if (is)
		snprintf(out, cap, "%s", what);
	for (char *c = out; is && *c; c++)
		*c = is_control(*c) ? '?' : *c;
	json_decref(j);
	return is ? (int)code : -1;
}
