/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The set-up of a connection and its ends: engine/transport/setup.c, transport/auth.c, transport_refused_keep(). A makes one connect
 * request to B and, when that has ended, another one. The forger is the network: it has every packet that was sent,
 * and delivers it now, late, again, to somebody else, or never. Packets that it makes itself have no tag of a member.
 *
 * A tag is a tuple: key, kind, receiver, request, cookie or connection. It comes with the packet that it was made for,
 * since the forger cannot make another: a variant that does not cover a field lets the forger change that field.
 * Request r stands for A's token, nonce and X25519 pair; cookie c for the time of its CHALLENGE; connection (r, c) for
 * the session's key of the request that B accepted with that cookie. Sets of packets are bits: HAS(connect[r], c).
 *
 * Holds:
 * - B accepts a request only if A made it, returned the cookie in time, and took that CHALLENGE after B accepted the
 *   request last: no copy begins a second connection, also when B has forgotten the first.
 * - A is up only with a connection that B accepted for this request. REJECT ends a request only if B refused it, or
 *   the incarnation that it names is gone.
 * - A connection ends by RESET or CLOSE only if the other end does not have it; by RESET only in answer to a PING of it
 *   or to the ACCEPT of a request that has ended.
 * - Nothing is sent upon a packet without a tag; no answer is longer than what it answers, but for the CONNECT that a
 *   CHALLENGE draws, once; a PING is answered once.
 * - Whatever has happened: when the forger stops, A's request comes up at both ends or is refused, and a new one comes
 *   up.
 * Cases: -DENDS adds PING, RESET, CLOSE and, once, a new incarnation of B at its address; there TIMES is 1.
 * Broken: NO_TAG, NO_LABEL, NO_RECEIVER, NO_NONCE, NO_COOKIE, NO_TIME, NO_FLOOR, FLOOR_OF_ITS_COOKIE, FLOOR_INCLUDED,
 * CHALLENGE_AGAIN, ONE_CHALLENGE, NO_PADDING; with ENDS: NO_TAG_OF_RESET, NO_RECEIVER, NO_CONNECTION, NO_NUMBER.
 * REACH=n is rejected, too: the model does come there.
 */
#ifndef TIMES
#define TIMES 3
#endif
#ifndef REACH
#define REACH 0
#endif
#define REACHED(n) assert(REACH != (n))

/* Bytes of a packet: the fewest of one that is answered, the most of an answer. */
#ifdef NO_PADDING
#define HANDSHAKE_BYTES 240 /* with a short address, which ACCEPT need not have */
#else
#define HANDSHAKE_BYTES 576
#endif
#define CHALLENGE_BYTES   200
#define ACCEPT_BYTES     552
#define ACCEPT_BYTES_MIN 200
#define REJECT_BYTES          120 /* REJECT, RESET */
#define PING_BYTES        200
#define ACK_BYTES         96

/* The third request is made when the forger has stopped. */
#define ALL 3

#define HAS(set, c) ((set) >> (c) & 1)
#define ADD(set, c) set = set | 1 << (c)

/* What was sent, of each request, by cookie; 0: none. ACCEPT: by that with which the request was accepted. */
byte connect[ALL], challenge[ALL], accepted[ALL];
bool refused[ALL];
byte ping[ALL], reset[ALL], closed[ALL], close_back[ALL], gone[ALL]; /* gone: RESET, by A, in answer to ACCEPT */

/* A, by request. */
#define IDLE    0
#define WAITING 1
#define UP      2
#define OVER    3
byte a[ALL];
byte a_with[ALL]; /* the cookie that B accepted with: which connection */
byte to[ALL];     /* B's incarnation */

/* B, by request. NONE: not known, or forgotten. */
#define NONE       0
#define ACCEPTED   1
#define REMEMBERED 2 /* refused or ended: transport_refused_keep() */
byte b[ALL];
byte b_with[ALL], b_at[ALL]; /* cookie and time of what it accepted last; b_at: also when it has forgotten that */
bool b_ended[ALL];           /* once at least */
bool heard[ALL];             /* the PING: transport_ping_fresh() */
byte incarnation;
byte now = 1, floor;

#define KNOWN(r, c) (to[r] == incarnation && b[r] == ACCEPTED && b_with[r] == (c))

bool tagged = true; /* the packet that arrives has the tag of a member */

/* transport_tag_valid() */
#ifdef NO_TAG
#define SEALED true
#else
#define SEALED tagged
#endif
#ifdef NO_TAG_OF_RESET
#define SEALED_RESET true
#else
#define SEALED_RESET SEALED
#endif

