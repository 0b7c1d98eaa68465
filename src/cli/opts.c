/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/near.h"
#include "base/vis.h"

static const struct cli_opt *find_long(const struct cli_opt *opts, size_t n, const char *name,
                                       size_t len)
{
	for (size_t i = 0; i < n; i++) {
		if (strlen(opts[i].name) == len && memcmp(opts[i].name, name, len) == 0)
			return &opts[i];
	}
	return NULL;
}

static int unknown(const struct cli_opt *opts, size_t n, const char *word, struct err *err)
{
	const char *names[64];
	char seen[128];
	size_t k = 0;
	AUTO_FREE char *bare = xstrndup(word + 2, strcspn(word + 2, "="));

	for (size_t i = 0; i < n && k < ARRAY_LEN(names); i++)
		names[k++] = opts[i].name;
	const char *near = near_word(bare, names, k);
	err_set(err, -EINVAL, "unknown option '%s'", vis_str(seen, sizeof(seen), span_str(word)));
	if (near)
		return err_hint(err, "did you mean --%s?", near);
	return err_hint(err, "arguments of the agent go after --");
}

int cli_parse(int argc, char **argv, const struct cli_opt *opts, size_t n_opts,
              int (*fn)(void *arg, int id, const char *value, struct err *err), void *arg,
              char **words, size_t *out_n_words, int *out_rest, struct err *err)
{
	char seen[128];
	size_t n_words = 0;
	int i;

	for (i = 1; i < argc; i++) {
		const char *w = argv[i], *value = NULL;
		const struct cli_opt *o = NULL;

		if (strcmp(w, "--") == 0) {
			i++;
			break;
		}
		if (w[0] != '-' || w[1] == '\0') {
			words[n_words++] = argv[i];
			continue;
		}
		if (w[1] == '-') {
			const char *eq = strchr(w, '=');
			o = find_long(opts, n_opts, w + 2,
			              eq ? (size_t)(eq - w - 2) : strlen(w + 2));
			if (!o)
				return unknown(opts, n_opts, w, err);
			value = eq ? eq + 1 : NULL;
		} else {
			for (size_t k = 0; k < n_opts && !o; k++) {
				if (opts[k].letter == w[1])
					o = &opts[k];
			}
			/* no bundles: -xy is -x with the value y, or an error */
			if (!o || (o->arg == CLI_FLAG && w[2])) {
				err_set(err, -EINVAL, "unknown option '%s'",
				        vis_str(seen, sizeof(seen), span_str(w)));
				return err_hint(err, "arguments of the agent go after --");
			}
			value = w[2] ? w + 2 : NULL;
		}
		if (o->arg == CLI_FLAG && value)
			return err_set(err, -EINVAL, "--%s takes no value", o->name);
		if (o->arg == CLI_VALUE && !value) {
			if (i + 1 >= argc || strcmp(argv[i + 1], "--") == 0)
				return err_set(err, -EINVAL, "--%s needs a value (%s)", o->name,
				               o->value_name);
			value = argv[++i];
		}
		int r = fn(arg, o->id, value, err);
		if (r < 0)
			return r;
	}
	*out_n_words = n_words;
	*out_rest = i;
	return 0;
}

static void print_err(const struct err *err)
{
	AUTO_BUF struct buf text = { 0 };
	AUTO_BUF struct buf hint = { 0 };

	/* texts are ours, but hold names that somebody else chose; most of those were made
	 * visible before, so backslashes are not doubled again */
	if (vis_put(&text, span_str(err->text), VIS_KEEP_BACKSLASH) < 0 ||
	    vis_put(&hint, span_str(err->hint), VIS_KEEP_BACKSLASH) < 0)
		return; /* without memory nothing can be printed either */
	(void)fprintf(stderr, "cloche: %.*s\n", (int)text.len, (const char *)text.p);
	if (hint.len)
		(void)fprintf(stderr, "hint: %.*s\n", (int)hint.len, (const char *)hint.p);
}

int cli_fail(const struct err *err)
{
	print_err(err);
	return CLI_EXIT_REFUSED;
}

int cli_usage(const struct err *err)
{
	print_err(err);
	return CLI_EXIT_USAGE;
}

int cli_print(const struct buf *b, int exit_code)
{
	return cli_print_to(1, b, exit_code);
}

int cli_print_to(int fd, const struct buf *b, int exit_code)
{
	return cli_written(fd_write_all(fd, b->p, b->len), exit_code);
}

int cli_written(int r, int exit_code)
{
	if (r == 0 || r == -EPIPE)
		return exit_code; /* a reader that has seen enough is no error */
	(void)fprintf(stderr, "cloche: cannot write the output: %s\n", strerror(-r));
	return CLI_EXIT_REFUSED;
}

int cli_number(const char *s, uint64_t min, uint64_t max, const char *what, uint64_t *out,
               struct err *err)
{
	uint64_t v = 0;
	char seen[64];
	const char *p = s;

	for (; *p >= '0' && *p <= '9' && v <= UINT64_MAX / 10 - 1; p++)
		v = v * 10 + (uint64_t)(*p - '0');
	if (p == s || *p || v < min || v > max)
		return err_set(err, -EINVAL,
		               "%s must be a whole number from %llu to %llu, not '%s'", what,
		               (unsigned long long)min, (unsigned long long)max,
		               vis_str(seen, sizeof(seen), span_str(s)));
	*out = v;
	return 0;
}
