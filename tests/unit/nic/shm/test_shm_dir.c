/* SPDX-License-Identifier: BSD-3-Clause */
/** The directory of the sockets: whose it is, and what is swept from it. The test's thread. */
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct test_port a, b;

static void setup(void)
{
	shm_dir_setup();
	test_port_open(&a, 1);
	test_port_open(&b, 2);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	cr_assert_eq(shm_test_sockets(), 0u, "a socket was left behind");
	shm_dir_teardown();
}

TestSuite(shm_dir, .init = setup, .fini = teardown);

static char *stale_socket(const char *name, int age_s)
{
	static char path[256];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(path, sizeof path, "%s/%s", shm_test_dir, name);
	memcpy(at.sun_path, path, strlen(path));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
	close(fd);
	struct timespec times[2];
	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= age_s;
	times[1] = times[0];
	cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	return path;
}

Test(shm_dir, stale_sockets_are_swept)
{
	char path[512];
	struct timespec old[2] = {{1, 0}, {1, 0}};
	struct nic_addr addr;
	stale_socket("0000000000000007.sock", 3600);
	stale_socket("0000000000000008.sock", 0);
	stale_socket("other", 3600);
	/* One that is old and alive. */
	a.port->ops->address(a.port, &addr);
	snprintf(path, sizeof path, "%.*s", (int)addr.len, (const char *)addr.blob);
	cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
	snprintf(path, sizeof path, "%s/file.sock", shm_test_dir);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
	cr_assert_eq(shm_test_sockets(), 6u);
	shm_dir_sweep(shm_test_dir);
	cr_assert_eq(shm_test_sockets(), 5u);
	snprintf(path, sizeof path, "%s/0000000000000007.sock", shm_test_dir);
	cr_assert_eq(access(path, F_OK), -1);
	uint32_t pa, pb;
	test_ports_connect(&b, &a, &pa, &pb);
	static const char *const left[] = {"0000000000000008.sock", "other", "file.sock"};
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%s", shm_test_dir, left[i]);
		cr_assert_eq(unlink(path), 0);
	}
}

Test(shm_dir, a_directory_that_is_not_ours_alone)
{
	struct nic_err err = {""};
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)], path[256];
	snprintf(path, sizeof path, "%s/sub", shm_test_dir);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_assert_eq(chmod(path, 0750), 0);
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), -EPERM);
	cr_assert(strstr(err.text, "FAR_RUNTIME_DIR"));
	cr_assert_eq(shm_dir_open(path, true, dir, sizeof dir, &err), 0);
	cr_assert_eq(chmod(path, 0700), 0);
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), 0);
	cr_assert_str_eq(dir, path);
	cr_assert_eq(rmdir(path), 0);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), -ENOTDIR);
	unlink(path);
	snprintf(path, sizeof path, "%s/none/at/all", shm_test_dir);
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), -ENOENT);
	memset(path, 'x', sizeof path - 1);
	path[0] = '/';
	path[sizeof path - 1] = '\0';
	cr_assert_eq(shm_dir_open(path, false, dir, sizeof dir, &err), -ENAMETOOLONG);
	cr_assert(strstr(err.text, "FAR_RUNTIME_DIR"));
}

/* One that did not get its final name within a minute is swept, even if somebody listens there. */
Test(shm_dir, half_made_sockets_are_swept)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct timespec old[2] = {{1, 0}, {1, 0}};
	struct stat st;
	char path[256];
	snprintf(at.sun_path, sizeof at.sun_path, "%.60s/0000000000000005.new", shm_test_dir);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
	cr_assert_eq(listen(fd, 1), 0);
	cr_assert_eq(utimensat(AT_FDCWD, at.sun_path, old, 0), 0);
	stale_socket("0000000000000006.new", 30);
	shm_dir_sweep(shm_test_dir);
	cr_assert_neq(lstat(at.sun_path, &st), 0);
	snprintf(path, sizeof path, "%s/0000000000000006.new", shm_test_dir);
	cr_assert_eq(lstat(path, &st), 0);
	cr_assert_eq(unlink(path), 0);
	close(fd);
	shm_dir_sweep("/nowhere/at/all");
}

Test(shm_dir, identity)
{
	struct shm_dir_id one, same, other;
	char path[128];
	cr_assert_eq(shm_dir_id(shm_test_dir, &one), 0);
	snprintf(path, sizeof path, "%s/../%s", shm_test_dir, strrchr(shm_test_dir, '/') + 1);
	cr_assert_eq(shm_dir_id(path, &same), 0);
	cr_assert(one.device == same.device && one.inode == same.inode);
	cr_assert_eq(shm_dir_id("/", &other), 0);
	cr_assert(one.device != other.device || one.inode != other.inode);
	cr_assert_eq(shm_dir_id("/nowhere/at/all", &other), -ENOENT);
}

/* A text that is too long is cut; without an error struct only the number is returned. */
Test(shm_dir, errors)
{
	struct nic_err err;
	char x[2 * NIC_TEXT_BYTES_MAX];
	memset(x, 'x', sizeof x);
	cr_assert_eq(shm_error(&err, -EXDEV, "%.*s", (int)sizeof x, x), -EXDEV);
	cr_assert_eq(strlen(err.text), NIC_TEXT_BYTES_MAX - 1);
	cr_assert_eq(shm_error(NULL, -EIO, "shm: %d", 1), -EIO);
}
