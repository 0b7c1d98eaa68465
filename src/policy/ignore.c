/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ignore.c - gitignore patterns.
 *
 * A pattern becomes a literal beginning and a row of tokens behind it. Tokens
 * are run as a set of states, a bit each, over the bytes of the path: every
 * byte looks at every live state once, so no pattern makes the time explode.
 * Most lines of real files are a word, or '*' and a word; those are compared
 * directly. And since most patterns end in a literal byte, a list is looked at
 * through an index by that last byte: a path meets only the few lines that
 * could match it.
 *
 * Where gitignore(5) is silent this follows what git does (its tests and
 * behaviour, checked by tests/oracle/ignore.py): see the comments below.
 */
#include "policy/ignore.h"

#include <errno.h>

enum {
	INDEX_FROM = 12, /* patterns; below that a plain walk is cheaper than an index */
	STATES_MAX = IGNORE_PATTERN_MAX + 1,
	WORDS_MAX = STATES_MAX / 64 + 1,
};

enum token_type {
	TOKEN_BYTE,
	TOKEN_ANY,     /* ? : one byte but '/' */
	TOKEN_SET,     /* [...] : value is an index into sets */
	TOKEN_STAR,    /* no '/' */
	TOKEN_GLOB,    /* two stars: any bytes */
	TOKEN_GLOBDIR, /* two stars with a '/' behind: also nothing at all, the '/' included */
};

#define TOKEN(type, value) ((uint32_t)(type) << 24 | (uint32_t)(value))
#define TOKEN_TYPE(t) ((t) >> 24)
#define TOKEN_VALUE(t) ((t)&0xffffff)

struct set {
	uint64_t bits[4];
};

enum { /* struct pattern.flags */
       P_NEGATED = 1,
       P_DIR_ONLY = 2,
       P_BASENAME = 4, /* no '/' in it: compared with the last component */
       P_SUFFIX = 8,   /* a star and a literal */
       P_INVALID = 16, /* can match nothing */
};

struct pattern {
	uint32_t text, text_len; /* as written */
	uint32_t lit, lit_len;   /* literal beginning (P_SUFFIX: the literal end), folded */
	uint32_t tok, n_tok;
	uint32_t line;
	int16_t last; /* the literal byte that every match ends in, or -1 */
	uint8_t flags;
};

struct ignore_list {
	struct pattern *pats;
	size_t n, cap;
	struct buf text; /* patterns as written */
	struct buf lits;
	uint32_t *toks;
	size_t n_toks, cap_toks;
	struct set *sets;
	size_t n_sets, cap_sets;
	bool fold;
	/* pattern numbers by last byte, ascending; [256] holds those that end in a wildcard */
	uint32_t *by_last;
	uint32_t first[258];
};

