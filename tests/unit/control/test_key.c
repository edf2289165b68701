/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys in files: what is taken, what is refused, and with which words; the one that a group of one host makes.
 * The test's thread. */
#include "base/runtime_dir.h"
#include "control/key_auto.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS "00112233445566778899aabbccddeeffABCDEF0123456789fedcba9876543210"

static char dir[] = "/tmp/farcall-key-XXXXXX";
static char file[64];
static struct far_err err;
static struct auth_key key;

static void setup(void)
{
	cr_assert_not_null(mkdtemp(dir));
	snprintf(file, sizeof file, "%s/key", dir);
	setenv("FAR_RUNTIME_DIR", dir, 1);
	unsetenv("FAR_KEY");
	unsetenv("FAR_KEY_FILE");
}

static void teardown(void)
{
	char command[96];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	cr_assert_eq(system(command), 0);
}

TestSuite(key, .init = setup, .fini = teardown);

static void write_file(const char *path, const char *text, mode_t mode)
{
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
	chmod(path, mode);
}

static void refused(enum far_status got, enum far_status status, const char *part)
{
	cr_assert_eq(got, status, "%s: %s", far_status_name(got), err.text);
	cr_assert(strstr(err.text, part), "\"%s\" lacks \"%s\"", err.text, part);
}

