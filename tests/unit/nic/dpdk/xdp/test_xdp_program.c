/* SPDX-License-Identifier: BSD-3-Clause */
/** The XDP filter takes the frames of its sockets and no others. The test's thread. */
#include "bpf_calls.h"
#include "captured_frames.h"

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

Test(xdp_program, takes_what_is_ours_and_nothing_else)
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

Test(xdp_program, ports)
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

Test(xdp_program, last_ports)
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
