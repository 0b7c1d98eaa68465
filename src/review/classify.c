/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables come first: they are what a reader wants to check. A pattern is
 * components; it matches at any depth, the path itself or anything below it.
 */
#include "review/classify.h"

#include <string.h>

#include "base/path.h"
#include "base/vis.h"

#define AGENT "an agent on the host may run commands that its settings name"
#define EDITOR "an editor runs tasks and starts programs that its settings name"

const struct classify_rule classify_tier1[] = {
	{ ".git/hooks", "git runs it by itself" },
	{ ".git", "git's own data: it can name programs that git runs" },
	{ "git~1", "another spelling of .git on some file systems" },
	{ ".husky", "git runs these hooks by itself" },
	{ ".githooks", "git hooks, if the repository's setting points here" },
	{ ".pre-commit-config.yaml", "pre-commit runs what it names at your next commit" },
	{ ".pre-commit-config.yml", "pre-commit runs what it names at your next commit" },
	{ "lefthook*.y*ml", "lefthook runs what it names at your next commit" },
	{ ".lefthook*.y*ml", "lefthook runs what it names at your next commit" },
	{ ".lefthook", "lefthook runs these scripts at your next commit" },
	{ ".mcp.json", "an agent on the host starts the servers that it names" },
	{ ".claude", AGENT },
	{ ".claude.json", AGENT },
	{ ".cursor", AGENT },
	{ ".codex", AGENT },
	{ ".gemini", AGENT },
	{ ".opencode", AGENT },
	{ "opencode.json*", AGENT },
	{ ".hermes", AGENT },
	{ ".grok", AGENT },
	{ ".windsurf", AGENT },
	{ ".kiro", AGENT },
	{ ".roo", AGENT },
	{ ".continue", AGENT },
	{ ".aider.conf.yml", AGENT },
	{ ".vscode", EDITOR },
	{ ".idea/runconfigurations", EDITOR },
	{ ".zed", EDITOR },
	{ "*.code-workspace", EDITOR },
	{ ".exrc", EDITOR },
	{ ".nvimrc", EDITOR },
	{ ".nvim.lua", EDITOR },
	{ ".vimrc", EDITOR },
	{ ".dir-locals*.el", EDITOR },
	{ ".gdbinit", "gdb runs it when it starts here" },
	{ ".lldbinit", "lldb runs it when it starts here" },
	{ ".cargo/config*", "cargo starts the programs that it names" },
	{ ".npmrc", "npm reads registries and scripts from it" },
	{ ".yarnrc*", "yarn loads the program that it names" },
	{ ".yarn", "yarn runs programs from here" },
	{ ".pnpmfile.cjs", "pnpm runs it" },
	{ ".envrc", "direnv runs it when you enter the directory" },
	{ ".mise.toml", "mise runs it when you enter the directory" },
	{ "mise.toml", "mise runs it when you enter the directory" },
	{ ".cloche.yaml", "cloche's settings for this project" },
	{ ".clocheignore", "decides what the next sandbox may see" },
	{ NULL, NULL },
};

const struct classify_rule classify_tier2[] = {
	{ ".gitattributes", "names filters and drivers that git runs" },
	{ ".gitmodules", "names the repositories that git fetches" },
	{ "jenkinsfile", "runs in your CI" },
	{ "makefile", "runs at your next make" },
	{ "gnumakefile", "runs at your next make" },
	{ "*.mk", "runs at your next make" },
	{ "cmakelists.txt", "runs at your next build" },
	{ "*.cmake", "runs at your next build" },
	{ "meson.build", "runs at your next build" },
	{ "configure", "runs at your next build" },
	{ "taskfile.y*ml", "runs at your next task" },
	{ "justfile", "runs at your next just" },
	{ "rakefile", "runs at your next rake" },
	{ "gulpfile*", "runs at your next build" },
	{ "gruntfile*", "runs at your next build" },
	{ "package.json", "its scripts run at your next npm install or npm run" },
	{ "pyproject.toml", "can run code at your next install" },
	{ "setup.py", "runs at your next install" },
	{ "setup.cfg", "can run code at your next install" },
	{ "conftest.py", "runs at your next pytest" },
	{ "sitecustomize.py", "python runs it when it starts" },
	{ "*.pth", "python runs it when it starts" },
	{ "noxfile.py", "runs at your next nox" },
	{ "tox.ini", "names commands that tox runs" },
	{ "build.rs", "runs at your next cargo build" },
	{ "build.gradle*", "runs at your next build" },
	{ "settings.gradle*", "runs at your next build" },
	{ "gradlew*", "runs at your next build" },
	{ "gradle/wrapper", "runs at your next build" },
	{ "pom.xml", "runs at your next build" },
	{ ".mvn", "runs at your next build" },
	{ "mvnw*", "runs at your next build" },
	{ "dockerfile*", "runs at your next image build" },
	{ "docker-compose*.y*ml", "runs at your next compose" },
	{ "compose*.y*ml", "runs at your next compose" },
	{ ".github", "runs in your CI" },
	{ ".gitlab", "runs in your CI" },
	{ ".gitlab-ci.yml", "runs in your CI" },
	{ ".circleci", "runs in your CI" },
	{ ".travis.yml", "runs in your CI" },
	{ "azure-pipelines.yml", "runs in your CI" },
	{ ".devcontainer", "runs when the dev container is built" },
	{ ".devcontainer.json", "runs when the dev container is built" },
	{ ".idea", EDITOR },
	{ "agents.md", "agents take it as instructions" },
	{ "claude.md", "agents take it as instructions" },
	{ "gemini.md", "agents take it as instructions" },
	{ ".cursorrules", "agents take it as instructions" },
	{ ".windsurfrules", "agents take it as instructions" },
	{ NULL, NULL },
};