static uint8_t fold_byte(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

static bool eq_fold(const uint8_t *folded, const uint8_t *p, size_t n, bool fold)
{
	if (!fold)
		return n == 0 || memcmp(folded, p, n) == 0;
	for (size_t i = 0; i < n; i++)
		if (folded[i] != fold_byte(p[i]))
			return false;
	return true;
}

/* ---- parsing ---- */

static bool is_special(uint8_t c)
{
	return c == '*' || c == '?' || c == '[' || c == '\\';
}

static int grow(void *arr, size_t *cap, size_t n, size_t size)
{
	void **p = arr;

	if (n < *cap)
		return 0;
	size_t want = *cap ? 2 * *cap : 16;
	void *q = realloc(*p, want * size);
	if (!q)
		return -ENOMEM;
	*p = q;
	*cap = want;
	return 0;
}

static int put_token(struct ignore_list *l, uint32_t t)
{
	int ret = grow(&l->toks, &l->cap_toks, l->n_toks, sizeof(*l->toks));

	if (ret == 0)
		l->toks[l->n_toks++] = t;
	return ret;
}

static void set_add(struct set *s, uint8_t c)
{
	s->bits[c / 64] |= (uint64_t)1 << c % 64;
}

static bool set_has(const struct set *s, uint8_t c)
{
	return s->bits[c / 64] >> c % 64 & 1;
}

/* Named classes are ASCII's; blank space is space, tab, newline and return, as in git. */
static bool in_class(struct span name, uint8_t c, bool *out_known)
{
	bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
	bool digit = c >= '0' && c <= '9';
	bool graph = c > 0x20 && c < 0x7f;
	const struct {
		const char *name;
		bool in;
	} classes[] = {
		{ "alnum", upper || lower || digit },
		{ "alpha", upper || lower },
		{ "blank", c == ' ' || c == '\t' },
		{ "cntrl", c < 0x20 || c == 0x7f },
		{ "digit", digit },
		{ "graph", graph },
		{ "lower", lower },
		{ "print", graph || c == ' ' },
		{ "punct", graph && !upper && !lower && !digit },
		{ "space", c == ' ' || c == '\t' || c == '\n' || c == '\r' },
		{ "upper", upper },
		{ "xdigit", digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') },
	};

	for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
		if (span_eq(name, span_str(classes[i].name))) {
			*out_known = true;
			return classes[i].in;
		}
	}
	*out_known = false;
	return false;
}

/*
 * The class that starts behind '[' at p[i]. A ']' in first place is a member;
 * a '-' is one at either end and behind a range.
 * Return: index behind the closing ']', or 0 when it never closes or names an unknown class.
 */
static size_t parse_set(const uint8_t *p, size_t len, size_t i, bool fold, struct set *out)
{
	struct set s = { 0 };
	bool negated = i < len && (p[i] == '!' || p[i] == '^');
	uint8_t prev = 0; /* lower end of a possible range */

	if (negated)
		i++;
	for (bool first = true;; first = false) {
		if (i >= len)
			return 0;
		uint8_t c = p[i];

		if (c == ']' && !first)
			break;
		if (c == '\\') {
			if (++i >= len)
				return 0;
			prev = p[i++];
			set_add(&s, prev);
		} else if (c == '-' && prev && i + 1 < len && p[i + 1] != ']') {
			if (p[++i] == '\\' && ++i >= len)
				return 0;
			for (unsigned k = prev; k <= p[i]; k++)
				set_add(&s, (uint8_t)k);
			i++;
			prev = 0;
		} else if (c == '[' && i + 1 < len && p[i + 1] == ':') {
			const uint8_t *start = p + i + 2;
			const uint8_t *end = memchr(start, ']', len - i - 2);

			if (!end)
				return 0;
			if (end == start || end[-1] != ':') { /* a plain '[' after all */
				set_add(&s, '[');
				prev = '[';
				i++;
				continue;
			}
			struct span name = span_of(start, (size_t)(end - start) - 1);
			bool known = false;
			for (unsigned k = 0; k < 256; k++)
				if (in_class(name, (uint8_t)k, &known))
					set_add(&s, (uint8_t)k);
			if (!known)
				return 0;
			i = (size_t)(end - p) + 1;
			prev = 0;
		} else {
			set_add(&s, c);
			prev = c;
			i++;
		}
	}
	if (fold) {
		for (unsigned k = 'a'; k <= 'z'; k++) {
			if (set_has(&s, (uint8_t)k) || set_has(&s, (uint8_t)(k - 32))) {
				set_add(&s, (uint8_t)k);
				set_add(&s, (uint8_t)(k - 32));
			}
		}
	}
	if (negated)
		for (size_t k = 0; k < ARRAY_LEN(s.bits); k++)
			s.bits[k] = ~s.bits[k];
	s.bits['/' / 64] &= ~((uint64_t)1 << '/' % 64);
	*out = s;
	return i + 1;
}

/*
 * Tokens of what is behind the literal beginning. Two stars are special only
 * as a whole component; git looks at the rest alone, so the rest's start
 * counts as the start of a component even in "abc**" + "/x".
 */
static int parse_tokens(struct ignore_list *l, struct pattern *pat, const uint8_t *p, size_t len,
                        bool whole_path)
{
	size_t i = 0;
	int ret = 0;

	pat->tok = (uint32_t)l->n_toks;
	while (i < len && ret == 0) {
		uint8_t c = p[i];

		if (c == '*') {
			size_t start = i;

			while (i < len && p[i] == '*')
				i++;
			bool twice = i - start >= 2;
			bool begins = start == 0 || p[start - 1] == '/';
			bool slash = i < len && p[i] == '/';
			bool escaped = i + 1 < len && p[i] == '\\' && p[i + 1] == '/';

			if (whole_path && twice && begins && slash)
				ret = put_token(l, TOKEN(TOKEN_GLOBDIR, 0));
			else if (whole_path && twice && begins && (i == len || escaped))
				ret = put_token(l, TOKEN(TOKEN_GLOB, 0));
			else
				ret = put_token(l, TOKEN(TOKEN_STAR, 0));
		} else if (c == '?') {
			ret = put_token(l, TOKEN(TOKEN_ANY, 0));
			i++;
		} else if (c == '[') {
			struct set s = { 0 };

			i = parse_set(p, len, i + 1, l->fold, &s);
			if (i == 0) {
				pat->flags |= P_INVALID;
				break;
			}
			ret = grow(&l->sets, &l->cap_sets, l->n_sets, sizeof(*l->sets));
			if (ret == 0) {
				ret = put_token(l, TOKEN(TOKEN_SET, l->n_sets));
				l->sets[l->n_sets++] = s;
			}
		} else {
			if (c == '\\' && ++i >= len) {
				pat->flags |= P_INVALID;
				break;
			}
			c = l->fold ? fold_byte(p[i]) : p[i];
			ret = put_token(l, TOKEN(TOKEN_BYTE, c));
			i++;
		}
	}
	pat->n_tok = (uint32_t)l->n_toks - pat->tok;
	return ret;
}

static int put_literal(struct ignore_list *l, struct pattern *pat, const uint8_t *p, size_t n)
{
	pat->lit = (uint32_t)l->lits.len;
	pat->lit_len = (uint32_t)n;
	if (buf_put(&l->lits, p, n) < 0)
		return -ENOMEM;
	if (l->fold)
		for (size_t i = 0; i < n; i++)
			l->lits.p[pat->lit + i] = fold_byte(p[i]);
	return 0;
}

static int parse_pattern(struct ignore_list *l, const uint8_t *p, size_t len, uint32_t line)
{
	struct pattern pat = { .line = line, .last = -1 };
	int ret;

	if (len && p[0] == '!') {
		pat.flags |= P_NEGATED;
		p++;
		len--;
	}
	if (len > IGNORE_PATTERN_MAX || l->n >= IGNORE_PATTERNS_MAX)
		return -EFBIG;
	pat.text = (uint32_t)l->text.len;
	pat.text_len = (uint32_t)len;
	if (buf_put(&l->text, p, len) < 0)
		return -ENOMEM;
	if (len && p[len - 1] == '/') {
		pat.flags |= P_DIR_ONLY;
		len--;
	}
	if (len == 0)
		return 0; /* matches nothing: nothing to keep */
	if (!memchr(p, '/', len))
		pat.flags |= P_BASENAME;
	if (p[0] == '/') {
		p++;
		len--;
	}
	size_t plain = 0;
	while (plain < len && !is_special(p[plain]))
		plain++;
	if (len == 0)
		return 0;
	if (pat.flags & P_BASENAME && p[0] == '*' && len > 1) {
		size_t k = 1;

		while (k < len && !is_special(p[k]))
			k++;
		if (k == len)
			pat.flags |= P_SUFFIX;
	}
	if (pat.flags & P_SUFFIX) {
		ret = put_literal(l, &pat, p + 1, len - 1);
	} else {
		ret = put_literal(l, &pat, p, plain);
		if (ret == 0)
			ret = parse_tokens(l, &pat, p + plain, len - plain,
			                   !(pat.flags & P_BASENAME));
	}
	if (ret < 0)
		return ret;
	if (pat.n_tok) {
		uint32_t t = l->toks[pat.tok + pat.n_tok - 1];

		/* two stars may take the '/' behind them along into nothing */
		if (TOKEN_TYPE(t) == TOKEN_BYTE && TOKEN_VALUE(t) != '/')
			pat.last = (int16_t)TOKEN_VALUE(t);
	} else if (pat.lit_len) {
		pat.last = l->lits.p[pat.lit + pat.lit_len - 1];
	}
	ret = grow(&l->pats, &l->cap, l->n, sizeof(*l->pats));
	if (ret == 0)
		l->pats[l->n++] = pat;
	return ret;
}

/* Trailing spaces go, unless a backslash stands before them. */
static size_t trimmed(const uint8_t *p, size_t len)
{
	size_t keep = 0;

	for (size_t i = 0; i < len; i++) {
		if (p[i] == '\\') {
			if (++i >= len)
				return len;
			keep = i + 1;
		} else if (p[i] != ' ') {
			keep = i + 1;
		}
	}
	return keep;
}

static int build_index(struct ignore_list *l)
{
	if (l->n < INDEX_FROM)
		return 0;
	l->by_last = malloc(l->n * sizeof(*l->by_last));
	if (!l->by_last)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++)
		l->first[(l->pats[i].last < 0 ? 256 : l->pats[i].last) + 1]++;
	for (size_t i = 1; i < ARRAY_LEN(l->first); i++)
		l->first[i] += l->first[i - 1];
	uint32_t at[257];
	memcpy(at, l->first, sizeof(at));
	for (size_t i = 0; i < l->n; i++)
		l->by_last[at[l->pats[i].last < 0 ? 256 : l->pats[i].last]++] = (uint32_t)i;
	return 0;
}

