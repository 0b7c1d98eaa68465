/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "event/loop.h"
#include "vmm/kvm_probe.h"
#include "vmm/qmp.h"
#include "vmm/vmm.h"

/* ---- KVM ---------------------------------------------------------------- */

static uint64_t get(const uint8_t *mem, size_t at)
{
	struct rd r = rd_of(mem + at, 8);

	return rd_le(&r, 8);
}

static void test_guest_pages(void **state UNUSED)
{
	static uint8_t mem[KVM_GUEST_BYTES];

	memset(mem, 0xff, sizeof(mem));
	kvm_guest_build(mem);
	/* three levels down to the page table, everything present and writable */
	assert_int_equal(get(mem, KVM_GUEST_PML4), 0x2003);
	assert_int_equal(get(mem, 0x2000), 0x3003);
	assert_int_equal(get(mem, 0x3000), KVM_GUEST_PT | 3);
	for (size_t i = 0; i < 16; i++)
		assert_int_equal(get(mem, KVM_GUEST_PT + i * 8), i << 12 | 3);
	assert_int_equal(get(mem, KVM_GUEST_PT + 16 * 8), 0);
	/* the GDT's first entry is null; code is 64-bit and executable, data writable */
	assert_int_equal(get(mem, KVM_GUEST_GDT), 0);
	assert_int_equal(get(mem, KVM_GUEST_GDT + 8) >> 40 & 0xff, 0x9b);
	assert_int_equal(get(mem, KVM_GUEST_GDT + 8) >> 53 & 1, 1);
	assert_int_equal(get(mem, KVM_GUEST_GDT + 16) >> 40 & 0xff, 0x93);
	/* every vector leads into the code page, #UD elsewhere than the others */
	uint64_t first = get(mem, KVM_GUEST_IDT) & 0xffff;
	for (unsigned v = 0; v < 32; v++) {
		uint64_t d = get(mem, KVM_GUEST_IDT + v * 16);
		uint64_t to = (d & 0xffff) | (d >> 48) << 16;

		assert_in_range(to, KVM_GUEST_CODE + 1, KVM_GUEST_CODE + 0xfff);
		assert_int_equal(d >> 40 & 0xff, 0x8e);
		assert_int_equal(d >> 16 & 0xffff, 8);
		assert_true((to == first) == (v != 6));
	}
	/* it begins with the number of its first stage: movl $1, 0x9100 */
	static const uint8_t begin[] = { 0xc7, 0x04, 0x25, 0x00, 0x91, 0, 0, 1, 0, 0, 0 };
	assert_memory_equal(mem + KVM_GUEST_CODE, begin, sizeof(begin));
	assert_string_equal(kvm_guest_stage_name(1), "cmpxchg16b");
	assert_string_equal(kvm_guest_stage_name(KVM_GUEST_STAGES), "end");
	assert_string_equal(kvm_guest_stage_name(KVM_GUEST_STAGES + 1), "?");
}

static void test_probe(void **state UNUSED)
{
	struct vmm_kvm_report r;

	vmm_kvm_probe(&r, "/nonexistent/kvm");
	assert_int_equal(r.state, VMM_KVM_ABSENT);
	assert_non_null(strstr(r.reason, "/nonexistent/kvm"));
	assert_non_null(strstr(r.remedy, "--accel tcg"));
	/* a device that is no KVM */
	vmm_kvm_probe(&r, "/dev/null");
	assert_int_equal(r.state, VMM_KVM_BROKEN);
	assert_non_null(strstr(r.reason, "API version"));
	if (geteuid() != 0) {
		vmm_kvm_probe(&r, "/dev/mem");
		assert_true(r.state == VMM_KVM_NO_PERMISSION || r.state == VMM_KVM_ABSENT);
	}
	/* this host's, whatever it is: an answer within its deadline, with its reason */
	vmm_kvm_probe(&r, NULL);
	assert_true(r.elapsed_us < 1500 * 1000);
	assert_true((r.state == VMM_KVM_USABLE) == (r.reason[0] == '\0'));
	print_message("kvm: %s %s (%u us)\n", vmm_kvm_name(r.state), r.reason, r.elapsed_us);
}

