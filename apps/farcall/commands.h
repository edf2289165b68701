/* SPDX-License-Identifier: BSD-3-Clause */
/** The subcommands. argv[0] is the subcommand's name; what they return is the exit status of the program.
 * Main thread. */
#ifndef FARCALL_COMMANDS_H
#define FARCALL_COMMANDS_H

/* Exit status of a member that failed because another one was lost (EX_UNAVAILABLE of sysexits.h): `farcall run` looks
 * for who began it among the others. */
#define EXIT_PEER_LOST 69

int cmd_run(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_perf(int argc, char **argv);
int cmd_pserver(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_claim(int argc, char **argv);
int cmd_health(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_tables(int argc, char **argv);
int cmd_sign(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_decode(int argc, char **argv);
int cmd_workers(int argc, char **argv);
int cmd_debug(int argc, char **argv);
int cmd_top(int argc, char **argv);

#endif
