/* SPDX-License-Identifier: BSD-3-Clause */
/** The object that DPDK's loader reads: DPDK's loader has a test of its own, a device. The test's thread. */
#include "captured_frames.h"
#include "nic/dpdk/xdp/xdp.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* It is what its headers say, and open to this process only. */
Test(xdp_object, object)
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
