/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the two ends of a connection to the store read from each other, from the first byte on: the first byte of the
 * input chooses who reads, and whether there is a key; the rest is what comes. Nonces are drawn from a counter, so that
 * the corpus holds handshakes that succeed: what admitted clients send is read, too. Version 0 in the corpus stands for
 * the present one. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "base/must.h"
#include "control/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_CLIENT = 1, HAS_KEY = 2 };

/* One stream, whose other end has sent all of the input and reads everything. */
struct stream {
	struct ctl_net base;
	const uint8_t *data;
	size_t size, at;
	bool accepted, closed;
};

static struct stream *stream_of(struct ctl_net *net)
{
	return (struct stream *)net;
}

static int stream_accept(struct ctl_net *net, int listener)
{
	struct stream *s = stream_of(net);
	if (s->accepted)
		return -EAGAIN;
	s->accepted = true;
	return 1;
}

static int stream_connect(struct ctl_net *net, const char *host, uint16_t port)
{
	return stream_of(net)->closed ? -ECONNREFUSED : 1;
}

static long stream_send(struct ctl_net *net, int handle, const void *data, size_t len)
{
	return (long)len;
}

static long stream_recv(struct ctl_net *net, int handle, void *data, size_t len)
{
	struct stream *s = stream_of(net);
	size_t n = s->size - s->at < len ? s->size - s->at : len;
	memcpy(data, s->data + s->at, n);
	s->at += n;
	return n ? (long)n : -EAGAIN;
}

static void stream_close(struct ctl_net *net, int handle)
{
	stream_of(net)->closed = true;
}

static void stream_want(struct ctl_net *net, int handle, int read, int write)
{
}

static const struct ctl_net_ops ops = {.accept = stream_accept,
				       .connect = stream_connect,
				       .send = stream_send,
				       .recv = stream_recv,
				       .close = stream_close,
				       .want = stream_want};

static uint64_t count(void *ctx)
{
	return ++*(uint64_t *)ctx;
}

static const struct auth_key key = {"of the fuzzer"};

static int key_give(void *ctx, struct auth_key *out)
{
	*out = key;
	return 0;
}

static void server_reads(struct stream *s, bool keyed, const struct random_source *random)
{
	bool busy = false;
	struct store_server *server = store_server_create(&s->base, 0);
	must(server);
	store_server_set_key(server, keyed ? &key : NULL, random);
	for (uint64_t now = 1; now < 20; now++)
		store_server_step(server, now, &busy);
	must(store_server_clients(server) == (s->closed ? 0u : 1u));
	store_server_destroy(server);
}

static void client_reads(struct stream *s, bool keyed, const struct random_source *random)
{
	bool busy = false;
	struct store_client *client = store_client_create(store_stream_tcp(&s->base, "h", 1));
	struct store_login login = {.who = {.rank = 1, .incarnation = 7, .group = "g", .name = "w"},
				    .random = random,
				    .key = keyed ? key_give : NULL};
	must(client);
	store_client_login(client, &login);
	for (uint64_t now = 1; now < 20; now++)
		store_client_step(client, now, &busy);
	must(!keyed || store_client_connection(client) != STORE_CONNECTED ||
	     s->at > STORE_HEAD_BYTES + STORE_CHALLENGE_BYTES);
	store_client_destroy(client);
}

/* Gives frames of version 0 the present one. */
static void versions_set(uint8_t *data, size_t size)
{
	static const uint8_t begin[] = {'F', 'C', 'S', 'T', 0};
	for (size_t i = 0; i + sizeof begin <= size; i++)
		if (memcmp(data + i, begin, sizeof begin) == 0)
			data[i + sizeof begin - 1] = STORE_VERSION;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t counter = 0;
	const struct random_source random = {count, &counter};
	if (size == 0)
		return 0;
	uint8_t *sent = malloc(size);
	must(sent);
	memcpy(sent, data, size);
	versions_set(sent, size);
	struct stream s = {.base = {&ops}, .data = sent + 1, .size = size - 1};
	if (data[0] & READS_CLIENT)
		client_reads(&s, data[0] & HAS_KEY, &random);
	else
		server_reads(&s, data[0] & HAS_KEY, &random);
	free(sent);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
