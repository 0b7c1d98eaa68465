/* SPDX-License-Identifier: Apache-2.0 */
#include "image/skopeo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/vis.h"
#include "image/image_priv.h"

extern char **environ;

enum { TICK_MS = 250, SAID_MAX = 64 * 1024, GRACE_MS = 2000, ARGS_MAX = 40, ENV_MAX = 64 };

/*
 * Where the user's logins, mirrors, proxies, certificates and stores are, and what their
 * credential helpers need. Nothing else of the environment is for skopeo.
 */
static const char *const passed[] = {
	"HOME",
	"PATH",
	"USER",
	"XDG_RUNTIME_DIR",
	"XDG_CONFIG_HOME",
	"XDG_DATA_HOME",
	"DBUS_SESSION_BUS_ADDRESS",
	"REGISTRY_AUTH_FILE",
	"DOCKER_CONFIG",
	"DOCKER_HOST",
	"DOCKER_CERT_PATH",
	"DOCKER_TLS_VERIFY",
	"CONTAINERS_CONF",
	"CONTAINERS_REGISTRIES_CONF",
	"CONTAINERS_STORAGE_CONF",
	"STORAGE_DRIVER",
	"SSL_CERT_FILE",
	"SSL_CERT_DIR",
	"HTTP_PROXY",
	"HTTPS_PROXY",
	"NO_PROXY",
	"http_proxy",
	"https_proxy",
	"no_proxy",
	/* cosign */
	"COSIGN_PASSWORD",
	"TUF_ROOT",
	"SIGSTORE_ROOT_FILE",
	"SIGSTORE_REKOR_PUBLIC_KEY",
};

/* ---- one run ------------------------------------------------------------ */

struct said {
	struct buf out, err;
	int status;
};

static void said_fini(struct said *s)
{
	buf_fini(&s->out);
	buf_fini(&s->err);
}

static int cancelled(struct err *err)
{
	return err_set(err, -ECANCELED, "cancelled");
}

/* Read what there is; false at the end. What is over @max is for nobody. */
static bool take(int fd, struct buf *to, size_t max)
{
	char piece[16 * 1024];
	ssize_t n = read(fd, piece, sizeof(piece));

	if (n < 0 && errno == EINTR)
		return true;
	if (n <= 0)
		return false;
	size_t room = to->len < max ? max - to->len : 0;
	return buf_put(to, piece, MIN((size_t)n, room)) == 0;
}

static int watch(struct proc *p, int *out, int *err_fd, struct said *s, struct skopeo_job *job,
                 struct err *err)
{
	bool over = false;

	while (!over || *out >= 0 || *err_fd >= 0) {
		struct pollfd pf[] = { { .fd = over ? -1 : p->pidfd, .events = POLLIN },
			               { .fd = *out, .events = POLLIN },
			               { .fd = *err_fd, .events = POLLIN } };
		int n = poll(pf, ARRAY_LEN(pf), TICK_MS);
		if (n < 0 && errno != EINTR)
			return err_errno(err, "cannot wait for a program");
		if (n > 0 && pf[1].revents && !take(*out, &s->out, SKOPEO_RAW_MAX + 1))
			close_now(out);
		if (n > 0 && pf[2].revents && !take(*err_fd, &s->err, SAID_MAX))
			close_now(err_fd);
		if (n > 0 && pf[0].revents)
			over = proc_wait(p, 0, &s->status) == 0;
		/* what it left behind may hold the pipes; it itself has said all */
		if (over && n == 0)
			return 0;
		if (job->tick && !job->tick(job->arg))
			return cancelled(err);
	}
	return 0;
}

/*
 * Without XDG_RUNTIME_DIR a login is looked for in /run/containers/UID, and that this folder is
 * closed to the user (root's podman made it) is an error to skopeo. There is no login there.
 */
static bool hide_run_dir(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/run/containers/%u/auth.json", (unsigned)geteuid());
	return !getenv("XDG_RUNTIME_DIR") && access(path, R_OK) < 0;
}

static int run(struct skopeo_job *job, const char *path, const char *const *argv, struct said *s,
               struct err *err)
{
	const char *envp[ENV_MAX];
	char *own[ENV_MAX];
	struct proc p = { .pidfd = -1 };
	size_t n = 0;
	int o[2], e[2];

