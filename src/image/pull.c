/* SPDX-License-Identifier: Apache-2.0 */
/* pull.c - fetching an image: who is asked, what is believed, and what becomes of it. */
#include "image/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "image/pullstore.h"
#include "image/skopeo.h"

enum { TICK_MS = 250, HEAL_MAX = 6, WHY_BYTES = 600 };

struct pull {
	const struct pull_opts *o;
	const struct image_ref *ref;
	struct pull_store s;
	enum image_phase phase;
	struct timespec start;
	struct skopeo_job job;
	int tmp; /* our folder below oci/, locked while we live */
	char tmp_name[40];
	char *tmp_path, *blobs_path;
	char digest[REF_DIGEST_BYTES];
	enum pull_vouched vouched;
	struct err *err;
};

/* ---- progress ----------------------------------------------------------- */

static const char *const phase_texts[] = {
	[IMAGE_PHASE_WAIT] = "waiting for another pull of the same image",
	[IMAGE_PHASE_INDEX] = "asking what the image is",
	[IMAGE_PHASE_DOWNLOAD] = "fetching the image",
	[IMAGE_PHASE_WRITE] = "merging its layers",
	[IMAGE_PHASE_FINISH] = "finishing",
};

static bool tell(void *arg)
{
	struct pull *p = arg;
	struct timespec now;

	if (!p->o->fn)
		return true;
	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	int64_t ms = (int64_t)(now.tv_sec - p->start.tv_sec) * 1000 +
	             (now.tv_nsec - p->start.tv_nsec) / 1000000;
	const struct image_progress ip = { .phase = p->phase,
		                           .text = phase_texts[p->phase],
		                           .elapsed_ms = ms > 0 ? (uint64_t)ms : 0 };
	return p->o->fn(p->o->arg, &ip);
}

static bool enter(struct pull *p, enum image_phase phase)
{
	p->phase = phase;
	return tell(p);
}

static int cancelled(struct pull *p)
{
	return err_set(p->err, -ECANCELED, "cancelled");
}

static void note(const struct pull *p, const char *fmt, ...) PRINTF_FMT(2, 3);
static void note(const struct pull *p, const char *fmt, ...)
{
	char text[REF_TEXT_BYTES + 400];
	va_list ap;

	if (!p->o->note)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	p->o->note(p->o->arg, text);
}

static bool from_registry(const struct pull *p)
{
	return p->ref->source == REF_REGISTRY;
}

/* ---- who vouches for it ------------------------------------------------- */

struct ways {
	bool policy; /* skopeo's policy demands a signature, or refuses */
	bool cosign;
};

/* The policy that skopeo finds: the user's own, else the system's. *out NULL: there is none. */
static int read_policy(char **out, size_t *out_n, char **out_path, struct err *err)
{
	const char *home = getenv("HOME");
	AUTO_FREE char *own = home && home[0] == '/'
	                              ? xasprintf("%s/.config/containers/policy.json", home)
	                              : NULL;
	const char *const paths[] = { own, "/etc/containers/policy.json",
		                      "/usr/share/containers/policy.json" };

	*out = NULL;
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		if (!paths[i])
			continue;
		AUTO_CLOSE int fd = open(paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0 && errno == ENOENT)
			continue;
		int r = fd < 0 ? -errno : fd_read_file(fd, PULL_POLICY_MAX, out, out_n);
		if (r < 0)
			return err_code(err, r, "cannot read the signature policy '%s'", paths[i]);
		*out_path = xstrdup(paths[i]);
		return 0;
	}
	return 0;
}

static int policy_way(struct pull *p, bool *out, char **out_path)
{
	enum pull_demand d = PULL_DEMAND_NOTHING;
	AUTO_FREE char *text = NULL;
	size_t n = 0;

	*out = false;
	int r = read_policy(&text, &n, out_path, p->err);
	if (r < 0 || !text)
		return r;
	if (pull_policy_demand(text, n, p->ref, &d) < 0)
		return err_set(p->err, -EBADMSG, "the signature policy '%s' is damaged", *out_path);
	if (d == PULL_DEMAND_BY_TAG) {
		(void)err_set(p->err, -EPERM,
		              "the signature policy '%s' has a rule for '%s:%s' alone", *out_path,
		              p->ref->name, p->ref->tag);
		return err_hint(p->err,
		                "an image is fetched by its digest: make it a rule for '%s'",
		                p->ref->name);
	}
	*out = d != PULL_DEMAND_NOTHING;
	return 0;
}

