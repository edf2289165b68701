/* SPDX-License-Identifier: BSD-3-Clause */
/** Modules beside the program: found in the folders named, in turn, and never one that others can write; errors that
 * name the module and the remedy. The test's thread. */
#include "base/module.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char here[PATH_MAX]; /* directory of this program, where the modules are sought */
static char folder[64];     /* a folder in it */

static void setup(void)
{
	cr_assert_not_null(realpath("/proc/self/exe", here));
	*strrchr(here, '/') = '\0';
	char made[PATH_MAX + 32];
	snprintf(made, sizeof made, "%s/module-XXXXXX", here);
	cr_assert_not_null(mkdtemp(made));
	snprintf(folder, sizeof folder, "%s", strrchr(made, '/') + 1);
	unsetenv("FAR_MODULE_DIR");
}

static void teardown(void)
{
	char command[PATH_MAX + 96];
	snprintf(command, sizeof command, "rm -rf '%s/%s'", here, folder);
	cr_assert_eq(system(command), 0);
}

TestSuite(module, .init = setup, .fini = teardown);

static void put(const char *name, mode_t mode)
{
	char path[PATH_MAX + 128];
	snprintf(path, sizeof path, "%s/%s/%s", here, folder, name);
	FILE *f = fopen(path, "w");
	cr_assert_not_null(f);
	fputs("no object", f);
	fclose(f);
	cr_assert_eq(chmod(path, mode), 0);
}

Test(module, is_found_in_the_folders_in_turn)
{
	const char *const folders[] = {"no-such-folder", folder};
	char path[PATH_MAX], short_one[8], want[PATH_MAX + 128];
	put("m.so", 0644);
	snprintf(want, sizeof want, "%s/%s/m.so", here, folder);
	cr_assert(module_path_beside("m.so", folders, 2, path, sizeof path));
	char real[PATH_MAX];
	cr_assert_not_null(realpath(path, real));
	cr_assert_str_eq(real, want);
	cr_assert_not(module_path_beside("m.so", folders, 1, path, sizeof path));
	cr_assert_not(module_path_beside("other.so", folders, 2, path, sizeof path));
	cr_assert_not(module_path_beside("m.so", folders, 2, short_one, sizeof short_one), "no room for the path");
}

Test(module, that_everyone_can_write_is_none)
{
	const char *const folders[] = {folder};
	char path[PATH_MAX];
	put("m.so", 0666);
	cr_assert_not(module_path_beside("m.so", folders, 1, path, sizeof path));
	put("m.so", 0644);
	cr_assert(module_path_beside("m.so", folders, 1, path, sizeof path));
	char directory[PATH_MAX + 128];
	snprintf(directory, sizeof directory, "%s/%s/d.so", here, folder);
	cr_assert_eq(mkdir(directory, 0700), 0);
	cr_assert_not(module_path_beside("d.so", folders, 1, path, sizeof path), "nor is a directory one");
}

Test(module, errors_name_module_and_remedy)
{
	const char *const folders[] = {folder};
	struct module_wanted m = {.file = "libfarcall-no-such.so",
				  .symbol = "content",
				  .abi = 1,
				  .folders = folders,
				  .folders_n = 1,
				  .status = FAR_UNSUPPORTED,
				  .purpose = "the answer is in",
				  .remedy = "install the package answers"};
	struct far_err err;
	cr_assert_null(module_load(&m, &err));
	cr_assert_eq(err.status, FAR_UNSUPPORTED);
	cr_assert(strstr(err.text, "the answer is in libfarcall-no-such.so, which cannot be loaded"), "%s", err.text);
	cr_assert(strstr(err.text, "install the package answers"), "%s", err.text);
	/* A library of others loads, and is no module. */
	m.file = "libm.so.6";
	cr_assert_null(module_load(&m, &err));
	cr_assert(strstr(err.text, "libm.so.6, which is no module of Farcall's"), "%s", err.text);
	/* FAR_MODULE_DIR names the only place. */
	m.dir = "/usr/lib";
	setenv("FAR_MODULE_DIR", here, 1);
	cr_assert_null(module_load(&m, &err));
	cr_assert(strstr(err.text, "unset FAR_MODULE_DIR or correct it"), "%s", err.text);
}
