/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_report.c - what the front end tells the user about a scan, as JSON.
 *
 * {
 *   "schema": 1,
 *   "projects": [ { "name", "path"[, "hex"], "git": "none|directory|file|link" } ],
 *   "counts": { "entries", "files", "bytes", "directories", "symlinks", "inodes",
 *               "tracked", "ignored", "generated" },
 *   "image": { "meta_blocks", "data_block", "blocks" },
 *   "lists": { NAME: { "total", "items": [ ITEM ] } }
 * }
 *
 * ITEM: { "project": index, "path"[, "hex"][, "text"][, "pattern"][, "tracked": true] };
 * without project and path when it is about the command line. Names of lists:
 *
 *   hidden          security patterns ("pattern")      excluded     .clocheignore, --exclude, heavy
 *   special         fifos, sockets, devices            unreadable
 *   links_dropped   leave the project ("text")         own_state    cloche's own folders
 *   limits          too deep or too long               changed      while the scan ran
 *   links_dangling  point to what is hidden            links_relative  were absolute ("text")
 *   odd_names       no plain text                      git_hidden   hooks and the like
 *   negations       of security patterns, no effect ("text")
 *   ignore_files    not honoured ("text": why)         alternates   objects elsewhere
 *   gitfiles_outside  git will not work there ("text") gitfiles     submodules ("text")
 *   git_links       .git is a symlink                  config_keys  not carried ("text": names)
 *   credentials     removed from urls ("text": how many)
 *   config_bad, index_bad ("text": why), index_split, rules_cut
 *
 * An error instead: { "schema": 1, "error": text, "hint": text }.
 * All text is visible ASCII and printable UTF-8; "hex" are the bytes of the path.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/vis.h"
#include "workspace/scan_priv.h"

enum tree_list {
	LIST_HIDDEN,
	LIST_EXCLUDED,
	LIST_SPECIAL,
	LIST_UNREADABLE,
	LIST_LINKS_DROPPED,
	LIST_OWN_STATE,
	LIST_LIMITS,
	LIST_CHANGED,
	LIST_DANGLING,
	LIST_ODD,
	LIST_GIT_HIDDEN,
	TREE_LISTS
};

static const char *const tree_names[TREE_LISTS] = {
	"hidden", "excluded", "special",        "unreadable", "links_dropped", "own_state",
	"limits", "changed",  "links_dangling", "odd_names",  "git_hidden",
};

static const char *const note_names[NOTE_KINDS] = {
	[NOTE_NEGATION] = "negations",      [NOTE_IGNORE_FILE] = "ignore_files",
	[NOTE_ALTERNATES] = "alternates",   [NOTE_GITFILE_OUT] = "gitfiles_outside",
	[NOTE_GITFILE_IN] = "gitfiles",     [NOTE_GIT_LINK] = "git_links",
	[NOTE_CONFIG] = "config_keys",      [NOTE_CREDENTIALS] = "credentials",
	[NOTE_CONFIG_BAD] = "config_bad",   [NOTE_INDEX_BAD] = "index_bad",
	[NOTE_INDEX_SPLIT] = "index_split", [NOTE_RELATIVE] = "links_relative",
	[NOTE_RULES_CUT] = "rules_cut",
};

struct out {
	struct buf b;
	int ret; /* the first failure; everything after it is a no-op */
};

static void put(struct out *o, const char *s)
{
	if (o->ret == 0)
		o->ret = buf_put(&o->b, s, strlen(s));
}

static void put_number(struct out *o, const char *key, uint64_t v, const char *end)
{
	if (o->ret == 0)
		o->ret = buf_printf(&o->b, "\"%s\": %" PRIu64 "%s", key, v, end);
}

/* What vis lets out has no control byte: quotes and backslashes are left to escape. */
static void put_text(struct out *o, struct span s)
{
	AUTO_BUF struct buf vis = { 0 };

	if (o->ret == 0)
		o->ret = vis_put(&vis, s, 0);
	put(o, "\"");
	for (size_t i = 0; i < vis.len && o->ret == 0; i++) {
		if (vis.p[i] == '"' || vis.p[i] == '\\')
			put(o, "\\");
		if (o->ret == 0)
			o->ret = buf_put(&o->b, &vis.p[i], 1);
	}
	put(o, "\"");
}

