/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - what `run` and `info` say about a plan and a finished run.
 */
#ifndef CLOCHE_CLI_REPORT_H
#define CLOCHE_CLI_REPORT_H

#include "cli/plan.h"
#include "cli/session.h"

enum { REPORT_BYTES_MAX = 4 * 1024 * 1024 };

/* The lines at the start of a run. @scan_json: cloche-scan's report, or NULL. */
int report_banner(struct buf *b, const struct plan *p, const char *scan_json) MUST_CHECK;

/* `info`, for people and as JSON. @img may be NULL (not built). */
int report_info(struct buf *b, const struct plan *p, const char *scan_json,
                const struct image_info *img) MUST_CHECK;
int report_info_json(struct buf *b, const struct plan *p, const char *scan_json,
                     const struct image_info *img) MUST_CHECK;

/* --timings to stderr, --trace to a file. */
void report_timings(const struct session_opts *so, const struct session_result *r);
void report_trace(const char *file, const struct session_opts *so, const struct session_result *r);

#endif
