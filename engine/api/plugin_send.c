/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Plugins by the network: far_plugin_send() reads a file and its signature (application threads and blocking handlers);
 * far::plugin_load checks the signature and loads the plugin out of memory (a blocking handler).
 */
#include "agent/agent.h"
#include "agent/init.h"
#include "api/plugin.h"
#include "base/error.h"
#include "base/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FUNCTION "far::plugin_load"
#ifndef MFD_EXEC
#define MFD_EXEC 0x10u /* Linux 6.3: executable, where the machine's default is not */
#endif

/* ---- the receiver ---- */

static const char *keys_path(void)
{
	const char *path = secure_getenv("FAR_PLUGIN_KEYS");
	return path && *path ? path : NULL;
}

/* Opens the list of keys. real[PATH_MAX]: its path without links. */
static enum far_status open_keys(char *real, FILE **out, struct far_err *err)
{
	char dir[PATH_MAX];
	const char *path = keys_path();
	if (!path || *path != '/' || !realpath(path, real))
		return err_set(
			err, FAR_DENIED,
			"the list of keys FAR_PLUGIN_KEYS=%.200s cannot be used: %s; give the absolute path of a "
			"file with lines of `farcall sign --public`",
			path ? path : "", path && *path != '/' ? "not an absolute path" : strerror(errno));
	snprintf(dir, sizeof dir, "%s", real);
	strrchr(dir, '/')[dir[1] && strrchr(dir, '/') == dir] = '\0'; /* of a file in "/": "/" */
	enum far_status status = plugin_check_owner(real, false, err);
	if (!status)
		status = plugin_check_owner(dir, true, err);
	if (!status && !(*out = fopen(real, "re")))
		status = err_set(err, FAR_DENIED, "the list of keys %.200s cannot be read: %s", real, strerror(errno));
	return status;
}

/* The key of a line, behind which a comment may stand. False: blank, a comment, or *wrong. */
static bool key_of(const char *line, struct auth_key *key, bool *wrong)
{
	size_t blank = strspn(line, " \t\r\n");
	size_t n = strcspn(line + blank, " \t\r\n");
	if (!n || line[blank] == '#')
		return false;
	*wrong = !key_parse(line + blank, n, key);
	return !*wrong;
}

/* OK: a key of the list made the signature. */
static enum far_status check_signature(const struct far_val *image, const uint8_t *signature, struct far_err *err)
{
	char real[PATH_MAX], *line = NULL;
	size_t room = 0;
	unsigned lines = 0, keys = 0;
	bool wrong = false, valid = false;
	struct auth_key key;
	FILE *f;
	enum far_status status = open_keys(real, &f, err);
	if (status)
		return status;
	for (; !valid && !wrong && getline(&line, &room, f) >= 0; lines++)
		if (key_of(line, &key, &wrong)) {
			valid = sign_valid(key.bytes, image->u.s.data, image->u.s.len, signature);
			keys++;
		}
	bool failed = ferror(f);
	free(line);
	fclose(f);
	if (valid)
		return FAR_OK;
	if (failed)
		return err_set(err, FAR_DENIED, "the list of keys %.200s cannot be read", real);
	if (wrong)
		return err_set(err, FAR_DENIED,
			       "line %u of the list of keys %.200s is no key of 64 hexadecimal digits; `farcall sign "
			       "--public` prints one",
			       lines, real);
	return err_set(err, FAR_DENIED,
		       "none of the %u keys in %.200s has signed this plugin; sign it by `farcall sign`", keys, real);
}

