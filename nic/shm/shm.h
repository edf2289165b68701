/* SPDX-License-Identifier: BSD-3-Clause */
/** The shm driver's own structures. A link is one peer: its shared pair, and this end's private view of it. */
#ifndef NIC_SHM_SHM_H
#define NIC_SHM_SHM_H

#include "base/auth.h"
#include "nic/nic.h"
#include "nic/shm/shm_bulk.h"
#include "nic/shm/shm_layout.h"

#include <sys/socket.h>
#include <sys/un.h>

#define SHM_PEERS_MAX  4096u
#define SHM_QUEUES_MAX 16u
/* Links that a queue polls each time: as many as a burst has packets. An idle one costs a pass 45 instructions and no
 * cache miss, 64 bells cost it 20; but each packet that has to ring costs misses and a fence at both ends. Where there
 * are more links, those that stay idle turn cold. */
#define SHM_HOT_MAX 16u
#define SHM_UNPUBLISHED_MAX                                                                                            \
	16u /* commits that wait for a flush: a consumer that polls one slot does not take the lines being written */

enum shm_link_state {
	SHM_LINK_FREE,
	SHM_LINK_CONNECTING, /* HELLO to be sent or WELCOME awaited; has a deadline */
	SHM_LINK_ACCEPTING,  /* HELLO awaited; has a deadline */
	SHM_LINK_UP,
	SHM_LINK_DOWN /* reported; waits for drop() */
};

struct shm_link {
	/* Queue operations: the shard. */
	struct shm_direction *tx, *rx;
	uint8_t *tx_bulk, *rx_bulk;
	uint32_t index;           /* the peer's number */
	uint32_t tail;            /* next slot to write */
	uint32_t tail_published;  /* slots whose word is stored */
	uint32_t tx_head_seen;    /* last look at tx->consumer.head */
	uint32_t head;            /* next slot to read */
	uint32_t head_published;  /* last store to rx->consumer.head */
	uint32_t returns_read;    /* of tx->returns */
	uint32_t returns_written; /* to rx->returns */
	uint32_t words[SHM_UNPUBLISHED_MAX];
	struct shm_queue *attached_to; /* NULL: not attached */
	int wake_fd;                   /* the peer's eventfd; −1 for a link whose both ends are one queue */
	bool dirty;
	bool hot;                         /* in attached_to->hot */
	bool used;                        /* had packets since the clock's hand passed */
	uint16_t bell;                    /* ours, in the own queue's doorbells */
	uint16_t peer_bell;               /* what we ring, in peer_bells; checked at set-up */
	struct shm_doorbells *peer_bells; /* of the peer's queue; NULL until UP */
	struct shm_bulk bulk;             /* of tx */

	/* Port operations: the control core. */
	struct shm_queue *queue; /* owner; NULL until HELLO has named it */
	enum shm_link_state state;
	int fd;      /* connection, −1: none (both ends are one queue) */
	int pair_fd; /* memfd until the peer has it, else −1 */
	void *map;
	void *user;
	struct shm_link *next_pending, *prev_pending; /* CONNECTING and ACCEPTING */
	uint64_t deadline;
	bool up_pending; /* both ends are one queue: UP is reported by the next step */
	bool sent;       /* CONNECTING: HELLO is out, or ASK */
	bool asked;      /* ACCEPTING: CHALLENGE is out */
	bool proven;     /* the other end has the group's key */
	uint8_t asker_nonce[AUTH_NONCE_BYTES], asked_nonce[AUTH_NONCE_BYTES];
	uint16_t remote_queue;
	uint16_t hello_len;
	uint8_t hello[NIC_HELLO_BYTES_MAX];
	struct sockaddr_un to;
	uint64_t retry_at;
};

/** Numbers [0, SHM_PEERS_MAX) that are taken; the lowest free one is given first, so that those in use stay dense. */
struct shm_numbers {
	uint64_t taken[SHM_PEERS_MAX / 64];
};

/**
 * A queue, in memory of its own: of its tables only the pages that are used become resident. An attached link is hot,
 * polled by each recv(), or cold: then its producer rings a bell. With up to SHM_HOT_MAX links all are hot.
 */
struct shm_queue {
	struct nic_queue base;
	struct shm_port *port;
	struct shm_link *sole; /* the only link and hot, else NULL */
	uint32_t hot_n, cold_n, next_hot, dirty_n;
	uint32_t head_bytes;
	uint32_t inline_max; /* body bytes that share the head's line */
	int wake_fd;
	bool armed;
	bool asleep_told;    /* bells->asleep is set */
	uint32_t hand;       /* of the clock over hot */
	uint32_t passes;     /* with cold links */
	uint32_t bells_end;  /* no attached link has a bell from here on; a multiple of 64 */
	uint32_t next_word;  /* of bells, where the next sweep begins */
	uint32_t next_audit; /* bell */
	uint64_t bogus_returns, bogus_packets;
	uint64_t rings, spurious_rings; /* looks that a bell caused; those that found nothing */
	struct shm_doorbells *bells;
	struct shm_link *hot[SHM_HOT_MAX];
	uint16_t bell_peer[SHM_BELLS]; /* peer + 1 of an attached link, 0: none */
	struct shm_link *dirty[SHM_PEERS_MAX];

	/* Port operations: the control core. */
	alignas(64) uint32_t index;
	int bells_fd;
	struct shm_numbers bell_numbers;
};

/** Which directory of the host: the same for all who share it, whatever they call it. */
struct shm_dir_id {
	uint64_t device, inode;
};

