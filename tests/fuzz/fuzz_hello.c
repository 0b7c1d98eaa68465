/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties: a name that is accepted is in the grammar of hosts and stands in the input;
 * what is accepted is so with every byte of it and no fewer, and the same however its
 * message is cut into records; it begins like TLS.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/hostname.h"
#include "wire/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static bool same(const struct hello *a, const struct hello *b)
{
	return strcmp(a->name, b->name) == 0 && a->ech == b->ech && a->quic == b->quic;
}

/* The message in the records of @in, which are good. Return: its length. */
static size_t join(uint8_t *dst, struct span in, size_t *out_bytes)
{
	size_t at = 0, have = 0;

	for (;;) {
		size_t len = (size_t)in.p[at + 3] << 8 | in.p[at + 4];

		check(at + 5 + len <= in.len);
		memcpy(dst + have, in.p + at + 5, len);
		have += len;
		at += 5 + len;
		if (have >= 4 && have == 4 + ((size_t)dst[1] << 16 | (size_t)dst[2] << 8 | dst[3]))
			break;
	}
	*out_bytes = at;
	return have;
}

/* @msg in records of @first and then @rest bytes. Return: bytes, 0 when it has no room. */
static size_t cut(uint8_t *dst, size_t cap, struct span msg, size_t first, size_t rest)
{
	size_t n = 0, at = 0, len = first;

	while (at < msg.len) {
		len = MIN(len, msg.len - at);
		if (cap - n < 5 + len)
			return 0;
		memcpy(dst + n,
		       (uint8_t[]){ 22, 3, (uint8_t)at, (uint8_t)(len >> 8), (uint8_t)len }, 5);
		memcpy(dst + n + 5, msg.p + at, len);
		n += 5 + len;
		at += len;
		len = rest;
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t msg[HELLO_BYTES_MAX], again[HELLO_BYTES_MAX];
	static const size_t sizes[] = { 1, 2, 3, 4, 5, 64, 1000, HELLO_BYTES_MAX };
	struct hello h, other;
	size_t bytes;
	int r = hello_parse(&h, span_of(data, size));

	check(r == 0 || r == -EAGAIN || r == -EPROTO || r == -EMSGSIZE);
	check(r != -EAGAIN || size < HELLO_BYTES_MAX);
	check(r != -EMSGSIZE || size >= 5);
	if (r != 0) {
		/* what is over is over at the first byte that makes it so: never accepted before */
		for (size_t n = 0; r != -EAGAIN && n<size; n += size> 300 ? 41 : 1) {
			int early = hello_parse(&other, span_of(data, n));

			check(early == -EAGAIN || early == r);
		}
		return 0;
	}
	check(!h.name[0] || host_name_ok(span_str(h.name)));
	size_t len = join(msg, span_of(data, size), &bytes);
	for (size_t n = 0; n<bytes; n += bytes> 300 ? 41 : 1) {
		check(hello_is_tls(span_of(data, n)));
		check(hello_parse(&other, span_of(data, n)) == -EAGAIN);
	}
	check(hello_parse(&other, span_of(data, bytes)) == 0 && same(&h, &other));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
			size_t n = cut(again, sizeof(again), span_of(msg, len), sizes[i], sizes[k]);

			if (n)
				check(hello_parse(&other, span_of(again, n)) == 0 &&
				      same(&h, &other));
		}
	}
	if (h.name[0]) {
		/* the name, in its own case, behind type and length */
		size_t k = strlen(h.name), at = 0;

		for (; at + k <= len; at++) {
			size_t i = 0;

			while (i < k &&
			       (msg[at + i] == h.name[i] || (msg[at + i] | 32) == h.name[i]))
				i++;
			if (i == k)
				break;
		}
		check(at + k <= len);
	}
	return 0;
}