Test(key, text)
{
	char text[KEY_TEXT_BYTES + 1];
	cr_assert(key_parse(DIGITS, 64, &key));
	cr_assert_eq(key.bytes[1], 0x11);
	cr_assert_eq(key.bytes[16], 0xab);
	cr_assert_eq(key.bytes[31], 0x10);
	cr_assert(key_parse(DIGITS "\n", 65, &key));
	cr_assert(key_parse(DIGITS "\r\n", 66, &key));
	key_print(&key, text);
	cr_assert_eq(strcasecmp(text, DIGITS "\n"), 0);
	static const char *const bad[] = {"", "\n", (DIGITS "0"), (DIGITS "\n\n"), (DIGITS " "), (" " DIGITS), "\r\n"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_assert_not(key_parse(bad[i], strlen(bad[i]), &key), "%zu", i);
	char one[65] = DIGITS;
	for (size_t i = 0; i < 64; i++) {
		one[i] = 'g';
		cr_assert_not(key_parse(one, 64, &key), "at %zu", i);
		one[i] = DIGITS[i];
		cr_assert_not(key_parse(one, i, &key), "of %zu", i);
	}
}

Test(key, id_tells_keys_apart)
{
	char a[KEY_ID_BYTES], b[KEY_ID_BYTES];
	memset(&key, 0, sizeof key);
	key_id(&key, a);
	key.bytes[31] = 1;
	key_id(&key, b);
	cr_assert_eq(strlen(a), KEY_ID_BYTES - 1);
	cr_assert_str_neq(a, b);
}

Test(key, file_is_ours_and_closed)
{
	struct auth_key made;
	struct stat st;
	umask(0);
	cr_assert_eq(key_create(file, &made, &err), FAR_OK);
	cr_assert_eq(stat(file, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0600);
	cr_assert_eq(key_read(file, &key, &err), FAR_OK);
	cr_assert_eq(memcmp(&key, &made, sizeof key), 0);
	refused(key_create(file, &made, &err), FAR_INVALID, "a key in use is not replaced");
	static const mode_t open[] = {0640, 0604, 0620, 0602, 0610, 0601};
	for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
		chmod(file, open[i]);
		refused(key_read(file, &key, &err), FAR_DENIED, "chmod 600");
		cr_assert(strstr(err.text, file));
	}
	chmod(file, 0400);
	cr_assert_eq(key_read(file, &key, &err), FAR_OK);
	if (geteuid() != 0)
		cr_skip_test("giving a file away needs root");
	cr_assert_eq(chown(file, 65534, 65534), 0);
	refused(key_read(file, &key, &err), FAR_DENIED, "belongs to user 65534");
}

Test(key, file_that_holds_none)
{
	refused(key_read(file, &key, &err), FAR_UNREACHABLE, "No such file");
	cr_assert(strstr(err.text, "farcall key"));
	write_file(file, "not a key\n", 0600);
	refused(key_read(file, &key, &err), FAR_INVALID, "does not hold a key");
	write_file(file, DIGITS "\n" DIGITS "\n", 0600);
	refused(key_read(file, &key, &err), FAR_INVALID, "does not hold a key");
	refused(key_read(dir, &key, &err), FAR_DENIED, "not a regular file");
	unlink(file);
	cr_assert_eq(mkfifo(file, 0600), 0);
	refused(key_read(file, &key, &err), FAR_DENIED, "not a regular file");
}

Test(key, what_is_chosen)
{
	struct key_choice c;
	write_file(file, DIGITS "\n", 0600);
	cr_assert_eq(key_choose(NULL, NULL, true, &c, &err), FAR_OK);
	cr_assert_eq(c.kind, KEY_AUTO);
	cr_assert_eq(key_choose(NULL, "none", true, &c, &err), FAR_OK);
	cr_assert_eq(c.kind, KEY_NONE);
	refused(key_choose(NULL, "some", true, &c, &err), FAR_INVALID, "security is \"some\"");
	refused(key_choose(file, "none", true, &c, &err), FAR_INVALID, "leave one of them out");
	cr_assert_eq(key_choose(file, NULL, true, &c, &err), FAR_OK);
	cr_assert_eq(c.kind, KEY_GIVEN);
	cr_assert_str_eq(c.from, file);
	setenv("FAR_KEY", DIGITS, 1);
	cr_assert_eq(key_choose(NULL, NULL, false, &c, &err), FAR_OK);
	cr_assert_eq(c.kind, KEY_AUTO, "the environment is not read");
	cr_assert_eq(key_choose(NULL, NULL, true, &c, &err), FAR_OK);
	cr_assert_eq(c.kind, KEY_GIVEN);
	cr_assert(strstr(c.from, "FAR_KEY") && !strstr(c.from, "0011"));
	setenv("FAR_KEY_FILE", file, 1);
	refused(key_choose(NULL, NULL, true, &c, &err), FAR_INVALID, "unset one of them");
	cr_assert_eq(key_choose(NULL, "none", true, &c, &err), FAR_OK, "nothing is read that is not used");
	unsetenv("FAR_KEY");
	cr_assert_eq(key_choose(NULL, NULL, true, &c, &err), FAR_OK);
	cr_assert_eq(c.key.bytes[1], 0x11);
	unsetenv("FAR_KEY_FILE");
	setenv("FAR_KEY", "x", 1);
	refused(key_choose(NULL, NULL, true, &c, &err), FAR_INVALID, "FAR_KEY is not a key");
}

/* ---- the one that rank 0 makes ---- */

static struct key_auto made(struct auth_key *out)
{
	struct key_auto a = KEY_AUTO_NONE;
	key_location(&a.at, "127.0.0.1", 29500);
	cr_assert_eq(key_auto_make(&a, &random_kernel, out, &err), FAR_OK, "%s", err.text);
	return a;
}

Test(key, automatic_one_is_found_while_its_maker_runs)
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

static bool watch_reports(const struct key_auto *a)
{
	struct pollfd p = {.fd = a->watch, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

static void found_again(struct key_auto *a, const struct auth_key *right)
{
	cr_assert(watch_reports(a));
	cr_assert(key_auto_keep(a, right));
	cr_assert_eq(key_auto_find(&a->at, &key, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(memcmp(&key, right, sizeof key), 0);
	cr_assert(key_auto_keep(a, right));
	cr_assert_not(watch_reports(a), "the watch is of the former file");
}

/* The file is removed, renamed, and removed with its directory. Expect it to be there again each time, locked. */
Test(key, automatic_one_is_made_again)
{
	char other[64], command[96];
	struct auth_key right;
	struct stat st;
	struct key_auto a = made(&right);
	cr_assert_not(watch_reports(&a));
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

/* A file where the directory was: it cannot be made again for now. */
Test(key, automatic_one_is_made_again_later)
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

Test(key, stale_ones_of_other_addresses_are_removed)
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

Test(key, automatic_one_is_no_link_and_closed)
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

Test(key, directory_that_is_not_ours)
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

Test(key, directories_by_default)
{
	char path[RUNTIME_DIR_BYTES], want[64];
	setenv("XDG_RUNTIME_DIR", "/run/x", 1);
	cr_assert_eq(runtime_dir_path(NULL, 0, path), 0);
	cr_assert_str_eq(path, dir);
	cr_assert_eq(runtime_dir_path(NULL, 1, path), -ENOENT);
	unsetenv("FAR_RUNTIME_DIR");
	cr_assert_eq(runtime_dir_path(NULL, 0, path), 0);
	cr_assert_str_eq(path, "/run/x/farcall");
	cr_assert_str_eq(runtime_dir_from(), "XDG_RUNTIME_DIR");
	unsetenv("XDG_RUNTIME_DIR");
	snprintf(want, sizeof want, "/run/user/%u", (unsigned)geteuid());
	if (access(want, F_OK) == 0)
		return;
	cr_assert_eq(runtime_dir_path(NULL, 3, path), 0);
	snprintf(want, sizeof want, "/tmp/farcall-%u-3", (unsigned)geteuid());
	cr_assert_str_eq(path, want);
	cr_assert_eq(runtime_dir_path(NULL, 10, path), -ENOENT);
}
