/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses init_method and the environment. Any thread. */
#include "control/url.h"

#include "base/error.h"
#include "base/limits.h"
#include "control/launcher.h"

#include <farcall/agent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANK_UNSET  (-1)
#define WORLD_UNSET 0

/* Parses decimal digits only, unlike strtol(), which accepts spaces, signs and prefixes. */
static bool number_parse(const char *s, size_t len, long min, long max, long *out)
{
	long n = 0;
	if (len == 0 || len > 9)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		n = n * 10 + (s[i] - '0');
	}
	if (n < min || n > max)
		return false;
	*out = n;
	return true;
}

/* Of the environment, or what the launcher has in its place. */
static enum far_status env_text(const char *name, const char *remedy, char text[LAUNCHER_TEXT_MAX], const char **out,
				struct far_err *err)
{
	const char *s = launcher_env(name, text), *launcher = s ? NULL : launcher_name();
	if (!s)
		return err_set(err, FAR_INVALID, "environment variable %s expected, but not set%s%s; set it, or %s",
			       name, launcher ? ", and not given by " : "", launcher ? launcher : "", remedy);
	*out = s;
	return FAR_OK;
}

static enum far_status env_number(const char *name, const char *remedy, long min, long max, long *out,
				  struct far_err *err)
{
	char text[LAUNCHER_TEXT_MAX];
	const char *s = NULL;
	enum far_status status = env_text(name, remedy, text, &s, err);
	if (status != FAR_OK)
		return status;
	const char *launcher = s == getenv(name) ? NULL : launcher_name();
	if (!number_parse(s, strlen(s), min, max, out))
		return err_set(err, FAR_INVALID,
			       "environment variable %s%s%s is \"%.64s\", expected a whole number in [%ld, %ld]", name,
			       launcher ? " as of " : "", launcher ? launcher : "", s, min, max);
	return FAR_OK;
}

static enum far_status host_set(struct url *u, const char *host, size_t len, const char *from, struct far_err *err)
{
	if (len == 0 || len >= sizeof u->host)
		return err_set(err, FAR_INVALID, "%s names no host of 1 to %zu characters", from, sizeof u->host - 1);
	for (size_t i = 0; i < len; i++) {
		if (host[i] <= ' ' || host[i] == 0x7f || strchr("/?#@", host[i]))
			return err_set(err, FAR_INVALID, "%s: the host has a character that cannot be in one", from);
	}
	memcpy(u->host, host, len);
	u->host[len] = '\0';
	return FAR_OK;
}

/* host:port or [v6]:port */
static enum far_status authority_parse(struct url *u, const char *method, const char *s, size_t len,
				       struct far_err *err)
{
	const char *host = s, *colon = NULL;
	size_t host_len = 0;
	long port;
	if (len && s[0] == '[') {
		const char *close = memchr(s, ']', len);
		host = s + 1;
		host_len = close ? (size_t)(close - host) : 0;
		if (close && close + 1 < s + len && close[1] == ':')
			colon = close + 1;
	} else {
		colon = memrchr(s, ':', len);
		host_len = colon ? (size_t)(colon - s) : len;
		if (colon && memchr(s, ':', host_len))
			return err_set(err, FAR_INVALID,
				       "init_method \"%.128s\": write an IPv6 address in brackets, %s://[::1]:29500",
				       method, method[0] == 'e' ? "etcd" : "tcp");
	}
	if (!colon)
		return err_set(err, FAR_INVALID, "init_method \"%.128s\" names no port; write %s://host:port", method,
			       method[0] == 'e' ? "etcd" : "tcp");
	if (!number_parse(colon + 1, (size_t)(s + len - colon - 1), 1, 65535, &port))
		return err_set(err, FAR_INVALID, "init_method \"%.128s\": the port is not a number in [1, 65535]",
			       method);
	u->port = (uint16_t)port;
	return host_set(u, host, host_len, "init_method", err);
}

static bool is_dynamic(const char *s, size_t len)
{
	return len == sizeof "dynamic" - 1 && memcmp(s, "dynamic", len) == 0;
}

