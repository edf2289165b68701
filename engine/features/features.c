/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of features, constant. Any thread. */
#include "features/features.h"

#include "core/feature.h"

#include <stddef.h>

/* clang-format off */
const struct shard_feature *const engine_features[] = {
	[FEATURE_FAULTS] = &faults_feature,
	[FEATURE_RETRY] = &retry_feature,
	[FEATURE_REFERENCES] = &references_feature,
	[FEATURE_OBJECTS] = &objects_feature,
	[FEATURE_FANOUT] = &fanout_feature,
	[FEATURE_RENDEZVOUS] = &rendezvous_feature,
	[FEATURE_INTERCEPT] = &intercept_feature,
	NULL,
};
/* clang-format on */
