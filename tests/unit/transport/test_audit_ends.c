/* SPDX-License-Identifier: BSD-3-Clause */
/** The audit of both ends of a connection. The test's thread. */
#include "audit_fixture.h"
#include "transport/audit_ends.h"

TestSuite(transport_audit_ends, .init = fixture_init, .fini = fixture_fini);

static void expect_found_at_ends(const char *want)
{
	const struct nic_port *ports[] = {fixture.ends[0].port, fixture.ends[1].port};
	found[0] = '\0';
	transport_audit_ends(ports[0], ports, 2, on_found, NULL);
	cr_assert(want ? strstr(found, want) != NULL : !found[0], "\"%s\" is not in \"%s\"", want ? want : "", found);
}

/* One packet in three is lost on the way to the other end, whose acknowledgements do not arrive. */
Test(transport_audit_ends, both_ends)
{
	transport_audit_paused = true; /* what is planted stays until the end */
	begin_out();
	for (unsigned i = 0; i < 5; i++)
		fixture_turn();
	struct transport_peer *there = ((struct transport_queue *)fixture.ends[1].q)->peers[at_1];
	expect_found_at_ends(NULL);
	uint32_t number = there->rx_next;
	cr_assert(there->early_n && number - p->una < p->next - p->una);
	r->sent[number % FAR_TRANSPORT_WINDOW].arrived = true;
	expect_found_at_ends("a packet is taken for arrived that has not arrived there");
	r->sent[number % FAR_TRANSPORT_WINDOW].arrived = false;
	while (!there->rings->arrived[++number % FAR_TRANSPORT_WINDOW].message)
		;
	r->sent[number % FAR_TRANSPORT_WINDOW].arrived = true;
	expect_found_at_ends(NULL);
	r->sent[number % FAR_TRANSPORT_WINDOW].arrived = false;
	uint32_t next = there->rx_next;
	there->rx_next = p->una - 1;
	expect_found_at_ends("packets are acknowledged that have not arrived there");
	there->rx_next = next;
	there->remote_token++;
	r->sent[next % FAR_TRANSPORT_WINDOW].arrived = true;
	expect_found_at_ends(NULL); /* another connection */
	there->remote_token--;
	expect_found_at_ends("a packet is taken for arrived that has not arrived there");
	there->token += FAR_TRANSPORT_PEERS_MAX;
	expect_found_at_ends(NULL); /* and another one in its place */
	there->token -= FAR_TRANSPORT_PEERS_MAX;
}
