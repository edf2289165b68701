/* SPDX-License-Identifier: BSD-3-Clause */
/** Numbers, counts and keeps the runs of a campaign. Run by the runner's only thread. */
#include "sim/campaign.h"

#include "base/must.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "farcall-sim-campaign 1"

const char *const trial_fault_names[TRIAL_FAULTS + 1] = {
#define TRIAL_FAULT_NAME(id, text) text,
	TRIAL_FAULT_LIST(TRIAL_FAULT_NAME)
#undef TRIAL_FAULT_NAME
		NULL};

/* ---- the state file ---- */

/* FNV-1a of the executable. 0: it could not be read, and is compared with nothing. */
static uint64_t program_hash(void)
{
	static uint8_t block[65536];
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	FILE *f = fopen("/proc/self/exe", "r");
	size_t n;
	if (!f)
		return 0;
	while ((n = fread(block, 1, sizeof block, f)) > 0)
		for (size_t i = 0; i < n; i++)
			h = (h ^ block[i]) * UINT64_C(0x100000001b3);
	fclose(f);
	return h;
}

static int cannot(const struct campaign *c, const char *what, char err[KEYWORDS_ERR_MAX])
{
	int error = errno;
	snprintf(err, KEYWORDS_ERR_MAX, "cannot %s the state file %s: %s", what, c->path, strerror(error));
	return -error;
}

static bool is_at(int fd, const char *path)
{
	struct stat open, there;
	return fstat(fd, &open) == 0 && stat(path, &there) == 0 && open.st_ino == there.st_ino &&
	       open.st_dev == there.st_dev;
}

/* One process at a time: the file is locked, and so is each that replaces it before it does. */
static int open_locked(struct campaign *c, char err[KEYWORDS_ERR_MAX])
{
	c->fd = open(c->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (c->fd < 0)
		return cannot(c, "open", err);
	if (flock(c->fd, LOCK_EX | LOCK_NB) == 0 && is_at(c->fd, c->path))
		return 0;
	snprintf(err, KEYWORDS_ERR_MAX, "the state file %s is in use by another process; give --state another name",
		 c->path);
	close(c->fd);
	c->fd = -1;
	return -EBUSY;
}

static int another(const struct campaign *c, const char *what, char err[KEYWORDS_ERR_MAX])
{
	snprintf(err, KEYWORDS_ERR_MAX,
		 "the state file %s is of %s; give the same options and program, another --state, or remove it",
		 c->path, what);
	return -EINVAL;
}

static bool read_numbers(char *text, uint64_t *out, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char *end;
		errno = 0;
		out[i] = strtoull(text, &end, 10);
		if (end == text || errno)
			return false;
		text = end;
	}
	return *text == '\0';
}

static bool read_pending(struct campaign *c, char *text)
{
	uint64_t number;
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
		if (c->pending_n == CAMPAIGN_JOBS_MAX || !read_numbers(word, &number, 1) || number >= c->next)
			return false;
		c->pending[c->pending_n++].number = number;
	}
	return true;
}

static bool read_failure(struct campaign *c, const char *text)
{
	if (c->failures_n == CAMPAIGN_FAILURES_MAX)
		return false;
	struct campaign_failure *f = &c->failures[c->failures_n++];
	char *end;
	f->number = strtoull(text, &end, 10);
	snprintf(f->text, sizeof f->text, "%s", end + (*end == ' '));
	return end != text && f->number < c->next;
}

/* "scenario 3 …": in the order of their numbers. */
static bool read_total(struct campaign *c, char *text, unsigned *seen)
{
	uint64_t v[6 + TRIAL_FAULTS];
	if (*seen >= c->scenarios_n || !read_numbers(text, v, 6 + TRIAL_FAULTS) || v[0] != *seen)
		return false;
	struct campaign_total *t = &c->totals[(*seen)++];
	*t = (struct campaign_total){.runs = v[1], .failed = v[2], .calls = v[3], .packets = v[4], .virtual_ns = v[5]};
	memcpy(t->faults, v + 6, sizeof t->faults);
	return true;
}

static bool read_line(struct campaign *c, char *line, unsigned *seen)
{
	char *value = strchr(line, ' ');
	value = value ? value + 1 : line + strlen(line);
	if (strncmp(line, "pending ", 8) == 0)
		return read_pending(c, value);
	if (strncmp(line, "scenario ", 9) == 0)
		return read_total(c, value, seen);
	return strncmp(line, "failure ", 8) == 0 && read_failure(c, value);
}

