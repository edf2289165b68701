/* SPDX-License-Identifier: BSD-3-Clause */
/* Join: connects to the store, agrees on the world size, claims the rank, exchanges infos. Control thread. */
#include "base/error.h"
#include "base/log.h"
#include "control/group.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* When a join logs what it waits for: at first, and then. */
#define REPORT_AFTER_NS UINT64_C(2000000000)
#define REPORT_EVERY_NS UINT64_C(10000000000)

#define MISSING_NS UINT64_C(250000000) /* to read which members have joined, after the deadline */

/* An inherited listener serves one group of the process; a second init opens its own. Relaxed: it orders no data. */
static _Atomic bool store_fd_used;

static int store_listen(struct group *g)
{
	struct ctl_net *net = g->config.net;
	if (g->store_fd >= 0 && !atomic_exchange_explicit(&store_fd_used, true, memory_order_relaxed)) {
		int rc = net->ops->listen(net, g->url.host, g->url.port, g->store_fd);
		if (rc != -EADDRNOTAVAIL) {
			if (rc < 0)
				group_fail(g, false, FAR_INVALID,
					   "FAR_STORE_FD is %d, which is no listening socket (%s); unset it, or start "
					   "the workers with `farcall run`",
					   g->store_fd, strerror(-rc));
			return rc;
		}
		/* It listens on another port: it belongs to another group. */
		atomic_store_explicit(&store_fd_used, false, memory_order_relaxed);
	}
	int rc = net->ops->listen(net, g->url.host, g->url.port, -1);
	if (rc >= 0)
		return rc;
	group_fail(g, false, FAR_SYSTEM, "the store cannot listen on %s: %s%s", g->store,
		   rc == -ENXIO ? "the host name does not resolve" : strerror(-rc),
		   rc == -EADDRINUSE ? "; choose another port (MASTER_PORT), or stop the process that listens there"
				     : "; give the host and a free port of this machine (MASTER_ADDR, MASTER_PORT)");
	g->err.code = -rc;
	return rc;
}

/* An AUTO key can be read by one user of one host only, so the store must listen on loopback. */
static bool store_permitted(struct group *g)
{
	struct ctl_net *net = g->config.net;
	if (g->config.key.kind == KEY_AUTO && g->url.scheme == URL_ETCD && !store_etcd_is_private()) {
		group_fail(
			g, false, FAR_DENIED,
			"without TLS and a user or a certificate (FAR_ETCD_CA, FAR_ETCD_USER or FAR_ETCD_CERT) others "
			"could read the group's key in %s: make a key with `farcall key FILE` and give every member a "
			"copy (FAR_KEY_FILE), or set security=none",
			g->store);
		return false;
	}
	if (g->config.key.kind != KEY_AUTO || g->url.scheme != URL_TCP)
		return true;
	int rc = net->ops->loopback(net, g->url.host, -1);
	if (rc > 0 && g->store_fd >= 0 && g->url.rank == 0 &&
	    !atomic_load_explicit(&store_fd_used, memory_order_relaxed))
		rc = net->ops->loopback(net, g->url.host, g->store_fd) != 0;
	if (rc > 0)
		return true;
	if (rc == 0)
		group_fail(
			g, false, FAR_DENIED,
			"%s is not a loopback address: without a group key the store listens on loopback only, unless "
			"security=none is set; make a key with `farcall key FILE` and give every member a copy "
			"(FAR_KEY_FILE)",
			g->store);
	else
		group_fail(g, false, FAR_UNREACHABLE, "the store's host \"%.200s\" does not resolve: %s", g->url.host,
			   rc == -ENXIO ? "no such name; correct MASTER_ADDR or init_method" : strerror(-rc));
	return false;
}