int ignore_parse(struct ignore_list **out, struct span text, int flags)
{
	struct ignore_list *l;
	uint32_t line = 0;
	int ret = 0;

	if (text.len > IGNORE_FILE_MAX)
		return -EFBIG;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->fold = flags & IGNORE_FOLD_CASE;
	if (text.len >= 3 && memcmp(text.p, "\xef\xbb\xbf", 3) == 0) {
		text.p += 3;
		text.len -= 3;
	}
	while (text.len && ret == 0) {
		const uint8_t *end = memchr(text.p, '\n', text.len);
		size_t n = end ? (size_t)(end - text.p) : text.len;
		size_t len = n;

		line++;
		if (len && text.p[0] != '#') {
			if (text.p[len - 1] == '\r')
				len--;
			/* git's patterns are C strings */
			const uint8_t *nul = len ? memchr(text.p, 0, len) : NULL;
			if (nul)
				len = (size_t)(nul - text.p);
			len = trimmed(text.p, len);
			if (len)
				ret = parse_pattern(l, text.p, len, line);
		}
		text.p += end ? n + 1 : n;
		text.len -= end ? n + 1 : n;
	}
	if (ret == 0)
		ret = build_index(l);
	if (ret < 0) {
		ignore_free(l);
		return ret;
	}
	*out = l;
	return 0;
}

