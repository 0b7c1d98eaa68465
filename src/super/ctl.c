/* SPDX-License-Identifier: Apache-2.0 */
#include "super/ctl.h"

#include <errno.h>

#include "wire/frame.h"
#include "wire/msg.h"

static bool channel_ok(uint64_t ch)
{
	return ch > 0 && ch < FRAME_CHANNELS_MAX;
}

int ctl_parse(struct ctl *out, struct span in)
{
	struct rd r = rd_of(in.p, in.len);

	if (in.len > CTL_BYTES_MAX)
		return -EPROTO;
	out->type = (uint16_t)rd_le(&r, 2);
	bool ok = true;
	switch (out->type) {
	case CTL_ARGS:
		out->args.is_env = (uint8_t)rd_le(&r, 1);
		out->args.n = (uint32_t)rd_le(&r, 4);
		ok = out->args.is_env <= 1 && out->args.n <= CTL_WORDS_MAX;
		for (uint32_t i = 0; ok && !r.bad && i < out->args.n; i++) {
			out->args.words[i] = rd_blob(&r, 4, CTL_STRING_MAX);
			/* a NUL would cut the word in the guest */
			ok = r.bad || !memchr(out->args.words[i].len ? out->args.words[i].p : in.p,
			                      0, out->args.words[i].len);
		}
		break;
	case CTL_EXEC:
		out->exec.channel = (uint16_t)rd_le(&r, 2);
		out->exec.rows = (uint16_t)rd_le(&r, 2);
		out->exec.cols = (uint16_t)rd_le(&r, 2);
		out->exec.flags = (uint32_t)rd_le(&r, 4);
		out->exec.cwd = rd_blob(&r, 4, CTL_STRING_MAX);
		ok = channel_ok(out->exec.channel) &&
		     out->exec.flags <= (CTL_EXEC_PTY | CTL_EXEC_ROOT | CTL_EXEC_LOGIN);
		break;
	case CTL_RESIZE:
		out->resize.channel = (uint16_t)rd_le(&r, 2);
		out->resize.rows = (uint16_t)rd_le(&r, 2);
		out->resize.cols = (uint16_t)rd_le(&r, 2);
		ok = channel_ok(out->resize.channel);
		break;
	case CTL_SIGNAL:
		out->signal.channel = (uint16_t)rd_le(&r, 2);
		out->signal.signo = (uint8_t)rd_le(&r, 1);
		ok = channel_ok(out->signal.channel) && out->signal.signo >= 1 &&
		     out->signal.signo <= 64;
		break;
	case CTL_FINISH:
		out->finish.exit_status = (int32_t)rd_le(&r, 4);
		ok = out->finish.exit_status >= -1 && out->finish.exit_status <= 255;
		break;
	case CTL_FILE:
		out->file.path = rd_blob(&r, 4, CTL_STRING_MAX);
		out->file.mode = (uint32_t)rd_le(&r, 4);
		out->file.uid = (uint32_t)rd_le(&r, 4);
		out->file.gid = (uint32_t)rd_le(&r, 4);
		out->file.flags = (uint32_t)rd_le(&r, 4);
		out->file.bytes = rd_blob(&r, 4, MSG_FILE_CHUNK_MAX);
		break; /* the rest of its rules are msg_put()'s */
	case CTL_PHASE:
		out->phase.phase = (uint8_t)rd_le(&r, 1);
		out->phase.at_ns = rd_le(&r, 8);
		out->phase.extra = rd_le(&r, 8);
		out->phase.extra2 = rd_le(&r, 8);
		ok = out->phase.phase > 0 && out->phase.phase < CTL_PHASES;
		break;
	case CTL_UP:
		break;
	case CTL_STARTED:
		out->started.channel = (uint16_t)rd_le(&r, 2);
		out->started.code = (int32_t)rd_le(&r, 4);
		out->started.text = rd_blob(&r, 4, CTL_TEXT_MAX);
		ok = channel_ok(out->started.channel) && out->started.code <= 0;
		break;
	case CTL_EXITED:
		out->exited.channel = (uint16_t)rd_le(&r, 2);
		out->exited.by_signal = (uint8_t)rd_le(&r, 1);
		out->exited.code = (uint8_t)rd_le(&r, 1);
		out->exited.oom = (uint8_t)rd_le(&r, 1);
		ok = channel_ok(out->exited.channel) && out->exited.by_signal <= 1 &&
		     out->exited.oom <= 1 && (!out->exited.by_signal || out->exited.code < 128);
		break;
	case CTL_NOTE:
		out->note.level = (uint8_t)rd_le(&r, 1);
		out->note.text = rd_blob(&r, 4, CTL_TEXT_MAX);
		ok = out->note.level <= 3;
		break;
	case CTL_STAGED:
		out->staged.id = rd_blob(&r, 4, CTL_ID_MAX);
		out->staged.records = (uint32_t)rd_le(&r, 4);
		out->staged.bytes = rd_le(&r, 8);
		break;
	case CTL_FAILED:
		out->failed.code = (int32_t)rd_le(&r, 4);
		out->failed.text = rd_blob(&r, 4, CTL_TEXT_MAX);
		out->failed.hint = rd_blob(&r, 4, CTL_TEXT_MAX);
		ok = out->failed.code < 0;
		break;
	case CTL_FILED:
		out->filed.code = (int32_t)rd_le(&r, 4);
		out->filed.text = rd_blob(&r, 4, CTL_TEXT_MAX);
		ok = out->filed.code <= 0;
		break;
	default:
		ok = false;
	}
	return ok && !r.bad && r.left == 0 ? 0 : -EPROTO;
}

