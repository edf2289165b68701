/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall key`: makes a group's key, or prints the id of the key in a file. The key itself is never printed.
 * Main thread. */
#include "control/key.h"
#include "apps/cli/options.h"
#include "commands.h"
#include <farcall/agent.h>
#include <stdio.h>

#define NAME "farcall key"

int cmd_key(int argc, char **argv)
{
	bool only_id = false;
	const struct option_spec specs[] = {
		{"id", 0, OPTION_FLAG, &only_id, 0, 0, NULL, "print the id of the existing key in FILE", NULL},
		{.name = ""}};
	const struct option_command command = {
		NAME, "[--id] FILE",
		"Makes the key of a group in FILE, which must not exist: 64 hexadecimal digits, mode 0600. Every\n"
		"member proves the key on every connection. Copy the file to each host and pass its path to the\n"
		"workers: FAR_KEY_FILE in the environment, or key_file of struct far_opts. Prints the key's id, which\n"
		"identifies a key and reveals nothing about it.",
		specs};
	int rest;
	struct auth_key key;
	struct far_err err;
	char id[KEY_ID_BYTES];
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest == argc)
		return options_wrong(NAME, "the file is missing; give its path, as in: " NAME " group.key");
	if (rest + 1 < argc)
		return options_wrong(NAME, "unexpected argument '%s'; one file is made at a time", argv[rest + 1]);
	enum far_status status = only_id ? key_read(argv[rest], &key, &err) : key_create(argv[rest], &key, &err);
	if (status) {
		fprintf(stderr, NAME ": %s\n", err.text);
		return 1;
	}
	key_id(&key, id);
	auth_erase(&key, sizeof key);
	printf("%s\n", id);
	return 0;
}
