/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "config/config.h"

static int parse(struct config *c, const char *text, struct err *e)
{
	*e = (struct err){ 0 };
	config_init(c);
	return config_parse(c, "config.yaml", text, strlen(text), e);
}

static void test_good(void **state UNUSED)
{
	struct config c;
	struct err e;

	assert_int_equal(parse(&c, "", &e), 0);
	assert_string_equal(c.accel, "auto");
	assert_int_equal(c.memory_mib, 4096);
	config_fini(&c);
	assert_int_equal(parse(&c, "# nothing\n", &e), 0);
	config_fini(&c);
	assert_int_equal(
		parse(&c,
	              "vm:\n  accel: tcg\n  cpus: 8\n  memory: 2GiB\n  disk: 1g\n  tmp_size: 64\n"
	              "workspace:\n  exclude_heavy: true\n  exclude:\n    - a\n    - '!b'\n"
	              "review:\n  apply: none\nimage:\n  suite: bookworm\n",
	              &e),
		0);
	assert_string_equal(c.accel, "tcg");
	assert_int_equal(c.cpus, 8);
	assert_int_equal(c.memory_mib, 2048);
	assert_int_equal(c.tmp_bytes, 64 << 20);
	assert_int_equal(c.n_exclude, 2);
	assert_string_equal(c.exclude[1], "!b");
	assert_int_equal(c.apply, CONFIG_APPLY_NONE);
	config_fini(&c);
}

static void test_bad(void **state UNUSED)
{
	static const struct {
		const char *why, *text, *want;
	} t[] = {
		{ "misspelled key", "vm:\n  acel: tcg\n",
		  "config.yaml:2:9: unknown key 'vm.acel'" },
		{ "misspelled section", "vmm:\n  accel: tcg\n", "unknown key 'vmm'" },
		{ "wrong value", "vm:\n  accel: fast\n",
		  "2:10: 'vm.accel' must be auto, kvm or tcg" },
		{ "no value", "vm:\n  accel:\n", "has no value" },
		{ "list for a value", "vm:\n  accel: [tcg]\n", "must be a single value" },
		{ "value for a list", "workspace:\n  exclude: a\n", "must be a list" },
		{ "cpus 0", "vm: {cpus: 0}\n", "a number from 1 to 64" },
		{ "cpus 65", "vm: {cpus: 65}\n", "a number from 1 to 64" },
		{ "cpus text", "vm: {cpus: two}\n", "a number from 1 to 64" },
		{ "memory below", "vm: {memory: 255}\n", "a size from 256m" },
		{ "key twice", "vm: {cpus: 1, cpus: 2}\n", "stands twice" },
		{ "section twice", "vm: {cpus: 1}\nvm: {cpus: 2}\n", "stands twice" },
		{ "two documents", "vm: {cpus: 1}\n---\nvm: {}\n", "only one document" },
		{ "alias", "vm: {accel: &a tcg}\n", "anchors" },
		{ "tag", "vm: {accel: !!str tcg}\n", "anchors and tags" },
		{ "a list", "- a\n", "must be a mapping" },
		{ "nested too deep", "workspace: {exclude: [[a]]}\n", "single values" },
		{ "not YAML", "vm: {accel: tcg\n", "config.yaml:" },
		{ "section is a text", "vm: tcg\n", "'vm' must be a mapping" },
		{ "mode", "network:\n  mode: on\n",
		  "config.yaml:2:9: 'network.mode' must be offline, isolated or shared, not 'on'" },
		{ "profile", "network: {egress: open}\n",
		  "'network.egress' must be permissive, standard or locked" },
		{ "both spellings", "network: {egress: locked, egress_profile: locked}\n",
		  "1:43: 'network.egress' and 'network.egress_profile' are the same key" },
		{ "both spellings, turned", "network: {egress_profile: locked, egress: locked}\n",
		  "are the same key" },
		{ "hosts as a value", "network: {allow_hosts: a.example}\n", "must be a list" },
		{ "an address", "network:\n  allow_hosts:\n    - a.example\n    - 192.0.2.1\n",
		  "config.yaml:4:7: 'network.allow_hosts': '192.0.2.1': " },
		{ "a set that is none", "network: {allow_hosts: ['@all']}\n",
		  "'@all': there is no set of hosts" },
		{ "a lone star", "network: {allow_hosts: ['*']}\n", "'*' is a whole label" },
		{ "port 0", "network: {allow_hosts: ['a.example:0']}\n", "1 to 65535" },
		{ "port 65536", "network: {allow_hosts: ['a.example:65536']}\n", "1 to 65535" },
		{ "port 25", "network: {allow_hosts: ['a.example:25']}\n",
		  "'network.allow_hosts': 'a.example:25': " },
		{ "not private", "network: {allow_private: [192.0.2.0/24]}\n",
		  "'192.0.2.0/24': it is not within" },
		{ "wider than private", "network: {allow_private: [10.0.0.0/7]}\n",
		  "it is not within" },
		{ "everything", "network: {allow_private: [0.0.0.0/0]}\n", "it is not within" },
		{ "loopback", "network: {allow_private: [127.0.0.1]}\n", "--host-service" },
		{ "bits behind the prefix", "network: {allow_private: [10.0.0.1/8]}\n",
		  "it is no IPv4 range" },
		{ "service 0", "network: {host_services: [0]}\n", "1 to 65535" },
		{ "service 65536", "network: {host_services: [65536]}\n", "1 to 65535" },
		{ "service 08", "network: {host_services: ['08']}\n", "1 to 65535" },
		{ "service 25", "network: {host_services: [25]}\n", "closed in every profile" },
		{ "service text", "network: {host_services: [http]}\n", "1 to 65535" },
		{ "no bool", "network: {host_ca: no}\n", "true or false" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct config c;
		struct err e;
		int r = parse(&c, t[i].text, &e);
		if (r >= 0 || !strstr(e.text, t[i].want))
			fail_msg("%s: %d '%s'", t[i].why, r, e.text);
		config_fini(&c);
	}
	struct config c;
	struct err e;
	assert_true(parse(&c, "vm:\n  acel: tcg\n", &e) < 0);
	assert_string_equal(e.hint, "did you mean 'accel'?");
	config_fini(&c);
}

static void test_network(void **state UNUSED)
{
	struct config c;
	struct err e;
	char text[HOST_PATTERN_BYTES];

	assert_int_equal(parse(&c, "network: {}\n", &e), 0);
	assert_string_equal(c.net.mode, "isolated");
	assert_int_equal(c.net.profile, EGRESS_STANDARD);
	assert_true(c.net.host_ca && !c.net.publish_localhost);
	config_fini(&c);
	assert_int_equal(parse(&c,
	                       "network:\n  mode: shared\n  egress_profile: locked\n"
	                       "  allow_hosts: [A.Example, '*.b.example:8443', '@docker']\n"
	                       "  allow_private: [10.1.0.0/16, 192.168.1.7, 169.254.169.254]\n"
	                       "  host_services: [1, 65535]\n  host_ca: false\n"
	                       "  publish_localhost: true\n",
	                       &e),
	                 0);
	assert_string_equal(c.net.mode, "shared");
	assert_int_equal(c.net.profile, EGRESS_LOCKED);
	assert_int_equal(c.net.hosts.n, 4);
	assert_string_equal(host_pattern_str(text, &c.net.hosts.v[0]), "a.example");
	assert_string_equal(host_pattern_str(text, &c.net.hosts.v[1]), "*.b.example:8443");
	assert_string_equal(host_pattern_str(text, &c.net.hosts.v[2]), "docker.io:443");
	assert_int_equal(c.net.n_privates, 3);
	assert_int_equal(c.net.privates[1].bits, 32);
	assert_int_equal(c.net.n_services, 2);
	assert_int_equal(c.net.services[1], 65535);
	assert_true(!c.net.host_ca && c.net.publish_localhost);
	config_fini(&c);
}

/* As many as there may be of each list, and one more. */
static void test_network_limits(void **state UNUSED)
{
	static const struct {
		const char *key, *fmt;
		size_t max;
	} t[] = { { "allow_hosts", "h%zu.example", CONFIG_HOSTS_MAX },
		  { "allow_private", "10.0.0.%zu", EGRESS_PRIVATE_MAX },
		  { "host_services", "1%zu", EGRESS_SERVICES_MAX } };
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		for (size_t n = t[i].max; n <= t[i].max + 1; n++) {
			AUTO_BUF struct buf b = { 0 };
			assert_int_equal(buf_printf(&b, "network:\n  %s:\n", t[i].key), 0);
			for (size_t k = 1; k <= n; k++) {
				AUTO_FREE char *item = xasprintf(t[i].fmt, k);
				assert_int_equal(buf_printf(&b, "    - %s\n", item), 0);
			}
			AUTO_FREE char *text = xstrndup((const char *)b.p, b.len);
			struct config c;
			struct err e;
			int r = parse(&c, text, &e);
			if ((r < 0) != (n > t[i].max) || (r < 0 && !strstr(e.text, "at most")))
				fail_msg("%s: %zu: %d '%s'", t[i].key, n, r, e.text);
			config_fini(&c);
		}
	}
}

