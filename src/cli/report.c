/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/vis.h"
#include "cage/cage.h"
#include "cli/netreport.h"
#include "term/screen.h"

enum { SHOWN_MAX = 5 };

/* The scan's report; NULL when there is none or it is not one. */
static json_t *load_scan(const char *text)
{
	json_t *j = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;

	if (j && !json_is_object(j)) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static json_int_t count_of(const json_t *scan, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(json_object_get(scan, "counts"), key));

	return v < 0 ? 0 : v;
}

static const json_t *list_of(const json_t *scan, const char *name)
{
	return json_object_get(json_object_get(scan, "lists"), name);
}

static json_int_t total_of(const json_t *list)
{
	json_int_t v = json_integer_value(json_object_get(list, "total"));

	return v < 0 ? 0 : v;
}

/* "N files, M hidden" */
static int put_counts(struct buf *b, const json_t *scan)
{
	char n[TERM_FMT_BYTES];
	json_int_t hidden = total_of(list_of(scan, "hidden"));
	int r = buf_printf(b, "%s files", term_fmt_count(n, (uint64_t)count_of(scan, "files")));

	if (r == 0 && hidden)
		r = buf_printf(b, ", %s hidden", term_fmt_count(n, (uint64_t)hidden));
	return r;
}

static const char *project_names(const struct plan *p, char *dst, size_t cap)
{
	char one[256];
	size_t n = 0;

	dst[0] = '\0';
	for (size_t i = 0; i < p->n_projects && n < cap; i++)
		n += (size_t)snprintf(dst + n, cap - n, "%s%s", i ? ", " : "",
		                      vis_str(one, sizeof(one), span_str(p->projects[i].name)));
	return dst;
}

/* Names of the keys that the command finds in its environment, or "none". */
static const char *key_names(const struct plan *p, const char *where, char *dst, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < p->env.n && n < cap; i++) {
		if (env_is_key(&p->env.v[i], p->profile))
			n += (size_t)snprintf(dst + n, cap - n, "%s%s", n ? ", " : "",
			                      p->env.v[i].name);
	}
	if (n == 0)
		(void)snprintf(dst, cap, "none");
	else if (n < cap)
		(void)snprintf(dst + n, cap - n, "%s", where);
	return dst;
}

int report_banner(struct buf *b, const struct plan *p, const char *scan_json)
{
	json_t *scan = load_scan(scan_json);
	char names[1024];
	int r = buf_printf(b, "cloche: %s on %s", p->agent, project_names(p, names, sizeof(names)));

	if (r == 0 && scan) {
		r = buf_printf(b, " (");
		if (r == 0)
			r = put_counts(b, scan);
		if (r == 0)
			r = buf_printf(b, ")");
	}
	if (r == 0)
		r = buf_printf(b, " in a microVM%s\n", p->accel == VMM_ACCEL_KVM ? ", KVM" : "");
	if (r == 0)
		r = netreport_banner(b, &p->netplan,
		                     key_names(p, " in the guest", names, sizeof(names)));
	if (r == 0)
		r = repoplan_put(b, &p->repo, "        ");
	if (r == 0 && p->accel == VMM_ACCEL_TCG)
		r = buf_printf(
			b,
			"cloche: EMULATED%s%s%s. Isolation is weaker and everything is slower.\n",
			p->kvm.reason[0] ? " (" : " (",
			p->kvm.reason[0] ? p->kvm.reason : "--accel tcg", ")");
	if (r == 0 && p->root_user)
		r = buf_printf(b, "cloche: the command runs as root in the guest (--user root)\n");
	if (r == 0 && p->hint_below_git) {
		char seen[512];
		r = buf_printf(b,
		               "hint: this folder lies in the git repository %s; its history is "
		               "not in the sandbox\n",
		               vis_str(seen, sizeof(seen), span_str(p->hint_below_git)));
	}
	const json_t *items = json_object_get(list_of(scan, "hidden"), "items");
	for (size_t i = 0, shown = 0; r == 0 && i < json_array_size(items) && shown < SHOWN_MAX;
	     i++) {
		const json_t *it = json_array_get(items, i);
		char seen[512];
		if (!json_is_true(json_object_get(it, "tracked")))
			continue;
		const char *path = json_string_value(json_object_get(it, "path"));
		r = buf_printf(
			b,
			"cloche: %s is hidden but tracked by git: its content is in the history\n",
			vis_str(seen, sizeof(seen), span_str(path ? path : "?")));
		shown++;
	}
	json_decref(scan);
	return r;
}

