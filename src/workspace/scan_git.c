/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_git.c - what the guest sees of git directories.
 *
 * Found by shape, not by name alone: submodules' lie in .git/modules, bare
 * repositories anywhere. Nothing is ever run, and the host's files are only
 * read; what must differ is generated content in the image.
 */
#include <errno.h>
#include <stdio.h>

#include "workspace/gitconfig.h"
#include "workspace/gitindex.h"
#include "workspace/scan_priv.h"

enum { GITFILE_MAX = 64 * 1024 };

static struct generated *generate(struct scan *s, struct node *n)
{
	struct generated *g = xcalloc(1, sizeof(*g));

	g->node = n;
	n->gen = g;
	n->flags |= MANIFEST_GENERATED;
	*(struct generated **)list_add(&s->generated, sizeof(g)) = g;
	return g;
}

static void git_hide(struct scan *s, struct node *n)
{
	if (!n || n->flags & MANIFEST_ABSENT)
		return;
	n->own |= OWN_GIT_HIDE;
	scan_hide(s, n, MANIFEST_HIDDEN, 0);
}

static bool usable(const struct node *n, uint8_t kind)
{
	return n && n->kind == kind && !(n->flags & MANIFEST_ABSENT);
}

static void note_report(struct scan *s, struct node *n, const struct gitconfig_report *r)
{
	AUTO_BUF struct buf text = { 0 };

	for (size_t i = 0; i < r->n_names; i++)
		if (buf_printf(&text, "%s%s", i ? " " : "", r->names[i]) < 0)
			return;
	if (r->dropped)
		scan_note(s, NOTE_CONFIG, n, span_of(text.p, text.len));
	text.len = 0;
	if (r->credentials && buf_printf(&text, "%u", r->credentials) == 0)
		scan_note(s, NOTE_CREDENTIALS, n, span_of(text.p, text.len));
}

/* One config file. A broken one becomes the least that makes a repository. */
static int clean_config(struct scan *s, struct node *n, int flags, bool *out_sha256,
                        struct err *err)
{
	AUTO_FREE char *text = NULL;
	struct gitconfig_report r = { 0 };
	size_t len = 0;
	uint32_t line = 0;
	char why[96];

	if (!n || n->flags & MANIFEST_ABSENT)
		return 0;
	if (n->kind != MANIFEST_FILE) { /* a link would lead to what was not cleaned */
		git_hide(s, n);
		scan_note(s, NOTE_CONFIG_BAD, n, span_str("not a regular file"));
		return 0;
	}
	struct generated *g = generate(s, n);
	int ret = scan_read(s, n, GITCONFIG_BYTES_MAX, &text, &len);
	if (ret == 0)
		ret = gitconfig_sanitise(span_of(text, len), flags, &g->content, &r, &line);
	if (ret == -ENOMEM)
		return err_code(err, ret, "cannot clean a git configuration");
	if (ret < 0) {
		static const char least[] = "[core]\n\trepositoryformatversion = 0\n";

		if (line)
			(void)snprintf(why, sizeof(why), "line %u: %s", line,
			               ret == -EPROTO ? "not understood" : strerrordesc_np(-ret));
		else
			(void)snprintf(why, sizeof(why), "%s", strerrordesc_np(-ret));
		scan_note(s, NOTE_CONFIG_BAD, n, span_str(why));
		if (buf_put(&g->content, least, sizeof(least) - 1) < 0)
			return err_code(err, -ENOMEM, "cannot clean a git configuration");
		return 0;
	}
	*out_sha256 = r.sha256;
	note_report(s, n, &r);
	gitconfig_report_fini(&r);
	return 0;
}

static bool below_modules(const struct node *dir)
{
	for (; !(dir->own & OWN_PROJECT); dir = dir->parent)
		if (span_eq(scan_name(dir), span_str("modules")))
			return dir->flags & MANIFEST_GIT;
	return false;
}

