/* SPDX-License-Identifier: BSD-3-Clause */
/** What the host says of network cards, over trees of files like the kernel's. The test's thread. */
#include "nic/dpdk/host_pci.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CARD "0000:03:00.0"

static char top[64], sys[80], dev[80];
static struct host_pci_roots roots;

__attribute__((format(printf, 1, 2))) static void run(const char *format, ...)
{
	char command[1024];
	int at = snprintf(command, sizeof command, "cd %s && ", top);
	va_list args;
	va_start(args, format);
	vsnprintf(command + at, sizeof command - (size_t)at, format, args);
	va_end(args);
	cr_assert_eq(system(command), 0, "%s", command);
}

/* A device: driver "" none, group -1 none. */
static void device(const char *name, const char *class, const char *driver, int group)
{
	run("mkdir -p sys/bus/pci/devices/%s sys/bus/pci/drivers sys/kernel/iommu_groups dev/vfio", name);
	run("cd sys/bus/pci/devices/%s && echo 0x8086 >vendor && echo 0x10d3 >device && echo %s >class && : >config",
	    name, class);
	if (*driver)
		run("mkdir -p sys/bus/pci/drivers/%s && ln -s ../../drivers/%s sys/bus/pci/devices/%s/driver", driver,
		    driver, name);
	if (group < 0)
		return;
	run("mkdir -p sys/kernel/iommu_groups/%d/devices && ln -s ../../../../bus/pci/devices/%s "
	    "sys/kernel/iommu_groups/%d/devices/%s",
	    group, name, group, name);
	run("ln -s ../../../../kernel/iommu_groups/%d sys/bus/pci/devices/%s/iommu_group", group, name);
}

static void begin(void)
{
	snprintf(top, sizeof top, "/tmp/farcall-pci.XXXXXX");
	cr_assert(mkdtemp(top));
	snprintf(sys, sizeof sys, "%s/sys", top);
	snprintf(dev, sizeof dev, "%s/dev", top);
	roots = (struct host_pci_roots){sys, dev};
	device("0000:00:00.0", "0x060000", "", -1);
}

static void end(void)
{
	run("rm -rf %s", top);
}

TestSuite(host_pci, .init = begin, .fini = end);

static struct host_pci card_of(void)
{
	struct host_pci card;
	struct nic_err err = {""};
	cr_assert_eq(host_pci_read(&roots, CARD, &card, &err), 0, "%s", err.text);
	return card;
}

