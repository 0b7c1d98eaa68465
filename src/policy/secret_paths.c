/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/secret_paths.h"

/*
 * In gitignore spelling, but at any depth whether or not there is a '/' in it.
 * A '*' stands only at the ends of the last component; everything is lower case.
 */
const char *const secret_patterns[] = {
	/* environment files, also .envrc */
	".env*",
	/* keys and stores of keys */
	"*.pem",
	"*.key",
	"*.p12",
	"*.pfx",
	"*.jks",
	"*.keystore",
	"*.truststore",
	"*.kdbx",
	"*.age",
	"*.ovpn",
	"*.ppk",
	"age-key.txt",
	"id_rsa*",
	"id_dsa*",
	"id_ed25519*",
	"id_ecdsa*",
	".ssh/",
	".gnupg/",
	".password-store/",
	".vault-token",
	/* clouds */
	".aws/",
	".gcp/",
	".gcloud/",
	".azure/",
	".config/gcloud/",
	".config/op/",
	".config/gh/hosts.yml",
	".config/rclone/",
	".docker/config.json",
	".dockercfg",
	".oci/",
	".s3cfg",
	".boto",
	".databrickscfg",
	".kube/config",
	"credentials.json",
	"service-account*.json",
	"*.tfstate*",
	"*.tfvars",
	".terraform/",
	".terraformrc",
	".vault_pass*",
	/* credentials of tools */
	".git-credentials",
	".netrc",
	"_netrc", /* its name on Windows */
	".htpasswd",
	".npmrc",
	".yarnrc.yml",
	".pypirc",
	".pgpass",
	".my.cnf",
	".gem/credentials",
	"secrets.yml",
	"secrets.yaml",
	".streamlit/secrets.toml",
	".cargo/credentials*",
	".m2/settings.xml",
	".composer/auth.json",
	".bundle/config",
	/* configuration of sandboxes, ours and others' */
	".cloche.yaml",
	".cloche.yml",
	".config/cloche/",
	".broodbox.yaml",
	".config/broodbox/",
	NULL,
};

const char *const heavy_patterns[] = {
	"node_modules/", "vendor/", "__pycache__/", "target/", "build/",
	"dist/",         ".venv/",  ".tox/",        NULL,
};

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

static bool eq(const char *pat, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((uint8_t)pat[i] != lower(p[i]))
			return false;
	return true;
}

/* One component; stars at the ends, or one in the middle. */
static bool component(const char *pat, size_t len, struct span name)
{
	const char *star = len ? memchr(pat, '*', len) : NULL;

	if (!star)
		return len == name.len && eq(pat, name.p, len);
	size_t head = (size_t)(star - pat);
	size_t tail = len - head - 1;
	bool open_end = tail && pat[len - 1] == '*';
	if (!open_end)
		return name.len >= head + tail && eq(pat, name.p, head) &&
		       eq(star + 1, name.p + name.len - tail, tail);
	tail--; /* "*x*": x anywhere behind the head */
	if (name.len < head + tail || !eq(pat, name.p, head))
		return false;
	for (size_t at = head; at + tail <= name.len; at++)
		if (eq(star + 1, name.p + at, tail))
			return true;
	return false;
}

static bool matches(const char *pat, struct span grandparent, struct span parent, struct span name,
                    bool is_dir)
{
	size_t len = strlen(pat);

	if (pat[len - 1] == '/') {
		if (!is_dir)
			return false;
		len--;
	}
	struct span parts[] = { name, parent, grandparent };
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		const char *slash = memrchr(pat, '/', len);
		size_t start = slash ? (size_t)(slash - pat) + 1 : 0;

		if (!component(pat + start, len - start, parts[i]))
			return false;
		if (!slash)
			return true;
		len = start - 1;
	}
	return false; /* no pattern of the table has four components */
}

const char *secret_name_match(struct span grandparent, struct span parent, struct span name,
                              bool is_dir)
{
	if (name.len == 0)
		return NULL;
	/*
	 * Most names are refused by these: patterns of several components start with
	 * a directory that has a dot in front, those with a star ask for a dot somewhere.
	 */
	uint8_t first = lower(name.p[0]);
	bool dot = memchr(name.p, '.', name.len) != NULL;
	bool below =
		(parent.len && parent.p[0] == '.') || (grandparent.len && grandparent.p[0] == '.');
	if (!dot && first != 'i' && first != '_' && !below)
		return NULL;
	for (size_t i = 0; secret_patterns[i]; i++) {
		const char *pat = secret_patterns[i];
		const char *slash = strchr(pat, '/');

		if (slash && slash[1]) { /* several components: its first is a parent's */
			if (!below)
				continue;
		} else if (pat[0] == '*' ? !dot : (uint8_t)pat[0] != first) {
			continue;
		}
		if (matches(pat, grandparent, parent, name, is_dir))
			return pat;
	}
	return NULL;
}

const char *secret_path_match(struct span path, bool is_dir)
{
	struct span grandparent = { 0 }, parent = { 0 };

	for (;;) {
		const uint8_t *slash = path.len ? memchr(path.p, '/', path.len) : NULL;
		struct span name = span_of(path.p, slash ? (size_t)(slash - path.p) : path.len);
		const char *hit = secret_name_match(grandparent, parent, name, slash || is_dir);

		if (hit || !slash)
			return hit;
		grandparent = parent;
		parent = name;
		path = span_of(slash + 1, path.len - name.len - 1);
	}
}

bool secret_pattern_named(struct span pattern)
{
	while (pattern.len && (pattern.p[0] == '/' || pattern.p[0] == '*')) {
		/* a leading "/" or "**" + "/" changes nothing: they hold at any depth */
		if (pattern.p[0] == '/') {
			pattern = span_of(pattern.p + 1, pattern.len - 1);
		} else if (pattern.len >= 3 && memcmp(pattern.p, "**/", 3) == 0) {
			pattern = span_of(pattern.p + 3, pattern.len - 3);
		} else {
			break;
		}
	}
	if (pattern.len && pattern.p[pattern.len - 1] == '/')
		pattern.len--;
	if (pattern.len == 0)
		return false;
	for (size_t i = 0; secret_patterns[i]; i++) {
		size_t len = strlen(secret_patterns[i]);

		if (secret_patterns[i][len - 1] == '/')
			len--;
		if (len == pattern.len && eq(secret_patterns[i], pattern.p, len))
			return true;
	}
	/* or the name itself that one covers: "!certs/server.pem" */
	return secret_path_match(pattern, true) != NULL;
}
