/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/account.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "base/vis.h"

enum { FIELDS_MAX = 7, PASSWD_FIELDS = 7, GROUP_FIELDS = 4 };

/* ---- lines -------------------------------------------------------------- */

/* The next line, in fields; false at the end. Lines of another number of fields are skipped. */
static bool next_line(struct span *file, struct span f[FIELDS_MAX], size_t want)
{
	while (file->len) {
		const uint8_t *nl = memchr(file->p, '\n', file->len);
		size_t len = nl ? (size_t)(nl - file->p) : file->len, n = 0;
		struct span line = span_of(file->p, len);

		*file = span_of(file->p + len + (nl != NULL), file->len - len - (nl != NULL));
		for (;;) {
			const uint8_t *colon = line.len ? memchr(line.p, ':', line.len) : NULL;
			size_t k = colon ? (size_t)(colon - line.p) : line.len;
			if (n < FIELDS_MAX)
				f[n] = span_of(line.p, k);
			n++;
			if (!colon)
				break;
			line = span_of(colon + 1, line.len - k - 1);
		}
		if (n == want && f[0].len)
			return true;
	}
	return false;
}

/* A decimal number up to INT32_MAX; false for anything else. */
static bool number(struct span s, uint32_t *out)
{
	uint64_t v = 0;

	if (s.len == 0 || s.len > 10)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(s.p[i] - '0');
	}
	if (v > INT32_MAX)
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool is_text(struct span s, const char *text)
{
	return span_eq(s, span_str(text));
}

/* What goes into the environment and is opened: printable, without a blank at its ends. */
static bool copy(char *dst, size_t cap, struct span s)
{
	if (s.len == 0 || s.len >= cap)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < ' ' || s.p[i] == 0x7f)
			return false;
	}
	memcpy(dst, s.p, s.len);
	dst[s.len] = '\0';
	return true;
}

static bool copy_path(char *dst, size_t cap, struct span s)
{
	return s.len && s.p[0] == '/' && copy(dst, cap, s);
}

bool account_has_name(struct span file, const char *name)
{
	while (file.len) {
		const uint8_t *nl = memchr(file.p, '\n', file.len);
		size_t len = nl ? (size_t)(nl - file.p) : file.len;
		const uint8_t *colon = memchr(file.p, ':', len);

		if (colon && is_text(span_of(file.p, (size_t)(colon - file.p)), name))
			return true;
		file = span_of(file.p + len + (nl != NULL), file.len - len - (nl != NULL));
	}
	return false;
}

/* ---- who it is ---------------------------------------------------------- */

/* The first line with this name, or else this uid (@by_uid). */
static bool find_passwd(struct account *a, struct span passwd, struct span name, bool by_uid)
{
	struct span f[FIELDS_MAX];
	uint32_t uid, gid;

	while (next_line(&passwd, f, PASSWD_FIELDS)) {
		if (!number(f[2], &uid) || !number(f[3], &gid))
			continue;
		if (by_uid ? uid != a->uid : !span_eq(f[0], name))
			continue;
		if (!copy(a->name, sizeof(a->name), f[0]))
			continue;
		a->uid = uid;
		a->gid = gid;
		(void)copy_path(a->home, sizeof(a->home), f[5]);   /* else what it was */
		(void)copy_path(a->shell, sizeof(a->shell), f[6]); /* the same */
		a->listed = true;
		return true;
	}
	return false;
}

static bool find_group(struct account *a, struct span group, struct span name)
{
	struct span f[FIELDS_MAX];
	uint32_t gid;

	while (next_line(&group, f, GROUP_FIELDS)) {
		if (number(f[2], &gid) && span_eq(f[0], name)) {
			a->gid = gid;
			return true;
		}
	}
	return false;
}

/* Is @name one of the words between commas? */
static bool is_member(struct span list, const char *name)
{
	while (list.len) {
		const uint8_t *comma = memchr(list.p, ',', list.len);
		size_t n = comma ? (size_t)(comma - list.p) : list.len;
		if (is_text(span_of(list.p, n), name))
			return true;
		list = span_of(list.p + n + (comma != NULL), list.len - n - (comma != NULL));
	}
	return false;
}

static void look_at_groups(struct account *a, struct span group, bool more)
{
	struct span f[FIELDS_MAX];
	uint32_t gid;

	while (next_line(&group, f, GROUP_FIELDS)) {
		if (!number(f[2], &gid))
			continue;
		a->group_there |= gid == a->gid;
		/* gid 0 opens what belongs to root's group: only what passwd says itself */
		if (more && gid != a->gid && gid != 0 && a->n_groups < ACCOUNT_GROUPS_MAX &&
		    is_member(f[3], a->name))
			a->groups[a->n_groups++] = gid;
	}
}

static void be_agent(struct account *a, struct span passwd)
{
	*a = (struct account){ .uid = ACCOUNT_AGENT_ID,
		               .gid = ACCOUNT_AGENT_ID,
		               .name = "agent",
		               .home = "/home/agent",
		               .shell = "/bin/sh",
		               .was_root = a->was_root };
	(void)find_passwd(a, passwd, (struct span){ 0 }, true);
}

static int no_such(struct err *err, const char *what, struct span name, const char *file)
{
	char seen[120];

	return err_set(err, -ENOENT,
	               "USER of the image names the %s '%s', which its %s does not have", what,
	               vis_str(seen, sizeof(seen), name), file);
}

int account_find(struct account *out, struct span passwd, struct span group, struct span user,
                 struct err *err)
{
	struct account a = { .home = "/home/agent", .shell = "/bin/sh" };
	const uint8_t *colon = user.len ? memchr(user.p, ':', user.len) : NULL;
	struct span name = span_of(user.p, colon ? (size_t)(colon - user.p) : user.len);
	struct span of = colon ? span_of(colon + 1, user.len - name.len - 1) : (struct span){ 0 };
	bool said = of.len != 0;
	char seen[120];

	if (user.len && name.len == 0)
		return err_set(err, -EINVAL, "USER of the image, '%s', is no user",
		               vis_str(seen, sizeof(seen), user));
	if (user.len == 0) {
		be_agent(&a, passwd);
	} else if (!find_passwd(&a, passwd, name, false)) {
		/* uid 0 has this name also where nothing says so */
		if (!number(name, &a.uid) && !is_text(name, "root"))
			return no_such(err, "user", name, "/etc/passwd");
		if (!find_passwd(&a, passwd, name, true)) {
			a.gid = a.uid == ACCOUNT_AGENT_ID ? a.uid : 0;
			(void)snprintf(a.name, sizeof(a.name), "%s",
			               a.uid == ACCOUNT_AGENT_ID ? "agent" : "user");
		}
	}
	if (said && !number(of, &a.gid) && !find_group(&a, group, of))
		return no_such(err, "group", of, "/etc/group");
	if (a.uid == 0) {
		a.was_root = true;
		be_agent(&a, passwd);
		said = false;
	}
	look_at_groups(&a, group, a.listed && !said);
	*out = a;
	return 0;
}