/* Does the file's list of scenarios have these names. */
static bool same_names(const struct campaign *c, FILE *f, char *line, int cap)
{
	for (unsigned i = 0; i < c->scenarios_n; i++) {
		if (!fgets(line, cap, f))
			return false;
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "name ", 5) != 0 || strcmp(line + 5, c->names[i]) != 0)
			return false;
	}
	return true;
}

static int read_state(struct campaign *c, FILE *f, char err[KEYWORDS_ERR_MAX])
{
	static char line[32 + 24 * CAMPAIGN_JOBS_MAX];
	uint64_t v[5];
	unsigned seen = 0;
	if (!fgets(line, sizeof line, f))
		return 0; /* new */
	c->resumed = true;
	if (strcmp(line, FORMAT "\n") != 0)
		return another(c, "something else than a campaign", err);
	if (!fgets(line, sizeof line, f))
		return another(c, "a campaign, and cut off", err);
	line[strcspn(line, "\n")] = '\0';
	if (!read_numbers(line, v, 5))
		return another(c, "a campaign, and damaged", err);
	if (v[0] != c->runs || v[1] != c->from || v[2] != c->scenarios_n || !same_names(c, f, line, sizeof line))
		return another(c, "a campaign of other runs, seeds or scenarios", err);
	if (v[3] != c->program)
		return another(c, "a campaign of another program", err);
	c->next = v[4];
	bool fits = c->next <= c->runs, ended = false;
	while (fits && !ended && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		ended = strcmp(line, "end") == 0;
		fits = ended || read_line(c, line, &seen);
	}
	fits &= ended && seen == c->scenarios_n && campaign_done(c) + c->pending_n == c->next;
	return fits ? 0 : another(c, "a campaign, and damaged", err);
}

static int write_state(const struct campaign *c, int fd)
{
	FILE *f = fdopen(fd, "w");
	if (!f)
		return -errno;
	fprintf(f, FORMAT "\n%" PRIu64 " %" PRIu64 " %u %" PRIu64 " %" PRIu64 "\n", c->runs, c->from, c->scenarios_n,
		c->program, c->next);
	for (unsigned i = 0; i < c->scenarios_n; i++)
		fprintf(f, "name %s\n", c->names[i]);
	fprintf(f, "pending ");
	for (unsigned i = 0; i < c->pending_n; i++)
		fprintf(f, "%s%" PRIu64, i ? " " : "", c->pending[i].number);
	for (unsigned i = 0; i < c->scenarios_n; i++) {
		const struct campaign_total *t = &c->totals[i];
		fprintf(f, "\nscenario %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, i, t->runs,
			t->failed, t->calls, t->packets, t->virtual_ns);
		for (unsigned k = 0; k < TRIAL_FAULTS; k++)
			fprintf(f, " %" PRIu64, t->faults[k]);
	}
	for (unsigned i = 0; i < c->failures_n; i++)
		fprintf(f, "\nfailure %" PRIu64 " %s", c->failures[i].number, c->failures[i].text);
	fprintf(f, "\nend\n");
	int error = ferror(f) ? -EIO : 0;
	if (fclose(f) && !error)
		error = -errno;
	return error;
}

int campaign_save(struct campaign *c)
{
	char path[1024];
	if ((size_t)snprintf(path, sizeof path, "%s.new", c->path) >= sizeof path)
		return -ENAMETOOLONG;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), copy;
	if (fd < 0)
		return -errno;
	/* The lock is of the open file, which fclose() leaves to the other descriptor. */
	int error = flock(fd, LOCK_EX | LOCK_NB) || (copy = dup(fd)) < 0 ? -errno : write_state(c, copy);
	if (!error && rename(path, c->path) < 0)
		error = -errno;
	if (error) {
		close(fd);
		return error;
	}
	close(c->fd);
	c->fd = fd;
	return 0;
}