/* Up to SHOWN_MAX paths of a list of the report, and how many more there are. */
static int put_list(struct buf *b, const json_t *scan, const char *key, const char *what)
{
	const json_t *list = list_of(scan, key), *items = json_object_get(list, "items");
	json_int_t total = total_of(list);
	char n[TERM_FMT_BYTES], seen[512];
	size_t i;

	if (total == 0)
		return 0;
	int r = buf_printf(b, "  %-9s %s %s:", "", term_fmt_count(n, (uint64_t)total), what);
	for (i = 0; r == 0 && i < json_array_size(items) && i < SHOWN_MAX; i++) {
		const json_t *it = json_array_get(items, i);
		const char *path = json_string_value(json_object_get(it, "path"));
		const char *text = json_string_value(json_object_get(it, "text"));
		/* the texts were made visible by the scan; once more does not hurt plain ones */
		r = buf_printf(b, " %s%s", path ? vis_str(seen, sizeof(seen), span_str(path)) : "",
		               json_is_true(json_object_get(it, "tracked")) ? " (tracked!)" : "");
		if (r == 0 && text)
			r = buf_printf(b, " (%s)", vis_str(seen, sizeof(seen), span_str(text)));
	}
	if (r == 0 && total > (json_int_t)i)
		r = buf_printf(b, " and %lld more", (long long)(total - (json_int_t)i));
	return r == 0 ? buf_printf(b, "\n") : r;
}

static const struct {
	const char *key, *what;
} lists[] = {
	{ "hidden", "hidden" },
	{ "excluded", "excluded" },
	{ "special", "fifos, sockets or devices left out" },
	{ "unreadable", "unreadable" },
	{ "links_dropped", "links that leave the project, left out" },
	{ "links_relative", "links made relative" },
	{ "links_dangling", "links to hidden files" },
	{ "limits", "too deep or too long, left out" },
	{ "changed", "changed during the scan, left out" },
	{ "odd_names", "odd names" },
	{ "negations", "negations without effect (security patterns always hide)" },
	{ "ignore_files", "ignore files not honoured" },
	{ "git_hidden", "git hooks and the like, hidden" },
	{ "config_keys", "git configurations with keys that are not carried" },
	{ "credentials", "credentials taken out of git URLs" },
	{ "alternates", "git objects elsewhere: not in the sandbox" },
	{ "gitfiles", "git submodules" },
	{ "gitfiles_outside", "git will not work: .git points out of the project" },
	{ "git_links", ".git is a symlink" },
	{ "config_bad", "git configurations that could not be read, left out" },
	{ "index_bad", "git indexes that could not be read" },
	{ "index_split", "split git indexes" },
};

static void isolation(const struct plan *p, char *dst, size_t cap)
{
	struct cage_probe c;
	char layers[160] = "unknown";

	if (cage_probe(&c) == 0)
		(void)cage_layers_str(layers, sizeof(layers), c.layers);
	if (p->accel_ok)
		(void)snprintf(dst, cap, "microVM (QEMU, %s)   cage: %s",
		               p->accel == VMM_ACCEL_KVM ? "KVM" : "EMULATED", layers);
	else
		(void)snprintf(dst, cap, "none: %s   cage: %s", p->accel_err.text, layers);
}

static int put_layer(struct buf *b, const struct plan *p, size_t i)
{
	const struct layer_info *l = &p->layers.v[i].info;
	char hex[HASH_HEX_BYTES], size[TERM_FMT_BYTES];

	if (p->layers.fds[i] < 0)
		return buf_printf(b, "layer       %s %s is not built: run builds it\n", l->package,
		                  l->version);
	hash_hex(hex, &l->digest);
	return buf_printf(b, "layer       %s %s@blake2b:%.16s…   %s\n", l->package, l->version, hex,
	                  term_fmt_size(size, l->size));
}

static json_t *layers_json(const struct plan *p)
{
	json_t *list = json_array();

	for (size_t i = 0; i < p->layers.n; i++) {
		const struct layer_info *l = &p->layers.v[i].info;
		bool built = p->layers.fds[i] >= 0;
		char hex[HASH_HEX_BYTES];

		hash_hex(hex, &l->digest);
		(void)json_array_append_new(
			list, json_pack("{ss ss so* so*}", "package", l->package, "version",
		                        l->version, "digest", built ? json_string(hex) : NULL,
		                        "integrity", built ? json_string(l->integrity) : NULL));
	}
	return list;
}

