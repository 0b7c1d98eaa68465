/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kbuild.c - a kernel package becomes vmlinux and the modules of the initramfs.
 *
 * The package is one stream, and which modules are needed is known only when all
 * have been seen (their dependencies are inside them). So all stay in memory as
 * they are packed (30-90 MB), and only those that are needed are unpacked.
 */
#include "image/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/vis.h"
#include "image/cpio.h"
#include "image/kernel.h"

enum {
	MODULES_SEEN_MAX = 8192,
	PACKED_BYTES_MAX = 400 * 1024 * 1024, /* all modules of a package */
	BUILTIN_BYTES_MAX = 1024 * 1024,
	RELEASE_MAX = 63,
};

static const struct {
	const char *group; /* "": every boot needs them */
	const char *name;
	bool required; /* as a module or built in */
} wanted[] = {
	{ "", "virtio_ring", true },       { "", "virtio", true },
	{ "", "virtio_mmio", true },       { "", "virtio_blk", true },
	{ "", "virtio_console", true },    { "", "erofs", true },
	{ "", "overlay", true },           { "rng", "virtio_rng", false },
	{ "net", "failover", false },      { "net", "net_failover", false },
	{ "net", "virtio_net", true },     { "balloon", "virtio_balloon", false },
	{ "virtiofs", "virtiofs", false },
};

struct packed {
	char name[KMOD_NAME_MAX];
	struct buf data;     /* as packed */
	struct buf unpacked; /* filled for those needed */
};

struct kbuild {
	struct tar *in;
	struct packed *mods;
	size_t n_mods;
	size_t packed_bytes;
	struct buf builtin; /* modules.builtin */
	struct buf vmlinuz;
	char release[RELEASE_MAX + 1];
	struct err *err;
};

static int read_data(struct tar *in, uint64_t size, size_t max, struct buf *out)
{
	struct span d;
	uint64_t off;
	int r;

	if (size > max)
		return -EFBIG;
	while ((r = tar_data(in, &d, &off)) == 1) {
		if (off != out->len || d.len > max - out->len)
			return -EPROTO;
		r = buf_put(out, d.p, d.len);
		if (r < 0)
			return r;
	}
	return r;
}

static bool take_prefix(struct span *s, const char *prefix)
{
	size_t n = strlen(prefix);

	if (s->len < n || memcmp(s->p, prefix, n) != 0)
		return false;
	*s = span_of(s->p + n, s->len - n);
	return true;
}

static bool ends_with(struct span s, const char *end)
{
	size_t n = strlen(end);

	return s.len >= n && memcmp(s.p + s.len - n, end, n) == 0;
}

static int take_entry(struct kbuild *k, const struct tar_entry *e)
{
	struct span p = e->path;

	(void)take_prefix(&p, "./");   /* either way */
	(void)take_prefix(&p, "usr/"); /* since Debian 13 */
	if (!S_ISREG(e->meta.mode) || e->hardlink.len)
		return 0;
	if (take_prefix(&p, "boot/vmlinuz-")) {
		if (k->release[0] || p.len == 0 || p.len > RELEASE_MAX)
			return -EPROTO;
		memcpy(k->release, p.p, p.len);
		return read_data(k->in, e->meta.size, KERNEL_BZIMAGE_MAX, &k->vmlinuz);
	}
	if (!take_prefix(&p, "lib/modules/"))
		return 0;
	if (ends_with(p, "/modules.builtin"))
		return k->builtin.len
		               ? -EPROTO
		               : read_data(k->in, e->meta.size, BUILTIN_BYTES_MAX, &k->builtin);
	struct span name = kmod_name_of_path(p);
	if (name.len == 0)
		return 0;
	if (k->n_mods == MODULES_SEEN_MAX || e->meta.size > PACKED_BYTES_MAX - k->packed_bytes)
		return -EFBIG;
	if (!k->mods)
		k->mods = xcalloc(MODULES_SEEN_MAX, sizeof(*k->mods));
	struct packed *m = &k->mods[k->n_mods++];
	memcpy(m->name, name.p, name.len);
	k->packed_bytes += (size_t)e->meta.size;
	return read_data(k->in, e->meta.size, KMOD_BYTES_MAX, &m->data);
}

static struct packed *find_module(struct kbuild *k, struct span name)
{
	for (size_t i = 0; i < k->n_mods; i++) {
		if (kmod_name_eq(span_str(k->mods[i].name), name))
			return &k->mods[i];
	}
	return NULL;
}

static bool is_builtin(const struct kbuild *k, const char *name)
{
	struct span rest = span_of(k->builtin.p, k->builtin.len);

	while (rest.len) {
		const uint8_t *nl = memchr(rest.p, '\n', rest.len);
		size_t n = nl ? (size_t)(nl - rest.p) : rest.len;
		struct span line = span_of(rest.p, n);
		rest = span_of(rest.p + n + (nl != NULL), rest.len - n - (nl != NULL));
		if (kmod_name_eq(kmod_name_of_path(line), span_str(name)))
			return true;
	}
	return false;
}

/* ---- output ------------------------------------------------------------- */

/* The modules needed so far, with their dependencies, in the order of @list. */
struct needed {
	struct kmod list[KMOD_LIST_MAX];
	struct packed *from[KMOD_LIST_MAX];
	const char *group[KMOD_LIST_MAX];
	size_t n;
};

