/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostname.h - the grammar of host names: one for the policy, the questions of
 * the guest, the server name of TLS and the Host of HTTP, so that no two of them
 * disagree about what a name is.
 *
 * Pure. A name is at most 253 bytes of labels of 1 to 63 of [a-z0-9_-], joined by
 * single dots, no hyphen at either end of a label, no dot at the end. Its last
 * label is no number (decimal, or hexadecimal behind "0x"): C libraries and
 * browsers read such a text as an address (inet_aton(3); WHATWG URL 3.5), and the
 * policy works on names. Upper case is accepted and lowered.
 */
#ifndef CLOCHE_BASE_HOSTNAME_H
#define CLOCHE_BASE_HOSTNAME_H

#include "base/span.h"

enum { HOST_NAME_MAX_BYTES = 253, HOST_NAME_BYTES = HOST_NAME_MAX_BYTES + 1, HOST_LABEL_MAX = 63 };

/*
 * host_name_parse() - a plain name, lowered into @out. One trailing dot is
 * refused: cut it before, where the protocol allows it.
 * @out_why:	on failure what is wrong, for a person; may be NULL
 *
 * Return: 0 or -EINVAL.
 */
int host_name_parse(char out[HOST_NAME_BYTES], struct span s, const char **out_why) MUST_CHECK;

/* Is @s a name as host_name_parse() gives it: in the grammar, lower case already? */
bool host_name_ok(struct span s);

#endif
