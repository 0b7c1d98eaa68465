/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hostname.h"

#include <errno.h>

#include "base/ip.h"

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static bool is_number(struct span label)
{
	bool hex = label.len >= 2 && label.p[0] == '0' && (label.p[1] | 32) == 'x';

	for (size_t i = hex ? 2 : 0; i < label.len; i++) {
		uint8_t low = label.p[i] | 32;

		if (!is_digit(label.p[i]) && !(hex && low >= 'a' && low <= 'f'))
			return false;
	}
	return true;
}

static const char *label_fault(struct span label)
{
	if (label.len == 0)
		return "a label is empty (two dots, or a dot at an end)";
	for (size_t i = 0; i < label.len; i++) {
		uint8_t c = label.p[i], low = c | 32;

		if (!is_digit(c) && !(low >= 'a' && low <= 'z') && c != '-' && c != '_')
			return "only letters, digits, '-', '_' and dots make a name";
	}
	if (label.len > HOST_LABEL_MAX)
		return "a label is longer than 63 bytes";
	if (label.p[0] == '-' || label.p[label.len - 1] == '-')
		return "a label begins or ends with a hyphen";
	return NULL;
}

/* What is wrong with @s, or NULL. */
static const char *fault(struct span s)
{
	size_t at = 0;
	uint32_t addr;

	if (s.len == 0)
		return "the name is empty";
	if (s.p[0] == '[' || ip4_parse(&addr, s) == 0)
		return "it is an address, and the policy works on names";
	for (;;) {
		size_t end = at;

		while (end < s.len && s.p[end] != '.')
			end++;
		struct span label = span_of(s.p + at, end - at);
		const char *why = label_fault(label);
		if (why)
			return why;
		if (end == s.len) {
			if (is_number(label))
				return "it ends in a number, so programs may read it as an address";
			break;
		}
		at = end + 1;
	}
	return s.len > HOST_NAME_MAX_BYTES ? "the name is longer than 253 bytes" : NULL;
}

int host_name_parse(char out[HOST_NAME_BYTES], struct span s, const char **out_why)
{
	const char *why = fault(s);

	if (why) {
		if (out_why)
			*out_why = why;
		return -EINVAL;
	}
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = s.p[i];

		out[i] = (char)(c >= 'A' && c <= 'Z' ? c | 32 : c);
	}
	out[s.len] = '\0';
	return 0;
}

bool host_name_ok(struct span s)
{
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] >= 'A' && s.p[i] <= 'Z')
			return false;
	}
	return fault(s) == NULL;
}