inline answer(out, in)
{
	assert(tagged);
	assert((out) <= (in))
}

/* ---- what B does ---- */

/* transport_cookie_valid(): for the time of its issue and the next one */
#ifdef NO_TIME
#define YOUNG(c) true
#else
#define YOUNG(c) (now - (c) < 2)
#endif
#if defined(NO_FLOOR)
#define ABOVE_FLOOR(c) ((c) > 0)
#elif defined(FLOOR_INCLUDED) /* cookies of the very time */
#define ABOVE_FLOOR(c) ((c) > 0 && (c) >= floor)
#else
#define ABOVE_FLOOR(c) ((c) > floor)
#endif
#ifdef NO_COOKIE
#define HOLDS(c) true
#else
#define HOLDS(c) (ABOVE_FLOOR(c) && YOUNG(c))
#endif

inline b_take(r, c)
{
	assert(HAS(connect[r], c) && a[r] != IDLE);
	assert(c == 0 || now - (c) < 2);
	assert(b_at[r] == 0 || c > b_at[r]);
	if
	:: b_at[r] -> REACHED(2)
	:: else
	fi;
	b_with[r] = c;
	b_at[r] = now;
	heard[r] = false
}

/* b_connect(). `agrees`: decide() */
inline b_connect(r, c, agrees)
{
	if
	:: !(SEALED)
	:: else ->
		if
		:: to[r] != incarnation -> answer(REJECT_BYTES, HANDSHAKE_BYTES); refused[r] = true
		:: else ->
			if
			:: b[r] == ACCEPTED -> answer(ACCEPT_BYTES, HANDSHAKE_BYTES)
			:: b[r] == REMEMBERED -> answer(REJECT_BYTES, HANDSHAKE_BYTES); refused[r] = true
			:: b[r] == NONE && !(HOLDS(c)) ->
				answer(CHALLENGE_BYTES, HANDSHAKE_BYTES);
				ADD(challenge[r], now);
				if
				:: c && !(YOUNG(c)) -> REACHED(3)
				:: c && !(ABOVE_FLOOR(c)) -> REACHED(4)
				:: else
				fi
			:: b[r] == NONE && HOLDS(c) ->
				b_take(r, c);
				if
				:: agrees -> answer(ACCEPT_BYTES, HANDSHAKE_BYTES); b[r] = ACCEPTED; ADD(accepted[r], c)
				:: else -> answer(REJECT_BYTES, HANDSHAKE_BYTES); b[r] = REMEMBERED; b_ended[r] = true; refused[r] = true
				fi
			fi
		fi
	fi
}

inline b_end(r)
{
	b[r] = REMEMBERED;
	b_ended[r] = true
}

/* transport_refused_keep() of 256 others */
inline b_forget(r)
{
	b[r] = NONE;
#ifdef FLOOR_OF_ITS_COOKIE /* it may have later ones */
	floor = (b_with[r] > floor -> b_with[r] : floor)
#else
	floor = (b_at[r] > floor -> b_at[r] : floor)
#endif
}

/* on_ping(), transport_receive_ping() */
inline b_ping(r, c)
{
	if
	:: !(SEALED)
	:: SEALED && !KNOWN(r, c) -> answer(REJECT_BYTES, PING_BYTES); ADD(reset[r], c)
#ifdef NO_NUMBER
	:: SEALED && KNOWN(r, c) -> answer(ACK_BYTES, PING_BYTES); assert(!heard[r]); heard[r] = true
#else
	:: SEALED && KNOWN(r, c) && !heard[r] -> answer(ACK_BYTES, PING_BYTES); heard[r] = true
	:: SEALED && KNOWN(r, c) && heard[r]
#endif
	fi
}

/* CLOSE of a connection, or RESET in answer to its ACCEPT: transport_end_authentic(), no_proven() */
inline b_over(r, c, sealed)
{
	if
	:: sealed && KNOWN(r, c) -> assert(a[r] == OVER); b_end(r)
	:: else
	fi
}

/* ---- what A does ---- */

/* on_challenge(): one that is newer than all before */
#if defined(CHALLENGE_AGAIN)
#define NEWER(r, c) true
#elif defined(ONE_CHALLENGE)
#define NEWER(r, c) (connect[r] == 1)
#else
#define NEWER(r, c) (connect[r] >> (c) == 0)
#endif

inline a_challenge(r, c)
{
	if
	:: SEALED && a[r] == WAITING && NEWER(r, c) ->
		assert(tagged && !HAS(connect[r], c));
		ADD(connect[r], c)
	:: else
	fi
}

