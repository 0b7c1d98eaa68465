/* SPDX-License-Identifier: Apache-2.0 */
#include "image/cpio.h"

#include <errno.h>
#include <sys/stat.h>

static int pad(struct buf *b, size_t align)
{
	static const uint8_t zeros[512];

	return buf_put(b, zeros, (size_t)(align_up(b->len, align) - b->len));
}

static int put(struct cpio *c, const char *name, uint32_t mode, uint32_t nlink, struct span data)
{
	uint32_t size = (uint32_t)data.len, name_bytes = (uint32_t)strlen(name) + 1;
	uint32_t inode = mode ? ++c->inode : 0;
	/* magic, ino, mode, uid, gid, nlink, mtime, filesize, dev, rdev, namesize, check */
	int r = buf_printf(&c->out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
	                   inode, mode, 0, 0, nlink, 0, size, 0, 0, 0, 0, name_bytes, 0);

	if (r == 0)
		r = buf_put(&c->out, name, name_bytes);
	if (r == 0)
		r = pad(&c->out, 4);
	if (r == 0)
		r = buf_put(&c->out, data.p, data.len);
	return r == 0 ? pad(&c->out, 4) : r;
}

int cpio_add(struct cpio *c, const char *name, uint32_t mode, struct span data)
{
	size_t n = strlen(name);

	if (n == 0 || n > CPIO_NAME_MAX || name[0] == '/')
		return -EINVAL;
	if (!S_ISREG(mode) && !(S_ISDIR(mode) && data.len == 0))
		return -EINVAL;
	if (data.len > UINT32_MAX)
		return -EFBIG;
	return put(c, name, mode, S_ISDIR(mode) ? 2 : 1, data);
}

int cpio_end(struct cpio *c)
{
	int r = put(c, "TRAILER!!!", 0, 1, (struct span){ 0 });

	return r == 0 ? pad(&c->out, 512) : r;
}

void cpio_fini(struct cpio *c)
{
	buf_fini(&c->out);
}