/* Rank 0: starts the store, or fails the join; without memory for it `server` stays NULL. */
static bool server_start(struct group *g)
{
	int listener = store_listen(g);
	if (listener < 0)
		return false;
	g->server = store_server_create(g->config.net, listener);
	if (!g->server) {
		g->config.net->ops->close(g->config.net, listener);
		return true;
	}
	store_server_set_clock(g->server, g->config.clock);
	if (!join_key_begin(g))
		return false;
	store_server_reserve(g->server, g->group, g->url.world);
	if (g->url.dynamic)
		store_server_rebuild(g->server, g->now, g->config.lease_ns);
	return true;
}

struct store_client *join_client(struct group *g)
{
	struct store_stream *stream = store_stream_of(g->config.net, &g->url);
	if (stream && g->url.dynamic)
		stream->lease_ns = g->config.lease_ns;
	return store_client_create(stream);
}

void join_start(struct group *g)
{
	g->phase = PHASE_STORE;
	g->joined_from = g->now;
	g->report_at = time_after(g->now, REPORT_AFTER_NS);
	g->init_deadline = time_after(g->now, g->config.init_timeout_ns);
	g->diagnose_at =
		g->init_deadline == TIME_NEVER ? TIME_NEVER : g->init_deadline - g->config.init_timeout_ns / 10;
	if (!store_permitted(g))
		return;
	if (g->config.key.kind == KEY_AUTO && g->url.scheme == URL_TCP)
		key_location(&g->key_location, g->url.host, g->url.port);
	if (group_hosts_store(g) && !server_start(g))
		return;
	if (g->server)
		g->client = store_client_create(store_stream_local(g->server));
	else if (!group_hosts_store(g))
		g->client = join_client(g);
	if (g->client)
		join_login(g);
	else
		group_fail(g, false, FAR_RESOURCE, "no memory for the store");
}

/* ---- replies ---- */

bool join_reply_counts(struct group *g, int result, const struct store_msg *reply)
{
	g->busy = true;
	if (!group_joining(g) || result)
		return false;
	if (reply->status == STORE_FULL || reply->status == STORE_BAD) {
		group_fail(g, true, FAR_RESOURCE, "the store at %s is full", g->store);
		return false;
	}
	if (reply->status == STORE_DENIED) {
		group_fail(g, true, FAR_DENIED,
			   "the store at %s refuses worker \"%s\", rank %d, a record that belongs to another member",
			   g->store, g->name, g->url.rank);
		return false;
	}
	return reply->status != STORE_TIMEOUT;
}

/* True if all sessions with the member that the join requires are up. */
static bool has_all_sessions(const struct group *g, int r)
{
	return g->peers[r].up_n >= g->config.shards * g->members[r].shards;
}

/* Writes what this worker's drivers diagnose on the paths to members without sessions: "" or "BEFORE...". */
static void add_diagnoses(const struct group *g, const char *before, char *out, size_t cap)
{
	struct info info;
	char text[192] = "";
	out[0] = 0;
	for (int r = 0; r < g->url.world && !text[0]; r++)
		if (!has_all_sessions(g, r) && r != g->url.rank &&
		    !info_decode(g->peers[r].info, g->peers[r].bytes, &info))
			route_diagnoses(g, &info, text, sizeof text);
	if (text[0])
		snprintf(out, cap, "%s%s", before, text);
}

static void aborted(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	char remarks[224] = "", cause[FAR_ERR_TEXT_MAX];
	if (!join_reply_counts(g, result, reply) || g->rejoining)
		return;
	/* The member that failed first may not be the one whose drivers see the reason. */
	if (g->phase == PHASE_CONNECT)
		add_diagnoses(g, "; seen from here: ", remarks, sizeof remarks);
	group_fail(g, false, FAR_PROTOCOL, "another member could not join");
	group_abort_read(g, reply);
	if ((g->err.status == FAR_TIMEOUT || g->err.status == FAR_UNREACHABLE) && remarks[0]) {
		snprintf(cause, sizeof cause, "%s", g->err.text);
		err_set(&g->err, g->err.status, "%s%s", cause, remarks);
	}
}

