/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Defects to be planted, each one line of the engine behind MUTANT(name): the simulator's checkers must find every one
 * of them (tests/sim/mutants.sh). MUTANT() is the constant 0, and leaves no code, but in the copy of the engine that is
 * compiled with FAR_MUTANTS for that test, where the one to be planted is chosen at start.
 */
#ifndef FAR_BASE_MUTANT_H
#define FAR_BASE_MUTANT_H

/* Name, what is broken. */
#define MUTANT_LIST(X)                                                                                                 \
	X(DEDUP_SKIPPED, "dedup-skipped", "a packet that arrives again is handed up again")                            \
	X(RETRY_RUN_AGAIN, "retry-run-again", "a repeated request runs again")                                         \
	X(OLD_LIFE_ACCEPTED, "old-life-accepted", "the token and the incarnation in a packet are not looked at")       \
	X(GRANT_DOUBLED, "grant-doubled", "twice as much is granted as there is room for")                             \
	X(CREDIT_LOST, "credit-lost", "one-way messages are not acknowledged when half of a window has come")          \
	X(SLOT_LEAKED, "slot-leaked", "the slot of a call whose answer comes late is not given back")                  \
	X(CHECKSUM_IGNORED, "checksum-ignored", "a packet is taken whatever its checksum says")                        \
	X(WAKE_LOST, "wake-lost", "a fiber whose wait ends is not made ready, once in sixteen")                        \
	X(SLEEP_UNARMED, "sleep-unarmed", "a shard goes to sleep without arming its queues")                           \
	X(LOOSE_FORGOTTEN, "loose-forgotten", "that a packet went up before its turn is forgotten")                    \
	X(WHOLE_FORGOTTEN, "whole-forgotten", "that a larger message went up before its turn is forgotten")            \
	X(EXECUTED_NO, "executed-no", "a call that is lost with its peer says that it did not run")                    \
	X(RREF_UNCOUNTED, "rref-uncounted", "the owner confirms a fork and does not count it")                         \
	X(RREF_UNDELETED, "rref-undeleted", "the owner is not told that a fork is given back")                         \
	X(RREF_TWICE, "rref-twice", "a word that a fork exists is heard twice, and counted twice")                     \
	X(RREF_DEAD_KEPT, "rref-dead-kept", "the forks of a worker that has died are kept")                            \
	X(RREF_UNRECALLED, "rref-unrecalled", "what a lost result kept is not asked about when its session has ended") \
	X(RREF_EARLY, "rref-early", "a handler runs before the owners know of the forks in its arguments")             \
	X(RREF_FLIGHT_KEPT, "rref-flight-kept", "references on their way to a worker that has died are kept")          \
	X(BULK_EARLY, "bulk-early", "an ordered larger message begins before small ones that were sent before it")     \
	X(SACK_SHIFTED, "sack-shifted", "a selective acknowledgement is taken for the packet before")                  \
	X(STALE_DOWN, "stale-down", "an end of a former connection closes the next one in its place")                  \
	X(STALE_MAIL, "stale-mail", "a late mail about a session of a former incarnation closes the next session")     \
	X(STALE_HELLO, "stale-hello", "the incarnation that a connect request comes from is not checked")              \
	X(CLAIM_REFUSED, "claim-refused", "a rank is refused while the former incarnation's connection is there")      \
	X(FUNCTIONS_KEPT, "functions-kept", "function numbers of a former incarnation are used with the next")         \
	X(WAITING_KEPT, "waiting-kept", "calls that waited for a session are not sent when it is up")                  \
	X(ONEWAY_WINDOW, "oneway-window", "one more one-way message is sent than the window takes")                    \
	X(DEAD_CALLER_SERVED, "dead-caller-served", "requests of a caller that has died go on")                        \
	X(GENERATION_KEPT, "generation-kept", "a call slot's generation is not raised when it is given back")          \
	X(RINGS_LEFT, "rings-left", "dropping a peer's messages leaves small ones counted that were never sent")

enum mutant {
	MUTANT_NONE,
#define MUTANT_ENUM(id, name, text) MUTANT_##id,
	MUTANT_LIST(MUTANT_ENUM)
#undef MUTANT_ENUM
		MUTANT_COUNT
};

#ifdef FAR_MUTANTS
/** The defect that this process has; written once, before there is any agent. */
extern enum mutant mutant_planted;
/** Counts the times that a rare defect was asked about. */
extern unsigned mutant_turn;
#define MUTANT(id)           __builtin_expect(mutant_planted == MUTANT_##id, 0)
#define MUTANT_ONE_IN(id, n) (MUTANT(id) && ++mutant_turn % (n) == 0)
#else
#define MUTANT(id)           0
#define MUTANT_ONE_IN(id, n) 0
#endif

#endif