static enum far_status query_pair(struct url *u, const char *method, const char *s, size_t len, struct far_err *err)
{
	static const char rank[] = "rank=", world[] = "world_size=";
	long n;
	if (len >= sizeof rank - 1 && memcmp(s, rank, sizeof rank - 1) == 0) {
		if (u->rank != RANK_UNSET)
			return err_set(err, FAR_INVALID, "init_method \"%.128s\" gives rank twice", method);
		if (!number_parse(s + sizeof rank - 1, len - (sizeof rank - 1), 0, FAR_WORLD_MAX - 1, &n))
			return err_set(err, FAR_INVALID, "init_method \"%.128s\": rank is not a number in [0, %d]",
				       method, FAR_WORLD_MAX - 1);
		u->rank = (int)n;
		return FAR_OK;
	}
	if (len >= sizeof world - 1 && memcmp(s, world, sizeof world - 1) == 0) {
		if (u->world != WORLD_UNSET)
			return err_set(err, FAR_INVALID, "init_method \"%.128s\" gives world_size twice", method);
		if (is_dynamic(s + sizeof world - 1, len - (sizeof world - 1)))
			n = FAR_WORLD_DYNAMIC;
		else if (!number_parse(s + sizeof world - 1, len - (sizeof world - 1), 1, FAR_WORLD_MAX, &n))
			return err_set(err, FAR_INVALID,
				       "init_method \"%.128s\": world_size is not \"dynamic\", nor a number in [1, %d]",
				       method, FAR_WORLD_MAX);
		u->world = (int)n;
		return FAR_OK;
	}
	return err_set(err, FAR_INVALID,
		       "init_method \"%.128s\": unknown parameter \"%.*s\"; rank and world_size exist", method,
		       (int)(len < 64 ? len : 64), s);
}

static enum far_status query_parse(struct url *u, const char *method, const char *s, struct far_err *err)
{
	while (*s) {
		size_t len = strcspn(s, "&");
		enum far_status status = query_pair(u, method, s, len, err);
		if (status != FAR_OK)
			return status;
		s += len;
		s += *s == '&';
	}
	return FAR_OK;
}

static enum far_status numbers_merge(struct url *u, int rank, int world, struct far_err *err)
{
	char own[LAUNCHER_TEXT_MAX];
	const char *text;
	long n;
	enum far_status status;
	if (rank != FAR_RANK_ENV && u->rank != RANK_UNSET)
		return err_set(err, FAR_INVALID,
			       "rank is given twice: %d as argument and %d in init_method; keep one of them", rank,
			       u->rank);
	if (world != FAR_WORLD_ENV && u->world != WORLD_UNSET)
		return err_set(err, FAR_INVALID,
			       "world_size is given twice: %d as argument and %d in init_method; keep one of them",
			       world, u->world);
	if (world != FAR_WORLD_ENV)
		u->world = world;
	if (rank != FAR_RANK_ENV)
		u->rank = rank;
	if (u->world == WORLD_UNSET && (text = launcher_env("WORLD_SIZE", own)) && is_dynamic(text, strlen(text)))
		u->world = FAR_WORLD_DYNAMIC;
	if (u->world == WORLD_UNSET) {
		status = env_number("WORLD_SIZE", "pass world_size", 1, FAR_WORLD_MAX, &n, err);
		if (status != FAR_OK)
			return status;
		u->world = (int)n;
	}
	u->dynamic = u->world == FAR_WORLD_DYNAMIC;
	if (u->dynamic && u->rank == RANK_UNSET && !launcher_env("RANK", own))
		u->rank = RANK_OPEN;
	if (u->rank == RANK_UNSET) {
		status = env_number("RANK", "pass rank", 0, FAR_WORLD_MAX - 1, &n, err);
		if (status != FAR_OK)
			return status;
		u->rank = (int)n;
	}
	if (u->dynamic) {
		u->world = 0;
		return u->rank >= RANK_OPEN ? FAR_OK
					    : err_set(err, FAR_INVALID, "rank is %d, expected 0 or more", u->rank);
	}
	if (u->world < 1 || u->world > FAR_WORLD_MAX)
		return err_set(err, FAR_INVALID, "world_size is %d, expected [1, %d]", u->world, FAR_WORLD_MAX);
	if (u->rank < 0 || u->rank >= u->world)
		return err_set(err, FAR_INVALID, "rank is %d, expected [0, %d) for a world_size of %d", u->rank,
			       u->world, u->world);
	return FAR_OK;
}

static enum far_status env_address(struct url *u, struct far_err *err)
{
	char text[LAUNCHER_TEXT_MAX];
	const char *host = NULL;
	long port;
	enum far_status status;
	status = env_text("MASTER_ADDR", "pass init_method \"tcp://host:port\"", text, &host, err);
	if (status != FAR_OK)
		return status;
	status = host_set(u, host, strlen(host), "environment variable MASTER_ADDR", err);
	if (status != FAR_OK)
		return status;
	status = env_number("MASTER_PORT", "pass init_method \"tcp://host:port\"", 1, 65535, &port, err);
	if (status != FAR_OK)
		return status;
	u->port = (uint16_t)port;
	return FAR_OK;
}

/* The scheme of the method; −1: unknown. */
static int scheme_of(const char *method, size_t len)
{
	static const char *const names[] = {"tcp", "env", "file", "etcd"};
	for (int i = 0; i < 4; i++)
		if (strlen(names[i]) == len && memcmp(method, names[i], len) == 0)
			return i;
	return -1;
}

