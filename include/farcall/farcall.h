/* SPDX-License-Identifier: BSD-3-Clause */
/** Includes every public header. Any thread, unless a function names another one. */
#ifndef FARCALL_FARCALL_H
#define FARCALL_FARCALL_H

#include <farcall/agent.h>
#include <farcall/counters.h>
#include <farcall/fanout.h>
#include <farcall/future.h>
#include <farcall/group.h>
#include <farcall/intercept.h>
#include <farcall/log.h>
#include <farcall/memory.h>
#include <farcall/message.h>
#include <farcall/metrics.h>
#include <farcall/object.h>
#include <farcall/plugin.h>
#include <farcall/profile.h>
#include <farcall/rpc.h>
#include <farcall/rref.h>
#include <farcall/status.h>
#include <farcall/store.h>
#include <farcall/testing.h>
#include <farcall/value.h>
#include <farcall/version.h>

#endif
