/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Files of lines "word value …", read by a table. '#' begins a comment. An error in a file is reported with its name,
 * the line and what is allowed there. Main thread.
 */
#ifndef SIM_KEYWORDS_H
#define SIM_KEYWORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEYWORDS_NAME_MAX 64          /* bytes of a name with its NUL */
#define KEYWORDS_TEXT_MAX 160         /* bytes of a text with its NUL */
#define KEYWORDS_FILE_MAX 65536       /* bytes of a file */
#define KEYWORDS_ERR_MAX  640         /* bytes of an error with its NUL */
#define KEYWORDS_CHANCE   1000000000u /* a chance of 1: chances are in units of 1e-9 */

/** Both ends included. */
struct range {
	uint64_t min, max;
};

enum keyword_type {
	KEYWORD_NAME,   /* char[KEYWORDS_NAME_MAX]: the name of another file */
	KEYWORD_TEXT,   /* char[KEYWORDS_TEXT_MAX]: the rest of the line */
	KEYWORD_COUNT,  /* uint32_t */
	KEYWORD_SIZE,   /* uint64_t: bytes; k, M, G are powers of 1024 */
	KEYWORD_SIZES,  /* struct range of them: "8..4k", or one */
	KEYWORD_TIME,   /* uint64_t: nanoseconds, with ns, us, ms or s */
	KEYWORD_TIMES,  /* struct range of them: "1ms..2s", or one */
	KEYWORD_RATE,   /* uint64_t: bits per second, with M or G in powers of 1000 */
	KEYWORD_CHANCE, /* uint32_t: "0.01" or "1%", in units of 1 / KEYWORDS_CHANCE */
	KEYWORD_CHOICE, /* uint32_t: index into `choices` */
	KEYWORD_PICK,   /* uint32_t[]: "choice count", written at the choice's index; may be given for each */
	KEYWORD_SET     /* uint32_t: "choice", sets the choice's bit; may be given for each */
};

struct word {
	const char *name; /* NULL ends the table */
	enum keyword_type type;
	size_t offset;              /* of the field, in the struct that is filled */
	uint64_t min, max;          /* of the value, or of both ends of a range */
	const char *const *choices; /* ending with NULL */
	bool needed;
};

/**
 * Fills `out`, whose fields hold their defaults, from `text`; `what` names the kind of the file ("workload"), `file`
 * how it is called. 0, or -EINVAL with `err`.
 */
int keywords_read(const char *what, const char *file, const char *text, const struct word *table, void *out,
		  char err[KEYWORDS_ERR_MAX]);

#endif
