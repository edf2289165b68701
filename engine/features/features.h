/* SPDX-License-Identifier: BSD-3-Clause */
/** The features of the engine: their indices in the table of a shard. Any thread. */
#ifndef FAR_FEATURES_FEATURES_H
#define FAR_FEATURES_FEATURES_H

struct shard_feature;

/** The order in which the core calls them. */
enum feature_place {
	FEATURE_FAULTS,
	FEATURE_RETRY,
	FEATURE_REFERENCES,
	FEATURE_OBJECTS,
	FEATURE_FANOUT,
	FEATURE_RENDEZVOUS,
	FEATURE_INTERCEPT
};

#define FEATURE_BIT(index) (1u << (index))

extern const struct shard_feature faults_feature, retry_feature, references_feature, objects_feature, fanout_feature,
	rendezvous_feature, intercept_feature;

/** All of them, and NULL: shard_config.features. */
extern const struct shard_feature *const engine_features[];

#endif
