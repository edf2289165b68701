/* SPDX-License-Identifier: BSD-3-Clause */
/** Metrics of a worker and its peers after a known number of calls and errors, in all formats; the admin socket, with
 * mistakes of its clients, and while a shard does not answer. Two workers. With the arguments "load [PREFIX]": calls
 * without end, by workers whose names begin so. Main thread of each process; handlers on shard threads. */
#include "base/runtime_dir.h"
#include "check.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#define CALLS    1000
#define MESSAGES 64

static struct far_err err;
static struct far_agent *agent;
static const char *other;
static _Atomic bool held, free_now;

static enum far_status echo(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return(req, &args[0]);
}

static enum far_status fails(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_REMOTE, 7, "on purpose");
}

/* Holds its shard until the test has looked at it. */
static enum far_status hold(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_store(&held, true);
	while (!atomic_load(&free_now))
		usleep(1000);
	return far_return_none(req);
}

/* Answers when the test says so. */
static enum far_status wait(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	while (!atomic_load(&free_now))
		usleep(1000);
	return far_return_none(req);
}

/* A message of the fast path, and its answer. */
static void echo_message(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(far_reply(req, data, len) == FAR_OK);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *error, void *user)
{
	CHECK_STATUS(status, FAR_OK, error);
	++*(unsigned *)user;
}

static void messages(void)
{
	static unsigned done;
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	for (int i = 0; i < MESSAGES; i++)
		CHECK_STATUS(far_msg_send(agent, (struct far_to){(int)(i & 1), 0}, 1, "12345678", 8, NULL, on_done,
					  &done, &err),
			     FAR_OK, &err);
	while (done < MESSAGES)
		far_shard_poll(agent);
	far_shard_release(agent);
}

static const struct far_function table[] = {{"t::echo(int a) -> int", FAR_KIND_INLINE, echo, NULL},
					    {"t::fails() -> none", FAR_KIND_INLINE, fails, NULL},
					    {"t::hold() -> none", FAR_KIND_INLINE, hold, NULL},
					    {"t::wait() -> none", FAR_KIND_BLOCKING, wait, NULL}};

static void call(const char *fn, const struct far_val *args, size_t n, enum far_status want)
{
	struct far_val out = far_none();
	CHECK_STATUS(far_rpc_sync(agent, other, fn, args, n, NULL, &out, &err), want, &err);
	far_val_fini(&out);
}

/* On a busy machine a shard may be left out of a reading. */
static struct far_metrics metrics(void)
{
	struct far_metrics m;
	do
		CHECK_STATUS(far_metrics_read(agent, &m, &err), FAR_OK, &err);
	while (m.shards_silent);
	return m;
}

static void read_peers(struct far_peer_metrics *peers)
{
	do
		CHECK_STATUS(far_metrics_peers(agent, peers, 2, &err), FAR_OK, &err);
	while (!peers[1].sessions_up);
}

static void counts(void)
{
	struct far_peer_metrics peers[2];
	struct far_metrics before = metrics(), after;
	struct far_val one = far_int(1);
	read_peers(peers);
	const struct far_peer_metrics was = peers[1];
	for (int i = 0; i < CALLS; i++)
		call("t::echo", &one, 1, FAR_OK);
	for (int i = 0; i < 3; i++)
		call("t::fails", NULL, 0, FAR_REMOTE);
	messages();
	after = metrics();
	read_peers(peers);
	CHECK(strcmp(peers[1].name, other) == 0 && peers[1].rank == 1 && peers[1].sessions_up == 1 && *peers[1].nic);
	CHECK(peers[1].calls - was.calls == CALLS + 3 + MESSAGES / 2);
	CHECK(after.calls_sent - before.calls_sent >= CALLS + 3 + MESSAGES);
	CHECK(peers[1].errors[FAR_ERROR_HANDLER] - was.errors[FAR_ERROR_HANDLER] == 3);
	for (int i = 0; i < FAR_ERROR_CLASSES; i++)
		CHECK(i == FAR_ERROR_HANDLER || peers[1].errors[i] == was.errors[i]);
	CHECK(peers[1].bytes_sent - was.bytes_sent >= CALLS && peers[1].bytes_received - was.bytes_received >= CALLS);
	CHECK(peers[0].bytes_sent + peers[1].bytes_sent == after.bytes_sent);
	CHECK(peers[0].bytes_received + peers[1].bytes_received == after.bytes_received);
	CHECK(peers[0].calls + peers[1].calls == after.calls_sent);
	CHECK(peers[0].requests + peers[1].requests == after.requests_received);
	CHECK(after.members == 2 && after.members_alive == 2 && after.shards == 1 && after.shards_silent == 0);
	CHECK(after.threads == 4 && after.threads_idle == 4 && after.threads_queued == 0 && after.calls_active == 0);
	/* One in 64 on average: hardly fewer than 4 of 1000, or more than 60. */
	CHECK(after.latency_every == 64 && after.latency_n - before.latency_n >= 2 &&
	      after.latency_n - before.latency_n <= 100);
	CHECK(after.latency_p50_ns > 0 && after.latency_p50_ns <= after.latency_p90_ns &&
	      after.latency_p90_ns <= after.latency_p99_ns && after.latency_p99_ns <= after.latency_p999_ns);
}

