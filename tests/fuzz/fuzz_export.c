/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Property: a change stream is refused, with a reason and nothing left in
 * staging, whatever comes after; or changeset_adopt() makes a set of it that
 * changeset_open() accepts, with every blob as long as its record says.
 *
 * Input: bit 0 of the first byte says whether cloche-disk's hashes are the
 * guest's, bit 1 whether it is there at all; the second is the size of a feed;
 * then u16, the place where the guest says that its list is complete; then the
 * stream. What is fed after a refusal must change nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "super/export.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ASKED_MAX = 256, RECORDS_MAX = 400, BYTES_MAX = 1024 * 1024 };

#define SET_ID "demo-aaaaaa"

static struct {
	int staging_fd, sets_fd, manifest_fd;
	struct manifest manifest;
	char dir[2][64]; /* staging, sets */
	/* of one run */
	uint32_t asked[ASKED_MAX];
	size_t at, n;
	unsigned wants;
	bool no_disk, done;
} f;

static int ask_hash(void *arg UNUSED, uint32_t entry)
{
	if (f.no_disk)
		return -EPIPE;
	if (f.n - f.at == ASKED_MAX)
		abort(); /* far more than the export may ask at once */
	f.asked[f.n++ % ASKED_MAX] = entry;
	return 0;
}

static int want(void *arg UNUSED, const struct msg_range *r, uint32_t n, bool last)
{
	for (uint32_t i = 0; i < n; i++) {
		if (r[i].count == 0 || (i && r[i].first <= r[i - 1].first + r[i - 1].count - 1))
			abort();
	}
	f.wants += !last;
	return 0;
}

static int done(void *arg UNUSED, const char *id, uint32_t records UNUSED, uint64_t bytes UNUSED)
{
	if (f.done || strcmp(id, SET_ID) != 0)
		abort();
	f.done = true;
	return 0;
}

static void add(struct manifest_writer *w, uint32_t parent, uint8_t kind, const char *name,
                uint64_t size, uint32_t *out)
{
	struct manifest_entry e = {
		.parent = parent, .kind = kind, .mode = 0644, .size = size, .name = span_str(name)
	};

	e.same_as = *out; /* the index that it gets: entries are added in order */
	if (manifest_add(w, &e, out) < 0)
		abort();
}

static void make_manifest(void)
{
	struct manifest_writer *w = manifest_writer_new();
	struct manifest_project p = { .entry = 1, .path = span_str("/demo") };
	struct err e = { 0 };
	uint32_t i = 0;

	add(w, 0, MANIFEST_DIR, "", 0, &i);
	i = 1;
	add(w, 0, MANIFEST_DIR, "demo", 0, &i);
	i = 2;
	add(w, 1, MANIFEST_FILE, "a", 4, &i);
	i = 3;
	add(w, 1, MANIFEST_FILE, "b", 4, &i);
	i = 4;
	add(w, 1, MANIFEST_DIR, "d", 0, &i);
	i = 5;
	add(w, 4, MANIFEST_FILE, "f", 1, &i);
	if (manifest_add_project(w, &p) < 0)
		abort();
	manifest_set_block(w, 2, 1);
	manifest_set_block(w, 3, 2);
	manifest_set_block(w, 5, 3);
	manifest_set_image(w, 1, 4);
	f.manifest_fd = fd_memfd("manifest");
	if (f.manifest_fd < 0 || manifest_write(w, f.manifest_fd, 1, &e) < 0) {
		(void)fprintf(stderr, "%s\n", e.text);
		abort();
	}
	manifest_writer_free(w);
	static uint8_t room[64 * 1024];
	ssize_t n = pread(f.manifest_fd, room, sizeof(room), 0);
	if (n <= 0 || manifest_open(&f.manifest, span_of(room, (size_t)n), &e) < 0) {
		(void)fprintf(stderr, "%s\n", e.text);
		abort();
	}
}

static void remove_staging(void)
{
	(void)rmdir(f.dir[0]); /* empty, as each run has shown */
	(void)rmdir(f.dir[1]);
}

static int make_dir(char room[64])
{
	/* memory where there is: the set is synced for each input */
	char shm[] = "/dev/shm/fuzz-export-XXXXXX", tmp[] = "/tmp/fuzz-export-XXXXXX";
	char *dir = mkdtemp(shm);

	if (!dir)
		dir = mkdtemp(tmp);
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (fd < 0)
		abort();
	(void)snprintf(room, 64, "%s", dir);
	return fd;
}

static void make_staging(void)
{
	f.staging_fd = make_dir(f.dir[0]);
	f.sets_fd = make_dir(f.dir[1]);
	(void)atexit(remove_staging);
}

