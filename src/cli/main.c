/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche - the command line. Runs with the user's rights and trusts the user;
 * what comes out of a guest reaches it through the terminal filter, checked
 * records (super/ctl.h) and the caged workers of src/review.
 */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/near.h"
#include "cli/cli.h"
#include "cli/plan.h"
#include "cli/version.h"

extern const struct cli_opt *const sets_opts[];
extern const size_t sets_n_opts[];
extern const struct cli_opt *const host_opts[];
extern const size_t host_n_opts[];
extern const struct cli_opt *const agents_opts;
extern const size_t agents_n_opts;
extern const struct cli_opt *const config_opts;
extern const size_t config_n_opts;
extern const struct cli_opt *const recover_opts;
extern const size_t recover_n_opts;
extern const struct cli_opt *const net_opts;
extern const size_t net_n_opts;

enum { HELP_TABLE = 16 };

struct command {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *synopsis, *summary;
};

static const struct command commands[] = {
	{ "run", cmd_run, "run AGENT [DIR...] [options] [-- WORD...]",
	  "run an agent on a copy-on-write view of a project, in a microVM" },
	{ "run-image", cmd_run, "run-image REF [DIR...] [options] [-- WORD...]",
	  "the same with an image of a registry, and what it says is run" },
	{ "info", cmd_info, "info AGENT [DIR...] [options]",
	  "what such a run would be; starts nothing" },
	{ "agents", cmd_agents,
	  "agents [list|inspect|doctor|init|add|import|export|edit|rm] [NAME] [options]",
	  "the agents that can be run, and profiles of your own" },
	{ "list", cmd_list, "list", "the same as agents list" },
	{ "config", cmd_config, "config [init|show|check] [FILE...] [--origin] [--json]",
	  "a first configuration, what holds, and whether a file will do" },
	{ "env", cmd_env, "env AGENT [options]",
	  "names of the variables that a run would get; no values" },
	{ "changes", cmd_changes, "changes [-c ID] [--all] [--json]", "what a run changed" },
	{ "diff", cmd_diff, "diff [-c ID] [PATH...]", "the changes as unified diffs" },
	{ "review", cmd_review, "review [-c ID] [--to DIR]", "decide change by change" },
	{ "apply", cmd_apply, "apply [-c ID] [--all] [--to DIR] [PATH...]",
	  "write changes back to the project" },
	{ "discard", cmd_discard, "discard [-c ID] [-y]", "remove a change set" },
	{ "recover", cmd_recover, "recover [SANDBOX]", "take the changes out of a run that died" },
	{ "image", cmd_image, "image build|pull|ls|inspect|rm|verify [NAME|REF]",
	  "base images, layers, and images of registries" },
	{ "net", cmd_net, "net log|check|hosts|learn|allow|deny|callback [WORDS] [SANDBOX]",
	  "what the network allows, what it decided, and changes to it" },
	{ "doctor", cmd_doctor, "doctor [--json]", "check this host, with remedies" },
	{ "version", cmd_version, "version", "version and build" },
	{ "help", cmd_help, "help [COMMAND]", "this text, or a command's options" },
};

static void opts_of(const char *name, const struct cli_opt **o, size_t *n)
{
	static const struct {
		const char *name;
		unsigned index;
	} sets[] = {
		{ "changes", 0 }, { "diff", 1 }, { "review", 2 }, { "apply", 3 }, { "discard", 4 }
	};

	*o = NULL;
	*n = 0;
	if (strcmp(name, "run") == 0 || strcmp(name, "run-image") == 0 ||
	    strcmp(name, "info") == 0 || strcmp(name, "env") == 0) {
		*o = plan_opts;
		*n = plan_n_opts;
	} else if (strcmp(name, "doctor") == 0 || strcmp(name, "image") == 0) {
		unsigned i = name[0] == 'i';
		*o = host_opts[i];
		*n = host_n_opts[i];
	} else if (strcmp(name, "net") == 0) {
		*o = net_opts;
		*n = net_n_opts;
	} else if (strcmp(name, "agents") == 0) {
		*o = agents_opts;
		*n = agents_n_opts;
	} else if (strcmp(name, "config") == 0) {
		*o = config_opts;
		*n = config_n_opts;
	} else if (strcmp(name, "recover") == 0) {
		*o = recover_opts;
		*n = recover_n_opts;
	}
	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		if (strcmp(name, sets[i].name) == 0) {
			*o = sets_opts[sets[i].index];
			*n = sets_n_opts[sets[i].index];
		}
	}
}

