/* SPDX-License-Identifier: BSD-3-Clause */
/* The store in a file: what its clients see of each other, of clients that die, and of files that are no store.
 * The test's thread. */
#include "base/byteorder.h"
#include "base/crc32c.h"
#include "control/store.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENTS_MAX 4

static char dir[64], path[96], lock_path[104];
static struct ctl_net *net;
static struct store_client *clients[CLIENTS_MAX];
static uint64_t now;

struct answer {
	int calls, result;
	enum store_status status;
	int64_t number;
	char key[64], value[FAR_STORE_VALUE_MAX + 1];
};

static void setup(void)
{
	snprintf(dir, sizeof dir, "/tmp/farcall-store-XXXXXX");
	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/store", dir);
	snprintf(lock_path, sizeof lock_path, "%s.lock", path);
	net = ctl_net_os_create();
	cr_assert(net);
	now = 1;
}

static void teardown(void)
{
	char left[128];
	for (int i = 0; i < CLIENTS_MAX; i++) {
		store_client_destroy(clients[i]);
		clients[i] = NULL;
	}
	net->ops->destroy(net);
	unlink(path);
	unlink(lock_path);
	snprintf(left, sizeof left, "%s.new", path);
	cr_assert_eq(access(left, F_OK), -1);
	rmdir(dir);
}

TestSuite(store_file, .init = setup, .fini = teardown);

static void steps(void)
{
	for (int i = 0; i < 30; i++) {
		bool busy = false;
		now += 10000000;
		for (int c = 0; c < CLIENTS_MAX; c++)
			if (clients[c])
				store_client_step(clients[c], now, &busy);
	}
}

/* A client; a member of the group unless it is "". */
static struct store_client *client(int i, const char *group, int rank)
{
	struct store_login login = {.who = {.rank = group[0] ? rank : STORE_RANK_NONE, .incarnation = 1},
				    .random = &random_kernel};
	snprintf(login.who.group, sizeof login.who.group, "%s", group);
	snprintf(login.who.name, sizeof login.who.name, "w%d", rank);
	clients[i] = store_client_create(store_stream_file(net, path));
	cr_assert(clients[i]);
	store_client_login(clients[i], &login);
	steps();
	return clients[i];
}

static void end(int i)
{
	store_client_destroy(clients[i]);
	clients[i] = NULL;
}

static void answered(void *user, int result, const struct store_msg *reply)
{
	struct answer *out = user;
	out->calls++;
	out->result = result;
	if (result)
		return;
	out->status = reply->status;
	out->number = reply->number;
	memcpy(out->key, reply->key, reply->key_len < 63 ? reply->key_len : 63);
	out->key[reply->key_len < 63 ? reply->key_len : 63] = 0;
	memcpy(out->value, reply->value, reply->value_len);
	out->value[reply->value_len] = 0;
}

static void submit(struct store_client *c, enum store_op op, const char *key, const char *value, const char *expected,
		   int64_t number, struct answer *out)
{
	struct store_msg m = {.op = op,
			      .number = number,
			      .key = (const uint8_t *)key,
			      .key_len = strlen(key),
			      .value = (const uint8_t *)value,
			      .value_len = value ? strlen(value) : 0,
			      .expected = (const uint8_t *)expected,
			      .expected_len = expected ? strlen(expected) : 0};
	memset(out, 0, sizeof *out);
	cr_assert_eq(store_client_submit(c, &m, now, TIME_NEVER, answered, out), 0);
}

static struct answer request(struct store_client *c, enum store_op op, const char *key, const char *value,
			     const char *expected, int64_t number)
{
	static struct answer out;
	submit(c, op, key, value, expected, number, &out);
	steps();
	cr_assert_eq(out.calls, 1, "%s: %d calls", key, out.calls);
	return out;
}

static void expect_value(struct store_client *c, const char *key, const char *value)
{
	struct answer out = request(c, STORE_GET, key, NULL, NULL, 0);
	cr_assert_eq(out.status, value ? STORE_OK : STORE_MISSING, "%s", key);
	if (value)
		cr_assert_str_eq(out.value, value);
}

