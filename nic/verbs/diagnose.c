/* SPDX-License-Identifier: BSD-3-Clause */
/** Error texts with remedies: no device, no permission, too little lockable memory. Control thread. */
#include "nic/verbs/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static bool has_entries(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	bool any = false;
	while (d && (e = readdir(d)))
		any |= e->d_name[0] != '.' && strcmp(e->d_name, "abi_version") != 0;
	if (d)
		closedir(d);
	return any;
}

/* Finds the first device that the kernel exports but whose node is missing; libibverbs does not list it. */
static bool node_missing(char *name, size_t cap)
{
	DIR *d = opendir("/sys/class/infiniband_verbs");
	struct dirent *e;
	bool missing = false;
	while (d && !missing && (e = readdir(d))) {
		char path[300];
		snprintf(path, sizeof path, "/dev/infiniband/%s", e->d_name);
		missing = strncmp(e->d_name, "uverbs", 6) == 0 && access(path, F_OK) != 0;
		if (missing)
			snprintf(name, cap, "%.*s", (int)cap - 1, e->d_name);
	}
	if (d)
		closedir(d);
	return missing;
}

int verbs_no_devices(struct nic_err *err)
{
	char node[VERBS_NAME_BYTES];
	if (!has_entries("/sys/class/infiniband"))
		return verbs_error(
			err, -ENODEV,
			"verbs: this machine shows no RDMA device (/sys/class/infiniband is empty): load the NIC's "
			"driver (mlx5_ib, irdma), or make a soft one: modprobe rdma_rxe && rdma link add rxe0 type rxe "
			"netdev eth0 (apt install iproute2); in a container use the host's devices");
	if (!has_entries("/sys/class/infiniband_verbs"))
		return verbs_error(err, -ENODEV,
				   "verbs: there are RDMA devices, but none is accessible to programs: modprobe "
				   "ib_uverbs (on the host, for containers)");
	if (node_missing(node, sizeof node))
		return verbs_cannot_open("there is an RDMA device", node, ENOENT, err);
	return verbs_error(err, -ENODEV,
			   "verbs: there are RDMA devices, but libibverbs has no driver for them: apt install "
			   "ibverbs-providers");
}

int verbs_cannot_open(const char *device, const char *node, int error, struct nic_err *err)
{
	char path[VERBS_NAME_BYTES + 24];
	snprintf(path, sizeof path, "/dev/infiniband/%s", node);
	if (access(path, F_OK) != 0)
		return verbs_error(err, -ENODEV,
				   "verbs: %s: %s does not exist: udev creates it; a container needs --device %s",
				   device, path, path);
	if (access(path, R_OK | W_OK) != 0)
		return verbs_error(err, -EACCES,
				   "verbs: %s: no permission to open %s: chmod 666 it, as rdma-core's udev rules do "
				   "(apt install rdma-core), or run as its group",
				   device, path);
	return verbs_error(err, -error, "verbs: %s cannot be opened: %s", device, strerror(error));
}

int verbs_cannot_cm(const char *device, int error, struct nic_err *err)
{
	return verbs_error(
		err, error ? -error : -EIO,
		"verbs: %s: rdma_cm, which sets connections up, cannot be used: %s: modprobe rdma_ucm (on the "
		"host, for containers, which need --device /dev/infiniband/rdma_cm), and see its rights",
		device, strerror(error ? error : EIO));
}

int verbs_cannot_lock(const char *device, size_t bytes, size_t all, int error, const char *less, struct nic_err *err)
{
	struct rlimit limit;
	bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
	if (known && (error == ENOMEM || error == EAGAIN || error == EPERM))
		return verbs_error(err, -ENOMEM,
				   "verbs: %s: locking %zu KiB of the %zu that are needed failed; "
				   "RLIMIT_MEMLOCK is %llu KiB: raise it (ulimit -l %zu or more, LimitMEMLOCK= of a "
				   "unit, docker --ulimit memlock=), or %s",
				   device, bytes / 1024, all / 1024, (unsigned long long)limit.rlim_cur / 1024,
				   all / 1024 * 2, less);
	return verbs_error(err, -error, "verbs: %s: registering %zu KiB of memory failed: %s", device, bytes / 1024,
			   strerror(error));
}
