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
	auth_mac_add(&m, link->connector_nonce, sizeof link->connector_nonce);
	auth_mac_add(&m, link->acceptor_nonce, sizeof link->acceptor_nonce);
	auth_mac_add(&m, path, strlen(path));
	auth_mac_add(&m, queue, sizeof queue);
	auth_mac_end(&m, out);
	auth_erase(&key, sizeof key);
	return true;
}

int shm_auth_begin(const struct shm_port *p, struct shm_link *link)
{
	(void)p;
	auth_random(link->connector_nonce, sizeof link->connector_nonce, &random_kernel);
	struct shm_control_msg message =
		shm_control_make(SHM_CONTROL_AUTH, 0, link->connector_nonce, sizeof link->connector_nonce);
	message.queue = link->remote_queue;
	return shm_control_send(link->fd, &message, NULL, 0);
}

int shm_challenge_take(const struct shm_port *p, struct shm_link *link, const struct shm_control_msg *message)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	if (message->kind == SHM_CONTROL_REPLY && message->status < 0 && message->status > -4096)
		return message->status;
	if (message->kind != SHM_CONTROL_CHALLENGE || message->len != CHALLENGE_BYTES)
		return -EPROTO;
	memcpy(link->acceptor_nonce, message->bytes, AUTH_NONCE_BYTES);
	if (!proof_make(p, link, "acceptor", link->to.sun_path, proof) ||
	    !auth_equal(message->bytes + AUTH_NONCE_BYTES, proof))
		return -EKEYREJECTED;
	link->authenticated = true;
	proof_make(p, link, "connector", link->to.sun_path, proof);
	struct shm_control_msg answer = shm_control_make(SHM_CONTROL_RESPONSE, 0, proof, sizeof proof);
	return shm_control_send(link->fd, &answer, NULL, 0);
}

static int auth_take(const struct shm_port *p, struct shm_link *link, const struct shm_control_msg *message)
{
	uint8_t bytes[CHALLENGE_BYTES];
	if (message->len != AUTH_NONCE_BYTES)
		return -EPROTO;
	memcpy(link->connector_nonce, message->bytes, AUTH_NONCE_BYTES);
	link->remote_queue = message->queue;
	auth_random(link->acceptor_nonce, sizeof link->acceptor_nonce, &random_kernel);
	memcpy(bytes, link->acceptor_nonce, AUTH_NONCE_BYTES);
	if (!proof_make(p, link, "acceptor", p->path, bytes + AUTH_NONCE_BYTES))
		return -EACCES;
	link->challenged = true;
	struct shm_control_msg challenge = shm_control_make(SHM_CONTROL_CHALLENGE, 0, bytes, sizeof bytes);
	return shm_control_send(link->fd, &challenge, NULL, 0);
}

int shm_proof_take(const struct shm_port *p, struct shm_link *link, const struct shm_control_msg *message)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	if (message->kind == SHM_CONTROL_AUTH && !link->challenged)
		return auth_take(p, link, message);
	if (message->kind != SHM_CONTROL_RESPONSE || !link->challenged || message->len != AUTH_PROOF_BYTES ||
	    !proof_make(p, link, "connector", p->path, proof) || !auth_equal(message->bytes, proof))
		return -EKEYREJECTED;
	link->authenticated = true;
	return 0;
}
