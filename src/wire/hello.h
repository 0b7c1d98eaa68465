/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello.h - the server name in the first bytes of a TLS client (RFC 8446 4.1.2,
 * RFC 6066 3, RFC 9849).
 *
 * Pure; nothing is decrypted or repaired. The ClientHello may be cut over any
 * number of records of the handshake type. Exactly one server_name extension
 * with exactly one entry of type host_name is accepted; a name outside of
 * host_name_parse()'s grammar (NUL, an address, 254 bytes) is refused. GREASE
 * values are unknown values like others. No extension may come twice, and the
 * record that ends the ClientHello ends with it; what follows is not looked at.
 */
#ifndef CLOCHE_WIRE_HELLO_H
#define CLOCHE_WIRE_HELLO_H

#include "base/span.h"

enum { HELLO_BYTES_MAX = 16 * 1024, HELLO_NAME_BYTES = 254 };

struct hello {
	char name[HELLO_NAME_BYTES]; /* lower case; "" when there is no server_name */
	bool ech; /* encrypted_client_hello of type outer (also its GREASE, which nobody can tell from a
	 * real one), or its predecessor: the name may be a front */
	bool quic; /* quic_transport_parameters: not on TCP */
};

/* Does it begin like TLS (a handshake record of version 3.x)? Two bytes tell; fewer: as far as seen. */
bool hello_is_tls(struct span in);

/*
 * Return: 0; -EAGAIN when more bytes are needed (never with HELLO_BYTES_MAX or
 * more in @in: that is -EMSGSIZE); -EPROTO. Only the first HELLO_BYTES_MAX bytes are
 * looked at, and what was answered once (other than -EAGAIN) stays so with more bytes.
 */
int hello_parse(struct hello *out, struct span in) MUST_CHECK;

#endif
