/* SPDX-License-Identifier: BSD-3-Clause */
/** Room in control groups: the tightest counts, cached files are room, the lock is one process's. The test's thread. */
#include "memory/container.h"
#include "own_dir.h"

#include <unistd.h>

static char self[96];

static void setup(void)
{
	own_dir_make();
	snprintf(self, sizeof self, "%s/self", top);
}

TestSuite(container, .init = setup, .fini = own_dir_remove);

static void expect(uint64_t limit, uint64_t used, uint64_t room)
{
	struct container_room r = container_read();
	cr_assert_eq(r.limit, limit);
	cr_assert_eq(r.used, used);
	cr_assert_eq(r.room, room);
}

Test(container, without_a_limit_there_is_all_room)
{
	container_find(self, top);
	expect(CONTAINER_UNLIMITED, 0, CONTAINER_UNLIMITED);
	cr_assert_eq(container_lock(), -1);
	put("self", "0::/a\n");
	put("a/memory.max", "max\n");
	put("a/memory.current", "5000\n");
	container_find(self, top);
	expect(CONTAINER_UNLIMITED, 0, CONTAINER_UNLIMITED);
}

Test(container, the_group_with_the_least_room_counts)
{
	put("self", "0::/a/b\n");
	put("a/memory.max", "1000\n");
	put("a/memory.current", "400\n");
	put("a/b/memory.max", "5000\n");
	put("a/b/memory.current", "100\n");
	container_find(self, top);
	expect(1000, 400, 600);
	put("a/b/memory.current", "4500\n");
	expect(5000, 4500, 500);
	put("a/b/memory.current", "6000\n");
	expect(5000, 6000, 0);
	put("a/b/memory.current", "nonsense\n");
	expect(1000, 400, 600);
}

/* Looked at only when more than half is in use, since it costs another file. */
Test(container, cached_files_are_room)
{
	put("self", "0::/a\n");
	put("a/memory.max", "1000\n");
	put("a/memory.stat", "anon 1\nactive_file 200\nxinactive_file 7\ninactive_file 300\n");
	put("a/memory.current", "500\n");
	container_find(self, top);
	expect(1000, 500, 500);
	put("a/memory.current", "900\n");
	expect(1000, 500, 500);
	put("a/memory.stat", "inactive_file 5000\n");
	expect(1000, 0, 1000);
}

Test(container, version_1_has_names_of_its_own)
{
	put("self", "3:memory:/a\n");
	put("memory/a/memory.limit_in_bytes", "1000\n");
	put("memory/a/memory.usage_in_bytes", "800\n");
	put("memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 100\ntotal_active_file 100\n");
	container_find(self, top);
	expect(1000, 650, 350);
	put("memory/a/memory.limit_in_bytes", "9223372036854771712\n");
	expect(CONTAINER_UNLIMITED, 0, CONTAINER_UNLIMITED);
}

Test(container, the_lock_is_held_by_one)
{
	put("self", "0::/a\n");
	put("a/memory.max", "1000\n");
	put("a/memory.current", "1\n");
	container_find(self, top);
	expect(1000, 1, 999);
	int first = container_lock();
	cr_assert_geq(first, 0);
	cr_assert_eq(container_lock(), -1, "it gives up");
	container_unlock(first);
	int second = container_lock();
	cr_assert_geq(second, 0);
	container_unlock(second);
	container_unlock(-1);
}
