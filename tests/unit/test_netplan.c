/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_netplan.c - the user's side of the network: options, policy, published
 * ports, the host's CAs, registries of the user, the log of decisions read back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "cli/hostca.h"
#include "cli/netevent.h"
#include "cli/netopts.h"
#include "cli/netplan.h"
#include "cli/ports.h"
#include "cli/registries.h"

/* ---- ports -------------------------------------------------------------- */

/* A callback ends after five minutes: that the relay is told so, and does it, others show. */
static void test_callback(void **state UNUSED)
{
	struct net_port p = { 0 };
	struct err e = { 0 };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	/* a number that is free */
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(s, (struct sockaddr *)&a, &len), 0);
	assert_int_equal(close(s), 0);
	assert_int_equal(ports_open_callback(&p, ntohs(a.sin_port), &e), 0);
	assert_true(p.once);
	assert_int_equal(p.deadline_s, 300);
	assert_int_equal(p.guest_port, ntohs(a.sin_port));
	while (p.n_fds)
		assert_int_equal(close(p.fds[--p.n_fds]), 0);
}

/* ---- options ------------------------------------------------------------ */

static void test_option_values(void **state UNUSED)
{
	static const struct {
		int id;
		const char *value, *want; /* NULL: taken */
	} t[] = {
		{ NETOPT_NETWORK, "offline", NULL },
		{ NETOPT_NETWORK, "on", "--network: 'on': it is offline, isolated or shared" },
		{ NETOPT_EGRESS, "locked", NULL },
		{ NETOPT_EGRESS, "open", "--egress: 'open': it is permissive, standard or locked" },
		{ NETOPT_HOST, "a.example", NULL },
		{ NETOPT_HOST, "*.a.example:8443", NULL },
		{ NETOPT_HOST, "@docker", NULL },
		{ NETOPT_HOST, "@nothing", "there is no set of hosts with that name" },
		{ NETOPT_HOST, "192.0.2.1", "--allow-host: '192.0.2.1': " },
		{ NETOPT_HOST, "[2001:db8::1]:443", "the policy works on names" },
		{ NETOPT_HOST, "*", "'*' is a whole label" },
		{ NETOPT_HOST, "a.example:", "no number follows the colon" },
		{ NETOPT_HOST, "a.example:65536", "1 to 65535" },
		{ NETOPT_HOST, "a.example:25", "closed in every profile" },
		{ NETOPT_PRIVATE, "10.0.0.0/8", NULL },
		{ NETOPT_PRIVATE, "192.0.2.0/24", "it is not within 10.0.0.0/8" },
		{ NETOPT_SERVICE, "1", NULL },
		{ NETOPT_SERVICE, "65535", NULL },
		{ NETOPT_SERVICE, "0", "--host-service: '0': a port is a number from 1 to 65535" },
		{ NETOPT_SERVICE, "65536", "1 to 65535" },
		{ NETOPT_CALLBACK, "1455", NULL },
		{ NETOPT_CALLBACK, "1:2", "--callback: '1:2': a port is a number" },
		{ NETOPT_PUBLISH, "8080:80", NULL },
		{ NETOPT_PUBLISH, "80", NULL },
		{ NETOPT_PUBLISH, "1:65535", NULL },
		{ NETOPT_PUBLISH, "8080-80", "--publish: '8080-80': there is no colon" },
		{ NETOPT_PUBLISH, "", "a port is a number from 1 to 65535" },
		{ NETOPT_PUBLISH, "0:80", "a port is a number from 1 to 65535" },
		{ NETOPT_PUBLISH, "80:0", "a port is a number from 1 to 65535" },
		{ NETOPT_PUBLISH, "65536:80", "a port is a number from 1 to 65535" },
		{ NETOPT_PUBLISH, "80:65536", "a port is a number from 1 to 65535" },
		{ NETOPT_PUBLISH, ":80", "a port is a number from 1 to 65535" },
		{ NETOPT_PUBLISH, "80:", "a port is a number from 1 to 65535" },
		{ NETOPT_PUBLISH, "080:80", "a port is a number from 1 to 65535" },
		{ NETOPT_PUBLISH, "0.0.0.0:80:80", "one colon only" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		static struct netopts o;
		struct err e = { 0 };
		o = (struct netopts){ 0 };
		int r = netopts_take(&o, t[i].id, t[i].value, &e);
		if ((r < 0) != (t[i].want != NULL) || (t[i].want && !strstr(e.text, t[i].want)))
			fail_msg("'%s': %d '%s'", t[i].value, r, e.text);
		netopts_fini(&o);
	}
}

static void test_option_lists(void **state UNUSED)
{
	static struct netopts o;
	struct err e = { 0 };
	char v[32];

	o = (struct netopts){ 0 };
	assert_int_equal(netopts_take(&o, NETOPT_PUBLISH, "8080:80", &e), 0);
	assert_int_equal(netopts_take(&o, NETOPT_PUBLISH, "8081:80", &e), 0);
	assert_int_equal(netopts_take(&o, NETOPT_PUBLISH, "8080:81", &e), -EINVAL);
	assert_string_equal(e.text, "--publish: port 8080 of the host stands twice");
	assert_int_equal(o.n_ports, 2);
	for (unsigned i = 2; i < NETOPTS_PORTS_MAX; i++) {
		(void)snprintf(v, sizeof(v), "%u", 100 + i);
		assert_int_equal(netopts_take(&o, NETOPT_PUBLISH, v, &e), 0);
	}
	assert_int_equal(netopts_take(&o, NETOPT_PUBLISH, "99", &e), -E2BIG);
	for (unsigned i = 0; i < NETOPTS_CALLBACKS_MAX; i++) {
		(void)snprintf(v, sizeof(v), "%u", 2000 + i);
		assert_int_equal(netopts_take(&o, NETOPT_CALLBACK, v, &e), 0);
	}
	assert_int_equal(netopts_take(&o, NETOPT_CALLBACK, "2000", &e), -EINVAL);
	assert_int_equal(netopts_take(&o, NETOPT_CALLBACK, "1999", &e), -E2BIG);
	for (unsigned i = 0; i < CONFIG_HOSTS_MAX; i++) {
		(void)snprintf(v, sizeof(v), "h%u.example", i);
		assert_int_equal(netopts_take(&o, NETOPT_HOST, v, &e), 0);
	}
	assert_int_equal(netopts_take(&o, NETOPT_HOST, "more.example", &e), -E2BIG);
	netopts_fini(&o);
	for (unsigned i = 0; i < EGRESS_PRIVATE_MAX; i++) {
		(void)snprintf(v, sizeof(v), "10.0.0.%u", i);
		assert_int_equal(netopts_take(&o, NETOPT_PRIVATE, v, &e), 0);
	}
	assert_int_equal(netopts_take(&o, NETOPT_PRIVATE, "10.1.0.0/16", &e), -E2BIG);
}

static void test_settle(void **state UNUSED)
{
	static const struct {
		const char *why, *config_mode;
		int id; /* of one option; 0: none */
		const char *value;
		bool offline_flag;
		const char *want; /* NULL: fine */
	} t[] = {
		{ "nothing said", "isolated", 0, NULL, false, NULL },
		{ "offline", "isolated", 0, NULL, true, NULL },
		{ "offline by configuration", "offline", 0, NULL, false, NULL },
		{ "offline with a profile", "isolated", NETOPT_EGRESS, "locked", true,
		  "--egress and --network offline contradict" },
		{ "offline with a host", "isolated", NETOPT_HOST, "a.example", true,
		  "--allow-host and --network offline" },
		{ "offline with a range", "isolated", NETOPT_PRIVATE, "10.0.0.1", true,
		  "--allow-private and --network offline" },
		{ "offline with a service", "isolated", NETOPT_SERVICE, "80", true,
		  "--host-service and --network offline" },
		{ "offline with a port", "isolated", NETOPT_PUBLISH, "80", true, NULL },
		{ "offline with a callback", "isolated", NETOPT_CALLBACK, "80", true, NULL },
		{ "offline by configuration with a host", "offline", NETOPT_HOST, "a.example",
		  false, "--allow-host and network.mode: offline" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		static struct netopts o;
		static struct config_net c;
		struct err e = { 0 };
		o = (struct netopts){ 0 };
		c = (struct config_net){ .profile = EGRESS_LOCKED, .host_ca = true };
		memcpy(c.mode, t[i].config_mode, strlen(t[i].config_mode) + 1);
		if (t[i].id)
			assert_int_equal(netopts_take(&o, t[i].id, t[i].value, &e), 0);
		if (t[i].offline_flag)
			assert_int_equal(netopts_take(&o, NETOPT_NETWORK, "offline", &e), 0);
		int r = netopts_settle(&o, &c, &e);
		if ((r < 0) != (t[i].want != NULL) || (t[i].want && !strstr(e.text, t[i].want)))
			fail_msg("%s: %d '%s'", t[i].why, r, e.text);
		assert_int_equal(o.profile, EGRESS_LOCKED);
		netopts_fini(&o);
	}
	/* one number of localhost cannot be two things */
	static struct netopts o;
	static struct config_net c = { .mode = "isolated" };
	struct err e = { 0 };
	o = (struct netopts){ 0 };
	assert_int_equal(netopts_take(&o, NETOPT_PUBLISH, "8080", &e), 0);
	assert_int_equal(netopts_take(&o, NETOPT_CALLBACK, "8080", &e), 0);
	assert_int_equal(netopts_settle(&o, &c, &e), 0);
	assert_true(o.no_host_ca); /* the configuration's host_ca: false */
	o.publish_localhost = true;
	assert_int_equal(netopts_settle(&o, &c, &e), -EINVAL);
}

/* ---- policy ------------------------------------------------------------- */

static struct registry registry(const char *tool, const char *url)
{
	struct registry g = { 0 };

	memcpy(g.tool, tool, strlen(tool) + 1);
	assert_int_equal(url_origin_parse(&g.at, span_str(url), NULL), 0);
	return g;
}

static const char *from(const struct egress *e, const char *name, uint16_t port)
{
	const struct egress_rule *r = egress_find(e, name, port);

	return r ? egress_origin_name(r->origin) : "refused";
}

static void test_policy(void **state UNUSED)
{
	static const char *const providers[] = { "api.provider.example", "*.auth.example:8443",
		                                 NULL };
	static struct registry_list image, user;
	static struct netopts o;
	static struct config_net c;
	struct err err = { 0 };
	struct egress *e;

	image = (struct registry_list){ .n = 2 };
	image.v[0] = registry("apt", "http://mirror.example/debian");
	image.v[1] = registry("npm", "https://packages.example");
	user = (struct registry_list){ .n = 3 };
	user.v[0] = registry("npm", "https://packages.example");
	user.v[1] = registry("pip", "https://packages.example");
	user.v[2] = registry("go", "http://proxy.example:8081");
	o = (struct netopts){ .profile = EGRESS_STANDARD, .mode = NET_ISOLATED };
	c = (struct config_net){ .mode = "isolated" };
	const char *why;
	assert_int_equal(config_add_host(&c.hosts, "config.example", &why), 0);
	assert_int_equal(netopts_take(&o, NETOPT_HOST, "flag.example:9000", &err), 0);
	assert_int_equal(netopts_take(&o, NETOPT_PRIVATE, "10.1.0.0/16", &err), 0);
	assert_int_equal(netopts_take(&o, NETOPT_SERVICE, "11434", &err), 0);
	struct netplan_in in = { &o, &c, providers, "coder", &image, &user };

	assert_int_equal(netplan_policy(&e, &in, &err), 0);
	assert_string_equal(from(e, "api.provider.example", 443), "provider");
	assert_string_equal(from(e, "x.auth.example", 8443), "provider");
	assert_string_equal(from(e, "auth.example", 8443), "refused");
	assert_string_equal(from(e, "github.com", 22), "sources");
	assert_int_equal(egress_find(e, "github.com", 22)->kind, EGRESS_RAW);
	assert_string_equal(from(e, "mirror.example", 80), "registry");
	assert_string_equal(from(e, "mirror.example", 443), "refused");
	assert_string_equal(egress_find(e, "mirror.example", 80)->note, "apt");
	assert_string_equal(egress_find(e, "packages.example", 443)->note,
	                    "npm, npm of this host, pip of this host");
	/* a URL says what is spoken, whatever its port */
	assert_int_equal(egress_find(e, "proxy.example", 8081)->kind, EGRESS_NAMED);
	assert_string_equal(from(e, "config.example", 443), "config");
	assert_string_equal(from(e, "flag.example", 9000), "flag");
	assert_string_equal(from(e, "flag.example", 443), "refused");
	assert_true(egress_service_ok(e, 11434) && !egress_service_ok(e, 80));
	assert_null(egress_addr_closed(e, IP4(10, 1, 2, 3)));
	assert_non_null(egress_addr_closed(e, IP4(10, 2, 2, 3)));
	egress_free(e);

	/* locked: the provider, and what the user named */
	o.profile = EGRESS_LOCKED;
	assert_int_equal(netplan_policy(&e, &in, &err), 0);
	assert_string_equal(from(e, "api.provider.example", 443), "provider");
	assert_string_equal(from(e, "config.example", 443), "config");
	assert_string_equal(from(e, "flag.example", 9000), "flag");
	assert_string_equal(from(e, "github.com", 443), "refused");
	assert_string_equal(from(e, "packages.example", 443), "refused");
	egress_free(e);

	/* no host at all is a policy */
	static struct netopts none;
	static struct config_net bare;
	none = (struct netopts){ .profile = EGRESS_LOCKED };
	in = (struct netplan_in){ .opts = &none, .config = &bare, .agent = "shell" };
	assert_int_equal(netplan_policy(&e, &in, &err), 0);
	assert_int_equal(egress_count(e), 0);
	assert_string_equal(from(e, "github.com", 443), "refused");
	egress_free(e);

	none.profile = EGRESS_PERMISSIVE;
	assert_int_equal(netplan_policy(&e, &in, &err), 0);
	assert_non_null(egress_find(e, "any.example", 443));
	assert_null(egress_find(e, "any.example", 25));
	egress_free(e);
}

static void test_shown(void **state UNUSED)
{
	static struct registry_list image;
	static struct netopts o;
	static struct config_net c;
	struct err err = { 0 };
	struct netplan_host *v;
	size_t n;
	struct netplan p = { .mode = NET_ISOLATED };
	AUTO_BUF struct buf b = { 0 };

	image = (struct registry_list){ .n = 2 };
	image.v[0] = registry("npm", "https://packages.example");
	image.v[1] = registry("npm", "http://packages.example");
	o = (struct netopts){ .profile = EGRESS_STANDARD, .mode = NET_ISOLATED };
	struct netplan_in in = { .opts = &o, .config = &c, .agent = "shell", .image = &image };
	assert_int_equal(netplan_policy(&p.policy, &in, &err), 0);
	netplan_hosts(p.policy, &v, &n);
	bool github = false, packages = false;
	for (size_t i = 0; i < n; i++) {
		github |= strcmp(v[i].name, "github.com") == 0 &&
		          strcmp(v[i].ports, "443,22") == 0 && strcmp(v[i].from, "sources") == 0;
		packages |= strcmp(v[i].name, "packages.example") == 0 &&
		            strcmp(v[i].ports, "443,80") == 0 &&
		            strcmp(v[i].from, "registry (npm)") == 0;
	}
	assert_true(github && packages);
	assert_int_equal(netplan_line(&p, &b), 0);
	AUTO_FREE char *want = xasprintf("isolated, standard: %s + %zu hosts", v[0].name, n - 1);
	assert_int_equal(b.len, strlen(want));
	assert_memory_equal(b.p, want, b.len);
	free(v);
	egress_free(p.policy);
}

static void test_search(void **state UNUSED)
{
	static const struct {
		const char *in, *want;
	} t[] = {
		{ "", "" },
		{ "nameserver 192.0.2.1\n", "" },
		{ "search corp.example lab.example.\n", "corp.example lab.example" },
		{ "domain corp.example\n", "corp.example" },
		{ "search a.example\nsearch b.example", "b.example" },
		{ "search ok.example ba\001d..name\n", "ok.example" },
		{ "search a.b c.d e.f g.h i.j k.l m.n\n", "a.b c.d e.f g.h i.j k.l" },
		{ "searching a.example\n", "" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		char *v[NET_SEARCH_MAX] = { 0 }, got[256] = "";
		size_t n = netplan_search(v, span_str(t[i].in));
		for (size_t k = 0; k < n; k++) {
			size_t len = strlen(got);
			(void)snprintf(got + len, sizeof(got) - len, "%s%s", k ? " " : "", v[k]);
			free(v[k]);
		}
		assert_string_equal(got, t[i].want);
	}
}

static void test_label(void **state UNUSED)
{
	static const struct {
		const char *id, *want;
	} t[] = {
		{ "demo-k3f9ab", "demo-k3f9ab" },
		{ "My_Project.v2-k3f9ab", "my-project-v2-k3f9ab" },
		{ "--x-k3f9ab", "x-k3f9ab" },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-k3f9ab",
		  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-k3f9ab" }
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		char got[NETPLAN_LABEL_BYTES];
		assert_string_equal(netplan_label(got, t[i].id), t[i].want);
		assert_true(strlen(got) < NETPLAN_LABEL_BYTES);
	}
}

/* ---- ports -------------------------------------------------------------- */

static void test_addresses(void **state UNUSED)
{
	struct ip4_net range = { IP4(127, 64, 0, 0), 10 };
	unsigned same = 0;

	for (unsigned i = 0; i < 4096; i++) {
		AUTO_FREE char *id = xasprintf("demo-%u", i);
		uint32_t a = ports_address(id, 0);
		assert_true(ip4_net_has(range, a));
		assert_true((a & 255) != 0 && (a & 255) != 255);
		assert_int_equal(a, ports_address(id, 0));
		same += a == ports_address(id, 1);
	}
	assert_true(same < 4);
}

/* A listening socket at @addr; the port is chosen when 0. */
static int server(uint32_t addr, uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		                 .sin_port = htons(*port),
		                 .sin_addr.s_addr = htonl(addr) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(fd, 5), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

static void can_connect(uint32_t addr, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		                 .sin_port = htons(port),
		                 .sin_addr.s_addr = htonl(addr) };
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

static void test_ports(void **state UNUSED)
{
	static struct netopts o;
	static struct ports p, q;
	struct err e = { 0 };
	uint16_t port = 0;
	AUTO_BUF struct buf b = { 0 };

	/* a number that nobody has, anywhere */
	int fd = server(INADDR_ANY, &port);
	o = (struct netopts){ .n_ports = 1, .ports = { { port, 80 } } };
	assert_int_equal(ports_open(&p, &o, "demo-a", &e), -EADDRINUSE);
	assert_non_null(strstr(e.text, "is in use on this machine"));
	assert_non_null(strstr(e.hint, "-p "));
	assert_int_equal(p.n, 0);
	(void)close(fd);

	/* two sandboxes, one number */
	assert_int_equal(ports_open(&p, &o, "demo-a", &e), 0);
	assert_int_equal(ports_open(&q, &o, "demo-b", &e), 0);
	assert_int_not_equal(p.address, q.address);
	can_connect(p.address, port);
	can_connect(q.address, port);
	assert_int_equal(p.v[0].guest_port, 80);
	assert_false(p.v[0].once);
	ports_close(&q);
	/* the address is taken: another one, not an error */
	assert_int_equal(ports_open(&q, &o, "demo-a", &e), 0);
	assert_int_not_equal(p.address, q.address);
	ports_close(&q);
	ports_close(&p);

	/* localhost, where there is but one */
	o.publish_localhost = true;
	assert_int_equal(ports_open(&p, &o, "demo-a", &e), 0);
	assert_int_equal(p.address, 0);
	assert_true(p.v[0].n_fds >= 1);
	can_connect(INADDR_LOOPBACK, port);
	assert_int_equal(ports_open(&q, &o, "demo-b", &e), -EADDRINUSE);
	ports_close(&p);

	/* a callback: once, for a while, on localhost, also beside a published one */
	o = (struct netopts){
		.n_ports = 1, .ports = { { port, 80 } }, .n_callbacks = 1, .callbacks = { port }
	};
	assert_int_equal(ports_open(&p, &o, "demo-a", &e), 0);
	assert_int_equal(p.n, 2);
	assert_true(p.v[1].once && p.v[1].deadline_s == PORTS_CALLBACK_S);
	assert_int_equal(p.v[1].guest_port, port);
	can_connect(INADDR_LOOPBACK, port);
	can_connect(p.address, port);
	assert_int_equal(ports_put(&p, &b), 0);
	assert_int_equal(buf_put(&b, "", 1), 0);
	assert_non_null(strstr((char *)b.p, "-> guest 80\n"));
	assert_non_null(strstr((char *)b.p, "callback http://localhost:"));
	/* what failed leaves nothing open */
	assert_int_equal(ports_open(&q, &o, "demo-b", &e), -EADDRINUSE);
	assert_non_null(strstr(e.text, "callback: port"));
	ports_close(&p);
	fd = server(INADDR_ANY, &port);
	(void)close(fd);
}

/* ---- CAs ---------------------------------------------------------------- */

#define BEGIN "-----BEGIN CERTIFICATE-----\n"
#define END "-----END CERTIFICATE-----\n"

static void test_hostca_take(void **state UNUSED)
{
	static const struct {
		const char *why, *in;
		int want;
		const char *out;
	} t[] = {
		{ "nothing", "", 0, "" },
		{ "no certificate", "hello\n", 0, "" },
		{ "one", BEGIN "QUJD\n" END, 1, BEGIN "QUJD\n" END },
		{ "no newline at the end", BEGIN "QUJD\n-----END CERTIFICATE-----", 1,
		  BEGIN "QUJD\n" END },
		{ "text around", "subject=x\n" BEGIN "QUJD\n" END "issuer\n", 1,
		  BEGIN "QUJD\n" END },
		{ "CRLF", "-----BEGIN CERTIFICATE-----\r\nQU==\r\n-----END CERTIFICATE-----\r\n", 1,
		  BEGIN "QU==\n" END },
		{ "two", BEGIN "QUJD\n" END BEGIN "REVG\n" END, 2,
		  BEGIN "QUJD\n" END BEGIN "REVG\n" END },
		{ "a key stays here",
		  "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n" BEGIN
		  "QUJD\n" END,
		  1, BEGIN "QUJD\n" END },
		{ "only a key",
		  "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n", 0, "" },
		{ "cut", BEGIN "QUJD\n", -EINVAL, "" },
		{ "empty", BEGIN END, -EINVAL, "" },
		{ "one in another", BEGIN "QUJD\n" BEGIN "REVG\n" END, -EINVAL, "" },
		{ "no base64", BEGIN "QU-D\n" END, -EINVAL, "" },
		{ "an empty line inside", BEGIN "QUJD\n\nREVG\n" END, -EINVAL, "" },
		{ "a good one and a cut one", BEGIN "QUJD\n" END BEGIN "QUJD\n", -EINVAL, "" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		AUTO_BUF struct buf b = { 0 };
		assert_int_equal(buf_printf(&b, "before\n"), 0);
		int got = hostca_take(&b, span_str(t[i].in));
		AUTO_FREE char *want = xasprintf("before\n%s", t[i].out);
		if (got != t[i].want || b.len != strlen(want) || memcmp(b.p, want, b.len) != 0)
			fail_msg("%s: %d '%.*s'", t[i].why, got, (int)b.len, (char *)b.p);
	}
	/* one line at the limit, one above */
	for (size_t n = HOSTCA_LINE_MAX; n <= HOSTCA_LINE_MAX + 1; n++) {
		AUTO_BUF struct buf b = { 0 }, in = { 0 };
		assert_int_equal(buf_printf(&in, BEGIN "%0*d\n" END, (int)n, 0), 0);
		assert_int_equal(hostca_take(&b, span_of(in.p, in.len)),
		                 n > HOSTCA_LINE_MAX ? -EINVAL : 1);
	}
}

static void put_file(int dir, const char *name, const char *text)
{
	AUTO_CLOSE int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void test_hostca_load(void **state UNUSED)
{
	char dir[] = "/tmp/cloche-test-XXXXXX";
	struct hostca h;
	struct err e = { 0 };

	assert_int_equal(hostca_load(&h, "/nonexistent/ca", &e), 0);
	assert_int_equal(h.n, 0);
	assert_non_null(mkdtemp(dir));
	AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put_file(fd, "b.crt", BEGIN "QUJD\n" END);
	put_file(fd, "a.crt", BEGIN "REVG\n" END);
	put_file(fd, "c.pem", BEGIN "R0hJ\n" END);
	assert_int_equal(mkdirat(fd, "sub", 0700), 0);
	put_file(fd, "sub/d.crt", BEGIN "SktM\n" END);
	assert_int_equal(hostca_load(&h, dir, &e), 0);
	assert_int_equal(h.n, 3);
	assert_int_equal(h.certs, 3);
	assert_string_equal(h.names[0], "a.crt");
	assert_string_equal(h.names[2], "sub/d.crt");
	assert_int_equal(h.pem.len,
	                 strlen(BEGIN "REVG\n" END BEGIN "QUJD\n" END BEGIN "SktM\n" END));
	assert_null(h.left_out);
	hostca_fini(&h);

	/* what is none: named, the rest is taken; a fifo does not stop us */
	put_file(fd, "b.crt", "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n");
	assert_int_equal(mkfifoat(fd, "z.crt", 0600), 0);
	assert_int_equal(hostca_load(&h, dir, &e), 0);
	assert_int_equal(h.n, 2);
	assert_non_null(h.left_out);
	assert_string_equal(h.left_out, "b.crt: no certificate in PEM");
	hostca_fini(&h);
	assert_int_equal(path_remove_tree(AT_FDCWD, dir), 0);
}

static void test_hostca_limits(void **state UNUSED)
{
	char dir[] = "/tmp/cloche-test-XXXXXX", name[32];
	struct hostca h;
	struct err e = { 0 };

	assert_non_null(mkdtemp(dir));
	AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < HOSTCA_FILES_MAX; i++) {
		(void)snprintf(name, sizeof(name), "%04d.crt", i);
		put_file(fd, name, BEGIN "QUJD\n" END);
	}
	assert_int_equal(hostca_load(&h, dir, &e), 0);
	assert_int_equal(h.n, HOSTCA_FILES_MAX);
	assert_null(h.left_out);
	hostca_fini(&h);
	put_file(fd, "one-more.crt", BEGIN "QUJD\n" END);
	assert_int_equal(hostca_load(&h, dir, &e), 0);
	assert_int_equal(h.n, HOSTCA_FILES_MAX);
	assert_string_equal(h.left_out, "one-more.crt: more than 256 files");
	hostca_fini(&h);
	assert_int_equal(path_remove_tree(AT_FDCWD, dir), 0);

	char big[] = "/tmp/cloche-test-XXXXXX";
	assert_non_null(mkdtemp(big));
	AUTO_CLOSE int bfd = open(big, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_BUF struct buf b = { 0 };
	assert_int_equal(buf_printf(&b, BEGIN), 0);
	while (b.len < HOSTCA_BYTES_MAX / 2)
		assert_int_equal(buf_printf(&b, "%064d\n", 0), 0);
	assert_int_equal(buf_printf(&b, END), 0);
	assert_int_equal(buf_put(&b, "", 1), 0);
	put_file(bfd, "a.crt", (char *)b.p);
	put_file(bfd, "b.crt", (char *)b.p);
	put_file(bfd, "c.crt", BEGIN "QUJD\n" END);
	assert_int_equal(hostca_load(&h, big, &e), 0);
	assert_int_equal(h.n, 2); /* a and c */
	assert_string_equal(h.left_out, "b.crt: more than 1 MiB");
	assert_true(h.pem.len <= HOSTCA_BYTES_MAX);
	hostca_fini(&h);
	assert_int_equal(path_remove_tree(AT_FDCWD, big), 0);
}

/* ---- registries of the user --------------------------------------------- */

static void test_registries_cache(void **state UNUSED)
{
	static struct registry_list l, got;
	AUTO_BUF struct buf b = { 0 };

	l = (struct registry_list){ .n = 1 };
	l.v[0] = registry("npm", "https://packages.example");
	assert_int_equal(registries_cache_put(&b, "abc", 1000, &l), 0);
	struct span s = span_of(b.p, b.len);
	assert_int_equal(registries_cache_parse(&got, s, "abc", 1000), 0);
	assert_int_equal(got.n, 1);
	assert_string_equal(got.v[0].at.host, "packages.example");
	assert_int_equal(registries_cache_parse(&got, s, "abc", 1000 + REGISTRIES_AGE_S), 0);
	assert_int_equal(registries_cache_parse(&got, s, "abc", 1001 + REGISTRIES_AGE_S), -ESTALE);
	assert_int_equal(registries_cache_parse(&got, s, "abc", 999), -ESTALE);
	assert_int_equal(registries_cache_parse(&got, s, "abd", 1000), -ESTALE);
	static const struct {
		const char *why, *in;
	} t[] = {
		{ "empty", "" },
		{ "no JSON", "{" },
		{ "an array", "[]" },
		{ "no key", "{\"schema\":1,\"asked_s\":1000,\"registries\":[]}" },
		{ "another schema",
		  "{\"schema\":2,\"key\":\"abc\",\"asked_s\":1000,\"registries\":[]}" },
		{ "no list", "{\"schema\":1,\"key\":\"abc\",\"asked_s\":1000}" },
		{ "no text in it",
		  "{\"schema\":1,\"key\":\"abc\",\"asked_s\":1000,\"registries\":[1]}" },
		{ "no origin",
		  "{\"schema\":1,\"key\":\"abc\",\"asked_s\":1000,\"registries\":[\"npm x\"]}" },
		{ "two in one", "{\"schema\":1,\"key\":\"abc\",\"asked_s\":1000,\"registries\":"
		                "[\"npm https://a.example:443\\nnpm https://b.example:443\"]}" },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = registries_cache_parse(&got, span_str(t[i].in), "abc", 1000);
		if (r != -EPROTO)
			fail_msg("%s: %d", t[i].why, r);
	}
}

/* ---- events ------------------------------------------------------------- */

#define T "{\"t\":\"2026-01-31T23:59:59.999Z\""

static void test_event(void **state UNUSED)
{
	static struct netevent e;
	static const char full[] =
		T ",\"ev\":\"flow\",\"verdict\":\"refused\",\"reason\":\"mismatch\","
		  "\"detail\":\"a \\\"b\\\" \\\\\",\"name\":\"x\\u001b\\u00e4.example\","
		  "\"proto\":\"tls\",\"addr\":\"192.0.2.1\",\"port\":443,\"guest_port\":40000,"
		  "\"bytes_out\":0,\"bytes_in\":18446744073709551615,\"count\":3}";

	assert_int_equal(netevent_parse(&e, span_str(full)), 0);
	assert_string_equal(e.time, "2026-01-31T23:59:59.999Z");
	assert_string_equal(e.ev, "flow");
	assert_int_equal(e.verdict, NETEVENT_REFUSED);
	assert_string_equal(e.reason, "mismatch");
	assert_string_equal(e.detail, "a \"b\" \\");
	assert_string_equal(e.name, "x\x1b\xe4.example");
	assert_string_equal(e.proto, "tls");
	assert_int_equal(e.n_addrs, 1);
	assert_int_equal(e.addrs[0], IP4(192, 0, 2, 1));
	assert_int_equal(e.port, 443);
	assert_int_equal(e.guest_port, 40000);
	assert_true(e.has_bytes && e.bytes_in == UINT64_MAX && e.count == 3);
	/* every cut of it is refused */
	for (size_t n = 0; n < sizeof(full) - 1; n++)
		assert_int_equal(netevent_parse(&e, span_of(full, n)), -EPROTO);

	static const struct {
		const char *why, *in;
		int want;
	} t[] = {
		{ "least", T ",\"ev\":\"end\"}", 0 },
		{ "addresses", T ",\"ev\":\"dns\",\"addrs\":[\"192.0.2.1\",\"192.0.2.2\"]}", 0 },
		{ "no event", T "}", -EPROTO },
		{ "no time", "{\"ev\":\"end\"}", -EPROTO },
		{ "bad time", "{\"t\":\"2026-01-31 23:59:59.999Z\",\"ev\":\"end\"}", -EPROTO },
		{ "unknown key", T ",\"ev\":\"end\",\"x\":1}", -EPROTO },
		{ "twice", T ",\"ev\":\"end\",\"port\":1,\"port\":1}", -EPROTO },
		{ "both kinds of address",
		  T ",\"ev\":\"dns\",\"addr\":\"192.0.2.1\",\"addrs\":[\"192.0.2.1\"]}", -EPROTO },
		{ "no address", T ",\"ev\":\"dns\",\"addr\":\"x\"}", -EPROTO },
		{ "empty list", T ",\"ev\":\"dns\",\"addrs\":[]}", -EPROTO },
		{ "unknown verdict", T ",\"ev\":\"dns\",\"verdict\":\"maybe\"}", -EPROTO },
		{ "port 0", T ",\"ev\":\"flow\",\"port\":0}", -EPROTO },
		{ "port 65536", T ",\"ev\":\"flow\",\"port\":65536}", -EPROTO },
		{ "port as text", T ",\"ev\":\"flow\",\"port\":\"1\"}", -EPROTO },
		{ "leading zero", T ",\"ev\":\"flow\",\"port\":01}", -EPROTO },
		{ "negative", T ",\"ev\":\"flow\",\"port\":-1}", -EPROTO },
		{ "count 0", T ",\"ev\":\"dns\",\"count\":0}", -EPROTO },
		{ "count beyond 64 bits", T ",\"ev\":\"dns\",\"count\":18446744073709551616}",
		  -EPROTO },
		{ "half of the bytes", T ",\"ev\":\"close\",\"bytes_in\":1}", -EPROTO },
		{ "blank", T ", \"ev\":\"end\"}", -EPROTO },
		{ "behind the end", T ",\"ev\":\"end\"} ", -EPROTO },
		{ "trailing comma", T ",\"ev\":\"end\",}", -EPROTO },
		{ "raw control", T ",\"ev\":\"end\",\"name\":\"\x1b\"}", -EPROTO },
		{ "raw byte", T ",\"ev\":\"end\",\"name\":\"\xe4\"}", -EPROTO },
		{ "NUL", T ",\"ev\":\"end\",\"name\":\"\\u0000\"}", -EPROTO },
		{ "beyond a byte", T ",\"ev\":\"end\",\"name\":\"\\u0100\"}", -EPROTO },
		{ "escape of a plain letter", T ",\"ev\":\"end\",\"name\":\"\\u0041\"}", -EPROTO },
		{ "other escape", T ",\"ev\":\"end\",\"name\":\"\\n\"}", -EPROTO },
		{ "empty text", T ",\"ev\":\"end\",\"name\":\"\"}", -EPROTO },
		{ "odd word", T ",\"ev\":\"End\"}", -EPROTO },
	};
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		int r = netevent_parse(&e, span_str(t[i].in));
		if (r != t[i].want)
			fail_msg("%s: %d", t[i].why, r);
	}
	/* a name at its limit, and one above */
	for (int n = NETEVENT_NAME_MAX; n <= NETEVENT_NAME_MAX + 1; n++) {
		AUTO_FREE char *line = xasprintf(T ",\"ev\":\"dns\",\"name\":\"%0*d\"}", n, 0);
		assert_int_equal(netevent_parse(&e, span_str(line)),
		                 n > NETEVENT_NAME_MAX ? -EPROTO : 0);
	}
	for (unsigned n = NETEVENT_ADDRS_MAX; n <= NETEVENT_ADDRS_MAX + 1; n++) {
		AUTO_FREE char *line = xasprintf(T ",\"ev\":\"dns\",\"addrs\":[\"192.0.2.0\"");
		for (unsigned i = 1; i < n; i++) {
			AUTO_FREE char *old = line;
			line = xasprintf("%s,\"192.0.2.%u\"", old, i);
		}
		AUTO_FREE char *whole = xasprintf("%s]}", line);
		assert_int_equal(netevent_parse(&e, span_str(whole)),
		                 n > NETEVENT_ADDRS_MAX ? -EPROTO : 0);
	}
}

static int sum(void *arg, const struct netevent *e)
{
	netsum_add(arg, e, false);
	return 0;
}

static void test_event_file(void **state UNUSED)
{
	static const char lines[] =
		T ",\"ev\":\"dns\",\"name\":\"a.example\"}\n"
		  "no line of ours\n" T ",\"ev\":\"dns\",\"name\":\"b.example\",\"count\":5}\n" T
		  ",\"ev\":\"drop\",\"addr\":\"192.0.2.7\"}\n" T ",\"ev\":\"drop\",\"count\":2}\n";
	static const char more[] = T ",\"ev\":\"dns\",\"name\":\"a.example\"}\n";
	AUTO_BUF struct buf carry = { 0 };
	struct netsum s = { 0 };
	uint64_t bad = 0;

	AUTO_CLOSE int fd = fd_memfd("events");
	assert_true(fd >= 0);
	/* a line that grows while it is read */
	for (size_t cut = 0; cut < sizeof(more) - 1; cut += 7) {
		s = (struct netsum){ 0 };
		bad = 0;
		carry.len = 0;
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(fd_pwrite_all(fd, lines, sizeof(lines) - 1, 0), 0);
		assert_int_equal(fd_pwrite_all(fd, more, cut, sizeof(lines) - 1), 0);
		assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
		assert_int_equal(netevent_each(fd, &carry, sum, &s, &bad), 0);
		assert_int_equal(s.n, 3);
		assert_int_equal(bad, 1);
		assert_int_equal(fd_pwrite_all(fd, more + cut, sizeof(more) - 1 - cut,
		                               (off_t)(sizeof(lines) - 1 + cut)),
		                 0);
		assert_int_equal(netevent_each(fd, &carry, sum, &s, &bad), 0);
		netsum_sort(&s);
		assert_int_equal(s.n, 3);
		assert_string_equal(s.v[0].host, "b.example");
		assert_int_equal(s.v[0].count, 5);
		assert_string_equal(s.v[1].host, "a.example");
		assert_int_equal(s.v[1].count, 2);
		assert_string_equal(s.v[2].host, "192.0.2.7");
		assert_false(s.v[2].is_name);
		assert_int_equal(s.total, 10);
		assert_int_equal(s.others, 2);
		netsum_fini(&s);
	}
	/* a line without an end does not grow in memory */
	static char endless[3 * NETEVENT_LINE_MAX];
	memset(endless, 'x', sizeof(endless));
	carry.len = 0;
	bad = 0;
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(fd_pwrite_all(fd, endless, sizeof(endless), 0), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(netevent_each(fd, &carry, sum, &s, &bad), 0);
	assert_true(carry.len < NETEVENT_LINE_MAX && bad > 0);
}

static void test_sum_limit(void **state UNUSED)
{
	static struct netevent e = { .ev = "dns", .count = 1 };
	struct netsum s = { 0 };

	for (unsigned i = 0; i <= NETEVENT_HOSTS_MAX; i++) {
		(void)snprintf(e.name, sizeof(e.name), "h%u.example", i);
		netsum_add(&s, &e, false);
	}
	assert_int_equal(s.n, NETEVENT_HOSTS_MAX);
	assert_int_equal(s.others, 1);
	assert_int_equal(s.total, NETEVENT_HOSTS_MAX + 1);
	netsum_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_callback),      cmocka_unit_test(test_option_values),
		cmocka_unit_test(test_option_lists),  cmocka_unit_test(test_settle),
		cmocka_unit_test(test_policy),        cmocka_unit_test(test_shown),
		cmocka_unit_test(test_search),        cmocka_unit_test(test_label),
		cmocka_unit_test(test_addresses),     cmocka_unit_test(test_ports),
		cmocka_unit_test(test_hostca_take),   cmocka_unit_test(test_hostca_load),
		cmocka_unit_test(test_hostca_limits), cmocka_unit_test(test_registries_cache),
		cmocka_unit_test(test_event),         cmocka_unit_test(test_event_file),
		cmocka_unit_test(test_sum_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
