/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-keeper - hands the host's resolver configuration to a sandbox's relay.
 *
 * Trusts: everybody it deals with. It parses nothing: the bytes of /etc/resolv.conf
 * and /etc/hosts go on whenever they change, for the relay to judge, which sees no
 * file itself. May touch: reads those two files, writes to one socket. A compromise
 * is not to be had by what others say, for nobody says anything to it.
 *
 *   --relay FD    SOCK_SEQPACKET to cloche-relay (wire/relayctl.h)
 *   --log FD      where to log; 2 when it is left out
 *   --uid UID     started as root: run as this one
 *   --etc DIR     tests: in place of /etc
 *
 * The files are often links into /run, are replaced by rename, or are mounted over:
 * so three things are watched, the file, the folder of its name and the folder of
 * what it leads to; and now and then it is looked at without a reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "event/loop.h"
#include "wire/relayctl.h"

enum {
	STATUS_USAGE = 2,
	SETTLE_MS = 50, /* a file is often written in several steps */
	LOOK_MS = 30 * 1000,
	READ_MAX = 16 * 1024 * 1024,
};

static struct keeper {
	struct loop *l;
	int relay, watch;
	struct loop_fd relay_src, watch_src;
	struct loop_timer settle, look;
	const char *etc;
	struct file {
		const char *name;
		uint16_t type;
		char *sent; /* NULL: nothing was */
		size_t len;
		bool told; /* that it is too long */
	} files[2];
} k = {
	.relay = -1,
	.watch = -1,
	.etc = "/etc",
	.files = { { "resolv.conf", RELAYCTL_RESOLV, NULL, 0, false },
	           { "hosts", RELAYCTL_HOSTS, NULL, 0, false } },
};

/* Whole lines, as many as a message takes. */
static size_t cut(const struct file *f, const char *text, size_t len)
{
	if (len <= RELAYCTL_FILE_MAX)
		return len;
	for (len = RELAYCTL_FILE_MAX; len > 0 && text[len - 1] != '\n';)
		len--;
	if (!f->told)
		log_warn("%s is longer than %d bytes: the rest is left out", f->name,
		         RELAYCTL_FILE_MAX);
	return len;
}

static void hand_on(struct file *f)
{
	static uint8_t b[RELAYCTL_BYTES_MAX];
	AUTO_FREE char *path = xasprintf("%s/%s", k.etc, f->name);
	AUTO_FREE char *text = NULL;
	size_t len = 0;

	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
		return; /* unreadable for a moment: what was said holds */
	if (fd >= 0 && fd_read_file(fd, READ_MAX, &text, &len) < 0)
		return;
	size_t n = cut(f, text ? text : "", len);
	f->told = n < len;
	if (f->sent && f->len == n && memcmp(f->sent, text ? text : "", n) == 0)
		return;
	struct relayctl m = { .type = f->type, .file = span_of(text ? text : "", n) };
	size_t k_bytes = relayctl_put(b, sizeof(b), &m);
	ASSERT(k_bytes > 0);
	if (fd_send(k.relay, b, k_bytes, NULL, 0) < 0) {
		loop_stop(k.l, 0); /* the relay is gone */
		return;
	}
	free(f->sent);
	f->sent = text ? take_ptr(&text) : xstrdup("");
	f->len = n;
}

static void watch_files(void)
{
	const uint32_t in_folder = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE |
	                           IN_CLOSE_WRITE | IN_ONLYDIR,
		       itself = IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF |
	                        IN_MOVE_SELF;

	if (k.watch < 0)
		return;
	/* what is watched already stays so, what is not there is seen in its folder */
	(void)inotify_add_watch(k.watch, k.etc, in_folder);
	for (size_t i = 0; i < ARRAY_LEN(k.files); i++) {
		AUTO_FREE char *path = xasprintf("%s/%s", k.etc, k.files[i].name);
		AUTO_FREE char *real = realpath(path, NULL);
		if (!real)
			continue;
		(void)inotify_add_watch(k.watch, real, itself);
		char *slash = strrchr(real, '/');
		if (slash == real)
			continue;
		*slash = '\0';
		(void)inotify_add_watch(k.watch, real, in_folder);
	}
}

static void look(void)
{
	watch_files();
	for (size_t i = 0; i < ARRAY_LEN(k.files); i++)
		hand_on(&k.files[i]);
}

static void on_settled(void *arg UNUSED)
{
	look();
}

static void on_look(void *arg UNUSED)
{
	look();
	loop_timer_set(k.l, &k.look, LOOK_MS, on_look, NULL);
}

static void on_watch(void *arg UNUSED, uint32_t events UNUSED)
{
	char b[16 * 1024];

	while (read(k.watch, b, sizeof(b)) > 0)
		; /* that something changed is all it has to say */
	loop_timer_set(k.l, &k.settle, SETTLE_MS, on_settled, NULL);
}

static void on_relay(void *arg UNUSED, uint32_t events UNUSED)
{
	char b[16];

	ssize_t n = read(k.relay, b, sizeof(b));

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		loop_stop(k.l, 0); /* gone, and it never says anything else */
}

static int give_up_rights(uid_t uid)
{
	const struct rlimit none = { 0 };

	if (geteuid() == 0 && uid &&
	    (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
	     setresuid(uid, uid, uid) < 0))
		return -errno;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
	    setrlimit(RLIMIT_CORE, &none) < 0)
		return -errno;
	/* a change of uid cleared it */
	return prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? -errno : 0;
}

int main(int argc, char **argv)
{
	int log = STDERR_FILENO, uid = 0;

	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc)
			return STATUS_USAGE;
		if (strcmp(argv[i], "--relay") == 0)
			k.relay = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--log") == 0)
			log = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--uid") == 0)
			uid = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--etc") == 0)
			k.etc = argv[i + 1];
		else
			return STATUS_USAGE;
	}
	if (k.relay < 0)
		return STATUS_USAGE;
	log_open(log, "cloche-keeper", NULL, LOG_INFO);
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
	int r = give_up_rights((uid_t)uid);
	k.l = loop_new();
	if (r < 0 || !k.l) {
		log_error("cannot start: %s", strerror(r < 0 ? -r : ENFILE));
		return EXIT_FAILURE;
	}
	/* without it (no instance left) a change is seen at the next look */
	k.watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (k.watch >= 0)
		r = loop_fd_add(k.l, &k.watch_src, k.watch, EPOLLIN, on_watch, NULL);
	if (r == 0)
		r = loop_fd_add(k.l, &k.relay_src, k.relay, EPOLLIN, on_relay, NULL);
	if (r < 0) {
		log_error("cannot watch: %s", strerror(-r));
		return EXIT_FAILURE;
	}
	on_look(NULL);
	r = loop_run(k.l);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
