/* SPDX-License-Identifier: Apache-2.0 */
#include "workspace/gitconfig.h"

#include <errno.h>

/* ---- lexer ---- */

struct lexer {
	struct span text;
	size_t at;
	uint32_t line;
	struct buf section; /* lower-case header; with a subsection: up to and without the dot */
	struct buf sub;
	struct buf key, value;
	bool has_sub;
};

enum { END = -1 };

/* The next byte; a return before a newline is none. */
static int next_byte(struct lexer *x)
{
	if (x->at >= x->text.len)
		return END;
	uint8_t c = x->text.p[x->at++];

	if (c == '\r' && x->at < x->text.len && x->text.p[x->at] == '\n')
		c = x->text.p[x->at++];
	if (c == '\n')
		x->line++;
	return c;
}

static bool is_space(int c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_alpha(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_key_byte(int c)
{
	return is_alpha(c) || (c >= '0' && c <= '9') || c == '-';
}

static int put_lower(struct buf *b, int c, size_t max)
{
	uint8_t v = (uint8_t)(c >= 'A' && c <= 'Z' ? c + 32 : c);

	if (b->len >= max)
		return -EFBIG;
	return buf_put(b, &v, 1);
}

static int put_raw(struct buf *b, int c, size_t max)
{
	uint8_t v = (uint8_t)c;

	if (b->len >= max)
		return -EFBIG;
	return buf_put(b, &v, 1);
}

/* Behind '['. */
static int lex_header(struct lexer *x)
{
	int ret = 0;
	int c;

	x->section.len = x->sub.len = 0;
	x->has_sub = false;
	for (;;) {
		c = next_byte(x);
		if (c == ']')
			return x->section.len ? 0 : -EPROTO;
		if (is_space(c))
			break;
		if (!is_key_byte(c) && c != '.')
			return -EPROTO;
		ret = put_lower(&x->section, c, GITCONFIG_NAME_MAX);
		if (ret < 0)
			return ret;
	}
	/* a quoted subsection */
	while (c != '\n' && is_space(c))
		c = next_byte(x);
	if (c != '"')
		return -EPROTO;
	x->has_sub = true;
	for (;;) {
		c = next_byte(x);
		if (c == '"')
			break;
		if (c == '\\')
			c = next_byte(x);
		if (c == '\n' || c == END)
			return -EPROTO;
		ret = put_raw(&x->sub, c, GITCONFIG_NAME_MAX);
		if (ret < 0)
			return ret;
	}
	if (next_byte(x) != ']')
		return -EPROTO;
	return 0;
}

/* Behind '='. A comment starts at '#' or ';' outside quotes; blanks at the ends go. */
static int lex_value(struct lexer *x)
{
	bool quoted = false, comment = false;
	size_t blanks = 0;

	x->value.len = 0;
	for (;;) {
		int c = next_byte(x);
		int ret = 0;

		if (c == '\n' || c == END)
			return quoted ? -EPROTO : 0;
		if (comment)
			continue;
		if (is_space(c) && !quoted) {
			if (x->value.len)
				blanks++;
			continue;
		}
		if (!quoted && (c == ';' || c == '#')) {
			comment = true;
			continue;
		}
		for (; blanks && ret == 0; blanks--)
			ret = put_raw(&x->value, ' ', GITCONFIG_VALUE_MAX);
		if (ret < 0)
			return ret;
		if (c == '\\') {
			c = next_byte(x);
			if (c == '\n' || c == END)
				continue;
			if (c == 't')
				c = '\t';
			else if (c == 'b')
				c = '\b';
			else if (c == 'n')
				c = '\n';
			else if (c != '\\' && c != '"')
				return -EPROTO;
		} else if (c == '"') {
			quoted = !quoted;
			continue;
		}
		ret = put_raw(&x->value, c, GITCONFIG_VALUE_MAX);
		if (ret < 0)
			return ret;
	}
}

/* git splits the whole name at its first and last dot: "[a.b "c"]" is section a, "b.c". */
static int give(struct lexer *x, bool has_value,
                int (*fn)(void *arg, const struct gitconfig_var *v), void *arg, uint32_t line)
{
	AUTO_BUF struct buf sub = { 0 };
	struct span section = span_of(x->section.p, x->section.len);
	const uint8_t *dot = section.len ? memchr(section.p, '.', section.len) : NULL;
	bool has_sub = x->has_sub;

	if (dot) {
		size_t head = (size_t)(dot - section.p);

		if (buf_put(&sub, dot + 1, section.len - head - 1) < 0 ||
		    (has_sub && buf_put(&sub, ".", 1) < 0))
			return -ENOMEM;
		section.len = head;
		has_sub = true;
	}
	if (buf_put(&sub, x->sub.p, x->has_sub ? x->sub.len : 0) < 0 || buf_reserve(&sub, 1) < 0 ||
	    buf_reserve(&x->value, 1) < 0)
		return -ENOMEM;
	struct gitconfig_var v = {
		.section = section,
		.subsection = has_sub ? span_of(sub.p, sub.len) : (struct span){ 0 },
		.key = span_of(x->key.p, x->key.len),
		.value = has_value ? span_of(x->value.p, x->value.len) : (struct span){ 0 },
		.line = line,
	};
	/* git's values are C strings */
	const uint8_t *nul = v.value.len ? memchr(v.value.p, 0, v.value.len) : NULL;
	if (nul)
		v.value.len = (size_t)(nul - v.value.p);
	return fn(arg, &v);
}

static int lex(struct lexer *x, int (*fn)(void *arg, const struct gitconfig_var *v), void *arg)
{
	bool comment = false;
	uint32_t vars = 0;

	for (;;) {
		int c = next_byte(x);
		int ret = 0;

		if (c == END)
			return 0;
		if (c == '\n') {
			comment = false;
			continue;
		}
		if (comment || is_space(c))
			continue;
		if (c == '#' || c == ';') {
			comment = true;
			continue;
		}
		if (c == '[') {
			ret = lex_header(x);
			if (ret < 0)
				return ret;
			continue;
		}
		if (!is_alpha(c))
			return -EPROTO;
		uint32_t line = x->line;
		x->key.len = 0;
		while (is_key_byte(c)) {
			ret = put_lower(&x->key, c, GITCONFIG_NAME_MAX);
			if (ret < 0)
				return ret;
			c = next_byte(x);
		}
		while (c == ' ' || c == '\t')
			c = next_byte(x);
		bool has_value = c == '=';
		if (has_value)
			ret = lex_value(x);
		else if (c != '\n' && c != END)
			ret = -EPROTO;
		if (ret == 0 && ++vars > GITCONFIG_VARS_MAX)
			ret = -EFBIG;
		if (ret == 0)
			ret = give(x, has_value, fn, arg, line);
		if (ret < 0)
			return ret;
	}
}

int gitconfig_parse(struct span text, int (*fn)(void *arg, const struct gitconfig_var *v),
                    void *arg, uint32_t *out_line)
{
	struct lexer x = { .text = text, .line = 1 };

	if (text.len > GITCONFIG_BYTES_MAX)
		return -EFBIG;
	if (text.len >= 3 && memcmp(text.p, "\xef\xbb\xbf", 3) == 0)
		x.at = 3;
	int ret = lex(&x, fn, arg);
	if (ret < 0 && out_line)
		*out_line = x.line;
	buf_fini(&x.section);
	buf_fini(&x.sub);
	buf_fini(&x.key);
	buf_fini(&x.value);
	return ret;
}

/* ---- what may stay ---- */

enum check {
	ANY,      /* any value */
	PLAIN,    /* a word, a number, colours: letters, digits, blanks and "#+-_.,:/%*" */
	URL,      /* goes through gitconfig_clean_url() */
	WORKTREE, /* only in a submodule, only relative */
};

enum sub {
	NO_SUB = 1,
	SUB = 2,
	EITHER = 3,
};

/*
 * Keys that neither run anything, nor name files outside, nor carry
 * credentials. Not on it by intention: every "command", "cmd", "driver",
 * "tool", "editor", "pager", "hook", "helper", "program", "proxy", include*,
 * url.*, alias.*, credential.*, http.*, filter.*, gpg.*, sendemail.*.
 */
static const struct {
	const char *section;
	uint8_t sub, check;
	const char *keys; /* blank separated; "*" for all */
} allowed[] = {
	{ "core", NO_SUB, PLAIN,
	  " repositoryformatversion filemode bare logallrefupdates symlinks ignorecase"
	  " precomposeunicode autocrlf eol safecrlf quotepath abbrev compression loosecompression"
	  " bigfilethreshold sparsecheckout sparsecheckoutcone prefersymlinkrefs checkstat"
	  " trustctime protecthfs protectntfs whitespace commentchar commitgraph multipackindex"
	  " sharedrepository warnambiguousrefs packedgitlimit packedgitwindowsize"
	  " deltabasecachelimit fsync fsyncmethod checkroundtripencoding " },
	{ "core", NO_SUB, WORKTREE, " worktree " },
	{ "extensions", NO_SUB, PLAIN,
	  " objectformat compatobjectformat refstorage worktreeconfig preciousobjects noop noop-v1"
	  " relativeworktrees partialclone " },
	{ "remote", SUB, URL, " url pushurl " },
	{ "remote", SUB, PLAIN,
	  " fetch push mirror tagopt prune prunetags skipdefaultupdate skipfetchall promisor"
	  " partialclonefilter followremotehead " },
	/* a remote is a name or a url */
	{ "remote", NO_SUB, URL, " pushdefault " },
	{ "branch", SUB, URL, " remote pushremote " },
	{ "branch", SUB, PLAIN, " merge rebase " },
	{ "branch", SUB, ANY, " description " },
	{ "branch", NO_SUB, PLAIN, " autosetupmerge autosetuprebase sort " },
	{ "user", NO_SUB, ANY, " name email " },
	{ "merge", NO_SUB, PLAIN,
	  " conflictstyle ff renames renamelimit directoryrenames stat log verbosity autostash"
	  " branchdesc suppressdest renormalize " },
	{ "diff", NO_SUB, PLAIN,
	  " algorithm renames renamelimit context interhunkcontext mnemonicprefix noprefix"
	  " colormoved colormovedws submodule ignoresubmodules indentheuristic statgraphwidth"
	  " statnamewidth suppressblankempty wserrorhighlight dirstat autorefreshindex relative"
	  " srcprefix dstprefix " },
	{ "diff", NO_SUB, ANY, " wordregex " },
	{ "diff", SUB, ANY, " xfuncname funcname wordregex " },
	{ "diff", SUB, PLAIN, " binary algorithm " },
	{ "fetch", NO_SUB, PLAIN,
	  " prune prunetags recursesubmodules all parallel writecommitgraph output"
	  " showforcedupdates unpacklimit fsckobjects negotiationalgorithm " },
	{ "pull", NO_SUB, PLAIN, " rebase ff " },
	{ "push", NO_SUB, PLAIN,
	  " default followtags autosetupremote recursesubmodules usebitmaps negotiate " },
	{ "submodule", SUB, URL, " url " },
	{ "submodule", SUB, PLAIN, " active branch fetchrecursesubmodules ignore path " },
	{ "submodule", NO_SUB, PLAIN, " recurse active fetchjobs propagatebranches " },
	{ "color", EITHER, PLAIN, "*" },
	{ "advice", NO_SUB, PLAIN, "*" },
	{ "log", NO_SUB, PLAIN,
	  " date decorate follow abbrevcommit showroot mailmap graphcolors diffmerges"
	  " initialdecorationset excludedecoration " },
	{ "rerere", NO_SUB, PLAIN, " enabled autoupdate " },
	{ "rebase", NO_SUB, PLAIN,
	  " autosquash autostash updaterefs missingcommitscheck stat backend abbreviatecommands"
	  " reschedulefailedexec forkpoint rebasemerges " },
	{ "tag", NO_SUB, PLAIN, " sort " },
	{ "pack", NO_SUB, PLAIN,
	  " window depth compression threads windowmemory packsizelimit usebitmaps writebitmaps"
	  " deltacachesize deltacachelimit indexversion writereverseindex usesparse"
	  " allowpackreuse " },
	{ "gc", NO_SUB, PLAIN,
	  " auto autopacklimit autodetach pruneexpire reflogexpire reflogexpireunreachable"
	  " worktreepruneexpire packrefs aggressivewindow aggressivedepth writecommitgraph"
	  " bigpackthreshold logexpiry rerereresolved rerereunresolved cruftpacks " },
	{ "index", NO_SUB, PLAIN, " version threads sparse skiphash recordendofindexentries " },
	{ "status", NO_SUB, PLAIN,
	  " short branch showstash showuntrackedfiles renames renamelimit relativepaths aheadbehind"
	  " displaycommentprefix submodulesummary " },
	{ "init", NO_SUB, PLAIN, " defaultbranch " },
};

static bool has_key(const char *keys, struct span key)
{
	char want[64];

	if (keys[0] == '*')
		return true;
	if (key.len + 3 > sizeof(want))
		return false;
	want[0] = ' ';
	memcpy(want + 1, key.p, key.len);
	want[key.len + 1] = ' ';
	want[key.len + 2] = 0;
	return strstr(keys, want) != NULL;
}

static bool is_plain(struct span v)
{
	if (v.len > 1024 || (v.len && memmem(v.p, v.len, "://", 3)))
		return false;
	for (size_t i = 0; i < v.len; i++) {
		uint8_t c = v.p[i];

		/* bytes above ASCII are names of branches; no control byte, no quote or shell mark */
		if (!is_key_byte(c) && c < 0x80 && !memchr(" #+_.,:/%*@{}=^~()<>", c, 20))
			return false;
	}
	return true;
}

/* Helper transports run programs: "ext::sh -c ...". */
static bool is_helper(struct span url)
{
	size_t i = 0;

	while (i < url.len &&
	       (is_key_byte(url.p[i]) || url.p[i] == '.' || url.p[i] == '+' || url.p[i] == '_'))
		i++;
	return i > 0 && url.len - i >= 2 && url.p[i] == ':' && url.p[i + 1] == ':';
}

/* A login name as ssh hosts have them ("git"), not a token used as one. */
static bool is_login(struct span user)
{
	static const char *const tokens[] = { "ghp_",    "gho_",        "ghu_",   "ghs_",
		                              "ghr_",    "github_pat_", "glpat-", "gldt-",
		                              "x-token", "x-access",    "oauth2", "atatt3",
		                              "bbdc-" };

	if (user.len == 0 || user.len > 24)
		return false;
	for (size_t i = 0; i < user.len; i++)
		if (!is_key_byte(user.p[i]) && user.p[i] != '_' && user.p[i] != '.')
			return false;
	for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
		size_t n = strlen(tokens[i]);

		if (user.len >= n && strncasecmp((const char *)user.p, tokens[i], n) == 0)
			return false;
	}
	return true;
}

static bool scheme_is(struct span scheme, const char *const *list)
{
	for (; *list; list++)
		if (scheme.len == strlen(*list) &&
		    strncasecmp((const char *)scheme.p, *list, scheme.len) == 0)
			return true;
	return false;
}

int gitconfig_clean_url(struct span url, struct buf *out)
{
	static const char *const ssh[] = { "ssh", "git+ssh", "ssh+git", NULL };
	static const char *const http[] = { "http", "https", NULL };
	const uint8_t *mark = url.len ? memmem(url.p, url.len, "://", 3) : NULL;
	struct span keep_user = { 0 };
	int changed = 0;

	for (size_t i = 0; i < url.len; i++)
		if (url.p[i] < 0x20 || url.p[i] == 0x7f)
			return -EINVAL;
	if (is_helper(url))
		return -EINVAL;
	if (!mark) {
		/* a path, or [user@]host:path */
		const uint8_t *at = url.len ? memchr(url.p, '@', url.len) : NULL;
		const uint8_t *colon = url.len ? memchr(url.p, ':', url.len) : NULL;
		const uint8_t *slash = url.len ? memchr(url.p, '/', url.len) : NULL;
		bool scp = colon && (!slash || colon < slash);
		size_t head = slash ? (size_t)(slash - url.p) : url.len;

		/* more than one name in front of the host: nothing to rely on */
		if (scp && at && at < url.p + head &&
		    memchr(at + 1, '@', head - (size_t)(at + 1 - url.p)))
			return -EINVAL;
		if (scp && at && at < colon) {
			struct span user = span_of(url.p, (size_t)(at - url.p));

			if (!is_login(user)) {
				url = span_of(at + 1, url.len - user.len - 1);
				changed = 1;
			}
		} else if (scp && at) {
			return -EINVAL; /* user:password@host, which is no address at all */
		}
		return buf_put(out, url.p, url.len) < 0 ? -ENOMEM : changed;
	}
	struct span scheme = span_of(url.p, (size_t)(mark - url.p));
	struct span rest = span_of(mark + 3, url.len - scheme.len - 3);
	size_t authority = 0;
	while (authority < rest.len && !memchr("/?#\\", rest.p[authority], 4))
		authority++;
	for (size_t i = 0; i < scheme.len; i++)
		if (!is_key_byte(scheme.p[i]) && scheme.p[i] != '+' && scheme.p[i] != '.')
			return -EINVAL;
	const uint8_t *at = authority ? memrchr(rest.p, '@', authority) : NULL;
	struct span tail = span_of(rest.p + authority, rest.len - authority);
	struct span host = span_of(rest.p, authority);
	if (at) {
		struct span user = span_of(rest.p, (size_t)(at - rest.p));
		const uint8_t *colon = memchr(user.p, ':', user.len);

		host = span_of(at + 1, authority - user.len - 1);
		if (colon)
			user.len = (size_t)(colon - user.p);
		if (scheme_is(scheme, ssh) && is_login(user))
			keep_user = user;
		changed = colon || keep_user.len == 0;
	}
	/* "https:///user:token@host", or a second address in the path: nothing to rely on */
	bool tail_at = tail.len && memchr(tail.p, '@', tail.len);
	if (tail_at && (host.len == 0 || memmem(tail.p, tail.len, "://", 3) || tail.p[0] == '\\'))
		return -EINVAL;
	const uint8_t *query = tail.len ? memchr(tail.p, '?', tail.len) : NULL;
	if (query && scheme_is(scheme, http)) { /* tokens travel in queries, too */
		tail.len = (size_t)(query - tail.p);
		changed = 1;
	}
	if (buf_put(out, scheme.p, scheme.len) < 0 || buf_put(out, "://", 3) < 0 ||
	    buf_put(out, keep_user.p, keep_user.len) < 0 ||
	    (keep_user.len && buf_put(out, "@", 1) < 0) || buf_put(out, host.p, host.len) < 0 ||
	    buf_put(out, tail.p, tail.len) < 0)
		return -ENOMEM;
	return changed;
}

/* ---- writing ---- */

struct emit {
	struct buf out;
	struct buf header; /* of the section that is open */
	struct gitconfig_report report;
	int flags;
};

static int put_quoted(struct buf *b, struct span s, bool is_value)
{
	int ret = buf_put(b, "\"", 1);

	for (size_t i = 0; i < s.len && ret == 0; i++) {
		uint8_t c = s.p[i];

		if (c == '"' || c == '\\')
			ret = buf_put(b, "\\", 1);
		if (ret == 0 && is_value && (c == '\n' || c == '\t' || c == '\b'))
			ret = buf_put(b, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\b", 2);
		else if (ret == 0)
			ret = buf_put(b, &c, 1);
	}
	return ret < 0 ? ret : buf_put(b, "\"", 1);
}

static int put_var(struct emit *e, const struct gitconfig_var *v, struct span value)
{
	AUTO_BUF struct buf header = { 0 };
	int ret = buf_put(&header, "[", 1);

	if (ret == 0)
		ret = buf_put(&header, v->section.p, v->section.len);
	if (ret == 0 && v->subsection.p) {
		ret = buf_put(&header, " ", 1);
		if (ret == 0)
			ret = put_quoted(&header, v->subsection, false);
	}
	if (ret == 0)
		ret = buf_put(&header, "]\n", 2);
	if (ret < 0)
		return ret;
	if (!span_eq(span_of(header.p, header.len), span_of(e->header.p, e->header.len))) {
		e->header.len = 0;
		if (buf_put(&e->header, header.p, header.len) < 0 ||
		    buf_put(&e->out, header.p, header.len) < 0)
			return -ENOMEM;
	}
	if (buf_put(&e->out, "\t", 1) < 0 || buf_put(&e->out, v->key.p, v->key.len) < 0)
		return -ENOMEM;
	if (v->value.p) {
		if (buf_put(&e->out, " = ", 3) < 0 || put_quoted(&e->out, value, true) < 0)
			return -ENOMEM;
	}
	e->report.kept++;
	return buf_put(&e->out, "\n", 1);
}

static int drop(struct emit *e, const struct gitconfig_var *v)
{
	struct gitconfig_report *r = &e->report;
	char *name = xasprintf("%.*s.%.*s", (int)v->section.len, (const char *)v->section.p,
	                       (int)v->key.len, (const char *)v->key.p);

	r->dropped++;
	for (size_t i = 0; i < r->n_names; i++) {
		if (strcmp(r->names[i], name) == 0) {
			free(name);
			return 0;
		}
	}
	if (r->n_names < ARRAY_LEN(r->names))
		r->names[r->n_names++] = name;
	else
		free(name);
	return 0;
}

static bool is_relative(struct span v)
{
	return v.len && v.p[0] != '/' && v.p[0] != '~' && !memchr(v.p, 0, v.len);
}

static bool has_nul(struct span s)
{
	return s.len && memchr(s.p, 0, s.len);
}

static int emit_var(void *arg, const struct gitconfig_var *v)
{
	struct emit *e = arg;
	AUTO_BUF struct buf clean = { 0 };

	if (has_nul(v->subsection))
		return drop(e, v);
	for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
		uint8_t sub = v->subsection.p ? SUB : NO_SUB;

		if (!span_eq(v->section, span_str(allowed[i].section)) || !(allowed[i].sub & sub) ||
		    !has_key(allowed[i].keys, v->key))
			continue;
		struct span value = v->value;
		switch ((enum check)allowed[i].check) {
		case ANY:
			break;
		case PLAIN:
			if (!is_plain(value))
				return drop(e, v);
			break;
		case WORKTREE:
			if (!(e->flags & GITCONFIG_SUBMODULE) || !is_relative(value))
				return drop(e, v);
			break;
		case URL: {
			int ret = gitconfig_clean_url(value, &clean);

			if (ret == -ENOMEM)
				return ret;
			if (ret != 0)
				e->report.credentials++;
			if (ret < 0)
				return drop(e, v);
			value = span_of(clean.p, clean.len);
			break;
		}
		}
		if (span_eq(v->section, span_str("extensions")) &&
		    span_eq(v->key, span_str("objectformat")))
			e->report.sha256 = value.len == 6 &&
			                   strncasecmp((const char *)value.p, "sha256", 6) == 0;
		return put_var(e, v, value);
	}
	return drop(e, v);
}

void gitconfig_report_fini(struct gitconfig_report *r)
{
	for (size_t i = 0; i < r->n_names; i++)
		free(r->names[i]);
	*r = (struct gitconfig_report){ 0 };
}

int gitconfig_sanitise(struct span text, int flags, struct buf *out,
                       struct gitconfig_report *report, uint32_t *out_line)
{
	struct emit e = { .flags = flags };
	int ret = gitconfig_parse(text, emit_var, &e, out_line);

	if (ret == 0)
		ret = buf_put(out, e.out.p, e.out.len);
	if (ret == 0)
		*report = e.report;
	else
		gitconfig_report_fini(&e.report);
	buf_fini(&e.out);
	buf_fini(&e.header);
	return ret;
}