static void test_accel(void **state UNUSED)
{
	struct vmm_kvm_report usable = { .state = VMM_KVM_USABLE },
			      no = { .state = VMM_KVM_NO_PERMISSION,
		                     .reason = "/dev/kvm: permission denied",
		                     .remedy = "join, or run with --accel tcg (slow, weaker)" },
			      broken = no;
	enum vmm_accel a;
	struct err err = { 0 };

	broken.state = VMM_KVM_BROKEN;
	assert_int_equal(vmm_accel_parse("kvm", &a), 0);
	assert_int_equal(a, VMM_ACCEL_KVM);
	assert_int_equal(vmm_accel_parse("KVM", &a), -EINVAL);
	assert_int_equal(vmm_accel_parse("", &a), -EINVAL);
	assert_int_equal(vmm_accel_choose(VMM_ACCEL_AUTO, &usable, &a, &err), 0);
	assert_int_equal(a, VMM_ACCEL_KVM);
	a = VMM_ACCEL_AUTO;
	/* never emulation by itself */
	assert_int_equal(vmm_accel_choose(VMM_ACCEL_AUTO, &no, &a, &err), -EACCES);
	assert_int_equal(a, VMM_ACCEL_AUTO);
	assert_string_equal(err.text, "cannot start the microVM: /dev/kvm: permission denied");
	assert_non_null(strstr(err.hint, "--accel tcg"));
	assert_int_equal(vmm_accel_choose(VMM_ACCEL_KVM, &broken, &a, &err), -ENOTSUP);
	assert_int_equal(vmm_accel_choose(VMM_ACCEL_TCG, NULL, &a, &err), 0);
	assert_int_equal(a, VMM_ACCEL_TCG);
	uint32_t khz = vmm_tsc_khz();
	print_message("tsc: %u kHz\n", khz);
	assert_true(khz == 0 || khz >= 100000);
}

/* ---- argv --------------------------------------------------------------- */

static struct vmm_config config(void)
{
	return (struct vmm_config){
		.qemu = "/usr/bin/qemu-system-x86_64",
		.kernel = "/k/vmlinux",
		.initrd = "/k/initrd",
		.memory_mib = 4096,
		.vcpus = 2,
		.disks = { { "base", VMM_DISK_RAW_FD, 50, true },
		           { "work", VMM_DISK_NBD_FD, 51, true },
		           { "scratch", VMM_DISK_RAW_FD, 52, false } },
		.n_disks = 3,
		.control_fd = 60,
		.qmp_fd = 61,
		.console_fd = -1,
		.net_fd = -1,
		.accel = VMM_ACCEL_TCG,
		.tsc_khz = 2500000,
	};
}

static bool has(const struct vmm_argv *a, const char *option, const char *value)
{
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->v[i], option) == 0 &&
		    (!value || (i + 1 < a->n && strcmp(a->v[i + 1], value) == 0)))
			return true;
	return false;
}

static int child_fd(const struct vmm_argv *a, int from)
{
	for (size_t i = 0; i < a->n_fds; i++)
		if (a->fds[i].from == from)
			return a->fds[i].to;
	return -1;
}

