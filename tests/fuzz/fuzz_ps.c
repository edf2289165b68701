/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads the input as what the parameter server gets from files and peers. The first byte chooses: a manifest of saved
 * tables, a data file unpacked, its frames, a view, or requests to a shard with a table of rows and one of values. What
 * reads well is the same when it is written and read again; each request is answered once. Main thread.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined. With -DFUZZ_MAIN: as fuzz_values.c.
 */
#include "base/must.h"
#include "psv_file.h"
#include "psv_shard.h"

#include <farcall/message.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- The engine, for one request at a time ---- */

struct far_req {
	int answers;
	void *reply;
};
struct far_deferred {
	char none;
};
static struct far_deferred deferred; /* stands for each of them */
static int deferred_open;

enum far_status far_fail(struct far_req *req, enum far_status status, int32_t code, const char *format, ...)
{
	(void)code;
	(void)format;
	must(status != FAR_OK);
	req->answers++;
	return status;
}

enum far_status far_reply(struct far_req *req, const void *data, size_t len)
{
	(void)data;
	(void)len;
	req->answers++;
	return FAR_OK;
}

enum far_status far_reply_alloc(struct far_req *req, size_t len, void **data)
{
	req->answers++;
	req->reply = malloc(len ? len : 1);
	must(req->reply != NULL);
	*data = req->reply;
	return FAR_OK;
}

enum far_status far_defer(struct far_req *req, struct far_deferred **out)
{
	req->answers++;
	deferred_open++;
	*out = &deferred;
	return FAR_OK;
}

enum far_status far_deferred_reply(struct far_deferred *d, const void *data, size_t len)
{
	(void)d;
	(void)data;
	(void)len;
	deferred_open--;
	return FAR_OK;
}

enum far_status far_deferred_fail(struct far_deferred *d, enum far_status status, int32_t code, const char *format, ...)
{
	(void)d;
	(void)code;
	(void)format;
	must(status != FAR_OK);
	deferred_open--;
	return FAR_OK;
}

uint64_t far_req_time_left_ns(const struct far_req *req)
{
	(void)req;
	return FAR_FOREVER;
}

unsigned far_req_shard(const struct far_req *req)
{
	(void)req;
	return 0;
}

enum far_status far_worker_by_rank_sized(struct far_agent *agent, int rank, struct far_worker_info *out, size_t bytes,
					 struct far_err *err)
{
	memset(out, 0, bytes);
	out->alive = rank % 2 == 0;
	out->incarnation = 1;
	return FAR_OK;
}

struct far_to far_req_from(const struct far_req *req)
{
	(void)req;
	return (struct far_to){1, 0};
}

void far_worker_self_sized(struct far_agent *agent, struct far_worker_info *out, size_t bytes)
{
	(void)agent;
	memset(out, 0, bytes);
}

/* Functions that a request may call. */
static enum far_status run(const struct far_ps_fn_args *args, void *user)
{
	(void)user;
	must(args->arg_len <= FAR_PS_ARG_MAX && (args->arg_len == 0 || args->arg));
	for (unsigned d = 0; d < args->schema->dim; d++)
		args->row[d] += 1;
	for (unsigned i = 0; i < args->state_floats; i++)
		args->state[i] += 1;
	args->values[0] = args->values[1] = (double)args->row[0];
	return args->key % 3 ? FAR_OK : FAR_DENIED;
}

static void register_functions(void)
{
	static bool done;
	if (!done) {
		must(far_ps_fn_register(&(struct far_ps_fn){.name = "f", .run = run, .width = 2}, NULL) == FAR_OK);
		must(far_ps_fn_register(&(struct far_ps_fn){.name = "r", .run = run, .width = 2, .reads = true},
					NULL) == FAR_OK);
	}
	done = true;
}

/* Of servers that are made by name: not called. */
enum far_status far_worker_by_name_sized(struct far_agent *agent, const char *name, struct far_worker_info *out,
					 size_t bytes, struct far_err *err)
{
	(void)agent;
	(void)name;
	(void)out;
	(void)bytes;
	(void)err;
	abort();
}

/* ---- Files ---- */

/* A copy in memory of exactly its size, so that a sanitizer sees a read past the end. */
static char *copy_of(const uint8_t *data, size_t size)
{
	char *copy = malloc(size ? size : 1);
	must(copy != NULL);
	memcpy(copy, data, size);
	return copy;
}

static void read_manifest(const char *bytes, size_t size)
{
	static struct psv_manifest m;
	struct far_err err = {0};
	enum far_status status = psv_manifest_parse(bytes, size, &m, &err);
	must(status == FAR_OK || status == FAR_INVALID || status == FAR_UNSUPPORTED);
	must(status == err.status && (status == FAR_OK) == (m.file != NULL));
	if (status)
		return;
	must(m.tables_n <= FAR_PS_TABLES_MAX);
	uint64_t files = 0;
	for (uint32_t i = 0; i < m.tables_n; i++) {
		struct far_ps_schema schema;
		must(psv_name_ok(m.table[i].name) && psv_schema_decode(&m.table[i].schema, &schema, &err) == FAR_OK);
		files += m.table[i].files;
	}
	must(files == m.files_n &&
	     size == sizeof(struct psv_manifest_head) + sizeof *m.table * m.tables_n + sizeof *m.file * files + 8);
	free(m.file);
}

