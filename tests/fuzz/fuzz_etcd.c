/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the store etcd:// reads from a server. The first byte of the input chooses: 0 a reply, 1 an error, 2 a token, 3
 * base64, else a watch, which comes in parts of that many bytes less 3. The rest is what comes, in a block of its own.
 * Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "base/must.h"
#include "etcd/base64.h"
#include "etcd/changes.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_REPLY, READS_ERROR, READS_TOKEN, READS_BASE64, READS_WATCH };

static void kv_check(const struct etcd_kv *kv, size_t most)
{
	unsigned sum = 0;
	must(kv->key.len > 0 && kv->key.len + kv->value.len <= most);
	must(kv->revision > 0 && kv->revision <= ETCD_REVISION_MAX);
	for (size_t i = 0; i < kv->key.len; i++)
		sum += kv->key.data[i];
	for (size_t i = 0; i < kv->value.len; i++)
		sum += kv->value.data[i];
	must(sum <= 255 * most);
}

static void reply_read(const char *text, size_t len)
{
	struct message m;
	if (message_read(&m, text, len))
		return;
	must(m.reply.revision >= 0 && m.reply.revision <= ETCD_REVISION_MAX);
	for (size_t i = 0; i < m.reply.kvs_n; i++)
		kv_check(&m.reply.kvs[i], len);
	message_free(&m);
}

static void error_read(const char *text, size_t len)
{
	char out[16] = "";
	int code = message_error(text, len, out, sizeof out);
	must(code >= -1 && code <= 16 && strlen(out) < sizeof out);
	must(code >= 0 || !out[0]);
}

static void base64_read(const char *text, size_t len)
{
	uint8_t *out = malloc(len / 4 * 3 + 1);
	char *again = malloc(len + 4);
	must(out && again);
	long n = base64_decode(text, len, out);
	must(n >= -1 && n <= (long)(len / 4 * 3));
	if (n >= 0) {
		must(BASE64_LEN((size_t)n) == len);
		base64_encode(out, (size_t)n, again);
		must(len < 4 || memcmp(again, text, len - 4) == 0); /* the last digit has bits that say nothing */
	}
	free(out);
	free(again);
}

static void watch_read(const char *text, size_t len, size_t part)
{
	struct changes c = {.next = 10, .returned = 9};
	struct etcd_kv kv;
	int rc = 0;
	for (size_t at = 0; at < len && rc == 0; at += part) {
		size_t n = len - at < part ? len - at : part;
		int64_t before = c.returned;
		must(changes_put(&c, text + at, n) == 1);
		while ((rc = changes_next(&c, &kv)) > 0)
			kv_check(&kv, len);
		must(c.returned >= before && c.next > 0);
	}
	changes_reset(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = size ? size - 1 : 0;
	char *text = size ? malloc(len ? len : 1) : NULL;
	if (!text)
		return 0;
	memcpy(text, data + 1, len);
	if (data[0] == READS_REPLY) {
		reply_read(text, len);
	} else if (data[0] == READS_ERROR) {
		error_read(text, len);
	} else if (data[0] == READS_TOKEN) {
		free(message_token(text, len));
	} else if (data[0] == READS_BASE64) {
		base64_read(text, len);
	} else {
		watch_read(text, len, (size_t)data[0] - READS_WATCH + 1);
	}
	free(text);
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
