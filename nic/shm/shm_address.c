/* SPDX-License-Identifier: BSD-3-Clause */
/** The published address: the socket's path, NUL, and the identity of its directory, since the same path may be another
 * directory elsewhere. Control thread; shm_address_text(): any thread. */
#include "nic/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

void shm_address(const struct nic_port *port, struct nic_addr *out)
{
	const struct shm_port *p = (const struct shm_port *)port;
	size_t len = strlen(p->path) + 1;
	memset(out, 0, sizeof *out);
	snprintf(out->driver, sizeof out->driver, "%s", nic_shm_port_ops.name);
	memcpy(out->blob, p->path, len);
	memcpy(out->blob + len, &p->dir, sizeof p->dir);
	out->len = (uint16_t)(len + sizeof p->dir);
}

bool shm_address_path(const struct nic_addr *addr, char *path, size_t cap)
{
	size_t len = addr->len <= sizeof addr->blob ? strnlen((const char *)addr->blob, addr->len) : 0;
	if (len == 0 || len >= cap)
		return false;
	for (size_t i = 0; i < len; i++)
		if (addr->blob[i] < ' ' || addr->blob[i] == 0x7f)
			return false;
	memcpy(path, addr->blob, len);
	path[len] = 0;
	return true;
}

void shm_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	snprintf(out, cap, "shm %s", shm_address_path(addr, path, sizeof path) ? path : "(malformed)");
}

int shm_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct shm_dir_id theirs, ours;
	struct stat st;
	(void)port;
	char *slash = shm_address_path(addr, path, sizeof path) ? strrchr(path, '/') : NULL;
	if (!slash || addr->len != strlen(path) + 1 + sizeof theirs)
		return shm_error(err, -EINVAL, "shm: malformed address");
	memcpy(&theirs, addr->blob + strlen(path) + 1, sizeof theirs);
	*slash = 0;
	int error = shm_dir_id(path, &ours);
	if (error)
		return shm_error(err, error, "shm: the peer's runtime directory %s cannot be read here: %s", path,
				 strerror(-error));
	/* The directory may have been created again: a socket of this random name in it is the peer's. */
	*slash = '/';
	bool there = lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
	*slash = 0;
	if (memcmp(&ours, &theirs, sizeof ours) != 0 && !there)
		return shm_error(err, -EXDEV,
				 "shm: the peer's runtime directory %s is not the directory of that path on this host",
				 path);
	return 0;
}