int campaign_open(struct campaign *c, const char *path, const char *const *names, unsigned scenarios_n, uint64_t runs,
		  uint64_t from, char err[KEYWORDS_ERR_MAX])
{
	*c = (struct campaign){.path = path,
			       .names = names,
			       .scenarios_n = scenarios_n,
			       .runs = runs,
			       .from = from,
			       .program = program_hash(),
			       .fd = -1};
	c->totals = calloc(scenarios_n, sizeof *c->totals);
	c->failures = calloc(CAMPAIGN_FAILURES_MAX, sizeof *c->failures);
	must(c->totals && c->failures);
	int error = open_locked(c, err);
	FILE *f = error ? NULL : fopen(path, "r");
	if (f) {
		error = read_state(c, f, err);
		fclose(f);
	} else if (!error) {
		error = cannot(c, "read", err);
	}
	if (!error && (error = campaign_save(c)) < 0) {
		errno = -error;
		cannot(c, "write", err);
	}
	if (error)
		campaign_close(c);
	return error;
}

void campaign_close(struct campaign *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	free(c->totals);
	free(c->failures);
	c->totals = NULL;
	c->failures = NULL;
}

/* ---- runs ---- */

bool campaign_take(struct campaign *c, uint64_t *number)
{
	for (unsigned i = 0; i < c->pending_n; i++)
		if (!c->pending[i].here) {
			c->pending[i].here = true;
			*number = c->pending[i].number;
			return true;
		}
	if (c->next == c->runs || c->pending_n == CAMPAIGN_JOBS_MAX)
		return false;
	*number = c->next++;
	c->pending[c->pending_n++] = (struct campaign_pending){*number, true};
	return true;
}

void campaign_untake(struct campaign *c, uint64_t number)
{
	for (unsigned i = 0; i < c->pending_n; i++)
		if (c->pending[i].number == number)
			c->pending[i].here = false;
}

bool campaign_left(const struct campaign *c)
{
	for (unsigned i = 0; i < c->pending_n; i++)
		if (!c->pending[i].here)
			return true;
	return c->next < c->runs;
}

static void note_failure(struct campaign *c, uint64_t number, const char *text)
{
	if (c->failures_n == CAMPAIGN_FAILURES_MAX)
		return;
	struct campaign_failure *f = &c->failures[c->failures_n++];
	f->number = number;
	snprintf(f->text, sizeof f->text, "%s", text);
	for (char *s = f->text; *s; s++)
		if ((unsigned char)*s < ' ')
			*s = ' ';
}

void campaign_count(struct campaign *c, uint64_t number, const struct trial_verdict *v, const char *failure)
{
	struct campaign_total *t = &c->totals[number % c->scenarios_n];
	unsigned at = 0;
	while (at < c->pending_n && c->pending[at].number != number)
		at++;
	must(at < c->pending_n);
	c->pending[at] = c->pending[--c->pending_n];
	t->runs++;
	if (failure) {
		t->failed++;
		note_failure(c, number, failure);
	}
	if (!v)
		return;
	t->calls += v->calls;
	t->packets += v->packets;
	t->virtual_ns += v->virtual_ns;
	for (unsigned k = 0; k < TRIAL_FAULTS; k++)
		t->faults[k] += v->faults[k];
}

static void sum(const struct campaign *c, struct campaign_total *out)
{
	*out = (struct campaign_total){0};
	for (unsigned i = 0; i < c->scenarios_n; i++) {
		const struct campaign_total *t = &c->totals[i];
		out->runs += t->runs;
		out->failed += t->failed;
		out->calls += t->calls;
		out->packets += t->packets;
		out->virtual_ns += t->virtual_ns;
		for (unsigned k = 0; k < TRIAL_FAULTS; k++)
			out->faults[k] += t->faults[k];
	}
}

uint64_t campaign_done(const struct campaign *c)
{
	struct campaign_total all;
	sum(c, &all);
	return all.runs;
}

uint64_t campaign_failed(const struct campaign *c)
{
	struct campaign_total all;
	sum(c, &all);
	return all.failed;
}

/* ---- reports ---- */

static uint64_t seed_of(const struct campaign *c, uint64_t number)
{
	return c->from + number / c->scenarios_n;
}

static void print_faults(FILE *out, const struct campaign_total *t)
{
	bool any = false;
	for (unsigned k = 0; k < TRIAL_FAULTS; k++)
		if (t->faults[k]) {
			fprintf(out, "%s%s %" PRIu64, any ? ", " : "", trial_fault_names[k], t->faults[k]);
			any = true;
		}
	fprintf(out, "%s\n", any ? "" : "none");
}

static int by_number(const void *x, const void *y)
{
	const struct campaign_failure *a = x, *b = y;
	return a->number < b->number ? -1 : a->number > b->number;
}

