/* SPDX-License-Identifier: BSD-3-Clause */
/** The public functions of clients: services and tables. Any thread. */
#include "psv_client.h"

#include "pst_fail.h"
#include "psv_env.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define VIEW_NS  (200 * FAR_MS) /* of one request of far_ps_open() */
#define PAUSE_NS (10 * FAR_MS)  /* between two */

void far_ps_rule_defaults(struct far_ps_rule *rule, enum far_ps_rule_kind kind)
{
	struct pst_rule r = {0};
	pst_rule_defaults(&r, (unsigned)kind <= FAR_PS_USER ? (enum pst_rule_kind)kind : PST_RULE_SGD);
	*rule = (struct far_ps_rule){
		.kind = kind, .rate = r.rate, .beta1 = r.beta1, .beta2 = r.beta2, .epsilon = r.epsilon};
}

const char *far_ps_status_name(enum far_ps_status status)
{
	static const char *const names[] = {"ROW",  "NEW",  "MISSING", "WAITING", "REFUSED",
					    "LATE", "LOST", "FAILED",  "APPLIED"};
	return (unsigned)status < sizeof names / sizeof *names ? names[status] : "?";
}

/* ---- Services ---- */

void psv_ref(struct far_ps *ps)
{
	atomic_fetch_add_explicit(&ps->references, 1, memory_order_relaxed);
}

void psv_unref(struct far_ps *ps)
{
	if (atomic_fetch_sub_explicit(&ps->references, 1, memory_order_acq_rel) != 1)
		return;
	psv_views_free(atomic_load(&ps->view));
	pthread_mutex_destroy(&ps->lock);
	psv_arena_fini(&ps->arena);
	free(ps);
}

bool psv_adopt(struct far_ps *ps, const void *bytes, size_t len, uint64_t than)
{
	struct psv_view *view = psv_view_decode(bytes, len);
	if (!view || view->epoch <= than) {
		psv_views_free(view);
		return false;
	}
	pthread_mutex_lock(&ps->lock);
	struct psv_view *now = atomic_load(&ps->view);
	bool later = !now || view->epoch > now->epoch;
	if (later) {
		view->older = now;
		ps->floor = ps->next;
		atomic_store_explicit(&ps->view, view, memory_order_release);
	}
	pthread_mutex_unlock(&ps->lock);
	if (!later)
		psv_views_free(view);
	return true;
}

/* True if a server sent another view of the epoch that the client has. */
static bool contradicts(struct far_ps *ps, const char *bytes, size_t len)
{
	const struct psv_view *view = atomic_load(&ps->view);
	char known[PSV_VIEW_BYTES_MAX];
	return view && len >= sizeof view->epoch && memcmp(bytes, &view->epoch, sizeof view->epoch) == 0 &&
	       (psv_view_encode(view, known) != len || memcmp(known, bytes, len) != 0);
}

/* Adopts the views in the replies to `n` requests. INVALID: two servers have different lists of servers. */
static enum far_status adopt_views(struct far_ps *ps, const char *name, const struct far_target *targets,
				   const struct far_target_result *results, size_t n, struct far_err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (results[i].status != FAR_OK || results[i].len <= sizeof(struct psv_reply))
			continue;
		const char *view = (const char *)targets[i].recv_buf + sizeof(struct psv_reply);
		size_t len = results[i].len - sizeof(struct psv_reply);
		(void)psv_adopt(ps, view, len, 0);
		if (contradicts(ps, view, len))
			return pst_fail(err, FAR_INVALID, 0,
					"worker %d serves \"%s\" with another list of servers, or of their shards, "
					"than another server of epoch %llu: give all servers the same list",
					targets[i].to.worker, name, (unsigned long long)far_ps_epoch(ps));
	}
	return FAR_OK;
}

/* Requests the view from `n` shards. OK: `k` of them have answered; 0: all. */
static enum far_status request_view(struct far_ps *ps, const char *name, const struct far_to *to, size_t n, size_t k,
				    uint64_t timeout_ns, struct far_err *err)
{
	struct {
		struct psv_request head;
		char name[PSV_NAME_BYTES];
	} q = {.head = {.magic = PSV_MAGIC, .kind = PSV_VIEW, .service = ps->service}};
	enum { ROOM = sizeof(struct psv_reply) + PSV_VIEW_BYTES_MAX };
	strcpy(q.name, name);
	struct far_target *targets = calloc(n, sizeof *targets);
	struct far_target_result *results = calloc(n, sizeof *results);
	char *replies = malloc(n * ROOM);
	enum far_status status = FAR_OK;
	struct far_future *f = NULL;
	if (!targets || !results || !replies)
		status = pst_fail(err, FAR_RESOURCE, 0, "no memory for requests to %zu shards", n);
	for (size_t i = 0; i < n && !status; i++)
		targets[i] = (struct far_target){.to = to[i], .recv_buf = replies + i * ROOM, .cap = ROOM};
	struct far_fanout_opts opts = {.timeout_ns = timeout_ns, .k = k};
	if (!status)
		status = far_msg_fanout(ps->agent, ps->message, &q, sizeof q, targets, n, &opts, results, &f, err);
	bool started = !status;
	if (started)
		status = far_future_wait(f, timeout_ns + FAR_SEC, NULL, err);
	far_future_free(f); /* then nothing is written to the arrays any more */
	struct far_err split;
	enum far_status agreed = started ? adopt_views(ps, name, targets, results, n, &split) : FAR_OK;
	free(targets);
	free(results);
	free(replies);
	if (agreed && err)
		*err = split;
	return agreed ? agreed : status;
}