static void test_argv(void **state UNUSED)
{
	struct vmm_config c = config();
	struct vmm_argv a = { 0 };
	struct err err = { 0 };
	char want[256];

	assert_int_equal(vmm_qemu_argv(&a, &c, &err), 0);
	assert_string_equal(a.v[0], "/usr/bin/qemu-system-x86_64");
	assert_null(a.v[a.n]);
	assert_true(has(&a, "-nodefaults", NULL));
	assert_true(has(&a, "-no-user-config", NULL));
	assert_true(has(&a, "-no-reboot", NULL));
	assert_true(has(&a, "-bios", "qboot.rom"));
	assert_true(has(&a, "-sandbox",
	                "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"));
	assert_true(has(&a, "-accel", "tcg,thread=single"));
	assert_true(has(&a, "-append",
	                "quiet reboot=t panic=-1 audit=0 apparmor=0 cryptomgr.notests "
	                "no_timer_check tsc=reliable tsc_early_khz=2500000"));
	/* each descriptor once, at numbers without a gap */
	assert_int_equal(a.n_fds, 5);
	for (size_t i = 0; i < a.n_fds; i++)
		assert_int_equal(a.fds[i].to, VMM_FD_BASE + i);
	(void)snprintf(want, sizeof(want), "socket,id=control,fd=%d", child_fd(&a, 60));
	assert_true(has(&a, "-chardev", want));
	(void)snprintf(want, sizeof(want), "fd=%d,set=1", child_fd(&a, 50));
	assert_true(has(&a, "-add-fd", want));
	assert_true(has(&a, "-blockdev",
	                "driver=file,node-name=base,filename=/dev/fdset/1,read-only=on,"
	                "auto-read-only=off,locking=off"));
	(void)snprintf(want, sizeof(want),
	               "driver=nbd,node-name=work,read-only=on,server.type=fd,server.str=%d",
	               child_fd(&a, 51));
	assert_true(has(&a, "-blockdev", want));
	assert_true(has(&a, "-blockdev",
	                "driver=file,node-name=scratch,filename=/dev/fdset/3,read-only=off,"
	                "auto-read-only=off,locking=off,discard=unmap"));
	assert_true(has(&a, "-device",
	                "virtio-blk-device,drive=scratch,serial=scratch,num-queues=1,"
	                "werror=enospc,rerror=report"));
	vmm_argv_fini(&a);

	c.accel = VMM_ACCEL_KVM;
	c.console_fd = 70;
	c.cmdline_extra = "loglevel=7";
	assert_int_equal(vmm_qemu_argv(&a, &c, &err), 0);
	assert_true(has(&a, "-cpu", "host"));
	/* no TSC hint under KVM, which would make a wrong clock authoritative */
	assert_true(has(
		&a, "-append",
		"console=ttyS0 reboot=t panic=-1 audit=0 apparmor=0 cryptomgr.notests loglevel=7"));
	assert_true(has(&a, "-serial", "chardev:console"));
	/* without a card there is nothing of a network at all */
	assert_false(has(&a, "-netdev", NULL) || has(&a, "-nic", NULL) || has(&a, "-net", NULL));
	vmm_argv_fini(&a);

	c.net_fd = 80;
	c.net_mtu = 16000;
	memcpy(c.net_mac, "\x02\xc1\x0c\x57\xff\x02", sizeof(c.net_mac));
	assert_int_equal(vmm_qemu_argv(&a, &c, &err), 0);
	(void)snprintf(want, sizeof(want), "stream,id=net,server=off,addr.type=fd,addr.str=%d",
	               child_fd(&a, 80));
	assert_true(has(&a, "-netdev", want));
	assert_true(has(&a, "-device",
	                "virtio-net-device,netdev=net,mac=02:c1:0c:57:ff:02,host_mtu=16000"));
	vmm_argv_fini(&a);
	vmm_argv_fini(&a);
}

