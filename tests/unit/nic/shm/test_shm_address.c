/* SPDX-License-Identifier: BSD-3-Clause */
/** Published addresses of shm ports, and those that a hostile store holds in their place. The test's thread. */
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct test_port a, b;
static struct nic_err err;
static struct nic_addr addr; /* of b */

static void setup(void)
{
	shm_dir_setup();
	test_port_open(&a, 1);
	test_port_open(&b, 2);
	b.port->ops->address(b.port, &addr);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	shm_dir_teardown();
}

TestSuite(shm_address, .init = setup, .fini = teardown);

static int reach(const struct nic_addr *to)
{
	return a.port->ops->reach(a.port, to, &err);
}

static const char *text_of(const struct nic_addr *at)
{
	static char text[NIC_TEXT_BYTES_MAX];
	shm_address_text(at, text, sizeof text);
	return text;
}

Test(shm_address, is_the_socket)
{
	struct stat st;
	char want[NIC_TEXT_BYTES_MAX];
	cr_assert_str_eq(addr.driver, "shm");
	cr_assert(lstat((const char *)addr.blob, &st) == 0 && S_ISSOCK(st.st_mode));
	cr_assert_eq(addr.len, strlen((const char *)addr.blob) + 1 + sizeof(struct shm_dir_id));
	cr_assert_eq(strncmp((const char *)addr.blob, shm_test_dir, strlen(shm_test_dir)), 0);
	snprintf(want, sizeof want, "shm %s", (const char *)addr.blob);
	cr_assert_str_eq(text_of(&addr), want);
	cr_assert_eq(reach(&addr), 0);
	char cut[8];
	shm_address_text(&addr, cut, sizeof cut);
	cr_assert_str_eq(cut, "shm /tm");
}

/* Whatever the bytes are, the text is one printable line, and nothing behind `len` is read. */
Test(shm_address, malformed)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct nic_addr bad = addr;
	bad.len = 0;
	cr_assert_not(shm_address_path(&bad, path, sizeof path));
	cr_assert_eq(reach(&bad), -EINVAL);
	cr_assert_str_eq(text_of(&bad), "shm (malformed)");
	for (unsigned byte = 1; byte < 256; byte++) {
		bad = addr;
		bad.blob[3] = (uint8_t)byte;
		bool printable = byte >= ' ' && byte != 0x7f;
		cr_assert_eq(shm_address_path(&bad, path, sizeof path), printable, "%u", byte);
		cr_assert_eq(strstr(text_of(&bad), "malformed") == NULL, printable);
		if (!printable)
			cr_assert_eq(reach(&bad), -EINVAL);
	}
	bad = addr;
	bad.len = NIC_ADDR_BYTES_MAX + 1;
	cr_assert_not(shm_address_path(&bad, path, sizeof path));
	bad.len = NIC_ADDR_BYTES_MAX;
	memset(bad.blob, '/', sizeof bad.blob);
	cr_assert_not(shm_address_path(&bad, path, sizeof path), "it fits no socket's name");
	/* The longest path, with its NUL. */
	bad.len = sizeof path;
	cr_assert_not(shm_address_path(&bad, path, sizeof path));
	bad.len = sizeof path - 1;
	cr_assert(shm_address_path(&bad, path, sizeof path));
	cr_assert_eq(strlen(path), sizeof path - 1);
	/* Without a directory, or without its identity. */
	bad = addr;
	bad.len--;
	cr_assert_eq(reach(&bad), -EINVAL);
	bad.len += 2;
	cr_assert_eq(reach(&bad), -EINVAL);
	memset(&bad, 0, sizeof bad);
	memcpy(bad.blob, "name", 4);
	bad.len = 5 + sizeof(struct shm_dir_id);
	cr_assert_eq(reach(&bad), -EINVAL);
	cr_assert(strstr(err.text, "malformed"), "%s", err.text);
}

Test(shm_address, malformed_ones_are_not_connected_to)
{
	struct nic_addr bad = {.driver = "shm"};
	const uint16_t lengths[] = {0, NIC_ADDR_BYTES_MAX, 5};
	for (unsigned i = 0; i < 3; i++) {
		bad.len = lengths[i];
		memset(bad.blob, i ? '/' : 0, sizeof bad.blob);
		cr_assert_lt(a.port->ops->connect(a.port, &(struct nic_connect){0, &bad, 0, "hello", 5, 0, &a}, &err),
			     0);
	}
}

/* The same path may be another directory here, as in a container. */
Test(shm_address, a_directory_that_is_another_one)
{
	struct nic_addr other = addr;
	size_t path = strlen((const char *)addr.blob);
	other.blob[path + 1] ^= 1;
	cr_assert_eq(reach(&other), 0, "the socket is there, so the directory was made anew");
	other.blob[path - 7] ^= 1; /* no such socket */
	cr_assert_eq(reach(&other), -EXDEV);
	cr_assert(strstr(err.text, shm_test_dir), "%s", err.text);
	other.blob[path + 1] ^= 1;
	cr_assert_eq(reach(&other), 0, "of a peer that is gone connect() finds out");
	char command[200];
	snprintf(command, sizeof command, "rm -r %s", shm_test_dir);
	cr_assert_eq(system(command), 0);
	cr_assert_eq(reach(&addr), -ENOENT);
	cr_assert(strstr(err.text, shm_test_dir) && strstr(err.text, "cannot be read here"), "%s", err.text);
}