Test(store_file, clients_share_values)
{
	struct store_client *a = client(0, "", 0), *b = client(1, "", 0);
	cr_assert_eq(store_client_connection(a), STORE_CONNECTED);
	cr_assert_eq(request(a, STORE_SET, "k", "1", NULL, 0).status, STORE_OK);
	expect_value(b, "k", "1");
	cr_assert_eq(request(b, STORE_ADD, "k", NULL, NULL, 4).number, 5);
	cr_assert_eq(request(a, STORE_ADD, "k", NULL, NULL, 2).number, 7);
	cr_assert_eq(request(b, STORE_CAS, "k", "9", "8", 0).status, STORE_DIFFERS);
	cr_assert_eq(request(b, STORE_CAS, "k", "9", "7", 0).status, STORE_OK);
	expect_value(a, "k", "9");
	cr_assert_eq(request(a, STORE_DELETE, "k", NULL, NULL, 0).status, STORE_OK);
	cr_assert_eq(request(b, STORE_DELETE, "k", NULL, NULL, 0).status, STORE_MISSING);
	expect_value(b, "k", NULL);
}

Test(store_file, waits_and_watches_see_other_clients)
{
	static struct answer waits, watches;
	struct store_client *a = client(0, "", 0), *b = client(1, "", 0);
	submit(a, STORE_WAIT, "later", NULL, NULL, 0, &waits);
	submit(a, STORE_WATCH, "lat", NULL, NULL, 0, &watches);
	steps();
	cr_assert_eq(waits.calls, 0);
	cr_assert_eq(watches.calls, 1);
	request(b, STORE_SET, "later", "x", NULL, 0);
	cr_assert_eq(waits.calls, 1);
	cr_assert_str_eq(waits.value, "x");
	cr_assert_eq(watches.calls, 2);
	cr_assert_str_eq(watches.key, "later");
	request(b, STORE_DELETE, "later", NULL, NULL, 0);
	cr_assert_eq(watches.calls, 3);
	cr_assert_eq(watches.status, STORE_MISSING);
}

Test(store_file, a_held_key_ends_with_its_client)
{
	static struct answer watches;
	struct store_client *a = client(0, "g", 0), *b = client(1, "g", 1);
	submit(b, STORE_WATCH, "g/rank/", NULL, NULL, 0, &watches);
	cr_assert_eq(request(a, STORE_HOLD, "g/rank/0", "a", NULL, 0).status, STORE_OK);
	client(2, "g", 0);
	struct answer out = request(clients[2], STORE_HOLD, "g/rank/0", "c", NULL, 0);
	cr_assert_eq(out.status, STORE_DIFFERS);
	cr_assert_str_eq(out.value, "a");
	end(0);
	steps();
	cr_assert_eq(watches.status, STORE_MISSING);
	cr_assert_eq(request(clients[2], STORE_HOLD, "g/rank/0", "c", NULL, 0).status, STORE_OK);
	expect_value(b, "g/rank/0", "c");
}

/* A process that holds a key and dies of SIGKILL. */
static pid_t holder(int ready)
{
	pid_t pid = fork();
	cr_assert(pid >= 0);
	if (pid)
		return pid;
	static struct answer out;
	net = ctl_net_os_create();
	memset(clients, 0, sizeof clients);
	client(3, "g", 3);
	submit(clients[3], STORE_HOLD, "g/rank/3", "d", NULL, 0, &out);
	steps();
	char ok = out.calls == 1 && out.status == STORE_OK;
	if (write(ready, &ok, 1) == 1)
		pause();
	_exit(1);
}