/* Can the visible text be told from the bytes themselves? */
static bool is_plain(struct span s)
{
	for (size_t at = 0; at < s.len;) {
		AUTO_BUF struct buf vis = { 0 };
		uint32_t cp = 0;
		size_t n = vis_utf8(span_of(s.p + at, s.len - at), &cp);

		if (n == 0 || cp < 0x20 || cp == 0x7f)
			return false;
		if (cp >= 0x80 && (vis_put(&vis, span_of(s.p + at, n), 0) < 0 || vis.len != n))
			return false;
		at += n;
	}
	return true;
}

static void put_bytes(struct out *o, const char *key, struct span s)
{
	put(o, "\"");
	put(o, key);
	put(o, "\": ");
	put_text(o, s);
	if (is_plain(s))
		return;
	put(o, ", \"hex\": \"");
	for (size_t i = 0; i < s.len && o->ret == 0; i++)
		o->ret = buf_printf(&o->b, "%02x", s.p[i]);
	put(o, "\"");
}

static void put_item(struct out *o, const struct node *n, struct span text, bool has_text)
{
	AUTO_BUF struct buf path = { 0 };

	put(o, "{ ");
	if (n) {
		put_number(o, "project", n->project, ", ");
		if (o->ret == 0)
			o->ret = scan_path(n, &path);
		put_bytes(o, "path", span_of(path.p, path.len));
		if (n->pattern) {
			put(o, ", \"pattern\": ");
			put_text(o, span_str(n->pattern));
		}
		if (n->flags & MANIFEST_TRACKED)
			put(o, ", \"tracked\": true");
	}
	if (has_text) {
		put(o, n ? ", \"text\": " : "\"text\": ");
		put_text(o, text);
	}
	put(o, " }");
}

/* Which list a node of the tree belongs to; TREE_LISTS for none. */
static enum tree_list list_of(const struct node *n)
{
	if (n->own & OWN_GIT_HIDE)
		return LIST_GIT_HIDDEN;
	if (n->flags & MANIFEST_HIDDEN)
		return LIST_HIDDEN;
	if (n->flags & MANIFEST_EXCLUDED)
		return LIST_EXCLUDED;
	if (n->flags & MANIFEST_DANGLING)
		return LIST_DANGLING;
	switch ((enum manifest_why)n->why) {
	case MANIFEST_WHY_KIND:
		return LIST_SPECIAL;
	case MANIFEST_WHY_UNREADABLE:
		return LIST_UNREADABLE;
	case MANIFEST_WHY_LINK_OUT:
		return LIST_LINKS_DROPPED;
	case MANIFEST_WHY_OWN_STATE:
		return LIST_OWN_STATE;
	case MANIFEST_WHY_LIMIT:
		return LIST_LIMITS;
	case MANIFEST_WHY_CHANGED:
	case MANIFEST_WHY_OTHER_FS:
		return LIST_CHANGED;
	case MANIFEST_WHY_NONE:
		break;
	}
	return TREE_LISTS;
}

static void put_tree_lists(struct out *o, struct scan *s)
{
	struct list lists[TREE_LISTS] = { 0 };
	uint64_t totals[TREE_LISTS] = { 0 };

	for (uint32_t i = 1; i < s->n_order; i++) {
		struct node *n = s->order[i];
		enum tree_list l = list_of(n);

		if (l != TREE_LISTS && totals[l]++ < SCAN_LIST_MAX)
			*(struct node **)list_add(&lists[l], sizeof(n)) = n;
		if (!is_plain(scan_name(n)) && totals[LIST_ODD]++ < SCAN_LIST_MAX)
			*(struct node **)list_add(&lists[LIST_ODD], sizeof(n)) = n;
	}
	for (int l = 0; l < TREE_LISTS; l++) {
		struct node **nodes = lists[l].p;

		put(o, l ? ",\n\"" : "\"");
		put(o, tree_names[l]);
		put(o, "\": { ");
		put_number(o, "total", totals[l], ", \"items\": [");
		for (size_t i = 0; i < lists[l].n; i++) {
			put(o, i ? ",\n" : "\n");
			put_item(o, nodes[i], span_of(nodes[i]->link, nodes[i]->link_len),
			         nodes[i]->link_len > 0);
		}
		put(o, "] }");
		free(lists[l].p);
	}
}

static int cmp_notes(const void *a, const void *b)
{
	const struct note *x = a, *y = b;
	uint32_t i = x->node ? x->node->index : 0, k = y->node ? y->node->index : 0;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (i != k)
		return i < k ? -1 : 1;
	return span_cmp(span_of(x->text, x->len), span_of(y->text, y->len));
}

