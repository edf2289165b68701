/* SPDX-License-Identifier: BSD-3-Clause */
/** How the filter is attached to an interface, and what a dead process left there, in a network namespace of the test's
 * own. The test's thread. */
#include "bpf_calls.h"
#include "captured_frames.h"

#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>

/* Neither AF_XDP sockets nor maps of them are for everybody; the error says which right is missing. */
Test(xdp_link, rights_are_named)
{
	struct nic_err err = {""};
	if (getuid() == 0 && setuid(65534) != 0)
		cr_skip_test("cannot become another user");
	int rc = xdp_probe(&err);
	cr_assert_eq(rc, -EPERM, "%d %s", rc, err.text);
	cr_assert(strstr(err.text, "CAP_NET_RAW"), "%s", err.text);
}

/* ---- on an interface, in a network namespace of the test's own ---- */

static bool ip_command(const char *format, ...)
{
	char command[256];
	va_list args;
	va_start(args, format);
	vsnprintf(command, sizeof command, format, args);
	va_end(args);
	return system(command) == 0;
}

static int far0;

static void setup(void)
{
	close(map_of_sockets());
	if (unshare(CLONE_NEWNET) < 0 || !ip_command("ip link add far0 type veth peer name far1"))
		cr_skip_test("a network namespace with a pair of veth: needs CAP_SYS_ADMIN and iproute2");
	cr_assert(ip_command("ip link set far0 up; ip link set far1 up"));
	far0 = (int)if_nametoindex("far0");
	cr_assert_gt(far0, 0);
}

static bool has_program(void)
{
	return ip_command("ip link show dev far0 | grep -q xdp");
}

/* As DPDK attaches it: for good. */
static void attach(const char *path)
{
	cr_assert(ip_command("ip link set dev far0 xdp obj %s sec xdp", path), "does this `ip` take XDP objects?");
	cr_assert(has_program());
}

static int link_to(int program)
{
	union bpf_attr attr = {.link_create = {.prog_fd = (uint32_t)program,
					       .target_ifindex = (uint32_t)far0,
					       .attach_type = BPF_XDP}};
	return bpf(BPF_LINK_CREATE, &attr);
}

static int load_named(const char *name)
{
	struct bpf_insn pass[2] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = XDP_PASS},
				   {.code = BPF_JMP | BPF_EXIT}};
	union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_XDP,
			       .insn_cnt = 2,
			       .insns = (uint64_t)(uintptr_t)pass,
			       .license = (uint64_t)(uintptr_t) "BSD"};
	snprintf(attr.prog_name, sizeof attr.prog_name, "%s", name);
	int program = bpf(BPF_PROG_LOAD, &attr);
	cr_assert_geq(program, 0, "%s", strerror(errno));
	return program;
}

/* The loader of DPDK is libbpf, and so is that of `ip`. */
Test(xdp_link, sweeps_what_a_dead_process_left, .init = setup)
{
	uint32_t number;
	struct nic_err err = {""};
	char own[64], path[64];
	int fd = xdp_object(&me[0], QUEUES, own, sizeof own, &err);
	cr_assert_eq(xdp_remove_stale(far0, "far0", &err), 0, "nothing to be swept: %s", err.text);
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
	attach(path);
	cr_assert_eq(xdp_attach_link(far0, "far0", &number, &err), -ENOENT, "it is not this process' program");
	cr_assert(has_program());
	cr_assert_eq(xdp_remove_stale(far0, "far0", &err), 0, "%s", err.text);
	cr_assert_not(has_program());
	close(fd);
}

Test(xdp_link, leaves_others_programs_alone, .init = setup)
{
	struct nic_err err = {""};
	int program = load_named("somebody");
	int link = link_to(program);
	cr_assert_geq(link, 0, "%s", strerror(errno));
	cr_assert_eq(xdp_remove_stale(far0, "far0", &err), -EBUSY);
	cr_assert(strstr(err.text, "\"somebody\"") && strstr(err.text, "far0"), "%s", err.text);
	cr_assert(has_program());
	close(link);
	cr_assert_eq(xdp_remove_stale(far0, "far0", &err), 0, "%s", err.text);
	close(program);
}

Test(xdp_link, leaves_a_live_process_alone, .init = setup)
{
	struct nic_err err = {""};
	int program = load_named(XDP_NAME);
	int link = link_to(program);
	cr_assert_geq(link, 0, "%s", strerror(errno));
	cr_assert_eq(xdp_remove_stale(far0, "far0", &err), -EBUSY);
	cr_assert(strstr(err.text, "another process"), "%s", err.text);
	cr_assert(has_program());
	xdp_detach_link(link);
	close(program);
	cr_assert_not(has_program());
	xdp_detach_link(-1);
}

/* As attach(), but the program is this process' own. */
static void attach_pinned(int program)
{
	char dir[] = "/tmp/far-bpf-XXXXXX", path[64];
	cr_assert(mkdtemp(dir));
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("bpf", dir, "bpf", 0, NULL) < 0)
		cr_skip_test("mounting a file system of BPF: %s; needs CAP_SYS_ADMIN", strerror(errno));
	snprintf(path, sizeof path, "%s/program", dir);
	union bpf_attr attr = {.pathname = (uint64_t)(uintptr_t)path, .bpf_fd = (uint32_t)program};
	cr_assert_eq(bpf(BPF_OBJ_PIN, &attr), 0, "%s", strerror(errno));
	cr_assert(ip_command("ip link set dev far0 xdp pinned %s", path));
	unlink(path);
	umount(dir);
	rmdir(dir);
	cr_assert(has_program());
}

Test(xdp_link, keeps_by_a_link, .init = setup)
{
	uint32_t number;
	struct nic_err err = {""};
	int program = load_named(XDP_NAME);
	cr_assert_eq(xdp_attach_link(far0, "far0", &number, &err), -ENOENT, "nothing is attached");
	cr_assert(strstr(err.text, "far0"), "%s", err.text);
	attach_pinned(program);
	int link = xdp_attach_link(far0, "far0", &number, &err);
	cr_assert_geq(link, 0, "%s", err.text);
	cr_assert(has_program());
	cr_assert_eq(xdp_remove_stale(far0, "far0", &err), -EBUSY, "by a link it is ours");
	xdp_detach_link(link);
	cr_assert_not(has_program());
	close(program);
}
