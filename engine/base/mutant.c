/* SPDX-License-Identifier: BSD-3-Clause */
/** State of the copy of the engine that is built with defects for the mutant test; empty in the library. Any thread. */
#include "base/mutant.h"

#ifdef FAR_MUTANTS
enum mutant mutant_planted;
unsigned mutant_turn;
#else
typedef int mutant_none; /* a translation unit has a declaration */
#endif