static void usable(int want, const char *text)
{
	struct host_pci card = card_of();
	struct nic_err err = {""};
	int error = host_pci_usable(&roots, &card, &err);
	cr_assert_eq(error, want, "%d: %s", error, err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
	cr_assert(!want || strstr(err.text, CARD), "%s", err.text);
	cr_assert(strlen(err.text) < NIC_TEXT_BYTES_MAX - 1, "it is cut: %s", err.text);
}

Test(host_pci, names)
{
	static const char *const not_names[] = {"",        "eth0",       "03:00",       "03:00.0x", "0000:03:00.0,a=b",
						"3g:00.0", "net_memif0", "0000:03:00.", "03.00:0",  ":03:00.0"};
	char name[HOST_PCI_NAME_BYTES];
	cr_assert(host_pci_name("03:00.0", name));
	cr_assert_str_eq(name, CARD);
	cr_assert(host_pci_name("0001:AF:1f.7", name));
	cr_assert_str_eq(name, "0001:af:1f.7");
	for (unsigned i = 0; i < sizeof not_names / sizeof *not_names; i++)
		cr_assert(!host_pci_name(not_names[i], name), "%s", not_names[i]);
}

Test(host_pci, is_not_there)
{
	struct host_pci card;
	struct nic_err err;
	cr_assert_eq(host_pci_read(&roots, CARD, &card, &err), -ENODEV);
	cr_assert(strstr(err.text, "lspci"), "%s", err.text);
	cr_assert_eq(host_pci_read(&roots, "0000:00:00.0", &card, &err), -ENODEV);
	cr_assert(strstr(err.text, "not a network card"), "%s", err.text);
}

Test(host_pci, the_kernel_has_it)
{
	device(CARD, "0x020000", "e1000e", -1);
	run("mkdir -p sys/bus/pci/devices/%s/net/eth7", CARD);
	struct host_pci card = card_of();
	char text[80];
	cr_assert_str_eq(card.iface, "eth7");
	cr_assert_str_eq(host_pci_text(&card, text, sizeof text), CARD " (8086:10d3, e1000e)");
	usable(-EBUSY, "the kernel's eth7, driver e1000e");
	usable(-EBUSY, "dpdk-devbind.py -b uio_pci_generic " CARD);
	usable(-EBUSY, "vfio-pci needs an IOMMU");
	run("mkdir -p sys/kernel/iommu_groups/7");
	usable(-EBUSY, "dpdk-devbind.py -b vfio-pci " CARD);
}

Test(host_pci, a_virtio_interface)
{
	device(CARD, "0x020000", "virtio-pci", -1);
	run("mkdir -p sys/bus/pci/devices/%s/virtio3/net/eth1", CARD);
	usable(-EBUSY, "the kernel's eth1");
}

Test(host_pci, nobody_has_it)
{
	device(CARD, "0x020000", "", -1);
	usable(-ENOENT, "has no driver");
	run("mkdir -p sys/bus/pci/drivers/odd && ln -s ../../drivers/odd sys/bus/pci/devices/%s/driver", CARD);
	usable(-ENOENT, "has the driver odd");
}

Test(host_pci, vfio)
{
	device(CARD, "0x020000", "vfio-pci", 4);
	usable(-ENOENT, "/dev/vfio/4");
	run(": >dev/vfio/4");
	usable(0, "");
	if (geteuid() == 0) {
		run("chmod 711 . && chmod 600 dev/vfio/4");
		cr_assert_eq(seteuid(65534), 0);
		usable(-EACCES, "no permission for");
		usable(-EACCES, "chown 65534");
		cr_assert_eq(seteuid(0), 0);
	}
	struct host_pci card = card_of();
	cr_assert(card.access == HOST_PCI_VFIO && !card.noiommu && card.group == 4);
	run("mv dev/vfio/4 dev/vfio/noiommu-4");
	card = card_of();
	cr_assert(card.noiommu);
	usable(0, "");
}

Test(host_pci, another_of_the_group)
{
	device(CARD, "0x020000", "vfio-pci", 4);
	run(": >dev/vfio/4");
	device("0000:00:01.0", "0x060400", "pcieport", 4); /* a bridge may stay */
	usable(0, "");
	device("0000:03:00.1", "0x020000", "e1000e", 4);
	usable(-EBUSY, "0000:03:00.1 (e1000e)");
}

Test(host_pci, uio)
{
	device(CARD, "0x020000", "uio_pci_generic", -1);
	run("mkdir -p sys/bus/pci/devices/%s/uio/uio2", CARD);
	struct host_pci card = card_of();
	cr_assert(card.access == HOST_PCI_UIO && card.uio == 2);
	if (geteuid() != 0) {
		usable(-EACCES, "only root");
		return;
	}
	usable(-ENOENT, "/dev/uio2");
	run(": >dev/uio2 && chmod 711 .");
	usable(0, "");
	cr_assert_eq(seteuid(65534), 0);
	usable(-EACCES, "only root");
	cr_assert_eq(seteuid(0), 0);
}

Test(host_pci, the_kernel_keeps_it)
{
	device(CARD, "0x020000", "mlx5_core", 4);
	run("echo 0x15b3 >sys/bus/pci/devices/%s/vendor", CARD);
	struct host_pci card = card_of();
	cr_assert_eq(card.access, HOST_PCI_SHARED);
	usable(0, "");
}

/* A process that has it, until it is killed, or a minute has passed. */
static pid_t holder(void)
{
	int ready[2];
	char got;
	cr_assert_eq(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60);
		struct host_pci card;
		struct nic_err err;
		if (host_pci_claim(&roots, CARD, &card, &err) >= 0 && write(ready[1], "y", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	close(ready[1]);
	cr_assert_eq(read(ready[0], &got, 1), 1, "it has not got the card");
	close(ready[0]);
	return pid;
}

static void serves_one(enum host_pci_access access)
{
	struct nic_err err = {""};
	struct host_pci card;
	pid_t other = holder();
	cr_assert_eq(host_pci_claim(&roots, CARD, &card, &err), -EBUSY);
	cr_assert(strstr(err.text, CARD) && strstr(err.text, "another process"), "%s", err.text);
	cr_assert(strstr(err.text, "one virtual function") && strstr(err.text, "or udp"), "%s", err.text);
	kill(other, SIGKILL);
	cr_assert_eq(waitpid(other, NULL, 0), other);
	int first = host_pci_claim(&roots, CARD, &card, &err);
	cr_assert_geq(first, 0, "%s", err.text);
	cr_assert_eq(card.access, access);
	cr_assert_eq(host_pci_claim(&roots, CARD, &card, &err), -EBUSY);
	close(first);
	first = host_pci_claim(&roots, CARD, &card, &err);
	cr_assert_geq(first, 0, "%s", err.text);
	close(first);
	cr_assert_not(host_pci_is_taken(&roots, &card));
}

Test(host_pci, one_process_has_it)
{
	device(CARD, "0x020000", "vfio-pci", 4);
	run(": >dev/vfio/4");
	serves_one(HOST_PCI_VFIO);
}

/* The kernel would let any number of processes share it, and each would take the others' frames. */
Test(host_pci, one_process_has_it_beside_the_kernel)
{
	struct nic_err err = {""};
	struct host_pci card;
	device(CARD, "0x020000", "mlx5_core", -1);
	run("echo 0x15b3 >sys/bus/pci/devices/%s/vendor", CARD);
	serves_one(HOST_PCI_SHARED);
	/* The other port of the card is a function of its own. */
	pid_t other = holder();
	device("0000:03:00.1", "0x020000", "mlx5_core", -1);
	run("echo 0x15b3 >sys/bus/pci/devices/0000:03:00.1/vendor");
	int second = host_pci_claim(&roots, "0000:03:00.1", &card, &err);
	cr_assert_geq(second, 0, "%s", err.text);
	close(second);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}