/* Copies that editors, locks and other cases of the name leave: "config~", "config.lock". */
static bool is_stray_config(const struct node *n)
{
	struct span name = scan_name(n);

	return name.len >= 6 && strncasecmp((const char *)name.p, "config", 6) == 0 &&
	       !span_eq(name, span_str("config")) && !span_eq(name, span_str("config.worktree"));
}

static int clean_gitdir(struct scan *s, struct node *dir, struct err *err)
{
	/* programs, and where urls and logins lie besides the configuration */
	static const char *const hidden[] = { "hooks", "remotes", "branches", "credentials" };
	struct node *info, *objects, *worktrees, *alternates = NULL;
	struct repo *r;
	bool sha256 = false, ignored = false;
	bool dotgit = dir->name_len == 4 && strncasecmp((const char *)dir->name, ".git", 4) == 0;
	int flags = below_modules(dir) ? GITCONFIG_SUBMODULE : 0;
	int ret;

	if (dir->flags & MANIFEST_ABSENT)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
		git_hide(s, scan_child(dir, span_str(hidden[i])));
	for (uint32_t i = 0; i < dir->n_kids; i++)
		if (is_stray_config(&dir->kids[i]))
			git_hide(s, &dir->kids[i]);
	info = scan_child(dir, span_str("annex"));
	if (info)
		git_hide(s, scan_child(info, span_str("creds")));
	info = scan_child(dir, span_str("info"));
	if (info)
		git_hide(s, scan_child(info, span_str("attributes")));
	objects = scan_child(dir, span_str("objects"));
	if (objects && (info = scan_child(objects, span_str("info"))))
		alternates = scan_child(info, span_str("alternates"));
	if (usable(alternates, MANIFEST_FILE) && alternates->size > 0)
		scan_note(s, NOTE_ALTERNATES, dir, (struct span){ 0 });
	ret = clean_config(s, scan_child(dir, span_str("config")), flags, &sha256, err);
	if (ret == 0)
		ret = clean_config(s, scan_child(dir, span_str("config.worktree")), flags, &ignored,
		                   err);
	worktrees = scan_child(dir, span_str("worktrees"));
	for (uint32_t i = 0; ret == 0 && worktrees && i < worktrees->n_kids; i++)
		ret = clean_config(s, scan_child(&worktrees->kids[i], span_str("config.worktree")),
		                   0, &ignored, err);
	if (ret < 0)
		return ret;
	r = list_add(&s->repos, sizeof(*r));
	*r = (struct repo){ .gitdir = dir,
		            .worktree = dotgit && !(dir->own & OWN_PROJECT) ? dir->parent : NULL,
		            .hash_bytes = sha256 ? GITINDEX_SHA256 : GITINDEX_SHA1 };
	return 0;
}

/* The node that a relative path leads to from @dir; NULL when it leaves or ends. */
static struct node *walk(struct node *dir, struct span path)
{
	while (path.len) {
		const uint8_t *slash = memchr(path.p, '/', path.len);
		struct span c = span_of(path.p, slash ? (size_t)(slash - path.p) : path.len);

		path = slash ? span_of(slash + 1, path.len - c.len - 1) : (struct span){ 0 };
		if (c.len == 0 || span_eq(c, span_str(".")))
			continue;
		if (span_eq(c, span_str(".."))) {
			if (dir->own & OWN_PROJECT)
				return NULL;
			dir = dir->parent;
		} else {
			dir = scan_child(dir, c);
			if (!dir)
				return NULL;
		}
	}
	return dir;
}

