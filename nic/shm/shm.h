/* SPDX-License-Identifier: BSD-3-Clause */
/** The shm driver's own structures. A link is one peer: its shared pair, and this end's private view of it. */
#ifndef NIC_SHM_SHM_H
#define NIC_SHM_SHM_H

#include "nic/nic.h"
#include "nic/shm/shm_bulk.h"
#include "nic/shm/shm_layout.h"

#include <sys/socket.h>
#include <sys/un.h>

#define SHM_PEERS_MAX  512u
#define SHM_QUEUES_MAX 1u
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
	uint32_t tail;            /* next slot to write */
	uint32_t tail_published;  /* slots whose word is stored */
	uint32_t tx_head_seen;    /* last look at tx->consumer.head */
	uint32_t head;            /* next slot to read */
	uint32_t head_published;  /* last store to rx->consumer.head */
	uint32_t returns_read;    /* of tx->returns */
	uint32_t returns_written; /* to rx->returns */
	uint32_t words[SHM_UNPUBLISHED_MAX];
	int wake_fd; /* the peer's eventfd; −1 for the loopback link */
	bool attached, dirty;
	struct shm_bulk bulk; /* of tx */

	/* Port operations: the control core. */
	enum shm_link_state state;
	uint32_t index;
	int fd;      /* connection, −1: none (loopback) */
	int pair_fd; /* memfd until the peer has it, else −1 */
	void *map;
	void *user;
	uint64_t deadline;
	bool up_pending; /* loopback: UP is reported by the next step */
	bool sent;       /* CONNECTING: HELLO is out */
	uint16_t hello_len;
	uint8_t hello[NIC_HELLO_BYTES_MAX];
	struct sockaddr_un to;
	uint64_t retry_at;
};

struct shm_queue {
	struct nic_queue base;
	struct shm_port *port;
	int wake_fd;
	uint32_t head_bytes;
	uint32_t inline_max; /* body bytes that share the head's line */
	uint32_t active_n, next_active, dirty_n;
	uint64_t bogus_returns, bogus_packets;
	struct shm_link *active[SHM_PEERS_MAX];
	struct shm_link *dirty[SHM_PEERS_MAX];
};

struct shm_port {
	struct nic_port base;
	struct shm_queue queue;
	bool any_user;
	int listen_fd, epoll_fd;
	uint64_t listen_at; /* 0: listening; else when to listen again */
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct shm_link *links[SHM_PEERS_MAX];
};

extern const struct nic_queue_ops shm_queue_ops;

/* shm_map.c */

/** A new sealed memfd of SHM_TOTAL_BYTES with its header written: descriptor or -errno. */
int shm_pair_create(void);
/**
 * Maps a pair after checking seals, size and header: 0 or -errno (-EPROTO: not one of ours). A pair that this process
 * has mapped already (both ends in one process) is shared at the same address, so that race detectors see one memory.
 */
int shm_pair_map(int fd, void **map);
void shm_pair_unmap(void *map);

/* shm_dir.c */

/**
 * The directory of sockets, made with mode 0700 when absent: `dir` (NULL: $FAR_RUNTIME_DIR, else
 * $XDG_RUNTIME_DIR/farcall, else /tmp/farcall-<uid>). 0, or -errno with the reason and remedy in `err`. Unless
 * `any_user`, it must belong to us and be closed to others.
 */
int shm_dir_open(const char *dir, bool any_user, char *path, size_t cap, struct nic_err *err);
/** Removes sockets that nobody listens on. */
void shm_dir_sweep(const char *path);

/* shm_queue.c */
void shm_link_open(struct shm_link *link, void *map, bool connector, bool loopback);

__attribute__((format(printf, 3, 4))) int shm_error(struct nic_err *err, int error, const char *format, ...);

#endif