	if (pipe2(o, O_CLOEXEC) < 0)
		return err_errno(err, "cannot make pipes");
	AUTO_CLOSE int out = o[0];
	AUTO_CLOSE int out_w = o[1];
	if (pipe2(e, O_CLOEXEC) < 0)
		return err_errno(err, "cannot make pipes");
	AUTO_CLOSE int err_fd = e[0];
	AUTO_CLOSE int err_w = e[1];
	for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
		const char *v = getenv(passed[i]);
		if (v)
			own[n++] = xasprintf("%s=%s", passed[i], v);
	}
	if (hide_run_dir())
		own[n++] = xasprintf("XDG_RUNTIME_DIR=%s", job->tmp);
	own[n++] = xasprintf("TMPDIR=%s", job->tmp);
	own[n++] = xstrdup("LC_ALL=C");
	ASSERT(n < ENV_MAX);
	memcpy(envp, own, n * sizeof(*own));
	envp[n] = NULL;
	struct proc_fd fds[] = { { .from = out_w, .to = 1 }, { .from = err_w, .to = 2 } };
	/* out of the terminal's session: it can ask for nothing there, nor say anything */
	struct proc_spec spec = { .path = path,
		                  .argv = argv,
		                  .envp = envp,
		                  .fds = fds,
		                  .n_fds = ARRAY_LEN(fds),
		                  .new_session = true,
		                  .cwd = job->tmp };
	int r = proc_spawn(&p, &spec, err);
	close_now(&out_w);
	close_now(&err_w);
	if (r == 0)
		r = watch(&p, &out, &err_fd, s, job, err);
	proc_end(&p, GRACE_MS);
	for (size_t i = 0; i < n; i++)
		free(own[i]);
	return r;
}

/* ---- what the user is told ---------------------------------------------- */

static int explain(enum skopeo_fault fault, const char *words, const struct image_ref *ref,
                   struct err *err)
{
	const char *name = ref_short(ref);
	const char *host = ref->host[0] ? ref->host : "the source";
	char seen[SKOPEO_WORDS_BYTES + 100];

	(void)vis_str(seen, sizeof(seen), span_str(words[0] ? words : "no message"));
	switch (fault) {
	case SKOPEO_LOGIN:
		(void)err_set(err, -EACCES, "%s refuses '%s': the credentials are missing or wrong",
		              host, name);
		return err_hint(
			err, "skopeo login %s (what podman or docker login left counts too)", host);
	case SKOPEO_ABSENT:
		(void)err_set(err, -ENOENT, "there is no image '%s'", name);
		return err_hint(err,
		                "check its name and tag; a private one is also hidden from who "
		                "is not logged in");
	case SKOPEO_NETWORK:
		(void)err_set(err, -ENETUNREACH, "cannot reach %s for '%s': %s", host, name, seen);
		return err_hint(err, "check the network and the proxy variables; --pull never uses "
		                     "what is in the cache");
	case SKOPEO_TLS:
		(void)err_set(err, -EPROTO, "no trusted connection to %s: %s", host, seen);
		return err_hint(err,
		                "put its CA into /etc/containers/certs.d/%s/ca.crt; plain http is "
		                "allowed to one registry by insecure = true in registries.conf",
		                host);
	case SKOPEO_ARCH:
		(void)err_set(err, -ENOEXEC, "'%s' is not made for linux/amd64", name);
		return err_hint(err, "skopeo inspect --raw %s shows what it is made for",
		                ref->text);
	case SKOPEO_SIGNATURE:
		return err_set(err, -EKEYREJECTED, "'%s': %s", name, seen);
	case SKOPEO_DIGEST:
		(void)err_set(err, -EBADMSG, "%s sends other bytes of '%s' than it promised: %s",
		              host, name, seen);
		return err_hint(err,
		                "the registry, or a mirror of it, is damaged: nothing was kept");
	case SKOPEO_SPACE:
		(void)err_set(err, -ENOSPC, "no space left to fetch '%s'", name);
		return err_hint(err, "cloche image ls shows what the cache holds, cloche image rm "
		                     "makes room");
	case SKOPEO_RATE:
		(void)err_set(err, -EBUSY, "%s has had too many requests from here", host);
		return err_hint(err, "wait, or log in: skopeo login %s", host);
	case SKOPEO_HELPER:
		(void)err_set(err, -EACCES, "cannot read your login for %s: %s", host, seen);
		return err_hint(err,
		                "skopeo login %s, or mend the credential helper; without a login "
		                "it refuses '%s'",
		                host, name);
	case SKOPEO_STORE:
		(void)err_set(err, -EIO, "cannot read '%s': %s", name, seen);
		return err_hint(err, "is the daemon running, and may you use it?");
	default:
		return err_set(err, -EIO, "skopeo cannot fetch '%s': %s", name, seen);
	}
}