/* A .git that is a file: of a worktree (elsewhere, mostly) or of a submodule. */
static int look_at_gitfile(struct scan *s, struct node *n, struct err *err)
{
	AUTO_FREE char *text = NULL;
	size_t len = 0;
	struct node *to = NULL;

	if (n->kind == MANIFEST_LINK) {
		scan_note(s, NOTE_GIT_LINK, n, span_of(n->link, n->link_len));
		return 0;
	}
	if (!usable(n, MANIFEST_FILE))
		return 0;
	int ret = scan_read(s, n, GITFILE_MAX, &text, &len);
	if (ret == -ENOMEM)
		return err_code(err, ret, "cannot read a .git file");
	while (len && (text[len - 1] == '\n' || text[len - 1] == '\r'))
		len--;
	if (ret < 0 || len < 8 || memcmp(text, "gitdir: ", 8) != 0) {
		scan_note(s, NOTE_GITFILE_OUT, n, (struct span){ 0 });
		return 0;
	}
	struct span path = span_of(text + 8, len - 8);
	if (path.len && path.p[0] != '/')
		to = walk(n->parent, path);
	scan_note(s, to ? NOTE_GITFILE_IN : NOTE_GITFILE_OUT, n, path);
	struct repo *repos = s->repos.p;
	for (size_t i = 0; to && i < s->repos.n; i++)
		if (repos[i].gitdir == to && !repos[i].worktree)
			repos[i].worktree = n->parent;
	return 0;
}

int scan_git_config(struct scan *s, struct err *err)
{
	struct node **dirs = s->gitdirs.p, **files = s->dotgits.p;
	int ret = 0;

	for (size_t i = 0; i < s->gitdirs.n && ret == 0; i++)
		ret = clean_gitdir(s, dirs[i], err);
	for (size_t i = 0; i < s->dotgits.n && ret == 0; i++)
		ret = look_at_gitfile(s, files[i], err);
	return ret;
}

/* ---- tracked names ---- */

struct marker {
	struct scan *s;
	struct node *top;
	/* the path before, and its nodes: an index is sorted, most of a path repeats */
	struct buf last;
	struct node *dirs[SCAN_DEPTH_MAX + 1];
	size_t ends[SCAN_DEPTH_MAX + 1]; /* bytes of the path up to and with dirs[k]'s '/' */
	size_t depth;
	uint32_t marked;
};

/*
 * The node of an index's path. *out_absent: it, or a directory on the way, is
 * not in the image. NULL also for what is not on the disk.
 */
static struct node *find(struct marker *m, struct span path, bool *out_absent)
{
	size_t same = 0, keep = 0;

	while (same < path.len && same < m->last.len && path.p[same] == m->last.p[same])
		same++;
	while (keep < m->depth && m->ends[keep] <= same)
		keep++;
	m->depth = keep;
	m->last.len = 0;
	*out_absent = false;
	if (buf_put(&m->last, path.p, path.len) < 0)
		m->depth = 0;
	struct node *at = keep ? m->dirs[keep - 1] : m->top;
	size_t pos = keep ? m->ends[keep - 1] : 0;
	for (;;) {
		const uint8_t *slash = memchr(path.p + pos, '/', path.len - pos);
		size_t end = slash ? (size_t)(slash - path.p) : path.len;
		struct node *n = scan_child(at, span_of(path.p + pos, end - pos));

		if (!n)
			return NULL;
		if (n->flags & MANIFEST_ABSENT) {
			*out_absent = true;
			return n;
		}
		if (!slash)
			return n;
		if (m->depth < ARRAY_LEN(m->dirs)) {
			m->dirs[m->depth] = n;
			m->ends[m->depth++] = end + 1;
		}
		at = n;
		pos = end + 1;
	}
}

static int mark(void *arg, const struct gitindex_entry *e)
{
	struct marker *m = arg;
	bool absent;

	if (e->path.len == 0)
		return 0;
	struct node *n = find(m, e->path, &absent);
	if (absent) {
		m->s->tracked_absent = true;
		n->flags |= MANIFEST_TRACKED;
	}
	if (!n)
		return 0;
	n->flags |= MANIFEST_TRACKED;
	if (n->kind != MANIFEST_DIR) /* git does not ignore what it tracks */
		n->flags &= (uint16_t)~MANIFEST_IGNORED;
	for (n = n->parent; n != m->top && !(n->flags & MANIFEST_TRACKED); n = n->parent)
		n->flags |= MANIFEST_TRACKED;
	return 0;
}

