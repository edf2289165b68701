/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads network cards from sysfs and locks them. Any thread. */
#include "nic/dpdk/host_pci.h"

#include "nic/dpdk/host_error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PATH_BYTES 512
#define CLASS_NET  0x02u
#define VENDOR_MLX 0x15b3u

bool host_pci_name(const char *text, char out[HOST_PCI_NAME_BYTES])
{
	unsigned domain = 0, bus, device, function;
	char rest;
	if (sscanf(text, "%4x:%2x:%2x.%1x%c", &domain, &bus, &device, &function, &rest) != 4) {
		domain = 0;
		if (sscanf(text, "%2x:%2x.%1x%c", &bus, &device, &function, &rest) != 3)
			return false;
	}
	snprintf(out, HOST_PCI_NAME_BYTES, "%04x:%02x:%02x.%x", domain & 0xffff, bus & 0xff, device & 0xff,
		 function & 0xf);
	return true;
}

static void path_of(const struct host_pci_roots *roots, const char *name, const char *file, char out[PATH_BYTES])
{
	snprintf(out, PATH_BYTES, "%s/bus/pci/devices/%s/%s", roots->sys, name, file);
}

/* Reads a file that holds one number. */
static bool read_number(const struct host_pci_roots *roots, const char *name, const char *file, unsigned long *out)
{
	char path[PATH_BYTES], text[32] = "";
	path_of(roots, name, file, path);
	FILE *f = fopen(path, "re");
	bool got = f && fgets(text, sizeof text, f);
	if (f)
		fclose(f);
	*out = strtoul(text, NULL, 0);
	return got;
}

/* Reads the last component of a symbolic link. */
static bool read_link(const struct host_pci_roots *roots, const char *name, const char *file, char *out, size_t cap)
{
	char path[PATH_BYTES], to[PATH_BYTES];
	path_of(roots, name, file, path);
	ssize_t n = readlink(path, to, sizeof to - 1);
	out[0] = 0;
	if (n < 0)
		return false;
	to[n] = 0;
	const char *slash = strrchr(to, '/');
	snprintf(out, cap, "%.*s", (int)cap - 1, slash ? slash + 1 : to);
	return true;
}

/* Finds the first name in a directory that begins with `prefix`. */
static bool first_in(const char *path, const char *prefix, char *out, size_t cap)
{
	DIR *d = opendir(path);
	bool found = false;
	for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d))
		if (e->d_name[0] != '.' && strncmp(e->d_name, prefix, strlen(prefix)) == 0) {
			snprintf(out, cap, "%.*s", (int)cap - 1, e->d_name);
			found = true;
		}
	if (d)
		closedir(d);
	return found;
}

/* The interface of a virtio card belongs to a child device on the virtio bus. */
static void find_iface(const struct host_pci_roots *roots, struct host_pci *card)
{
	char path[PATH_BYTES], virtio[32], inner[64];
	path_of(roots, card->name, "net", path);
	if (first_in(path, "", card->iface, sizeof card->iface))
		return;
	path_of(roots, card->name, "", path);
	if (!first_in(path, "virtio", virtio, sizeof virtio))
		return;
	snprintf(inner, sizeof inner, "%s/net", virtio);
	path_of(roots, card->name, inner, path);
	first_in(path, "", card->iface, sizeof card->iface);
}

/* All devices of an IOMMU group must be unbound or bound to vfio, since they can access each other's memory. Bridges
 * are exempt. */
static void find_blocker(const struct host_pci_roots *roots, struct host_pci *card)
{
	char path[PATH_BYTES], driver[32];
	path_of(roots, card->name, "iommu_group/devices", path);
	DIR *d = opendir(path);
	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
		unsigned long class = 0;
		if (e->d_name[0] == '.' || strcmp(e->d_name, card->name) == 0 || strlen(e->d_name) > 31 ||
		    !read_link(roots, e->d_name, "driver", driver, sizeof driver) || strstr(driver, "vfio"))
			continue;
		if (read_number(roots, e->d_name, "class", &class) && class >> 16 == 0x06)
			continue;
		snprintf(card->blocker, sizeof card->blocker, "%.31s (%.24s)", e->d_name, driver);
	}
	if (d)
		closedir(d);
}