static int find_ways(struct pull *p, struct ways *w)
{
	const struct pull_opts *o = p->o;
	AUTO_FREE char *path = NULL;
	bool asked =
		from_registry(p) && (o->cosign_key || (o->cosign_identity && o->cosign_issuer));

	*w = (struct ways){ 0 };
	if (o->verify == PULL_VERIFY_OFF)
		return 0;
	int r = policy_way(p, &w->policy, &path);
	if (r < 0)
		return r;
	w->cosign = asked && cosign_installed();
	if (asked && !w->cosign && o->verify == PULL_VERIFY_WARN)
		note(p, "cosign is not installed: nobody looks who signed '%s'", ref_short(p->ref));
	if (o->verify == PULL_VERIFY_WARN || w->policy || w->cosign)
		return 0;
	(void)err_set(p->err, -EPERM,
	              "image.verify is require, and nothing here can tell who signed '%s'%s",
	              ref_short(p->ref), asked ? ": cosign is not installed" : "");
	return err_hint(p->err,
	                "demand a signature of '%s' in %s, or install cosign and say who may sign: "
	                "image.cosign_key, or image.cosign_identity and image.cosign_issuer",
	                p->ref->name, path ? path : "/etc/containers/policy.json");
}

/* A signature is missing or wrong, @p->err says why: may it be used all the same? */
static int ask(struct pull *p)
{
	char why[WHY_BYTES];

	(void)snprintf(why, sizeof(why), "%s", p->err->text);
	if (p->o->verify == PULL_VERIFY_WARN && p->o->confirm && p->o->confirm(p->o->arg, why)) {
		*p->err = (struct err){ 0 };
		return 0;
	}
	if (p->o->verify == PULL_VERIFY_WARN)
		return err_hint(p->err, "nothing was fetched; on a terminal you are asked, and "
		                        "image.verify: off asks nobody");
	return err_hint(p->err, "image.verify is require: nothing was fetched");
}

/* ---- blobs -------------------------------------------------------------- */

static void digest_of(char dst[REF_DIGEST_BYTES], const void *bytes, size_t n)
{
	struct sha256_state s;
	uint8_t sum[SHA256_BYTES];

	sha256_init(&s);
	sha256_update(&s, bytes, n);
	sha256_final(&s, sum);
	memcpy(dst, "sha256:", 7);
	sha256_hex(dst + 7, sum);
}

static int put_blob(struct pull *p, const char *digest, const struct buf *b)
{
	int r = image_write_file(p->s.blobs, digest + 7, b->p, b->len);

	return r < 0 ? err_code(p->err, r, "cannot write to the image cache") : 0;
}

/* What the registry has under its tag or @digest; its own digest is *out. */
static int fetch_manifest(struct pull *p, const char *digest, char out[REF_DIGEST_BYTES])
{
	struct buf b = { 0 };
	char got[REF_DIGEST_BYTES];

	int r = skopeo_raw(&p->job, p->ref, digest, &b, p->err);
	if (r == 0) {
		digest_of(got, b.p, b.len);
		const char *want = digest ? digest : p->ref->digest;
		if (want[0] && strcmp(want, got) != 0) {
			(void)err_set(p->err, -EBADMSG, "%s has %s where %s was asked for",
			              p->ref->host, got, want);
			r = err_hint(p->err,
			             "nothing was kept: the registry, or a mirror of it, is "
			             "damaged or lies");
		}
	}
	if (r == 0)
		r = put_blob(p, got, &b);
	buf_fini(&b);
	if (r == 0)
		memcpy(out, got, REF_DIGEST_BYTES);
	return r;
}

