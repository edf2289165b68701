/* SPDX-License-Identifier: BSD-3-Clause */
/** Of the copy of the engine that has defects; no part of the library. */
#include "base/mutant.h"

#ifdef FAR_MUTANTS
enum mutant mutant_planted;
unsigned mutant_turn;
#else
typedef int mutant_none; /* a translation unit has a declaration */
#endif