static void test_argv_limits(void **state UNUSED)
{
	static char long_line[VMM_CMDLINE_MAX + 1];
	enum { MEMORY, VCPUS, DISKS, SERIAL, TWICE, ACCEL, CONTROL, QEMU, LINE, MTU, MAC };
	static const struct {
		const char *why;
		int what, want;
		long value;
		const char *text;
	} t[] = {
		{ "least memory", MEMORY, 0, VMM_MEMORY_MIN_MIB, NULL },
		{ "one below", MEMORY, -EINVAL, VMM_MEMORY_MIN_MIB - 1, NULL },
		{ "most memory", MEMORY, 0, VMM_MEMORY_MAX_MIB, NULL },
		{ "one above", MEMORY, -EINVAL, VMM_MEMORY_MAX_MIB + 1, NULL },
		{ "no vCPU", VCPUS, -EINVAL, 0, NULL },
		{ "most vCPUs", VCPUS, 0, VMM_VCPUS_MAX, NULL },
		{ "one above", VCPUS, -EINVAL, VMM_VCPUS_MAX + 1, NULL },
		{ "too many disks", DISKS, -EINVAL, VMM_DISKS_MAX + 1, NULL },
		{ "20 bytes of serial", SERIAL, 0, 0, "abcdefghijklmnopqrst" },
		{ "21 bytes", SERIAL, -EINVAL, 0, "abcdefghijklmnopqrstu" },
		{ "empty serial", SERIAL, -EINVAL, 0, "" },
		{ "a comma would be an option", SERIAL, -EINVAL, 0, "a,b" },
		{ "digit first is no node name", SERIAL, -EINVAL, 0, "1a" },
		{ "two of a name", TWICE, -EINVAL, 0, NULL },
		{ "auto is no choice", ACCEL, -EINVAL, VMM_ACCEL_AUTO, NULL },
		{ "no control socket", CONTROL, -EINVAL, -1, NULL },
		{ "relative QEMU", QEMU, -EINVAL, 0, "qemu" },
		{ "newline in the command line", LINE, -EINVAL, 0, "a\nb" },
		{ "command line too long", LINE, -E2BIG, 0, long_line },
		{ "least MTU", MTU, 0, VMM_MTU_MIN, NULL },
		{ "one below", MTU, -EINVAL, VMM_MTU_MIN - 1, NULL },
		{ "most MTU", MTU, 0, VMM_MTU_MAX, NULL },
		{ "one above", MTU, -EINVAL, VMM_MTU_MAX + 1, NULL },
		{ "a multicast card", MAC, -EINVAL, 3, NULL },
		{ "no address of the card", MAC, -EINVAL, 0, NULL },
	};

	memset(long_line, 'x', VMM_CMDLINE_MAX);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct vmm_config c = config();
		struct vmm_argv a = { 0 };
		struct err err = { 0 };

		switch (t[i].what) {
		case MEMORY:
			c.memory_mib = (uint32_t)t[i].value;
			break;
		case VCPUS:
			c.vcpus = (uint32_t)t[i].value;
			break;
		case DISKS:
			c.n_disks = (size_t)t[i].value;
			break;
		case SERIAL:
			c.disks[0].serial = t[i].text;
			break;
		case TWICE:
			c.disks[0].serial = c.disks[1].serial;
			break;
		case ACCEL:
			c.accel = (enum vmm_accel)t[i].value;
			break;
		case CONTROL:
			c.control_fd = (int)t[i].value;
			break;
		case QEMU:
			c.qemu = t[i].text;
			break;
		case MTU:
			c.net_fd = 80;
			c.net_mac[0] = 2;
			c.net_mtu = (uint16_t)t[i].value;
			break;
		case MAC:
			c.net_fd = 80;
			c.net_mac[0] = (uint8_t)t[i].value;
			c.net_mtu = 1500;
			break;
		default:
			c.cmdline_extra = t[i].text;
			break;
		}
		int got = vmm_qemu_argv(&a, &c, &err);
		if (got != t[i].want)
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
		vmm_argv_fini(&a);
	}
}

/* ---- what QEMU said ----------------------------------------------------- */