static void rank_claimed(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	if (!join_reply_counts(g, result, reply))
		return;
	if (reply->status == STORE_DIFFERS) {
		const char *held = (const char *)reply->value;
		int skip = reply->value_len > 17 ? 17 : 0;
		group_fail(g, true, FAR_NOT_UNIQUE,
			   "rank %d of group \"%s\" is taken by worker \"%.*s\"; give worker \"%s\" a rank of its own",
			   g->url.rank, g->group, (int)reply->value_len - skip, held + skip, g->name);
		g->err.code = g->url.dynamic ? EEXIST : 0; /* another free rank may do */
		return;
	}
	g->phase = PHASE_GATHER;
	if (g->url.dynamic) {
		dynamic_claimed(g);
		return;
	}
	incarnation_watch_claims(g, false);
	if (g->rejoining) {
		rejoin_claimed(g);
		return;
	}
	join_info_publish(g);
	if (list_used(g) && g->url.rank != 0) {
		list_read(g);
		return;
	}
	for (int r = 0; r < g->url.world; r++)
		group_request(g, STORE_WAIT, "info", r, g->init_deadline, join_info_read, &g->peers[r]);
}

/* The deadline has passed without rank 0's list: reads the infos themselves, to name the missing members. */
static void missing_read(struct group *g)
{
	g->naming_missing = true;
	g->init_deadline = time_after(g->now, MISSING_NS);
	for (int r = 0; r < g->url.world; r++)
		group_request(g, STORE_GET, "info", r, g->init_deadline, join_info_read, &g->peers[r]);
}

size_t join_world_text(const struct group *g, char out[JOIN_WORLD_TEXT])
{
	return (size_t)snprintf(out, JOIN_WORLD_TEXT, g->url.dynamic ? "dynamic %d" : "%d", g->url.world);
}

size_t join_claim_text(const struct group *g, char out[JOIN_CLAIM_TEXT])
{
	return (size_t)snprintf(out, JOIN_CLAIM_TEXT, "%016" PRIx64 " %s", g->config.incarnation, g->name);
}

static void world_differs(struct group *g, const struct store_msg *reply)
{
	char theirs[JOIN_WORLD_TEXT];
	snprintf(theirs, sizeof theirs, "%.*s", (int)reply->value_len, (const char *)reply->value);
	bool dynamic = strncmp(theirs, "dynamic ", 8) == 0;
	if (dynamic != g->url.dynamic)
		group_fail(g, true, FAR_INVALID,
			   "RPC group \"%s\" mixes statically and dynamically initialized members: worker \"%s\" is "
			   "%s, and the members that came before are %s; start all of them %s",
			   g->group, g->name, dynamic ? "static (it has a world size)" : "dynamic",
			   dynamic ? "dynamic" : "static", dynamic ? "without a world size" : "with one world size");
	else if (dynamic)
		group_fail(g, true, FAR_INVALID,
			   "members_max is %d for worker \"%s\" but %s for the members that came before; start every "
			   "member of group \"%s\" with the same members_max",
			   g->url.world, g->name, theirs + 8, g->group);
	else
		group_fail(g, true, FAR_INVALID,
			   "world_size is %d for worker \"%s\" but %s for the members that came before; start every "
			   "member of group \"%s\" with the same world_size",
			   g->url.world, g->name, theirs, g->group);
}

static void world_agreed(void *user, int result, const struct store_msg *reply)
{
	struct group *g = user;
	char value[JOIN_CLAIM_TEXT], own[JOIN_WORLD_TEXT];
	if (!join_reply_counts(g, result, reply))
		return;
	size_t len = join_world_text(g, own);
	if (reply->status == STORE_DIFFERS && (reply->value_len != len || memcmp(reply->value, own, len))) {
		world_differs(g, reply);
		return;
	}
	len = join_claim_text(g, value);
	group_submit(g, store_request(STORE_HOLD, value, len), "rank", g->url.rank, g->init_deadline, rank_claimed, g);
}

