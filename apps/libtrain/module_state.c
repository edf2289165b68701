/* SPDX-License-Identifier: BSD-3-Clause */
/** Parameters of a module to and from a safetensors file. Any thread; loading by one at a time. */
#include "module.h"
#include "safetensors.h"
#include "variable.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are written as they are in memory");

static enum far_status fail_system(struct far_err *err, const char *what, const char *path)
{
	int code = errno;
	fail(err, FAR_SYSTEM, "cannot %s %.200s: %s", what, path, strerror(code));
	if (err)
		err->code = code;
	return FAR_SYSTEM;
}

/* ---- saving ---- */

/* Parameters with their names, in the order of the file. */
struct saved {
	struct safetensor *tensors;
	struct far_var **vars;
	size_t n;
	size_t element; /* bytes of an element of those that are added now */
	uint64_t bytes;
	bool failed; /* no memory */
};

/** Larger elements first: all are aligned in the file. */
static enum far_status add_saved(void *user, const char *name, struct far_var *var)
{
	struct saved *s = user;
	const struct far_tensor *t = &var->value.t;
	if (far_dtype_size((enum far_dtype)t->dtype) != s->element)
		return FAR_OK;
	struct safetensor *to = &s->tensors[s->n];
	to->name = strdup(name);
	if (!to->name) {
		s->failed = true;
		return FAR_RESOURCE;
	}
	to->dtype = (enum far_dtype)t->dtype;
	to->ndim = t->ndim;
	memcpy(to->shape, t->shape, sizeof to->shape);
	to->begin = s->bytes;
	to->end = s->bytes += far_tensor_bytes(t);
	s->vars[s->n++] = var;
	return FAR_OK;
}

static void saved_free(struct saved *s)
{
	for (size_t i = 0; i < s->n; i++)
		free((char *)(uintptr_t)s->tensors[i].name);
	free(s->tensors);
	free(s->vars);
}

static enum far_status collect_saved(struct far_module *module, struct saved *s, struct far_err *err)
{
	size_t n = far_module_parameters(module, NULL, 0);
	*s = (struct saved){.tensors = calloc(n + 1, sizeof *s->tensors),
			    .vars = calloc(n + 1, sizeof(struct far_var *))};
	s->failed = !s->tensors || !s->vars;
	for (s->element = 8; s->element > 0 && !s->failed; s->element /= 2)
		far_module_each(module, add_saved, s);
	if (!s->failed)
		return FAR_OK;
	saved_free(s);
	return fail_memory(err, "module", n * sizeof *s->tensors);
}

static bool write_file(int fd, const struct saved *s)
{
	FILE *f = fdopen(fd, "w");
	if (!f) {
		close(fd);
		return false;
	}
	bool good = safetensors_write_header(f, s->tensors, s->n);
	for (size_t i = 0; i < s->n && good; i++) {
		size_t bytes = far_tensor_bytes(&s->vars[i]->value.t);
		good = fwrite(s->vars[i]->value.t.data, 1, bytes, f) == bytes;
	}
	good = good && fflush(f) == 0 && fsync(fd) == 0;
	int code = errno;
	bool closed = fclose(f) == 0;
	if (!good)
		errno = code;
	return good && closed;
}

/** The rename is durable once the directory is. */
static bool sync_directory(const char *path)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	free(copy);
	if (fd < 0)
		return false;
	bool good = fsync(fd) == 0;
	int code = errno;
	close(fd);
	errno = code;
	return good;
}

static enum far_status save_as(const struct saved *s, const char *path, char *temporary, size_t size,
			       struct far_err *err)
{
	int fd = -1;
	for (int i = 0; fd < 0 && (i == 0 || errno == EEXIST) && i < 100; i++) {
		snprintf(temporary, size, "%s.%ld.%d.tmp", path, (long)getpid(), i);
		fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	}
	if (fd < 0)
		return fail_system(err, "create", temporary);
	enum far_status status = FAR_OK;
	if (!write_file(fd, s))
		status = fail_system(err, "write", temporary);
	else if (rename(temporary, path))
		status = fail_system(err, "rename the temporary file to", path);
	if (status)
		unlink(temporary);
	else if (!sync_directory(path))
		status = fail_system(err, "synchronize the directory of", path);
	return status;
}

enum far_status far_module_save(struct far_module *module, const char *path, struct far_err *err)
{
	struct saved s;
	size_t size = strlen(path) + 64;
	TRY(collect_saved(module, &s, err));
	char *temporary = malloc(size);
	enum far_status status = temporary ? save_as(&s, path, temporary, size, err) : fail_memory(err, "module", size);
	free(temporary);
	saved_free(&s);
	return status;
}