/* The same number in the four formats. */
static void formats(void)
{
	char *text, *json, *prometheus, *open, want[400];
	CHECK_STATUS(far_metrics_text(agent, FAR_METRICS_TEXT, &text, &err), FAR_OK, &err);
	CHECK_STATUS(far_metrics_text(agent, FAR_METRICS_JSON, &json, &err), FAR_OK, &err);
	CHECK_STATUS(far_metrics_text(agent, FAR_METRICS_PROMETHEUS, &prometheus, &err), FAR_OK, &err);
	CHECK_STATUS(far_metrics_text(agent, FAR_METRICS_OPENMETRICS, &open, &err), FAR_OK, &err);
	CHECK_STATUS(far_metrics_text(agent, (enum far_metrics_format)4, &text, &err), FAR_INVALID, &err);
	unsigned long long failed = metrics().calls_failed;
	CHECK(failed >= 3);
	snprintf(want, sizeof want, "\nfarcall_calls_failed_total %llu\n", failed);
	CHECK(strstr(text, want));
	snprintf(want, sizeof want, "\"calls_failed\":%llu,", failed);
	CHECK(strstr(json, want));
	snprintf(want, sizeof want, "worker=\"%s\"} %llu\n", check_name(0), failed);
	const char *at = strstr(prometheus, "\nfarcall_calls_failed_total{group=\"default\",");
	CHECK(at && strncmp(strstr(at, "worker="), want, strlen(want)) == 0);
	at = strstr(open, "\n# TYPE farcall_calls_failed counter\n# HELP farcall_calls_failed Calls that ended with an "
			  "error.\nfarcall_calls_failed_total{group=\"default\",");
	CHECK(at && strncmp(strstr(at, "worker="), want, strlen(want)) == 0);
	CHECK(strcmp(open + strlen(open) - 7, "\n# EOF\n") == 0 && !strstr(prometheus, "# EOF"));
	CHECK(strstr(text, "farcall_peer_errors_total{peer=\"worker1\",class=\"handler\"} 3\n"));
	far_metrics_free(text);
	far_metrics_free(json);
	far_metrics_free(prometheus);
	far_metrics_free(open);
}

/* ---- the admin socket ---- */

/* A request to this process's socket, sent as it is. The answer is static. */
static const char *query(const char *request, size_t len)
{
	static char answer[1 << 17];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char dir[RUNTIME_DIR_BYTES];
	for (unsigned i = 0; access(at.sun_path, F_OK) < 0; i++) {
		CHECK(runtime_dir_path(NULL, i, dir) == 0);
		snprintf(at.sun_path, sizeof at.sun_path, "%s/admin-%ld-0", dir, (long)getpid());
	}
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
	CHECK(send(fd, request, len, MSG_NOSIGNAL) == (ssize_t)len);
	size_t got = 0;
	for (ssize_t n; (n = recv(fd, answer + got, sizeof answer - 1 - got, 0)) > 0;)
		got += (size_t)n;
	answer[got] = 0;
	close(fd);
	return answer;
}

static const char *want_line(const char *line)
{
	return query(line, strlen(line));
}

/* ---- metrics of the application ---- */

static void jobs(struct far_metrics_sink *sink, void *user)
{
	const char *const labels[] = {"queue", user, "of", "a \"b\"", NULL};
	far_metrics_put(sink, 0, 7, labels);
	far_metrics_put(sink, 1, 0.25, NULL);
	far_metrics_put(sink, 2, 1, NULL);                                        /* there is no such metric */
	far_metrics_put(sink, 1, 1, (const char *const[]){"no-name", "x", NULL}); /* left out */
}

