/* SPDX-License-Identifier: Apache-2.0 */
/* sha1.h - SHA-1 (FIPS 180-4), only for the checksum at the end of a git index. */
#ifndef CLOCHE_WORKSPACE_SHA1_H
#define CLOCHE_WORKSPACE_SHA1_H

#include "base/util.h"

enum { SHA1_BYTES = 20 };

void sha1(uint8_t out[SHA1_BYTES], const void *p, size_t n);

/* SHA-256 (FIPS 180-4), for the index of a SHA-256 repository. */
enum { SHA256_BYTES = 32 };

void sha256(uint8_t out[SHA256_BYTES], const void *p, size_t n);

#endif
