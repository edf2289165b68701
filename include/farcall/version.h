/* SPDX-License-Identifier: BSD-3-Clause */
/** Version of the headers and of the loaded library. */
#ifndef FARCALL_VERSION_H
#define FARCALL_VERSION_H

#define FAR_VERSION_MAJOR 0
#define FAR_VERSION_MINOR 1
#define FAR_VERSION_PATCH 0
#define FAR_VERSION       "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif
/** Version of the loaded library; FAR_VERSION is that of the headers. Any thread; static text. */
const char *far_version(void);
#ifdef __cplusplus
}
#endif
#endif
