/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no_rename.h - a kernel on which renameat2() takes no flags, as on NFS and some of FUSE.
 */
#ifndef CLOCHE_TESTS_NO_RENAME_H
#define CLOCHE_TESTS_NO_RENAME_H

/* For this process and its children, for good: flags answer EINVAL. Aborts when it cannot. */
void no_rename_flags(void);

#endif