/* A worker without a NIC port connects only to publish the reason. A running group ignores it. */
static void refused_fail(struct group *g)
{
	group_fail(g, true, g->refused.status, "worker \"%s\" (rank %d) cannot join: %s", g->name, g->url.rank,
		   g->refused.text);
	if (g->server)
		g->grace = time_after(g->now, FAR_STORE_REFUSED_NS);
}

void join_claim(struct group *g)
{
	char value[JOIN_WORLD_TEXT];
	size_t len = join_world_text(g, value);
	join_key_proven(g);
	if (!g->url.dynamic) {
		rejoin_query(g); /* first: replies come in order */
		group_request(g, STORE_WAIT, "abort", -1, g->init_deadline, aborted, g);
	}
	group_submit(g, store_request(STORE_CAS, value, len), "world", -1, g->init_deadline, world_agreed, g);
}

static void store_answered(struct group *g)
{
	if (g->is_refused) {
		refused_fail(g);
		return;
	}
	g->phase = PHASE_CLAIM;
	if (g->config.key.kind == KEY_AUTO && g->url.scheme != URL_TCP)
		join_key_agree(g);
	else
		join_claim(g);
}

/* ---- failures of a join ---- */

#define KEY_REMEDY                                                                                                     \
	"start all members as one user of this host, with one runtime directory (FAR_RUNTIME_DIR), or give them one "  \
	"key (FAR_KEY_FILE; `farcall key` makes it)"

/* Fails the join: no store with this key has replied in time. */
static void store_unanswered(struct group *g, double seconds)
{
	int error = store_client_error(g->client);
	const char *why = store_client_why(g->client);
	if (g->url.scheme == URL_ETCD)
		group_fail(g, false, FAR_TIMEOUT, "the store at %s did not let worker \"%s\" in within %.3g s: %s",
			   g->store, g->name, seconds, *why ? why : "no answer; start etcd, or correct init_method");
	else if (g->url.scheme == URL_FILE)
		group_fail(g, false, FAR_TIMEOUT,
			   error == -EBUSY
				   ? "members of a former group \"%s\" were still in the store at %s after %.3g s; "
				     "end them, or give this group another name or file"
				   : "group \"%s\" could not lock the store at %s within %.3g s; end the process "
				     "that holds its lock",
			   g->group, g->store, seconds);
	else if (error == -ENOKEY)
		group_fail(g, false, FAR_DENIED,
			   "the store at %s has a key, which was not found in %s within %.3g s: %s", g->store,
			   g->key_location.path, seconds, KEY_REMEDY);
	else if (error == -EKEYREJECTED)
		group_fail(
			g, false, FAR_DENIED,
			"what listens at %s did not prove the key of %s within %.3g s: it is another group's store, or "
			"another user's; " KEY_REMEDY,
			g->store, g->key_location.path, seconds);
	else
		group_fail(
			g, false, FAR_TIMEOUT,
			"rank 0, which hosts the store at %s, did not answer within %.3g s (%s); start it, or correct "
			"MASTER_ADDR and MASTER_PORT",
			g->store, seconds, error ? strerror(-error) : "no answer");
}

static void names_missing(const struct group *g, struct names *names)
{
	for (int r = 0; r < g->url.world; r++) {
		if (g->phase == PHASE_CONNECT ? !has_all_sessions(g, r) : !g->peers[r].known)
			names_add(names, r, g->members[r].name);
	}
}