Test(store_file, a_held_key_ends_with_a_killed_process)
{
	int ready[2], status;
	char ok = 0;
	cr_assert_eq(pipe(ready), 0);
	struct store_client *a = client(0, "g", 0);
	pid_t pid = holder(ready[1]);
	cr_assert_eq(read(ready[0], &ok, 1), 1);
	cr_assert_eq(ok, 1);
	expect_value(a, "g/rank/3", "d");
	kill(pid, SIGSTOP);
	steps();
	expect_value(a, "g/rank/3", "d");
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	steps();
	expect_value(a, "g/rank/3", NULL);
}

Test(store_file, a_group_without_members_begins_anew)
{
	struct store_client *a = client(0, "g", 0), *o = client(1, "", 0);
	request(a, STORE_SET, "g/world", "2", NULL, 0);
	request(o, STORE_SET, "other", "1", NULL, 0);
	client(2, "g", 1);
	expect_value(clients[2], "g/world", "2");
	end(0);
	steps();
	expect_value(clients[2], "g/world", "2");
	end(2);
	steps();
	expect_value(o, "g/world", NULL);
	expect_value(o, "other", "1");
}

Test(store_file, what_dead_members_left_is_deleted)
{
	struct store_client *o = client(1, "", 0);
	request(o, STORE_SET, "g/world", "7", NULL, 0);
	client(0, "g", 0);
	expect_value(clients[0], "g/world", NULL);
}

Test(store_file, a_closed_group_admits_nobody_until_it_has_ended)
{
	struct store_client *a = client(0, "g", 0);
	request(a, STORE_SET, "g/closed", "1", NULL, 0);
	client(1, "g", 1);
	client(2, "h", 0);
	cr_assert_eq(store_client_connection(clients[1]), STORE_CONNECTING);
	cr_assert_eq(store_client_error(clients[1]), -EBUSY);
	cr_assert_eq(store_client_connection(clients[2]), STORE_CONNECTED);
	end(0);
	steps();
	cr_assert_eq(store_client_connection(clients[1]), STORE_CONNECTED);
	expect_value(clients[1], "g/closed", NULL);
}

Test(store_file, the_last_client_removes_a_file_without_keys)
{
	client(0, "g", 0);
	client(1, "", 0);
	request(clients[0], STORE_SET, "g/world", "1", NULL, 0);
	end(0);
	cr_assert_eq(access(path, F_OK), 0);
	end(1);
	cr_assert_eq(access(path, F_OK), -1);
	cr_assert_eq(access(lock_path, F_OK), -1);
	client(0, "", 0);
	request(clients[0], STORE_SET, "kept", "1", NULL, 0);
	end(0);
	client(1, "", 0);
	expect_value(clients[1], "kept", "1");
}

/* The last client removes both files while another one, which has opened the lock file, waits for the lock. */
Test(store_file, a_client_that_comes_as_the_last_one_goes)
{
	struct flock first = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	client(0, "", 0);
	int fd = open(lock_path, O_RDWR | O_CLOEXEC);
	cr_assert(fd >= 0 && fcntl(fd, F_OFD_SETLK, &first) == 0);
	client(1, "", 0);
	cr_assert_eq(store_client_connection(clients[1]), STORE_CONNECTING);
	close(fd);
	end(0);
	cr_assert_eq(access(lock_path, F_OK), -1);
	steps();
	cr_assert_eq(store_client_connection(clients[1]), STORE_CONNECTED);
	cr_assert_eq(access(lock_path, F_OK), 0);
	cr_assert_eq(access(path, F_OK), 0);
}

Test(store_file, an_incomplete_record_is_cut_off)
{
	/* The sum of the first is wrong. The second would be found where the next record ends. */
	uint8_t part[52] = "....\1\0\5\0\1\0\0\0\0\0\0\0\0\0\0\0falsex....\1\0\5\0\1\0\0\0\0\0\0\0\0\0\0\0innery";
	struct store_client *a = client(0, "", 0);
	request(a, STORE_SET, "before", "1", NULL, 0);
	le_put(part + 26, crc32c(0, part + 30, 22), 4);
	FILE *f = fopen(path, "ae");
	cr_assert(f && fwrite(part, 1, sizeof part, f) == sizeof part && fclose(f) == 0);
	expect_value(a, "before", "1");
	expect_value(a, "false", NULL);
	request(a, STORE_SET, "after", "2", NULL, 0);
	client(1, "", 0);
	expect_value(clients[1], "before", "1");
	expect_value(clients[1], "after", "2");
	expect_value(clients[1], "inner", NULL);
}