/* As it is, and with its length and CRC repaired, so that what is behind these checks is reached. */
static void fuzz_manifest(const uint8_t *data, size_t size)
{
	char *bytes = copy_of(data, size);
	read_manifest(bytes, size);
	if (size >= 40 && size % 8 == 0) {
		uint64_t length = size;
		memcpy(bytes + 24, &length, 8);
		uint32_t crc = psv_crc32c(0, bytes, size - 8);
		memcpy(bytes + size - 8, &crc, 4);
		read_manifest(bytes, size);
	}
	free(bytes);
}

static void fuzz_data(const uint8_t *data, size_t size)
{
	struct psv_rows layout = {
		.row = 2 * (size_t)(data[0] % 5 + 1), .state = data[0] & 0x40 ? 12 : 0, .age = data[0] & 0x80 ? 8 : 0};
	if (data[0] & 0x20)
		layout = (struct psv_rows){.row = 4, .age = layout.age, .value_max = 40};
	char *bytes = copy_of(data + 1, size - 1);
	struct psv_saved_file file = {.plain = size - 1};
	const char *at = bytes, *end = bytes + size - 1;
	struct psv_block_rows block;
	uint64_t rows = 0;
	uint32_t last = UINT32_MAX;
	bool ok = true, rising = true;
	while (ok && at < end) {
		const char *from = at;
		ok = psv_block_read(&layout, &at, end, &block);
		must(ok ? at > from && at <= end : at == from);
		rows += ok ? block.n : 0;
		rising = rising && ok && block.n && (last == UINT32_MAX || block.partition >= last);
		last = ok ? block.partition : last;
		for (uint32_t i = 0; ok && i < block.n; i++)
			must(pst_partition(pst_hash(block.keys[i])) == block.partition);
		const uint32_t *lens = ok ? (const uint32_t *)(const void *)block.rows : NULL;
		must(!ok || (block.values != NULL) == (layout.value_max > 0));
		for (uint32_t i = 0, sum = 0; ok && block.values && i < block.n; i++)
			must(lens[i] <= layout.value_max && (sum += lens[i]) <= (size_t)(at - block.values));
	}
	uint32_t partition = UINT32_MAX;
	file.rows = rows;
	enum far_status status = psv_data_check(bytes, &file, &layout, &partition, NULL);
	must((status == FAR_OK) == (ok && rising));
	partition = UINT32_MAX;
	file.rows++;
	must(psv_data_check(bytes, &file, &layout, &partition, NULL) == FAR_INVALID);
	free(bytes);
}

static void read_frames(const char *bytes, size_t size, uint32_t crc, uint64_t plain_n)
{
	struct far_err err = {0};
	char *plain, *again;
	enum far_status status = psv_unpack(bytes, size, crc, plain_n, &plain, &err);
	must(status == FAR_OK || status == FAR_INVALID || status == FAR_UNSUPPORTED);
	must(status == err.status && (status == FAR_OK) == (plain != NULL));
	if (status)
		return;
	struct psv_packer p = {0};
	must(psv_packer_begin(&p, NULL) == FAR_OK && psv_packer_put(&p, plain, plain_n, NULL) == FAR_OK &&
	     psv_packer_end(&p, NULL) == FAR_OK && p.bytes == plain_n);
	must(psv_unpack(p.out ? p.out : "", p.out_n, p.crc, plain_n, &again, NULL) == FAR_OK);
	must(memcmp(plain, again, plain_n) == 0);
	free(again);
	must(psv_unpack(bytes, size, crc, plain_n + 1, &again, NULL) == FAR_INVALID);
	must(psv_unpack(bytes, size, ~crc, plain_n, &again, NULL) == FAR_INVALID);
	psv_packer_free(&p);
	free(plain);
}

/* As they are, and with their CRCs repaired. */
static void fuzz_frames(const uint8_t *data, size_t size)
{
	char *bytes = copy_of(data, size);
	uint32_t heads = 0;
	uint64_t plain = 0;
	read_frames(bytes, size, 0, size);
	for (size_t at = 0; size - at >= sizeof(struct psv_frame);) {
		struct psv_frame f;
		memcpy(&f, bytes + at, sizeof f);
		if (f.bytes > size - at - sizeof f)
			break;
		f.crc = psv_crc32c(psv_crc32c(0, &f, 12), bytes + at + sizeof f, f.bytes);
		memcpy(bytes + at, &f, sizeof f);
		heads = psv_crc32c(heads, &f, sizeof f);
		plain += f.plain;
		at += sizeof f + f.bytes;
	}
	read_frames(bytes, size, heads, plain);
	free(bytes);
}

