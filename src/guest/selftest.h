/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.h - the bytes of the network's self-test: what PID 1 sends, and the one
 * answer that it believes.
 *
 * Pure. The last question is for the name selftest.cloche. Our own resolver
 * answers it with 198.51.100.N, where the bits of N say which forbidden packets
 * it has seen and dropped before (docs/network.md). If the network is not ours,
 * anybody may answer: the parser is strict, every departure is -EPROTO.
 */
#ifndef CLOCHE_GUEST_SELFTEST_H
#define CLOCHE_GUEST_SELFTEST_H

#include "base/span.h"

enum {
	SELFTEST_TCP_TLS = 1, /* to port 443 */
	SELFTEST_TCP_DNS = 2, /* to port 53 */
	SELFTEST_UDP_DNS = 4,
	SELFTEST_ICMP = 8,
	SELFTEST_IPV6 = 16,
	SELFTEST_ALL = 31,
	SELFTEST_BYTES_MAX = 128,
};

/* A question for the A record of selftest.cloche. Return: bytes written. */
size_t selftest_question(uint8_t dst[SELFTEST_BYTES_MAX], uint16_t id);
/* An echo request (RFC 792), without its IP header. */
size_t selftest_echo(uint8_t dst[SELFTEST_BYTES_MAX], uint16_t id);
/* An Ethernet frame: UDP over IPv6 to [2001:db8::1]:53. */
size_t selftest_ipv6(uint8_t dst[SELFTEST_BYTES_MAX], const uint8_t to[6], const uint8_t from[6]);

/*
 * selftest_answer() - the bits in the answer to selftest_question() with @id.
 * Return: 0 to 255, or -EPROTO: not that answer.
 */
int selftest_answer(struct span in, uint16_t id) MUST_CHECK;

/* Is this frame UDP over IPv6 from [2001:db8::1]? It would be an answer. */
bool selftest_is_ipv6_answer(struct span frame);

#endif
