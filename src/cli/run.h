/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - what `run` shares with `recover`, `info` and `image`.
 */
#ifndef CLOCHE_CLI_RUN_H
#define CLOCHE_CLI_RUN_H

#include "cli/plan.h"
#include "cli/session.h"

uint64_t run_monotonic_ns(void);

/* Open the image, building it first when the plan allows that. */
int run_get_image(const struct plan *p, struct image *img, bool quiet, struct err *err) MUST_CHECK;

/* session_run(), its errors, timings and trace printed. */
int run_session(const struct plan *p, const struct session_opts *so, struct session_result *res);

/* Diagnosis, summary and review at the end. Return: the exit code. */
int run_after(const struct plan *p, const struct session_opts *so,
              const struct session_result *res);

#endif
