/* SPDX-License-Identifier: BSD-3-Clause */
/** The XDP filter takes the frames of its sockets and no others. The test's thread. */
#include "captured_frames.h"
#include "nic/dpdk/xdp/xdp.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(__NR_bpf, command, attr, (unsigned)sizeof *attr);
}

static int map_of_sockets(void)
{
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = XDP_QUEUES_MAX};
	int map = bpf(BPF_MAP_CREATE, &attr);
	if (map < 0 && errno == EPERM)
		cr_skip_test("programs for XDP need CAP_BPF and CAP_NET_ADMIN");
	cr_assert_geq(map, 0, "%s", strerror(errno));
	return map;
}

/* Loads the filter with XDP_TX, not XDP_PASS, for frames without a socket: so the two cases differ in the result. */
static int load(const struct frame_addr *addr, unsigned ports)
{
	static char log[65536];
	struct bpf_insn insns[XDP_INSNS_MAX];
	unsigned map, n = xdp_program(addr, ports, insns, &map);
	cr_assert_leq(n, XDP_INSNS_MAX);
	insns[map].imm = map_of_sockets();
	cr_assert_eq(insns[map + 3].imm, XDP_PASS);
	insns[map + 3].imm = XDP_TX;
	union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_XDP,
			       .insn_cnt = n,
			       .insns = (uint64_t)(uintptr_t)insns,
			       .license = (uint64_t)(uintptr_t) "Dual BSD/GPL",
			       .log_level = 1,
			       .log_size = sizeof log,
			       .log_buf = (uint64_t)(uintptr_t)log};
	int program = bpf(BPF_PROG_LOAD, &attr);
	cr_assert_geq(program, 0, "%s:\n%s", strerror(errno), log);
	close(insns[map].imm);
	return program;
}

static bool takes(int program, const uint8_t *frame, unsigned len)
{
	uint8_t out[256];
	union bpf_attr attr = {.test = {.prog_fd = (uint32_t)program,
					.data_size_in = len,
					.data_size_out = sizeof out,
					.data_in = (uint64_t)(uintptr_t)frame,
					.data_out = (uint64_t)(uintptr_t)out,
					.repeat = 1}};
	cr_assert_eq(bpf(BPF_PROG_TEST_RUN, &attr), 0, "%s", strerror(errno));
	cr_assert(attr.test.retval == XDP_TX || attr.test.retval == XDP_PASS, "%u", attr.test.retval);
	return attr.test.retval == XDP_TX;
}

/* What is ours must come to us, and nothing that is not; of the malformed ones some may go to the kernel. */
static void check(int program, const uint8_t *frame, unsigned len, unsigned v6)
{
	struct frame_in in;
	enum frame_verdict verdict = frame_read(frame, len, &me[v6], QUEUES, true, &in);
	bool taken = takes(program, frame, len);
	cr_assert(verdict == FRAME_MALFORMED || taken == (verdict == FRAME_OURS), "%d at %u bytes", verdict, len);
}

Test(xdp, takes_what_is_ours_and_nothing_else)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		int program = load(&me[v6], QUEUES);
		for (size_t i = 0; i < CAPTURED; i++) {
			struct captured c = captured[i];
			cr_assert_eq(takes(program, c.bytes, c.len), v6 == (i >= 3), "%zu", i);
			for (unsigned len = 14; len <= c.len; len++)
				check(program, c.bytes, len, v6);
			for (unsigned bit = 0; bit < c.len * 8; bit++) {
				c.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
				check(program, c.bytes, c.len, v6);
				c.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			}
		}
		close(program);
	}
}

Test(xdp, ports)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		for (unsigned n = 1; n <= 16; n++) {
			int program = load(&me[v6], n);
			for (int port = -3; port < 20; port++) {
				struct captured c = captured[v6 ? 4 : 1];
				unsigned at = (v6 ? FRAME_V6_BYTES : FRAME_V4_BYTES) - 6;
				frame_store16(c.bytes + at, frame_be16((uint16_t)(me[v6].port + port)));
				cr_assert_eq(takes(program, c.bytes, c.len), port >= 0 && port < (int)n);
			}
			close(program);
		}
	}
}

Test(xdp, last_ports)
{
	struct frame_addr last = me[0];
	last.port = 65534;
	int program = load(&last, 2);
	for (unsigned port = 65530; port <= 65540; port++) {
		struct captured c = captured[0];
		frame_store16(c.bytes + 36, frame_be16((uint16_t)port));
		cr_assert_eq(takes(program, c.bytes, c.len), port >= 65534 && port <= 65535, "%u", port);
	}
	close(program);
}

/* DPDK's loader has a test of its own: a device. Here: the object is what its headers say, and open to this process
 * only. */
Test(xdp, object)
{
	char path[64];
	struct nic_err err;
	struct stat st;
	int fd = xdp_object(&me[1], QUEUES, path, sizeof path, &err);
	cr_assert_geq(fd, 0, "%s", err.text);
	cr_assert_eq(stat(path, &st), 0);
	uint8_t *bytes = malloc((size_t)st.st_size);
	cr_assert_eq(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
	const Elf64_Ehdr *elf = (const void *)bytes;
	cr_assert_eq(memcmp(elf->e_ident, ELFMAG, SELFMAG), 0);
	cr_assert_eq(elf->e_machine, EM_BPF);
	cr_assert_eq(elf->e_shoff + elf->e_shnum * sizeof(Elf64_Shdr), (size_t)st.st_size);
	const Elf64_Shdr *sections = (const void *)(bytes + elf->e_shoff);
	const char *names = (const char *)bytes + sections[elf->e_shstrndx].sh_offset;
	unsigned found = 0;
	for (unsigned i = 1; i < elf->e_shnum; i++) {
		cr_assert_leq(sections[i].sh_offset + sections[i].sh_size, (size_t)st.st_size);
		const char *name = names + sections[i].sh_name;
		if (strcmp(name, "xdp") == 0) {
			struct bpf_insn insns[XDP_INSNS_MAX];
			unsigned map;
			size_t n = xdp_program(&me[1], QUEUES, insns, &map) * sizeof insns[0];
			cr_assert_eq(sections[i].sh_size, n);
			cr_assert_eq(memcmp(bytes + sections[i].sh_offset, insns, n), 0);
		}
		found |= (strcmp(name, "xdp") == 0) << 0 | (strcmp(name, ".maps") == 0) << 1 |
			 (strcmp(name, ".BTF") == 0) << 2 | (strcmp(name, "license") == 0) << 3 |
			 (strcmp(name, ".relxdp") == 0) << 4;
	}
	cr_assert_eq(found, 31);
	free(bytes);
	close(fd);
	cr_assert_eq(access(path, F_OK), -1);
}

/* Neither AF_XDP sockets nor maps of them are for everybody; the error says which right is missing. */
Test(xdp, rights_are_named)
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
Test(xdp, sweeps_what_a_dead_process_left, .init = setup)
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

Test(xdp, leaves_others_programs_alone, .init = setup)
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

Test(xdp, leaves_a_live_process_alone, .init = setup)
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

Test(xdp, keeps_by_a_link, .init = setup)
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