static bool is_absent(void *arg, const struct gitindex_entry *e)
{
	struct marker *m = arg;
	bool absent = false;

	if (e->path.len)
		(void)find(m, e->path, &absent);
	m->marked += absent && !e->skip_worktree;
	return absent;
}

/* The bytes of an index. A mapping that the host cuts short would kill us: read it. */
static int load(struct scan *s, struct node *n, char **out, size_t *out_len)
{
	return scan_read(s, n, GITINDEX_BYTES_MAX, out, out_len);
}

static void index_failed(struct scan *s, struct node *n, int ret)
{
	s->index_failed = true;
	scan_note(s, NOTE_INDEX_BAD, n,
	          span_str(ret == -EPROTO ? "not understood" : strerrordesc_np(-ret)));
}

static int mark_repo(struct scan *s, const struct repo *r, struct node *file,
                     struct gitindex_info *info)
{
	AUTO_FREE char *text = NULL;
	struct marker m = { .s = s, .top = r->worktree };
	size_t len = 0;
	int ret = load(s, file, &text, &len);

	if (ret == 0)
		ret = gitindex_read(span_of(text, len), r->hash_bytes, mark, &m, info);
	buf_fini(&m.last);
	return ret;
}

int scan_git_tracked(struct scan *s, struct err *err)
{
	struct repo *repos = s->repos.p;

	for (size_t i = 0; i < s->repos.n; i++) {
		struct gitindex_info info = { 0 };
		struct node *dir = repos[i].gitdir;
		struct node *file = scan_child(dir, span_str("index"));

		if (!repos[i].worktree || !file || file->flags & MANIFEST_ABSENT)
			continue;
		int ret = file->kind == MANIFEST_FILE ? mark_repo(s, &repos[i], file, &info)
		                                      : -EINVAL;
		if (ret == -ENOMEM)
			return err_code(err, ret, "cannot read a git index");
		if (ret < 0)
			index_failed(s, file, ret);
		if (info.split) {
			/* names in the shared part: a superset of what is tracked, which is enough */
			s->index_failed = true;
			for (uint32_t k = 0; k < dir->n_kids; k++) {
				struct node *shared = &dir->kids[k];

				if (shared->kind == MANIFEST_FILE && shared->name_len > 12 &&
				    memcmp(shared->name, "sharedindex.", 12) == 0 &&
				    mark_repo(s, &repos[i], shared, &info) == -ENOMEM)
					return err_code(err, -ENOMEM, "cannot read a git index");
			}
			scan_note(s, NOTE_INDEX_SPLIT, file, (struct span){ 0 });
		}
	}
	return 0;
}

int scan_git_index(struct scan *s, struct err *err)
{
	struct repo *repos = s->repos.p;

	if (!s->tracked_absent)
		return 0;
	for (size_t i = 0; i < s->repos.n; i++) {
		struct node *file = scan_child(repos[i].gitdir, span_str("index"));
		struct marker m = { .s = s, .top = repos[i].worktree };
		AUTO_FREE char *text = NULL;
		AUTO_BUF struct buf copy = { 0 };
		size_t len = 0;

		if (!repos[i].worktree || !usable(file, MANIFEST_FILE))
			continue;
		int ret = load(s, file, &text, &len);
		if (ret == 0)
			ret = gitindex_skip(span_of(text, len), repos[i].hash_bytes, is_absent, &m,
			                    &copy);
		buf_fini(&m.last);
		if (ret == -ENOMEM)
			return err_code(err, ret, "cannot copy a git index");
		if (ret < 0 || m.marked == 0)
			continue; /* noted when it was read first, or nothing of it is hidden */
		struct generated *g = generate(s, file);
		g->content = copy;
		copy = (struct buf){ 0 };
	}
	return 0;
}