static const char *user_text(const struct plan *p)
{
	if (p->root_user)
		return "root in the guest (--user root)";
	if (p->profile->sudo)
		return "agent (uid 1000), and may become root (sudo: true of the profile)";
	if (p->has_ref)
		return "USER of the image but never root, else uid 1000; no capabilities, "
		       "no_new_privs";
	return "agent (uid 1000), no capabilities, no_new_privs";
}

/* An image of somebody else, and what it asks of the run. */
static int put_foreign(struct buf *b, const struct plan *p)
{
	const struct pull_info *i = &p->oci.info;
	char s1[TERM_FMT_BYTES], user[160];
	int r;

	if (p->oci.fd < 0)
		return buf_printf(b, "image       %s is not in the cache: run fetches it%s\n",
		                  ref_short(&p->ref),
		                  p->pull == PLAN_PULL_NEVER ? ", which --pull never forbids" : "");
	r = buf_printf(b, "image       %s\n            %s, %s, fetched %s ago, vouched for by %s\n",
	               ref_short(&p->ref), i->digest, term_fmt_size(s1, i->size),
	               term_fmt_age((char[TERM_FMT_BYTES]){ 0 },
	                            (uint64_t)MAX((int64_t)0, (int64_t)time(NULL) - i->built_s)),
	               pull_vouched_name(i->vouched));
	if (r == 0 && i->config.user && i->config.user[0])
		r = buf_printf(b, "            USER %s\n",
		               vis_str(user, sizeof(user), span_str(i->config.user)));
	if (r == 0 && i->config.workdir && i->config.workdir[0])
		r = buf_printf(b, "            WORKDIR %s%s\n",
		               vis_str(user, sizeof(user), span_str(i->config.workdir)),
		               p->is_adhoc && !p->dir_given ? ": the command starts there"
		                                            : ": not used, the project is");
	return r;
}

static json_t *foreign_json(const struct plan *p)
{
	const struct pull_info *i = &p->oci.info;
	bool there = p->oci.fd >= 0;

	return json_pack("{ss sb so* so* so*}", "ref", p->ref.text, "cached", there, "digest",
	                 there ? json_string(i->digest) : NULL, "vouched",
	                 there ? json_string(pull_vouched_name(i->vouched)) : NULL, "user",
	                 there && i->config.user ? json_string(i->config.user) : NULL);
}

/* What of the profile waits for the user, or does nothing: never silently. */
static int put_profile(struct buf *b, const struct profile *p)
{
	const char *key, *lead = "unused      ";
	int r = 0;

	for (size_t i = 0; i < p->callback_ports.n && r == 0; i++)
		r = buf_printf(
			b,
			"login       comes back to port %llu: cloche net callback %llu, while "
			"it waits\n",
			(unsigned long long)p->callback_ports.v[i],
			(unsigned long long)p->callback_ports.v[i]);
	for (size_t i = 0; r == 0 && (key = profile_without_effect(p, &i));) {
		r = buf_printf(b, "%s%s", lead, key);
		lead = ", ";
	}
	if (r == 0 && lead[0] == ',')
		r = buf_printf(b, " of the profile: no effect yet\n");
	return r;
}

static void profile_json(json_t *top, const struct profile *p)
{
	json_t *ports = json_array(), *unused = json_array();
	const char *key;

	for (size_t i = 0; i < p->callback_ports.n; i++)
		(void)json_array_append_new(ports,
		                            json_integer((json_int_t)p->callback_ports.v[i]));
	for (size_t i = 0; (key = profile_without_effect(p, &i));)
		(void)json_array_append_new(unused, json_string(key));
	(void)json_object_set_new(top, "callback_ports", ports);
	(void)json_object_set_new(top, "profile_unused", unused);
}