/* on_accept() by request r, of the connection (maker, c) */
inline a_accept(r, maker, c)
{
	if
	:: SEALED && a[r] == WAITING ->
		assert(tagged && maker == r && HAS(accepted[r], c));
		a[r] = UP;
		a_with[r] = c;
		if
		:: r == 1 -> REACHED(1)
		:: else
		fi
	:: SEALED && a[r] == OVER -> answer(REJECT_BYTES, ACCEPT_BYTES_MIN); ADD(gone[r], c)
	:: else
	fi
}

/* on_no() */
inline a_refused(r)
{
	if
	:: SEALED && a[r] == WAITING ->
		assert(tagged && (b_ended[r] || to[r] != incarnation));
		a[r] = OVER
	:: else
	fi
}

/* on_no(), transport_receive_end(): RESET that answers a PING of the connection, by its number */
inline a_reset(r, c)
{
	if
	:: SEALED_RESET && a[r] == UP && a_with[r] == c && HAS(ping[r], c) ->
		assert(tagged && HAS(ping[r], c) && !KNOWN(r, c));
		a[r] = OVER;
		REACHED(5)
	:: else
	fi
}

inline a_close(r, c)
{
	if
	:: SEALED && a[r] == UP && a_with[r] == c -> assert(tagged && !KNOWN(r, c)); a[r] = OVER
	:: else
	fi
}

/* ---- when the forger stops ---- */

/* A repeats its request, and each answer arrives. */
inline settle(r)
{
	turns = 0;
	do
	:: a[r] == WAITING && turns < 3 ->
		turns++;
		newest = (HAS(connect[r], 4) -> 4 : (HAS(connect[r], 3) -> 3 : (HAS(connect[r], 2) -> 2 : HAS(connect[r], 1))));
		b_connect(r, newest, true);
		if
		:: to[r] != incarnation || b[r] == REMEMBERED -> a_refused(r)
		:: to[r] == incarnation && b[r] == ACCEPTED -> a_accept(r, r, b_with[r])
		:: else -> a_challenge(r, now)
		fi
	:: a[r] == UP && !KNOWN(r, a_with[r]) -> ADD(ping[r], a_with[r]); b_ping(r, a_with[r]); a_reset(r, a_with[r])
	:: else -> break
	od;
	assert(a[r] == IDLE || a[r] == OVER || (a[r] == UP && KNOWN(r, a_with[r])))
}

/* ---- the forger, and when it lets A and B act ---- */

#define OF_EACH(ARRIVES) ARRIVES(0) ARRIVES(1)
#define OF_ALL(ARRIVES) \
	ARRIVES(0, 1) ARRIVES(1, 1) \
	OF_LATER(ARRIVES)
#if TIMES == 3
#define OF_LATER(ARRIVES) ARRIVES(0, 2) ARRIVES(1, 2) ARRIVES(0, 3) ARRIVES(1, 3)
#else
#define OF_LATER(ARRIVES)
#endif

#define FIRST_CONNECT_ARRIVES(r) \
	:: d_step { a[r] != IDLE -> b_connect(r, 0, true) }
#define CONNECT_ARRIVES(r, c) \
	:: d_step { HAS(connect[r], c) -> b_connect(r, c, true) } \
	:: d_step { HAS(connect[r], c) && b[r] == NONE -> b_connect(r, c, false) }
#define CHALLENGE_ARRIVES(r, c) \
	:: d_step { HAS(challenge[r], c) -> a_challenge(r, c) }
#define ACCEPT_ARRIVES(r, c) \
	:: d_step { HAS(accepted[r], c) -> a_accept(r, r, c) }
#define REFUSED_ARRIVES(r) \
	:: d_step { refused[r] -> a_refused(r) }
#define PING_ARRIVES(r, c) \
	:: d_step { HAS(ping[r], c) -> b_ping(r, c) }
#define RESET_ARRIVES(r, c) \
	:: d_step { HAS(reset[r], c) -> a_reset(r, c) } \
	:: d_step { HAS(gone[r], c) -> b_over(r, c, SEALED_RESET) }
#define BYE_ARRIVES(r, c) \
	:: d_step { HAS(closed[r], c) -> b_over(r, c, SEALED) } \
	:: d_step { HAS(close_back[r], c) -> a_close(r, c) }

#define GIVES_UP(r) \
	:: d_step { a[r] == WAITING -> a[r] = OVER }
