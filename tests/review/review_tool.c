/* SPDX-License-Identifier: Apache-2.0 */
/*
 * review_tool.c - test only: writes change sets from lines of text and drives
 * src/review from outside. tests/review/test_review.py says what the lines are.
 *
 * `apply-hooked` applies in this process, with a shell command run at a point
 * between two steps (HOOK_AT, HOOK_CMD, HOOK_NAME in its environment), so a
 * test can swap things exactly there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "lib/no_rename.h"
#include "review/review.h"

NORETURN static void die(const char *what, const struct err *err)
{
	(void)fprintf(stderr, "%s: %s%s%s\n", what, err ? err->text : "",
	              err && err->hint[0] ? " | " : "", err ? err->hint : "");
	exit(err && err->code == -ENOTUNIQ ? 2 : 125);
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		die(path, NULL);
	return fd;
}

/* --- mk --- */

static char *words[32];
static size_t n_words;

static bool next_line(void)
{
	static char *line;
	static size_t cap;
	ssize_t n = getline(&line, &cap, stdin);

	if (n <= 0)
		return false;
	n_words = 0;
	for (char *w = strtok(line, " \n"); w && n_words < ARRAY_LEN(words);
	     w = strtok(NULL, " \n"))
		words[n_words++] = w;
	return n_words > 0;
}

static uint64_t num(size_t i)
{
	return i < n_words ? strtoull(words[i], NULL, 0) : 0;
}

/* "-" is nothing */
static struct span unhex(size_t i)
{
	if (i >= n_words || strcmp(words[i], "-") == 0)
		return span_of("", 0);
	size_t n = strlen(words[i]) / 2;
	/* kept to the end: a span does not own */
	static struct kept {
		struct kept *next;
		uint8_t b[];
	} * all;
	struct kept *kept = xmalloc(sizeof(*kept) + n + 1);
	kept->next = all;
	all = kept;
	uint8_t *b = kept->b;
	for (size_t k = 0; k < n; k++) {
		unsigned v = 0;
		if (sscanf(words[i] + 2 * k, "%2x", &v) != 1)
			die("hex", NULL);
		b[k] = (uint8_t)v;
	}
	return span_of(b, n);
}

static void add_entry(struct manifest_writer *m)
{
	uint32_t index;
	struct manifest_entry e = {
		.parent = (uint32_t)num(1),
		.kind = (uint8_t)num(2),
		.flags = (uint16_t)num(3),
		.why = (uint8_t)num(4),
		.mode = (uint32_t)num(5),
		.nlink = (uint32_t)num(6),
		.size = num(7),
		.mtime_ns = (int64_t)num(8),
		.ctime_ns = (int64_t)num(9),
		.ino = num(10),
		.dev = num(11),
		.project = (uint16_t)num(12),
		.block = num(13),
		.same_as = (uint32_t)num(14),
		.name = unhex(15),
		.link = unhex(16),
	};
	int r = manifest_add(m, &e, &index);
	if (r < 0) {
		(void)fprintf(stderr, "entry: %s\n", strerror(-r));
		exit(125);
	}
}

static void put_blob(struct changeset_writer *w, uint32_t ordinal, struct change_record *rec,
                     const char *how, struct err *err)
{
	if (strcmp(how, "=") == 0)
		return;
	int r = changeset_blob_begin(w, ordinal, rec->size, &rec->hash, err);
	if (how[0] == '@') {
		/* a file, holes kept */
		int fd = open(how + 1, O_RDONLY | O_CLOEXEC);
		static uint8_t b[1 << 20];
		off_t at = 0;
		while (r == 0 && (uint64_t)at < rec->size) {
			off_t data = lseek(fd, at, SEEK_DATA);
			if (data < 0)
				break;
			off_t hole = lseek(fd, data, SEEK_HOLE);
			for (at = data; r == 0 && at < hole;) {
				size_t want = MIN((size_t)(hole - at), sizeof(b));
				ssize_t n = pread(fd, b, want, at);
				if (n <= 0)
					die("read", NULL);
				r = changeset_blob_extent(w, (uint64_t)at, span_of(b, (size_t)n),
				                          err);
				at += n;
			}
		}
		(void)close(fd);
	} else if (r == 0 && rec->size) {
		r = changeset_blob_extent(w, 0, rec->bytes, err);
	}
	if (r == 0)
		r = changeset_blob_end(w, err);
	if (r < 0)
		die("blob", err);
}

