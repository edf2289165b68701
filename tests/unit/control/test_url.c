/* SPDX-License-Identifier: BSD-3-Clause */
/** URLs of stores, and the environment of launchers. The test's thread. */
#include "control/url.h"

#include <criterion/criterion.h>
#include <farcall/agent.h>
#include <stdlib.h>
#include <string.h>

static struct url url;
static struct far_err err;

static void setup(void)
{
	unsetenv("MASTER_ADDR");
	unsetenv("MASTER_PORT");
	unsetenv("RANK");
	unsetenv("WORLD_SIZE");
	memset(&err, 0, sizeof err);
}

/* A process of a launcher, which sets these: name, value, ... , NULL. */
static void launched(const char *const *set)
{
	static const char *const all[] = {"PADDLE_TRAINER_ID",
					  "PADDLE_TRAINERS_NUM",
					  "PADDLE_MASTER_ENDPOINT",
					  "PADDLE_MASTER",
					  "OMPI_COMM_WORLD_RANK",
					  "OMPI_COMM_WORLD_SIZE",
					  "OMPI_COMM_WORLD_LOCAL_SIZE",
					  "SLURM_PROCID",
					  "SLURM_STEP_NUM_TASKS",
					  "SLURM_STEP_NODELIST",
					  "PMIX_RANK",
					  "JOB_COMPLETION_INDEX",
					  "TORCHELASTIC_USE_AGENT_STORE"};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		unsetenv(all[i]);
	for (; *set; set += 2)
		setenv(set[0], set[1], 1);
}

TestSuite(control_url, .init = setup);

static void expect(const char *method, int rank, int world, enum far_status status, const char *part)
{
	enum far_status got = url_parse(method, rank, world, &url, &err);
	cr_assert_eq(got, status, "%s: %s", method ? method : "NULL", err.text);
	cr_assert(strstr(err.text, part), "\"%s\" lacks \"%s\"", err.text, part);
}