static void test_tail(void **state UNUSED)
{
	struct vmm_tail t = { 0 };
	struct err err = { 0 };
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
	for (int i = 0; i < 400; i++)
		assert_int_equal(fd_write_all(p[1], "first lines\n", 12), 0);
	assert_int_equal(vmm_tail_read(&t, p[0]), -EAGAIN);
	assert_int_equal(t.len, VMM_TAIL_BYTES);
	assert_int_equal(fd_write_all(p[1], "why\nit \x1b[31mdied\n", 17), 0);
	(void)close(p[1]);
	assert_int_equal(vmm_tail_read(&t, p[0]), 0);
	assert_true(t.at_end);
	(void)close(p[0]);
	assert_int_equal(vmm_exit_err(&err, &t, 1 << 8), -EIO);
	assert_string_equal(err.text, "QEMU ended with status 1: why\\nit \\e[31mdied");
	assert_int_equal(vmm_exit_err(&err, &t, 125 << 8), -EIO);
	assert_non_null(strstr(err.text, "cage was refused"));
	t.len = 0;
	assert_int_equal(vmm_exit_err(&err, &t, 9), -EIO);
	assert_string_equal(err.text, "QEMU was ended by signal 9");
}

/* ---- QMP ---------------------------------------------------------------- */

static void test_qmp_parse(void **state UNUSED)
{
	static const struct {
		const char *why;
		int want;
		struct qmp_msg m;
		const char *line;
	} t[] = {
		{ "greeting",
		  0,
		  { .kind = QMP_GREETING },
		  "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22}}, \"capabilities\": "
		  "[\"oob\"]}}" },
		{ "greeting with an id", -EPROTO, { 0 }, "{\"QMP\": {}, \"id\": 1}" },
		{ "greeting of a wrong type", -EPROTO, { 0 }, "{\"QMP\": 1}" },
		{ "empty answer",
		  0,
		  { .kind = QMP_RETURN, .id = 7 },
		  "{\"return\": {}, \"id\": 7}" },
		{ "answer without id", 0, { .kind = QMP_RETURN }, "{\"return\": []}" },
		{ "id 0", -EPROTO, { 0 }, "{\"return\": {}, \"id\": 0}" },
		{ "largest id",
		  0,
		  { .kind = QMP_RETURN, .id = 1 << 30 },
		  "{\"return\": {}, \"id\": 1073741824}" },
		{ "one above", -EPROTO, { 0 }, "{\"return\": {}, \"id\": 1073741825}" },
		{ "id of a wrong type", -EPROTO, { 0 }, "{\"return\": {}, \"id\": \"7\"}" },
		{ "state",
		  0,
		  { .kind = QMP_RETURN, .id = 3, .state = QMP_STATE_IO_ERROR },
		  "{\"return\": {\"status\": \"io-error\", \"running\": false}, \"id\": 3}" },
		{ "state of tomorrow",
		  0,
		  { .kind = QMP_RETURN, .id = 3 },
		  "{\"return\": {\"status\": \"dreaming\"}, \"id\": 3}" },
		{ "state of a wrong type",
		  -EPROTO,
		  { 0 },
		  "{\"return\": {\"status\": 3}, \"id\": 3}" },
		{ "error",
		  0,
		  { .kind = QMP_ERROR, .id = 4, .text = "no\\e[2Jway" },
		  "{\"id\": 4, \"error\": {\"class\": \"GenericError\", \"desc\": "
		  "\"no\\u001b[2Jway\"}}" },
		{ "error without text", -EPROTO, { 0 }, "{\"id\": 4, \"error\": {}}" },
		{ "answer and error",
		  -EPROTO,
		  { 0 },
		  "{\"return\": {}, \"error\": {\"desc\": \"\"}}" },
		{ "same key twice", -EPROTO, { 0 }, "{\"return\": {}, \"return\": {}}" },
		{ "same key twice, deeper", -EPROTO, { 0 }, "{\"return\": {\"a\": 1, \"a\": 2}}" },
		{ "no key of ours", -EPROTO, { 0 }, "{\"x\": 1}" },
		{ "not an object", -EPROTO, { 0 }, "[]" },
		{ "two values", -EPROTO, { 0 }, "{\"return\": {}} {}" },
		{ "empty", -EPROTO, { 0 }, "" },
		{ "cut", -EPROTO, { 0 }, "{\"return\": {" },
		{ "other event",
		  0,
		  { .kind = QMP_EVENT },
		  "{\"event\": \"RTC_CHANGE\", \"data\": {}}" },
		{ "event with an id", -EPROTO, { 0 }, "{\"event\": \"STOP\", \"id\": 1}" },
		{ "stop", 0, { .kind = QMP_EVENT, .event = QMP_EV_STOP }, "{\"event\": \"STOP\"}" },
		{ "full host",
		  0,
		  { .kind = QMP_EVENT,
		    .event = QMP_EV_BLOCK_IO_ERROR,
		    .flag = true,
		    .text = "scratch" },
		  "{\"event\": \"BLOCK_IO_ERROR\", \"data\": {\"device\": \"\", \"nospace\": true, "
		  "\"node-name\": \"scratch\", \"reason\": \"x\", \"operation\": \"write\", "
		  "\"action\": \"stop\"}}" },
		{ "flag of a wrong type",
		  -EPROTO,
		  { 0 },
		  "{\"event\": \"BLOCK_IO_ERROR\", \"data\": {\"nospace\": 1}}" },
		{ "data of a wrong type", -EPROTO, { 0 }, "{\"event\": \"STOP\", \"data\": []}" },
		{ "shutdown by the guest",
		  0,
		  { .kind = QMP_EVENT,
		    .event = QMP_EV_SHUTDOWN,
		    .flag = true,
		    .text = "guest-reset" },
		  "{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true, \"reason\": "
		  "\"guest-reset\"}, "
		  "\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}}" },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct qmp_msg m = { 0 };
		int got = qmp_parse(&m, span_str(t[i].line));

		if (got != t[i].want || (got == 0 && memcmp(&m, &t[i].m, sizeof(m)) != 0))
			fail_msg("%s: got %d, want %d", t[i].why, got, t[i].want);
	}
}

