/* SPDX-License-Identifier: BSD-3-Clause */
/** Lists of structures that leave them in any order: `next` is the element behind, `*prev` the pointer to this one. One
 * thread. */
#ifndef FAR_BASE_LIST_H
#define FAR_BASE_LIST_H

/** Puts `e` at the front of the list that `head`, a pointer variable, begins. */
#define list_put(head, e)                                                                                              \
	do {                                                                                                           \
		(e)->next = (head);                                                                                    \
		(e)->prev = &(head);                                                                                   \
		if ((e)->next)                                                                                         \
			(e)->next->prev = &(e)->next;                                                                  \
		(head) = (e);                                                                                          \
	} while (0)

/** Takes `e` out of its list; its own pointers stay. */
#define list_remove(e)                                                                                                 \
	do {                                                                                                           \
		*(e)->prev = (e)->next;                                                                                \
		if ((e)->next)                                                                                         \
			(e)->next->prev = (e)->prev;                                                                   \
	} while (0)

#endif