/* First one member that knows the view, then all shards of the view. */
static enum far_status request_views(struct far_ps *ps, const char *name, uint64_t timeout_ns, struct far_err *err)
{
	const struct psv_view *view = atomic_load(&ps->view);
	if (view)
		return request_view(ps, name, view->slot, view->slots, 0, timeout_ns, err);
	int world = far_world_size(ps->agent);
	struct far_to *to = calloc((size_t)world, sizeof *to);
	if (!to)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for requests to %d members", world);
	size_t n = 0;
	for (int i = 0; i < world; i++) {
		struct far_worker_info info;
		if (far_worker_by_rank(ps->agent, i, &info, NULL) == FAR_OK && info.alive)
			to[n++] = (struct far_to){i, 0};
	}
	enum far_status status = request_view(ps, name, to, n, 1, timeout_ns, err);
	free(to);
	return status;
}

/* A wait of the agent's, which fibers may do too. */
static void pause_for(uint64_t ns)
{
	struct far_future *never;
	if (far_future_create(&never, NULL))
		return;
	(void)far_future_wait(never, ns, NULL, NULL);
	far_future_free(never);
}

/* Requests until all have answered. */
static enum far_status find(struct far_ps *ps, const char *name, uint64_t timeout_ns, struct far_err *err)
{
	uint64_t begin = psv_now_ns(), gone = 0;
	struct far_err last = {.text = "the deadline has passed"};
	while (gone < timeout_ns) {
		uint64_t left = timeout_ns - gone;
		bool known = atomic_load(&ps->view);
		enum far_status status = request_views(ps, name, left < VIEW_NS ? left : VIEW_NS, &last);
		if (status == FAR_OK && known)
			return FAR_OK;
		if (status == FAR_SHUTDOWN || status == FAR_RESOURCE || status == FAR_WOULD_DEADLOCK ||
		    status == FAR_CANCELLED || status == FAR_INVALID) {
			if (err)
				*err = last;
			return status;
		}
		if (status)
			pause_for(PAUSE_NS);
		gone = psv_now_ns() - begin;
	}
	if (atomic_load(&ps->view))
		return pst_fail(err, FAR_TIMEOUT, 0, "not all servers of \"%s\" answer: %.200s", name, last.text);
	return pst_fail(err, FAR_TIMEOUT, 0, "no member of the group serves \"%s\" by message %u", name, ps->message);
}

enum far_status far_ps_open(struct far_agent *agent, const char *name, const struct far_ps_open_opts *opts,
			    struct far_ps **out, struct far_err *err)
{
	struct far_ps_open_opts o = opts ? *opts : (struct far_ps_open_opts){0};
	if (!agent || !out || !psv_name_ok(name))
		return pst_fail(err, FAR_INVALID, 0,
				"far_ps_open needs an agent, a place for the service and a name of 1 to %d bytes",
				FAR_PS_NAME_MAX - 1);
	if (o.reserved[0])
		return pst_fail(err, FAR_INVALID, 0, "a reserved word of far_ps_open_opts is not 0");
	if (o.next && !o.client)
		return pst_fail(err, FAR_INVALID, 0, "next is %llu without a client: give the one of far_ps_client()",
				(unsigned long long)o.next);
	struct far_ps *ps = calloc(1, sizeof *ps);
	if (!ps)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for a service");
	atomic_init(&ps->references, 1);
	pthread_mutex_init(&ps->lock, NULL);
	psv_arena_init(&ps->arena);
	ps->agent = agent;
	ps->service = psv_name_id(name);
	ps->message = o.message ? o.message : FAR_PS_MESSAGE;
	ps->next = o.next ? o.next : 1;
	ps->client = o.client;
	enum far_status status = FAR_OK;
	if (!o.client && getrandom(&ps->client, sizeof ps->client, 0) != sizeof ps->client)
		status = pst_fail(err, FAR_SYSTEM, errno, "no random number for a client: %s", strerror(errno));
	if (!status)
		status = find(ps, name, o.timeout_ns ? o.timeout_ns : far_rpc_timeout_ns(agent), err);
	if (!status && o.epoch && o.epoch != far_ps_epoch(ps))
		status = pst_fail(err, FAR_GONE, 0, "the view has epoch %llu, not %llu: changes cannot be repeated",
				  (unsigned long long)far_ps_epoch(ps), (unsigned long long)o.epoch);
	if (status) {
		psv_unref(ps);
		return status;
	}
	*out = ps;
	return FAR_OK;
}

