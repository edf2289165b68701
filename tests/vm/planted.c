/* SPDX-License-Identifier: BSD-3-Clause */
/** What UBSan must find, in a program whose status nobody looks at: for harness.sh. Main thread. */
#include <limits.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int most = INT_MAX;
	(void)argv;
	most += argc;
	printf("%d\n", most);
	return 0;
}
