/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.h - BLAKE2b-256, the content hash of every format of our own.
 *
 * The only adapter of libsodium's hashes; the guest links it statically.
 */
#ifndef CLOCHE_BASE_HASH_H
#define CLOCHE_BASE_HASH_H

#include "base/util.h"

enum { HASH_BYTES = 32, HASH_HEX_BYTES = 2 * HASH_BYTES + 1, HASH_STATE_BYTES = 384 };

struct hash {
	uint8_t b[HASH_BYTES];
};

struct hash_state {
	_Alignas(64) uint8_t opaque[HASH_STATE_BYTES];
};

void hash_init(struct hash_state *s);
void hash_update(struct hash_state *s, const void *p, size_t n);
void hash_final(struct hash_state *s, struct hash *out);
void hash_bytes(struct hash *out, const void *p, size_t n);
bool hash_eq(const struct hash *a, const struct hash *b);

/*
 * A hash for tables in memory (SipHash-2-4): who does not know @key, from random_bytes(),
 * cannot choose inputs that collide. Never stored, never on a wire.
 */
enum { HASH_KEY_BYTES = 16 };
uint64_t hash_keyed(const uint8_t key[HASH_KEY_BYTES], const void *p, size_t n);

/* Lower-case hex with a final NUL. */
void hash_hex(char dst[HASH_HEX_BYTES], const struct hash *h);
/* Its reverse: exactly what hash_hex() writes. Return: 0 or -EINVAL, *out untouched. */
int hash_parse(struct hash *out, const char *hex) MUST_CHECK;

/* SHA-512 (FIPS 180-4): only to check what others named by it. */
enum { SHA512_BYTES = 64, SHA512_STATE_BYTES = 256 };
struct sha512_state {
	_Alignas(16) uint8_t opaque[SHA512_STATE_BYTES];
};
void sha512_init(struct sha512_state *s);
void sha512_update(struct sha512_state *s, const void *p, size_t n);
void sha512_final(struct sha512_state *s, uint8_t out[SHA512_BYTES]);

/* SHA-256 (FIPS 180-4): what names the parts of an OCI image. */
enum { SHA256_BYTES = 32, SHA256_HEX_BYTES = 2 * SHA256_BYTES + 1, SHA256_STATE_BYTES = 128 };
struct sha256_state {
	_Alignas(16) uint8_t opaque[SHA256_STATE_BYTES];
};
void sha256_init(struct sha256_state *s);
void sha256_update(struct sha256_state *s, const void *p, size_t n);
void sha256_final(struct sha256_state *s, uint8_t out[SHA256_BYTES]);
/* Lower-case hex with a final NUL. */
void sha256_hex(char dst[SHA256_HEX_BYTES], const uint8_t sum[SHA256_BYTES]);

/* Fill @p with @n random bytes of the kernel; never fails (waits for the pool). */
void random_bytes(void *p, size_t n);

#endif