static void refused_metric(const char *name, const char *unit, const char *help, enum far_metric_kind kind,
			   const char *text)
{
	struct far_metric m = {name, unit, help, kind};
	CHECK_STATUS(far_metrics_add(agent, &m, 1, jobs, (void *)(uintptr_t) "bad", &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, text);
}

static bool prometheus_has(const char *want)
{
	char *text;
	CHECK_STATUS(far_metrics_text(agent, FAR_METRICS_PROMETHEUS, &text, &err), FAR_OK, &err);
	bool has = strstr(text, want) != NULL;
	far_metrics_free(text);
	return has;
}

static void application(void)
{
	static const struct far_metric two[] = {{"app_jobs_total", NULL, "Jobs done", FAR_METRIC_COUNTER},
						{"app_wait_seconds", "seconds", "Longest wait", FAR_METRIC_GAUGE}};
	char *text, *json, want[500];
	void *a = (void *)(uintptr_t) "a", *b = (void *)(uintptr_t) "b";
	CHECK_STATUS(far_metrics_add(agent, two, 2, jobs, a, &err), FAR_OK, &err);
	CHECK_STATUS(far_metrics_add(agent, two, 2, jobs, a, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_metrics_add(agent, two, 2, jobs, b, &err), FAR_OK, &err);
	CHECK_STATUS(far_metrics_text(agent, FAR_METRICS_TEXT, &text, &err), FAR_OK, &err);
	CHECK_STATUS(far_metrics_text(agent, FAR_METRICS_JSON, &json, &err), FAR_OK, &err);
	const char *once = strstr(json, "\"app_jobs_total\"");
	CHECK(once && !strstr(once + 1, "\"app_jobs_total\""));
	CHECK(strstr(text, "app_jobs_total{queue=\"a\",of=\"a \\\"b\\\"\"} 7\n"
			   "app_jobs_total{queue=\"b\",of=\"a \\\"b\\\"\"} 7\n"
			   "app_wait_seconds 0.25\napp_wait_seconds 0.25\n"));
	CHECK(!strstr(text, "no-name"));
	CHECK(strstr(json, "\"added\":[{\"name\":\"app_jobs_total\",\"kind\":\"counter\",\"unit\":\"\",\"samples\":["
			   "{\"labels\":{\"queue\":\"a\",\"of\":\"a \\\"b\\\"\"},\"value\":7},"));
	far_metrics_free(text);
	far_metrics_free(json);
	snprintf(want, sizeof want,
		 "# HELP app_wait_seconds Longest wait.\n# TYPE app_wait_seconds gauge\n"
		 "app_wait_seconds{group=\"default\",worker=\"%s\"} 0.25\n",
		 check_name(0));
	CHECK(prometheus_has(want) && strstr(want_line("metrics text\n"), "\napp_wait_seconds 0.25\n"));
	refused_metric("app-jobs", NULL, "x", FAR_METRIC_GAUGE, "is no name of a metric");
	refused_metric("9jobs", NULL, "x", FAR_METRIC_GAUGE, "is no name of a metric");
	refused_metric("app_jobs", NULL, "x", FAR_METRIC_COUNTER, "ends in \"_total\"");
	refused_metric("app_x_total", NULL, "x", FAR_METRIC_GAUGE, "ends in \"_total\"");
	refused_metric("app_wait", "seconds", "x", FAR_METRIC_GAUGE, "does not end in its unit");
	refused_metric("app_x", NULL, "", FAR_METRIC_GAUGE, "one line");
	refused_metric("app_x", NULL, "a\nb", FAR_METRIC_GAUGE, "one line");
	refused_metric("app_x", NULL, "x", (enum far_metric_kind)2, "2 is no kind");
	refused_metric("farcall_members", NULL, "x", FAR_METRIC_GAUGE, "Farcall has a metric");
	refused_metric("farcall_peer_calls_total", NULL, "x", FAR_METRIC_COUNTER, "Farcall has a metric");
	refused_metric("farcall_info", NULL, "x", FAR_METRIC_GAUGE, "Farcall has a metric");
	refused_metric("app_jobs_total", NULL, "Other jobs", FAR_METRIC_COUNTER, "another kind, unit or help");
	CHECK_STATUS(far_metrics_add(agent, two, 0, jobs, b, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_metrics_remove(agent, jobs, a, &err), FAR_OK, &err);
	CHECK_STATUS(far_metrics_remove(agent, jobs, a, &err), FAR_INVALID, &err);
	CHECK(!prometheus_has("queue=\"a\"") && prometheus_has("queue=\"b\""));
	CHECK_STATUS(far_metrics_remove(agent, jobs, b, &err), FAR_OK, &err);
	CHECK(!prometheus_has("app_jobs"));
	CHECK_STATUS(far_metrics_add(agent, two, 2, jobs, a, &err), FAR_OK, &err); /* stays until the shutdown */
}

/* ---- both ---- */

static void mistakes(void)
{
	char longest[100];
	memset(longest, 'x', sizeof longest);
	CHECK(strncmp(want_line("nonsense\n"), "error the request is not known", 30) == 0);
	CHECK(strncmp(want_line("metrics xml\n"), "error the request is not known", 30) == 0);
	CHECK(strncmp(want_line("\n"), "error the request is not known", 30) == 0);
	CHECK(strcmp(query("in\0fo\n", 6), "error the request has a NUL\n") == 0);
	CHECK(strcmp(query(longest, 64), "error the request is too long\n") == 0);
	CHECK(strcmp(want_line("info"), "error no request came in time\n") == 0);
	CHECK(strncmp(want_line("info\n"), "ok ", 3) == 0 && strstr(want_line("info\n"), "\"state\":\"ready\""));
	CHECK(strstr(want_line("metrics json\n"), "\"worker\":\"worker0\""));
	CHECK(strstr(want_line("metrics text\n"), "\nfarcall_members 2\n"));
}

/* A call that is under way is listed with its age; a shard whose handler does not return is named with it. */
static void under_way(void)
{
	struct far_future *f, *g;
	const char *text;
	CHECK_STATUS(far_rpc_async(agent, other, "t::wait", NULL, 0, NULL, &f, &err), FAR_OK, &err);
	do {
		text = want_line("debug\n");
		usleep(1000);
	} while (!strstr(text, "\"function\":\"t::wait\",\"to\":\"worker1\",\"at\":\"sent\",\"age_ms\":"));
	CHECK(strstr(text, "\"answers\":true") && !strstr(text, "\"age_ms\":null"));
	CHECK(strstr(text, "{\"event\":\"session up\",\"age_ms\":"));
	CHECK(strstr(text, "\"worker\":\"worker1\",\"function\":\"t::fails\",\"status\":\"REMOTE\"}"));
	CHECK_STATUS(far_rpc_async(agent, check_name(0), "t::hold", NULL, 0, NULL, &g, &err), FAR_OK, &err);
	while (!atomic_load(&held))
		usleep(1000);
	text = want_line("debug\n");
	CHECK(strstr(text, "\"answers\":false,\"held\":true,\"runs\":\"t::hold\""));
	CHECK(strstr(want_line("metrics text\n"), "\nfarcall_shards_silent 1\n"));
	atomic_store(&free_now, true);
	CHECK_STATUS(far_future_wait(g, 0, NULL, &err), FAR_OK, &err);
	far_future_free(g);
	CHECK_STATUS(far_rpc_sync(agent, other, "t::release", NULL, 0, NULL, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	CHECK(metrics().shards_silent == 0);
}

static enum far_status let_go(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_metrics m;
	CHECK_STATUS(far_metrics_read(far_req_agent(req), &m, &err), FAR_WOULD_DEADLOCK, &err);
	CHECK_STATUS(far_metrics_remove(far_req_agent(req), jobs, NULL, &err), FAR_WOULD_DEADLOCK, &err);
	atomic_store(&free_now, true);
	return far_return_none(req);
}

static const char *name_of(const char *prefix, int rank)
{
	static char names[2][64];
	snprintf(names[rank & 1], sizeof names[0], "%s%d", prefix, rank);
	return names[rank & 1];
}

/* Calls until a signal ends the process: for tests of what reads the metrics. */
static void load(void)
{
	struct far_val one = far_int(1);
	struct far_rref *kept;
	CHECK_STATUS(far_remote(agent, other, "far::identity", FAR_ARGS(1), NULL, &kept, &err), FAR_OK, &err);
	for (;;) {
		for (int i = 0; i < 20; i++)
			call("t::echo", &one, 1, FAR_OK);
		call("t::fails", NULL, 0, FAR_REMOTE);
		usleep(1000);
	}
}

int main(int argc, char **argv)
{
	alarm(HANG_GUARD_S);
	struct far_function all[5];
	memcpy(all, table, sizeof table);
	all[4] = (struct far_function){"t::release() -> none", FAR_KIND_INLINE, let_go, NULL};
	int rank = check_rank();
	static const struct far_msg_handler handler = {1, FAR_KIND_INLINE, echo_message, NULL};
	const struct far_opts opts = {.functions = all, .functions_n = 5, .messages = &handler, .messages_n = 1};
	const char *prefix = argc > 2 ? argv[2] : "worker";
	CHECK_STATUS(check_init(name_of(prefix, rank), FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err), FAR_OK, &err);
	other = name_of(prefix, 1);
	if (argc > 1 && strcmp(argv[1], "load") == 0) {
		alarm(10 * HANG_GUARD_S);
		if (rank == 0 && far_world_size(agent) > 1)
			load();
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	} else if (rank == 0) {
		counts();
		formats();
		application();
		mistakes();
		under_way();
	}
	CHECK_STATUS(far_shutdown(agent, 0, &err), FAR_OK, &err);
	return 0;
}