void ignore_free(struct ignore_list *l)
{
	if (!l)
		return;
	free(l->pats);
	free(l->toks);
	free(l->sets);
	free(l->by_last);
	buf_fini(&l->text);
	buf_fini(&l->lits);
	free(l);
}

size_t ignore_count(const struct ignore_list *l)
{
	return l->n;
}

struct span ignore_pattern(const struct ignore_list *l, size_t i, bool *out_negated,
                           uint32_t *out_line)
{
	ASSERT(i < l->n);
	const struct pattern *p = &l->pats[i];

	*out_negated = p->flags & P_NEGATED;
	*out_line = p->line;
	return span_of(l->text.p + p->text, p->text_len);
}

/* ---- matching ---- */

static void state_set(uint64_t *set, size_t s)
{
	set[s / 64] |= (uint64_t)1 << s % 64;
}

/* Enter state @s, and those that are reached from it without a byte. */
static void enter(uint64_t *set, const uint32_t *tok, size_t n, size_t s)
{
	while (s < n) {
		uint32_t type = TOKEN_TYPE(tok[s]);

		if (type != TOKEN_STAR && type != TOKEN_GLOB && type != TOKEN_GLOBDIR)
			break;
		state_set(set, s);
		if (type == TOKEN_GLOBDIR) { /* with its '/', or without either */
			state_set(set, s + 1);
			s += 2;
		} else {
			s++;
		}
	}
	state_set(set, s);
}

