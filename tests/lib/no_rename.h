/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no_rename.h - a kernel with other file systems than the test's: what NFS and FUSE may answer.
 */
#ifndef CLOCHE_TESTS_NO_RENAME_H
#define CLOCHE_TESTS_NO_RENAME_H

/*
 * For this process and its children, for good: the flags of renameat2() answer EINVAL. Aborts
 * when it cannot.
 */
void no_rename_flags(void);

/* The same: close() answers EIO, as where the content is sent then. */
void close_fails(void);

#endif
