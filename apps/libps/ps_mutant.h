/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Mutants: defects that a test plants in this library, each one line behind PS_MUTANT(name). The simulator's checkers
 * must detect each of them (tests/sim/ps_mutants.sh). PS_MUTANT() is the constant 0 and leaves no code, except in the
 * copy of the library that is compiled with FAR_PS_MUTANTS for that test. Any thread.
 */
#ifndef PS_MUTANT_H
#define PS_MUTANT_H

/* Identifier, name, description of the defect. */
#define PS_MUTANT_LIST(X)                                                                                              \
	X(TOKEN_FORGOTTEN, "token-forgotten", "a server forgets the numbers of the changes that it has applied")       \
	X(ACK_EARLY, "ack-early", "one change in eight is acknowledged and then not applied")                          \
	X(PARTIAL_STATUS, "partial-status", "a key that was not answered has the status ROW")                          \
	X(TTL_EARLY, "ttl-early", "a row expires after half its time")                                                 \
	X(CLOCK_BEHIND, "clock-behind", "a pull waits for one step less than it must")                                 \
	X(DEAD_WAITED, "dead-waited", "the clock of a lost worker is not excused")                                     \
	X(EXCUSE_KEPT, "excuse-kept", "a worker that has come back stays excused")                                     \
	X(REPEAT_NUMBERED, "repeat-numbered", "a change that is repeated gets new numbers")                            \
	X(READ_KEPT, "read-kept", "a function that reads changes its rows")                                            \
	X(FAILED_KEPT, "failed-kept", "a function that fails changes its row")                                         \
	X(CALL_TWICE, "call-twice", "a function runs again when its call is repeated")                                 \
	X(BARRIER_EARLY, "barrier-early", "a barrier does not wait for its last member")                               \
	X(VALUE_SHORT, "value-short", "a value is as long as a shorter one that it replaces")                          \
	X(VALUE_FIRST, "value-first", "of the values of equal keys the first one counts")                              \
	X(VALUE_LATER, "value-later", "a value that has no room in a reply is not requested again")                    \
	X(DEADLINE_LATE, "deadline-late", "the requests of an operation have ten times its time")

enum ps_mutant {
	PS_MUTANT_NONE,
#define PS_MUTANT_ENUM(id, name, text) PS_MUTANT_##id,
	PS_MUTANT_LIST(PS_MUTANT_ENUM)
#undef PS_MUTANT_ENUM
};

#ifdef FAR_PS_MUTANTS
/** The mutant of this process; written once, before the first service. */
extern enum ps_mutant ps_mutant_planted;
/** Number of evaluations of PS_MUTANT_ONE_IN(). */
extern unsigned ps_mutant_turn;
#define PS_MUTANT(id)           __builtin_expect(ps_mutant_planted == PS_MUTANT_##id, 0)
#define PS_MUTANT_ONE_IN(id, n) (PS_MUTANT(id) && ++ps_mutant_turn % (n) == 0)
#else
#define PS_MUTANT(id)           0
#define PS_MUTANT_ONE_IN(id, n) 0
#endif

#endif
