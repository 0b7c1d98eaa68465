/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostca.h - certificate authorities that the user added to this host's store.
 *
 * What lies below /usr/local/share/ca-certificates is the user's addition to
 * Debian's own, made for a company's proxy most of the time. The guest gets the
 * certificates, and nothing else of those files: a key that was left beside one
 * stays here.
 */
#ifndef CLOCHE_CLI_HOSTCA_H
#define CLOCHE_CLI_HOSTCA_H

#include "base/mem.h"
#include "base/span.h"

struct err;

#define HOSTCA_DIR "/usr/local/share/ca-certificates"
/* In the guest: all of them in one file, and the bundle that they are added to. */
#define HOSTCA_GUEST_FILE "/usr/local/share/ca-certificates/cloche-host.crt"
#define HOSTCA_GUEST_BUNDLE "/etc/ssl/certs/ca-certificates.crt"

enum {
	HOSTCA_FILES_MAX = 256,
	HOSTCA_BYTES_MAX = 1024 * 1024, /* of all, as the guest gets them */
	HOSTCA_LINE_MAX = 256,
	HOSTCA_DEPTH_MAX = 8,
};

struct hostca {
	char *names[HOSTCA_FILES_MAX]; /* below HOSTCA_DIR, made visible; those with certificates */
	size_t n;
	size_t certs;
	struct buf pem;
	char *left_out; /* the first that could not be taken, and why; or NULL */
};

/*
 * hostca_take() - the certificates of one PEM file (RFC 7468), written anew behind
 * @out: label lines and base64 only, what stands between them is left out. Pure.
 *
 * Return: how many; -EINVAL for a certificate that is cut or no base64, and @out as before.
 */
int hostca_take(struct buf *out, struct span file) MUST_CHECK;

/*
 * hostca_load() - read all *.crt files below @dir. A missing folder is an empty list.
 * A file that holds no certificate, or is too much, is left out and named.
 *
 * Return: 0, or -errno with @err.
 */
int hostca_load(struct hostca *out, const char *dir, struct err *err) MUST_CHECK;
void hostca_fini(struct hostca *h);

#endif