static void test_qmp_limits(void **state UNUSED)
{
	AUTO_FREE char *line = malloc(QMP_LINE_MAX + 1);
	struct qmp_msg m;

	assert_non_null(line);
	memset(line, ' ', QMP_LINE_MAX + 1);
	memcpy(line, "{\"return\":{}}", 13);
	assert_int_equal(qmp_parse(&m, span_of(line, QMP_LINE_MAX - 1)), 0);
	assert_int_equal(qmp_parse(&m, span_of(line, QMP_LINE_MAX)), 0);
	assert_int_equal(qmp_parse(&m, span_of(line, QMP_LINE_MAX + 1)), -EPROTO);
	/* as deep as a line is long: refused by the library, not by the stack */
	memset(line, '[', QMP_LINE_MAX);
	assert_int_equal(qmp_parse(&m, span_of(line, QMP_LINE_MAX)), -EPROTO);
}

struct seen {
	struct qmp *q;
	int ready, closed, close_code, done, done_code, events;
	enum qmp_event last;
	enum qmp_state state;
	bool free_in_event;
};

static void on_ready(void *arg)
{
	((struct seen *)arg)->ready++;
}

static void on_event(void *arg, const struct qmp_msg *m)
{
	struct seen *s = arg;

	s->events++;
	s->last = m->event;
	if (s->free_in_event) {
		qmp_free(s->q);
		s->q = NULL;
	}
}

static void on_closed(void *arg, int code)
{
	struct seen *s = arg;

	s->closed++;
	s->close_code = code;
}

static void on_done(void *arg, int code, const struct qmp_msg *m)
{
	struct seen *s = arg;

	s->done++;
	s->done_code = code;
	s->state = m ? m->state : QMP_STATE_UNKNOWN;
}

