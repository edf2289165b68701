/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Mutants: defects that a test plants, each one line of the engine behind MUTANT(name). The simulator's checkers must
 * detect each of them (tests/sim/mutants.sh). MUTANT() is the constant 0 and leaves no code, except in the copy of the
 * engine that is compiled with FAR_MUTANTS for that test, where one is selected at start. Any thread.
 */
#ifndef FAR_BASE_MUTANT_H
#define FAR_BASE_MUTANT_H

/* Identifier, name, description of the defect. */
#define MUTANT_LIST(X)                                                                                                 \
	X(DEDUP_SKIPPED, "dedup-skipped", "a duplicate packet is delivered again")                                     \
	X(RETRY_RUN_AGAIN, "retry-run-again", "the handler of a retransmitted request runs again")                     \
	X(OLD_INCARNATION_ACCEPTED, "old-incarnation-accepted", "token and incarnation in a packet are not checked")   \
	X(GRANT_DOUBLED, "grant-doubled", "twice the bytes of a message are granted")                                  \
	X(CREDIT_LOST, "credit-lost", "one-way messages are not acknowledged after half a window")                     \
	X(SLOT_LEAKED, "slot-leaked", "the slot of a call with a late reply is not freed")                             \
	X(CHECKSUM_IGNORED, "checksum-ignored", "packets with a wrong checksum are accepted")                          \
	X(WAKE_LOST, "wake-lost", "one fiber in sixteen is not made ready when its wait ends")                         \
	X(SLEEP_UNARMED, "sleep-unarmed", "a shard goes to sleep without arming its queues")                           \
	X(UNORDERED_FORGOTTEN, "unordered-forgotten", "it is not recorded that a packet was delivered out of order")   \
	X(EAGER_FORGOTTEN, "eager-forgotten", "it is not recorded that an eager message was delivered out of order")   \
	X(EXECUTED_NO, "executed-no", "a call that is lost with its peer is reported as executed NO")                  \
	X(RREF_UNCOUNTED, "rref-uncounted", "the owner confirms a fork without counting it")                           \
	X(RREF_UNDELETED, "rref-undeleted", "the owner is not notified of a returned fork")                            \
	X(RREF_TWICE, "rref-twice", "a duplicate notification of a fork is counted again")                             \
	X(RREF_DEAD_KEPT, "rref-dead-kept", "forks of a dead worker are kept")                                         \
	X(RREF_UNRECALLED, "rref-unrecalled", "references in a lost result are not recalled when its session ends")    \
	X(RREF_EARLY, "rref-early", "a handler runs before the owners have counted the forks in its arguments")        \
	X(RREF_FLIGHT_KEPT, "rref-flight-kept", "references in flight to a dead worker are kept")                      \
	X(BULK_EARLY, "bulk-early", "an ordered larger message begins before small ones sent before it")               \
	X(SACK_SHIFTED, "sack-shifted", "a selective acknowledgement counts for the packet before")                    \
	X(STALE_DOWN, "stale-down", "a late end of a former connection closes the next one")                           \
	X(STALE_MAIL, "stale-mail", "a late mail about a session of a former incarnation closes the next session")     \
	X(STALE_CONNECT_REQUEST, "stale-connect", "the incarnation in a connect request is not checked")               \
	X(CLAIM_REFUSED, "claim-refused", "a claim is rejected while the former incarnation's connection exists")      \
	X(FUNCTIONS_KEPT, "functions-kept", "function numbers of a former incarnation are used with the next")         \
	X(WAITING_KEPT, "waiting-kept", "calls that wait for a session are not sent when it is up")                    \
	X(ONEWAY_WINDOW, "oneway-window", "one more one-way message is sent than the window allows")                   \
	X(DEAD_CALLER_SERVED, "dead-caller-served", "requests of a dead caller continue")                              \
	X(GENERATION_KEPT, "generation-kept", "a call slot's generation is not raised when it is freed")               \
	X(RINGS_LEFT, "rings-left", "small messages dropped with their peer stay counted as sent")                     \
	X(LEASE_IGNORED, "lease-ignored", "a shard serves on after the lease of its worker has run out")               \
	X(LEASE_EARLY, "lease-early", "the store ends a lease after a quarter of its time")                            \
	X(LEASE_NEVER, "lease-never", "the store keeps the records of a silent member")                                \
	X(LEASE_UNMARGINED, "lease-unmargined", "the store ends a lease without a margin for slower clocks")           \
	X(LEASE_PASSED, "lease-passed", "a claim is rejected since one before it has got the key")                     \
	X(EVICTED_RECLAIMS, "evicted-reclaims", "a member whose lease the store has ended writes its records again")   \
	X(EVICTED_SAME, "evicted-same", "an evicted worker comes back as the same incarnation")                        \
	X(COPY_UNAWAITED, "copy-unawaited", "a key is acknowledged before a second member holds it")                   \
	X(COPY_OLDER, "copy-older", "a store that begins anew takes an older copy of the keys")

enum mutant {
	MUTANT_NONE,
#define MUTANT_ENUM(id, name, text) MUTANT_##id,
	MUTANT_LIST(MUTANT_ENUM)
#undef MUTANT_ENUM
		MUTANT_COUNT
};

#ifdef FAR_MUTANTS
/** The mutant of this process; written once, before the first agent. */
extern enum mutant mutant_planted;
/** Number of evaluations of MUTANT_ONE_IN(). */
extern unsigned mutant_turn;
#define MUTANT(id)           __builtin_expect(mutant_planted == MUTANT_##id, 0)
#define MUTANT_ONE_IN(id, n) (MUTANT(id) && ++mutant_turn % (n) == 0)
#else
#define MUTANT(id)           0
#define MUTANT_ONE_IN(id, n) 0
#endif

#endif