#define B_ENDS(r) \
	:: d_step { to[r] == incarnation && b[r] == ACCEPTED -> b_end(r) }
#define B_FORGETS(r) \
	:: d_step { b[r] == REMEMBERED -> b_forget(r) }
#define A_PINGS(r) \
	:: d_step { a[r] == UP -> ADD(ping[r], a_with[r]) }
#define A_LEAVES(r) \
	:: d_step { a[r] == UP -> a[r] = OVER; ADD(closed[r], a_with[r]) }
#define B_LEAVES(r) \
	:: d_step { to[r] == incarnation && b[r] == ACCEPTED -> b_end(r); ADD(close_back[r], b_with[r]) }

/* A packet that A sent to B, come to A or to a third member: B's identity is not theirs, which they say. */
#define SENT_ELSEWHERE(r) \
	:: d_step { a[r] != IDLE -> answer(REJECT_BYTES, HANDSHAKE_BYTES); refused[r] = true }
#define PING_ELSEWHERE(r, c) \
	:: d_step { HAS(ping[r], c) -> answer(REJECT_BYTES, PING_BYTES); ADD(reset[r], c) }
/* Made a packet of another kind, or sent back. */
#define OTHER_KIND(r, c) \
	:: d_step { HAS(connect[r], c) || HAS(challenge[r], c) -> a_accept(r, r, c) } \
	:: d_step { HAS(connect[r], c) || HAS(challenge[r], c) || HAS(accepted[r], c) -> a_refused(r) }
/* Of another request, of another connection. */
#define OTHER_REQUEST(r, c) \
	:: d_step { HAS(accepted[r], c) -> a_accept(1 - r, r, c) }
#define OTHER_CONNECTION(r, c) \
	:: d_step { HAS(closed[r], c) && b[1 - r] == ACCEPTED -> b_over(1 - r, b_with[1 - r], SEALED) }

active proctype world()
{
	byte turns, newest;
	do
	/* A: transport_connect(), giving up. The address that it has may be of B's incarnation before. */
	:: d_step { a[0] == IDLE -> a[0] = WAITING; to[0] = incarnation; connect[0] = 1 }
	:: d_step { a[0] == OVER && a[1] == IDLE -> a[1] = WAITING; to[1] = incarnation; connect[1] = 1 }
	:: d_step { a[0] == OVER && a[1] == IDLE && incarnation -> a[1] = WAITING; connect[1] = 1 }
	OF_EACH(GIVES_UP)
	:: d_step { now < TIMES -> now++ }
	OF_EACH(B_ENDS)
	OF_EACH(B_FORGETS)
	OF_EACH(FIRST_CONNECT_ARRIVES)
	OF_ALL(CONNECT_ARRIVES)
	OF_ALL(CHALLENGE_ARRIVES)
	OF_ALL(ACCEPT_ARRIVES)
	OF_EACH(REFUSED_ARRIVES)
#ifdef ENDS
	:: d_step { incarnation == 0 -> incarnation = 1; b[0] = NONE; b[1] = NONE; floor = 0 }
	OF_EACH(A_PINGS)
	OF_EACH(A_LEAVES)
	OF_EACH(B_LEAVES)
	OF_ALL(PING_ARRIVES)
	OF_ALL(RESET_ARRIVES)
	OF_ALL(BYE_ARRIVES)
#else
	:: d_step { a[0] == UP -> a[0] = OVER }
#endif
	/* Packets of its own. */
	:: d_step {
		tagged = false;
		b_connect(0, 0, true);
		b_connect(0, now, true);
		a_challenge(0, now);
		a_accept(0, 0, 1);
		a_refused(0);
		b_ping(0, 1);
		a_reset(0, a_with[0]);
		a_close(0, a_with[0]);
		b_over(0, b_with[0], SEALED);
		tagged = true
	}
#ifdef NO_RECEIVER
	OF_EACH(SENT_ELSEWHERE)
	OF_ALL(PING_ELSEWHERE)
#endif
#ifdef NO_LABEL
	OF_ALL(OTHER_KIND)
#endif
#ifdef NO_NONCE
	OF_ALL(OTHER_REQUEST)
#endif
#ifdef NO_CONNECTION
	OF_ALL(OTHER_CONNECTION)
#endif
	:: d_step {
		now++;
		settle(0);
		settle(1);
		if
		:: a[0] != UP && a[1] != UP -> a[2] = WAITING; to[2] = incarnation; connect[2] = 1; settle(2); assert(a[2] == UP)
		:: else
		fi
	} break
	od
}