static void nothing_left(int dir_fd)
{
	int fd = dup(dir_fd);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d)
		abort();
	rewinddir(d);
	for (struct dirent *e; (e = readdir(d));) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			abort();
	}
	(void)closedir(d); /* only read */
}

static void check_set(void)
{
	static char path[] = "/demo";
	struct changeset_project project = { .path = path };
	const struct changeset_meta meta = {
		.id = SET_ID, .agent = "shell", .projects = &project, .n_projects = 1
	};
	struct changeset *s = NULL;
	struct err e = { 0 };
	AUTO_CLOSE int staged = path_open_dir(f.staging_fd, span_str(SET_ID));

	if (staged < 0 || changeset_adopt(f.sets_fd, staged, &meta, f.manifest_fd, &e) < 0 ||
	    path_remove_tree(f.staging_fd, SET_ID) < 0 ||
	    changeset_open(&s, f.sets_fd, SET_ID, CHANGESET_READONLY, &e) < 0) {
		(void)fprintf(stderr, "%s\n", e.text);
		abort();
	}
	uint32_t ordinal = 0;
	for (size_t at = 0; at < s->index.len; ordinal++) {
		struct change_record r;
		size_t used;
		if (change_parse(&r, s->index.p + at, s->index.len - at, &used) < 0)
			abort();
		at += used;
		AUTO_CLOSE int fd = r.type == CHANGE_FILE ? changeset_blob_open(s, ordinal) : -1;
		struct stat st;
		if (fd >= 0 && (fstat(fd, &st) < 0 || (uint64_t)st.st_size != r.size))
			abort();
	}
	changeset_close(s);
	if (path_remove_tree(f.sets_fd, SET_ID) < 0)
		abort();
}

/* Everything that was asked, until it does not wait any more. */
static int answer(struct export *x, bool same, struct err *e)
{
	struct hash h = { 0 };
	int r = 0;

	while (f.at < f.n && r != -EPROTO) {
		uint32_t entry = f.asked[f.at++ % ASKED_MAX];
		hash_bytes(&h, entry == 5 ? "x" : "one\n", entry == 5 ? 1 : 4);
		r = export_hash(x, entry, same ? 0 : -ESTALE, &h, e);
		if (r < 0 && r != -EAGAIN)
			return r;
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool ready;
	struct export_ops ops = { .ask_hash = ask_hash, .want = want, .done = done };
	struct err e = { 0 };
	struct export *x = NULL;
	int r = 0, first = 0;

	if (!ready) {
		make_manifest();
		make_staging();
		ready = true;
	}
	if (size < 4)
		return 0;
	f.at = f.n = f.wants = 0;
	f.done = false;
	f.no_disk = data[0] & 2;
	struct export_opts o = {
		.staging_fd = f.staging_fd,
		.manifest = &f.manifest,
		.id = SET_ID,
		.records_max = RECORDS_MAX,
		.bytes_max = BYTES_MAX,
	};
	if (export_new(&x, &o, &ops, &e) < 0)
		abort();
	size_t chunk = data[1] ? data[1] : 4096;
	size_t end = (size_t)data[2] | (size_t)data[3] << 8;
	bool told = false;
	size_t at = 4;
	for (;;) {
		size_t stop = told ? size : MIN(size, 4 + end);
		size_t n = MIN(chunk, stop - at);
		if (n) {
			/* of a size of its own, so that a sanitizer sees one byte too many */
			uint8_t *b = malloc(n);
			memcpy(b, data + at, n);
			r = export_feed(x, span_of(b, n), &e);
			free(b);
			at += n;
		} else if (!told) {
			told = true;
			r = export_answered(x, &e);
		} else if (at == size) {
			break;
		}
		if (r == -EAGAIN)
			r = 0;
		if (r == 0)
			r = answer(x, data[0] & 1, &e);
		while (r == 0 && f.wants) {
			f.wants--;
			r = export_answered(x, &e);
			r = r == -EAGAIN ? 0 : r;
		}
		if (first && r != first)
			r = first; /* export_answered() of a dead one has nothing to say */
		if (r < 0 && (e.code != r || !e.text[0]))
			abort();
		if (r < 0 && f.done && !first)
			r = 0; /* more than its set: refused, and the set is as it is */
		if (r < 0)
			first = r;
	}
	export_free(x);
	if (f.done) {
		if (first)
			abort();
		check_set();
	}
	nothing_left(f.staging_fd);
	nothing_left(f.sets_fd);
	return 0;
}
