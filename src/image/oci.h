/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oci.h - from the blobs of an image (OCI, or Docker's own types) to one root file system.
 *
 * Everything that is read is from outside: manifests and configs are parsed, and layers
 * unpacked, only by the caged cloche-image. What it says comes back as short words, each
 * checked here again. A digest is the root of everything: each blob is named by the SHA-256 in
 * what lies above it, and is believed only if it has that hash and, where it was said, that size.
 *
 * Layers are merged as the image specification says, with whiteouts and opaque directories,
 * into one EROFS. What a layer may hold is bounded by tree.h; no path leads through a link.
 */
#ifndef CLOCHE_IMAGE_OCI_H
#define CLOCHE_IMAGE_OCI_H

#include <stdint.h>

#include "base/mem.h"
#include "base/span.h"

struct err;

enum {
	OCI_LAYERS_MAX = 127,           /* as overlay file systems of containers have it */
	OCI_JSON_MAX = 4 * 1024 * 1024, /* of a manifest or a config */
	OCI_WORDS_MAX = 1024 * 1024,    /* what the reader says of one of them */
	OCI_LIST_MAX = 4096,            /* variables, words, labels, each */
	OCI_DIGEST_BYTES = 72,          /* "sha256:", 64 digits, NUL */
	OCI_DEPTH_MAX = 3,              /* an index, one in it, a manifest */
};
#define OCI_BLOB_MAX ((uint64_t)30 << 30) /* of one layer as it is stored */

struct oci_label {
	char *name, *value;
};

/* What the config asks of a run. Strings are owned; lists end with NULL. */
struct oci_config {
	char *user;    /* USER as it is written; "" when there is none */
	char *workdir; /* "" when there is none */
	char **env;    /* NAME=VALUE */
	char **entrypoint, **cmd;
	char *os, *arch;
	struct oci_label *labels;
	size_t n_labels;
};
void oci_config_free(struct oci_config *c); /* also of a zeroed one */

struct image_oci_stats {
	char bad_blob[OCI_DIGEST_BYTES]; /* missing, or not what its name says; else empty */
	char manifest[OCI_DIGEST_BYTES]; /* the one for this machine */
	uint64_t layer_bytes;            /* as they are stored */
	uint64_t entries;                /* files, folders and links in the image */
	bool has_shell;                  /* there is a /bin/sh */
};

/*
 * image_oci_build() - merge the image below @digest.
 * @layout_fd:	folder with blobs/sha256/HEX; nothing else in it is read
 * @digest:	"sha256:HEX" of a manifest, or of an index, of which the one for linux/amd64 counts
 * @out_fd:	an empty file, which becomes the EROFS
 * @cfg:	for oci_config_free()
 *
 * Return: 0; -EBADMSG with st->bad_blob; -ENOEXEC for another system; -EPROTO or -EFBIG for what
 * is refused; -errno. @err is filled.
 */
int image_oci_build(int layout_fd, const char *digest, int out_fd, struct oci_config *cfg,
                    struct image_oci_stats *st, struct err *err) MUST_CHECK;

/*
 * What the reader says: TAG=VALUE, each with a NUL behind it. oci_word() takes the next.
 * Return: 1, 0 at the end, -EPROTO for what is not of this form.
 */
int oci_word(struct span *said, const char **out_tag, size_t *out_tag_len,
             const char **out_value) MUST_CHECK;
/* "DIGEST SIZE" with a size of at most @max. 0 or -EPROTO. */
int oci_blob_parse(const char *s, uint64_t max, char digest[OCI_DIGEST_BYTES],
                   uint64_t *out_size) MUST_CHECK;
/* What it said of a config. 0 or -EPROTO; *out is untouched then. */
int oci_config_words(struct oci_config *out, struct span said) MUST_CHECK;

#endif