static bool run_tokens(const struct ignore_list *l, const uint32_t *tok, size_t n, const uint8_t *p,
                       size_t len)
{
	uint64_t a[WORDS_MAX], b[WORDS_MAX];
	uint64_t *now = a, *next = b;
	size_t words = n / 64 + 1;

	memset(now, 0, words * sizeof(*now));
	enter(now, tok, n, 0);
	for (size_t i = 0; i < len; i++) {
		uint8_t c = l->fold ? fold_byte(p[i]) : p[i];
		uint64_t any = 0;

		memset(next, 0, words * sizeof(*next));
		for (size_t w = 0; w < words; w++) {
			for (uint64_t live = now[w]; live; live &= live - 1) {
				size_t s = w * 64 + (size_t)__builtin_ctzll(live);

				if (s >= n)
					continue; /* the end, and there is a byte left */
				uint32_t v = TOKEN_VALUE(tok[s]);
				switch ((enum token_type)TOKEN_TYPE(tok[s])) {
				case TOKEN_BYTE:
					if (c == v)
						enter(next, tok, n, s + 1);
					break;
				case TOKEN_ANY:
					if (c != '/')
						enter(next, tok, n, s + 1);
					break;
				case TOKEN_SET:
					if (set_has(&l->sets[v], c))
						enter(next, tok, n, s + 1);
					break;
				case TOKEN_STAR:
					if (c != '/')
						enter(next, tok, n, s);
					break;
				case TOKEN_GLOB:
					enter(next, tok, n, s);
					break;
				case TOKEN_GLOBDIR:
					/* inside it now: only its '/' leads out */
					state_set(next, s);
					state_set(next, s + 1);
					break;
				}
			}
		}
		for (size_t w = 0; w < words; w++)
			any |= next[w];
		if (!any)
			return false;
		uint64_t *t = now;
		now = next;
		next = t;
	}
	return now[n / 64] >> n % 64 & 1;
}

static bool matches(const struct ignore_list *l, const struct pattern *pat, struct span path,
                    struct span base, bool is_dir)
{
	/* without any literal there is no buffer to point into */
	const uint8_t *lit = pat->lit_len ? l->lits.p + pat->lit : NULL;

	if (pat->flags & P_DIR_ONLY && !is_dir)
		return false;
	if (pat->flags & P_INVALID)
		return false;
	if (pat->flags & P_SUFFIX)
		return pat->lit_len <= base.len &&
		       eq_fold(lit, base.p + base.len - pat->lit_len, pat->lit_len, l->fold);
	struct span s = pat->flags & P_BASENAME ? base : path;
	if (pat->lit_len > s.len || !eq_fold(lit, s.p, pat->lit_len, l->fold))
		return false;
	if (pat->n_tok == 0)
		return pat->lit_len == s.len;
	return run_tokens(l, l->toks + pat->tok, pat->n_tok, s.p + pat->lit_len,
	                  s.len - pat->lit_len);
}

static enum ignore_verdict say(const struct pattern *p, uint32_t *out_line)
{
	if (out_line)
		*out_line = p->line;
	return p->flags & P_NEGATED ? IGNORE_NO : IGNORE_YES;
}