static int copy(struct pull *p, enum skopeo_policy policy)
{
	char copied[REF_DIGEST_BYTES];

	if (!enter(p, IMAGE_PHASE_DOWNLOAD))
		return cancelled(p);
	int r = skopeo_copy(&p->job, p->ref, from_registry(p) ? p->digest : NULL, p->blobs_path,
	                    policy, copied, p->err);
	if (r == 0 && !from_registry(p))
		memcpy(p->digest, copied, sizeof(copied));
	return r;
}

/* The blobs, and who vouched for them. */
static int fetch(struct pull *p, const struct ways *w, enum skopeo_policy *policy)
{
	int r = 0;

	*policy = w->policy ? SKOPEO_POLICY_USER : SKOPEO_POLICY_NONE;
	p->vouched = PULL_BY_NOBODY;
	if (w->cosign) {
		r = cosign_verify(&p->job, p->ref, p->digest, p->o->cosign_key,
		                  p->o->cosign_identity, p->o->cosign_issuer, p->err);
		if (r == 0)
			p->vouched = PULL_BY_COSIGN;
		else if (r != -EKEYREJECTED)
			return r;
		else if (ask(p) < 0)
			return p->err->code;
	}
	r = copy(p, *policy);
	if (r == -EKEYREJECTED && *policy == SKOPEO_POLICY_USER) {
		if (ask(p) < 0)
			return p->err->code;
		*policy = SKOPEO_POLICY_NONE;
		r = copy(p, *policy);
	} else if (r == 0 && *policy == SKOPEO_POLICY_USER && p->vouched == PULL_BY_NOBODY) {
		p->vouched = PULL_BY_POLICY;
	}
	if (r == 0 && p->vouched == PULL_BY_NOBODY && p->o->verify == PULL_VERIFY_WARN)
		note(p, "nobody vouches for '%s': no signature was looked for (image.verify)",
		     ref_short(p->ref));
	return r;
}

/* The config byte for byte, if it is what @want names. */
static int fetch_config(struct pull *p, const char *want)
{
	char got[REF_DIGEST_BYTES] = "";
	struct buf b = { 0 };

	int r = skopeo_config(&p->job, p->ref, p->digest, &b, p->err);
	if (r == 0) {
		digest_of(got, b.p, b.len);
		r = strcmp(got, want) == 0 ? put_blob(p, got, &b) : -ENOENT;
	}
	buf_fini(&b);
	return r;
}

/*
 * A blob is missing or is not what its name says. Of a registry the manifest below an index is
 * missing at first, and of one that speaks Docker's types the config too: what skopeo leaves of
 * those is written anew, under other digests. It is told to show them as they are.
 */
static int heal(struct pull *p, const char *bad, enum skopeo_policy policy)
{
	char got[REF_DIGEST_BYTES];

	if (unlinkat(p->s.blobs, bad + 7, 0) < 0 && errno != ENOENT)
		return err_errno(p->err, "cannot remove a damaged part from the image cache");
	if (from_registry(p)) {
		int r = fetch_manifest(p, bad, got);
		if (r < 0 && r != -ECANCELED)
			r = fetch_config(p, bad);
		if (r == 0 || r == -ECANCELED)
			return r;
		*p->err = (struct err){ 0 };
	}
	return copy(p, policy);
}

/* ---- one image ---------------------------------------------------------- */