static void hash_file(const char *path, struct change_record *rec)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct hash_state h;
	static uint8_t b[1 << 20];
	ssize_t n;

	hash_init(&h);
	while ((n = read(fd, b, sizeof(b))) > 0) {
		hash_update(&h, b, (size_t)n);
		rec->size += (uint64_t)n;
	}
	hash_final(&h, &rec->hash);
	(void)close(fd);
}

/* F NAME MODE FLAGS CONTENT [BASE]: content "hex", "-", "@file", or "=file": as that, no blob */
static void put_file(struct changeset_writer *w, uint32_t ordinal, struct err *err)
{
	struct change_record rec = { .type = CHANGE_FILE,
		                     .name = unhex(1),
		                     .mode = (uint32_t)num(2),
		                     .flags = (uint8_t)num(3) };
	const char *how = words[4];

	if (how[0] == '@' || how[0] == '=') {
		hash_file(how + 1, &rec);
	} else {
		rec.bytes = unhex(4);
		rec.size = rec.bytes.len;
		hash_bytes(&rec.hash, rec.bytes.p, rec.bytes.len);
	}
	struct change_record only = rec;
	only.bytes = (struct span){ 0 };
	if (changeset_put_record(w, &only, err) < 0)
		die("record", err);
	put_blob(w, ordinal, &rec, how[0] == '=' ? "=" : how, err);
	if (n_words > 5) {
		struct change_record base = { 0 };
		hash_file(words[5], &base);
		if (changeset_put_baseline(w, ordinal, &base.hash, err) < 0)
			die("base", err);
	}
}

static int mk(int changes, const char *id, const char *sandbox, int64_t created)
{
	struct changeset_meta meta = { .agent = "shell", .created_s = created, .exit_status = 0 };
	struct manifest_writer *m = manifest_writer_new();
	struct changeset_writer *w = NULL;
	struct err err = { 0 };
	uint32_t ordinal = 0;

	(void)snprintf(meta.id, sizeof(meta.id), "%s", id);
	(void)snprintf(meta.sandbox, sizeof(meta.sandbox), "%s", sandbox);
	(void)snprintf(meta.session, sizeof(meta.session), "%s",
	               getenv("SESSION") ? getenv("SESSION") : "s1");
	if (changeset_begin(&w, changes, &meta, &err) < 0)
		die("begin", &err);
	while (next_line()) {
		struct change_record rec = { .name = unhex(1), .mode = (uint32_t)num(2) };
		switch (words[0][0]) {
		case 'E':
			add_entry(m);
			continue;
		case 'P': {
			struct manifest_project p = { .entry = (uint32_t)num(1),
				                      .path = unhex(2),
				                      .dev = num(3),
				                      .ino = num(4) };
			if (manifest_add_project(m, &p) < 0)
				die("project", NULL);
			continue;
		}
		case 'R': {
			struct manifest_rules r = { .dir = (uint32_t)num(1),
				                    .source = (uint8_t)num(2),
				                    .text = unhex(3) };
			if (manifest_add_rules(m, &r) < 0)
				die("rules", NULL);
			continue;
		}
		case 'F':
			put_file(w, ordinal++, &err);
			continue;
		case 'D':
			rec.type = CHANGE_DIR;
			rec.flags = (uint8_t)num(3);
			break;
		case 'U':
			rec = (struct change_record){ .type = CHANGE_UP };
			break;
		case 'W':
			rec.type = CHANGE_WHITEOUT;
			rec.mode = 0;
			break;
		case 'L':
			rec.type = CHANGE_LINK;
			rec.mode = 0;
			rec.bytes = unhex(2);
			break;
		case 'S':
			rec.type = CHANGE_SPECIAL;
			break;
		default:
			die(words[0], NULL);
		}
		ordinal++;
		if (changeset_put_record(w, &rec, &err) < 0)
			die("record", &err);
	}
	manifest_set_image(m, 1, 1 << 20);
	int fd = fd_memfd("manifest");
	if (fd < 0 || manifest_write(m, fd, created * 1000000000, &err) < 0)
		die("manifest", &err);
	if (getenv("CRASH_BEFORE_COMMIT"))
		_exit(9);
	if (changeset_commit(w, fd, &err) < 0)
		die("commit", &err);
	manifest_writer_free(m);
	return 0;
}

/* --- the rest --- */

