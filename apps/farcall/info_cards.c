/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists the PCI network cards that DPDK can take over, for `farcall info`. Main thread. */
#include "info_cards.h"

#include "nic/dpdk/host_pci.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define CARDS_MAX 32 /* listed at most */

static const struct host_pci_roots roots = {"/sys", "/dev"};

static int is_address(const struct dirent *e)
{
	char name[HOST_PCI_NAME_BYTES];
	return host_pci_name(e->d_name, name);
}

/* Pages of 2 MiB, which cards under uio need and others like: free ones; -1: the kernel has none of that size. */
static long huge_pages_free(void)
{
	long n = -1;
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
	if (f && fscanf(f, "%ld", &n) != 1)
		n = -1;
	if (f)
		fclose(f);
	return n;
}

/* Without the name of the driver, which the heading has. */
static const char *after_prefix(const char *text)
{
	return strncmp(text, "dpdk: ", 6) == 0 ? text + 6 : text;
}

static void print_card(const struct host_pci *card, FILE *out, struct json *j)
{
	struct nic_err err = {""};
	char text[80], id[16];
	bool usable = host_pci_usable(&roots, card, &err) == 0;
	host_pci_text(card, text, sizeof text);
	if (usable)
		fprintf(out, "  %s: ready%s\n", text,
			card->access == HOST_PCI_UIO || card->noiommu ? ", for root, with huge pages" : "");
	else
		fprintf(out, "  not ready: %s\n", after_prefix(err.text));
	if (!j)
		return;
	snprintf(id, sizeof id, "%04x:%04x", card->vendor, card->id);
	json_object(j, NULL);
	json_string(j, "address", card->name);
	json_string(j, "id", id);
	json_string(j, "driver", card->driver);
	json_string(j, "interface", card->iface);
	json_bool(j, "ready", usable);
	if (!usable)
		json_string(j, "reason", err.text);
	json_close(j);
}

void info_cards(FILE *out, struct json *j)
{
	struct dirent **names = NULL;
	int n = scandir("/sys/bus/pci/devices", &names, is_address, alphasort), printed = 0;
	long pages = huge_pages_free();
	if (j)
		json_array(j, "cards");
	for (int i = 0; i < n; i++) {
		struct host_pci card;
		if (printed < CARDS_MAX && host_pci_read(&roots, names[i]->d_name, &card, NULL) == 0) {
			if (printed++ == 0)
				fprintf(out, "\nnetwork cards on PCI, for nic=dpdk:ADDRESS\n");
			print_card(&card, out, j);
		}
		free(names[i]);
	}
	free(names);
	if (j)
		json_close(j);
	if (printed)
		fprintf(out, "  %ld huge pages of 2 MiB are free%s\n", pages < 0 ? 0 : pages,
			pages < 8 ? "; `sysctl vm.nr_hugepages=64` as root sets some apart" : "");
	if (j)
		json_u64(j, "huge_pages_free", (uint64_t)(pages < 0 ? 0 : pages));
}
