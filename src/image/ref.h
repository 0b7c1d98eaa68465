/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref.h - names of images of somebody else: what the user or a profile wrote, checked
 * and brought into one spelling.
 *
 *	[docker://]NAME[:TAG][@sha256:HEX]	of a registry
 *	containers-storage:NAME[:TAG]		of podman's own store
 *	docker-daemon:NAME[:TAG]		of a running Docker
 *	oci:DIR[:WORD]				an OCI image layout
 *	oci-archive:FILE[:WORD]			a tar of one
 *
 * NAME is HOST[:PORT]/PATH; without a host it is one of docker.io, and a single word there
 * is library/WORD, as for docker. No tag is "latest", and a tag beside a digest says nothing.
 * What means the same gets the same text: verification, pins and the cache compare texts.
 *
 * Pure. A text that is accepted holds neither blanks nor control characters, and begins with
 * its source, so it is neither an option nor several words for the program that gets it.
 */
#ifndef CLOCHE_IMAGE_REF_H
#define CLOCHE_IMAGE_REF_H

#include "base/span.h"

struct err;

enum {
	REF_NAME_MAX = 255, /* HOST[:PORT]/PATH, as registries have it */
	REF_TAG_MAX = 128,
	REF_PATH_MAX = 1024,   /* of DIR and FILE, absolute */
	REF_DIGEST_BYTES = 72, /* "sha256:", 64 digits, NUL */
	REF_TEXT_BYTES = 20 + REF_PATH_MAX + 1 + REF_NAME_MAX + 1 + REF_TAG_MAX + REF_DIGEST_BYTES,
};

enum ref_source {
	REF_REGISTRY,
	REF_CONTAINERS_STORAGE,
	REF_DOCKER_DAEMON,
	REF_OCI,
	REF_OCI_ARCHIVE,
	REF_SOURCES
};

struct image_ref {
	enum ref_source source;
	char text[REF_TEXT_BYTES];   /* all of it: "docker://docker.io/library/debian:13" */
	char name[REF_PATH_MAX + 1]; /* "docker.io/library/debian"; of OCI and ARCHIVE the path */
	char host[REF_NAME_MAX + 1]; /* "docker.io", "localhost:5000"; else empty */
	char tag[REF_NAME_MAX + 1]; /* empty with a digest; of OCI and ARCHIVE the word, or empty */
	char digest[REF_DIGEST_BYTES]; /* "sha256:...", or empty */
};

/*
 * ref_parse() - read what somebody wrote.
 * @cwd:	absolute; what a relative DIR or FILE is below
 * Return: 0; -EINVAL or -ENAMETOOLONG with @err, which says what is wrong.
 */
int ref_parse(struct image_ref *out, const char *text, const char *cwd, struct err *err) MUST_CHECK;

/* "sha256:" and 64 lower-case hex digits? */
bool ref_digest_ok(const char *s);

/* The text of the same image at one digest, for REF_REGISTRY: "docker://NAME@DIGEST". */
void ref_at(char dst[REF_TEXT_BYTES], const struct image_ref *ref, const char *digest);

/* How a person writes it: without "docker://", "docker.io/" and "library/". */
const char *ref_short(const struct image_ref *ref);

/*
 * ref_agent() - a name for the agent of an ad hoc run: the last part of the image's name, what
 * is none of a-z and 0-9 a dash. @cap at least 2; "run-image" when nothing is left.
 */
void ref_agent(char *dst, size_t cap, const struct image_ref *ref);

/* A look at what a person wrote: is it such a reference, and not the plain name of a recipe? */
static inline bool ref_looks_so(const char *s)
{
	for (; *s; s++) {
		if (*s == '/' || *s == ':' || *s == '@')
			return true;
	}
	return false;
}

#endif
