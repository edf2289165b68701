/* SPDX-License-Identifier: BSD-3-Clause */
/** Classes that the tests of methods use. Main thread of each process. */
#ifndef CONFORM_OBJECTS_H
#define CONFORM_OBJECTS_H

#include "functions.h"

#include <farcall/object.h>

/** Registers c::Counter and c::Matrix here, and waits until all workers have. */
void objects_register(const char *here);
/** The same of the classes c::Agent, c::Observer, c::BatchServer, and the functions that go with them. */
void workloads_register(const char *here);
/** The model of c::BatchServer: as it begins; after one step of its optimizer, for the sum of so many gradients. */
enum { MODEL_SIZE = 100 * 30 + 30, BATCHES = 4 };
void model_begin(float *model);
void model_step(float *model, float *momentum, const float *gradient, float trainers);
/** Objects of this worker that have been made and not ended. */
int objects_alive(void);

#endif
