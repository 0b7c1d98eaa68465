/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What skopeo's words mean. They are meant for people and differ from version to version:
 * what no row knows is passed on as it is.
 */
#include <string.h>

#include "image/skopeo.h"

/* In this order: a line may hold the words of several. */
static const struct {
	const char *part;
	enum skopeo_fault fault;
} known[] = {
	{ "no space left on device", SKOPEO_SPACE },
	{ "Source image rejected", SKOPEO_SIGNATURE },
	{ "is rejected by policy", SKOPEO_SIGNATURE },
	{ "trust policy", SKOPEO_SIGNATURE },
	{ "no image found in manifest list", SKOPEO_ARCH },
	{ "no image found in image index", SKOPEO_ARCH },
	{ "Digest did not match", SKOPEO_DIGEST },
	{ "does not match provided manifest digest", SKOPEO_DIGEST },
	{ "unexpected EOF", SKOPEO_NETWORK },
	{ "error getting credentials", SKOPEO_HELPER },
	{ "getting username and password", SKOPEO_HELPER },
	{ "credential helper", SKOPEO_HELPER },
	{ "docker-credential-", SKOPEO_HELPER },
	{ "toomanyrequests", SKOPEO_RATE },
	{ "too many requests", SKOPEO_RATE },
	{ "Too Many Requests", SKOPEO_RATE },
	{ "unauthorized", SKOPEO_LOGIN },
	{ "Unauthorized", SKOPEO_LOGIN },
	{ "authentication required", SKOPEO_LOGIN },
	{ "invalid username/password", SKOPEO_LOGIN },
	{ "access to the resource is denied", SKOPEO_LOGIN },
	{ "denied:", SKOPEO_LOGIN },
	{ "403 (Forbidden)", SKOPEO_LOGIN },
	{ "x509:", SKOPEO_TLS },
	{ "tls:", SKOPEO_TLS },
	{ "HTTP response to HTTPS client", SKOPEO_TLS },
	{ "docker daemon", SKOPEO_STORE },
	{ "Docker daemon", SKOPEO_STORE },
	{ "docker.sock", SKOPEO_STORE },
	{ "no such host", SKOPEO_NETWORK },
	{ "connection refused", SKOPEO_NETWORK },
	{ "connection reset", SKOPEO_NETWORK },
	{ "network is unreachable", SKOPEO_NETWORK },
	{ "no route to host", SKOPEO_NETWORK },
	{ "i/o timeout", SKOPEO_NETWORK },
	{ "deadline exceeded", SKOPEO_NETWORK },
	{ "TLS handshake timeout", SKOPEO_NETWORK },
	{ "server misbehaving", SKOPEO_NETWORK },
	{ "proxyconnect", SKOPEO_NETWORK },
	{ "manifest unknown", SKOPEO_ABSENT },
	{ "name unknown", SKOPEO_ABSENT },
	{ "repository name not known", SKOPEO_ABSENT },
	{ "404 (Not Found)", SKOPEO_ABSENT },
	{ "does not resolve to an image ID", SKOPEO_ABSENT },
	{ "no descriptor found", SKOPEO_ABSENT },
	{ "No such image", SKOPEO_ABSENT },
	{ "no such file or directory", SKOPEO_ABSENT },
};

static bool has(struct span s, const char *part)
{
	return s.len && memmem(s.p, s.len, part, strlen(part));
}

/* Behind msg=" in one of its log lines, up to the closing quote; the line itself otherwise. */
static struct span message(struct span line)
{
	static const char key[] = "msg=\"";
	const uint8_t *at = line.len ? memmem(line.p, line.len, key, sizeof(key) - 1) : NULL;

	if (!at)
		return line;
	at += sizeof(key) - 1;
	size_t left = line.len - (size_t)(at - line.p), n = 0;
	while (n < left && at[n] != '"')
		n += at[n] == '\\' && n + 1 < left ? 2 : 1;
	return span_of(at, n);
}

static void put_words(struct span m, char *words, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < m.len && n + 1 < cap; i++) {
		char c = (char)m.p[i];
		if (c == '\\' && i + 1 < m.len && strchr("\"\\nt", m.p[i + 1]) && m.p[i + 1]) {
			c = (char)m.p[++i];
			c = (char)(c == 'n' || c == 't' ? ' ' : c);
		}
		if (c && !(c == ' ' && (n == 0 || words[n - 1] == ' ')))
			words[n++] = c;
	}
	words[n] = '\0';
}

enum skopeo_fault skopeo_read(struct span said, char *words, size_t cap)
{
	struct span last = { 0 }, fatal = { 0 };

	while (said.len) {
		const uint8_t *nl = memchr(said.p, '\n', said.len);
		size_t n = nl ? (size_t)(nl - said.p) : said.len;
		struct span line = span_of(said.p, n);
		said = span_of(said.p + n + (nl != NULL), said.len - n - (nl != NULL));
		if (line.len)
			last = line;
		if (has(line, "level=fatal"))
			fatal = line;
	}
	struct span m = message(fatal.len ? fatal : last);
	put_words(m, words, cap);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (has(m, known[i].part))
			return known[i].fault;
	}
	return SKOPEO_OTHER;
}
