/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cloche info`: what `run` with the same words would do; starts nothing.
 */
#include <errno.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/env.h"
#include "cli/plan.h"
#include "cli/pull.h"
#include "cli/report.h"
#include "cli/run.h"

int cmd_info(int argc, char **argv)
{
	static struct plan p;
	struct err e = { 0 };
	struct image img = IMAGE_INIT;
	struct buf b = { 0 };
	AUTO_FREE char *scan = NULL;
	int code = CLI_EXIT_REFUSED;

	if (plan_parse(&p, argc, argv, &code, &e) < 0) {
		(void)cli_fail(&e);
		plan_fini(&p);
		return code;
	}
	(void)!plan_host(&p, &e); /* what cannot run is said in the report */
	struct image_opts io = { .name = p.image_name,
		                 .suite = p.config.image_suite,
		                 .mirror = p.config.image_mirror,
		                 .boot_dir = p.boot_dir };
	bool built = image_open(&io, &img, &e) == 0;
	if (!built && p.boot_dir) { /* what is said of the folder, and not of the image */
		struct err own = { 0 };
		struct image_opts plain = io;
		plain.boot_dir = NULL;
		built = image_open(&plain, &img, &own) == 0;
		if (built)
			p.refusal = e;
	}
	if (p.has_ref) { /* as the cache knows it: nobody is asked */
		struct cli_pull cp;
		cli_pull_init(&cp, &p.config, &p.dirs, true);
		if (pull_open(&cp.o, &p.ref, &p.oci, &e) == 0)
			(void)!cli_pull_check_config(&p, &p.refusal);
		else if (e.code == -EKEYREJECTED || p.pull == PLAN_PULL_NEVER)
			p.refusal = e;
		cli_pull_fini(&cp);
	}
	if (layers_open(&p.layers, p.profile, &p.dirs, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	if (plan_scan(&p, &scan, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	static const struct registry_list none; /* of an image of somebody else nothing is known */
	if (plan_network(&p, p.has_ref ? &none : built ? &img.registries : NULL, &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	if (cli_env(&p, "-", &e) < 0) {
		code = cli_fail(&e);
		goto out;
	}
	if (!p.refusal.code && plan_image_ok(&p, &p.refusal) == 0)
		(void)!env_check(&p.env, p.profile, &p.refusal);
	bool can = p.accel_ok && p.refusal.code == 0;
	const struct image_info *ii = built ? &img.info : NULL;
	int r = p.json ? report_info_json(&b, &p, scan, ii) : report_info(&b, &p, scan, ii);
	code = r < 0 ? CLI_EXIT_REFUSED : cli_print(&b, can ? 0 : CLI_EXIT_OPEN);
out:
	buf_fini(&b);
	image_close(&img);
	plan_fini(&p);
	return code;
}
