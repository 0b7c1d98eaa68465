/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void assert_failed(const char *what, const char *file, int line)
{
	/* stdio may be part of what is broken: one write, then abort */
	char buf[256];
	int n = snprintf(buf, sizeof(buf), "cloche: broken invariant '%s' at %s:%d\n", what, file,
	                 line);

	if (n > 0 && write(2, buf, (size_t)MIN(n, (int)sizeof(buf) - 1)) < 0)
		_exit(134);
	abort();
}

/* Of the last error that nobody wanted the text of: a hint or a context must not change it. */
static _Thread_local int unseen = -EIO;

static void set_text(struct err *err, int code, const char *fmt, va_list ap)
{
	ASSERT(code < 0);
	err->code = code;
	err->hint[0] = '\0';
	(void)vsnprintf(err->text, sizeof(err->text), fmt, ap); /* cut is fine */
}

static void append_reason(struct err *err, int code)
{
	char reason[128];
	size_t n = strlen(err->text);

	/* GNU strerror_r: never fails, may return a static string */
	const char *s = strerror_r(-code, reason, sizeof(reason));
	(void)snprintf(err->text + n, sizeof(err->text) - n, ": %s", s);
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return unseen = code;
	va_start(ap, fmt);
	set_text(err, code, fmt, ap);
	va_end(ap);
	return code;
}

int err_errno(struct err *err, const char *fmt, ...)
{
	int code = errno > 0 ? -errno : -EIO;
	va_list ap;

	if (!err)
		return unseen = code;
	va_start(ap, fmt);
	set_text(err, code, fmt, ap);
	va_end(ap);
	append_reason(err, code);
	return code;
}

int err_code(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return unseen = code;
	va_start(ap, fmt);
	set_text(err, code, fmt, ap);
	va_end(ap);
	append_reason(err, code);
	return code;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
	char old[ERR_TEXT_BYTES];
	va_list ap;

	if (!err)
		return unseen;
	memcpy(old, err->text, sizeof(old));
	va_start(ap, fmt);
	(void)vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	size_t n = strlen(err->text);
	(void)snprintf(err->text + n, sizeof(err->text) - n, ": %s", old);
	return err->code;
}

int err_hint(struct err *err, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return unseen;
	if (err->hint[0] == '\0') {
		va_start(ap, fmt);
		(void)vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
		va_end(ap);
	}
	return err->code;
}
