/* SPDX-License-Identifier: BSD-3-Clause */
/** Declarations shared by the files of the shm driver. A link is one peer: the shared memory of a pair of queues, and
 * this end's private state. Port operations and set-up: control thread; queue operations: poller. */
#ifndef NIC_SHM_SHM_H
#define NIC_SHM_SHM_H

#include "base/auth.h"
#include "nic/nic.h"
#include "nic/shm/shm_bulk.h"
#include "nic/shm/shm_layout.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SHM_PEERS_MAX  4096u
#define SHM_QUEUES_MAX 16u
/* Links that a queue polls in every pass: as many as a burst has packets. An idle one costs a pass 45 instructions and
 * no cache miss, all doorbells cost 20; but each packet that rings a doorbell costs cache misses and a fence at both
 * ends. With more links, idle ones turn cold. */
#define SHM_HOT_MAX 16u

enum shm_link_state {
	SHM_LINK_FREE,
	SHM_LINK_CONNECTING, /* the connect request is to be sent, or the reply awaited; has a deadline */
	SHM_LINK_ACCEPTING,  /* the connect request is awaited; has a deadline */
	SHM_LINK_UP,
	SHM_LINK_DOWN /* DOWN was reported; waits for drop() */
};

struct shm_link {
	/* Queue operations: poller. */
	struct nic_lane lane; /* first: a lane is cast to its link */
	struct shm_direction *tx, *rx;
	uint8_t *tx_bulk, *rx_bulk;
	uint32_t index;                   /* the peer's number */
	uint32_t returns_read;            /* of tx->returns, free-running */
	uint32_t returns_written;         /* to rx->returns, free-running */
	struct shm_queue *attached_to;    /* NULL: not attached */
	int wake_fd;                      /* the peer's eventfd; −1 if both ends are one queue */
	bool hot;                         /* in attached_to->hot */
	uint16_t bell;                    /* index of our doorbell, in our queue's doorbells */
	uint16_t peer_bell;               /* index of the peer's doorbell, in peer_bells; checked at set-up */
	pid_t pull_pid;                   /* process that bodies are pulled from; 0: none */
	struct shm_doorbells *peer_bells; /* doorbells of the peer's queue; NULL until SHM_LINK_UP */
	struct shm_bulk bulk;             /* allocator of tx_bulk */
	uint32_t offered[FAR_SHARED_MAX]; /* last key of each slot that the peer was offered; 0: none */

	/* Both threads, see shm_memory.c. */
	_Atomic uint64_t wanted;                   /* slots of memories that the peer is to be given */
	_Atomic uint32_t mappings[FAR_SHARED_MAX]; /* of the peer's memories, by slot: number + 1; 0: none */

	/* Port operations: control thread. */
	struct shm_queue *queue; /* owner; NULL until the connect request has named it */
	enum shm_link_state state;
	int fd;      /* connection; −1: none (both ends are one queue) */
	int pair_fd; /* memfd until the peer has received it, else −1 */
	void *map;
	void *user;
	struct shm_link *next_pending, *prev_pending; /* list of links in SHM_LINK_CONNECTING and SHM_LINK_ACCEPTING */
	/* ns; UINT64_MAX: none */
	uint64_t deadline;
	bool up_pending;    /* both ends are one queue: the next step() reports UP */
	bool sent;          /* SHM_LINK_CONNECTING: the first message was sent */
	bool challenged;    /* SHM_LINK_ACCEPTING: SHM_CONTROL_CHALLENGE was sent */
	bool authenticated; /* the peer has proven the group's key */
	uint8_t connector_nonce[AUTH_NONCE_BYTES], acceptor_nonce[AUTH_NONCE_BYTES];
	uint16_t remote_queue;
	uint16_t handshake_len;
	uint8_t handshake[NIC_HANDSHAKE_BYTES_MAX];
	struct sockaddr_un to;
	/* ns; SHM_LINK_CONNECTING: next try to send */
	uint64_t retry_at;
	uint32_t given[FAR_SHARED_MAX]; /* keys of our memories that were sent to the peer, by slot; 0: none */
};

/** Allocates numbers in [0, SHM_PEERS_MAX), the lowest free one first, so that used ones stay dense. */
struct shm_numbers {
	uint64_t taken[SHM_PEERS_MAX / 64]; /* bit i of word w: number 64 w + i is in use */
};

/** A queue, in memory of its own, so that only the used pages of its tables become resident. An attached link is either
 * hot, polled by each recv(), or cold: then its producer rings a doorbell. With up to SHM_HOT_MAX links all are hot. */
