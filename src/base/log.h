/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - one line per event: "TIME level program sandbox: message key=value".
 *
 * Libraries return errors; main() and event handlers log them. Lines go to one
 * descriptor (stderr until log_open()); control characters are made visible
 * here, so a caller need not. Values of secrets and of forwarded variables are
 * never arguments.
 */
#ifndef CLOCHE_BASE_LOG_H
#define CLOCHE_BASE_LOG_H

#include "base/util.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* @fd is borrowed and stays open as long as anything logs; -1 drops all lines. */
void log_open(int fd, const char *program, const char *sandbox, enum log_level max);
void log_line(enum log_level level, const char *fmt, ...) PRINTF_FMT(2, 3);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
