/* SPDX-License-Identifier: Apache-2.0 */
/* Everything printed here is made visible already: paths, links and reasons by review_wire.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/vis.h"
#include "review/review_priv.h"

#define TRY(x)                       \
	do {                         \
		int try_ = (x);      \
		if (try_ < 0)        \
			return try_; \
	} while (0)

enum { OUT_PIECE = 64 * 1024 };

/* Write what there is, when that is enough for a write or nothing more will come. */
static int drain(int fd, struct buf *out, bool last)
{
	if (out->len < OUT_PIECE && !last)
		return 0;
	int r = fd_write_all(fd, out->p, out->len);
	out->len = 0;
	return r;
}

static const char *const kinds[] = { "", "added", "modified", "deleted", "mode", "type" };
static const char *const types[] = { "none", "directory", "file", "link", "special" };
static const char *const statuses[] = { "pending", "applied", "rejected", "conflict" };

static const char *slash(const struct review_item *it)
{
	uint8_t t = it->c.new_type ? it->c.new_type : it->c.old_type;

	return t == MANIFEST_DIR ? "/" : "";
}

int review_text_item(struct buf *out, const struct review *r, uint32_t i)
{
	const struct review_item *it = review_item(r, i);
	const struct compare_change *c = &it->c;

	TRY(buf_printf(out, "%c %s%s", compare_letter(c->kind), it->path, slash(it)));
	if (it->link)
		TRY(buf_printf(out, " -> %s", it->link));
	if (c->kind == COMPARE_MODE)
		TRY(buf_printf(out, "  %04o -> %04o", c->old_mode & 07777,
		               (c->old_mode & ~0111u) | (c->new_mode & 0111)));
	if (c->kind == COMPARE_TYPE)
		TRY(buf_printf(out, "  %s -> %s", types[c->old_type], types[c->new_type]));
	if (c->kind == COMPARE_DELETED && c->old_type == MANIFEST_DIR)
		TRY(buf_printf(out, "  with %u below", c->subtree));
	if (it->renamed)
		TRY(buf_printf(
			out, c->kind == COMPARE_ADDED ? "  (renamed from %s)" : "  (renamed to %s)",
			it->renamed));
	return buf_put(out, "\n", 1);
}

/* git reads it for nothing by itself: what is configured stays until somebody says so. */
static bool lists_submodules(const struct review_item *it)
{
	return span_eq(path_base(span_of(it->raw.p, it->raw.len)), span_str(".gitmodules"));
}

int review_text_notes(struct buf *out, const struct review *r, uint32_t i)
{
	const struct review_item *it = review_item(r, i);
	const struct compare_change *c = &it->c;

	if (c->tier == CLASSIFY_AUTO)
		TRY(buf_printf(out, "  ! runs by itself: %s\n", it->reason ? it->reason : ""));
	if (c->tier == CLASSIFY_BUILD)
		TRY(buf_printf(out, "  ! %s\n", it->reason ? it->reason : ""));
	if (c->flags & COMPARE_REFUSED)
		TRY(buf_printf(out, "  refused: %s\n", compare_why_str(c->why)));
	else if (it->host > APPLY_ALREADY && c->status != CHANGESET_APPLIED)
		TRY(buf_printf(out, "  %s: %s\n", apply_result_str(it->host),
		               it->host_text ? it->host_text : ""));
	if (c->flags & COMPARE_BREAKS_LINK)
		TRY(buf_printf(out, "  the file has other names on the host: those keep the old "
		                    "content\n"));
	if (c->flags & COMPARE_KEEPS_DIR && c->kind == COMPARE_DELETED)
		TRY(buf_printf(out, "  the directory stays: it holds things that the sandbox could "
		                    "not see\n"));
	if (c->flags & COMPARE_SUSPECT)
		TRY(buf_printf(out,
		               "  empty after a crash of the sandbox: its content may be lost\n"));
	if (c->flags & COMPARE_SETID)
		TRY(buf_printf(out, "  setuid, setgid and sticky bits are not carried\n"));
	if (lists_submodules(it))
		TRY(buf_printf(out, "  the list of submodules changes: run git submodule sync "
		                    "yourself when you have it\n"));
	return 0;
}

/* "1 object", "2 objects" */
static int plural(struct buf *out, const char *sep, uint32_t n, const char *one)
{
	return n ? buf_printf(out, "%s%u %s%s", sep, n, one, n == 1 ? "" : "s") : 0;
}