int report_info(struct buf *b, const struct plan *p, const char *scan_json,
                const struct image_info *img)
{
	json_t *scan = load_scan(scan_json);
	char text[1024], hex[HASH_HEX_BYTES], s1[TERM_FMT_BYTES], s2[TERM_FMT_BYTES];
	int r;

	isolation(p, text, sizeof(text));
	r = buf_printf(b, "agent       %s   profile %s%s\nisolation   %s\n", p->agent,
	               profile_source_name(&p->profiles, p->entry, (uint8_t)p->profile->from),
	               p->entry->configured ? ", changed by config.yaml" : "", text);
	if (r == 0 && !p->accel_ok)
		r = buf_printf(b, "hint: %s\n", p->accel_err.hint);
	if (r == 0 && p->refusal.code)
		r = buf_printf(b, "refused     %s\nhint: %s\n", p->refusal.text, p->refusal.hint);
	if (r == 0 && p->has_ref)
		r = put_foreign(b, p);
	if (r == 0 && img) {
		hash_hex(hex, &img->digest);
		r = buf_printf(b, "%s%s@blake2b:%.16s…   kernel %s, built %s ago\n",
		               p->has_ref ? "kernel of   " : "image       ", img->id, hex,
		               img->kernel_release,
		               term_fmt_age(s1, (uint64_t)MAX((int64_t)0,
		                                              (int64_t)time(NULL) - img->built_s)));
	} else if (r == 0) {
		r = buf_printf(b, "%s%s is not built: run builds it, or cloche image build %s\n",
		               p->has_ref ? "kernel of   " : "image       ", p->image_name,
		               p->image_name);
	}
	if (r == 0 && p->boot_dir) {
		char seen[512];
		r = buf_printf(b, "kernel      given, with its modules: %s\n",
		               vis_str(seen, sizeof(seen), span_str(p->boot_dir)));
	}
	for (size_t i = 0; r == 0 && i < p->layers.n; i++)
		r = put_layer(b, p, i);
	for (size_t i = 0; r == 0 && i < p->n_projects; i++) {
		char path[1024], name[512];
		r = buf_printf(b, "project     %s → /work/%s%s\n",
		               vis_str(path, sizeof(path), span_str(p->projects[i].path)),
		               vis_str(name, sizeof(name), span_str(p->projects[i].name)),
		               i ? "" : "   snapshot, copy-on-write");
	}
	if (r == 0 && scan) {
		r = buf_printf(b, "            ");
		if (r == 0)
			r = put_counts(b, scan);
		if (r == 0)
			r = buf_printf(b, ", %s\n",
			               term_fmt_size(s1, (uint64_t)count_of(scan, "bytes")));
	}
	for (size_t i = 0; r == 0 && scan && i < ARRAY_LEN(lists); i++)
		r = put_list(b, scan, lists[i].key, lists[i].what);
	if (r == 0)
		r = buf_printf(b, "resources   %u vCPU, %s memory, disk %s, /tmp %s\n",
		               (unsigned)p->vcpus, term_fmt_size(s1, (uint64_t)p->memory_mib << 20),
		               term_fmt_size(s2, p->disk_bytes),
		               term_fmt_size((char[TERM_FMT_BYTES]){ 0 }, p->tmp_bytes));
	if (r == 0)
		r = put_profile(b, p->profile);
	if (r == 0)
		r = repoplan_put(b, &p->repo, "");
	if (r == 0)
		r = netreport_info(b, &p->netplan, &p->net);
	if (r == 0)
		r = buf_printf(b, "keys        %s\nuser        %s\nreview      --apply=%s\n",
		               key_names(p, "   in the guest's environment (cloche env)", text,
		                         sizeof(text)),
		               user_text(p), config_apply_name(p->apply));
	json_decref(scan);
	return r;
}

