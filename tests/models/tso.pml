/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * x86 store buffers. Include after NPROC (buffers, at most 5) and NVAR (words) are defined.
 *
 * A plain, relaxed or release store goes to the FIFO buffer of its process and reaches memory later, in order, by a
 * step of memory(). A load looks into the own buffer first, youngest store first. A fence, a locked instruction
 * (every read-modify-write) and a seq_cst store wait until the own buffer is empty. A store into a full buffer waits
 * for its oldest to leave. System calls drain nothing, but where a model says so.
 */
#define DEPTH 4

byte mem[NVAR];
byte sb_n[NPROC];
byte sb_addr[NPROC * DEPTH];
byte sb_val[NPROC * DEPTH];

#define SLOT(p, k)     ((p) * DEPTH + (k))
#define HIT(p, k, a)   (sb_n[p] > (k) && sb_addr[SLOT(p, k)] == (a))
#define LOAD(p, a)                                                                                                     \
	(HIT(p, 3, a) -> sb_val[SLOT(p, 3)] : (HIT(p, 2, a) -> sb_val[SLOT(p, 2)] : (HIT(p, 1, a) ->                   \
	 sb_val[SLOT(p, 1)] : (HIT(p, 0, a) -> sb_val[SLOT(p, 0)] : mem[a]))))

/* The condition of a fence, and of a locked instruction: atomic { DRAINED(p) -> ... }. */
#define DRAINED(p) (sb_n[p] == 0)

inline STORE(p, a, v)
{
	d_step {
		sb_n[p] < DEPTH -> sb_addr[SLOT(p, sb_n[p])] = (a);
		sb_val[SLOT(p, sb_n[p])] = (v);
		sb_n[p]++
	}
}

#define DRAIN_ONE(p)                                                                                                   \
	d_step {                                                                                                       \
		sb_n[p] > 0 -> mem[sb_addr[SLOT(p, 0)]] = sb_val[SLOT(p, 0)];                                          \
		sb_addr[SLOT(p, 0)] = sb_addr[SLOT(p, 1)]; sb_val[SLOT(p, 0)] = sb_val[SLOT(p, 1)];                    \
		sb_addr[SLOT(p, 1)] = sb_addr[SLOT(p, 2)]; sb_val[SLOT(p, 1)] = sb_val[SLOT(p, 2)];                    \
		sb_addr[SLOT(p, 2)] = sb_addr[SLOT(p, 3)]; sb_val[SLOT(p, 2)] = sb_val[SLOT(p, 3)];                    \
		sb_addr[SLOT(p, 3)] = 0; sb_val[SLOT(p, 3)] = 0;                                                       \
		sb_n[p]--                                                                                              \
	}

active proctype memory()
{
end:
	do
	:: DRAIN_ONE(0)
#if NPROC > 1
	:: DRAIN_ONE(1)
#endif
#if NPROC > 2
	:: DRAIN_ONE(2)
#endif
#if NPROC > 3
	:: DRAIN_ONE(3)
#endif
#if NPROC > 4
	:: DRAIN_ONE(4)
#endif
	od
}