/* Logs what a long join waits for. */
static void report_waiting(struct group *g)
{
	struct names names = {.text = ""};
	const char *why = store_client_why(g->client);
	char what[sizeof names.text + URL_TEXT_MAX + 192], seconds[24];
	snprintf(seconds, sizeof seconds, "%" PRIu64, (g->now - g->joined_from) / FAR_SEC);
	if (g->phase == PHASE_STORE && g->url.scheme == URL_FILE)
		snprintf(what, sizeof what, "the lock of the store at %s, or the end of a former group", g->store);
	else if (g->phase == PHASE_STORE && g->url.scheme == URL_ETCD)
		snprintf(what, sizeof what, "the store at %s%s%.160s", g->store, *why ? ": " : "", why);
	else if (g->phase == PHASE_STORE)
		snprintf(what, sizeof what, "rank 0, which hosts the store at %s", g->store);
	else if (g->phase == PHASE_CLAIM || g->url.dynamic)
		snprintf(what, sizeof what, "the store at %s", g->store);
	else if (g->phase == PHASE_GATHER && list_used(g) && g->url.rank != 0)
		snprintf(what, sizeof what, "rank 0, which waits for the other members");
	else {
		names_missing(g, &names);
		snprintf(what, sizeof what, "%s %s", g->phase == PHASE_CONNECT ? "a session with" : "the join of",
			 names_end(&names));
	}
	const struct far_log_field fields[] = {
		{"worker", g->name}, {"group", g->group}, {"seconds", seconds}, {"waits_for", what}};
	log_fields(FAR_LOG_INFO, fields, sizeof fields / sizeof *fields, "worker \"%s\" has waited %s s for %s",
		   g->name, seconds, what);
	g->report_at = time_after(g->now, REPORT_EVERY_NS);
}

static void deadline_passed(struct group *g)
{
	double seconds = (double)g->config.init_timeout_ns / 1e9;
	struct names names = {.text = ""};
	char remarks[224];
	if (g->phase == PHASE_STORE) {
		store_unanswered(g, seconds);
		return;
	}
	if (g->phase == PHASE_GATHER && list_used(g) && g->url.rank != 0 && !g->naming_missing && !g->rejoining) {
		missing_read(g);
		return;
	}
	names_missing(g, &names);
	if (g->phase == PHASE_CONNECT) {
		add_diagnoses(g, ": ", remarks, sizeof remarks);
		group_fail(g, true, FAR_TIMEOUT, "no session within %.3g s between worker \"%s\" and %s%s", seconds,
			   g->name, names_end(&names), remarks);
	} else if (g->phase == PHASE_GATHER && !g->url.dynamic)
		group_fail(g, true, FAR_TIMEOUT,
			   "%d of %d members of group \"%s\" did not join within %.3g s: missing %s", names.n,
			   g->url.world, g->group, seconds, names_end(&names));
	else
		group_fail(g, true, FAR_TIMEOUT, "the store at %s did not answer within %.3g s", g->store, seconds);
}

/* Fails the join if the store and this worker have different keys. */
static bool keys_differ(struct group *g, int error)
{
	char id[KEY_ID_BYTES];
	if (error == -ENOKEY)
		group_fail(g, false, FAR_DENIED,
			   "the store at %s requires its group's key, and worker \"%s\" has security=none: give it the "
			   "key (FAR_KEY_FILE) instead",
			   g->store, g->name);
	else if (error == -EKEYREVOKED)
		group_fail(
			g, false, FAR_DENIED,
			"the store at %s has no key (security=none), and worker \"%s\" has one: give rank 0 the same "
			"key (FAR_KEY_FILE)",
			g->store, g->name);
	else if (error == -EKEYREJECTED) {
		key_id(&g->config.key.key, id);
		group_fail(
			g, false, FAR_DENIED,
			"the store at %s has another key than worker \"%s\", whose key is that of %.200s (id %s): give "
			"every member of the group the same key",
			g->store, g->name, g->config.key.from, id);
	} else if (error == -EACCES && g->key_err.status)
		group_fail(g, false, g->key_err.status, "%s", g->key_err.text);
	return !group_joining(g);
}

/* Fails the join: the file cannot be the store. */
static void file_unusable(struct group *g, int error)
{
	group_fail(g, false,
		   error == -EPERM || error == -EACCES ? FAR_DENIED
		   : error == -EPROTO                  ? FAR_PROTOCOL
						       : FAR_SYSTEM,
		   "the store at %s cannot be used: %s", g->store,
		   error == -EPERM
			   ? "it is no regular file of this user, or others can access it; remove it, or choose "
			     "another path"
		   : error == -EPROTO ? "the file is not a store of this version; remove it, or choose another path"
		   : error == -ENOLCK ? "its file system has no locks (F_OFD_SETLK); choose another path"
		   : error == -ESTALE ? "it was removed"
				      : strerror(-error));
	g->err.code = -error;
}

