/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter.h - the system calls that the agent's processes do not get.
 *
 * A deny list (agents run anything), in three kinds: what nobody but an attack
 * on the kernel or on other processes needs kills; what programs try and do
 * without answers "not permitted"; what programs probe for answers "not there",
 * so that they take their other way. Landlock stays: agents use it themselves.
 */
#ifndef CLOCHE_GUEST_FILTER_H
#define CLOCHE_GUEST_FILTER_H

#include "base/util.h"

struct sock_filter;

enum { FILTER_INSNS_MAX = 256 };

/* The program for seccomp(2), at most FILTER_INSNS_MAX. Return: how many instructions. */
size_t filter_build(struct sock_filter *out);

/* Put it on this process; needs no_new_privs. 0 or -errno. */
int filter_enter(void) MUST_CHECK;

#endif