static int ran(struct skopeo_job *job, const struct said *s, const struct image_ref *ref,
               struct err *err)
{
	char words[SKOPEO_WORDS_BYTES];

	if (s->status == 0)
		return 0;
	job->fault = skopeo_read(span_of(s->err.p, s->err.len), words, sizeof(words));
	return explain(job->fault, words, ref, err);
}

/* ---- skopeo ------------------------------------------------------------- */

static void source(char dst[REF_TEXT_BYTES], const struct image_ref *ref, const char *digest)
{
	if (digest)
		ref_at(dst, ref, digest);
	else
		(void)snprintf(dst, REF_TEXT_BYTES, "%s", ref->text);
}

/* Once more without a login where the user's credential helper is what failed. */
static int run_skopeo(struct skopeo_job *job, const struct image_ref *ref, const char **argv,
                      size_t n, const char *anonymous, size_t at, struct said *s, struct err *err)
{
	AUTO_FREE char *path = NULL;

	if (proc_find_program("skopeo", &path) < 0)
		return image_no_program(err, "skopeo", "skopeo");
	argv[n] = NULL;
	int r = run(job, path, argv, s, err);
	if (r == 0)
		r = ran(job, s, ref, err);
	if (r >= 0 || job->fault != SKOPEO_HELPER || s->status == 0)
		return r;
	ASSERT(n + 2 < ARGS_MAX);
	memmove(argv + at + 1, argv + at, (n + 1 - at) * sizeof(*argv));
	argv[at] = anonymous;
	said_fini(s);
	*s = (struct said){ 0 };
	struct err second = { 0 };
	r = run(job, path, argv, s, &second);
	if (r == 0)
		r = ran(job, s, ref, &second);
	if (r < 0 && err && job->fault != SKOPEO_LOGIN)
		*err = second; /* of a login that is needed the helper's own words say more */
	return r;
}

static int inspect(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
                   bool config, struct buf *out, struct err *err)
{
	const char *argv[ARGS_MAX];
	char from[REF_TEXT_BYTES];
	struct said s = { 0 };
	size_t n = 0;

	job->fault = SKOPEO_OTHER;
	source(from, ref, digest);
	argv[n++] = "skopeo";
	argv[n++] = "--override-os=linux";
	argv[n++] = "--override-arch=amd64";
	argv[n++] = "inspect";
	size_t at = n;
	argv[n++] = "--raw";
	if (config)
		argv[n++] = "--config";
	argv[n++] = from;
	int r = run_skopeo(job, ref, argv, n, "--no-creds", at, &s, err);
	if (r == 0 && (s.out.len == 0 || s.out.len > SKOPEO_RAW_MAX))
		r = err_set(err, -EFBIG, "the manifest of '%s' is empty or larger than %d MiB",
		            ref_short(ref), SKOPEO_RAW_MAX >> 20);
	if (r == 0 && buf_put(out, s.out.p, s.out.len) < 0)
		r = err_set(err, -ENOMEM, "no memory for a manifest");
	said_fini(&s);
	return r;
}

int skopeo_raw(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
               struct buf *out, struct err *err)
{
	return inspect(job, ref, digest, false, out, err);
}

int skopeo_config(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
                  struct buf *out, struct err *err)
{
	return inspect(job, ref, digest, true, out, err);
}

/* The text of a file that skopeo wrote, without its line's end. */
static int read_digest(const char *path, char out[REF_DIGEST_BYTES])
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	AUTO_FREE char *text = NULL;
	int r = fd < 0 ? -errno : fd_read_file(fd, 200, &text, NULL);

	if (r < 0)
		return r;
	text[strcspn(text, "\n")] = '\0';
	if (!ref_digest_ok(text))
		return -EBADMSG;
	memcpy(out, text, REF_DIGEST_BYTES);
	return 0;
}

