/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workspace_tool.c - lets the oracle scripts ask our readers of git's files.
 *
 *	config             stdin: a config; stdout as `git config -z -l`; status 1: refused
 *	sanitise           stdin: a config; stdout: the cleaned one
 *	index HASHBYTES    stdin: an index; stdout: its paths, NUL behind each
 *	skip HASHBYTES X   stdin: an index; stdout: a copy, every path with X in it skipped
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "workspace/gitconfig.h"
#include "workspace/gitindex.h"

static int put_var(void *arg, const struct gitconfig_var *v)
{
	struct buf *b = arg;
	int ret = buf_put(b, v->section.p, v->section.len);

	if (ret == 0 && v->section.len)
		ret = buf_put(b, ".", 1);

	if (ret == 0 && v->subsection.p) {
		ret = buf_put(b, v->subsection.p, v->subsection.len);
		if (ret == 0)
			ret = buf_put(b, ".", 1);
	}
	if (ret == 0)
		ret = buf_put(b, v->key.p, v->key.len);
	if (ret == 0 && v->value.p) {
		ret = buf_put(b, "\n", 1);
		if (ret == 0)
			ret = buf_put(b, v->value.p, v->value.len);
	}
	return ret < 0 ? ret : buf_put(b, "", 1);
}

static int put_path(void *arg, const struct gitindex_entry *e)
{
	if (buf_put(arg, e->path.p, e->path.len) < 0)
		return -1;
	return buf_put(arg, "", 1);
}

static bool has(void *arg, const struct gitindex_entry *e)
{
	return memmem(e->path.p, e->path.len, arg, strlen(arg)) != NULL;
}

int main(int argc, char **argv)
{
	AUTO_FREE char *in = NULL;
	AUTO_BUF struct buf out = { 0 };
	struct gitconfig_report report = { 0 };
	struct gitindex_info info;
	size_t len = 0;
	int ret = -1;

	if (argc < 2 || fd_read_file(0, 64 << 20, &in, &len) < 0)
		return 2;
	struct span text = span_of(in, len);
	if (strcmp(argv[1], "config") == 0)
		ret = gitconfig_parse(text, put_var, &out, NULL);
	else if (strcmp(argv[1], "sanitise") == 0)
		ret = gitconfig_sanitise(text, 0, &out, &report, NULL);
	else if (strcmp(argv[1], "index") == 0 && argc == 3)
		ret = gitindex_read(text, (size_t)atoi(argv[2]), put_path, &out, &info);
	else if (strcmp(argv[1], "skip") == 0 && argc == 4)
		ret = gitindex_skip(text, (size_t)atoi(argv[2]), has, argv[3], &out);
	gitconfig_report_fini(&report);
	if (ret < 0) {
		(void)fprintf(stderr, "%d\n", ret);
		return 1;
	}
	return fd_write_all(1, out.p, out.len) < 0 ? 2 : 0;
}