enum ignore_verdict ignore_match(const struct ignore_list *l, struct span path, bool is_dir,
                                 uint32_t *out_line)
{
	const uint8_t *slash = path.len ? memrchr(path.p, '/', path.len) : NULL;
	struct span base =
		slash ? span_of(slash + 1, path.len - (size_t)(slash + 1 - path.p)) : path;

	if (path.len == 0)
		return IGNORE_SILENT;
	uint8_t last = l->fold ? fold_byte(path.p[path.len - 1]) : path.p[path.len - 1];
	if (!l->by_last) {
		for (size_t i = l->n; i-- > 0;) {
			const struct pattern *p = &l->pats[i];

			if ((p->last < 0 || p->last == last) && matches(l, p, path, base, is_dir))
				return say(p, out_line);
		}
		return IGNORE_SILENT;
	}
	/* both lists from behind, the later line first */
	uint32_t i = l->first[last + 1], i_end = l->first[last];
	uint32_t k = l->first[257], k_end = l->first[256];
	while (i > i_end || k > k_end) {
		uint32_t at;

		if (k == k_end || (i > i_end && l->by_last[i - 1] > l->by_last[k - 1]))
			at = l->by_last[--i];
		else
			at = l->by_last[--k];
		if (matches(l, &l->pats[at], path, base, is_dir))
			return say(&l->pats[at], out_line);
	}
	return IGNORE_SILENT;
}

/* ---- several files ---- */

struct scoped {
	struct span dir; /* owned */
	struct ignore_list *list;
	int rank;
};

struct ignore_set {
	struct scoped *lists;
	size_t n, cap;
	bool sorted;
};

struct ignore_set *ignore_set_new(void)
{
	return xcalloc(1, sizeof(struct ignore_set));
}

void ignore_set_free(struct ignore_set *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++) {
		free((void *)(uintptr_t)s->lists[i].dir.p);
		ignore_free(s->lists[i].list);
	}
	free(s->lists);
	free(s);
}

int ignore_set_add(struct ignore_set *s, struct span dir, struct ignore_list *l, int rank)
{
	void *copy = s->n < IGNORE_LISTS_MAX ? malloc(dir.len + 1) : NULL;

	if (!copy || grow(&s->lists, &s->cap, s->n, sizeof(*s->lists)) < 0) {
		free(copy);
		ignore_free(l);
		return s->n < IGNORE_LISTS_MAX ? -ENOMEM : -EFBIG;
	}
	if (dir.len)
		memcpy(copy, dir.p, dir.len);
	s->lists[s->n++] = (struct scoped){ span_of(copy, dir.len), l, rank };
	s->sorted = false;
	return 0;
}

static int cmp_scoped(const void *a, const void *b)
{
	const struct scoped *x = a, *y = b;
	int c = span_cmp(x->dir, y->dir);

	return c ? c : (x->rank < y->rank) - (x->rank > y->rank);
}

static enum ignore_verdict ask_dir(const struct ignore_set *s, struct span dir, struct span path,
                                   bool is_dir)
{
	size_t lo = 0, n = s->n;

	while (n) {
		size_t half = n / 2;

		if (span_cmp(s->lists[lo + half].dir, dir) < 0) {
			lo += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	size_t skip = dir.len ? dir.len + 1 : 0;
	struct span rest = span_of(path.p + skip, path.len - skip);
	for (; lo < s->n && span_eq(s->lists[lo].dir, dir); lo++) {
		enum ignore_verdict v = ignore_match(s->lists[lo].list, rest, is_dir, NULL);

		if (v != IGNORE_SILENT)
			return v;
	}
	return IGNORE_SILENT;
}

bool ignore_set_match(struct ignore_set *s, struct span path, bool is_dir)
{
	if (!s->sorted && s->n > 1)
		qsort(s->lists, s->n, sizeof(*s->lists), cmp_scoped);
	s->sorted = true;
	if (s->n == 0)
		return false;
	/* from the top: once a directory is ignored nothing below it is asked */
	for (size_t end = 0; end < path.len; end++) {
		const uint8_t *slash = memchr(path.p + end, '/', path.len - end);

		end = slash ? (size_t)(slash - path.p) : path.len;
		struct span part = span_of(path.p, end);
		struct span dir = part;
		enum ignore_verdict v = IGNORE_SILENT;
		while (v == IGNORE_SILENT && dir.len) {
			const uint8_t *up = memrchr(dir.p, '/', dir.len);

			dir.len = up ? (size_t)(up - dir.p) : 0;
			v = ask_dir(s, dir, part, slash || is_dir);
		}
		if (v == IGNORE_YES)
			return true;
	}
	return false;
}
