/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/vis.h"

static struct {
	int fd;
	char program[32], sandbox[64];
	enum log_level max;
} lg = { .fd = 2, .program = "cloche", .max = LOG_INFO };

void log_open(int fd, const char *program, const char *sandbox, enum log_level max)
{
	lg.fd = fd;
	lg.max = max;
	(void)snprintf(lg.program, sizeof(lg.program), "%s", program);
	(void)snprintf(lg.sandbox, sizeof(lg.sandbox), "%s", sandbox ? sandbox : "");
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char text[1024], seen[2048], line[2304];
	struct timespec ts;
	struct tm tm;
	va_list ap;

	if (lg.fd < 0 || level > lg.max)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)vis_str(seen, sizeof(seen), span_str(text));
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	(void)gmtime_r(&ts.tv_sec, &tm);
	int n = snprintf(line, sizeof(line), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s%s%s: %s\n",
	                 tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
	                 tm.tm_sec, ts.tv_nsec / 1000000, names[level], lg.program,
	                 lg.sandbox[0] ? " " : "", lg.sandbox, seen);
	if (n > 0) /* a full disk must not stop the program: the line is lost */
		(void)!write(lg.fd, line, (size_t)MIN(n, (int)sizeof(line) - 1));
}