void far_ps_close(struct far_ps *ps)
{
	if (ps)
		psv_unref(ps);
}

uint64_t far_ps_epoch(const struct far_ps *ps)
{
	return atomic_load_explicit(&((struct far_ps *)(uintptr_t)ps)->view, memory_order_acquire)->epoch;
}

uint64_t far_ps_client(const struct far_ps *ps)
{
	return ps->client;
}

uint64_t far_ps_next(const struct far_ps *ps)
{
	struct far_ps *p = (struct far_ps *)(uintptr_t)ps;
	pthread_mutex_lock(&p->lock);
	uint64_t next = p->next;
	pthread_mutex_unlock(&p->lock);
	return next;
}

enum far_status far_ps_barrier(struct far_ps *ps, const char *name, unsigned member, unsigned members,
			       uint64_t timeout_ns, struct far_future **future, struct far_err *err)
{
	if (!ps || !future || !psv_name_ok(name))
		return pst_fail(err, FAR_INVALID, 0,
				"a barrier needs a service, a place for the future and a name of 1 to %d bytes",
				FAR_PS_NAME_MAX - 1);
	if (!members || members > FAR_PS_WORKERS_MAX || member >= members)
		return pst_fail(err, FAR_INVALID, 0, "member %u of %u; a barrier has 1 to %d members", member, members,
				FAR_PS_WORKERS_MAX);
	struct psv_op op = {.ps = ps,
			    .kind = PSV_BARRIER,
			    .table = psv_name_id(name),
			    .timeout_ns = timeout_ns,
			    .worker = member,
			    .members = members};
	strcpy(op.barrier, name);
	return psv_op_start(&op, future, err);
}

/* ---- Tables ---- */

static enum far_status get_table(struct far_ps *ps, const char *name, const struct far_ps_schema *schema,
				 uint64_t timeout_ns, struct far_ps_table **out, struct far_err *err)
{
	struct far_ps_table *t;
	if (!ps || !out || !name)
		return pst_fail(err, FAR_INVALID, 0, "the service, the name or the table is NULL");
	if (!psv_name_ok(name))
		return pst_fail(err, FAR_INVALID, 0, "the name of a table has 1 to %d bytes; \"%.80s\" has %zu",
				FAR_PS_NAME_MAX - 1, name, strlen(name));
	enum far_status status = schema ? psv_schema_check(schema, err) : FAR_OK;
	if (status)
		return status;
	if (!(t = calloc(1, sizeof *t)))
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for a table");
	t->ps = ps;
	t->id = psv_name_id(name);
	strcpy(t->name, name);
	if (schema)
		t->schema = *schema;
	struct psv_op op = {.ps = ps,
			    .kind = schema ? PSV_CREATE : PSV_OPEN,
			    .table = t->id,
			    .timeout_ns = timeout_ns,
			    .name = t->name,
			    .schema = &t->schema};
	memcpy(op.table_name, t->name, sizeof op.table_name);
	struct far_future *f;
	status = psv_op_start(&op, &f, err);
	if (!status) {
		/* The operation ends by its own deadline and writes to the table until then. */
		status = far_future_wait(f, FAR_FOREVER, NULL, err);
		far_future_free(f);
	}
	if (status) {
		free(t);
		return status;
	}
	t->state_floats = psv_schema_state(&t->schema);
	psv_ref(ps);
	*out = t;
	return FAR_OK;
}

enum far_status far_ps_table_create(struct far_ps *ps, const char *name, const struct far_ps_schema *schema,
				    uint64_t timeout_ns, struct far_ps_table **table, struct far_err *err)
{
	if (!schema)
		return pst_fail(err, FAR_INVALID, 0, "far_ps_table_create needs a schema");
	return get_table(ps, name, schema, timeout_ns, table, err);
}

enum far_status far_ps_table_open(struct far_ps *ps, const char *name, uint64_t timeout_ns, struct far_ps_table **table,
				  struct far_err *err)
{
	return get_table(ps, name, NULL, timeout_ns, table, err);
}

const struct far_ps_schema *far_ps_table_schema(const struct far_ps_table *t)
{
	return &t->schema;
}

unsigned far_ps_table_state(const struct far_ps_table *t)
{
	return t->state_floats;
}

void far_ps_table_free(struct far_ps_table *t)
{
	if (!t)
		return;
	psv_unref(t->ps);
	free(t);
}