static int text_git(struct buf *out, const struct compare_git *g)
{
	TRY(buf_printf(out, "git: "));
	TRY(plural(out, "", g->paths, "path"));
	TRY(plural(out, ", ", g->objects, "object"));
	TRY(plural(out, ", ", g->refs, "ref"));
	for (uint32_t i = 0; i < g->n_ref; i++)
		TRY(buf_printf(out, "%s%s", i ? " " : " (", g->ref[i]));
	if (g->n_ref)
		TRY(buf_printf(out, "%s)", g->refs > g->n_ref ? " ..." : ""));
	if (g->hooks)
		TRY(buf_printf(out, ", HOOKS"));
	if (g->config)
		TRY(buf_printf(out, ", config"));
	return buf_printf(out, "; kept in the change set, not applied\n");
}

static int text_list(int fd, struct buf *out, const struct review *r)
{
	const struct compare_summary *s = &r->summary;

	for (uint32_t i = 0; i < r->n_items; i++) {
		struct review_head h;
		review_head(r, i, &h);
		if (h.flags & COMPARE_IGNORED)
			continue;
		TRY(review_text_item(out, r, i));
		if (r->status[i] != CHANGESET_PENDING)
			TRY(buf_printf(out, "  %s\n", statuses[r->status[i]]));
		TRY(review_text_notes(out, r, i));
		TRY(drain(fd, out, false));
	}
	if (s->git.paths)
		TRY(text_git(out, &s->git));
	if (s->ignored)
		TRY(buf_printf(out,
		               "ignored: %u path%s below ignored names; kept, --ignored "
		               "applies them\n",
		               s->ignored, s->ignored == 1 ? "" : "s"));
	if (s->mode_not_carried)
		TRY(buf_printf(out, "not carried: %u change%s of read or write bits\n",
		               s->mode_not_carried, s->mode_not_carried == 1 ? "" : "s"));
	if (r->n_interrupted)
		TRY(buf_printf(out, "an apply was interrupted: %zu chosen change%s left to do\n",
		               r->n_interrupted, r->n_interrupted == 1 ? " is" : "s are"));
	return drain(fd, out, true);
}

int review_text_list(int fd, const struct review *r)
{
	AUTO_BUF struct buf out = { 0 };

	return text_list(fd, &out, r);
}

static int text_result(int fd, struct buf *out, const struct review *r,
                       const struct review_result *res)
{
	for (size_t i = 0; i < res->n; i++) {
		const struct review_outcome *o = &res->outcomes[i];
		const struct review_item *it = review_item(r, o->change);

		TRY(buf_printf(out, "%-13s %c %s%s", apply_result_str(o->result),
		               compare_letter(it->c.kind), it->path, slash(it)));
		if (o->text)
			TRY(buf_printf(out, "  (%s)", o->text));
		TRY(buf_put(out, "\n", 1));
		if (o->result == APPLY_DONE && it->c.tier == CLASSIFY_BUILD)
			TRY(buf_printf(out, "  ! %s\n", it->reason ? it->reason : ""));
		if (o->result == APPLY_DONE && o->broke_link)
			TRY(buf_printf(out,
			               "  its other names on the host keep the old content\n"));
		if (o->result == APPLY_DONE && o->no_setid)
			TRY(buf_printf(out, "  its setuid, setgid or sticky bit is gone\n"));
		if (o->result == APPLY_DONE && lists_submodules(it))
			TRY(buf_printf(out,
			               "  the list of submodules changed: run git submodule sync "
			               "(and update) yourself\n"));
		TRY(drain(fd, out, false));
	}
	struct changeset_counts c;
	review_counts(r, &c);
	TRY(buf_printf(out, "%u applied, %u pending, %u in conflict, %u rejected\n",
	               res->done + res->already, c.pending, c.conflict, c.rejected));
	if (res->skipped_tier1)
		TRY(buf_printf(out,
		               "%u left out because they run by themselves: apply them by "
		               "naming the path\n",
		               res->skipped_tier1));
	return drain(fd, out, true);
}

int review_text_result(int fd, const struct review *r, const struct review_result *res)
{
	AUTO_BUF struct buf out = { 0 };

	return text_result(fd, &out, r, res);
}

/* --- JSON --- */

static int put_str(struct buf *out, const char *key, const char *s)
{
	TRY(buf_printf(out, "\"%s\":\"", key));
	for (; *s; s++) {
		uint8_t ch = (uint8_t)*s;
		if (ch == '"' || ch == '\\')
			TRY(buf_printf(out, "\\%c", ch));
		else if (ch < 0x20 || ch == 0x7f)
			TRY(buf_printf(out, "\\u%04x", ch));
		else
			TRY(buf_put(out, s, 1));
	}
	return buf_put(out, "\"", 1);
}