static struct review_env env;
static struct review_to to; /* $TO */

static struct review *open_review(const char *id)
{
	struct review *r;
	struct err err = { 0 };

	if (review_open(&r, &env, id, &err) < 0)
		die("open", &err);
	return r;
}

static void print(const struct buf *b)
{
	if (fd_write_all(1, b->p, b->len) < 0)
		exit(125);
}

static int apply(const char *id, int n, char **args)
{
	struct review *r = open_review(id);
	struct review_result res;
	struct err err = { 0 };
	struct buf out = { 0 };
	uint32_t *list = NULL, skipped = 0;
	size_t n_list = 0;
	int select = 0;

	while (n && args[0][0] == '-') {
		select |= strcmp(args[0], "--auto") == 0  ? REVIEW_AUTO
		          : strcmp(args[0], "--all") == 0 ? REVIEW_ALL
		                                          : REVIEW_IGNORED;
		args++;
		n--;
	}
	int e = n ? review_match(r, "", args, (size_t)n, select, &list, &n_list, &err)
	          : review_select(r, select, &list, &n_list, &skipped);
	if (e < 0)
		die("match", &err);
	if (review_apply(r, list, n_list, &res, &err) < 0)
		die("apply", &err);
	res.skipped_tier1 = skipped;
	if (getenv("TEXT"))
		e = review_text_result(1, r, &res);
	else
		e = review_json_result(1, r, &res);
	print(&out);
	int code = res.exit_code;
	review_result_fini(&res);
	review_close(r);
	free(list);
	buf_fini(&out);
	return e < 0 ? 125 : code;
}

static int ask(void *arg, const char *prompt, char *dst, size_t cap)
{
	size_t n = 0;
	char ch;

	(void)arg;
	if (fd_write_all(1, prompt, strlen(prompt)) < 0)
		return -EIO;
	while (read(0, &ch, 1) == 1) {
		if (ch == '\n' || n + 1 == cap) {
			dst[n] = '\0';
			return 1;
		}
		dst[n++] = ch;
	}
	return 0;
}

static void say(void *arg, const char *text, size_t len)
{
	(void)arg;
	if (fd_write_all(1, text, len) < 0)
		exit(125);
}

static int lines(const char *id)
{
	struct review *r = open_review(id);
	struct review_io io = { .ask = ask, .say = say };
	struct review_result res;
	struct err err = { 0 };
	struct buf out = { 0 };

	if (review_lines(r, &io, &res, &err) < 0)
		die("review", &err);
	if (review_text_result(1, r, &res) == 0)
		print(&out);
	int code = res.exit_code;
	review_result_fini(&res);
	review_close(r);
	buf_fini(&out);
	return code;
}

static int diff(const char *id, char *path)
{
	struct review *r = open_review(id);
	struct diff_stat stat;
	struct err err = { 0 };
	struct buf out = { 0 };
	uint32_t *list;
	size_t n;

	if (review_match(r, "", &path, 1, REVIEW_LOOK, &list, &n, &err) < 0)
		die("match", &err);
	for (size_t i = 0; i < n; i++) {
		if (review_diff(r, list[i], getenv("COLOUR") ? DIFF_COLOUR : 0, &out, &stat, &err) <
		    0)
			die("diff", &err);
	}
	print(&out);
	free(list);
	buf_fini(&out);
	review_close(r);
	return 0;
}

static void hook(void *arg, enum apply_point at, uint32_t change, int dir_fd, const char *name)
{
	static int count;
	const char *nth = getenv("HOOK_NTH");

	(void)arg;
	(void)change;
	if (at != (enum apply_point)atoi(getenv("HOOK_AT")) || (nth && ++count != atoi(nth)))
		return;
	(void)setenv("HOOK_NAME", name, 1);
	mode_t old = umask(022);
	pid_t pid = fork();
	if (pid == 0) {
		if (fchdir(dir_fd) == 0)
			(void)execl("/bin/sh", "sh", "-c", getenv("HOOK_CMD"), (char *)NULL);
		_exit(127);
	}
	int status;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	(void)umask(old);
}

static void report(void *arg, const struct apply_outcome *o)
{
	struct buf path = { 0 };

	if (compare_path(arg, o->change, &path) == 0)
		printf("%s %.*s %s\n", apply_result_str(o->result), (int)path.len, (char *)path.p,
		       o->text);
	(void)fflush(stdout);
	buf_fini(&path);
}

