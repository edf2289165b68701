/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Exactly-once pushes: a record of the applied tokens of each client.
 *
 * A client numbers its changes 1, 2, 3 … and sends a change that it repeats under the same number. For each client the
 * window has the highest token seen and one bit for each of the PST_TOKENS_WINDOW up to it. A token that is older than
 * the window is refused: whether it was applied is unknown. A client must not have more than PST_TOKENS_WINDOW changes
 * outstanding.
 *
 * The number of clients is bounded. A new client takes the place of the one that was silent longest, if that was at
 * least `idle_s` seconds; else it is refused. So a client's tokens count once if it repeats them within idle_s.
 *
 * The window is saved as bytes and added to another: a partition that moves takes the window of its old server along.
 * A change is applied in three steps: pst_tokens_check (may allocate), the change, pst_tokens_done (cannot fail).
 *
 * One thread.
 */
#ifndef PST_TOKENS_H
#define PST_TOKENS_H

#include "pst_memory.h"
#include <farcall/status.h>
#include <stdbool.h>
#include <stdint.h>

#define PST_TOKENS_WINDOW      8192u
#define PST_TOKENS_CLIENTS_MAX 8192u

enum pst_token {
	PST_TOKEN_NEW,  /* not applied: apply it, then pst_tokens_done */
	PST_TOKEN_SEEN, /* applied before: answer as then */
	PST_TOKEN_OLD,  /* behind the window: unknown */
	PST_TOKEN_FULL, /* a new client, and no place for it */
	PST_TOKEN_NO_MEMORY
};

struct pst_client {
	uint64_t client;
	uint64_t highest; /* token seen; 0: none */
	uint64_t used_s;  /* time of the last check or done */
	uint64_t bits[PST_TOKENS_WINDOW /
		      64]; /* bit t mod PST_TOKENS_WINDOW: token t in (highest - PST_TOKENS_WINDOW, highest] */
};

struct pst_tokens {
	uint32_t clients;     /* in use */
	uint32_t clients_max; /* bound */
	uint32_t slots;       /* of the tables below: 0 or a power of two, more than 4/3 of `clients` */
	uint64_t idle_s;
	uint32_t *slot;            /* [slots]: 1 + place in `client`, open addressing; 0: free */
	struct pst_client *client; /* [slots / 2]: places [0, clients) are in use */
	const struct pst_memory *memory;
};

/** An empty window for at most `clients_max` clients, in [1, PST_TOKENS_CLIENTS_MAX]. Allocates nothing. */
void pst_tokens_init(struct pst_tokens *t, uint32_t clients_max, uint64_t idle_s, const struct pst_memory *memory);
void pst_tokens_fini(struct pst_tokens *t);

/** State of a token (above 0) of a client at time `now_s` (monotonic, seconds). NEW has made room for the client. */
enum pst_token pst_tokens_check(struct pst_tokens *t, uint64_t client, uint64_t token, uint64_t now_s);

/** Marks a token as applied. The last call was pst_tokens_check of the same client and token, with NEW. */
void pst_tokens_done(struct pst_tokens *t, uint64_t client, uint64_t token, uint64_t now_s);

/** Bytes that pst_tokens_save writes. */
size_t pst_tokens_bytes(const struct pst_tokens *t);

/** Writes the window, little-endian: "PSTK", version 1 (u32), window (u32), clients (u32), for each client its number,
 * highest token, seconds since its last use (u64 each) and its bits, then the CRC32C of all before (u32). */
void pst_tokens_save(const struct pst_tokens *t, uint64_t now_s, void *bytes);

/** Adds a saved window: a token is seen if it was in either. OK; PROTOCOL: not such bytes; RESOURCE: too many clients,
 * or no memory; the window is as before then. */
enum far_status pst_tokens_load(struct pst_tokens *t, uint64_t now_s, const void *bytes, size_t n, struct far_err *err);

#endif
