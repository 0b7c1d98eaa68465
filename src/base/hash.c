/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>

_Static_assert(sizeof(crypto_generichash_state) <= HASH_STATE_BYTES, "state fits");

static crypto_generichash_state *st(struct hash_state *s)
{
	return (crypto_generichash_state *)(void *)s->opaque;
}

void hash_init(struct hash_state *s)
{
	int r = crypto_generichash_init(st(s), NULL, 0, HASH_BYTES);

	ASSERT(r == 0);
}

void hash_update(struct hash_state *s, const void *p, size_t n)
{
	int r = crypto_generichash_update(st(s), p, n);

	ASSERT(r == 0);
}

void hash_final(struct hash_state *s, struct hash *out)
{
	int r = crypto_generichash_final(st(s), out->b, HASH_BYTES);

	ASSERT(r == 0);
}

void hash_bytes(struct hash *out, const void *p, size_t n)
{
	struct hash_state s;

	hash_init(&s);
	hash_update(&s, p, n);
	hash_final(&s, out);
}

bool hash_eq(const struct hash *a, const struct hash *b)
{
	return memcmp(a->b, b->b, HASH_BYTES) == 0;
}

_Static_assert(sizeof(crypto_hash_sha512_state) <= SHA512_STATE_BYTES, "state fits");
_Static_assert(crypto_hash_sha512_BYTES == SHA512_BYTES, "digest");

static crypto_hash_sha512_state *st512(struct sha512_state *s)
{
	return (crypto_hash_sha512_state *)(void *)s->opaque;
}

void sha512_init(struct sha512_state *s)
{
	int r = crypto_hash_sha512_init(st512(s));

	ASSERT(r == 0);
}

void sha512_update(struct sha512_state *s, const void *p, size_t n)
{
	int r = crypto_hash_sha512_update(st512(s), p, n);

	ASSERT(r == 0);
}

void sha512_final(struct sha512_state *s, uint8_t out[SHA512_BYTES])
{
	int r = crypto_hash_sha512_final(st512(s), out);

	ASSERT(r == 0);
}

_Static_assert(sizeof(crypto_hash_sha256_state) <= SHA256_STATE_BYTES, "state fits");
_Static_assert(crypto_hash_sha256_BYTES == SHA256_BYTES, "digest");

static crypto_hash_sha256_state *st256(struct sha256_state *s)
{
	return (crypto_hash_sha256_state *)(void *)s->opaque;
}

void sha256_init(struct sha256_state *s)
{
	int r = crypto_hash_sha256_init(st256(s));

	ASSERT(r == 0);
}

void sha256_update(struct sha256_state *s, const void *p, size_t n)
{
	int r = crypto_hash_sha256_update(st256(s), p, n);

	ASSERT(r == 0);
}

void sha256_final(struct sha256_state *s, uint8_t out[SHA256_BYTES])
{
	int r = crypto_hash_sha256_final(st256(s), out);

	ASSERT(r == 0);
}

void sha256_hex(char dst[SHA256_HEX_BYTES], const uint8_t sum[SHA256_BYTES])
{
	(void)sodium_bin2hex(dst, SHA256_HEX_BYTES, sum, SHA256_BYTES);
}

uint64_t hash_keyed(const uint8_t key[HASH_KEY_BYTES], const void *p, size_t n)
{
	uint64_t v;

	_Static_assert(crypto_shorthash_KEYBYTES == HASH_KEY_BYTES, "key");
	_Static_assert(crypto_shorthash_BYTES == sizeof(v), "value");
	int r = crypto_shorthash((unsigned char *)&v, p, n, key);
	ASSERT(r == 0);
	return v;
}

void hash_hex(char dst[HASH_HEX_BYTES], const struct hash *h)
{
	static const char hex[] = "0123456789abcdef";

	for (size_t i = 0; i < HASH_BYTES; i++) {
		dst[2 * i] = hex[h->b[i] >> 4];
		dst[2 * i + 1] = hex[h->b[i] & 15];
	}
	dst[HASH_HEX_BYTES - 1] = '\0';
}

int hash_parse(struct hash *out, const char *hex)
{
	static const char digits[] = "0123456789abcdef";
	struct hash h;

	if (strlen(hex) != HASH_HEX_BYTES - 1)
		return -EINVAL;
	for (size_t i = 0; i < HASH_BYTES; i++) {
		const char *a = strchr(digits, hex[2 * i]), *b = strchr(digits, hex[2 * i + 1]);
		if (!a || !b)
			return -EINVAL;
		h.b[i] = (uint8_t)((a - digits) << 4 | (b - digits));
	}
	*out = h;
	return 0;
}

void random_bytes(void *p, size_t n)
{
	uint8_t *b = p;

	while (n) {
		ssize_t k = getrandom(b, n, 0);
		if (k < 0) {
			ASSERT(errno == EINTR);
			continue;
		}
		b += k;
		n -= (size_t)k;
	}
}
