/* SPDX-License-Identifier: Apache-2.0 */
#include "workspace/scan.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "policy/secret_paths.h"
#include "workspace/scan_priv.h"

static int make_rules(struct scan *s, struct err *err)
{
	AUTO_BUF struct buf heavy = { 0 };
	int ret = 0;

	if (s->o->exclude.len)
		ret = ignore_parse(&s->exclude, s->o->exclude, 0);
	if (ret < 0)
		return err_code(err, ret, "cannot use the patterns of --exclude");
	for (size_t i = 0; s->o->heavy && heavy_patterns[i] && ret == 0; i++)
		ret = buf_printf(&heavy, "%s\n", heavy_patterns[i]);
	if (ret == 0 && s->o->heavy)
		ret = ignore_parse(&s->heavy, span_of(heavy.p, heavy.len), 0);
	return ret < 0 ? err_code(err, ret, "cannot scan") : 0;
}

static void fini(struct scan *s)
{
	struct ignore_list **lists = s->lists.p;
	struct generated **gen = s->generated.p;
	struct rule *rules = s->rules.p;
	struct note *notes = s->notes.p;
	void **chunks = s->chunks.p;

	for (size_t i = 0; i < s->lists.n; i++)
		ignore_free(lists[i]);
	for (size_t i = 0; i < s->generated.n; i++) {
		buf_fini(&gen[i]->content);
		free(gen[i]);
	}
	for (size_t i = 0; i < s->rules.n; i++)
		free(rules[i].text);
	for (size_t i = 0; i < s->notes.n; i++)
		free(notes[i].text);
	for (size_t i = 0; i < s->chunks.n; i++)
		free(chunks[i]);
	struct list *all[] = { &s->lists,  &s->generated, &s->rules,   &s->notes,
		               &s->chunks, &s->gitdirs,   &s->dotgits, &s->heavies,
		               &s->links,  &s->linked,    &s->repos,   &s->tasks };
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		free(all[i]->p);
	ignore_free(s->exclude);
	ignore_free(s->heavy);
	free(s->roots);
	free(s->order);
	free(s->by_einode);
	(void)pthread_cond_destroy(&s->wake);
	(void)pthread_mutex_destroy(&s->lock);
}

int scan_run(const struct scan_opts *o, struct err *err)
{
	struct scan s = { .o = o };
	struct err local = { 0 };
	struct timespec now;
	static int (*const passes[])(struct scan * s, struct err * err) = {
		make_rules, scan_walk,      scan_git_config, scan_git_tracked,
		scan_tree,  scan_git_index, scan_out,        scan_report,
	};
	int ret = 0;

	(void)pthread_mutex_init(&s.lock, NULL); /* neither can fail with default attributes */
	(void)pthread_cond_init(&s.wake, NULL);
	(void)clock_gettime(CLOCK_REALTIME, &now);
	s.scanned_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
	for (size_t i = 0; i < ARRAY_LEN(passes) && ret == 0; i++)
		ret = passes[i](&s, &local);
	if (ret < 0) {
		if (o->report_fd >= 0 &&
		    (ftruncate(o->report_fd, 0) < 0 || scan_report_error(o->report_fd, &local) < 0))
			(void)err_hint(&local, "the report could not be written, either");
		if (err)
			*err = local;
	}
	fini(&s);
	return ret;
}
