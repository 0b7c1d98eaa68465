/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - base images: building, finding and removing them.
 *
 * An image is a folder below $XDG_CACHE_HOME/cloche/images (or the one in
 * CLOCHE_IMAGE_DIR), named RECIPE-HASH where HASH covers everything that decides
 * its content: the recipe's text, the suite and the format version. In it:
 *
 *	rootfs.erofs	the root file system, uncompressed EROFS
 *	vmlinux		the guest kernel, an ELF with a PVH entry
 *	modules.cpio	its modules in load order (newc)
 *	manifest.json	digests, sizes, suite, kernel release, time of the build
 *
 * It appears whole (temporary folder, fsync, rename) or not at all. One lock a
 * name makes two builds at once one build; what a killed build left is swept by
 * the next, which tells it from a living one by a flock on the folder.
 *
 * The initramfs is init plus modules.cpio. Since init changes with our version
 * and the kernel does not, it is a file of its own (initrd-KEY.cpio beside the
 * images, KEY over both contents), made by image_open() in milliseconds when it
 * is missing. Its content:
 *
 *	/init			cloche-init
 *	/modules/NN-NAME.ko	needed for every boot, in load order
 *	/modules/GROUP/NN-NAME.ko	"rng", "net", "balloon", "virtiofs": only when
 *				the machine has such a device; load after the above
 *
 * A module that is built into this kernel is absent: load what is there.
 *
 * Packages come through apt with the host's own Debian archive keyring. Its
 * output (a tar stream) is untrusted all the same: only the caged cloche-image
 * process parses it. What this header offers runs in the user's process and
 * parses nothing but manifest.json, which it wrote itself.
 */
#ifndef CLOCHE_IMAGE_IMAGE_H
#define CLOCHE_IMAGE_IMAGE_H

#include <sys/types.h>

#include "base/hash.h"
#include "image/registry.h"

struct err;

enum { IMAGE_NAME_MAX = 64, IMAGE_SUITE_MAX = 32, IMAGE_OLD_DAYS = 30 };

/* Which image, and where it comes from; zeroed means every default. */
struct image_opts {
	const char *name;      /* recipe: "base" (also called "minimal"), ...; NULL: "base" */
	const char *suite;     /* image.suite: Debian code name; NULL: "trixie" */
	const char *mirror;    /* image.mirror; NULL: $CLOCHE_MIRROR, else the host's own */
	const char *cache_dir; /* absolute; NULL: as above */
	/*
	 * image.boot: a folder of the user's with vmlinux (an ELF with a PVH entry) and
	 * modules.cpio (as above; may hold nothing but its end) to boot with in place of the
	 * image's. Both or none: nothing is mixed. NULL: the image's.
	 */
	const char *boot_dir;
};

/* What an image is, without opening its files. */
struct image_info {
	char name[IMAGE_NAME_MAX];    /* recipe */
	char id[IMAGE_NAME_MAX + 16]; /* folder: RECIPE-HASH */
	char suite[IMAGE_SUITE_MAX];
	char kernel_release[IMAGE_NAME_MAX]; /* as in uname -r */
	struct hash digest;                  /* of rootfs.erofs */
	int64_t built_s;                     /* seconds since 1970 */
	uint64_t size;                       /* all files of the image */
	bool is_current;                     /* this version's recipe would give this id */
};

/* An image in use. Its files may be removed meanwhile; the descriptors stay good. */
struct image {
	struct image_info info;
	int rootfs_fd, kernel_fd, initrd_fd;           /* read-only; -1 while closed */
	char *rootfs_path, *kernel_path, *initrd_path; /* absolute */
	uint64_t rootfs_size;
	struct registry_list registries; /* where its package tools fetch from */
};

enum image_phase {
	IMAGE_PHASE_WAIT,     /* somebody else builds the same image */
	IMAGE_PHASE_INDEX,    /* apt reads the package lists */
	IMAGE_PHASE_DOWNLOAD, /* packages */
	IMAGE_PHASE_UNPACK,   /* and configures */
	IMAGE_PHASE_KERNEL,
	IMAGE_PHASE_WRITE, /* tar stream to EROFS */
	IMAGE_PHASE_FINISH,
};

struct image_progress {
	enum image_phase phase;
	const char *text; /* one printable line for a person */
	uint64_t bytes;   /* written so far */
	uint64_t elapsed_ms;
};

/* Called a few times a second at most. Return: true to go on, false cancels (-ECANCELED). */
typedef bool (*image_progress_fn)(void *arg, const struct image_progress *p);

/*
 * image_build() - make the image, unless it is there.
 * @force:	replace an existing one (a new one with today's packages)
 * @fn:		may be NULL
 * @out_built:	false: it was there already, nothing was done; may be NULL
 *
 * Return: 0; -ENOENT for an unknown recipe; -ENOPKG when a program is missing
 * (@err's hint is the apt line); -EPERM without subuid ranges; -EPROTO for a
 * stream that breaks a limit; -ECANCELED; -errno.
 */
int image_build(const struct image_opts *opts, bool force, image_progress_fn fn, void *arg,
                bool *out_built, struct err *err) MUST_CHECK;

/*
 * image_open() - open the image that @opts name, and its initramfs (made if missing).
 *
 * Checks sizes against the manifest, not the digest: image_verify() does that.
 *
 * Return: 0, -ENOENT when it is not built (hint: the command), -EBADMSG when
 * damaged (hint: rebuild), or -errno.
 */
int image_open(const struct image_opts *opts, struct image *out, struct err *err) MUST_CHECK;

/* Close and free; accepts a zeroed or half-filled one made by IMAGE_INIT. */
void image_close(struct image *img);
#define IMAGE_INIT                                                \
	{                                                         \
		.rootfs_fd = -1, .kernel_fd = -1, .initrd_fd = -1 \
	}

/* Read all files and compare with the manifest's digests. 0, -EBADMSG, or -errno. */
int image_verify(const struct image_opts *opts, struct err *err) MUST_CHECK;

/* All images in the cache, sorted by name, newest first. *out is malloc'd (NULL when none). */
int image_list(const struct image_opts *opts, struct image_info **out, size_t *out_n,
               struct err *err) MUST_CHECK;

/*
 * image_rm() - remove an image by recipe name (all of that name) or by id.
 * Also removes initramfs files that no image uses any more.
 * @out_n:	how many images went; may be NULL
 *
 * Return: 0, -ENOENT when there is none, or -errno.
 */
int image_rm(const struct image_opts *opts, const char *name_or_id, size_t *out_n,
             struct err *err) MUST_CHECK;

/* Name of recipe @k, or NULL beyond the last. */
const char *image_recipe_name(size_t k);

enum { IMAGE_SCRATCH_MIN = 64 * 1024 * 1024 };
#define IMAGE_SCRATCH_DEFAULT ((uint64_t)16 << 30)
#define IMAGE_SCRATCH_MAX ((uint64_t)1 << 44)

/*
 * image_scratch_create() - a fresh, empty, sparse ext4 disk.
 * @dirfd:	where @name (one component, must not exist) is created, 0600
 * @size:	bytes, IMAGE_SCRATCH_MIN to IMAGE_SCRATCH_MAX, rounded down to MiB
 *
 * The first of each size is made by mkfs.ext4 and kept in the cache; others are
 * sparse copies of it (1-6 ms). Labelled "cloche-scratch"; one fixed UUID.
 *
 * Return: 0, -ENOPKG without e2fsprogs (hint), or -errno.
 */
int image_scratch_create(const struct image_opts *opts, int dirfd, const char *name, uint64_t size,
                         struct err *err) MUST_CHECK;

#endif