int report_info_json(struct buf *b, const struct plan *p, const char *scan_json,
                     const struct image_info *img)
{
	json_t *scan = load_scan(scan_json), *projects = json_array(), *image = json_null();
	char text[1024];

	isolation(p, text, sizeof(text));
	for (size_t i = 0; i < p->n_projects; i++) {
		AUTO_FREE char *path = vis_dup(span_str(p->projects[i].path));
		AUTO_FREE char *name = vis_dup(span_str(p->projects[i].name));
		(void)json_array_append_new(projects,
		                            json_pack("{ss ss}", "path", path, "name", name));
	}
	if (img) {
		char hex[HASH_HEX_BYTES];
		hash_hex(hex, &img->digest);
		image = json_pack("{ss ss ss ss sI}", "id", img->id, "digest", hex, "kernel",
		                  img->kernel_release, "suite", img->suite, "built_s",
		                  (json_int_t)img->built_s);
	}
	json_t *top = json_pack("{si ss ss sb ss so so s{si sI sI sI} s[] ss ss}", "schema", 1,
	                        "agent", p->agent, "isolation", text, "can_run",
	                        p->accel_ok && p->refusal.code == 0, "accelerator",
	                        p->accel_ok ? vmm_accel_name(p->accel) : "none", "image", image,
	                        "projects", projects, "resources", "vcpus", (int)p->vcpus, "memory",
	                        (json_int_t)((uint64_t)p->memory_mib << 20), "disk",
	                        (json_int_t)p->disk_bytes, "tmp", (json_int_t)p->tmp_bytes,
	                        "credentials", "user", p->root_user ? "root" : "agent", "apply",
	                        config_apply_name(p->apply));
	if (top) {
		(void)json_object_set_new(top, "workspace_mode", json_string("snapshot"));
		(void)json_object_set_new(
			top, "profile",
			json_string(profile_source_name(&p->profiles, p->entry,
		                                        (uint8_t)p->profile->from)));
		(void)json_object_set_new(top, "layers", layers_json(p));
		if (p->has_ref)
			(void)json_object_set_new(top, "foreign_image", foreign_json(p));
		profile_json(top, p->profile);
		(void)json_object_set_new(top, "repository", repoplan_json(&p->repo));
		netreport_info_json(top, &p->netplan, &p->net);
	}
	if (top && scan)
		(void)json_object_set_new(top, "scan", scan);
	else
		json_decref(scan);
	json_t *keys = json_object_get(top, "credentials");
	for (size_t i = 0; i < p->env.n; i++) {
		if (env_is_key(&p->env.v[i], p->profile))
			(void)json_array_append_new(keys, json_string(p->env.v[i].name));
	}
	if (top && (p->refusal.code || !p->accel_ok))
		(void)json_object_set_new(top, "reason",
		                          json_string(p->refusal.code ? p->refusal.text
		                                                      : p->accel_err.text));
	AUTO_FREE char *s = top ? json_dumps(top, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
	json_decref(top);
	return s ? buf_printf(b, "%s\n", s) : -ENOMEM;
}

/* ---- timings ------------------------------------------------------------ */

static const char *const phase_names[CTL_PHASES] = {
	[CTL_PHASE_SPAWNED] = "processes started", [CTL_PHASE_SCANNED] = "project scanned",
	[CTL_PHASE_BOOTED] = "guest ready",        [CTL_PHASE_MOUNTED] = "disks mounted",
	[CTL_PHASE_STARTED] = "command started",   [CTL_PHASE_OUTPUT] = "first byte of output",
	[CTL_PHASE_EXITED] = "command exited",     [CTL_PHASE_INDEXED] = "change index taken out",
	[CTL_PHASE_STAGED] = "change set on disk", [CTL_PHASE_OFF] = "machine off",
};

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

void report_timings(const struct session_opts *so, const struct session_result *r)
{
	uint64_t before = so->t0_ns;

	(void)fprintf(stderr, "%-24s %10s %10s\n", "PHASE", "AT ms", "TOOK ms");
	/* in the order in which they were reached, which differs from run to run */
	for (;;) {
		unsigned best = 0;
		for (unsigned i = 1; i < CTL_PHASES; i++) {
			if (r->phase_ns[i] > before &&
			    (!best || r->phase_ns[i] < r->phase_ns[best]))
				best = i;
		}
		if (!best)
			break;
		(void)fprintf(stderr, "%-24s %10.1f %10.1f\n", phase_names[best],
		              ms(r->phase_ns[best] - so->t0_ns), ms(r->phase_ns[best] - before));
		before = r->phase_ns[best];
	}
	(void)fprintf(stderr, "%-24s %10s %10.1f\n%-24s %10s %10.1f\n", "  guest: kernel to PID 1",
	              "", ms(r->guest_kernel_ns), "  guest: PID 1 to ready", "",
	              ms(r->guest_init_ns));
}

void report_trace(const char *file, const struct session_opts *so, const struct session_result *r)
{
	json_t *spans = json_array();

	for (unsigned i = 1; i < CTL_PHASES; i++) {
		if (r->phase_ns[i])
			(void)json_array_append_new(
				spans, json_pack("{ss sI}", "reached", phase_names[i], "ns",
			                         (json_int_t)(r->phase_ns[i] - so->t0_ns)));
	}
	json_t *top = json_pack("{si ss so sI sI}", "schema", 1, "sandbox", so->spec.id, "spans",
	                        spans, "guest_kernel_ns", (json_int_t)r->guest_kernel_ns,
	                        "guest_init_ns", (json_int_t)r->guest_init_ns);
	AUTO_FREE char *s = json_dumps(top, JSON_INDENT(2));
	json_decref(top);
	AUTO_CLOSE int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || !s || fd_write_all(fd, s, strlen(s)) < 0 || fd_write_all(fd, "\n", 1) < 0)
		(void)fprintf(stderr, "cloche: cannot write the trace '%s'\n", file);
}
