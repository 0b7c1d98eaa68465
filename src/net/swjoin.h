/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swjoin.h - enter a sandbox into the shared network, for the one who starts it.
 *
 * The connection is then handed to cloche-net as --switch, with the address as
 * --address. A switch may end while somebody connects to it: -ECONNRESET here means
 * to look for one, or start one, again.
 */
#ifndef CLOCHE_NET_SWJOIN_H
#define CLOCHE_NET_SWJOIN_H

#include "base/span.h"

struct err;

/*
 * switch_join() - HELLO on a connected socket, and the answer.
 * @want:	address to have if it is free; 0: any
 * @keep:	the name keeps its address when the sandbox has ended
 *
 * Return: 0; -EEXIST, -EINVAL, -ENOSPC, -EUSERS as swmsg_why says it; -ECONNRESET
 * (the switch has just ended), -ETIMEDOUT, -EPROTO. @err is filled.
 */
int switch_join(int sock, const char *name, uint32_t want, bool keep, uint32_t *out_addr,
                struct err *err) MUST_CHECK;

/* Free the address that @name kept. Errors as above; a name without one is no error. */
int switch_forget(int sock, const char *name, struct err *err) MUST_CHECK;

#endif