struct shm_queue {
	struct nic_queue base;
	struct shm_port *port;
	struct shm_link *sole; /* the link if there is only one, and it is hot; else NULL */
	uint32_t head_bytes;
	uint32_t inline_max; /* largest body that shares the slot with the head */
	int wake_fd;
	bool armed;
	bool asleep_set;     /* bells->asleep is set */
	uint32_t hand;       /* position of the clock hand over hot[] */
	uint32_t passes;     /* passes of recv() while cold links exist */
	uint32_t bells_end;  /* no attached link has a doorbell from here on; a multiple of 64 */
	uint32_t next_word;  /* doorbell word where the next sweep begins */
	uint32_t next_audit; /* doorbell that the next tick() checks */
	uint64_t invalid_returns, invalid_packets;
	uint64_t rings, spurious_rings; /* polls caused by a doorbell; those that found nothing */
	struct shm_doorbells *bells;
	struct nic_lane *hot[SHM_HOT_MAX];
	uint16_t bell_peer[SHM_BELLS]; /* peer + 1 of the attached link; 0: none */
	struct nic_lane *dirty[SHM_PEERS_MAX];

	/* Port operations: control thread. */
	alignas(64) uint32_t index;
	int bells_fd;
	struct shm_numbers bell_numbers;
};

/** Identifies a directory of the host, under whatever path it is mounted. */
struct shm_dir_id {
	uint64_t device, inode;
};

struct shm_port {
	struct nic_port base;
	const struct nic_budget *budget; /* NULL: none */
	bool any_user;
	const struct group_key *key; /* NULL: no authentication */
	bool is_private;             /* connects only to itself: no directory, no socket visible to others */
	uint32_t queues_n;
	int listen_fd, epoll_fd;
	int inotify_fd;        /* reports removals in the socket's directory; −1: none */
	bool watched;          /* inotify watches the directory */
	uint64_t check_at;     /* ns; next check for the socket file; UINT64_MAX: only after an inotify event */
	uint64_t listen_at;    /* ns; 0: listening; else accept() is paused until then */
	uint64_t memory_bytes; /* of peers' memories that the process may map; 0: any */
	int memory_fd; /* eventfd: a link's `wanted` or a freed memory is to be looked at; −1: no memory is given */
	uint64_t memory_at; /* ns; next look after a full socket; UINT64_MAX: only after an event */
	struct shm_link *pending;
	struct shm_queue *queues[SHM_QUEUES_MAX];
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	uint8_t nonce[16]; /* random; a peer finds it here to know our process */
	struct shm_dir_id dir;
	struct shm_numbers peer_numbers;
	struct shm_link
		*links[SHM_PEERS_MAX]; /* by peer; read by the queue while attached, else the control thread's */
};

extern const struct nic_queue_ops shm_queue_ops;

static inline struct shm_port *shm_port_of(const struct nic_port *p)
{
	return (struct shm_port *)(uintptr_t)p;
}

/** Closes a descriptor that is not −1, and makes it −1. */
static inline void shm_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static inline struct shm_link *link_of(struct nic_lane *lane)
{
	return (struct shm_link *)lane;
}

/* shm_map.c: control thread */

/** Creates a sealed memfd of SHM_TOTAL_BYTES with its header: descriptor or -errno. */
int shm_pair_create(void);
/** The same for the doorbells of a queue. */
int shm_bells_create(void);
/** Checks that reads of [0, bytes) of a received memfd cannot fault: seals, file system, size. 0, -EPROTO or -errno. */
int shm_check_file(int fd, uint64_t bytes, struct stat *st);
/** Maps such a memfd after checking seals, size and header: 0 or -errno (-EPROTO: not one of ours). A memfd that this
 * process has mapped already (both ends in one process; doorbells that several links lead to) is shared at the same
 * address, so that race detectors see one memory. */
int shm_pair_map(int fd, void **map);
int shm_bells_map(int fd, struct shm_doorbells **bells);
/** Drops one use of a mapping. */
void shm_unmap(void *map);

/* shm_listen.c: control thread */

/* epoll tags of the port, beside the links' indices. */
#define SHM_TAG_LISTENER  UINT32_MAX
#define SHM_TAG_DIRECTORY (UINT32_MAX - 1)
#define SHM_TAG_MEMORY    (UINT32_MAX - 2)

/** Listens in `dir` under a name made from `id`: 0, or -errno with the reason in `err`. */
int shm_listen(struct shm_port *p, const char *dir, uint64_t id, struct nic_err *err);
/** Processes an inotify event. */
void shm_listen_event(struct shm_port *p);
/** Creates the socket file again if it was removed. Returns the time of the next call. */
uint64_t shm_listen_step(struct shm_port *p, uint64_t now);

/* shm_dir.c: control thread */

/** Opens the directory of the sockets, creating it with mode 0700 if absent: `dir` (NULL: base/runtime_dir.h). 0, or
 * -errno with the reason and remedy in `err`. Unless `any_user`, it must belong to our user and be closed to others. */
int shm_dir_open(const char *dir, bool any_user, char *path, size_t cap, struct nic_err *err);
/** Reads the identity of a directory: 0 or -errno. */
int shm_dir_id(const char *path, struct shm_dir_id *out);
/** Removes sockets on which no process listens. */
void shm_dir_sweep(const char *path);

/* shm_address.c: nic_port_ops */

