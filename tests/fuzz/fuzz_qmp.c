/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is accepted is in its ranges, its text is printable and ended, the same
 * bytes give the same message, and white space around changes nothing.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/vis.h"
#include "vmm/qmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct qmp_msg a, b;

	memset(&a, 0x55, sizeof(a));
	if (qmp_parse(&a, span_of(data, size)) < 0)
		return 0;
	const char *end = memchr(a.text, '\0', sizeof(a.text));
	if (!end || a.kind > QMP_EVENT || a.event > QMP_EV_NETDEV_GONE ||
	    a.state > QMP_STATE_INTERNAL_ERROR)
		abort();
	if ((a.kind != QMP_EVENT && (a.event || a.flag)) || (a.kind == QMP_EVENT && a.id) ||
	    (a.kind != QMP_RETURN && a.state))
		abort();
	struct buf v = { 0 };
	if (vis_put(&v, span_of(a.text, (size_t)(end - a.text)), VIS_KEEP_BACKSLASH) < 0)
		abort();
	if (v.len != (size_t)(end - a.text) || (v.len && memcmp(v.p, a.text, v.len) != 0))
		abort(); /* something in it could steer a terminal */
	buf_fini(&v);
	if (size >= QMP_LINE_MAX - 2)
		return 0;
	uint8_t *again = malloc(size + 2);
	if (!again)
		return 0;
	again[0] = ' ';
	memcpy(again + 1, data, size);
	again[size + 1] = '\t';
	if (qmp_parse(&b, span_of(again, size + 2)) < 0 || memcmp(&a, &b, sizeof(a)) != 0)
		abort();
	free(again);
	return 0;
}
