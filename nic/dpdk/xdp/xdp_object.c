/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Writes the XDP filter as an ELF object file, as a BPF compiler would. Control thread.
 *
 *	.strtab   names of sections and symbols
 *	.symtab   the program and the map
 *	xdp       the instructions
 *	.relxdp   the instruction that refers to the map
 *	license
 *	.maps     a struct of null pointers, whose types describe the map
 *	.BTF      these types
 */
#include "nic/dpdk/host_error.h"
#include "nic/dpdk/xdp/xdp.h"

#include <elf.h>
#include <errno.h>
#include <linux/btf.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ELF_ORDER ELFDATA2LSB
#else
#define ELF_ORDER ELFDATA2MSB
#endif
#define RELOCATION_MAP 1 /* R_BPF_64_64 */

enum { NONE, STRTAB, SYMTAB, PROGRAM, RELOCATION, LICENSE, MAPS, BTF, SECTIONS };

/* Offsets of names are offsets into this string. */
static const char names[] = "\0.strtab\0.symtab\0xdp\0.relxdp\0license\0.maps\0.BTF\0" XDP_NAME "\0xsks_map";
static const char license[] = "Dual BSD/GPL";
static const char type_names[] = "\0int\0type\0max_entries\0key_size\0value_size\0xsks_map\0.maps";

static uint32_t find(const char *in, size_t len, const char *name)
{
	for (size_t i = 1; i < len; i += strlen(in + i) + 1)
		if (strcmp(in + i, name) == 0)
			return (uint32_t)i;
	return 0;
}

static uint32_t name(const char *text)
{
	return find(names, sizeof names, text);
}

static uint32_t type_name(const char *text)
{
	return find(type_names, sizeof type_names, text);
}

/* Bound of an object; instructions and types are most of it. */
struct image {
	uint8_t bytes[4096];
	size_t len;
};

/* Appends, aligned to 8; returns the offset. */
static size_t append(struct image *image, const void *bytes, size_t len)
{
	size_t at = (image->len + 7) & ~(size_t)7;
	memset(image->bytes + image->len, 0, at - image->len);
	memcpy(image->bytes + at, bytes, len);
	image->len = at + len;
	return at;
}

/* Appends a section with these bytes. */
static void section(struct image *image, Elf64_Shdr *header, const char *text, const void *bytes, size_t len)
{
	header->sh_name = name(text);
	header->sh_offset = append(image, bytes, len);
	header->sh_size = len;
	header->sh_addralign = 8;
}

#define ATTRIBUTES       4
#define INFO(kind, vlen) ((uint32_t)(kind) << 24 | (vlen))

/** BTF types in the order of their ids. Each attribute of the map is a pointer to an int array whose length is the
 * value. */
struct map_types {
	struct {
		struct btf_type type;
		uint32_t encoding;
	} integer; /* 1 */
	struct {
		struct btf_type array; /* 2, 4, 6, 8 */
		struct btf_array size;
		struct btf_type pointer; /* 3, 5, 7, 9 */
	} attributes[ATTRIBUTES];
	struct btf_type structure; /* 10 */
	struct btf_member members[ATTRIBUTES];
	struct btf_type variable; /* 11 */
	struct btf_var linkage;
	struct btf_type section; /* 12 */
	struct btf_var_secinfo in_section;
};

/** Contents of the section .BTF. */
struct map_btf {
	struct btf_header header;
	struct map_types types;
	char strings[sizeof type_names];
};

static void describe_map(struct map_btf *out)
{
	static const struct {
		const char *name;
		uint32_t value;
	} attributes[ATTRIBUTES] = {{"type", BPF_MAP_TYPE_XSKMAP},
				    {"max_entries", XDP_QUEUES_MAX},
				    {"key_size", sizeof(uint32_t)},
				    {"value_size", sizeof(uint32_t)}};
	struct map_types *t = &out->types;
	memset(out, 0, sizeof *out);
	out->header = (struct btf_header){.magic = BTF_MAGIC,
					  .version = BTF_VERSION,
					  .hdr_len = sizeof out->header,
					  .type_len = sizeof out->types,
					  .str_off = sizeof out->types,
					  .str_len = sizeof out->strings};
	memcpy(out->strings, type_names, sizeof type_names);
	t->integer.type = (struct btf_type){type_name("int"), INFO(BTF_KIND_INT, 0), {sizeof(int32_t)}};
	t->integer.encoding = BTF_INT_SIGNED << 24 | 32;
	t->structure = (struct btf_type){0, INFO(BTF_KIND_STRUCT, ATTRIBUTES), {ATTRIBUTES * sizeof(uint64_t)}};
	for (uint32_t i = 0; i < ATTRIBUTES; i++) {
		t->attributes[i].array = (struct btf_type){0, INFO(BTF_KIND_ARRAY, 0), {0}};
		t->attributes[i].size = (struct btf_array){1, 1, attributes[i].value};
		t->attributes[i].pointer = (struct btf_type){0, INFO(BTF_KIND_PTR, 0), {2 + 2 * i}};
		t->members[i] = (struct btf_member){type_name(attributes[i].name), 3 + 2 * i, i * 64};
	}
	t->variable = (struct btf_type){type_name("xsks_map"), INFO(BTF_KIND_VAR, 0), {10}};
	t->linkage.linkage = BTF_VAR_GLOBAL_ALLOCATED;
	t->section = (struct btf_type){type_name(".maps"), INFO(BTF_KIND_DATASEC, 1), {ATTRIBUTES * sizeof(uint64_t)}};
	t->in_section = (struct btf_var_secinfo){11, 0, ATTRIBUTES * sizeof(uint64_t)};
}