int skopeo_copy(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
                const char *blobs, enum skopeo_policy policy, char out[REF_DIGEST_BYTES],
                struct err *err)
{
	const char *argv[ARGS_MAX];
	char from[REF_TEXT_BYTES];
	struct said s = { 0 };
	size_t n = 0;
	AUTO_FREE char *to = xasprintf("oci:%s/layout:image", job->tmp);
	AUTO_FREE char *digest_file = xasprintf("%s/digest", job->tmp);

	job->fault = SKOPEO_OTHER;
	source(from, ref, digest);
	argv[n++] = "skopeo";
	argv[n++] = "--override-os=linux";
	argv[n++] = "--override-arch=amd64";
	argv[n++] = "--tmpdir";
	argv[n++] = job->tmp;
	if (policy == SKOPEO_POLICY_NONE)
		argv[n++] = "--insecure-policy";
	argv[n++] = "copy";
	size_t at = n;
	argv[n++] = "--quiet";
	/* signatures have no place in a layout; they were looked at on the way */
	argv[n++] = "--remove-signatures";
	argv[n++] = "--dest-shared-blob-dir";
	argv[n++] = blobs;
	/* as they are: packed again they would have other digests */
	argv[n++] = "--dest-oci-accept-uncompressed-layers";
	argv[n++] = "--digestfile";
	argv[n++] = digest_file;
	argv[n++] = from;
	argv[n++] = to;
	int r = run_skopeo(job, ref, argv, n, "--src-no-creds", at, &s, err);
	if (r == 0) {
		r = read_digest(digest_file, out);
		if (r < 0)
			(void)err_code(err, r, "skopeo left no digest of '%s'", ref_short(ref));
	}
	said_fini(&s);
	return r;
}

/* ---- cosign ------------------------------------------------------------- */

/* In the system's folders, else where the user's PATH has it: Debian does not have it yet. */
static int find_cosign(char **out)
{
	const char *path = getenv("PATH");

	if (proc_find_program("cosign", out) == 0)
		return 0;
	AUTO_FREE char *copy = xstrdup(path ? path : "");
	for (char *save = NULL, *d = strtok_r(copy, ":", &save); d;
	     d = strtok_r(NULL, ":", &save)) {
		AUTO_FREE char *p = xasprintf("%s/cosign", d);
		if (d[0] == '/' && access(p, X_OK) == 0) {
			*out = take_ptr(&p);
			return 0;
		}
	}
	return -ENOENT;
}

bool cosign_installed(void)
{
	AUTO_FREE char *path = NULL;

	return find_cosign(&path) == 0;
}

int cosign_verify(struct skopeo_job *job, const struct image_ref *ref, const char *digest,
                  const char *key, const char *identity, const char *issuer, struct err *err)
{
	AUTO_FREE char *path = NULL;
	const char *argv[ARGS_MAX];
	char words[SKOPEO_WORDS_BYTES], seen[SKOPEO_WORDS_BYTES + 100];
	struct said s = { 0 };
	size_t n = 0;
	AUTO_FREE char *what = xasprintf("%s@%s", ref->name, digest);

	ASSERT(key || (identity && issuer));
	if (find_cosign(&path) < 0)
		return err_set(err, -ENOPKG, "cosign is not installed");
	argv[n++] = "cosign";
	argv[n++] = "verify";
	if (key) {
		argv[n++] = "--key";
		argv[n++] = key;
	} else { /* the whole identity, not a pattern that a longer one matches too */
		argv[n++] = "--certificate-identity";
		argv[n++] = identity;
		argv[n++] = "--certificate-oidc-issuer";
		argv[n++] = issuer;
	}
	argv[n++] = what;
	argv[n] = NULL;
	int r = run(job, path, argv, &s, err);
	if (r == 0 && s.status != 0) {
		(void)skopeo_read(span_of(s.err.p, s.err.len), words, sizeof(words));
		(void)vis_str(seen, sizeof(seen), span_str(words[0] ? words : "no message"));
		r = err_set(err, -EKEYREJECTED, "cosign does not accept '%s': %s", ref_short(ref),
		            seen);
	}
	said_fini(&s);
	return r;
}
