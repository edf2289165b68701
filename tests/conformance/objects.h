/* SPDX-License-Identifier: BSD-3-Clause */
/** Classes that the tests of methods use. */
#ifndef CONFORM_OBJECTS_H
#define CONFORM_OBJECTS_H

#include "functions.h"

#include <farcall/object.h>

/** Registers c::Counter and c::Matrix here, and waits until all workers have. */
void objects_register(const char *here);
/** Objects of this worker that have been made and not ended. */
int objects_alive(void);

#endif