static uint64_t fake_now(void *arg)
{
	return *(uint64_t *)arg;
}

struct peer {
	struct loop *l;
	int fd;
	uint64_t now;
	struct seen s;
};

static void peer_start(struct peer *p, bool greet)
{
	int sv[2];
	static const char hello[] = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n"
				    "{\"return\": {}, \"id\": 1}\r\n";

	*p = (struct peer){ .now = 1 };
	p->l = loop_new();
	assert_non_null(p->l);
	loop_set_clock(p->l, fake_now, &p->now);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv), 0);
	p->fd = sv[1];
	struct qmp_handlers h = {
		.ready = on_ready, .event = on_event, .closed = on_closed, .arg = &p->s
	};
	assert_int_equal(qmp_new(&p->s.q, p->l, sv[0], &h), 0);
	if (!greet)
		return;
	assert_int_equal(fd_write_all(p->fd, hello, sizeof(hello) - 1), 0);
	assert_int_equal(loop_once(p->l, 0), 0);
	assert_int_equal(p->s.ready, 1);
}

static void peer_say(struct peer *p, const char *line)
{
	assert_int_equal(fd_write_all(p->fd, line, strlen(line)), 0);
	assert_int_equal(loop_once(p->l, 0), 0);
}

static void peer_end(struct peer *p)
{
	qmp_free(p->s.q);
	loop_free(p->l);
	(void)close(p->fd);
}

static void test_qmp_session(void **state UNUSED)
{
	struct peer p;
	char b[1024];

	/* commands wait for the greeting, then go in order */
	peer_start(&p, false);
	assert_int_equal(qmp_query_status(p.s.q, on_done, &p.s), 0);
	assert_int_equal(qmp_block_resize(p.s.q, "scratch", 1 << 20, on_done, &p.s), 0);
	assert_int_equal(qmp_block_resize(p.s.q, "a\"b", 1, on_done, &p.s), -EINVAL);
	assert_int_equal(loop_once(p.l, 0), 0);
	assert_int_equal(read(p.fd, b, sizeof(b)), -1);
	peer_say(&p, "{\"QMP\": {}}\r\n");
	ssize_t n = read(p.fd, b, sizeof(b) - 1);
	assert_true(n > 0);
	b[n] = '\0';
	assert_string_equal(b, "{\"execute\":\"qmp_capabilities\",\"id\":1}\n");
	peer_say(&p, "{\"return\": {}, \"id\": 1}\r\n");
	n = read(p.fd, b, sizeof(b) - 1);
	assert_true(n > 0);
	b[n] = '\0';
	assert_string_equal(
		b, "{\"execute\":\"query-status\",\"id\":2}\n"
		   "{\"execute\":\"block_resize\",\"arguments\":{\"node-name\":\"scratch\","
		   "\"size\":1048576},\"id\":3}\n");
	/* an answer in pieces, with an event between */
	peer_say(&p, "{\"event\": \"STOP\"}\r\n{\"return\": {\"sta");
	assert_int_equal(p.s.events, 1);
	assert_int_equal(p.s.done, 0);
	peer_say(&p, "tus\": \"paused\"}, \"id\": 2}\r\n");
	assert_int_equal(p.s.done, 1);
	assert_int_equal(p.s.state, QMP_STATE_PAUSED);
	peer_say(&p, "{\"error\": {\"class\": \"x\", \"desc\": \"read-only\"}, \"id\": 3}\n");
	assert_int_equal(p.s.done, 2);
	assert_int_equal(p.s.done_code, -EREMOTEIO);
	/* the end of QEMU: who waits is told first */
	assert_int_equal(qmp_quit(p.s.q, on_done, &p.s), 0);
	(void)shutdown(p.fd, SHUT_RDWR);
	assert_int_equal(loop_once(p.l, 0), 0);
	assert_int_equal(p.s.done_code, -EPIPE);
	assert_int_equal(p.s.closed, 1);
	assert_int_equal(p.s.close_code, 0);
	assert_int_equal(qmp_cont(p.s.q, NULL, NULL), -EPIPE);
	peer_end(&p);
}