void shm_address(const struct nic_port *port, struct nic_addr *out);
void shm_address_text(const struct nic_addr *addr, char *out, size_t cap);
int shm_reach(const struct nic_port *port, const struct nic_addr *addr, struct nic_err *err);
/** The socket path as a printable string; false: malformed. */
bool shm_address_path(const struct nic_addr *addr, char *path, size_t cap);

/* shm_proof.c: control thread. Ports with a key */

struct shm_control_msg;
/** Connecting side: sends the first message. 0 or -errno. */
int shm_auth_begin(const struct shm_port *p, struct shm_link *link);
/** Connecting side: verifies the challenge and responds. 0: the link is `authenticated`; the acceptor's refusal;
 * -EKEYREJECTED, -EPROTO, -errno. */
int shm_challenge_take(const struct shm_port *p, struct shm_link *link, const struct shm_control_msg *message);
/** Accepting side: processes both messages of the connecting side. 0: `authenticated` may be set; -errno: refuse the
 * connection. */
int shm_proof_take(const struct shm_port *p, struct shm_link *link, const struct shm_control_msg *message);

/* shm_link.c: control thread */

/** Creates a pending link that belongs to no queue yet; NULL: SHM_PEERS_MAX links exist, or out of memory. */
struct shm_link *shm_link_new(struct shm_port *p, enum shm_link_state state);
/** Assigns the link to a queue and gives it a doorbell, before the peer learns of either. */
void shm_link_own(struct shm_link *link, struct shm_queue *q);
/** Removes the link from the list of pending ones. */
void shm_link_settled(struct shm_port *p, struct shm_link *link);
void shm_link_free(struct shm_port *p, struct shm_link *link);
/** Maps the pair and initialises the rings: 0 or -errno. `loopback`: both ends are one queue. */
int shm_link_map(struct shm_port *p, struct shm_link *link, int pair_fd, bool connector, bool loopback);
/** Maps the peer's doorbells and stores the index to ring, both received from the peer: 0 or -errno. */
int shm_link_bells(struct shm_link *link, int bells_fd, uint32_t bell);

/* shm_connect.c: nic_port_ops */

int shm_connect(struct nic_port *port, const struct nic_connect *c, struct nic_err *err);
uint64_t shm_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx);

/* shm_pull.c */

/** Writes the proof of our process into the pair. Control thread, before the message that the peer reads it upon. */
void shm_pull_offer(const struct shm_port *p, const struct shm_link *link);
/** Finds out whether bodies can be pulled from the process of the peer, and notifies the peer. Control thread, after
 * the message that follows the peer's proof. */
void shm_pull_probe(struct shm_link *link);
/* Poller */
bool shm_peer_pulls(struct nic_queue *nq, uint32_t peer);
int shm_pull(struct nic_queue *nq, uint32_t peer, const struct iovec *to, unsigned to_n, const struct iovec *from,
	     unsigned from_n);

/* shm_copy.c: poller */

copy_fn shm_tx_copy;

/* shm_memory.c: memories by reference */

/* Control thread */
int shm_memory_open(struct shm_port *p);
void shm_memory_close(struct shm_port *p);
/** Gives peers what they are to be given, and takes back what was freed. Returns the time of the next call. */
uint64_t shm_memory_step(struct shm_port *p, uint64_t now);
/** Processes SHM_CONTROL_MEMORY: maps the memory in `fd` (−1: none), in place of the one of its slot. A memory that
 * cannot be mapped is ignored: its messages travel as others. */
void shm_memory_take(struct shm_port *p, struct shm_link *link, const struct shm_control_msg *message, int fd);
/** The link ends: its mappings end with their last reader. */
void shm_memory_drop(struct shm_link *link);
/* Poller */
int shm_refer(struct nic_queue *nq, uint32_t peer, const void *at, uint64_t len, uint64_t *reference);
int shm_map(struct nic_queue *nq, uint32_t peer, uint64_t reference, uint64_t len, const uint8_t **at, void **hold);
/* Any thread */
void shm_unmap_hold(void *hold);

/** The peer's link, if it is attached; else NULL. Poller. */
static inline struct shm_link *shm_attached_link(const struct shm_queue *q, uint32_t peer)
{
	struct shm_link *link = peer < SHM_PEERS_MAX ? q->port->links[peer] : NULL;
	return link && link->attached_to == q ? link : NULL;
}

/* shm_recv.c: poller */

unsigned shm_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
unsigned shm_recv_lane(struct nic_queue *nq, struct nic_lane *lane, struct nic_pkt *pkts, unsigned max);
unsigned shm_recv_cold(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
void shm_hot_attach(struct shm_queue *q, struct shm_link *link);
void shm_hot_detach(struct shm_queue *q, struct shm_link *link);
void shm_arm(struct nic_queue *nq);
void shm_disarm(struct nic_queue *nq);

__attribute__((format(printf, 3, 4))) int shm_error(struct nic_err *err, int error, const char *format, ...);

#endif
