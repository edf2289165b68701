/* SPDX-License-Identifier: BSD-3-Clause */
/** The key file that rank 0 makes for a group of one host: found while its maker runs, made again, refused when it is
 * not closed. The test's thread. */
#include "base/clock.h"
#include "control/key_auto.h"
#include "key_fixture.h"

#include <poll.h>
#include <sys/file.h>

TestSuite(key_auto, .init = key_setup, .fini = key_teardown);

static struct key_auto made(struct auth_key *out)
{
	struct key_auto a = KEY_AUTO_NONE;
	key_location(&a.at, "127.0.0.1", 29500);
	cr_assert_eq(key_auto_make(&a, &random_kernel, out, &err), FAR_OK, "%s", err.text);
	return a;
}

Test(key_auto, is_found_while_its_maker_runs)
{
	struct auth_key first, second;
	struct key_location at;
	struct stat st;
	key_location(&at, "localhost", 29500);
	cr_assert_eq(key_auto_find(&at, &key, &err), FAR_PENDING);
	struct key_auto a = made(&first);
	cr_assert_eq(key_auto_find(&at, &key, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(memcmp(&key, &first, sizeof key), 0);
	cr_assert_eq(stat(at.path, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0600);
	struct key_location other;
	key_location(&other, "localhost", 29501);
	cr_assert_eq(key_auto_find(&other, &key, &err), FAR_PENDING);
	key_location(&other, "127.0.0.2", 29500);
	cr_assert_eq(key_auto_find(&other, &key, &err), FAR_PENDING);
	/* Its maker dies: the lock goes, the file stays. */
	flock(a.fd, LOCK_UN);
	cr_assert_eq(key_auto_find(&at, &key, &err), FAR_PENDING, "a stale key was taken");
	struct key_auto b = made(&second);
	cr_assert_eq(key_auto_find(&at, &key, &err), FAR_OK);
	cr_assert_eq(memcmp(&key, &second, sizeof key), 0);
	cr_assert_neq(memcmp(&key, &first, sizeof key), 0);
	/* The former maker's end leaves the new one's file alone. */
	key_auto_end(&a);
	cr_assert_eq(key_auto_find(&at, &key, &err), FAR_OK);
	key_auto_end(&b);
	cr_assert_eq(access(at.path, F_OK), -1);
}

/* Whether a change of the file was reported. There is no watch while the user has as many inotify descriptors as
 * fs.inotify.max_user_instances permits. */
static void expect_report(const struct key_auto *a, bool want)
{
	struct pollfd p = {.fd = a->watch, .events = POLLIN};
	cr_assert(a->watch < 0 || poll(&p, 1, 0) == want);
}

static void found_again(struct key_auto *a, const struct auth_key *right)
{
	expect_report(a, true);
	cr_assert(key_auto_keep(a, right));
	cr_assert_eq(key_auto_find(&a->at, &key, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(memcmp(&key, right, sizeof key), 0);
	cr_assert(key_auto_keep(a, right));
	expect_report(a, false); /* of the former file */
}

/* The file is removed, renamed, and removed with its directory. Expect it to be there again each time, locked. */
Test(key_auto, is_made_again)
{
	char other[64], command[96];
	struct auth_key right;
	struct stat st;
	struct key_auto a = made(&right);
	expect_report(&a, false);
	cr_assert_eq(unlink(a.at.path), 0);
	cr_assert_eq(key_auto_find(&a.at, &key, &err), FAR_PENDING);
	found_again(&a, &right);
	snprintf(other, sizeof other, "%s/other", dir);
	cr_assert_eq(rename(a.at.path, other), 0);
	found_again(&a, &right);
	snprintf(command, sizeof command, "rm -rf %s", dir);
	cr_assert_eq(system(command), 0);
	found_again(&a, &right);
	cr_assert_eq(stat(a.at.path, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0600);
	/* Somebody else's stays. */
	unlink(a.at.path);
	write_file(a.at.path, "x", 0600);
	cr_assert(key_auto_keep(&a, &right));
	refused(key_read(a.at.path, &key, &err), FAR_INVALID, "does not hold a key");
	unlink(a.at.path);
	key_auto_end(&a);
	cr_assert_eq(access(a.at.path, F_OK), -1);
}

/* Expect the file looked for by time, since nothing reports that it is gone. */
Test(key_auto, is_made_again_without_inotify)
{
	struct auth_key right;
	struct key_auto a = made(&right);
	if (a.watch >= 0) {
		cr_assert_eq(key_auto_step(&a, &right, 1), TIME_NEVER);
		close(a.watch);
	}
	a.watch = -1;
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(unlink(a.at.path), 0);
		uint64_t next = key_auto_step(&a, &right, 1);
		cr_assert(next > 1 && next < UINT64_C(10000000000));
		cr_assert_eq(key_auto_find(&a.at, &key, &err), FAR_OK, "%s", err.text);
		cr_assert_eq(memcmp(&key, &right, sizeof key), 0);
	}
	key_auto_end(&a);
	cr_assert_eq(key_auto_step(&a, &right, 1), TIME_NEVER);
}

/* A file where the directory was: it cannot be made again for now. */
Test(key_auto, is_made_again_later)
{
	char command[128];
	struct auth_key right;
	struct key_auto a = made(&right);
	snprintf(command, sizeof command, "rm -rf %s && touch %s", dir, dir);
	cr_assert_eq(system(command), 0);
	cr_assert_not(key_auto_keep(&a, &right));
	cr_assert_not(key_auto_keep(&a, &right));
	cr_assert_eq(unlink(dir), 0);
	cr_assert(key_auto_keep(&a, &right));
	cr_assert_eq(key_auto_find(&a.at, &key, &err), FAR_OK, "%s", err.text);
	key_auto_end(&a);
}

Test(key_auto, stale_ones_of_other_addresses_are_removed)
{
	struct key_auto a = KEY_AUTO_NONE, b = a;
	key_location(&a.at, "127.0.0.1", 1);
	key_location(&b.at, "127.0.0.1", 2);
	cr_assert_eq(key_auto_make(&a, &random_kernel, &key, &err), FAR_OK);
	cr_assert_eq(key_auto_make(&b, &random_kernel, &key, &err), FAR_OK);
	flock(a.fd, LOCK_UN);
	struct key_auto c = made(&key);
	cr_assert_eq(access(a.at.path, F_OK), -1);
	cr_assert_eq(access(b.at.path, F_OK), 0);
	key_auto_end(&a);
	key_auto_end(&b);
	key_auto_end(&c);
}

Test(key_auto, is_no_link_and_closed)
{
	char target[64];
	struct key_auto a = made(&key);
	snprintf(target, sizeof target, "%s/target", dir);
	chmod(a.at.path, 0640);
	refused(key_auto_find(&a.at, &key, &err), FAR_DENIED, "chmod 600");
	chmod(a.at.path, 0600);
	cr_assert_eq(rename(a.at.path, target), 0);
	cr_assert_eq(symlink(target, a.at.path), 0);
	refused(key_auto_find(&a.at, &key, &err), FAR_DENIED, "symbolic link");
	/* The next rank 0 replaces the link, and leaves alone what it leads to. */
	struct key_auto b = made(&key);
	struct auth_key kept;
	cr_assert_eq(key_read(target, &kept, &err), FAR_OK);
	cr_assert_neq(memcmp(&kept, &key, sizeof key), 0);
	cr_assert_eq(key_auto_find(&b.at, &kept, &err), FAR_OK);
	key_auto_end(&a);
	key_auto_end(&b);
}

Test(key_auto, directory_that_is_not_ours)
{
	struct key_auto a = KEY_AUTO_NONE;
	struct key_location at;
	char real[64];
	key_location(&a.at, "127.0.0.1", 29500);
	at = a.at;
	chmod(dir, 0755);
	refused(key_auto_make(&a, &random_kernel, &key, &err), FAR_DENIED, "must be yours with mode 700");
	refused(key_auto_find(&at, &key, &err), FAR_DENIED, "must be yours with mode 700");
	chmod(dir, 0700);
	snprintf(real, sizeof real, "%s/real", dir);
	mkdir(real, 0700);
	cr_assert_eq(symlink(real, file), 0);
	setenv("FAR_RUNTIME_DIR", file, 1);
	refused(key_auto_make(&a, &random_kernel, &key, &err), FAR_DENIED, "is not a directory");
	setenv("FAR_RUNTIME_DIR", "/proc/no-such-directory", 1);
	refused(key_auto_make(&a, &random_kernel, &key, &err), FAR_DENIED, "FAR_KEY_FILE");
	if (geteuid() != 0)
		cr_skip_test("giving a directory away needs root");
	cr_assert_eq(chown(real, 65534, 65534), 0);
	setenv("FAR_RUNTIME_DIR", real, 1);
	refused(key_auto_make(&a, &random_kernel, &key, &err), FAR_DENIED, "belongs to user 65534");
	refused(key_auto_find(&at, &key, &err), FAR_DENIED, "belongs to user 65534");
}