static void test_qmp_hostile(void **state UNUSED)
{
	static const struct {
		const char *why;
		const char *line;
	} t[] = {
		{ "an answer to no question", "{\"return\": {}, \"id\": 2}\n" },
		{ "an answer without id", "{\"return\": {}}\n" },
		{ "a second greeting", "{\"QMP\": {}}\n" },
		{ "no JSON", "hello\n" },
		{ "an empty line", "\n" },
	};
	struct peer p;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		peer_start(&p, true);
		peer_say(&p, t[i].line);
		if (p.s.closed != 1 || p.s.close_code != -EPROTO)
			fail_msg("%s: not refused", t[i].why);
		peer_end(&p);
	}
	/* an event before the greeting */
	peer_start(&p, false);
	peer_say(&p, "{\"event\": \"STOP\"}\n");
	assert_int_equal(p.s.close_code, -EPROTO);
	peer_end(&p);
	/* a flood: as many as allowed, then one more; a new second counts anew */
	peer_start(&p, true);
	for (int i = 0; i < QMP_EVENTS_PER_SECOND; i++)
		peer_say(&p, "{\"event\": \"STOP\"}\n");
	assert_int_equal(p.s.closed, 0);
	p.now += UINT64_C(1000000000);
	peer_say(&p, "{\"event\": \"STOP\"}\n");
	assert_int_equal(p.s.closed, 0);
	for (int i = 0; i < QMP_EVENTS_PER_SECOND && !p.s.closed; i++)
		peer_say(&p, "{\"event\": \"RTC_CHANGE\"}\n");
	assert_int_equal(p.s.close_code, -EPROTO);
	peer_end(&p);
	/* never an answer */
	peer_start(&p, true);
	assert_int_equal(qmp_stop(p.s.q, on_done, &p.s), 0);
	p.now += UINT64_C(1000000) * QMP_TIMEOUT_MS + 1000000;
	assert_int_equal(loop_once(p.l, 0), 0);
	assert_int_equal(p.s.close_code, -ETIMEDOUT);
	assert_int_equal(p.s.done_code, -ETIMEDOUT);
	peer_end(&p);
	/* a line without end */
	peer_start(&p, true);
	static char spaces[64 * 1024];
	memset(spaces, ' ', sizeof(spaces));
	for (int i = 0; i < 40 && !p.s.closed; i++) {
		ssize_t n = write(p.fd, spaces, sizeof(spaces));
		assert_true(n > 0 || errno == EAGAIN);
		assert_int_equal(loop_once(p.l, 0), 0);
	}
	assert_int_equal(p.s.close_code, -EPROTO);
	peer_end(&p);
	/* too many questions */
	peer_start(&p, true);
	for (int i = 0; i < QMP_PENDING_MAX; i++)
		assert_int_equal(qmp_stop(p.s.q, NULL, NULL), 0);
	assert_int_equal(qmp_stop(p.s.q, NULL, NULL), -EBUSY);
	peer_end(&p);
	/* freed by its own handler */
	peer_start(&p, true);
	p.s.free_in_event = true;
	peer_say(&p, "{\"event\": \"STOP\"}\n{\"event\": \"STOP\"}\n");
	assert_int_equal(p.s.events, 1);
	assert_int_equal(p.s.closed, 0);
	peer_end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guest_pages), cmocka_unit_test(test_probe),
		cmocka_unit_test(test_accel),       cmocka_unit_test(test_argv),
		cmocka_unit_test(test_argv_limits), cmocka_unit_test(test_tail),
		cmocka_unit_test(test_qmp_parse),   cmocka_unit_test(test_qmp_limits),
		cmocka_unit_test(test_qmp_session), cmocka_unit_test(test_qmp_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
