/* SPDX-License-Identifier: Apache-2.0 */
/* ids.c - the unprivileged uid of a sandbox's helpers, and capabilities. */
#include "cage/cage_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/span.h"

enum {
	UID_FIRST = 0x7f000000,
	UID_LAST = 0x7ffdffff,
	UID_SMALL_FIRST = 64000, /* where only 65536 ids exist */
	UID_SMALL_LAST = 64999,
	UID_TRIES = 64,
	SUBID_FILE_MAX = 1024 * 1024,
};

static int caps_set(uint64_t keep)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };

	d[0].permitted = d[0].effective = (uint32_t)keep;
	d[1].permitted = d[1].effective = (uint32_t)(keep >> 32);
	return syscall(SYS_capset, &h, d) < 0 ? -errno : 0;
}

int cage_ids_enter(uid_t uid, bool set_ids, uint64_t keep)
{
	/* an exec as uid 0 must not bring capabilities back; needs CAP_SETPCAP, and
	 * no_new_privs says the same where that is missing */
	(void)prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0);
	if (set_ids) {
		if (keep && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
			return -errno;
		if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
		    setresuid(uid, uid, uid) < 0)
			return -errno;
		if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0)
			return -errno;
	}
	return caps_set(keep);
}

/* A decimal number up to @end_at or the end of @r; false when there is none. */
static bool number(struct rd *r, char end_at, uint64_t *out)
{
	uint64_t v = 0;
	size_t digits = 0;

	while (r->left > 0 && *r->p >= '0' && *r->p <= '9' && digits < 11) {
		v = v * 10 + (uint64_t)(*r->p - '0');
		digits++;
		r->p++;
		r->left--;
	}
	if (digits == 0 || digits > 10)
		return false;
	if (r->left > 0) {
		if (*r->p != (uint8_t)end_at)
			return false;
		r->p++;
		r->left--;
	}
	*out = v;
	return true;
}

static struct rd next_line(struct rd *r)
{
	const uint8_t *nl = r->left ? memchr(r->p, '\n', r->left) : NULL;
	size_t n = nl ? (size_t)(nl - r->p) : r->left;
	struct rd line = rd_of(r->p, n);

	r->p += n + (nl ? 1 : 0);
	r->left -= n + (nl ? 1 : 0);
	return line;
}

bool cage_subid_has(const char *text, size_t len, uid_t uid)
{
	struct rd r = rd_of(text, len);

	while (r.left > 0) {
		struct rd line = next_line(&r);
		const uint8_t *colon = line.left ? memchr(line.p, ':', line.left) : NULL;
		uint64_t first, count;

		if (!colon)
			continue;
		line.left -= (size_t)(colon + 1 - line.p);
		line.p = colon + 1;
		if (number(&line, ':', &first) && number(&line, '\0', &count) && uid >= first &&
		    uid - first < count)
			return true;
	}
	return false;
}

bool cage_idmap_has(const char *text, size_t len, uid_t uid)
{
	struct rd r = rd_of(text, len);

	while (r.left > 0) {
		struct rd line = next_line(&r);
		uint64_t v[3];
		size_t n = 0;

		for (; n < ARRAY_LEN(v); n++) {
			while (line.left > 0 && *line.p == ' ') {
				line.p++;
				line.left--;
			}
			if (!number(&line, ' ', &v[n]))
				break;
		}
		if (n == ARRAY_LEN(v) && uid >= v[0] && uid - v[0] < v[2])
			return true;
	}
	return false;
}

/* The file's text, or nothing when it cannot be read. */
static void slurp(const char *path, char **out, size_t *len)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	*out = NULL;
	*len = 0;
	if (fd >= 0 && fd_read_file(fd, SUBID_FILE_MAX, out, len) < 0) {
		*out = NULL;
		*len = 0;
	}
}

int cage_uid_pick(uint32_t seed, uid_t *out)
{
	AUTO_FREE char *subuid = NULL, *subgid = NULL, *map = NULL;
	size_t subuid_len, subgid_len, map_len;
	uid_t first = UID_FIRST, last = UID_LAST;

	slurp("/etc/subuid", &subuid, &subuid_len);
	slurp("/etc/subgid", &subgid, &subgid_len);
	slurp("/proc/self/uid_map", &map, &map_len);
	if (map && !cage_idmap_has(map, map_len, UID_LAST)) {
		first = UID_SMALL_FIRST;
		last = UID_SMALL_LAST;
	}
	for (unsigned i = 0; i < UID_TRIES; i++) {
		uid_t u = first + (seed + i * 0x10001u) % (last - first + 1);

		if ((map && !cage_idmap_has(map, map_len, u)) ||
		    (subuid && cage_subid_has(subuid, subuid_len, u)) ||
		    (subgid && cage_subid_has(subgid, subgid_len, u)))
			continue;
		*out = u;
		return 0;
	}
	return -ENOENT;
}