/* A long log is replaced by a short one; a client that has slept meanwhile sees what was set, and what was deleted. */
Test(store_file, a_long_log_is_compacted)
{
	char value[4001] = "";
	static struct answer watches;
	struct stat st;
	struct store_client *a = client(0, "", 0), *b = client(1, "g", 0);
	memset(value, 'x', sizeof value - 1);
	request(a, STORE_SET, "gone", "1", NULL, 0);
	request(b, STORE_HOLD, "held", "b", NULL, 0);
	submit(b, STORE_WATCH, "gone", NULL, NULL, 0, &watches);
	steps();
	cr_assert_eq(watches.calls, 2);
	clients[1] = NULL;
	request(a, STORE_DELETE, "gone", NULL, NULL, 0);
	for (int i = 0; i < 600; i++) {
		value[0] = (char)('a' + i % 26);
		request(a, STORE_SET, "long", value, NULL, 0);
	}
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_lt(st.st_size, 2 << 20);
	clients[1] = b;
	expect_value(b, "long", value);
	cr_assert_eq(watches.calls, 3);
	cr_assert_eq(watches.status, STORE_MISSING);
	end(0);
	client(2, "", 0);
	expect_value(clients[2], "held", "b");
	end(1);
	steps();
	expect_value(clients[2], "held", NULL);
}

static void expect_refused(int error)
{
	client(0, "", 0);
	cr_assert_eq(store_client_connection(clients[0]), STORE_LOST);
	cr_assert_eq(store_client_error(clients[0]), error, "%s", strerror(-store_client_error(clients[0])));
	end(0);
}

static void write_file(const void *data, size_t len, mode_t mode)
{
	FILE *f = fopen(path, "we");
	cr_assert(f && fwrite(data, 1, len, f) == len && fclose(f) == 0);
	cr_assert_eq(chmod(path, mode), 0);
}

Test(store_file, what_is_no_store_is_refused)
{
	write_file("#!/bin/sh\necho this is another program's\n", 40, 0600);
	expect_refused(-EPROTO);
	write_file("", 0, 0660);
	expect_refused(-EPERM);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(symlink("/nowhere/at/all", path), 0);
	expect_refused(-ENOENT);
	cr_assert_eq(unlink(path), 0);
	snprintf(path, sizeof path, "%s/missing/store", dir);
	expect_refused(-ENOENT);
	snprintf(path, sizeof path, "%s/store", dir);
}

Test(store_file, a_directory_holds_the_file)
{
	struct stat st;
	char file[sizeof path];
	snprintf(file, sizeof file, "%s", path);
	snprintf(path, sizeof path, "%s", dir);
	client(0, "", 0);
	snprintf(path, sizeof path, "%s", file);
	cr_assert_eq(store_client_connection(clients[0]), STORE_CONNECTED);
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0600);
}

/* Each of several processes adds to one number; no addition is lost. */
Test(store_file, additions_of_several_processes)
{
	enum { PROCESSES = 4, ADDS = 100 };
	int status;
	client(0, "", 0);
	for (int i = 0; i < PROCESSES; i++) {
		if (fork())
			continue;
		static struct answer out;
		int done = 0;
		net = ctl_net_os_create();
		memset(clients, 0, sizeof clients);
		client(1, "", 0);
		for (; done < ADDS; done++) {
			submit(clients[1], STORE_ADD, "n", NULL, NULL, 1, &out);
			while (!out.calls)
				steps();
		}
		end(1);
		_exit(0);
	}
	for (int i = 0; i < PROCESSES; i++) {
		cr_assert_gt(wait(&status), 0);
		cr_assert_eq(status, 0);
	}
	expect_value(clients[0], "n", "400");
}
