/* SPDX-License-Identifier: Apache-2.0 */
#include "super/export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"

enum {
	EXPORT_ASKED_MAX = 64, /* questions to cloche-disk on their way */
	EXPORT_FACT_BYTES = 8 + HASH_BYTES,
	/* of another size it differs anyhow: its hash is for a project that is restored later */
	EXPORT_BASE_MAX = 16 * 1024 * 1024,
};

struct asked {
	uint32_t ordinal, entry;
	struct hash hash; /* what the guest has */
};

enum stage { EX_INDEX, EX_WANT, EX_WANTING, EX_BLOBS, EX_DONE };

struct export
{
	struct export_ops ops;
	const struct manifest *m;
	struct changeset_writer *cw;
	int facts_fd;
	char id[CHANGESET_ID_MAX + 1];
	enum stage stage;
	struct change_walk walk;
	struct change_blobs blobs;
	struct buf in; /* a record that is not complete yet */
	uint8_t *want; /* a bit a record: its blob is to be fetched */
	size_t want_bytes;
	uint32_t want_at;      /* records before it were asked for */
	uint64_t wanted_bytes; /* sum of the sizes of all wanted blobs, as they arrive */
	struct asked asked[EXPORT_ASKED_MAX];
	size_t asked_head, asked_n;
	uint32_t at[CHANGE_DEPTH_MAX + 2]; /* baseline directory at each depth, or MANIFEST_NONE */
	uint32_t depth;
	bool recovered;
	bool stalled, indexed; /* indexed: the guest has said that its list is complete */
	struct err dead;       /* the error that ended it; code 0 while it lives */
};

int export_new(struct export **out, const struct export_opts *o, const struct export_ops *ops,
               struct err *err)
{
	struct export *x = xcalloc(1, sizeof(*x));
	struct changeset_meta meta = { 0 };