static int need(struct kbuild *k, struct needed *nd, struct packed *m, const char *group)
{
	for (size_t i = 0; i < nd->n; i++) {
		if (nd->from[i] == m)
			return 0; /* of an earlier group, which is loaded before */
	}
	if (nd->n == KMOD_LIST_MAX)
		return -EPROTO;
	int r = tar_unpack(span_of(m->data.p, m->data.len), KMOD_BYTES_MAX, &m->unpacked);
	if (r < 0)
		return r;
	struct kmod *x = &nd->list[nd->n];
	r = kmod_depends(&x->deps, span_of(m->unpacked.p, m->unpacked.len));
	if (r < 0)
		return r;
	x->name = span_str(m->name);
	x->is_wanted = true;
	nd->from[nd->n] = m;
	nd->group[nd->n++] = group;
	for (size_t d = 0; d < x->deps.n; d++) {
		struct packed *dep = find_module(k, x->deps.name[d]);
		r = dep ? need(k, nd, dep, group) : 0; /* depth: each level is a new module */
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_dir(struct cpio *c, const char *group, const char **last)
{
	char path[64];

	if (*last && strcmp(*last, group) == 0)
		return 0;
	*last = group;
	(void)snprintf(path, sizeof(path), "modules%s%s", group[0] ? "/" : "", group);
	return cpio_add(c, path, S_IFDIR | 0755, (struct span){ 0 });
}

static int write_modules(struct kbuild *k, int fd, uint64_t *out_n)
{
	struct needed nd = { 0 };
	uint16_t order[KMOD_LIST_MAX];
	struct cpio c = { 0 };
	const char *last = NULL;
	int r = 0, n = 0;

	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		struct packed *m = find_module(k, span_str(wanted[i].name));
		if (!m) {
			if (wanted[i].required && !is_builtin(k, wanted[i].name))
				return err_set(k->err, -ENOENT, "kernel module '%s' is missing",
				               wanted[i].name);
			continue;
		}
		r = need(k, &nd, m, wanted[i].group);
		if (r < 0)
			return err_code(k->err, r, "kernel module '%s' is damaged", wanted[i].name);
	}
	n = kmod_order(nd.list, nd.n, order);
	if (n < 0)
		return err_code(k->err, n, "kernel modules depend on each other in a circle");
	/* one group behind the other; a dependency belongs to the first that needs it */
	unsigned number = 0;
	r = add_dir(&c, "", &last);
	for (size_t g = 0; g < ARRAY_LEN(wanted) && r == 0; g++) {
		if (g && strcmp(wanted[g].group, wanted[g - 1].group) == 0)
			continue;
		for (int i = 0; i < n && r == 0; i++) {
			struct packed *m = nd.from[order[i]];
			const char *group = nd.group[order[i]];
			char path[128];

			if (strcmp(group, wanted[g].group) != 0)
				continue;
			r = add_dir(&c, group, &last);
			(void)snprintf(path, sizeof(path), "modules/%s%s%02u-%s.ko", group,
			               group[0] ? "/" : "", number++, m->name);
			m->unpacked.len = kmod_slim(m->unpacked.p, m->unpacked.len);
			if (r == 0)
				r = cpio_add(&c, path, S_IFREG | 0644,
				             span_of(m->unpacked.p, m->unpacked.len));
		}
	}
	if (r == 0)
		r = cpio_end(&c);
	if (r == 0)
		r = fd_write_all(fd, c.out.p, c.out.len);
	cpio_fini(&c);
	if (r < 0)
		return err_code(k->err, r, "cannot write the kernel's modules");
	*out_n = (uint64_t)n;
	return 0;
}

static int write_vmlinux(struct kbuild *k, int fd)
{
	AUTO_BUF struct buf elf = { 0 };
	struct bzimage z;
	uint64_t entry;

	if (k->vmlinuz.len == 0)
		return err_set(k->err, -ENOENT, "the package holds no kernel");
	int r = bzimage_payload(&z, span_of(k->vmlinuz.p, k->vmlinuz.len));
	if (r < 0)
		return err_set(k->err, r, "the kernel is no bzImage with a known compression");
	r = buf_reserve(&elf, z.elf_bytes);
	if (r == 0)
		r = tar_unpack(z.payload, z.elf_bytes, &elf);
	if (r < 0 || elf.len != z.elf_bytes)
		return err_code(k->err, r < 0 ? r : -EPROTO, "cannot unpack the kernel");
	r = kernel_elf_check(span_of(elf.p, elf.len), &entry);
	if (r < 0)
		return err_set(k->err, r, "the kernel is no ELF with a PVH entry");
	r = fd_write_all(fd, elf.p, elf.len);
	return r < 0 ? err_code(k->err, r, "cannot write the kernel") : 0;
}

int kernel_write(int deb_fd, int vmlinux_fd, int modules_fd, struct worker_report *out,
                 struct err *err)
{
	struct kbuild k = { .err = err };
	struct tar_entry e;
	int r = tar_open_deb(deb_fd, &k.in);

	if (r < 0)
		return err_code(err, r == -EPROTO ? -EBADMSG : r, "cannot read the kernel package");
	while ((r = tar_next(k.in, &e)) == 1) {
		r = take_entry(&k, &e);
		if (r < 0)
			break;
	}
	if (r < 0) {
		char why[200];
		r = tar_is_damaged(k.in) ? -EBADMSG : r;
		(void)err_code(err, r, "kernel package: %s",
		               vis_str(why, sizeof(why), span_str(tar_error(k.in))));
	}
	if (r == 0)
		r = tar_drain(deb_fd);
	tar_free(k.in);
	if (r == 0)
		r = write_vmlinux(&k, vmlinux_fd);
	if (r == 0)
		r = write_modules(&k, modules_fd, &out->entries);
	if (r == 0)
		memcpy(out->text, k.release, sizeof(k.release));
	for (size_t i = 0; i < k.n_mods; i++) {
		buf_fini(&k.mods[i].data);
		buf_fini(&k.mods[i].unpacked);
	}
	free(k.mods);
	buf_fini(&k.builtin);
	buf_fini(&k.vmlinuz);
	return r;
}
