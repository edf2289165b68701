/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Proof of the group's key between the two ends of a connection, before descriptors are sent (shm_control.h). Control
 * thread. Each proof covers both nonces, the acceptor's published path and the addressed queue, and is labelled by its
 * direction: it is valid neither in another connection nor for the other end.
 */
#include "base/group_key.h"
#include "nic/shm/shm.h"
#include "nic/shm/shm_control.h"

#include <errno.h>
#include <string.h>

#define CHALLENGE_BYTES (AUTH_NONCE_BYTES + AUTH_PROOF_BYTES)

/* False: the key is not known yet. */
static bool proof_make(const struct shm_port *p, const struct shm_link *link, const char *label, const char *path,
		       uint8_t out[AUTH_PROOF_BYTES])
{
	const struct auth_key *group = group_key_get(p->key);
	struct auth_key key;
	struct auth_mac m;
	const uint8_t queue[2] = {(uint8_t)(link->remote_queue >> 8), (uint8_t)link->remote_queue};
	if (!group)
		return false;
	auth_derive(&key, group, "shm", "");
	auth_mac_begin(&m, &key, label);
	auth_mac_add(&m, link->asker_nonce, sizeof link->asker_nonce);
	auth_mac_add(&m, link->asked_nonce, sizeof link->asked_nonce);
	auth_mac_add(&m, path, strlen(path));
	auth_mac_add(&m, queue, sizeof queue);
	auth_mac_end(&m, out);
	auth_erase(&key, sizeof key);
	return true;
}

int shm_ask(const struct shm_port *p, struct shm_link *link)
{
	(void)p;
	auth_random(link->asker_nonce, sizeof link->asker_nonce, &random_kernel);
	struct shm_note note = shm_note_make(SHM_NOTE_ASK, 0, link->asker_nonce, sizeof link->asker_nonce);
	note.queue = link->remote_queue;
	return shm_note_send(link->fd, &note, NULL, 0);
}

int shm_challenge_take(const struct shm_port *p, struct shm_link *link, const struct shm_note *note)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	if (note->kind == SHM_NOTE_WELCOME && note->status < 0 && note->status > -4096)
		return note->status;
	if (note->kind != SHM_NOTE_CHALLENGE || note->len != CHALLENGE_BYTES)
		return -EPROTO;
	memcpy(link->asked_nonce, note->bytes, AUTH_NONCE_BYTES);
	if (!proof_make(p, link, "acceptor", link->to.sun_path, proof) ||
	    !auth_equal(note->bytes + AUTH_NONCE_BYTES, proof))
		return -EKEYREJECTED;
	link->proven = true;
	proof_make(p, link, "connector", link->to.sun_path, proof);
	struct shm_note answer = shm_note_make(SHM_NOTE_ANSWER, 0, proof, sizeof proof);
	return shm_note_send(link->fd, &answer, NULL, 0);
}

static int ask_take(const struct shm_port *p, struct shm_link *link, const struct shm_note *note)
{
	uint8_t bytes[CHALLENGE_BYTES];
	if (note->len != AUTH_NONCE_BYTES)
		return -EPROTO;
	memcpy(link->asker_nonce, note->bytes, AUTH_NONCE_BYTES);
	link->remote_queue = note->queue;
	auth_random(link->asked_nonce, sizeof link->asked_nonce, &random_kernel);
	memcpy(bytes, link->asked_nonce, AUTH_NONCE_BYTES);
	if (!proof_make(p, link, "acceptor", p->path, bytes + AUTH_NONCE_BYTES))
		return -EACCES;
	link->asked = true;
	struct shm_note challenge = shm_note_make(SHM_NOTE_CHALLENGE, 0, bytes, sizeof bytes);
	return shm_note_send(link->fd, &challenge, NULL, 0);
}

int shm_proof_take(const struct shm_port *p, struct shm_link *link, const struct shm_note *note)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	if (note->kind == SHM_NOTE_ASK && !link->asked)
		return ask_take(p, link, note);
	if (note->kind != SHM_NOTE_ANSWER || !link->asked || note->len != AUTH_PROOF_BYTES ||
	    !proof_make(p, link, "connector", p->path, proof) || !auth_equal(note->bytes, proof))
		return -EKEYREJECTED;
	link->proven = true;
	return 0;
}