/* Fails the join: etcd cannot be the store. */
static void etcd_unusable(struct group *g, int error)
{
	const char *why = store_client_why(g->client);
	group_fail(g, false,
		   error == -EACCES    ? FAR_DENIED
		   : error == -ENXIO   ? FAR_UNREACHABLE
		   : error == -ENOTSUP ? FAR_PROTOCOL
				       : FAR_SYSTEM,
		   "the store at %s cannot be used: %s", g->store, *why ? why : strerror(-error));
	g->err.code = -error;
}

static void store_gone(struct group *g)
{
	int error = store_client_error(g->client);
	if (g->url.scheme == URL_ETCD) {
		etcd_unusable(g, error);
		return;
	}
	if (g->url.scheme == URL_FILE) {
		file_unusable(g, error);
		return;
	}
	if (g->phase == PHASE_STORE && keys_differ(g, error))
		return;
	/* It may end between its reply to the login and the next step. */
	if (g->phase != PHASE_STORE || store_client_was_connected(g->client))
		group_fail(g, false, FAR_PEER_LOST, "the store at %s (rank 0) was lost while joining: %s", g->store,
			   strerror(-error));
	else if (error == -ENXIO)
		group_fail(g, false, FAR_UNREACHABLE,
			   "the store's host \"%.200s\" does not resolve; correct MASTER_ADDR or init_method",
			   g->url.host);
	else
		group_fail(g, false, FAR_PROTOCOL,
			   "%s is not the address of a store of this version: %s; check that no other program "
			   "listens there, and that all members run one version",
			   g->store, strerror(-error));
}

static bool out_of_descriptors(int error)
{
	return error == -EMFILE || error == -ENFILE;
}

/* Fails the join when this process has no descriptors left: otherwise all members would wait until their deadlines. */
static void check_descriptors(struct group *g)
{
	int accepting = g->server ? store_server_accept_error(g->server) : 0;
	int error = out_of_descriptors(accepting) ? accepting : store_client_error(g->client);
	struct rlimit limit = {0};
	char remedy[160] = "the system's limit fs.file-max is used up; raise it with `sysctl fs.file-max`";
	if (!out_of_descriptors(error))
		return;
	getrlimit(RLIMIT_NOFILE, &limit);
	if (error == -EMFILE)
		snprintf(remedy, sizeof remedy,
			 "RLIMIT_NOFILE of this process is %llu; raise it with `ulimit -n` or LimitNOFILE=",
			 (unsigned long long)limit.rlim_cur);
	group_fail(g, true, FAR_RESOURCE, "worker \"%s\" (rank %d) cannot %s %s: %s: %s", g->name, g->url.rank,
		   accepting ? "accept the members' connections to the store at" : "connect to the store at", g->store,
		   strerror(-error), remedy);
	g->err.code = -error;
}

/* Checks once, shortly before the deadline: a member with a diagnosis fails first, so that the others report it. */
static bool has_diagnosis(struct group *g)
{
	char remarks[224] = "";
	if (g->phase != PHASE_CONNECT || g->url.dynamic || g->now < g->diagnose_at)
		return false;
	g->diagnose_at = TIME_NEVER;
	add_diagnoses(g, "", remarks, sizeof remarks);
	return remarks[0];
}

void join_step(struct group *g)
{
	if (g->store_lost)
		store_gone(g);
	else if (g->phase == PHASE_STORE && store_client_connection(g->client) == STORE_CONNECTED)
		store_answered(g);
	if (group_joining(g))
		check_descriptors(g);
	if (group_joining(g) && (g->now >= g->init_deadline || has_diagnosis(g)))
		deadline_passed(g);
	if (group_joining(g) && g->now >= g->report_at)
		report_waiting(g);
}