static int apply_hooked(const char *id, char *const *projects, int n_projects)
{
	struct changeset *s;
	struct compare *c;
	struct err err = { 0 };
	int fds[8];

	if (changeset_open(&s, env.changes_fd, id, 0, &err) < 0)
		die("open", &err);
	if (compare_new(&c, s, NULL, 0, &err) < 0)
		die("compare", &err);
	for (int i = 0; i < n_projects; i++)
		fds[i] = open_dir(projects[i]);
	struct apply_opts o = {
		.set = s,
		.list = c,
		.project_fds = fds,
		.applied_fd = openat(s->dir_fd, "applied",
		                     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600),
		.journal_fd =
			openat(s->dir_fd, "journal", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600),
		.mask = 022,
		.as_root = geteuid() == 0,
		.hook = getenv("HOOK_AT") ? hook : NULL,
	};
	uint32_t *left, *all = xcalloc(compare_count(c) + 1, sizeof(*all));
	size_t n_left, n = 0;
	for (uint32_t i = 0; i < compare_count(c); i++) {
		struct compare_change ch;
		compare_get(c, i, &ch);
		if (ch.status != CHANGESET_APPLIED)
			all[n++] = i;
	}
	int r = apply_recover(&o, &left, &n_left, &err);
	if (r < 0)
		die("recover", &err);
	printf("recover %d left %zu\n", r, n_left);
	r = apply_run(&o, all, n, report, c, &err);
	if (r < 0)
		die("apply", &err);
	compare_free(c);
	changeset_close(s);
	free(left);
	free(all);
	return r ? 3 : 0;
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	struct buf out = { 0 };

	if (argc < 4)
		return 125;
	const char *verb = argv[1], *id = argc > 4 ? argv[4] : "";
	env.changes_fd = open_dir(argv[2]);
	env.locks_fd = open_dir(argv[3]);
	env.no_cage = getenv("NO_CAGE") != NULL;
	if (getenv("NO_RENAME_FLAGS"))
		no_rename_flags();
	if (getenv("CLOSE_FAILS"))
		close_fails();
	if (getenv("TO")) {
		to = (struct review_to){ .project = getenv("TO_NAME"),
			                 .path = getenv("TO"),
			                 .fd = open_dir(getenv("TO")) };
		env.to = &to;
		env.n_to = 1;
	}
	if (strcmp(verb, "mk") == 0)
		return mk(env.changes_fd, id, argv[5], argc > 6 ? atoll(argv[6]) : 1000);
	if (strcmp(verb, "apply") == 0)
		return apply(id, argc - 5, argv + 5);
	if (strcmp(verb, "apply-hooked") == 0)
		return apply_hooked(id, argv + 5, argc - 5);
	if (strcmp(verb, "lines") == 0)
		return lines(id);
	if (strcmp(verb, "diff") == 0)
		return diff(id, argv[5]);
	if (strcmp(verb, "list") == 0 || strcmp(verb, "text") == 0) {
		struct review *r;
		if (review_open_readonly(&r, &env, id, &err) < 0)
			die("open", &err);
		int e = verb[0] == 'l' ? review_json_list(1, r) : review_text_list(1, r);
		print(&out);
		review_close(r);
		buf_fini(&out);
		return e < 0 ? 125 : 0;
	}
	if (strcmp(verb, "find") == 0) {
		char found[CHANGESET_ID_MAX + 1];
		if (review_find(&env, argc > 5 ? argv[5] : NULL, id, found, NULL, &err) < 0)
			die("find", &err);
		puts(found);
		return 0;
	}
	if (strcmp(verb, "sets") == 0) {
		struct changeset_list l;
		if (changeset_list(env.changes_fd, &l, &err) < 0 || review_json_sets(&out, &l) < 0)
			die("sets", &err);
		print(&out);
		changeset_list_fini(&l);
		buf_fini(&out);
		return 0;
	}
	if (strcmp(verb, "discard") == 0) {
		if (review_discard(&env, id, &err) < 0)
			die("discard", &err);
		return 0;
	}
	if (strcmp(verb, "sweep") == 0) {
		printf("%d\n", changeset_sweep(env.changes_fd));
		return 0;
	}
	if (strcmp(verb, "retain") == 0) {
		printf("%d\n", changeset_retain(env.changes_fd, atoll(id)));
		return 0;
	}
	return 125;
}
