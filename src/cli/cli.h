/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - the command line: command table, options, and what commands share.
 *
 * stdout carries results, stderr everything else. Exit codes: the command's
 * own for `run`; 0 done, 2 wrong words or several change sets, 3 something is
 * pending or in conflict (of `net check`: refused), 125 an error or a refusal of ours, 126/127 the command
 * could not be executed / was not found, 128+N a signal.
 */
#ifndef CLOCHE_CLI_CLI_H
#define CLOCHE_CLI_CLI_H

#include "base/err.h"
#include "base/mem.h"
#include "config/config.h"
#include "super/state.h"

enum { CLI_EXIT_USAGE = 2, CLI_EXIT_OPEN = 3, CLI_EXIT_REFUSED = 125 };

enum cli_arg { CLI_FLAG, CLI_VALUE };

/* One option of a command. Spelled in full; --name VALUE or --name=VALUE. */
struct cli_opt {
	const char *name; /* without the dashes */
	char letter;      /* short form, or 0 */
	enum cli_arg arg;
	int id; /* handed to the handler */
	const char *value_name, *help;
};

/*
 * cli_parse() - take options and words out of @argv.
 * @fn:		called for each option; 0, or -EINVAL with @err
 * @words:	what is no option, in order, up to "--"; room for argc
 * @out_rest:	index behind "--", or argc when there is none
 *
 * Return: 0, or -EINVAL with @err that names the nearest option.
 */
int cli_parse(int argc, char **argv, const struct cli_opt *opts, size_t n_opts,
              int (*fn)(void *arg, int id, const char *value, struct err *err), void *arg,
              char **words, size_t *out_n_words, int *out_rest, struct err *err) MUST_CHECK;

/* Print @err in our form to stderr. Return: CLI_EXIT_REFUSED. */
int cli_fail(const struct err *err);
/* The same for wrong words. Return: CLI_EXIT_USAGE. */
int cli_usage(const struct err *err);

/* Print a buffer to stdout; a closed or full stdout is an error. Return: exit code. */
int cli_print(const struct buf *b, int exit_code);
int cli_print_to(int fd, const struct buf *b, int exit_code);
/* @r of something that printed by itself. Return: exit code. */
int cli_written(int r, int exit_code);

/* Positive decimals and sizes. 0 or -EINVAL with @err naming @what. */
int cli_number(const char *s, uint64_t min, uint64_t max, const char *what, uint64_t *out,
               struct err *err) MUST_CHECK;

/* The commands; argv[0] is the command's name. */
int cmd_run(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_agents(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_changes(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_review(int argc, char **argv);
int cmd_apply(int argc, char **argv);
int cmd_discard(int argc, char **argv);
int cmd_recover(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_net(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_help(int argc, char **argv);

/* Help of one command on stdout (its options included). */
int cli_help_for(const char *command);

struct cli_command {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *synopsis, *summary, *text;
	const struct cli_opt *opts;
	size_t n_opts;
};
extern const struct cli_command cli_commands[];
extern const size_t cli_n_commands;

#endif
