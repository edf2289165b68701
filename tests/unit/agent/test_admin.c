/* SPDX-License-Identifier: BSD-3-Clause */
/** What serves the metrics of an agent: its admin socket, the address of HTTP, the share of measured calls.
 * The test's thread, which is the client. */
#include "agent/metrics.h"
#include "own_agent.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void setup(void)
{
	own_dir_make();
	unsetenv("FAR_ADMIN");
	unsetenv("FAR_METRICS");
	unsetenv("FAR_METRICS_SAMPLE");
}

TestSuite(agent_admin, .init = setup, .fini = own_dir_remove);

/* The path of the admin socket; false: there is none. */
static bool find(struct sockaddr_un *at)
{
	bool found = false;
	DIR *d = opendir(top);
	for (const struct dirent *e; !found && (e = readdir(d));) {
		found = strncmp(e->d_name, "admin-", 6) == 0;
		snprintf(at->sun_path, sizeof at->sun_path, "%s/%.40s", top, e->d_name);
	}
	closedir(d);
	return found;
}

/* Sends a line and reads the answer. */
static const char *request(const char *line)
{
	static char answer[1 << 16];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	size_t len = 0;
	cr_assert(find(&at));
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
	cr_assert_eq(dprintf(fd, "%s\n", line), (int)strlen(line) + 1);
	for (ssize_t n; (n = read(fd, answer + len, sizeof answer - 1 - len)) > 0;)
		len += (size_t)n;
	answer[len] = '\0';
	close(fd);
	return answer;
}

static void expect(const char *line, const char *part)
{
	const char *answer = request(line), *body = strchr(answer, '\n') + 1;
	cr_assert_eq(strncmp(answer, "ok ", 3), 0, "%s", answer);
	cr_assert_eq(strtoul(answer + 3, NULL, 10), strlen(body));
	cr_assert(strstr(body, part), "%s: %s", line, body);
}

static void expect_unknown(const char *line)
{
	cr_assert_str_eq(request(line),
			 "error the request is not known; expected info, debug, or metrics and a format: "
			 "text, json, prometheus, openmetrics\n");
}

Test(agent_admin, answers)
{
	struct far_agent *a = own_begin(NULL);
	expect("info", "{\"version\":\"" FAR_VERSION "\",\"worker\":\"w0\",");
	expect("debug", "{\"info\":{\"version\"");
	expect("metrics text", "calls_sent");
	expect("metrics json", "\"calls_sent\":0");
	expect("metrics prometheus", "# TYPE farcall_calls_sent_total counter");
	expect("metrics openmetrics", "# EOF");
	expect_unknown("metrics xml");
	expect_unknown("metrics");
	expect_unknown("information");
	own_end(a);
	struct sockaddr_un at;
	cr_assert_not(find(&at), "it is removed at the end");
}

Test(agent_admin, on_and_off)
{
	struct sockaddr_un at;
	struct far_agent *a;
	setenv("FAR_ADMIN", "off", 1);
	a = own_begin(NULL);
	cr_assert_not(find(&at));
	own_end(a);
	setenv("FAR_ADMIN", "1", 1);
	cr_assert_eq(own_join("w0", 0, 1, NULL, &a), FAR_INVALID);
	cr_assert_str_eq(err.text, "environment variable FAR_ADMIN is \"1\", expected on or off");
}

/* No module is loaded for an address that is none. */
Test(agent_admin, addresses_of_http)
{
	static const char *const bad[] = {"9464",         ":9464",          "127.0.0.1:",  "127.0.0.1:65536", "h:94 ",
					  "127.0.0.1:-1", "127.0.0.1:94++", "[::1]:9464-", "h:12345678901"};
	struct far_agent *a;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		setenv("FAR_METRICS", bad[i], 1);
		cr_assert_eq(own_join("w0", 0, 1, NULL, &a), FAR_INVALID, "%s", bad[i]);
		cr_assert(strstr(err.text, "expected HOST:PORT, or HOST:PORT+"), "%s", err.text);
	}
}

static void expect_sample(const char *text, enum far_status status, uint32_t every)
{
	uint32_t n = 77;
	if (text)
		setenv("FAR_METRICS_SAMPLE", text, 1);
	cr_assert_eq(agent_sample_every(&n, &err), status, "%s", text);
	cr_assert_eq(n, every, "%s: %u", text, n);
}

Test(agent_admin, share_of_measured_calls)
{
	expect_sample(NULL, FAR_OK, 64);
	expect_sample("", FAR_OK, 64);
	expect_sample("0", FAR_OK, 0);
	expect_sample("1000000", FAR_OK, 1000000);
	expect_sample("1000001", FAR_INVALID, 77);
	cr_assert(strstr(err.text, "FAR_METRICS_SAMPLE is \"1000001\", expected a number from 0"), "%s", err.text);
	expect_sample("-1", FAR_INVALID, 77);
	expect_sample(" 1", FAR_INVALID, 77);
	expect_sample("1k", FAR_INVALID, 77);
}
