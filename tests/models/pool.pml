/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The free list of futures: pop() and push() of engine/sync/future.c (buf.c has the same one). Three threads, three
 * futures, each thread takes and gives back a few times, in any order. Plain memory: every store to `next` comes
 * before a locked exchange of the head, and every other access is such an exchange or a load that it checks.
 *
 * Holds: a future has one owner; none is lost. Broken: NO_TAG.
 */
#define THREADS 3
#define FUTURES 3
#define OPS     3

byte head = 1; /* index + 1 of the first */
byte tag;      /* changes with every pop */
byte next[FUTURES + 1];
bool owned[FUTURES + 1];
byte ended;

init {
	atomic {
		next[1] = 2;
		next[2] = 3;
		next[3] = 0;
		run user();
		run user();
		run user()
	}
}

proctype user()
{
	byte mine, also, old, old_tag, after, ops;
	do
	:: ops < OPS && (!mine || !also) ->
		/* pop(): load(free_head, acquire), load(next, relaxed), compare_exchange(free_head, acquire) */
		ops++;
		atomic { old = head; old_tag = tag }
		do
		:: old == 0 -> break
		:: else ->
			after = next[old];
			atomic {
				if
#ifdef NO_TAG
				:: head == old ->
#else
				:: head == old && tag == old_tag ->
#endif
					head = after;
					tag++;
					assert(!owned[old]);
					owned[old] = true;
					if
					:: !mine -> mine = old
					:: else -> also = old
					fi;
					break
				:: else -> old = head; old_tag = tag
				fi
			}
		od;
		atomic { old = 0; old_tag = 0; after = 0 }
	:: ops < OPS && mine ->
		/* push(): load(free_head, relaxed), store(next, relaxed), compare_exchange(free_head, release) */
		ops++;
		owned[mine] = false;
		atomic { old = head; old_tag = tag }
		do
		:: true ->
			next[mine] = old;
			atomic {
				if
#ifdef NO_TAG
				:: head == old ->
#else
				:: head == old && tag == old_tag ->
#endif
					head = mine;
					mine = also;
					also = 0;
					break
				:: else -> old = head; old_tag = tag
				fi
			}
		od;
		atomic { old = 0; old_tag = 0 }
	:: break
	od;
	/* The last one counts: what is on the list and what is owned are all there is, each once. */
	atomic {
		ended++;
		if
		:: ended == THREADS ->
			ops = owned[1] + owned[2] + owned[3];
			old = head;
			do
			:: old && ops <= FUTURES -> assert(!owned[old]); ops++; old = next[old]
			:: else -> break
			od;
			assert(ops == FUTURES)
		:: else
		fi
	}
}