static int merge(struct pull *p, enum skopeo_policy policy, struct pull_info *info)
{
	char last[REF_DIGEST_BYTES] = "";

	for (int turn = 0;; turn++) {
		struct image_oci_stats st = { 0 };
		AUTO_CLOSE int out =
			openat(p->tmp, IMAGE_ROOTFS, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (out < 0)
			return err_errno(p->err, "cannot create the image");
		if (!enter(p, IMAGE_PHASE_WRITE))
			return cancelled(p);
		struct err why = { 0 };
		int r = image_oci_build(p->s.oci, p->digest, out, &info->config, &st, &why);
		if (r == 0) {
			r = image_hash_fd(out, &info->hash, &info->size);
			if (r == 0 && fsync(out) < 0)
				r = -errno;
			if (r == 0)
				r = fd_close(&out);
			if (r == 0 && !st.has_shell)
				note(p, "'%s' has no /bin/sh: only programs of its own run in it",
				     ref_short(p->ref));
			return r < 0 ? err_code(p->err, r, "cannot write the image") : 0;
		}
		bool again = ref_digest_ok(st.bad_blob) && strcmp(last, st.bad_blob) != 0 &&
		             turn < HEAL_MAX;
		if (!again) {
			*p->err = why;
			(void)err_wrap(p->err, "cannot make an image of '%s'", ref_short(p->ref));
			return r;
		}
		memcpy(last, st.bad_blob, sizeof(last));
		r = heal(p, last, policy);
		if (r < 0)
			return r;
	}
}

static int finish(struct pull *p, struct pull_info *info)
{
	AUTO_FREE char *json = NULL;

	if (!enter(p, IMAGE_PHASE_FINISH))
		return cancelled(p);
	memcpy(info->digest, p->digest, sizeof(info->digest));
	info->built_s = info->used_s = time(NULL);
	int r = pull_info_format(info, &json);
	if (r == 0)
		r = image_write_file(p->tmp, IMAGE_MANIFEST, json, strlen(json));
	/* what skopeo left: not a part of the image */
	(void)!path_remove_tree(p->tmp, "layout");
	(void)unlinkat(p->tmp, "digest", 0);
	if (r == 0) {
		r = path_rename_new(p->s.oci, p->tmp_name, p->s.oci, p->digest + 7);
		if (r == 0)
			close_now(&p->tmp); /* now the image itself */
		else if (r == -EEXIST)
			r = path_exchange_dirs(p->s.oci, p->tmp_name, p->digest + 7);
	}
	(void)fsync(p->s.oci); /* some file systems cannot; the rename is there */
	return r < 0 ? err_code(p->err, r, "cannot put the image in place") : 0;
}

/* What the reference means from now on, and what it meant before. */
static int remember(struct pull *p, const struct pull_entry *old)
{
	struct pull_entry e = { .vouched = p->vouched, .seen_s = time(NULL) };
	char locked[REF_DIGEST_BYTES] = "";

	(void)snprintf(e.ref, sizeof(e.ref), "%s", p->ref->text);
	memcpy(e.digest, p->digest, sizeof(e.digest));
	int r = store_lock_get(&p->s, p->o->lock_path, p->ref->text, locked, p->err);
	if (r < 0)
		return r;
	const char *was = old->digest[0] ? old->digest : locked;
	if (was[0] && strcmp(was, p->digest) != 0) {
		if (p->o->note)
			note(p, "'%s' moved: it was %s, and is %s now", ref_short(p->ref), was,
			     p->digest);
		else /* for who uses it next */
			memcpy(e.was, was, sizeof(e.was));
	} else if (!p->o->note) {
		memcpy(e.was, old->was, sizeof(e.was));
	}
	r = store_put_entry(&p->s, &e, p->err);
	return r < 0 ? r : store_lock_put(&p->s, p->o->lock_path, p->ref->text, p->digest, p->err);
}

static int make_folder(struct pull *p)
{
	AUTO_CLOSE int lock = image_lock_file(p->s.oci, ".lock");
	uint32_t random;

	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return err_errno(p->err, "cannot lock the image cache");
	image_sweep(p->s.oci, ".tmp-");
	random_bytes(&random, sizeof(random));
	(void)snprintf(p->tmp_name, sizeof(p->tmp_name), ".tmp-%08x", random);
	int r = image_make_locked(p->s.oci, p->tmp_name, 0700, &p->tmp);
	if (r < 0)
		return err_code(p->err, r, "cannot create a folder in the image cache");
	p->tmp_path = xasprintf("%s/%s", p->s.path, p->tmp_name);
	p->blobs_path = xasprintf("%s/blobs", p->s.path);
	p->job = (struct skopeo_job){ .tmp = p->tmp_path, .tick = tell, .arg = p };
	return 0;
}

/* Is the image of p->digest there, and vouched for as is demanded? */
static bool good_enough(const struct pull *p, const struct pull_entry *old)
{
	struct pull_info info;

	if (store_load(&p->s, p->digest, &info, NULL) < 0)
		return false;
	pull_info_fini(&info);
	return p->o->verify != PULL_VERIFY_REQUIRE ||
	       (strcmp(old->digest, p->digest) == 0 && old->vouched != PULL_BY_NOBODY);
}

static int pull_locked(struct pull *p, const struct pull_entry *old)
{
	enum skopeo_policy policy;
	struct pull_info info = { 0 };
	struct ways w = { 0 };

	int r = make_folder(p);
	if (r == 0 && !enter(p, IMAGE_PHASE_INDEX))
		r = cancelled(p);
	if (r == 0)
		r = find_ways(p, &w);
	if (r == 0 && from_registry(p))
		r = fetch_manifest(p, NULL, p->digest);
	if (r < 0)
		return r;
	bool same = strcmp(old->digest, p->digest) == 0;
	if (from_registry(p) && good_enough(p, old)) {
		p->vouched = same ? old->vouched : PULL_BY_NOBODY;
		return remember(p, old);
	}
	r = fetch(p, &w, &policy);
	/* of a source that is no registry the digest is known only now */
	if (r == 0 && !from_registry(p) && good_enough(p, old))
		return remember(p, old);
	if (r == 0)
		r = merge(p, policy, &info);
	if (r == 0)
		r = finish(p, &info);
	if (r == 0)
		r = remember(p, old);
	pull_info_fini(&info);
	return r;
}

/* One pull of a reference at a time; who waited uses what the other one fetched. */
static int do_pull(struct pull *p)
{
	struct pull_entry old = { 0 };
	time_t began = time(NULL);
	bool waited = false;

	AUTO_CLOSE int guard = store_lock(&p->s, p->ref->text);
	if (guard < 0)
		return err_code(p->err, guard, "cannot lock the image cache");
	while (flock(guard, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_errno(p->err, "cannot lock the image cache");
		waited = true;
		if (!enter(p, IMAGE_PHASE_WAIT))
			return cancelled(p);
		(void)poll(NULL, 0, TICK_MS); /* a pause */
	}
	int r = store_get_entry(&p->s, p->ref->text, &old);
	if (r < 0)
		old = (struct pull_entry){ 0 }; /* none, or damaged: as if it was never fetched */
	if (waited && old.digest[0] && old.seen_s >= began) {
		memcpy(p->digest, old.digest, sizeof(p->digest));
		if (good_enough(p, &old))
			return 0;
	}
	return pull_locked(p, &old);
}

static int fetch_now(const struct pull_opts *o, const struct image_ref *ref, struct pull_image *out,
                     struct err *err)
{
	struct err own = { 0 };
	struct pull p = {
		.o = o, .ref = ref, .s = PULL_STORE_INIT, .tmp = -1, .err = err ? err : &own
	};

	(void)clock_gettime(CLOCK_MONOTONIC, &p.start); /* cannot fail for this clock */
	int r = store_open(&p.s, o->cache_dir, p.err);
	if (r == 0)
		r = do_pull(&p);
	if (r == 0)
		r = pull_load(o, p.digest, out, p.err);
	if (r == 0)
		out->asked = true;
	if (p.tmp_name[0])
		(void)!path_remove_tree(p.s.oci, p.tmp_name); /* or the next pull's sweep */
	close_now(&p.tmp);
	store_close(&p.s);
	free(p.tmp_path);
	free(p.blobs_path);
	return r;
}

int pull_get(const struct pull_opts *o, const struct image_ref *ref, enum pull_policy policy,
             struct pull_image *out, struct err *err)
{
	struct err first = { 0 };

	/* what a digest names does not change */
	if (policy == PULL_ALWAYS && ref->digest[0])
		policy = PULL_MISSING;
	if (policy != PULL_ALWAYS) {
		int r = pull_open(o, ref, out, &first);
		if (r == 0)
			store_tell_moved(o, ref);
		if (r == 0 || policy == PULL_NEVER) {
			if (r < 0 && err)
				*err = first;
			if (r == -ENOENT)
				(void)err_hint(err, "cloche image pull %s", ref_short(ref));
			return r;
		}
	}
	return fetch_now(o, ref, out, err);
}