	x->ops = *ops;
	x->m = o->manifest;
	x->recovered = o->recovered;
	x->at[0] = o->manifest ? 0 : MANIFEST_NONE;
	(void)snprintf(x->id, sizeof(x->id), "%s", o->id);
	(void)snprintf(meta.id, sizeof(meta.id), "%s", o->id);
	change_walk_init(&x->walk, o->records_max, o->bytes_max);
	x->facts_fd = openat(o->staging_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (x->facts_fd < 0) {
		int r = err_errno(err, "cannot create a temporary file for the change set");
		export_free(x);
		return r;
	}
	int r = changeset_begin(&x->cw, o->staging_fd, &meta, err);
	if (r < 0) {
		export_free(x);
		return r;
	}
	*out = x;
	return 0;
}

void export_free(struct export *x)
{
	if (!x)
		return;
	if (x->cw)
		changeset_abort(x->cw);
	auto_close_(&x->facts_fd);
	buf_fini(&x->in);
	free(x->want);
	free(x);
}

static int set_want(struct export *x, uint32_t ordinal)
{
	size_t byte = ordinal / 8;

	if (byte >= x->want_bytes) {
		size_t n = MAX(byte + 1, x->want_bytes * 2 + 4096);
		uint8_t *p = realloc(x->want, n);
		if (!p)
			return -ENOMEM;
		memset(p + x->want_bytes, 0, n - x->want_bytes);
		x->want = p;
		x->want_bytes = n;
	}
	x->want[byte] |= (uint8_t)(1u << (ordinal % 8));
	return 0;
}

static bool wanted(const struct export *x, uint32_t ordinal)
{
	return ordinal / 8 < x->want_bytes && (x->want[ordinal / 8] >> (ordinal % 8) & 1);
}

static int put_fact(struct export *x, uint32_t ordinal, const struct change_record *r)
{
	uint8_t b[EXPORT_FACT_BYTES];
	struct wr w = wr_of(b, sizeof(b));

	wr_le(&w, r->size, 8);
	wr_put(&w, r->hash.b, HASH_BYTES);
	return fd_pwrite_all(x->facts_fd, b, sizeof(b), (off_t)ordinal * EXPORT_FACT_BYTES);
}

static int get_fact(struct export *x, uint32_t ordinal, uint64_t *size, struct hash *h)
{
	uint8_t b[EXPORT_FACT_BYTES];
	int r = fd_pread_exact(x->facts_fd, b, sizeof(b), (off_t)ordinal * EXPORT_FACT_BYTES);

	if (r < 0)
		return r;
	struct rd rd = rd_of(b, sizeof(b));
	*size = rd_le(&rd, 8);
	memcpy(h->b, rd_take(&rd, HASH_BYTES).p, HASH_BYTES);
	return 0;
}

/* One message of wants; the guest's answer brings the next. */
static int send_wants(struct export *x, struct err *err)
{
	static struct msg_range ranges[MSG_WANT_MAX]; /* one export a process at a time */
	uint32_t n = 0, i;

	for (i = x->want_at; i < x->walk.count; i++) {
		if (!wanted(x, i))
			continue;
		if (n && ranges[n - 1].first + ranges[n - 1].count == i) {
			ranges[n - 1].count++;
			continue;
		}
		if (n == MSG_WANT_MAX)
			break;
		ranges[n++] = (struct msg_range){ .first = i, .count = 1 };
	}
	bool last = i == x->walk.count;
	x->want_at = i;
	x->stage = last ? EX_BLOBS : EX_WANTING;
	int r = x->ops.want(x->ops.arg, ranges, n, last);
	return r < 0 ? err_code(err, r, "cannot ask the guest for changed files") : 0;
}

/* The entry of @name in the baseline directory we are in, if the guest could see it. */
static uint32_t baseline_of(const struct export *x, struct span name)
{
	uint32_t dir = x->at[x->depth];

	if (dir == MANIFEST_NONE)
		return MANIFEST_NONE;
	uint32_t i = manifest_child(x->m, dir, name);
	if (i == MANIFEST_NONE)
		return i;
	struct manifest_entry e;
	manifest_get(x->m, i, &e);
	return e.flags & MANIFEST_ABSENT ? MANIFEST_NONE : i;
}

static int take_file(struct export *x, uint32_t ordinal, const struct change_record *r)
{
	uint32_t i = baseline_of(x, r->name);
	int e = put_fact(x, ordinal, r);

	if (e < 0)
		return e;
	if (i != MANIFEST_NONE) {
		struct manifest_entry me;
		manifest_get(x->m, i, &me);
		if (me.kind == MANIFEST_FILE &&
		    (me.size == r->size || me.size <= EXPORT_BASE_MAX) &&
		    (me.size > 0 || r->size > 0)) {
			e = x->ops.ask_hash(x->ops.arg, i);
			if (e == 0) {
				size_t at = (x->asked_head + x->asked_n++) % EXPORT_ASKED_MAX;
				x->asked[at] = (struct asked){ .ordinal = ordinal,
					                       .entry = i,
					                       .hash = r->hash };
				return 0;
			}
			/* cloche-disk is gone: fetch it, the comparison comes at review */
		}
	}
	return set_want(x, ordinal);
}

void export_limit_hint(const char *sandbox, int code, struct err *err)
{
	if (code == -EFBIG)
		(void)err_hint(err,
		               "the sandbox's disk is kept: cloche recover %s --limit N takes more "
		               "names, --limit SIZE (like 64g) more content",
		               sandbox);
	else
		(void)err_hint(err, "the sandbox's disk is kept: sandboxes/%s/scratch.img (ext4)",
		               sandbox);
}

static int refuse(struct export *x, int e, struct err *err)
{
	unsigned at = x->walk.count;

	if (e == -EFBIG && at >= x->walk.records_max)
		(void)err_set(err, e,
		              "the guest's list of changes was refused at record %u: more than %u "
		              "changed names",
		              at, (unsigned)x->walk.records_max);
	else if (e == -EFBIG)
		(void)err_set(
			err, e,
			"the guest's list of changes was refused at record %u: more than %llu "
			"bytes in changed files",
			at, (unsigned long long)x->walk.bytes_max);
	else
		(void)err_code(err, e, "the guest's list of changes was refused at record %u", at);
	if (e == -EFBIG || e == -ENAMETOOLONG)
		export_limit_hint(x->id, e, err);
	return e;
}

static int take_index(struct export *x, const struct change_record *r, struct err *err)
{
	uint32_t ordinal = x->walk.count;
	int e = change_walk_take(&x->walk, r);

	if (e < 0)
		return refuse(x, e, err);
	struct change_record put = *r;
	/* of a crash: what was not synced may have its name already and no content yet */
	if (r->type == CHANGE_FILE) {
		put.flags = (uint8_t)(put.flags & ~CHANGE_SUSPECT);
		if (x->recovered && r->size == 0)
			put.flags |= CHANGE_SUSPECT;
	}
	e = changeset_put_record(x->cw, &put, err);
	if (e < 0)
		return e;
	switch (r->type) {
	case CHANGE_DIR: {
		uint32_t i = r->flags & CHANGE_OPAQUE ? MANIFEST_NONE : baseline_of(x, r->name);
		if (i != MANIFEST_NONE) {
			struct manifest_entry me;
			manifest_get(x->m, i, &me);
			if (me.kind != MANIFEST_DIR)
				i = MANIFEST_NONE;
		}
		x->at[++x->depth] = i;
		break;
	}
	case CHANGE_UP:
		x->depth--;
		break;
	case CHANGE_FILE:
		e = take_file(x, ordinal, r);
		break;
	case CHANGE_END:
		x->stage = EX_WANT;
		break;
	default:
		break;
	}
	return e < 0 ? err_code(err, e, "cannot store the list of changes") : 0;
}

static int take_blob(struct export *x, const struct change_record *r, struct err *err)
{
	int e = change_blobs_take(&x->blobs, r);

	if (e < 0)
		return err_code(err, e, "the guest's file contents were refused");
	switch (r->type) {
	case CHANGE_BLOB: {
		uint64_t size;
		struct hash h;
		if (!wanted(x, r->ordinal))
			return err_set(err, -EPROTO, "the guest sent a file that nobody asked for");
		e = get_fact(x, r->ordinal, &size, &h);
		if (e < 0)
			return err_code(err, e, "cannot read the list of changes");
		if (size != r->size)
			return err_set(err, -EPROTO, "a file changed while the guest sent it");
		x->want[r->ordinal / 8] &= (uint8_t) ~(1u << (r->ordinal % 8));
		x->wanted_bytes += size;
		return changeset_blob_begin(x->cw, r->ordinal, size, &h, err);
	}
	case CHANGE_EXTENT:
		return changeset_blob_extent(x->cw, r->offset, r->bytes, err);
	case CHANGE_BLOB_END:
		return changeset_blob_end(x->cw, err);
	case CHANGE_BLOBS_END:
		for (uint32_t i = 0; i < x->walk.count; i++) {
			if (wanted(x, i))
				return err_set(err, -EPROTO, "the guest left out record %u",
				               (unsigned)i);
		}
		x->stage = EX_DONE;
		e = changeset_commit(take_ptr(&x->cw), -1, err);
		if (e < 0)
			return e;
		e = x->ops.done(x->ops.arg, x->id, x->walk.count, x->wanted_bytes);
		return e < 0 ? err_code(err, e, "cannot publish the change set") : 0;
	default:
		return err_set(err, -EPROTO, "unexpected record in the guest's file contents");
	}
}

/* Take whole records from the buffer until it is empty or hashes are needed. */
static int take_records(struct export *x, struct err *err)
{
	size_t at = 0;
	int r = 0;

	x->stalled = false;
	while (x->stage != EX_DONE) {
		struct change_record rec;
		size_t used = 0;

		if (x->stage == EX_INDEX && x->asked_n == EXPORT_ASKED_MAX) {
			x->stalled = true;
			break;
		}
		if (x->stage == EX_WANT) {
			if (x->asked_n) {
				x->stalled = true;
				break;
			}
			if (x->indexed)
				r = send_wants(x, err);
			if (r < 0)
				break;
		}
		if (x->stage == EX_WANT || x->stage == EX_WANTING) {
			if (at != x->in.len)
				r = err_set(err, -EPROTO,
				            "the guest sent files before it was asked for them");
			break;
		}
		r = change_parse(&rec, x->in.p + at, x->in.len - at, &used);
		if (r == -EAGAIN) {
			r = 0;
			break;
		}
		if (r < 0) {
			err_code(err, r, "the guest's change stream was refused");
			break;
		}
		at += used;
		/* before the set gets its name: what follows the end is no part of it */
		if (rec.type == CHANGE_BLOBS_END && at != x->in.len) {
			r = err_set(err, -EPROTO, "the guest sent more than its change set");
			break;
		}
		r = x->stage == EX_INDEX ? take_index(x, &rec, err) : take_blob(x, &rec, err);
		if (r < 0)
			break;
	}
	buf_consume(&x->in, at);
	if (r < 0)
		return r;
	return x->stalled ? -EAGAIN : 0;
}

/* A set that was refused once must not be finished by what comes after. */
static int die(struct export *x, int r, const struct err *why)
{
	x->dead = *why;
	x->dead.code = r;
	if (x->cw)
		changeset_abort(take_ptr(&x->cw));
	buf_fini(&x->in);
	x->in = (struct buf){ 0 };
	x->asked_n = 0;
	return r;
}

static int run(struct export *x, struct err *err)
{
	int r = take_records(x, err);

	return r < 0 && r != -EAGAIN ? die(x, r, err) : r;
}

int export_feed(struct export *x, struct span bytes, struct err *err)
{
	if (x->dead.code) {
		*err = x->dead;
		return x->dead.code;
	}
	if (x->stage == EX_DONE)
		return err_set(err, -EPROTO, "the guest sent more than its change set");
	/* the caller stops while we are stalled, and a stream's credit is bounded */
	if (buf_put(&x->in, bytes.p, bytes.len) < 0) {
		err_set(err, -ENOMEM, "no memory for the change stream");
		return die(x, -ENOMEM, err);
	}
	return run(x, err);
}

static int answered(struct export *x, int code, const struct hash *h, struct err *err)
{
	struct asked *a = &x->asked[x->asked_head];

	x->asked_head = (x->asked_head + 1) % EXPORT_ASKED_MAX;
	x->asked_n--;
	if (code == 0) {
		int r = changeset_put_baseline(x->cw, a->ordinal, h, err);
		if (r < 0)
			return r;
	}
	if (code < 0 || !hash_eq(h, &a->hash)) {
		int r = set_want(x, a->ordinal);
		if (r < 0)
			return err_code(err, r, "no memory for the change set");
	}
	return 0;
}

int export_hash(struct export *x, uint32_t entry, int code, const struct hash *h, struct err *err)
{
	if (x->dead.code) {
		*err = x->dead;
		return x->dead.code;
	}
	if (x->asked_n == 0 || x->asked[x->asked_head].entry != entry)
		return err_set(err, -EPROTO, "cloche-disk answered a question nobody asked");
	int r = answered(x, code, h, err);
	return r < 0 ? die(x, r, err) : run(x, err);
}

int export_no_hashes(struct export *x, struct err *err)
{
	int r = 0;

	if (x->dead.code || x->stage == EX_DONE)
		return 0; /* nothing is waited for */
	do {              /* what waited in the buffer may ask again, in vain */
		while (r == 0 && x->asked_n)
			r = answered(x, -EPIPE, NULL, err);
		if (r < 0)
			return die(x, r, err);
		r = run(x, err);
		if (r == -EAGAIN)
			r = 0;
	} while (r == 0 && x->asked_n);
	return r;
}

int export_answered(struct export *x, struct err *err)
{
	int r = 0;

	if (x->dead.code)
		return 0;
	switch (x->stage) {
	case EX_INDEX:
	case EX_WANT:
		x->indexed = true;
		if (x->stage == EX_WANT || x->stalled)
			return run(x, err);
		r = err_set(err, -EPROTO, "the guest's list of changes has no end");
		break;
	case EX_WANTING:
		r = send_wants(x, err);
		break;
	case EX_BLOBS:
		r = err_set(err, -EPROTO,
		            "the guest says that all files were sent, but they were not");
		break;
	case EX_DONE:
		break;
	}
	return r < 0 ? die(x, r, err) : 0;
}

size_t export_asked(const struct export *x)
{
	return x->asked_n;
}