size_t ctl_put(uint8_t *dst, size_t cap, const struct ctl *c)
{
	struct wr w = wr_of(dst, MIN(cap, (size_t)CTL_BYTES_MAX));

	wr_le(&w, c->type, 2);
	switch (c->type) {
	case CTL_ARGS:
		wr_le(&w, c->args.is_env, 1);
		wr_le(&w, c->args.n, 4);
		if (c->args.n > CTL_WORDS_MAX)
			return 0;
		for (uint32_t i = 0; i < c->args.n; i++)
			wr_blob(&w, c->args.words[i], 4);
		break;
	case CTL_EXEC:
		wr_le(&w, c->exec.channel, 2);
		wr_le(&w, c->exec.rows, 2);
		wr_le(&w, c->exec.cols, 2);
		wr_le(&w, c->exec.flags, 4);
		wr_blob(&w, c->exec.cwd, 4);
		break;
	case CTL_RESIZE:
		wr_le(&w, c->resize.channel, 2);
		wr_le(&w, c->resize.rows, 2);
		wr_le(&w, c->resize.cols, 2);
		break;
	case CTL_SIGNAL:
		wr_le(&w, c->signal.channel, 2);
		wr_le(&w, c->signal.signo, 1);
		break;
	case CTL_FINISH:
		wr_le(&w, (uint32_t)c->finish.exit_status, 4);
		break;
	case CTL_FILE:
		wr_blob(&w, c->file.path, 4);
		wr_le(&w, c->file.mode, 4);
		wr_le(&w, c->file.uid, 4);
		wr_le(&w, c->file.gid, 4);
		wr_le(&w, c->file.flags, 4);
		if (c->file.bytes.len > MSG_FILE_CHUNK_MAX)
			return 0;
		wr_blob(&w, c->file.bytes, 4);
		break;
	case CTL_PHASE:
		wr_le(&w, c->phase.phase, 1);
		wr_le(&w, c->phase.at_ns, 8);
		wr_le(&w, c->phase.extra, 8);
		wr_le(&w, c->phase.extra2, 8);
		break;
	case CTL_UP:
		break;
	case CTL_STARTED:
		wr_le(&w, c->started.channel, 2);
		wr_le(&w, (uint32_t)c->started.code, 4);
		wr_blob(&w, c->started.text, 4);
		break;
	case CTL_EXITED:
		wr_le(&w, c->exited.channel, 2);
		wr_le(&w, c->exited.by_signal, 1);
		wr_le(&w, c->exited.code, 1);
		wr_le(&w, c->exited.oom, 1);
		break;
	case CTL_NOTE:
		wr_le(&w, c->note.level, 1);
		wr_blob(&w, c->note.text, 4);
		break;
	case CTL_STAGED:
		wr_blob(&w, c->staged.id, 4);
		wr_le(&w, c->staged.records, 4);
		wr_le(&w, c->staged.bytes, 8);
		break;
	case CTL_FAILED:
		wr_le(&w, (uint32_t)c->failed.code, 4);
		wr_blob(&w, c->failed.text, 4);
		wr_blob(&w, c->failed.hint, 4);
		break;
	case CTL_FILED:
		wr_le(&w, (uint32_t)c->filed.code, 4);
		wr_blob(&w, c->filed.text, 4);
		break;
	default:
		return 0;
	}
	return w.bad ? 0 : (size_t)(w.p - dst);
}