void campaign_print(const struct campaign *c, FILE *out, const char *more)
{
	struct campaign_total all;
	fprintf(out, "%-26s %9s %6s %11s %12s %9s  faults\n", "scenario", "runs", "failed", "calls", "packets",
		"virtual s");
	for (unsigned i = 0; i < c->scenarios_n; i++) {
		const struct campaign_total *t = &c->totals[i];
		fprintf(out, "%-26s %9" PRIu64 " %6" PRIu64 " %11" PRIu64 " %12" PRIu64 " %9.1f  ", c->names[i],
			t->runs, t->failed, t->calls, t->packets, (double)t->virtual_ns / 1e9);
		print_faults(out, t);
	}
	sum(c, &all);
	fprintf(out, "%-26s %9" PRIu64 " %6" PRIu64 " %11" PRIu64 " %12" PRIu64 " %9.1f  ", "all", all.runs, all.failed,
		all.calls, all.packets, (double)all.virtual_ns / 1e9);
	print_faults(out, &all);
	qsort(c->failures, c->failures_n, sizeof *c->failures, by_number);
	for (unsigned i = 0; i < c->failures_n; i++) {
		const struct campaign_failure *f = &c->failures[i];
		const char *name = c->names[f->number % c->scenarios_n];
		fprintf(out, "FAIL %s, seed %" PRIu64 ": %s\n", name, seed_of(c, f->number), f->text);
		fprintf(out, "  repeat: farcall sim --scenario '%s' --from %" PRIu64 " --seeds 1%s\n", name,
			seed_of(c, f->number), more);
	}
	if (all.failed > c->failures_n)
		fprintf(out, "%" PRIu64 " more have failed\n", all.failed - c->failures_n);
}

static void json_text(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		if ((unsigned char)*s < ' ')
			fprintf(out, "\\u%04x", (unsigned)*s);
		else
			fputc(*s, out);
	}
	fputc('"', out);
}

/* Members of an object, without its braces. */
static void json_total(FILE *out, const struct campaign_total *t)
{
	fprintf(out,
		"\"runs\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"calls\":%" PRIu64 ",\"packets\":%" PRIu64
		",\"virtual_ns\":%" PRIu64 ",\"faults\":{",
		t->runs, t->failed, t->calls, t->packets, t->virtual_ns);
	for (unsigned k = 0; k < TRIAL_FAULTS; k++)
		fprintf(out, "%s\"%s\":%" PRIu64, k ? "," : "", trial_fault_names[k], t->faults[k]);
	fputc('}', out);
}

static void json_failure(FILE *out, const struct campaign *c, const struct campaign_failure *f, const char *more)
{
	const char *name = c->names[f->number % c->scenarios_n];
	char repeat[1200];
	fprintf(out, "{\"scenario\":");
	json_text(out, name);
	fprintf(out, ",\"seed\":%" PRIu64 ",\"text\":", seed_of(c, f->number));
	json_text(out, f->text);
	snprintf(repeat, sizeof repeat, "farcall sim --scenario '%s' --from %" PRIu64 " --seeds 1%s", name,
		 seed_of(c, f->number), more);
	fprintf(out, ",\"repeat\":");
	json_text(out, repeat);
	fputc('}', out);
}

void campaign_print_json(const struct campaign *c, FILE *out, const char *more, double seconds, int signal)
{
	struct campaign_total all;
	sum(c, &all);
	fprintf(out, "{\"requested\":%" PRIu64 ",\"from\":%" PRIu64 ",\"seconds\":%.3f,\"signal\":%d,", c->runs,
		c->from, seconds, signal);
	json_total(out, &all);
	fprintf(out, ",\"scenarios\":[");
	for (unsigned i = 0; i < c->scenarios_n; i++) {
		fprintf(out, "%s{\"name\":", i ? "," : "");
		json_text(out, c->names[i]);
		fputc(',', out);
		json_total(out, &c->totals[i]);
		fputc('}', out);
	}
	fprintf(out, "],\"failures\":[");
	qsort(c->failures, c->failures_n, sizeof *c->failures, by_number);
	for (unsigned i = 0; i < c->failures_n; i++) {
		fprintf(out, "%s", i ? "," : "");
		json_failure(out, c, &c->failures[i], more);
	}
	fprintf(out, "]}\n");
}
