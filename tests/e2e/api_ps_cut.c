/* SPDX-License-Identifier: BSD-3-Clause */
/** A large partition of a parameter server: scans and saves read it in slices of bounded rows, as it was at one moment
 * while pushes go on; a new view erases it. Statuses of several requests to one shard. One server, one client. Main
 * thread of each process, and one that pushes. */
#include "api_spawn.h"
#include "apps/libps/pst_hash.h"
#include "apps/libps/psv_wire.h"

#include <farcall/message.h>
#include <farcall/ps.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { KEYS = 5000, PARTITION = 17, SAVES = 10 };

static struct far_agent *agent;
static struct far_err err;
static struct far_ps *ps;
static struct far_ps_table *table;
static _Atomic int *step; /* of both processes: 1: a new view is wanted, 2: it is there, 3: the end */

static uint64_t keys[KEYS + 100]; /* of the partition; those behind KEYS come later */
static float grads[KEYS + 100], rows[KEYS + 100];

static void done(enum far_status started, struct far_future *const *f)
{
	CHECK_STATUS(started, FAR_OK, &err);
	CHECK_STATUS(far_future_wait(*f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(*f);
}

static void push(size_t first, size_t n)
{
	struct far_future *f;
	done(far_ps_push(table, keys + first, n, grads, NULL, NULL, &f, &err), &f);
}

static void make(void)
{
	struct far_ps_schema schema = {.dim = 1};
	far_ps_rule_defaults(&schema.rule, FAR_PS_SGD);
	schema.rule.rate = 1;
	CHECK_STATUS(far_ps_table_create(ps, "large", &schema, 0, &table, &err), FAR_OK, &err);
}

static void drop(void)
{
	far_ps_table_free(table);
	CHECK_STATUS(far_ps_table_drop(ps, "large", 0, &err), FAR_OK, &err);
}

/* ---- One slice a request ---- */

static enum far_status slice(struct psv_scan_head *head, uint64_t found[PSV_SLICE_ROWS], float values[PSV_SLICE_ROWS],
			     uint32_t *n)
{
	static _Alignas(8) char reply[PSV_SLICE_BYTES + 65536];
	struct psv_request q = {.magic = PSV_MAGIC,
				.kind = PSV_SCAN,
				.service = psv_name_id("rows"),
				.table = psv_name_id("large"),
				.epoch = far_ps_epoch(ps),
				.clock = head->cut,
				.token = head->next,
				.worker = PARTITION};
	struct psv_block block;
	size_t len;
	enum far_status status = far_msg_call(agent, (struct far_to){0, 0}, FAR_PS_MESSAGE, &q, sizeof q, NULL, reply,
					      sizeof reply, &len, &err);
	if (status)
		return status;
	char *at = reply + sizeof(struct psv_reply);
	memcpy(head, at, sizeof *head);
	memcpy(&block, at + sizeof *head, sizeof block);
	CHECK(block.partition == PARTITION && block.n <= PSV_SLICE_ROWS);
	at += sizeof *head + sizeof block;
	memcpy(found, at, block.n * sizeof *found);
	memcpy(values, at + block.n * sizeof *found, block.n * sizeof *values);
	*n = block.n;
	return FAR_OK;
}

/* Rows are pushed, erased and made between the slices; each slice is read twice. */
static void slices(void)
{
	static uint64_t found[PSV_SLICE_ROWS], again[PSV_SLICE_ROWS];
	static float values[PSV_SLICE_ROWS];
	struct psv_scan_head head = {0};
	struct far_future *f;
	uint64_t last = 0;
	uint32_t n, all = 0, requests = 0;
	make();
	push(0, KEYS);
	do {
		struct psv_scan_head at = head;
		CHECK_STATUS(slice(&head, found, values, &n), FAR_OK, &err);
		for (uint32_t i = 0; i < n; i++) {
			CHECK(!(values[i] < 1) && !(values[i] > 1));
			CHECK(pst_hash(found[i]) > last);
			last = pst_hash(found[i]);
		}
		all += n;
		push(0, KEYS + 100);
		if (at.cut && head.cut) {
			uint32_t m;
			struct psv_scan_head once_more = at;
			CHECK_STATUS(slice(&once_more, again, values, &m), FAR_OK, &err);
			uint32_t least = m < n ? m : n; /* a shard with nothing else to do may have sent more */
			CHECK(least > 0 && memcmp(again, found, least * sizeof *found) == 0);
			CHECK(!(values[0] < 1) && !(values[0] > 1));
		}
		done(far_ps_erase(table, keys + requests * 700, 500, NULL, NULL, &f, &err), &f);
	} while (head.cut && ++requests < 100);
	CHECK(all == KEYS && requests >= KEYS / PSV_SLICE_ROWS);
	drop();
}

/* Slices are short between requests with keys, and long when there were none for a while. */
static void short_slices(void)
{
	static uint64_t found[PSV_SLICE_ROWS];
	static float values[PSV_SLICE_ROWS];
	uint32_t n, most = 0, least = UINT32_MAX;
	make();
	push(0, KEYS);
	while (most <= PSV_SHORT_ROWS || least > PSV_SHORT_ROWS) {
		struct psv_scan_head head = {0};
		bool alone = most <= PSV_SHORT_ROWS;
		do {
			if (alone)
				usleep(20000);
			else
				push(0, 1);
			CHECK_STATUS(slice(&head, found, values, &n), FAR_OK, &err);
			most = n > most ? n : most;
			least = n < least && head.cut ? n : least;
		} while (head.cut);
	}
	drop();
}

/* Readers that stop are bounded, and go with the table. */
static void silent_readers(void)
{
	static uint64_t found[PSV_SLICE_ROWS];
	static float values[PSV_SLICE_ROWS];
	uint32_t n;
	struct psv_scan_head head = {0};
	for (int round = 0; round < 2; round++) {
		make();
		push(0, KEYS);
		for (int i = 0; i < 64; i++) {
			head = (struct psv_scan_head){0};
			CHECK_STATUS(slice(&head, found, values, &n), FAR_OK, &err);
		}
		/* On a busy machine some are silent for so long meanwhile that they are gone. */
		struct psv_scan_head other;
		enum far_status got = FAR_OK;
		for (int i = 0; i < 10000 && got == FAR_OK; i++) {
			other = (struct psv_scan_head){0};
			got = slice(&other, found, values, &n);
		}
		CHECK_STATUS(got, FAR_BUSY, &err);
		CHECK_TEXT(&err, "64 scans and saves");
		other = head;
		other.cut++;
		CHECK_STATUS(slice(&other, found, values, &n), FAR_GONE, &err);
		other = head;
		other.next = 0; /* of another partition */
		CHECK_STATUS(slice(&other, found, values, &n), FAR_GONE, &err);
		drop();
	}
}

/* ---- While pushes go on ---- */

static _Atomic bool pushes_end;
static _Atomic unsigned pushes;

static void *push_all(void *arg)
{
	struct far_err mine;
	(void)arg;
	while (!atomic_load(&pushes_end)) {
		struct far_future *f;
		CHECK_STATUS(far_ps_push(table, keys, KEYS, grads, NULL, NULL, &f, &mine), FAR_OK, &mine);
		CHECK_STATUS(far_future_wait(f, 0, NULL, &mine), FAR_OK, &mine);
		far_future_free(f);
		atomic_fetch_add(&pushes, 1);
	}
	return NULL;
}

/* Each push is one request, so all rows are equal between two of them. Returns their number. */
static float all_equal(const float *values, size_t n)
{
	CHECK(n == KEYS);
	for (size_t i = 1; i < n; i++)
		CHECK(!(values[i] < values[0]) && !(values[i] > values[0]));
	return values[0];
}

static float loaded(const char *dir)
{
	struct far_ps_saved now;
	struct far_future *f;
	drop();
	CHECK_STATUS(far_ps_load(ps, dir, NULL, &now, &err), FAR_OK, &err);
	CHECK(now.rows == KEYS && now.tables == 1);
	make(); /* opens it */
	done(far_ps_pull(table, keys, KEYS, NULL, rows, NULL, &f, &err), &f);
	return all_equal(rows, KEYS);
}

static void scans_and_saves(void)
{
	char dir[64], command[128];
	const char *tmp = getenv("TMPDIR");
	pthread_t thread;
	float last = 0;
	snprintf(dir, sizeof dir, "%.40s/api-ps-cut-XXXXXX", tmp ? tmp : "/tmp");
	CHECK(mkdtemp(dir) != NULL);
	make();
	push(0, KEYS);
	CHECK(pthread_create(&thread, NULL, push_all, NULL) == 0);
	for (int i = 0; i < SAVES; i++) {
		struct far_ps_rows found;
		unsigned partition = PARTITION, before = atomic_load(&pushes);
		CHECK_STATUS(far_ps_scan(table, &partition, 0, &found, &err), FAR_OK, &err);
		CHECK(partition > PARTITION);
		float now = all_equal(found.rows, found.n);
		CHECK(now >= last);
		last = now;
		far_ps_rows_free(&found);
		CHECK_STATUS(far_ps_save(ps, dir, NULL, NULL, &err), FAR_OK, &err);
		while (atomic_load(&pushes) == before)
			usleep(100);
	}
	atomic_store(&pushes_end, true);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(loaded(dir) >= last);
	snprintf(command, sizeof command, "rm -r %s", dir);
	CHECK(system(command) == 0);
}

/* The server skips an epoch, so nothing is known of its partitions: all rows go. */
static void new_view(void)
{
	struct far_ps_stats stats;
	struct far_future *f;
	atomic_store(step, 1);
	done(far_ps_pull(table, keys, KEYS, NULL, rows, NULL, &f, &err), &f); /* by the old view or the new one */
	while (atomic_load(step) < 2)
		usleep(1000);
	done(far_ps_table_stats(table, 0, &stats, &f, &err), &f);
	CHECK(stats.rows == 0 && stats.erased >= KEYS && far_ps_epoch(ps) == 3);
	push(0, KEYS);
	done(far_ps_pull(table, keys, KEYS, NULL, rows, NULL, &f, &err), &f);
	CHECK(!(all_equal(rows, KEYS) > 1));
	far_ps_table_free(table);
}

/* Every third key has no row; the requests of an operation begin at different ones. */
static void statuses(void)
{
	struct far_ps_schema schema = {.dim = 16};
	enum { N = 3000 };
	static float wide[N * 16];
	static uint8_t status[N];
	struct far_ps_table *t;
	struct far_future *f;
	far_ps_rule_defaults(&schema.rule, FAR_PS_SGD);
	CHECK_STATUS(far_ps_table_create(ps, "thirds", &schema, 0, &t, &err), FAR_OK, &err);
	for (int i = 0; i < N; i += 3)
		done(far_ps_push(t, keys + i + 1, 2, wide, NULL, NULL, &f, &err), &f);
	done(far_ps_pull(t, keys, N, NULL, wide, status, &f, &err), &f);
	for (int i = 0; i < N; i++)
		CHECK(status[i] == (i % 3 ? FAR_PS_ROW : FAR_PS_MISSING));
	far_ps_table_free(t);
}

static void serve(void)
{
	struct far_ps_server *server;
	static const char *const names[] = {"worker0"};
	struct far_ps_serve_opts opts = {.servers = names, .servers_n = 1};
	CHECK_STATUS(far_ps_serve(agent, "rows", &opts, &server, &err), FAR_OK, &err);
	while (atomic_load(step) < 1)
		usleep(1000);
	CHECK_STATUS(far_ps_server_view(server, names, 1, 3, &err), FAR_OK, &err);
	atomic_store(step, 2);
	while (atomic_load(step) < 3)
		usleep(1000);
	CHECK_STATUS(far_ps_server_stop(server, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	far_ps_server_free(server);
}

static int together(int rank)
{
	agent = check_join(NULL);
	if (rank == 0) {
		serve();
		return 0;
	}
	size_t n = 0;
	for (uint64_t key = 0; n < KEYS + 100; key++)
		if (pst_partition(pst_hash(key)) == PARTITION) {
			grads[n] = -1;
			keys[n++] = key;
		}
	CHECK_STATUS(far_ps_open(agent, "rows", NULL, &ps, &err), FAR_OK, &err);
	slices();
	short_slices();
	silent_readers();
	scans_and_saves();
	new_view();
	statuses();
	far_ps_close(ps);
	atomic_store(step, 3);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

int main(void)
{
	step = mmap(NULL, sizeof *step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(step != MAP_FAILED);
	struct spawned s = spawn(2, together);
	return spawn_wait(&s, -1);
}
