/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/no_rename.h"

#include <errno.h>
#include <seccomp.h>
#include <stdlib.h>

void no_rename_flags(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

	if (!ctx ||
	    seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(renameat2), 1,
	                     SCMP_A4(SCMP_CMP_NE, 0)) < 0 ||
	    seccomp_load(ctx) < 0)
		abort();
	seccomp_release(ctx);
}

void close_fails(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

	if (!ctx || seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EIO), SCMP_SYS(close), 0) < 0 ||
	    seccomp_load(ctx) < 0)
		abort();
	seccomp_release(ctx);
}