/* ---- loading ---- */

struct loaded {
	const struct safetensors *file;
	const char *path;
	int fd;
	off_t data; /* where the elements begin */
	size_t n;   /* parameters so far */
	struct far_err *err;
};

static enum far_status read_at(int fd, void *to, size_t bytes, off_t at, const char *path, struct far_err *err)
{
	char *p = to;
	while (bytes > 0) {
		ssize_t n = pread(fd, p, bytes, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_system(err, "read", path);
		if (n == 0) {
			errno = EIO;
			return fail_system(err, "read, which became shorter,", path);
		}
		p += n;
		at += n;
		bytes -= (size_t)n;
	}
	return FAR_OK;
}

static enum far_status check_loaded(void *user, const char *name, struct far_var *var)
{
	struct loaded *l = user;
	const struct safetensor *from = safetensors_find(l->file, name);
	char text[TENSOR_TEXT];
	char wanted[TENSOR_TEXT];
	l->n++;
	if (!from)
		return fail(l->err, FAR_INVALID, "%.100s: there is no \"%.100s\"", l->path, name);
	struct far_tensor t = tensor_dense(from->dtype, NULL, from->ndim, from->shape);
	if (t.dtype != var->value.t.dtype || !tensor_same_shape(&t, &var->value.t))
		return fail(l->err, FAR_INVALID, "%.60s: \"%.60s\" is %.100s; the parameter is %.100s", l->path, name,
			    tensor_text(&t, text), tensor_text(&var->value.t, wanted));
	return FAR_OK;
}

static enum far_status load_one(void *user, const char *name, struct far_var *var)
{
	struct loaded *l = user;
	struct far_tensor to;
	const struct safetensor *from = safetensors_find(l->file, name);
	TRY(far_var_edit(var, &to, l->err));
	return read_at(l->fd, to.data, (size_t)(from->end - from->begin), l->data + (off_t)from->begin, l->path,
		       l->err);
}

static enum far_status find_extra(void *user, const char *name, struct far_var *var)
{
	const char **wanted = user;
	(void)var;
	return strcmp(name, *wanted) == 0 ? FAR_BUSY : FAR_OK; /* found: the walk ends */
}

static enum far_status load_from(struct far_module *module, struct loaded *l)
{
	TRY(far_module_each(module, check_loaded, l));
	for (size_t i = 0; i < l->file->n && l->n != l->file->n; i++) {
		const char *name = l->file->tensors[i].name;
		if (far_module_each(module, find_extra, &name) == FAR_OK)
			return fail(l->err, FAR_INVALID, "%.100s: \"%.100s\" is no parameter of the module", l->path,
				    name);
	}
	return far_module_each(module, load_one, l);
}

static enum far_status load_fd(struct far_module *module, int fd, const char *path, struct far_err *err)
{
	struct stat st;
	unsigned char length[8] = {0};
	uint64_t len = 0;
	if (fstat(fd, &st))
		return fail_system(err, "read", path);
	if (!S_ISREG(st.st_mode) || st.st_size < 8)
		return fail(err, FAR_INVALID, "%.200s: not a safetensors file: no 8 bytes of a header's length", path);
	TRY(read_at(fd, length, sizeof length, 0, path, err));
	for (unsigned i = 0; i < 8; i++)
		len |= (uint64_t)length[i] << (8 * i);
	if (len > SAFETENSORS_HEADER_MAX || len > (uint64_t)st.st_size - 8)
		return fail(err, FAR_INVALID,
			    "%.200s: not a safetensors file, or cut: a header of %llu bytes in a file of %lld", path,
			    (unsigned long long)len, (long long)st.st_size);
	char *header = malloc((size_t)len + 1);
	if (!header)
		return fail_memory(err, "safetensors", (size_t)len);
	struct safetensors file = {0};
	struct loaded l = {&file, path, fd, (off_t)(8 + len), 0, err};
	enum far_status status = read_at(fd, header, (size_t)len, 8, path, err);
	if (!status)
		status = safetensors_read(header, (size_t)len, (uint64_t)st.st_size - 8 - len, &file, err);
	if (!status) {
		status = load_from(module, &l);
		safetensors_free(&file);
	}
	free(header);
	return status;
}

enum far_status far_module_load(struct far_module *module, const char *path, struct far_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail_system(err, "open", path);
	enum far_status status = load_fd(module, fd, path, err);
	close(fd);
	return status;
}