static int put_time(struct buf *out, const char *key, int64_t s)
{
	char text[40];
	time_t t = (time_t)s;
	struct tm tm;

	if (!gmtime_r(&t, &tm) || strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		return buf_printf(out, "\"%s\":null", key);
	return buf_printf(out, "\"%s\":\"%s\"", key, text);
}

static int put_counts(struct buf *out, const struct changeset_counts *c)
{
	return buf_printf(out,
	                  "\"counts\":{\"pending\":%u,\"applied\":%u,\"rejected\":%u,"
	                  "\"conflict\":%u,\"aside\":%u}",
	                  c->pending, c->applied, c->rejected, c->conflict, c->aside);
}

static int put_meta(struct buf *out, const struct changeset_meta *m)
{
	TRY(put_str(out, "id", m->id));
	TRY(buf_put(out, ",", 1));
	TRY(put_str(out, "agent", m->agent));
	TRY(buf_put(out, ",", 1));
	TRY(put_str(out, "session", m->session));
	TRY(buf_put(out, ",", 1));
	TRY(put_str(out, "sandbox", m->sandbox));
	TRY(buf_put(out, ",", 1));
	TRY(put_time(out, "created", m->created_s));
	TRY(buf_put(out, ",", 1));
	if (m->closed_s)
		TRY(put_time(out, "closed", m->closed_s));
	else
		TRY(buf_printf(out, "\"closed\":null"));
	TRY(buf_printf(out, ",\"exit_status\":%d,\"recovered\":%s,\"projects\":[", m->exit_status,
	               m->recovered ? "true" : "false"));
	for (uint32_t i = 0; i < m->n_projects; i++) {
		AUTO_FREE char *shown = vis_dup(span_str(m->projects[i].path));
		TRY(buf_printf(out, "%s{", i ? "," : ""));
		TRY(put_str(out, "path", shown));
		TRY(buf_put(out, "}", 1));
	}
	return buf_put(out, "]", 1);
}

int review_json_sets(struct buf *out, const struct changeset_list *l)
{
	TRY(buf_printf(out, "{\"schema\":\"cloche.changes.1\",\"damaged\":%u,\"sets\":[",
	               l->damaged));
	for (size_t i = 0; i < l->n; i++) {
		TRY(buf_printf(out, "%s{", i ? "," : ""));
		TRY(put_meta(out, &l->sets[i]));
		TRY(buf_put(out, ",", 1));
		if (l->sets[i].counted)
			TRY(put_counts(out, &l->sets[i].counts));
		else
			TRY(buf_printf(out, "\"counts\":null"));
		TRY(buf_put(out, "}", 1));
	}
	return buf_printf(out, "]}\n");
}

static int put_hex(struct buf *out, const char *key, struct span s)
{
	TRY(buf_printf(out, "\"%s\":\"", key));
	for (size_t i = 0; i < s.len; i++)
		TRY(buf_printf(out, "%02x", s.p[i]));
	return buf_put(out, "\"", 1);
}

static int put_opt(struct buf *out, const char *key, const char *s)
{
	if (!s)
		return 0;
	TRY(buf_put(out, ",", 1));
	return put_str(out, key, s);
}

static int put_item(struct buf *out, const struct review_item *it)
{
	static const struct {
		uint16_t flag;
		const char *name;
	} flags[] = {
		{ COMPARE_IGNORED, "ignored" },
		{ COMPARE_SUSPECT, "suspect" },
		{ COMPARE_BREAKS_LINK, "breaks_hard_link" },
		{ COMPARE_KEEPS_DIR, "keeps_directory" },
		{ COMPARE_SETID, "setid_not_carried" },
		{ COMPARE_TRACKED, "tracked" },
	};
	const struct compare_change *c = &it->c;

	TRY(buf_put(out, "{", 1));
	TRY(put_str(out, "path", it->path));
	if (!it->raw_ok) {
		TRY(buf_put(out, ",", 1));
		TRY(put_hex(out, "path_hex", span_of(it->raw.p, it->raw.len)));
	}
	TRY(buf_printf(out, ",\"kind\":\"%s\",\"status\":\"%s\",\"tier\":%u", kinds[c->kind],
	               c->flags & COMPARE_REFUSED ? "refused" : statuses[c->status], c->tier));
	TRY(put_opt(out, "reason", it->reason));
	if (c->flags & COMPARE_REFUSED)
		TRY(put_opt(out, "refused", compare_why_str(c->why)));
	TRY(buf_printf(out, ",\"old\":{\"type\":\"%s\",\"mode\":\"%04o\",\"size\":%" PRIu64 "}",
	               types[c->old_type], c->old_mode & 07777, c->old_size));
	TRY(buf_printf(out, ",\"new\":{\"type\":\"%s\",\"mode\":\"%04o\",\"size\":%" PRIu64 "}",
	               types[c->new_type], c->new_mode & 07777, c->new_size));
	TRY(put_opt(out, "link", it->link));
	TRY(put_opt(out, "old_link", it->old_link));
	TRY(put_opt(out, c->kind == COMPARE_ADDED ? "renamed_from" : "renamed_to", it->renamed));
	if (c->subtree)
		TRY(buf_printf(out, ",\"below\":%u", c->subtree));
	TRY(buf_printf(out, ",\"flags\":["));
	bool first = true;
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		if (!(c->flags & flags[i].flag))
			continue;
		TRY(buf_printf(out, "%s\"%s\"", first ? "" : ",", flags[i].name));
		first = false;
	}
	TRY(buf_printf(out, "],\"host\":\"%s\"",
	               it->host == APPLY_DONE ? "unchanged" : apply_result_str(it->host)));
	TRY(put_opt(out, "host_reason", it->host_text));
	return buf_put(out, "}", 1);
}

