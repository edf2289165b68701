/* SPDX-License-Identifier: BSD-3-Clause */
/** Generates the instructions of the XDP filter. Control thread. */
#include "nic/dpdk/xdp/xdp.h"

#include <stdbool.h>
#include <string.h>

/* Registers: r6 the context, r2 the frame, r3 its end, r0 the compared value. */

/* A program being written: out[0, n). */
struct code {
	struct bpf_insn *out;
	unsigned n;
};

static void emit(struct code *c, unsigned op, unsigned dst, unsigned src, int off, int32_t imm)
{
	c->out[c->n++] = (struct bpf_insn){
		.code = (uint8_t)op, .dst_reg = dst & 15u, .src_reg = src & 15u, .off = (int16_t)off, .imm = imm};
}

/* Jumps to the end of the program, whose offset is set later. */
#define TO_PASS 0

static void load(struct code *c, unsigned size, unsigned offset)
{
	emit(c, BPF_LDX | BPF_MEM | size, BPF_REG_0, BPF_REG_2, (int)offset, 0);
}

/* Passes the frame to the kernel unless its bytes [offset, offset + len) equal `bytes`; len is even. */
static void match(struct code *c, unsigned offset, const uint8_t *bytes, unsigned len)
{
	for (unsigned i = 0; i < len;) {
		unsigned n = len - i >= 4 ? 4 : 2;
		uint32_t word = 0;
		if (n == 4)
			memcpy(&word, bytes + i, 4);
		else
			word = frame_load16(bytes + i);
		load(c, n == 4 ? BPF_W : BPF_H, offset + i);
		emit(c, BPF_JMP32 | BPF_JNE | BPF_K, BPF_REG_0, 0, TO_PASS, (int32_t)word);
		i += n;
	}
}

static void match_byte(struct code *c, unsigned offset, uint8_t mask, uint8_t value)
{
	load(c, BPF_B, offset);
	if (mask != 0xff)
		emit(c, BPF_ALU | BPF_AND | BPF_K, BPF_REG_0, 0, 0, mask);
	emit(c, BPF_JMP32 | BPF_JNE | BPF_K, BPF_REG_0, 0, TO_PASS, value);
}

/* Checks the frame's bounds, as the verifier requires. */
static void begin(struct code *c, unsigned bytes)
{
	emit(c, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_6, BPF_REG_1, 0, 0);
	emit(c, BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, offsetof(struct xdp_md, data), 0);
	emit(c, BPF_LDX | BPF_MEM | BPF_W, BPF_REG_3, BPF_REG_1, offsetof(struct xdp_md, data_end), 0);
	emit(c, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_4, BPF_REG_2, 0, 0);
	emit(c, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_4, 0, 0, (int32_t)bytes);
	emit(c, BPF_JMP | BPF_JGT | BPF_X, BPF_REG_4, BPF_REG_3, TO_PASS, 0);
}

static void match_v4(struct code *c, const struct frame_addr *me)
{
	uint16_t fragment = frame_be16(0x3fff); /* More Fragments flag and offset */
	match(c, 12, (const uint8_t[2]){0x08, 0x00}, 2);
	match_byte(c, 14, 0xff, 0x45); /* packets with options go to the kernel, as fragments do */
	load(c, BPF_H, 20);
	emit(c, BPF_ALU | BPF_AND | BPF_K, BPF_REG_0, 0, 0, fragment);
	emit(c, BPF_JMP32 | BPF_JNE | BPF_K, BPF_REG_0, 0, TO_PASS, 0);
	match_byte(c, 23, 0xff, 17);
	match(c, 30, me->ip, 4);
}

static void match_v6(struct code *c, const struct frame_addr *me)
{
	match(c, 12, (const uint8_t[2]){0x86, 0xdd}, 2);
	match_byte(c, 14, 0xf0, 0x60);
	match_byte(c, 20, 0xff, 17);
	match(c, 38, me->ip, 16);
}

static void match_ports(struct code *c, unsigned offset, uint16_t first, unsigned n)
{
	load(c, BPF_H, offset);
	emit(c, BPF_ALU | BPF_END | BPF_TO_BE, BPF_REG_0, 0, 0, 16);
	emit(c, BPF_ALU | BPF_SUB | BPF_K, BPF_REG_0, 0, 0, first);
	emit(c, BPF_JMP32 | BPF_JGE | BPF_K, BPF_REG_0, 0, TO_PASS, (int32_t)n);
}

/* Redirects to the socket of the receiving queue; passes if there is none. */
static unsigned redirect(struct code *c)
{
	unsigned map = c->n;
	emit(c, BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, 0);
	emit(c, 0, 0, 0, 0, 0); /* second half of the 64-bit load */
	emit(c, BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_6, offsetof(struct xdp_md, rx_queue_index), 0);
	emit(c, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS);
	emit(c, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map);
	emit(c, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	return map;
}

static bool is_jump(const struct bpf_insn *insn)
{
	unsigned class = BPF_CLASS(insn->code), op = BPF_OP(insn->code);
	return class == BPF_JMP32 || (class == BPF_JMP && op != BPF_CALL && op != BPF_EXIT);
}

unsigned xdp_program(const struct frame_addr *me, unsigned ports, struct bpf_insn out[XDP_INSNS_MAX], unsigned *map)
{
	struct code c = {out, 0};
	begin(&c, me->v6 ? FRAME_V6_BYTES : FRAME_V4_BYTES);
	match(&c, 0, me->mac, 6);
	if (me->v6)
		match_v6(&c, me);
	else
		match_v4(&c, me);
	match_ports(&c, me->v6 ? 56 : 36, me->port, ports);
	*map = redirect(&c);
	for (unsigned i = 0; i < c.n; i++)
		if (is_jump(&out[i]))
			out[i].off = (int16_t)(c.n - i - 1);
	emit(&c, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, XDP_PASS);
	emit(&c, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	return c.n;
}