#define TYPES_BYTES (offsetof(struct map_btf, strings) + sizeof type_names)

bool xdp_is_btf(const void *types, size_t len)
{
	struct map_btf btf;
	describe_map(&btf);
	return len == TYPES_BYTES && memcmp(types, &btf, len) == 0;
}

static void add_program(struct image *image, Elf64_Shdr *headers, const struct frame_addr *me, unsigned ports)
{
	struct bpf_insn insns[XDP_INSNS_MAX];
	unsigned map, n = xdp_program(me, ports, insns, &map);
	Elf64_Rel relocation = {.r_offset = map * sizeof insns[0], .r_info = ELF64_R_INFO(2, RELOCATION_MAP)};
	Elf64_Sym symbols[3] = {
		{.st_name = 0},
		{.st_name = name(XDP_NAME),
		 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
		 .st_shndx = PROGRAM,
		 .st_size = n * sizeof insns[0]},
		{.st_name = name("xsks_map"),
		 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
		 .st_shndx = MAPS,
		 .st_size = ATTRIBUTES * sizeof(uint64_t)},
	};
	section(image, &headers[SYMTAB], ".symtab", symbols, sizeof symbols);
	headers[SYMTAB].sh_type = SHT_SYMTAB;
	headers[SYMTAB].sh_link = STRTAB;
	headers[SYMTAB].sh_info = 1; /* index of the first global symbol */
	headers[SYMTAB].sh_entsize = sizeof symbols[0];
	section(image, &headers[PROGRAM], "xdp", insns, n * sizeof insns[0]);
	headers[PROGRAM].sh_type = SHT_PROGBITS;
	headers[PROGRAM].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
	section(image, &headers[RELOCATION], ".relxdp", &relocation, sizeof relocation);
	headers[RELOCATION].sh_type = SHT_REL;
	headers[RELOCATION].sh_link = SYMTAB;
	headers[RELOCATION].sh_info = PROGRAM;
	headers[RELOCATION].sh_entsize = sizeof relocation;
}

static void build(struct image *image, const struct frame_addr *me, unsigned ports)
{
	static const uint64_t no_pointers[ATTRIBUTES];
	struct map_btf btf;
	Elf64_Shdr headers[SECTIONS] = {0};
	Elf64_Ehdr elf = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELF_ORDER, EV_CURRENT},
			  .e_type = ET_REL,
			  .e_machine = EM_BPF,
			  .e_version = EV_CURRENT,
			  .e_ehsize = sizeof elf,
			  .e_shentsize = sizeof headers[0],
			  .e_shnum = SECTIONS,
			  .e_shstrndx = STRTAB};
	image->len = 0;
	append(image, &elf, sizeof elf);
	section(image, &headers[STRTAB], ".strtab", names, sizeof names);
	headers[STRTAB].sh_type = SHT_STRTAB;
	add_program(image, headers, me, ports);
	section(image, &headers[LICENSE], "license", license, sizeof license);
	headers[LICENSE].sh_type = SHT_PROGBITS;
	section(image, &headers[MAPS], ".maps", no_pointers, sizeof no_pointers);
	headers[MAPS].sh_type = SHT_PROGBITS;
	headers[MAPS].sh_flags = SHF_ALLOC | SHF_WRITE;
	describe_map(&btf);
	section(image, &headers[BTF], ".BTF", &btf, TYPES_BYTES);
	headers[BTF].sh_type = SHT_PROGBITS;
	elf.e_shoff = append(image, headers, sizeof headers);
	memcpy(image->bytes, &elf, sizeof elf);
}

_Static_assert(sizeof(Elf64_Ehdr) + SECTIONS * (sizeof(Elf64_Shdr) + 8) + sizeof names + 3 * sizeof(Elf64_Sym) +
			       XDP_INSNS_MAX * sizeof(struct bpf_insn) + sizeof(Elf64_Rel) + sizeof license +
			       ATTRIBUTES * 8 + sizeof(struct map_btf) <=
		       sizeof(((struct image *)0)->bytes),
	       "an object fits");

int xdp_object(const struct frame_addr *me, unsigned ports, char *path, size_t cap, struct nic_err *err)
{
	struct image image;
	build(&image, me, ports);
	int fd = memfd_create(XDP_NAME, MFD_CLOEXEC);
	if (fd < 0 || write(fd, image.bytes, image.len) != (ssize_t)image.len) {
		int error = errno ? errno : EIO;
		if (fd >= 0)
			close(fd);
		return host_error(err, -error, "dpdk: no memory for the XDP filter: %s", strerror(error));
	}
	snprintf(path, cap, "/proc/self/fd/%d", fd);
	return fd;
}