/*
 * Code points that case-folding file systems drop before they compare
 * (Unicode Default_Ignorable_Code_Point, the ranges in use).
 */
static bool ignorable(uint32_t cp)
{
	return cp == 0xad || cp == 0x34f || cp == 0x61c || cp == 0x115f || cp == 0x1160 ||
	       (cp >= 0x17b4 && cp <= 0x17b5) || (cp >= 0x180b && cp <= 0x180f) ||
	       (cp >= 0x200b && cp <= 0x200f) || (cp >= 0x202a && cp <= 0x202e) ||
	       (cp >= 0x2060 && cp <= 0x206f) || cp == 0x3164 || (cp >= 0xfe00 && cp <= 0xfe0f) ||
	       cp == 0xfeff || cp == 0xffa0 || (cp >= 0xfff0 && cp <= 0xfff8) ||
	       (cp >= 0x1bca0 && cp <= 0x1bca3) || (cp >= 0x1d173 && cp <= 0x1d17a) ||
	       (cp >= 0xe0000 && cp <= 0xe0fff);
}

size_t classify_fold(char *dst, size_t cap, struct span name)
{
	size_t n = 0;

	while (name.len && n < cap) {
		uint32_t cp = name.p[0];
		size_t k = vis_utf8(name, &cp);

		if (k <= 1) {
			uint8_t ch = name.p[0];
			dst[n++] = (char)(ch >= 'A' && ch <= 'Z' ? ch - 'A' + 'a' : ch);
			k = 1;
		} else if (cp == 0x17f) { /* long s folds to s */
			dst[n++] = 's';
		} else if (cp == 0x212a) { /* the Kelvin sign folds to k */
			dst[n++] = 'k';
		} else if (!ignorable(cp)) {
			for (size_t i = 0; i < k && n < cap; i++)
				dst[n++] = (char)name.p[i];
		}
		name.p += k;
		name.len -= k;
	}
	return n;
}

bool classify_is_git(struct span name)
{
	char b[8];
	size_t n = classify_fold(b, sizeof(b), name);

	return (n == 4 && memcmp(b, ".git", 4) == 0) || (n == 5 && memcmp(b, "git~1", 5) == 0);
}

/* '*' is any run of bytes. Linear: only the last star is ever retried. */
static bool glob(const char *p, size_t pn, const char *s, size_t sn)
{
	size_t i = 0, j = 0, star = SIZE_MAX, mark = 0;

	while (j < sn) {
		if (i < pn && p[i] == '*') {
			star = i++;
			mark = j;
		} else if (i < pn && p[i] == s[j]) {
			i++;
			j++;
		} else if (star != SIZE_MAX) {
			i = star + 1;
			j = ++mark;
		} else {
			return false;
		}
	}
	while (i < pn && p[i] == '*')
		i++;
	return i == pn;
}

/* The next component of @s, which shrinks. */
static struct span component(struct span *s)
{
	const uint8_t *slash = memchr(s->p, '/', s->len);
	size_t n = slash ? (size_t)(slash - s->p) : s->len;
	struct span c = span_of(s->p, n);

	n += slash ? 1 : 0;
	s->p += n;
	s->len -= n;
	return c;
}

/* Does @pattern match a run of components that begins where @path begins? */
static bool match_here(const char *pattern, struct span path)
{
	struct span pat = span_str(pattern);

	while (pat.len) {
		struct span want = component(&pat);
		if (path.len == 0)
			return false;
		struct span have = component(&path);
		if (!glob((const char *)want.p, want.len, (const char *)have.p, have.len))
			return false;
	}
	return true;
}

static const char *match_table(const struct classify_rule *t, struct span path)
{
	for (; t->pattern; t++) {
		for (struct span rest = path; rest.len; (void)component(&rest)) {
			if (match_here(t->pattern, rest))
				return t->reason;
		}
	}
	return NULL;
}

enum classify_tier classify_path(struct span path, const char **out_reason)
{
	char folded[PATH_BYTES_MAX];

	path = span_of(folded, classify_fold(folded, sizeof(folded), path));
	*out_reason = match_table(classify_tier1, path);
	if (*out_reason)
		return CLASSIFY_AUTO;
	*out_reason = match_table(classify_tier2, path);
	return *out_reason ? CLASSIFY_BUILD : CLASSIFY_PLAIN;
}

enum classify_link classify_link_text(struct span text, uint32_t depth)
{
	bool named = false;

	if (text.len == 0 || memchr(text.p, '\0', text.len))
		return CLASSIFY_LINK_BAD;
	if (text.p[0] == '/')
		return CLASSIFY_LINK_ABSOLUTE;
	while (text.len) {
		struct span c = component(&text);
		if (c.len == 0 || (c.len == 1 && c.p[0] == '.'))
			continue;
		if (c.len == 2 && memcmp(c.p, "..", 2) == 0) {
			if (named)
				return CLASSIFY_LINK_UNCLEAR;
			if (depth-- == 0)
				return CLASSIFY_LINK_LEAVES;
			continue;
		}
		named = true;
		if (classify_is_git(c))
			return CLASSIFY_LINK_GIT;
	}
	return CLASSIFY_LINK_INSIDE;
}