static int overview(void)
{
	struct buf b = { 0 };
	int r = buf_printf(&b, "usage: cloche COMMAND [words and options]\n\n");

	for (size_t i = 0; i < ARRAY_LEN(commands) && r == 0; i++)
		r = buf_printf(&b, "  %-*s%s\n", HELP_TABLE, commands[i].name, commands[i].summary);
	if (r == 0)
		r = buf_printf(&b, "\ncloche help COMMAND shows a command's options; "
		                   "cloche doctor checks this host.\n");
	int code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);
	buf_fini(&b);
	return code;
}

int cli_help_for(const char *name)
{
	const struct cli_opt *o;
	struct buf b = { 0 };
	size_t n;

	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(commands[i].name, name) != 0)
			continue;
		opts_of(name, &o, &n);
		int r = buf_printf(&b, "usage: cloche %s\n\n%s\n%s", commands[i].synopsis,
		                   commands[i].summary, n ? "\noptions:\n" : "");
		for (size_t k = 0; k < n && r == 0; k++) {
			char left[80];
			(void)snprintf(left, sizeof(left), "%s%c%s--%s%s%s", o[k].letter ? "-" : "",
			               o[k].letter ? o[k].letter : ' ', o[k].letter ? ", " : "   ",
			               o[k].name, o[k].value_name ? " " : "",
			               o[k].value_name ? o[k].value_name : "");
			r = buf_printf(&b, "  %-36s %s\n", left, o[k].help);
		}
		int code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);
		buf_fini(&b);
		return code;
	}
	return -1;
}

static int unknown_command(const char *word)
{
	const char *names[ARRAY_LEN(commands)];
	struct err e = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		names[i] = commands[i].name;
	const char *near = near_word(word, names, ARRAY_LEN(names));
	err_set(&e, -EINVAL, "unknown command '%s'", word);
	if (near)
		err_hint(&e, "did you mean cloche %s?", near);
	else
		err_hint(&e, "cloche help");
	return cli_usage(&e);
}

int cmd_help(int argc, char **argv)
{
	if (argc < 2)
		return overview();
	int code = cli_help_for(argv[1]);
	return code >= 0 ? code : unknown_command(argv[1]);
}

int cmd_version(int argc UNUSED, char **argv UNUSED)
{
	struct buf b = { 0 };
	int r = buf_printf(&b, "cloche %s (%s)\n", CLI_VERSION, CLI_COMMIT);
	int code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, 0);

	buf_fini(&b);
	return code;
}

/* 0, 1 and 2 must exist, or the first file we open becomes one of them. */
static void open_std(void)
{
	for (int fd = 0; fd < 3; fd++) {
		struct stat st;
		if (fstat(fd, &st) < 0 && errno == EBADF)
			(void)open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
	}
}

int main(int argc, char **argv)
{
	open_std();
	(void)setlocale(LC_CTYPE, "");
	log_open(2, "cloche", NULL, LOG_WARN);
	if (argc < 2) {
		(void)overview();
		return CLI_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--version") == 0)
		return cmd_version(argc - 1, argv + 1);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return overview();
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		/* --help anywhere before "--" */
		for (int k = 2; k < argc && strcmp(argv[k], "--") != 0; k++) {
			if (strcmp(argv[k], "--help") == 0 || strcmp(argv[k], "-h") == 0)
				return cli_help_for(argv[1]);
		}
		return commands[i].fn(argc - 1, argv + 1);
	}
	return unknown_command(argv[1]);
}
