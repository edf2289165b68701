/* SPDX-License-Identifier: BSD-3-Clause */
/** The runtime directory: which one, made for the user alone, refused where others could write. The test's thread. */
#include "base/runtime_dir.h"
#include "own_dir.h"

#include <errno.h>
#include <unistd.h>

static char path[RUNTIME_DIR_BYTES], why[512];

static void setup(void)
{
	own_dir_make();
	unsetenv("FAR_RUNTIME_DIR");
	unsetenv("XDG_RUNTIME_DIR");
}

TestSuite(runtime_dir, .init = setup, .fini = own_dir_remove);

static const char *inside(const char *name)
{
	static char made[128];
	snprintf(made, sizeof made, "%s/%s", top, name);
	return made;
}

Test(runtime_dir, the_first_that_is_named_wins)
{
	setenv("XDG_RUNTIME_DIR", "/xdg", 1);
	cr_assert_eq(runtime_dir_path(NULL, 0, path), 0);
	cr_assert_str_eq(path, "/xdg/farcall");
	cr_assert_str_eq(runtime_dir_from(), "XDG_RUNTIME_DIR");
	setenv("FAR_RUNTIME_DIR", "/own", 1);
	cr_assert_eq(runtime_dir_path(NULL, 0, path), 0);
	cr_assert_str_eq(path, "/own");
	cr_assert_str_eq(runtime_dir_from(), "FAR_RUNTIME_DIR");
	cr_assert_eq(runtime_dir_path("/named", 0, path), 0);
	cr_assert_str_eq(path, "/named");
	cr_assert_eq(runtime_dir_path("/named", 1, path), -ENOENT, "there is no second one");
	setenv("FAR_RUNTIME_DIR", "", 1);
	cr_assert_eq(runtime_dir_path(NULL, 0, path), 0);
	cr_assert_str_eq(path, "/xdg/farcall", "an empty variable is none");
}

Test(runtime_dir, too_long_a_name_is_refused)
{
	char name[RUNTIME_DIR_BYTES + 1];
	memset(name, 'd', RUNTIME_DIR_BYTES);
	name[RUNTIME_DIR_BYTES] = '\0';
	cr_assert_eq(runtime_dir_path(name, 0, path), -ENAMETOOLONG);
	cr_assert_eq(runtime_dir_path(name + 1, 0, path), 0);
}

Test(runtime_dir, is_made_for_the_user_alone)
{
	struct stat st;
	umask(0);
	cr_assert_eq(runtime_dir_open(inside("d"), false, false, why, sizeof why), -ENOENT);
	int fd = runtime_dir_open(inside("d"), true, false, why, sizeof why);
	cr_assert_geq(fd, 0, "%s", why);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0700u);
	close(fd);
	fd = runtime_dir_open(inside("d"), true, false, why, sizeof why);
	cr_assert_geq(fd, 0, "it is there already: %s", why);
	close(fd);
	fd = runtime_dir_open(inside("all"), true, true, why, sizeof why);
	cr_assert_geq(fd, 0, "%s", why);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0711u);
	close(fd);
}

Test(runtime_dir, what_others_could_change_is_refused)
{
	cr_assert_eq(mkdir(inside("open"), 0700), 0);
	cr_assert_eq(chmod(inside("open"), 0750), 0);
	cr_assert_eq(runtime_dir_open(inside("open"), true, false, why, sizeof why), -EPERM);
	cr_assert(strstr(why, "with mode 750, but must be yours with mode 700; set FAR_RUNTIME_DIR"), "%s", why);
	int fd = runtime_dir_open(inside("open"), true, true, why, sizeof why);
	cr_assert_geq(fd, 0, "for peers of other users it may be so: %s", why);
	close(fd);
	cr_assert_eq(symlink("open", inside("link")), 0);
	cr_assert_eq(runtime_dir_open(inside("link"), true, false, why, sizeof why), -ENOTDIR);
	cr_assert(strstr(why, "is not a directory; set FAR_RUNTIME_DIR"), "%s", why);
	FILE *f = fopen(inside("file"), "w");
	cr_assert_not_null(f);
	fclose(f);
	cr_assert_eq(runtime_dir_open(inside("file"), true, false, why, sizeof why), -ENOTDIR);
	cr_assert_eq(runtime_dir_open(inside("no/such"), true, false, why, sizeof why), -ENOENT);
	cr_assert(strstr(why, "cannot create the runtime directory"), "%s", why);
}