/* A sealed file in memory with the plugin's bytes. */
static enum far_status make_image(const struct far_val *bytes, int *out, struct far_err *err)
{
	int fd = memfd_create("farcall-plugin", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("farcall-plugin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return err_sys(err, errno, "no memory for the plugin's file");
	for (size_t at = 0; at < bytes->u.s.len;) {
		ssize_t n = write(fd, (const char *)bytes->u.s.data + at, bytes->u.s.len - at);
		if (n < 0 && errno != EINTR) {
			int error = errno;
			close(fd);
			return err_sys(err, error, "the plugin's file in memory cannot be written");
		}
		at += n > 0 ? (size_t)n : 0;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		int error = errno;
		close(fd);
		return err_sys(err, error, "the plugin's file in memory cannot be sealed");
	}
	*out = fd;
	return FAR_OK;
}

static enum far_status receive(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_worker_info sender = {.rank = -1};
	struct far_err err;
	char from[FAR_NAME_MAX + 16];
	int fd = -1;
	(void)n, (void)user;
	far_worker_by_rank(a, far_req_from(req).worker, &sender, &err);
	snprintf(from, sizeof from, "worker \"%s\"", sender.name);
	enum far_status status = FAR_OK;
	if (args[1].u.s.len != SIGN_BYTES)
		status = err_set(&err, FAR_DENIED, "a signature has %u bytes, not %zu", SIGN_BYTES, args[1].u.s.len);
	if (!status)
		status = check_signature(&args[0], (const uint8_t *)args[1].u.s.data, &err);
	if (!status)
		status = make_image(&args[0], &fd, &err);
	if (!status)
		status = plugin_load_image(a, fd, from, &err);
	return status ? far_fail(req, status, 0, "%s", err.text) : far_return_none(req);
}

enum far_status plugins_receive(struct init *in)
{
	static const struct far_function load = {FUNCTION "(bytes image, bytes signature) -> none", FAR_KIND_BLOCKING,
						 receive, NULL, 0};
	if (!keys_path())
		return FAR_OK;
	enum far_status status = registry_add(&in->a->registry, &load, in->err);
	return status ? status : agent_prepare_kind(in->a, FAR_KIND_BLOCKING, in->err);
}

/* ---- the sender ---- */

/* *data, *len: what the file holds; free() it. */
static enum far_status read_file(const char *path, char **data, size_t *len, struct far_err *err)
{
	struct stat st;
	int error = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		error = errno;
	if (!error && !S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(err, FAR_INVALID, "%.200s is not a file", path);
	}
	*data = error ? NULL : malloc((size_t)st.st_size + 1);
	if (!error && !*data)
		error = ENOMEM;
	for (*len = 0; !error && *len < (size_t)st.st_size;) {
		ssize_t n = read(fd, *data + *len, (size_t)st.st_size - *len);
		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			error = errno;
		*len += n > 0 ? (size_t)n : 0;
	}
	if (fd >= 0)
		close(fd);
	if (!error)
		return FAR_OK;
	free(*data);
	*data = NULL;
	return err_sys(err, error, "%.200s cannot be read", path);
}

static enum far_status read_signature(const char *path, char **data, size_t *len, struct far_err *err)
{
	char name[PATH_MAX];
	if ((size_t)snprintf(name, sizeof name, "%s.sig", path) >= sizeof name)
		return err_set(err, FAR_INVALID, "the plugin's path is longer than %d bytes", PATH_MAX - 5);
	if (access(name, F_OK) && errno == ENOENT)
		return err_set(err, FAR_INVALID, "plugin %.200s has no signature %.200s; make it by `farcall sign`",
			       path, name);
	enum far_status status = read_file(name, data, len, err);
	if (!status && *len != SIGN_BYTES)
		status = err_set(err, FAR_INVALID,
				 "%.200s has %zu bytes and not the %u of a signature; make it by "
				 "`farcall sign`",
				 name, *len, SIGN_BYTES);
	return status;
}

enum far_status far_plugin_send(struct far_agent *a, const char *to, const char *path, uint64_t timeout_ns,
				struct far_err *err)
{
	const struct far_call_opts opts = {.timeout_ns = timeout_ns};
	char *image = NULL, *signature = NULL;
	size_t image_len, signature_len;
	struct far_val out;
	if (!a || !to || !path)
		return err_set(err, FAR_INVALID, "far_plugin_send: agent, worker and path must not be NULL");
	enum far_status status = read_file(path, &image, &image_len, err);
	if (!status)
		status = read_signature(path, &signature, &signature_len, err);
	if (!status) {
		const struct far_val args[] = {far_bytes(image, image_len), far_bytes(signature, signature_len)};
		status = far_rpc_sync_unchecked(a, to, FUNCTION, args, 2, &opts, &out, err);
	}
	if (!status)
		far_val_fini(&out);
	if (status == FAR_NO_FUNCTION)
		status = err_set(err, FAR_DENIED,
				 "worker \"%.64s\" loads no plugins that are sent: start it with FAR_PLUGIN_KEYS, the "
				 "absolute path of a file with lines of `farcall sign --public`",
				 to);
	free(image);
	free(signature);
	return status;
}