static enum host_pci_access access_of(const struct host_pci *card)
{
	if (strcmp(card->driver, "vfio-pci") == 0)
		return HOST_PCI_VFIO;
	if (strcmp(card->driver, "uio_pci_generic") == 0 || strcmp(card->driver, "igb_uio") == 0)
		return HOST_PCI_UIO;
	return card->vendor == VENDOR_MLX && strncmp(card->driver, "mlx", 3) == 0 ? HOST_PCI_SHARED : HOST_PCI_NONE;
}

int host_pci_read(const struct host_pci_roots *roots, const char *name, struct host_pci *out, struct nic_err *err)
{
	unsigned long vendor, id, class;
	char path[PATH_BYTES], text[32];
	*out = (struct host_pci){.group = -1, .uio = -1};
	snprintf(out->name, sizeof out->name, "%.15s", name);
	if (!read_number(roots, name, "vendor", &vendor) || !read_number(roots, name, "device", &id) ||
	    !read_number(roots, name, "class", &class))
		return host_error(err, -ENODEV,
				  "dpdk: there is no PCI device %s; `lspci -D | grep -i ethernet` lists network cards",
				  name);
	out->vendor = (uint16_t)vendor;
	out->id = (uint16_t)id;
	out->class = (uint32_t) class;
	if (class >> 16 != CLASS_NET)
		return host_error(err, -ENODEV, "dpdk: PCI device %s (%04lx:%04lx) is not a network card", name, vendor,
				  id);
	read_link(roots, name, "driver", out->driver, sizeof out->driver);
	if (read_link(roots, name, "iommu_group", text, sizeof text))
		out->group = atoi(text);
	path_of(roots, name, "uio", path);
	if (first_in(path, "uio", text, sizeof text))
		out->uio = atoi(text + 3);
	find_iface(roots, out);
	find_blocker(roots, out);
	out->access = access_of(out);
	snprintf(path, sizeof path, "%s/vfio/noiommu-%d", roots->dev, out->group);
	out->noiommu = out->access == HOST_PCI_VFIO && access(path, F_OK) == 0;
	return 0;
}

const char *host_pci_text(const struct host_pci *card, char *out, size_t cap)
{
	snprintf(out, cap, "%s (%04x:%04x, %s)", card->name, card->vendor, card->id,
		 card->driver[0] ? card->driver : "no driver");
	return out;
}

static bool has_iommu(const struct host_pci_roots *roots)
{
	char path[PATH_BYTES], any[32];
	snprintf(path, sizeof path, "%s/kernel/iommu_groups", roots->sys);
	return first_in(path, "", any, sizeof any);
}

static int not_bound(const struct host_pci_roots *roots, const struct host_pci *card, struct nic_err *err)
{
	const char *driver = has_iommu(roots) ? "vfio-pci" : "uio_pci_generic";
	const char *why =
		has_iommu(roots) ? "" : " (vfio-pci needs an IOMMU: intel_iommu=on, or the firmware's setting)";
	if (card->iface[0])
		return host_error(
			err, -EBUSY,
			"dpdk: %s (%04x:%04x) is the kernel's %s, driver %s: unless the host needs it, `modprobe %s; "
			"dpdk-devbind.py -b %s %s` as root takes it away from there%s; or use udp",
			card->name, card->vendor, card->id, card->iface, card->driver, driver, driver, card->name, why);
	return host_error(
		err, -ENOENT,
		"dpdk: %s (%04x:%04x) has %s%s: `modprobe %s; dpdk-devbind.py -b %s %s` as root gives it to DPDK%s",
		card->name, card->vendor, card->id, card->driver[0] ? "the driver " : "no driver", card->driver, driver,
		driver, card->name, why);
}