static enum far_status path_set(struct url *u, const char *method, const char *s, size_t len, struct far_err *err)
{
	if (len < 2 || len >= sizeof u->path || s[0] != '/')
		return err_set(err, FAR_INVALID,
			       "init_method \"%.128s\": expected an absolute path of at most %zu bytes; write "
			       "file:///path/of/the/store",
			       method, sizeof u->path - 1);
	memcpy(u->path, s, len);
	u->path[len] = '\0';
	u->scheme = URL_FILE;
	return FAR_OK;
}

/* host:port[,host:port…] */
static enum far_status endpoints_set(struct url *u, const char *method, const char *s, size_t len, struct far_err *err)
{
	enum far_status status = FAR_OK;
	if (len == 0 || len >= sizeof u->path)
		return err_set(err, FAR_INVALID,
			       "init_method \"%.128s\": expected endpoints of at most %zu bytes; write "
			       "etcd://host:port[,host:port]",
			       method, sizeof u->path - 1);
	for (size_t at = 0, n; at <= len && status == FAR_OK; at += n + 1) {
		const char *comma = memchr(s + at, ',', len - at);
		n = comma ? (size_t)(comma - s) - at : len - at;
		status = authority_parse(u, method, s + at, n, err);
	}
	memcpy(u->path, s, len);
	u->path[len] = '\0';
	u->host[0] = '\0';
	u->port = 0;
	u->scheme = URL_ETCD;
	return status;
}

enum far_status url_parse(const char *init_method, int rank, int world, struct url *out, struct far_err *err)
{
	static const char *const forms[] = {"tcp://host:port", "env://", "file:///path",
					    "etcd://host:port[,host:port]"};
	const char *method = init_method ? init_method : "env://";
	const char *colon = strstr(method, "://");
	struct url u = {.rank = RANK_UNSET, .world = WORLD_UNSET};
	enum far_status status;
	if (!colon)
		return err_set(err, FAR_INVALID,
			       "init_method \"%.128s\" has no scheme; use tcp://host:port, file:///path, "
			       "etcd://host:port or env://",
			       method);
	int scheme = scheme_of(method, (size_t)(colon - method));
	if (scheme < 0)
		return err_set(err, FAR_INVALID,
			       "init_method \"%.128s\": unknown scheme \"%.*s\"; use tcp://host:port, file:///path, "
			       "etcd://host:port or env://",
			       method, (int)(colon - method < 32 ? colon - method : 32), method);
	const char *rest = colon + 3;
	size_t len = strcspn(rest, scheme == 2 ? "?" : "/?#");
	const char *tail = rest + len;
	tail += *tail == '/';
	if ((*tail && *tail != '?') || (scheme == 1 && len))
		return err_set(err, FAR_INVALID, "init_method \"%.128s\": \"%.64s\" is not understood; use %s", method,
			       *tail && *tail != '?' ? tail : rest, forms[scheme]);
	status = scheme == 0   ? authority_parse(&u, method, rest, len, err)
		 : scheme == 1 ? env_address(&u, err)
		 : scheme == 2 ? path_set(&u, method, rest, len, err)
			       : endpoints_set(&u, method, rest, len, err);
	if (status == FAR_OK && *tail)
		status = query_parse(&u, method, tail + 1, err);
	if (status == FAR_OK)
		status = numbers_merge(&u, rank, world, err);
	if (status == FAR_OK)
		*out = u;
	return status;
}

enum far_status url_bound(struct url *u, unsigned members_max, struct far_err *err)
{
	if (!u->dynamic)
		return FAR_OK;
	if (members_max < 1 || members_max > FAR_WORLD_MAX)
		return err_set(err, FAR_INVALID, "members_max is %u, expected [1, %d], or 0 for %d", members_max,
			       FAR_WORLD_MAX, FAR_MEMBERS_MAX);
	if (u->rank >= (int)members_max)
		return err_set(err, FAR_INVALID,
			       "rank is %d, expected [0, %u) in a group of at most %u members (members_max)", u->rank,
			       members_max, members_max);
	u->world = (int)members_max;
	return FAR_OK;
}

void url_text(const struct url *url, char out[URL_TEXT_MAX])
{
	if (url->scheme == URL_FILE)
		snprintf(out, URL_TEXT_MAX, "file://%s", url->path);
	else if (url->scheme == URL_ETCD)
		snprintf(out, URL_TEXT_MAX, "etcd://%s", url->path);
	else
		snprintf(out, URL_TEXT_MAX, strchr(url->host, ':') ? "[%s]:%u" : "%s:%u", url->host,
			 (unsigned)url->port);
}
