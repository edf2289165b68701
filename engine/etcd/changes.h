/* SPDX-License-Identifier: BSD-3-Clause */
/** The reply to a watch: a line of JSON for each batch of changes, without an end. Control thread. */
#ifndef FAR_ETCD_CHANGES_H
#define FAR_ETCD_CHANGES_H

#include "etcd/buffer.h"
#include "etcd/message.h"

#define CHANGES_UNREAD_MAX ((size_t)16 << 20) /* bytes that may wait to be read; a line of etcd's has fewer */

/** What was received of a watch. Begins with {.next = revision, .returned = revision - 1}. */
struct changes {
	int64_t next;     /* revision from which another watch continues */
	int64_t returned; /* all changes up to this revision were returned */
	struct buffer in;
	size_t used;     /* bytes of `in` that were read */
	json_t *message; /* being read; NULL: none */
	size_t event;    /* of `message`, the next */
	uint8_t *bytes;  /* of the last change */
	char text[ETCD_TEXT_MAX];
};

/** Takes received bytes: 1; 0: CHANGES_UNREAD_MAX are not read yet; -ENOMEM. */
int changes_put(struct changes *c, const char *data, size_t len);
/** The next change, valid until the next call: 1; 0: none is complete. An error ends the watch, with the reason in
 * `text`: -ESTALE: etcd has compacted changes; -EACCES; -EKEYEXPIRED: the login has ended; -EAGAIN: another error of
 * etcd; -EPROTO: not what etcd sends; -ENOMEM. */
int changes_next(struct changes *c, struct etcd_kv *out);
/** Forgets what was received, but for the revisions. */
void changes_reset(struct changes *c);

#endif