static int put_summary(struct buf *out, const struct compare_summary *s)
{
	TRY(buf_printf(out,
	               "\"summary\":{\"added\":%u,\"modified\":%u,\"deleted\":%u,\"mode\":%u,"
	               "\"type\":%u,\"tier1\":%u,\"tier2\":%u,\"ignored\":%u,\"refused\":%u,"
	               "\"suspect\":%u,\"mode_not_carried\":%u,\"unchanged\":%u,\"beside\":%u",
	               s->added, s->modified, s->deleted, s->mode, s->type, s->tier1, s->tier2,
	               s->ignored, s->refused, s->suspect, s->mode_not_carried, s->unchanged,
	               s->beside));
	TRY(buf_printf(out,
	               ",\"git\":{\"paths\":%u,\"objects\":%u,\"refs\":%u,\"deleted\":%u,"
	               "\"hooks\":%s,\"config\":%s}}",
	               s->git.paths, s->git.objects, s->git.refs, s->git.deleted,
	               s->git.hooks ? "true" : "false", s->git.config ? "true" : "false"));
	return 0;
}

static int json_list(int fd, struct buf *out, const struct review *r)
{
	struct changeset_counts c;

	review_counts(r, &c);
	TRY(buf_printf(out, "{\"schema\":\"cloche.review.1\","));
	TRY(put_meta(out, &r->meta));
	TRY(buf_put(out, ",", 1));
	TRY(put_counts(out, &c));
	TRY(buf_put(out, ",", 1));
	TRY(put_summary(out, &r->summary));
	TRY(buf_printf(out, ",\"interrupted\":%zu,\"changes\":[", r->n_interrupted));
	for (uint32_t i = 0; i < r->n_items; i++) {
		if (i)
			TRY(buf_put(out, ",\n", 2));
		TRY(put_item(out, review_item(r, i)));
		TRY(drain(fd, out, false));
	}
	TRY(buf_printf(out, "]}\n"));
	return drain(fd, out, true);
}

int review_json_list(int fd, const struct review *r)
{
	AUTO_BUF struct buf out = { 0 };

	return json_list(fd, &out, r);
}

static int json_result(int fd, struct buf *out, const struct review *r,
                       const struct review_result *res)
{
	struct changeset_counts c;

	review_counts(r, &c);
	TRY(buf_printf(out, "{\"schema\":\"cloche.apply.1\","));
	TRY(put_str(out, "id", r->meta.id));
	TRY(buf_put(out, ",", 1));
	TRY(put_counts(out, &c));
	TRY(buf_printf(out,
	               ",\"exit\":%d,\"done\":%u,\"already\":%u,\"conflict\":%u,\"refused\":%u,"
	               "\"blocked\":%u,\"failed\":%u,\"skipped_tier1\":%u,\"results\":[",
	               res->exit_code, res->done, res->already, res->conflict, res->refused,
	               res->blocked, res->failed, res->skipped_tier1));
	for (size_t i = 0; i < res->n; i++) {
		const struct review_outcome *o = &res->outcomes[i];
		const struct review_item *it = review_item(r, o->change);
		TRY(drain(fd, out, false));
		TRY(buf_printf(out, "%s{", i ? ",\n" : ""));
		TRY(put_str(out, "path", it->path));
		if (!it->raw_ok) {
			TRY(buf_put(out, ",", 1));
			TRY(put_hex(out, "path_hex", span_of(it->raw.p, it->raw.len)));
		}
		TRY(buf_printf(out, ",\"kind\":\"%s\",\"result\":\"%s\",\"tier\":%u",
		               kinds[it->c.kind], apply_result_str(o->result), it->c.tier));
		TRY(put_opt(out, "reason", o->text));
		if (it->c.tier)
			TRY(put_opt(out, "tier_reason", it->reason));
		TRY(buf_printf(out, ",\"broke_hard_link\":%s}", o->broke_link ? "true" : "false"));
	}
	TRY(buf_printf(out, "]}\n"));
	return drain(fd, out, true);
}

int review_json_result(int fd, const struct review *r, const struct review_result *res)
{
	AUTO_BUF struct buf out = { 0 };

	return json_result(fd, &out, r, res);
}