/* ---- Peers ---- */

static void fuzz_view(const uint8_t *data, size_t size)
{
	char *bytes = copy_of(data, size), again[PSV_VIEW_BYTES_MAX];
	struct psv_view *view = psv_view_decode(bytes, size);
	if (view) {
		must(view->slots > 0 && view->slots <= FAR_PS_SHARDS_MAX && view->epoch > 0);
		for (uint32_t p = 0; p < FAR_PS_PARTITIONS; p++)
			must(view->owner[p] < view->slots);
		must(psv_view_encode(view, again) == size && memcmp(again, bytes, 12) == 0 &&
		     memcmp(again + 16, bytes + 16, size - 16) == 0);
	}
	psv_views_free(view);
	free(bytes);
}

static struct psv_view *own_view(void)
{
	struct {
		uint64_t epoch;
		uint32_t runs, zero, first;
		int32_t worker, shard;
	} one = {.epoch = 1, .runs = 1};
	struct psv_view *view = psv_view_decode(&one, 28);
	must(view != NULL);
	return view;
}

static void send(struct far_ps_server *server, const void *bytes, size_t len)
{
	char *copy = copy_of(bytes, len);
	struct far_req req = {0};
	psv_shard_serve(&req, copy, len, server);
	must(req.answers == 1);
	free(req.reply);
	free(copy);
}

static void make_tables(struct far_ps_server *server)
{
	struct {
		struct psv_request head;
		char name[PSV_NAME_BYTES];
		struct psv_schema schema;
	} q = {.head = {.magic = PSV_MAGIC,
			.kind = PSV_CREATE,
			.service = server->service,
			.table = psv_name_id("t"),
			.epoch = 1},
	       .name = "t"};
	struct far_ps_schema schema = {.dim = 2, .rows_max = 64, .ttl_ms = 1000, .workers = 2};
	schema.rule = (struct far_ps_rule){.kind = FAR_PS_ADAGRAD, .rate = 0.1f, .epsilon = 1e-8f};
	psv_schema_encode(&schema, &q.schema);
	send(server, &q, sizeof q);
	q.head.table = psv_name_id("v");
	q.name[0] = 'v';
	schema = (struct far_ps_schema){.value_max = 40, .rows_max = 64, .ttl_ms = 1000, .workers = 2};
	psv_schema_encode(&schema, &q.schema);
	send(server, &q, sizeof q);
}

/* Records: the length of a request (1 byte, in words of 4), and the request. Its magic and ids are set, unless the
 * length has its highest bit. */
static void fuzz_requests(const uint8_t *data, size_t size)
{
	static struct psv_shard shard;
	struct far_ps_server server = {.service = psv_name_id("s"), .name = "s", .shards = 1, .shard = &shard};
	memset(&shard, 0, sizeof shard);
	atomic_init(&server.view, own_view());
	psv_shard_init(&shard, &server, (struct far_to){0, 0});
	register_functions();
	make_tables(&server);
	must(atomic_load(&shard.tables_n) == 2);
	while (size > 0) {
		size_t len = (size_t)(data[0] & 0x7f) * 4;
		bool whole = len >= sizeof(struct psv_request);
		char *bytes = calloc(1, len + 1);
		must(bytes != NULL);
		memcpy(bytes, data + 1, len < size - 1 ? len : size - 1);
		if (whole && !(data[0] & 0x80)) {
			struct psv_request q;
			memcpy(&q, bytes, sizeof q);
			q.magic = PSV_MAGIC;
			q.service = server.service;
			q.table = psv_name_id(q.epoch & 0x10000 ? "v" : "t");
			q.epoch = 1 + (q.epoch & 1);
			memcpy(bytes, &q, sizeof q);
		}
		send(&server, bytes, len);
		free(bytes);
		data += 1 + (len < size - 1 ? len : size - 1);
		size -= 1 + (len < size - 1 ? len : size - 1);
	}
	/* Those that wait end with the server. */
	struct psv_request wake = {.magic = PSV_MAGIC, .kind = PSV_WAKE, .service = server.service};
	shard.self.worker = 1; /* far_req_from() */
	atomic_store(&server.stopping, true);
	send(&server, &wake, sizeof wake);
	must(deferred_open == 0 && shard.waiters == NULL);
	psv_shard_fini(&shard);
	psv_views_free(atomic_load(&server.view));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	switch (data[0] & 7) {
	case 0:
		fuzz_manifest(data + 1, size - 1);
		break;
	case 1:
		fuzz_data(data + 1, size - 1);
		break;
	case 2:
		fuzz_view(data + 1, size - 1);
		break;
	case 4:
		fuzz_frames(data + 1, size - 1);
		break;
	default:
		fuzz_requests(data + 1, size - 1);
	}
	return 0;
}

#ifdef FUZZ_MAIN
#include "corpus_main.h"
#endif
