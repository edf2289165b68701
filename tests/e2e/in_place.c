/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Messages of a single packet are received without a copy, but for those of a line over datagram drivers: what an
 * inline handler is given, bytes or a tensor, lies aligned in the packet's memory, and no function of the C library
 * that copies has seen any of its bytes. Of two workers the second calls the first, over the driver that FAR_NIC leads
 * to. Main thread of each process; handlers on shard threads.
 *
 * usage: in_place DRIVER LARGEST [PATIENCE]; the group is that of the environment. LARGEST: bytes that are still one
 * packet. PATIENCE: seconds that all may take, and that a silent worker is borne with
 */
#include "in_place.h"

#include "check.h"

#include <stdint.h>

enum { NOTE = 1, TRIES = 50, ALL_WELL = 7 };

static struct far_agent *agent;
static struct far_err err;

/* ---- worker 0 serves ---- */

static unsigned lies(const void *at)
{
	unsigned copies = in_place_copies();
	return (in_place_is_packet(at) ? 4u : 0) | ((uintptr_t)at % 8 == 0 ? 2u : 0) | (copies == 0 ? 1u : 0);
}

static void record_message(struct far_req *req, const void *data, size_t len, void *user)
{
	uint8_t reply = (uint8_t)lies(data);
	for (size_t i = 0; i < len; i++)
		CHECK(((const uint8_t *)data)[i] == IN_PLACE_BYTE);
	CHECK(far_reply(req, &reply, 1) == FAR_OK);
}

static enum far_status where(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(n == 1 && args[0].type == FAR_TYPE_TENSOR);
	struct far_val offset = far_int(lies(args[0].u.t.data));
	const uint8_t *data = args[0].u.t.data;
	for (size_t i = 0; i < far_len(&args[0]) * sizeof(double); i++)
		CHECK(data[i] == IN_PLACE_BYTE);
	return far_return(req, &offset);
}

/* ---- worker 1 calls ---- */

static uint8_t bytes[16384];

static unsigned message_lies(size_t len)
{
	uint8_t reply = 0;
	size_t n = 0;
	CHECK_STATUS(far_msg_call(agent, (struct far_to){0, 0}, NOTE, bytes, len, NULL, &reply, 1, &n, &err), FAR_OK,
		     &err);
	CHECK(n == 1);
	return reply;
}

static unsigned tensor_lies(size_t len)
{
	struct far_tensor t = far_tensor_1d(FAR_F64, bytes, len / 8);
	struct far_val out = far_none();
	CHECK_STATUS(far_rpc_sync(agent, "worker0", "place::where", FAR_ARGS(&t), NULL, &out, &err), FAR_OK, &err);
	unsigned lay = (unsigned)out.u.i;
	far_val_fini(&out);
	return lay;
}

/* A packet that another has overtaken, or that came twice, is put together elsewhere; so are those of a set-up that is
 * being changed. So each size may be tried a few times. */
static void try_sizes(const char *what, unsigned (*query)(size_t), size_t least, size_t largest)
{
	for (size_t len = least; len <= largest; len += 56) {
		unsigned lay = 0;
		for (unsigned tries = 0; tries < TRIES && lay != ALL_WELL; tries++)
			lay = query(len);
		if (lay != ALL_WELL)
			fprintf(stderr, "in_place: a %s of %zu bytes is %s, %s, and was %scopied\n", what, len,
				lay & 4 ? "in the packet" : "elsewhere", lay & 2 ? "aligned" : "not aligned",
				lay & 1 ? "not " : "");
		CHECK(lay == ALL_WELL);
	}
}

int main(int argc, char **argv)
{
	static const struct far_msg_handler handlers[] = {{NOTE, FAR_KIND_INLINE, record_message, NULL}};
	static const struct far_function functions[] = {
		{"place::where(Tensor x) -> int", FAR_KIND_INLINE, where, NULL}};
	struct far_worker_info info;
	CHECK(argc >= 3 && (size_t)atoi(argv[2]) <= sizeof bytes);
	unsigned patience = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	struct far_opts opts = {.messages = handlers,
				.messages_n = 1,
				.functions = functions,
				.functions_n = 1,
				.security = patience ? "none" : NULL,
				.rpc_timeout_ns = patience * FAR_SEC,
				.peer_limit_ns = patience * FAR_SEC};
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = IN_PLACE_BYTE;
	agent = check_join(&opts);
	if (patience)
		alarm(patience);
	if (check_rank() == 1) {
		CHECK_STATUS(far_worker_by_rank(agent, 0, &info, &err), FAR_OK, &err);
		CHECK(strcmp(info.nic, argv[1]) == 0);
		/* The transport copies up to 32 bytes into a line, with their head. What says of what kind values are
		 * is read from a copy of the line where all is one line. */
		bool lines = strcmp(argv[1], "shm") == 0;
		try_sizes("message", message_lies, lines ? 8 : 40, (size_t)atoi(argv[2]));
		try_sizes("tensor", tensor_lies, 32, (size_t)atoi(argv[2]));
	}
	check_leave(agent);
	return 0;
}