Test(control_url, tcp)
{
	cr_assert_eq(url_parse("tcp://127.0.0.1:29500", 1, 4, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(url.host, "127.0.0.1");
	cr_assert_eq(url.port, 29500);
	cr_assert_eq(url.rank, 1);
	cr_assert_eq(url.world, 4);
}

Test(control_url, query)
{
	cr_assert_eq(url_parse("tcp://h.example:1?rank=2&world_size=3", -1, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(url.rank, 2);
	cr_assert_eq(url.world, 3);
	cr_assert_eq(url_parse("tcp://h:65535/?world_size=3", 0, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(url.port, 65535);
	expect("tcp://h:1?rank=0", 0, 1, FAR_INVALID, "rank is given twice");
	expect("tcp://h:1?world_size=1", 0, 1, FAR_INVALID, "world_size is given twice");
	expect("tcp://h:1?rank=1&rank=1", -1, 2, FAR_INVALID, "rank twice");
	expect("tcp://h:1?size=1", -1, 2, FAR_INVALID, "unknown parameter \"size=1\"");
	expect("tcp://h:1?rank=x", -1, 2, FAR_INVALID, "rank is not a number");
}

Test(control_url, ipv6_in_brackets)
{
	cr_assert_eq(url_parse("tcp://[::1]:7", 0, 1, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(url.host, "::1");
	expect("tcp://::1:7", 0, 1, FAR_INVALID, "brackets");
	expect("tcp://[::1]", 0, 1, FAR_INVALID, "names no port");
}

Test(control_url, malformed)
{
	expect("tcp://host", 0, 1, FAR_INVALID, "names no port");
	expect("tcp://host:0", 0, 1, FAR_INVALID, "port");
	expect("tcp://host:65536", 0, 1, FAR_INVALID, "port");
	expect("tcp://host:12x", 0, 1, FAR_INVALID, "port");
	expect("tcp://:12", 0, 1, FAR_INVALID, "names no host");
	expect("tcp://h:1/path", 0, 1, FAR_INVALID, "path");
	expect("host:1", 0, 1, FAR_INVALID, "no scheme");
	expect("", 0, 1, FAR_INVALID, "no scheme");
	expect("http://h:1", 0, 1, FAR_INVALID, "unknown scheme \"http\"");
}

Test(control_url, environment)
{
	expect("env://", -1, 0, FAR_INVALID, "environment variable MASTER_ADDR expected, but not set");
	setenv("MASTER_ADDR", "localhost", 1);
	expect(NULL, -1, 0, FAR_INVALID, "environment variable MASTER_PORT expected, but not set");
	setenv("MASTER_PORT", "29x", 1);
	expect(NULL, -1, 0, FAR_INVALID, "MASTER_PORT is \"29x\"");
	setenv("MASTER_PORT", "29500", 1);
	expect(NULL, -1, 0, FAR_INVALID, "environment variable WORLD_SIZE expected, but not set");
	setenv("WORLD_SIZE", "3", 1);
	expect(NULL, -1, 0, FAR_INVALID, "environment variable RANK expected, but not set");
	setenv("RANK", "3", 1);
	expect(NULL, -1, 0, FAR_INVALID, "rank is 3, expected [0, 3)");
	setenv("RANK", "2", 1);
	cr_assert_eq(url_parse(NULL, -1, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(url.host, "localhost");
	cr_assert_eq(url.port, 29500);
	cr_assert_eq(url.rank, 2);
	cr_assert_eq(url.world, 3);
	/* Arguments go before the environment. */
	cr_assert_eq(url_parse("env://", 0, 1, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(url.rank, 0);
	cr_assert_eq(url.world, 1);
}

Test(control_url, ranges)
{
	expect("tcp://h:1", 0, 1025, FAR_INVALID, "world_size is 1025");
	expect("tcp://h:1", 0, -1, FAR_INVALID, "world_size is -1");
	expect("tcp://h:1", -2, 2, FAR_INVALID, "rank is -2");
	expect("tcp://h:1", 2, 2, FAR_INVALID, "rank is 2, expected [0, 2)");
}

static void expect_url(const char *host, int port, int rank, int world)
{
	cr_assert_eq(url_parse(NULL, -1, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(url.host, host);
	cr_assert_eq(url.port, port);
	cr_assert_eq(url.rank, rank);
	cr_assert_eq(url.world, world);
}

Test(control_url, launcher_slurm)
{
	const char *set[] = {"SLURM_PROCID", "2", "SLURM_STEP_NUM_TASKS", "4", "SLURM_STEP_NODELIST", NULL, NULL};
	const char *const lists[][2] = {{"n1", "n1"},         {"n1,n2", "n1"},          {"n[03-07,9]", "n03"},
					{"n[7,9]x,m", "n7x"}, {"r[1-2]n[3-4]", "r1n3"}, {"n[5]", "n5"}};
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		set[5] = lists[i][0];
		launched(set);
		expect_url(lists[i][1], 29500, 2, 4);
	}
	/* The batch script itself. */
	unsetenv("SLURM_STEP_NODELIST");
	expect(NULL, -1, 0, FAR_INVALID, "MASTER_ADDR expected, but not set; set it");
}

Test(control_url, launcher_open_mpi)
{
	launched((const char *[]){"OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "3",
				  "OMPI_COMM_WORLD_LOCAL_SIZE", "3", "SLURM_PROCID", "0", "SLURM_STEP_NODELIST", "n1",
				  "PMIX_RANK", "0", NULL});
	expect_url("127.0.0.1", 29500, 1, 3);
	setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
	expect(NULL, -1, 0, FAR_INVALID, "MASTER_ADDR expected, but not set, and not given by Open MPI");
	setenv("MASTER_ADDR", "h", 1);
	setenv("MASTER_PORT", "7", 1);
	expect_url("h", 7, 1, 3);
	setenv("OMPI_COMM_WORLD_RANK", "x", 1);
	expect(NULL, -1, 0, FAR_INVALID, "RANK as of Open MPI is \"x\"");
}

Test(control_url, launcher_paddle)
{
	launched((const char *[]){"PADDLE_TRAINER_ID", "0", "PADDLE_TRAINERS_NUM", "2", "PADDLE_MASTER",
				  "10.0.0.1:8001", NULL});
	expect_url("10.0.0.1", 8001, 0, 2);
	setenv("PADDLE_MASTER_ENDPOINT", "10.0.0.2:8002", 1);
	expect_url("10.0.0.2", 8002, 0, 2);
	/* RANK excludes every launcher. */
	setenv("RANK", "1", 1);
	expect(NULL, -1, 0, FAR_INVALID, "MASTER_ADDR expected, but not set; set it");
}

/* Where torchrun has a store of its own at MASTER_PORT, ours is beside it. */
Test(control_url, launcher_torchrun)
{
	launched((const char *[]){"RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "29500",
				  "TORCHELASTIC_USE_AGENT_STORE", "False", NULL});
	expect_url("h", 29500, 1, 2);
	setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
	expect_url("h", 29501, 1, 2);
	setenv("MASTER_PORT", "65535", 1);
	expect_url("h", 65534, 1, 2);
	setenv("MASTER_PORT", "0", 1);
	expect(NULL, -1, 0, FAR_INVALID, "MASTER_PORT is \"0\"");
	setenv("MASTER_PORT", "7x", 1);
	expect(NULL, -1, 0, FAR_INVALID, "MASTER_PORT is \"7x\"");
	unsetenv("RANK");
	setenv("MASTER_PORT", "29500", 1);
	setenv("SLURM_PROCID", "1", 1);
	setenv("SLURM_STEP_NODELIST", "n1", 1);
	expect_url("h", 29500, 1, 2);
}

Test(control_url, launcher_of_a_rank_alone)
{
	for (int i = 0; i < 2; i++) {
		launched((const char *[]){i ? "PMIX_RANK" : "JOB_COMPLETION_INDEX", "1", NULL});
		setenv("MASTER_ADDR", "h", 1);
		unsetenv("WORLD_SIZE");
		expect(NULL, -1, 0, FAR_INVALID,
		       i ? "WORLD_SIZE expected, but not set, and not given by PMIx"
			 : "WORLD_SIZE expected, but not set, and not given by Kubernetes");
		setenv("WORLD_SIZE", "2", 1);
		expect_url("h", 29500, 1, 2);
	}
}

Test(control_url, file)
{
	char text[URL_TEXT_MAX], longest[URL_PATH_MAX + 8] = "file:///";
	cr_assert_eq(url_parse("file:///tmp/a#b/c?rank=1&world_size=2", -1, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(url.scheme, URL_FILE);
	cr_assert_str_eq(url.path, "/tmp/a#b/c");
	cr_assert_eq(url.rank, 1);
	cr_assert_eq(url.world, 2);
	url_text(&url, text);
	cr_assert_str_eq(text, "file:///tmp/a#b/c");
	expect("file://tmp/x", 0, 1, FAR_INVALID, "absolute path");
	expect("file://", 0, 1, FAR_INVALID, "absolute path");
	expect("file:///", 0, 1, FAR_INVALID, "absolute path");
	expect("file:///x?size=1", 0, 1, FAR_INVALID, "unknown parameter");
	memset(longest + 8, 'a', URL_PATH_MAX - 2);
	cr_assert_eq(url_parse(longest, 0, 1, &url, &err), FAR_OK, "%s", err.text);
	longest[URL_PATH_MAX + 6] = 'a';
	expect(longest, 0, 1, FAR_INVALID, "absolute path");
}

Test(control_url, etcd)
{
	char text[URL_TEXT_MAX], longest[URL_PATH_MAX + 8] = "etcd://h:1";
	cr_assert_eq(url_parse("etcd://a:1,[::1]:2379,c.d:65535?rank=1&world_size=2", -1, 0, &url, &err), FAR_OK, "%s",
		     err.text);
	cr_assert_eq(url.scheme, URL_ETCD);
	cr_assert_str_eq(url.path, "a:1,[::1]:2379,c.d:65535");
	cr_assert_eq(url.rank, 1);
	url_text(&url, text);
	cr_assert_str_eq(text, "etcd://a:1,[::1]:2379,c.d:65535");
	expect("etcd://", 0, 1, FAR_INVALID, "write etcd://host:port[,host:port]");
	expect("etcd://a", 0, 1, FAR_INVALID, "names no port; write etcd://host:port");
	expect("etcd://a:1,", 0, 1, FAR_INVALID, "names no port");
	expect("etcd://,a:1", 0, 1, FAR_INVALID, "names no port");
	expect("etcd://a:1,b:0", 0, 1, FAR_INVALID, "the port is not a number");
	expect("etcd://a:1,::1:2", 0, 1, FAR_INVALID, "brackets, etcd://[::1]:29500");
	expect("etcd://u:p@a:1", 0, 1, FAR_INVALID, "brackets");
	expect("etcd://u@a:1", 0, 1, FAR_INVALID, "character");
	expect("etcd://a:1/path", 0, 1, FAR_INVALID, "is not understood; use etcd://");
	memset(longest + 7, '1', URL_PATH_MAX);
	expect(longest, 0, 1, FAR_INVALID, "at most 511 bytes");
}

Test(control_url, tcp_as_text)
{
	char text[URL_TEXT_MAX];
	cr_assert_eq(url_parse("tcp://[::1]:7", 0, 1, &url, &err), FAR_OK, "%s", err.text);
	url_text(&url, text);
	cr_assert_str_eq(text, "[::1]:7");
}
