/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line mode. Decisions are written as they are made, what was accepted is
 * applied at the end; whoever leaves early leaves the rest pending.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "review/review_priv.h"

enum answer {
	ANSWER_NO,
	ANSWER_YES,
	ANSWER_ALL,
	ANSWER_NONE,
	ANSWER_QUIT,
	ANSWER_HELP,
	ANSWER_END
};

static const char help[] = "y  accept this change\n"
			   "n  reject it (Enter does the same); it can be reviewed again\n"
			   "a  accept this and all that follow; risky ones are still asked\n"
			   "A  reject this and all that follow\n"
			   "q  stop; what was not answered stays pending\n";

static int say(const struct review_io *io, const struct buf *b)
{
	io->say(io->arg, (const char *)b->p, b->len);
	return 0;
}

/* Only the letter A is another than a; all else is taken in either case. */
static enum answer parse(const char *s)
{
	size_t n = strlen(s);

	while (n && strchr("\r\n\t ", s[n - 1]))
		n--;
	while (n && strchr("\t ", *s)) {
		s++;
		n--;
	}
	if (n == 0)
		return ANSWER_NO;
	if (n == 1) {
		switch (s[0]) {
		case 'y':
		case 'Y':
			return ANSWER_YES;
		case 'n':
		case 'N':
			return ANSWER_NO;
		case 'a':
			return ANSWER_ALL;
		case 'A':
			return ANSWER_NONE;
		case 'q':
		case 'Q':
			return ANSWER_QUIT;
		default:
			return ANSWER_HELP;
		}
	}
	if (n == 3 && strncasecmp(s, "yes", 3) == 0)
		return ANSWER_YES;
	return n == 2 && strncasecmp(s, "no", 2) == 0 ? ANSWER_NO : ANSWER_HELP;
}

static enum answer ask(const struct review_io *io, const char *prompt)
{
	char line[256];

	for (int tries = 0; tries < 100; tries++) {
		int r = io->ask(io->arg, prompt, line, sizeof(line));
		if (r <= 0)
			return ANSWER_END;
		enum answer a = parse(line);
		if (a != ANSWER_HELP)
			return a;
		io->say(io->arg, help, sizeof(help) - 1);
	}
	return ANSWER_END; /* /dev/zero, or a cat on the keyboard */
}

static int show(struct review *r, const struct review_io *io, uint32_t i, size_t at, size_t total)
{
	AUTO_BUF struct buf diff = { 0 };
	AUTO_BUF struct buf b = { 0 };
	struct diff_stat stat = { 0 };
	struct err err = { 0 };

	int e = review_diff(r, i, io->diff_flags, &diff, &stat, &err);
	if (e < 0 && buf_printf(&diff, "(no diff: %s)\n", err.text) < 0)
		return -ENOMEM;
	if (buf_printf(&b, "\n[%zu/%zu] ", at, total) < 0 || review_text_item(&b, r, i) < 0)
		return -ENOMEM;
	if (stat.added || stat.removed) {
		b.len--; /* the newline */
		if (buf_printf(&b, "  +%u -%u\n", stat.added, stat.removed) < 0)
			return -ENOMEM;
	}
	if (review_text_notes(&b, r, i) < 0 || buf_put(&b, diff.p, diff.len) < 0)
		return -ENOMEM;
	if (diff.len && diff.p[diff.len - 1] != '\n' && buf_put(&b, "\n", 1) < 0)
		return -ENOMEM;
	return say(io, &b);
}

static bool asked_about(const struct review_item *it, bool again)
{
	if (it->c.flags & (COMPARE_REFUSED | COMPARE_IGNORED))
		return false;
	if (again)
		return it->c.status == CHANGESET_REJECTED;
	return it->c.status == CHANGESET_PENDING || it->c.status == CHANGESET_CONFLICT;
}

struct lines {
	struct review *r;
	const struct review_io *io;
	uint32_t *todo, *chosen;
	size_t n, n_chosen;
	uint32_t skipped_tier1;
};

static int reject_from(struct lines *l, size_t k, struct err *err)
{
	for (; k < l->n; k++) {
		int e = review_decide(l->r, l->todo[k], CHANGESET_REJECTED, err);
		if (e < 0)
			return e;
	}
	return 0;
}

static int walk(struct lines *l, struct err *err)
{
	bool all = false;

	for (size_t k = 0; k < l->n; k++) {
		const struct review_item *it = review_item(l->r, l->todo[k]);
		if (all && it->c.tier != CLASSIFY_AUTO) {
			l->chosen[l->n_chosen++] = l->todo[k];
			continue;
		}
		int e = show(l->r, l->io, l->todo[k], k + 1, l->n);
		if (e < 0)
			return err_code(err, e, "cannot show a change");
		switch (ask(l->io, "accept? [y,n,a,A,q,?] ")) {
		case ANSWER_ALL:
			all = true;
			/* what runs by itself needs an answer of its own */
			if (it->c.tier == CLASSIFY_AUTO &&
			    ask(l->io, "this one runs by itself: accept it, too? [y,n] ") !=
			            ANSWER_YES) {
				l->skipped_tier1++;
				continue;
			}
			l->chosen[l->n_chosen++] = l->todo[k];
			continue;
		case ANSWER_YES:
			l->chosen[l->n_chosen++] = l->todo[k];
			continue;
		case ANSWER_NONE:
			return reject_from(l, k, err);
		case ANSWER_QUIT:
		case ANSWER_END:
			return 0;
		case ANSWER_NO:
		case ANSWER_HELP:
			break;
		}
		e = review_decide(l->r, l->todo[k], CHANGESET_REJECTED, err);
		if (e < 0)
			return e;
	}
	return 0;
}

int review_lines(struct review *r, const struct review_io *io, struct review_result *out,
                 struct err *err)
{
	AUTO_FREE uint32_t *todo = xcalloc(review_count(r) + 1u, sizeof(*todo));
	AUTO_FREE uint32_t *chosen = xcalloc(review_count(r) + 1u, sizeof(*chosen));
	struct lines l = { .r = r, .io = io, .todo = todo, .chosen = chosen };

	*out = (struct review_result){ 0 };
	/* what was rejected comes up again when nothing else is left */
	for (int again = 0; again < 2 && l.n == 0; again++) {
		for (uint32_t i = 0; i < review_count(r); i++) {
			if (asked_about(review_item(r, i), again))
				todo[l.n++] = i;
		}
	}
	int e = walk(&l, err);
	if (e < 0)
		return e;
	if (l.n_chosen) {
		e = review_apply(r, chosen, l.n_chosen, out, err);
	} else {
		struct changeset_counts c;
		review_counts(r, &c);
		out->exit_code = c.pending || c.conflict ? REVIEW_EXIT_OPEN : REVIEW_EXIT_DONE;
	}
	out->skipped_tier1 = l.skipped_tier1;
	return e;
}
