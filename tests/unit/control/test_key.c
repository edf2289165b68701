/* SPDX-License-Identifier: BSD-3-Clause */
/** Keys in files: what is taken, what is refused, and with which words. The test's thread. */
#include "base/runtime_dir.h"
#include "key_fixture.h"

#include <errno.h>

#define DIGITS "00112233445566778899aabbccddeeffABCDEF0123456789fedcba9876543210"

TestSuite(key, .init = key_setup, .fini = key_teardown);

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
