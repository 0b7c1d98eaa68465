/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_kmod.c - properties: names of dependencies lie in the input and are plain;
 * a module only gets shorter by a signature;
 * an order has every module at most once and behind all that it depends on.
 *
 * The first two bytes choose: a module file, or a graph (each further byte pair
 * is an edge).
 */
#include <stdlib.h>
#include <string.h>

#include "image/kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void graph(const uint8_t *p, size_t n)
{
	enum { MODULES = 24 };
	static const char names[] = "abcdefghijklmnopqrstuvwx";
	struct kmod mods[MODULES] = { 0 };
	uint16_t order[KMOD_LIST_MAX];
	size_t place[MODULES];

	for (size_t i = 0; i < MODULES; i++) {
		mods[i].name = span_of(names + i, 1);
		mods[i].is_wanted = (i & 1) != 0;
		place[i] = SIZE_MAX;
	}
	for (; n >= 2; p += 2, n -= 2) {
		struct kmod_deps *d = &mods[p[0] % MODULES].deps;
		if (d->n < KMOD_DEPS_MAX)
			d->name[d->n++] = span_of(names + p[1] % MODULES, 1);
	}
	int k = kmod_order(mods, MODULES, order);
	if (k < 0)
		return; /* a circle */
	for (int i = 0; i < k; i++) {
		if (order[i] >= MODULES || place[order[i]] != SIZE_MAX)
			abort();
		place[order[i]] = (size_t)i;
	}
	for (size_t i = 0; i < MODULES; i++) {
		if (mods[i].is_wanted && place[i] == SIZE_MAX)
			abort();
		for (size_t d = 0; place[i] != SIZE_MAX && d < mods[i].deps.n; d++) {
			size_t dep = (size_t)(mods[i].deps.name[d].p[0] - 'a');
			if (place[dep] == SIZE_MAX || place[dep] >= place[i])
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kmod_deps d;

	if (size >= 2 && data[0] == 'G' && data[1] == 'G') {
		graph(data + 2, size - 2);
		return 0;
	}
	uint8_t *copy = malloc(size + 1);
	if (!copy)
		return 0;
	if (size)
		memcpy(copy, data, size);
	size_t slim = kmod_slim(copy, size);
	if (slim > size || (slim < size && memcmp(copy + size - 28, "~Module", 7) != 0))
		abort();
	free(copy);
	if (kmod_depends(&d, span_of(data, size)) < 0)
		return 0;
	for (size_t i = 0; i < d.n; i++) {
		struct span s = d.name[i];
		if (s.p < data || s.len == 0 || s.len > size - (size_t)(s.p - data) ||
		    s.len >= KMOD_NAME_MAX || memchr(s.p, '/', s.len) || memchr(s.p, 0, s.len))
			abort();
	}
	return 0;
}
