/* SPDX-License-Identifier: BSD-3-Clause */
/** Rank, world size and store address in the environments that launchers make. The test's thread. */
#include "control/launcher.h"
#include "url_fixture.h"

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

TestSuite(launcher, .init = url_setup);

static void expect_url(const char *host, int port, int rank, int world)
{
	cr_assert_eq(url_parse(NULL, -1, 0, &url, &err), FAR_OK, "%s", err.text);
	cr_assert_str_eq(url.host, host);
	cr_assert_eq(url.port, port);
	cr_assert_eq(url.rank, rank);
	cr_assert_eq(url.world, world);
}

Test(launcher, slurm)
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

Test(launcher, open_mpi)
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

Test(launcher, paddle)
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
Test(launcher, torchrun)
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

Test(launcher, of_a_rank_alone)
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

Test(launcher, is_named)
{
	static const char *const cases[][5] = {{"PADDLE_TRAINER_ID", "1", "Paddle"},
					       {"OMPI_COMM_WORLD_RANK", "1", "Open MPI"},
					       {"SLURM_PROCID", "1", "Slurm", "SLURM_STEP_NODELIST", "n1"},
					       {"PMIX_RANK", "1", "PMIx"},
					       {"JOB_COMPLETION_INDEX", "1", "Kubernetes"},
					       {"RANK", "1", "torchrun", "TORCHELASTIC_RUN_ID", "7"}};
	launched((const char *[]){NULL});
	cr_assert_null(launcher_name());
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		launched((const char *[]){cases[i][0], cases[i][1], cases[i][3], cases[i][4], NULL});
		cr_assert_str_eq(launcher_name(), cases[i][2]);
	}
	unsetenv("TORCHELASTIC_RUN_ID");
	cr_assert_null(launcher_name(), "RANK alone is nobody's");
}

Test(launcher, the_longest_host_fits)
{
	char text[LAUNCHER_TEXT_MAX], endpoint[300];
	memset(endpoint, 'h', sizeof endpoint);
	strcpy(endpoint + LAUNCHER_TEXT_MAX - 1, ":1");
	launched((const char *[]){"PADDLE_TRAINER_ID", "0", "PADDLE_MASTER", endpoint, NULL});
	const char *host = launcher_env("MASTER_ADDR", text);
	cr_assert_not_null(host);
	cr_assert_eq(strlen(host), (size_t)LAUNCHER_TEXT_MAX - 1);
	endpoint[LAUNCHER_TEXT_MAX - 1] = 'h';
	strcpy(endpoint + LAUNCHER_TEXT_MAX, ":1");
	setenv("PADDLE_MASTER", endpoint, 1);
	cr_assert_null(launcher_env("MASTER_ADDR", text));
}