static void put_note_lists(struct out *o, struct scan *s)
{
	struct note *notes = s->notes.p;
	size_t at = 0;

	if (s->notes.n)
		qsort(notes, s->notes.n, sizeof(*notes), cmp_notes);
	for (int kind = 0; kind < NOTE_KINDS; kind++) {
		size_t end = at;

		while (end < s->notes.n && notes[end].kind == (enum note_kind)kind)
			end++;
		put(o, ",\n\"");
		put(o, note_names[kind]);
		put(o, "\": { ");
		put_number(o, "total", end - at, ", \"items\": [");
		for (size_t i = at; i < end && i - at < SCAN_LIST_MAX; i++) {
			put(o, i > at ? ",\n" : "\n");
			put_item(o, notes[i].node, span_of(notes[i].text, notes[i].len),
			         notes[i].len > 0);
		}
		put(o, "] }");
		at = end;
	}
}

static const char *git_of(const struct node *root)
{
	const struct node *git = scan_child(root, span_str(".git"));

	if (!git)
		return "none";
	return git->kind == MANIFEST_DIR    ? "directory"
	       : git->kind == MANIFEST_LINK ? "link"
	                                    : "file";
}

static void put_counts(struct out *o, struct scan *s)
{
	uint64_t files = 0, bytes = 0, dirs = 0, links = 0, tracked = 0, ignored = 0, generated = 0;

	for (uint32_t i = 1; i < s->n_order; i++) {
		const struct node *n = s->order[i];

		if (n->flags & MANIFEST_ABSENT)
			continue;
		files += n->kind == MANIFEST_FILE;
		bytes += n->kind == MANIFEST_FILE ? n->size : 0;
		dirs += n->kind == MANIFEST_DIR;
		links += n->kind == MANIFEST_LINK;
		tracked += n->kind != MANIFEST_DIR && n->flags & MANIFEST_TRACKED;
		ignored += n->kind != MANIFEST_DIR && n->flags & MANIFEST_IGNORED;
		generated += n->gen != NULL;
	}
	put(o, "\"counts\": { ");
	put_number(o, "entries", s->n_order, ", ");
	put_number(o, "files", files, ", ");
	put_number(o, "bytes", bytes, ", ");
	put_number(o, "directories", dirs, ", ");
	put_number(o, "symlinks", links, ", ");
	put_number(o, "inodes", s->n_einodes, ", ");
	put_number(o, "tracked", tracked, ", ");
	put_number(o, "ignored", ignored, ", ");
	put_number(o, "generated", generated, " },\n\"image\": { ");
	put_number(o, "meta_blocks", s->meta_blocks, ", ");
	put_number(o, "data_block", s->data_block, ", ");
	put_number(o, "blocks", s->image_blocks, " },\n");
}

static int finish(struct out *o, int fd, struct err *err)
{
	if (o->ret == 0)
		o->ret = fd_pwrite_all(fd, o->b.p, o->b.len, 0);
	buf_fini(&o->b);
	return o->ret < 0 ? err_code(err, o->ret, "cannot write the report") : 0;
}

int scan_report(struct scan *s, struct err *err)
{
	struct out o = { 0 };

	if (s->o->report_fd < 0)
		return 0;
	put(&o, "{ ");
	put_number(&o, "schema", SCAN_REPORT_SCHEMA, ",\n\"projects\": [");
	for (size_t i = 0; i < s->o->n_projects; i++) {
		put(&o, i ? ",\n{ \"name\": " : "\n{ \"name\": ");
		put_text(&o, span_str(s->o->projects[i].name));
		put(&o, ", ");
		put_bytes(&o, "path", span_str(s->o->projects[i].path));
		put(&o, ", \"git\": \"");
		put(&o, git_of(s->roots[i]));
		put(&o, "\" }");
	}
	put(&o, "],\n");
	put_counts(&o, s);
	put(&o, "\"lists\": {\n");
	put_tree_lists(&o, s);
	put_note_lists(&o, s);
	put(&o, "} }\n");
	return finish(&o, s->o->report_fd, err);
}

int scan_report_error(int fd, const struct err *e)
{
	struct out o = { 0 };

	put(&o, "{ ");
	put_number(&o, "schema", SCAN_REPORT_SCHEMA, ", \"error\": ");
	put_text(&o, span_str(e->text));
	put(&o, ", \"hint\": ");
	put_text(&o, span_str(e->hint));
	put(&o, " }\n");
	return finish(&o, fd, NULL);
}
