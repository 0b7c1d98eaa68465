/* SPDX-License-Identifier: Apache-2.0 */
/* qmp_parse.c - one line of QEMU's, which may be its guest's by now. Pure. */
#include "vmm/qmp.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/vis.h"

enum { ID_MAX = 1 << 30 };

static const struct {
	const char *name;
	enum qmp_event event;
	const char *flag; /* a boolean of its data; NULL: none */
	const char *text; /* a string of its data; NULL: none */
} events[] = {
	{ "STOP", QMP_EV_STOP, NULL, NULL },
	{ "RESUME", QMP_EV_RESUME, NULL, NULL },
	{ "SHUTDOWN", QMP_EV_SHUTDOWN, "guest", "reason" },
	{ "RESET", QMP_EV_RESET, "guest", "reason" },
	{ "GUEST_PANICKED", QMP_EV_GUEST_PANICKED, NULL, "action" },
	{ "BLOCK_IO_ERROR", QMP_EV_BLOCK_IO_ERROR, "nospace", "node-name" },
	{ "NETDEV_STREAM_DISCONNECTED", QMP_EV_NETDEV_GONE, NULL, "netdev-id" },
};

static const struct {
	const char *name;
	enum qmp_state state;
} states[] = {
	{ "running", QMP_STATE_RUNNING },
	{ "paused", QMP_STATE_PAUSED },
	{ "io-error", QMP_STATE_IO_ERROR },
	{ "shutdown", QMP_STATE_SHUTDOWN },
	{ "prelaunch", QMP_STATE_PRELAUNCH },
	{ "guest-panicked", QMP_STATE_PANICKED },
	{ "internal-error", QMP_STATE_INTERNAL_ERROR },
};

static void set_text(struct qmp_msg *m, const json_t *s)
{
	(void)vis_str(m->text, sizeof(m->text),
	              span_of(json_string_value(s), json_string_length(s)));
}

static int parse_event(struct qmp_msg *m, const json_t *top)
{
	const json_t *name = json_object_get(top, "event"), *data = json_object_get(top, "data");
	size_t i;

	if (!json_is_string(name) || (data && !json_is_object(data)) || json_object_get(top, "id"))
		return -EPROTO;
	m->kind = QMP_EVENT;
	m->event = QMP_EV_OTHER;
	for (i = 0; i < ARRAY_LEN(events); i++)
		if (strcmp(json_string_value(name), events[i].name) == 0)
			break;
	if (i == ARRAY_LEN(events))
		return 0;
	m->event = events[i].event;
	const json_t *flag = events[i].flag ? json_object_get(data, events[i].flag) : NULL;
	const json_t *text = events[i].text ? json_object_get(data, events[i].text) : NULL;
	if ((flag && !json_is_boolean(flag)) || (text && !json_is_string(text)))
		return -EPROTO;
	m->flag = json_is_true(flag);
	if (text)
		set_text(m, text);
	return 0;
}

static int parse_return(struct qmp_msg *m, const json_t *ret)
{
	const json_t *status = json_is_object(ret) ? json_object_get(ret, "status") : NULL;

	m->kind = QMP_RETURN;
	if (!status)
		return 0;
	if (!json_is_string(status))
		return -EPROTO;
	for (size_t i = 0; i < ARRAY_LEN(states); i++)
		if (strcmp(json_string_value(status), states[i].name) == 0)
			m->state = states[i].state;
	return 0;
}

static int parse_error(struct qmp_msg *m, const json_t *e)
{
	const json_t *desc = json_is_object(e) ? json_object_get(e, "desc") : NULL;

	if (!json_is_string(desc))
		return -EPROTO;
	m->kind = QMP_ERROR;
	set_text(m, desc);
	return 0;
}

static int parse_top(struct qmp_msg *m, const json_t *top)
{
	const json_t *hello = json_object_get(top, "QMP"), *ret = json_object_get(top, "return"),
		     *e = json_object_get(top, "error"), *ev = json_object_get(top, "event"),
		     *id = json_object_get(top, "id");

	if (!!hello + !!ret + !!e + !!ev != 1)
		return -EPROTO;
	if (id) {
		json_int_t v = json_integer_value(id);

		if (!json_is_integer(id) || v < 1 || v > ID_MAX)
			return -EPROTO;
		m->id = (uint64_t)v;
	}
	if (hello) {
		m->kind = QMP_GREETING;
		return json_is_object(hello) && !id ? 0 : -EPROTO;
	}
	if (ev)
		return parse_event(m, top);
	return ret ? parse_return(m, ret) : parse_error(m, e);
}

int qmp_parse(struct qmp_msg *out, struct span line)
{
	struct qmp_msg m = { 0 };
	json_error_t why;

	if (line.len == 0 || line.len > QMP_LINE_MAX)
		return -EPROTO;
	json_t *top = json_loadb((const char *)line.p, line.len, JSON_REJECT_DUPLICATES, &why);
	if (!top)
		return json_error_code(&why) == json_error_out_of_memory ? -ENOMEM : -EPROTO;
	int r = json_is_object(top) ? parse_top(&m, top) : -EPROTO;
	json_decref(top);
	if (r == 0)
		*out = m;
	return r;
}