static void test_size(void **state UNUSED)
{
	static const struct {
		const char *in;
		uint64_t want; /* 0: refused */
	} t[] = {
		{ "1", 1 << 20 },     { "512m", 512 << 20 }, { "512MiB", 512 << 20 },
		{ "4g", 4ull << 30 }, { "4Gi", 4ull << 30 }, { "", 0 },
		{ "g", 0 },           { "-1", 0 },           { "1.5g", 0 },
		{ "4t", 0 },          { "4 g", 0 },          { "4294967295", 4294967295ull << 20 },
		{ "4294967296", 0 },  { "4194304g", 0 }
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		uint64_t got = 0;
		int r = config_size(t[i].in, &got);
		if ((r < 0) != (t[i].want == 0) || (r == 0 && got != t[i].want))
			fail_msg("'%s': %d, %llu", t[i].in, r, (unsigned long long)got);
	}
}

/* Only a regular file, at once, and none is none. */
static void test_file(void **state UNUSED)
{
	char dir[] = "/tmp/cloche-test-XXXXXX", path[64];
	struct config c;
	struct err e = { 0 };

	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/config.yaml", dir);
	config_init(&c);
	assert_int_equal(config_load(&c, path, &e), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_true(config_load(&c, path, &e) < 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_true(config_load(&c, path, &e) < 0);
	config_fini(&c);
	assert_int_equal(rmdir(path) | rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),    cmocka_unit_test(test_bad),
		cmocka_unit_test(test_network), cmocka_unit_test(test_network_limits),
		cmocka_unit_test(test_size),    cmocka_unit_test(test_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
