/* SPDX-License-Identifier: Apache-2.0 */
/* ocireader.h - the caged half of oci.h: pure readers of JSON, and the merge of layers. */
#ifndef CLOCHE_IMAGE_OCIREADER_H
#define CLOCHE_IMAGE_OCIREADER_H

#include "image/oci.h"
#include "image/worker.h"

/*
 * oci_read_root() - a manifest ("config=DIGEST SIZE" and a "layer=..." each), or of an index the
 * manifest for linux/amd64 ("manifest=DIGEST SIZE"), as words (oci.h) behind @out.
 * oci_read_config() - "os=", "arch=", "user=", "workdir=", "env=", "entrypoint=", "cmd=",
 * "label=" with "value=" behind it.
 *
 * Pure. Return: 0; -EPROTO for what is no such document; -ENOEXEC for another system; -EFBIG.
 */
int oci_read_root(struct span json, struct buf *out, struct err *err) MUST_CHECK;
int oci_read_config(struct span json, struct buf *out, struct err *err) MUST_CHECK;

/* One layer: its stream, and what it has to be. */
struct oci_layer {
	int fd; /* borrowed */
	uint8_t sum[SHA256_BYTES];
	uint64_t size;
};

/*
 * oci_merge() - @layers, the lowest first, as one image.
 * @bad:	of the layer that is not what its name says; or -1
 * Return: as rootfs_write(); -EBADMSG with *bad.
 */
int oci_merge(const struct oci_layer *layers, size_t n, const struct rootfs_opts *o,
              struct worker_report *out, int *bad, struct err *err) MUST_CHECK;

/* oci_take_layer() - the entries of one more layer into @t, their data into @sink. */
struct sink;
int oci_take_layer(struct tar *in, struct tree *t, struct sink *sink, struct err *err) MUST_CHECK;

#endif