static void group_path(const struct host_pci_roots *roots, const struct host_pci *card, char out[PATH_BYTES])
{
	snprintf(out, PATH_BYTES, "%s/vfio/%s%d", roots->dev, card->noiommu ? "noiommu-" : "", card->group);
}

static int check_vfio(const struct host_pci_roots *roots, const struct host_pci *card, struct nic_err *err)
{
	char path[PATH_BYTES];
	if (card->blocker[0])
		return host_error(
			err, -EBUSY,
			"dpdk: %s shares its IOMMU group %d with %s: `dpdk-devbind.py -u` it as root, or give it "
			"to vfio-pci too",
			card->name, card->group, card->blocker);
	group_path(roots, card, path);
	if (euidaccess(path, R_OK | W_OK) == 0)
		return 0;
	int error = errno;
	if (error == EACCES || error == EPERM)
		return host_error(
			err, -EACCES,
			"dpdk: %s: no permission for %s: `chown %u %s` as root, with enough of `ulimit -l` for "
			"DMA",
			card->name, path, (unsigned)geteuid(), path);
	return host_error(err, -error, "dpdk: %s: %s: %s (in a container: --device %s --device /dev/vfio/vfio)",
			  card->name, path, strerror(error), path);
}

static int check_uio(const struct host_pci_roots *roots, const struct host_pci *card, struct nic_err *err)
{
	char path[PATH_BYTES];
	snprintf(path, sizeof path, "%s/uio%d", roots->dev, card->uio);
	if (geteuid() == 0 && euidaccess(path, R_OK | W_OK) == 0)
		return 0;
	if (geteuid() == 0)
		return host_error(err, -errno, "dpdk: %s: %s: %s", card->name, path, strerror(errno));
	return host_error(err, -EACCES,
			  "dpdk: %s is bound to %s, which only root can use: it can reach all memory; be root, or use "
			  "vfio-pci, which needs an IOMMU",
			  card->name, card->driver);
}

int host_pci_usable(const struct host_pci_roots *roots, const struct host_pci *card, struct nic_err *err)
{
	switch (card->access) {
	case HOST_PCI_VFIO:
		return check_vfio(roots, card, err);
	case HOST_PCI_UIO:
		return check_uio(roots, card, err);
	case HOST_PCI_SHARED:
		return 0;
	case HOST_PCI_NONE:
		break;
	}
	return not_bound(roots, card, err);
}

/* Locks the card's sysfs entry; the kernel releases the lock with the process. */
static int claim(const struct host_pci_roots *roots, const struct host_pci *card, struct nic_err *err)
{
	char path[PATH_BYTES];
	path_of(roots, card->name, "config", path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return host_error(err, -errno, "dpdk: %s: %s: %s", card->name, path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	int error = errno;
	close(fd);
	if (error == EWOULDBLOCK)
		return host_error(err, -EBUSY, "dpdk: %s is another process' already, and a card serves one: %s",
				  card->name, HOST_PCI_ADVICE);
	return host_error(err, -error, "dpdk: %s: %s cannot be locked: %s", card->name, path, strerror(error));
}

int host_pci_claim(const struct host_pci_roots *roots, const char *name, struct host_pci *out, struct nic_err *err)
{
	int error = host_pci_read(roots, name, out, err);
	if (!error)
		error = host_pci_usable(roots, out, err);
	return error ? error : claim(roots, out, err);
}

bool host_pci_is_taken(const struct host_pci_roots *roots, const struct host_pci *card)
{
	char path[PATH_BYTES];
	if (card->access != HOST_PCI_VFIO)
		return false;
	group_path(roots, card, path);
	int fd = open(path, O_RDWR | O_CLOEXEC), error = errno;
	if (fd >= 0)
		close(fd);
	return fd < 0 && error == EBUSY;
}
