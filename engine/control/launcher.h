/* SPDX-License-Identifier: BSD-3-Clause */
/** Rank, world size and store address from the environment of launchers. Any thread that may read the environment. */
#ifndef FAR_CONTROL_LAUNCHER_H
#define FAR_CONTROL_LAUNCHER_H

#define LAUNCHER_TEXT_MAX 256     /* bytes of a value with its NUL: the longest DNS name is 253 */
#define LAUNCHER_PORT     "29500" /* MASTER_PORT under a launcher that names none */

/** The launcher of this process, such as "Slurm". NULL: none is recognised; RANK may be set nevertheless. */
const char *launcher_name(void);

/**
 * Value of RANK, WORLD_SIZE, MASTER_ADDR or MASTER_PORT: of that variable where it is set, else of the launcher. NULL:
 * neither has it. Where torchrun hosts its own store at MASTER_PORT, the port is the one beside it. Points to the
 * environment, to a constant or into `text`.
 */
const char *launcher_env(const char *name, char text[LAUNCHER_TEXT_MAX]);

#endif
