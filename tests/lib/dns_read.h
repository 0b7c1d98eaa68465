/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns_read.h - a strict reader of DNS responses, for tests only.
 *
 * Written from RFC 1035 and RFC 6891 alone and sharing nothing with src/wire/dns.c,
 * so that the two can disagree. It follows pointers, backward only.
 */
#ifndef CLOCHE_TESTS_DNS_READ_H
#define CLOCHE_TESTS_DNS_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct dns_read {
	unsigned id, flags, qtype, n_a;
	char qname[1024];
	uint32_t addr[64], ttl[64];
	bool opt, opt_do;
	unsigned opt_size;
};

static inline unsigned dns_read_16(const uint8_t *p)
{
	return (unsigned)p[0] * 256 + p[1];
}

static inline uint32_t dns_read_32(const uint8_t *p)
{
	return (uint32_t)dns_read_16(p) * 65536u + dns_read_16(p + 2);
}

/* The name at @at as text. Return: where it ends in the message, or 0. */
static inline size_t dns_read_name(const uint8_t *m, size_t len, size_t at, char *text, size_t cap)
{
	size_t end = 0, n = 0, low = at;

	for (;;) {
		if (at >= len)
			return 0;
		unsigned c = m[at];
		if (c >= 0xc0) {
			if (at + 1 >= len)
				return 0;
			size_t to = dns_read_16(m + at) & 0x3fff;
			if (!end)
				end = at + 2;
			if (to >= low || to < 12)
				return 0;
			at = low = to;
			continue;
		}
		if (c > 63 || at + 1 + c > len || n + c + 2 > cap)
			return 0;
		if (c == 0)
			break;
		if (n)
			text[n++] = '.';
		memcpy(text + n, m + at + 1, c);
		n += c;
		at += 1 + c;
	}
	text[n] = '\0';
	return end ? end : at + 1;
}

/* Everything in @m is understood, to its last byte. */
static inline bool dns_read_response(struct dns_read *d, const uint8_t *m, size_t len)
{
	char owner[1024];

	memset(d, 0, sizeof(*d));
	if (len < 12)
		return false;
	d->id = dns_read_16(m);
	d->flags = dns_read_16(m + 2);
	unsigned an = dns_read_16(m + 6), ar = dns_read_16(m + 10);
	if (dns_read_16(m + 4) != 1 || dns_read_16(m + 8) != 0 || an > 64 || ar > 1)
		return false;
	size_t at = dns_read_name(m, len, 12, d->qname, sizeof(d->qname));
	if (!at || len - at < 4 || dns_read_16(m + at + 2) != 1)
		return false;
	d->qtype = dns_read_16(m + at);
	at += 4;
	for (unsigned i = 0; i < an; i++) {
		at = dns_read_name(m, len, at, owner, sizeof(owner));
		if (!at || len - at < 14 || strcmp(owner, d->qname) != 0 ||
		    dns_read_16(m + at) != 1 || dns_read_16(m + at + 2) != 1 ||
		    dns_read_16(m + at + 8) != 4)
			return false;
		d->ttl[i] = dns_read_32(m + at + 4);
		d->addr[i] = dns_read_32(m + at + 10);
		at += 14;
		d->n_a++;
	}
	if (ar) {
		if (len - at < 11 || m[at] != 0 || dns_read_16(m + at + 1) != 41 ||
		    m[at + 5] != 0 || m[at + 6] != 0 || dns_read_16(m + at + 9) != 0)
			return false;
		d->opt = true;
		d->opt_size = dns_read_16(m + at + 3);
		d->opt_do = m[at + 7] & 0x80;
		at += 11;
	}
	return at == len;
}

#endif