struct shm_port {
	struct nic_port base;
	const struct nic_budget *budget; /* NULL: none */
	bool any_user;
	const struct group_key *key; /* NULL: nothing is proven */
	bool is_private;             /* for connections with itself only: no directory, no socket that others see */
	uint32_t queues_n;
	int listen_fd, epoll_fd;
	int inotify_fd;     /* reports what is removed from the socket's directory; −1: there is none */
	bool watched;       /* ... it does */
	uint64_t look_at;   /* when to look for the socket's file; UINT64_MAX: not before a report */
	uint64_t listen_at; /* 0: listening; else when to listen again */
	struct shm_link *pending;
	struct shm_queue *queues[SHM_QUEUES_MAX];
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct shm_dir_id dir;
	struct shm_numbers peer_numbers;
	struct shm_link
		*links[SHM_PEERS_MAX]; /* an entry is read by its queue while attached, else the control core's */
};

extern const struct nic_queue_ops shm_queue_ops;

#define SHM_SLOT_OF(i) ((i) % SHM_SLOTS)
#define SHM_LAP_OF(i)  (SHM_WORD_LAP((i) / SHM_SLOTS + 1))
#define SHM_LAP_MASK   0xffffff00u

/* shm_map.c */

/** A new sealed memfd of SHM_TOTAL_BYTES with its header written: descriptor or -errno. */
int shm_pair_create(void);
/** The same with the doorbells of a queue. */
int shm_bells_create(void);
/**
 * Maps one of them after checking seals, size and header: 0 or -errno (-EPROTO: not one of ours). What this process
 * has mapped already (both ends in one process; the doorbells of a queue that several links lead to) is shared at the
 * same address, so that race detectors see one memory.
 */
int shm_pair_map(int fd, void **map);
int shm_bells_map(int fd, struct shm_doorbells **bells);
/** Ends one use of a mapping. */
void shm_unmap(void *map);

/* shm_listen.c */

/* Of the port's epoll, besides the links' indices. */
#define SHM_TAG_LISTENER  UINT32_MAX
#define SHM_TAG_DIRECTORY (UINT32_MAX - 1)

/** Listens under the name of `id` in `dir`: 0, or -errno with the reason in `err`. */
int shm_listen(struct shm_port *p, const char *dir, uint64_t id, struct nic_err *err);
/** Something was removed from the directory. */
void shm_listen_event(struct shm_port *p);
/** Makes the socket anew when its file is gone. Returns when to be called again. */
uint64_t shm_listen_step(struct shm_port *p, uint64_t now);

/* shm_dir.c */

/**
 * The directory of sockets, made with mode 0700 when absent: `dir` (NULL: base/runtime_dir.h). 0, or -errno with the
 * reason and remedy in `err`. Unless `any_user`, it must belong to us and be closed to others.
 */
int shm_dir_open(const char *dir, bool any_user, char *path, size_t cap, struct nic_err *err);
/** 0 or -errno. */
int shm_dir_id(const char *path, struct shm_dir_id *out);
/** Removes sockets that nobody listens on. */
void shm_dir_sweep(const char *path);

/* shm_address.c: nic_port_ops */

void shm_address(const struct nic_port *port, struct nic_addr *out);
void shm_address_text(const struct nic_addr *addr, char *out, size_t cap);
int shm_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err);
/** The path, as a string that can be printed; false: malformed. */
bool shm_address_path(const struct nic_addr *addr, char *path, size_t cap);

/* shm_proof.c: control core. Of ports with a key. */

struct shm_note;
/** The connector begins: 0 or -errno. */
int shm_ask(const struct shm_port *p, struct shm_link *link);
/** ... and answers the challenge, once it holds: 0, and the link is proven; the acceptor's refusal; -EKEYREJECTED,
 * -EPROTO, -errno. */
int shm_challenge_take(const struct shm_port *p, struct shm_link *link, const struct shm_note *note);
/** The acceptor's side of both: 0, and the link may be proven by this; -errno: the connector is refused. */
int shm_proof_take(const struct shm_port *p, struct shm_link *link, const struct shm_note *note);

/* shm_link.c: control core */

/** -1: all are taken. */
int shm_number_take(struct shm_numbers *n);
void shm_number_free(struct shm_numbers *n, uint32_t number);

/** A link in a free place, pending, in no queue yet; NULL: SHM_PEERS_MAX links, or no memory. */
struct shm_link *shm_link_new(struct shm_port *p, enum shm_link_state state);
/** Gives it to a queue, with a bell of its own: before its peer is told of either. */
void shm_link_own(struct shm_link *link, struct shm_queue *q);
/** The set-up is over. */
void shm_link_settled(struct shm_port *p, struct shm_link *link);
void shm_link_free(struct shm_port *p, struct shm_link *link);
/** Maps the pair and begins the link's rings: 0 or -errno. `loopback`: both ends are one queue. */
int shm_link_map(struct shm_port *p, struct shm_link *link, int pair_fd, bool connector, bool loopback);
/** Takes the other end's doorbells and the index to ring; both come from a peer: 0 or -errno. */
int shm_link_bells(struct shm_link *link, int bells_fd, uint32_t bell);

/* shm_recv.c: the shard */

unsigned shm_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
void shm_hot_attach(struct shm_queue *q, struct shm_link *link);
void shm_hot_detach(struct shm_queue *q, struct shm_link *link);
void shm_arm(struct nic_queue *nq);
void shm_disarm(struct nic_queue *nq);

__attribute__((format(printf, 3, 4))) int shm_error(struct nic_err *err, int error, const char *format, ...);

#endif
