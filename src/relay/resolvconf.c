/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/resolvconf.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/ip.h"

/* The next line of @text, without its end; false behind the last. */
static bool next_line(struct span *text, struct span *line)
{
	if (text->len == 0)
		return false;
	const uint8_t *nl = memchr(text->p, '\n', text->len);
	size_t n = nl ? (size_t)(nl - text->p) : text->len;
	*line = span_of(text->p, n);
	n += nl ? 1 : 0;
	*text = span_of(text->p + n, text->len - n);
	return true;
}

/* The next word of a line; false when there is none. CR is white space, too: edited elsewhere. */
static bool next_word(struct span *line, struct span *word)
{
	size_t i = 0;

	while (i < line->len && memchr(" \t\r", line->p[i], 3))
		i++;
	size_t start = i;
	while (i < line->len && !memchr(" \t\r", line->p[i], 3))
		i++;
	*word = span_of(line->p + start, i - start);
	*line = span_of(line->p + i, line->len - i);
	return word->len > 0;
}

static bool is(struct span s, const char *word)
{
	return span_eq(s, span_str(word));
}

/* "NAME:17" of an options line. */
static bool number(struct span s, const char *name, unsigned max, unsigned *out)
{
	size_t n = strlen(name);
	unsigned v = 0;

	if (s.len <= n || memcmp(s.p, name, n) != 0)
		return false;
	for (size_t i = n; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		v = MIN(v * 10 + (unsigned)(s.p[i] - '0'), max);
	}
	*out = v;
	return true;
}

static void add_server(struct resolvconf *c, struct span s)
{
	char *dst = c->servers[MIN(c->n_servers, (size_t)RESOLVCONF_SERVERS_MAX - 1)];
	struct in6_addr six;
	char text[RESOLVCONF_ADDR_BYTES];
	uint32_t four;

	if (c->n_servers == RESOLVCONF_SERVERS_MAX || s.len >= sizeof(text) ||
	    memchr(s.p, 0, s.len)) {
		c->left_out++;
		return;
	}
	memcpy(text, s.p, s.len);
	text[s.len] = '\0';
	if (ip4_parse(&four, s) < 0 && inet_pton(AF_INET6, text, &six) != 1) {
		c->left_out++;
		return;
	}
	memcpy(dst, text, s.len + 1);
	c->n_servers++;
}

/* The last line of "search" and "domain" counts. */
static void set_search(struct resolvconf *c, struct span line, size_t max)
{
	struct span w;

	c->n_search = 0;
	memset(c->search, 0, sizeof(c->search));
	while (c->n_search < max && next_word(&line, &w)) {
		if (w.len > 1 && w.p[w.len - 1] == '.')
			w.len--;
		/* "." and names that are none: no suffix to add */
		if (host_name_parse(c->search[c->n_search], w, NULL) == 0)
			c->n_search++;
	}
}

static void set_options(struct resolvconf *c, struct span line)
{
	struct span w;

	while (next_word(&line, &w)) {
		if (number(w, "ndots:", RESOLVCONF_NDOTS_MAX, &c->ndots) ||
		    number(w, "timeout:", RESOLVCONF_TIMEOUT_MAX_S, &c->timeout_s) ||
		    number(w, "attempts:", RESOLVCONF_ATTEMPTS_MAX, &c->attempts))
			continue;
		if (is(w, "use-vc"))
			c->use_vc = true;
	}
}

void resolvconf_parse(struct resolvconf *out, struct span text)
{
	struct span line, word;

	*out = (struct resolvconf){ .ndots = 1, .timeout_s = 5, .attempts = 2 };
	while (next_line(&text, &line)) {
		if (line.len && (line.p[0] == '#' || line.p[0] == ';'))
			continue;
		if (!next_word(&line, &word))
			continue;
		if (is(word, "nameserver")) {
			if (next_word(&line, &word))
				add_server(out, word);
		} else if (is(word, "search")) {
			set_search(out, line, RESOLVCONF_SEARCH_MAX);
		} else if (is(word, "domain")) {
			set_search(out, line, 1);
		} else if (is(word, "options")) {
			set_options(out, line);
		}
	}
	out->timeout_s = MAX(out->timeout_s, 1U);
	out->attempts = MAX(out->attempts, 1U);
	if (out->n_servers == 0)
		memcpy(out->servers[out->n_servers++], "127.0.0.1", sizeof("127.0.0.1"));
}

static bool with_suffix(const char *name, const char *suffix, char out[HOST_NAME_BYTES])
{
	size_t a = strlen(name), b = strlen(suffix);

	if (a + 1 + b > HOST_NAME_MAX_BYTES)
		return false;
	memcpy(out, name, a);
	out[a] = '.';
	memcpy(out + a + 1, suffix, b + 1);
	return true;
}

bool resolvconf_candidate(const struct resolvconf *c, const char *name, size_t i,
                          char out[HOST_NAME_BYTES])
{
	unsigned dots = 0;

	for (const char *p = name; *p; p++)
		dots += *p == '.';
	bool search_first = dots < c->ndots;
	for (size_t k = 0, seen = 0; k <= c->n_search; k++) {
		bool plain = search_first ? k == c->n_search : k == 0;
		size_t s = search_first ? k : k - 1;

		if (!plain && !with_suffix(name, c->search[s], out))
			continue;
		if (seen++ < i)
			continue;
		if (plain)
			memcpy(out, name, strlen(name) + 1);
		return true;
	}
	return false;
}

/* As the name of a line may be written: any letter case. */
static bool same_name(struct span s, const char *name)
{
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = s.p[i];

		if (c >= 'A' && c <= 'Z')
			c = (uint8_t)(c + 'a' - 'A');
		if (name[i] == '\0' || c != (uint8_t)name[i])
			return false;
	}
	return name[s.len] == '\0';
}

size_t hosts_find(struct span text, const char *name, uint32_t out[HOSTS_ADDRS_MAX],
                  bool *out_known)
{
	struct span line, addr, word;
	bool known = false;
	size_t n = 0;

	while (next_line(&text, &line)) {
		const uint8_t *hash = line.len ? memchr(line.p, '#', line.len) : NULL;
		uint32_t a;

		if (hash)
			line.len = (size_t)(hash - line.p);
		if (!next_word(&line, &addr))
			continue;
		while (next_word(&line, &word)) {
			if (!same_name(word, name))
				continue;
			known = true;
			if (n < HOSTS_ADDRS_MAX && ip4_parse(&a, addr) == 0)
				out[n++] = a;
			break;
		}
	}
	if (out_known)
		*out_known = known;
	return n;
}
