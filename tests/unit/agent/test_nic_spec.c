/* SPDX-License-Identifier: BSD-3-Clause */
/** What far_opts.nic says. The test's thread. */
#include "agent/nic_spec.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct nic_spec spec;
static struct far_err err;

static void good(const char *text, unsigned n)
{
	cr_assert_eq(nic_spec_parse(text, &spec, &err), FAR_OK, "\"%s\": %s", text, err.text);
	cr_assert_eq(spec.n, n, "\"%s\": %u entries", text, spec.n);
}

static void entry(unsigned i, const char *name, const char *args)
{
	cr_assert_str_eq(spec.entries[i].name, name);
	cr_assert_eq(spec.entries[i].has_args, args != NULL);
	cr_assert_str_eq(spec.entries[i].args, args ? args : "");
}

static void bad(const char *text, const char *part)
{
	cr_assert_eq(nic_spec_parse(text, &spec, &err), FAR_INVALID, "\"%s\" was taken", text);
	cr_assert(strstr(err.text, part), "\"%s\": \"%s\" lacks \"%s\"", text, err.text, part);
}

Test(nic_spec, automatic)
{
	good("auto", 0);
	cr_assert(spec.automatic);
	good(" auto\t", 0);
	cr_assert(spec.automatic);
	good("automatic", 1);
	cr_assert(!spec.automatic);
	bad("auto,shm", "stands alone");
	bad("shm;auto", "stands alone");
	bad("auto:fast", "stands alone");
}

Test(nic_spec, entries)
{
	good("shm", 1);
	entry(0, "shm", NULL);
	good("shm,udp", 2);
	entry(0, "shm", NULL);
	entry(1, "udp", NULL);
	good("udp ; shm , net-2_x", 3);
	entry(0, "udp", NULL);
	entry(2, "net-2_x", NULL);
	good("shm;dpdk:net_memif0,role=server,id=0;udp", 3);
	entry(1, "dpdk", "net_memif0,role=server,id=0");
	entry(2, "udp", NULL);
	good("shm,lossy:over=udp,drop=0.01,seed=7", 2);
	entry(1, "lossy", "over=udp,drop=0.01,seed=7");
	good("lossy:over=udp:a:b", 1);
	entry(0, "lossy", "over=udp:a:b");
	good("dpdk:;udp:", 2);
	entry(0, "dpdk", "");
	entry(1, "udp", "");
	good("dpdk:a,b;dpdk:a,c", 2);
	good("a,b,c,d,e,f,g", NIC_SPEC_ENTRIES);
}

Test(nic_spec, mistakes)
{
	bad("", "entry 1 is empty");
	bad("  ", "entry 1 is empty");
	bad("shm,", "entry 2 is empty");
	bad(",shm", "entry 1 is empty");
	bad("shm;;udp", "entry 2 is empty");
	bad("shm,,udp", "entry 2 is empty");
	bad("dpdk:a;", "entry 2 is empty");
	bad(":args", "name of a driver");
	bad("SHM", "name of a driver");
	bad("shm udp", "name of a driver");
	bad("../shm", "name of a driver");
	bad("sh\nm", "name of a driver");
	bad("sixteen_letters_", "name of a driver");
	bad("shm,udp,shm", "twice");
	bad("dpdk:a;dpdk:a", "twice");
	bad("a,b,c,d,e,f,g,h", "at most");
}

/* Every length around the bound, and every byte. */
Test(nic_spec, hostile)
{
	char text[NIC_SPEC_ARGS_BYTES + 64];
	for (size_t len = NIC_SPEC_ARGS_BYTES - 2; len < NIC_SPEC_ARGS_BYTES + 3; len++) {
		memset(text, 'x', sizeof text);
		memcpy(text, "udp:", 4);
		text[4 + len] = 0;
		if (len < NIC_SPEC_ARGS_BYTES) {
			good(text, 1);
			cr_assert_eq(strlen(spec.entries[0].args), len);
		} else {
			bad(text, "longer than 511 bytes");
		}
	}
	for (int c = 1; c < 256; c++) {
		char one[] = {(char)c, 0}, args[] = {'u', ':', (char)c, 0};
		nic_spec_parse(one, &spec, &err);
		cr_assert_eq(nic_spec_parse(args, &spec, &err), c == ';' ? FAR_INVALID : FAR_OK, "%d", c);
	}
	srand(7);
	for (unsigned i = 0; i < 200000; i++) {
		static const char letters[] = "ab:;,, \tauto=.\xff";
		size_t len = (size_t)rand() % 40;
		for (size_t k = 0; k < len; k++)
			text[k] = letters[(size_t)rand() % (sizeof letters - 1)];
		text[len] = 0;
		if (nic_spec_parse(text, &spec, &err))
			continue;
		cr_assert_leq(spec.n, (unsigned)NIC_SPEC_ENTRIES);
		cr_assert_eq(spec.n == 0, spec.automatic, "\"%s\"", text);
		for (unsigned k = 0; k < spec.n; k++)
			cr_assert(spec.entries[k].name[0] && strlen(spec.entries[k].name) < 16, "\"%s\"", text);
	}
}
