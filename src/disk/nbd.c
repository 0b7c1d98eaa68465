/* SPDX-License-Identifier: Apache-2.0 */
#include "disk/nbd.h"

#include <errno.h>

#define MAGIC_INIT UINT64_C(0x4e42444d41474943)   /* "NBDMAGIC" */
#define MAGIC_OPTION UINT64_C(0x49484156454f5054) /* "IHAVEOPT" */
#define MAGIC_OPTION_REPLY UINT64_C(0x3e889045565a9)
#define MAGIC_REQUEST 0x25609513u
#define MAGIC_REPLY 0x67446698u

enum { /* both directions of the handshake */
       HS_FIXED_NEWSTYLE = 1,
       HS_NO_ZEROES = 2,
};

enum { TF_HAS_FLAGS = 1, TF_READ_ONLY = 2, TF_SEND_FLUSH = 4 };

enum {
	OPT_EXPORT_NAME = 1,
	OPT_ABORT = 2,
	OPT_LIST = 3,
	OPT_INFO = 6,
	OPT_GO = 7,
};

enum { REP_ACK = 1, REP_SERVER = 2, REP_INFO = 3 };
#define REP_ERR_UNSUP 0x80000001u
#define REP_ERR_INVALID 0x80000003u
#define REP_ERR_UNKNOWN 0x80000006u

enum { INFO_EXPORT = 0, INFO_BLOCK_SIZE = 3 };

enum {
	CMD_READ = 0,
	CMD_WRITE = 1,
	CMD_DISC = 2,
	CMD_FLUSH = 3,
	CMD_TRIM = 4,
	CMD_WRITE_ZEROES = 6,
};

enum { OPTION_HEADER = 16, REQUEST_BYTES = 28, EXPORT_ZEROES = 124 };

static uint64_t rd_be(struct rd *r, size_t n)
{
	struct span s = rd_take(r, n);
	uint64_t v = 0;

	for (size_t i = 0; i < s.len; i++)
		v = v << 8 | s.p[i];
	return v;
}

static void wr_be(struct wr *w, uint64_t v, size_t n)
{
	uint8_t b[8];

	ASSERT(n <= sizeof(b));
	for (size_t i = n; i-- > 0;) {
		b[i] = (uint8_t)v;
		v >>= 8;
	}
	wr_put(w, b, n);
}

void nbd_init(struct nbd *s, uint64_t size, struct wr *reply)
{
	ASSERT(size % NBD_ALIGN == 0);
	*s = (struct nbd){ .state = NBD_FLAGS, .size = size };
	wr_be(reply, MAGIC_INIT, 8);
	wr_be(reply, MAGIC_OPTION, 8);
	wr_be(reply, HS_FIXED_NEWSTYLE | HS_NO_ZEROES, 2);
}

static void put_option_reply(struct wr *w, uint32_t option, uint32_t type, uint32_t len)
{
	wr_be(w, MAGIC_OPTION_REPLY, 8);
	wr_be(w, option, 4);
	wr_be(w, type, 4);
	wr_be(w, len, 4);
}

static void put_export(struct wr *w, const struct nbd *s)
{
	wr_be(w, s->size, 8);
	wr_be(w, TF_HAS_FLAGS | TF_READ_ONLY | TF_SEND_FLUSH, 2);
}

/* INFO and GO: name, and what the client would like to know; it gets all there is. */
static bool take_info(struct nbd *s, uint32_t option, struct span data, struct wr *w)
{
	struct rd r = rd_of(data.p, data.len);
	uint64_t name_len = rd_be(&r, 4);

	if (name_len > r.left)
		r.bad = true;
	(void)rd_take(&r, (size_t)name_len);
	uint64_t wishes = rd_be(&r, 2);
	if (r.bad || r.left != 2 * wishes) {
		put_option_reply(w, option, REP_ERR_INVALID, 0);
		return false;
	}
	if (name_len != 0) {
		put_option_reply(w, option, REP_ERR_UNKNOWN, 0);
		return false;
	}
	put_option_reply(w, option, REP_INFO, 12);
	wr_be(w, INFO_EXPORT, 2);
	put_export(w, s);
	put_option_reply(w, option, REP_INFO, 14);
	wr_be(w, INFO_BLOCK_SIZE, 2);
	wr_be(w, NBD_ALIGN, 4);
	wr_be(w, NBD_PREFERRED, 4);
	wr_be(w, NBD_READ_MAX, 4);
	put_option_reply(w, option, REP_ACK, 0);
	return true;
}

static int take_option(struct nbd *s, struct rd *r, struct wr *w)
{
	uint64_t magic = rd_be(r, 8);
	uint32_t option = (uint32_t)rd_be(r, 4), len = (uint32_t)rd_be(r, 4);

	if (magic != MAGIC_OPTION || len > NBD_OPTION_MAX || s->options == NBD_OPTIONS_MAX)
		return -EPROTO;
	if (len > r->left)
		return -EAGAIN;
	struct span data = rd_take(r, len);
	s->options++;
	switch (option) {
	case OPT_EXPORT_NAME: /* has no reply for an error */
		if (len != 0)
			return -EPROTO;
		put_export(w, s);
		for (int i = 0; i < EXPORT_ZEROES && !s->no_zeroes; i++)
			wr_be(w, 0, 1);
		s->state = NBD_TRANSMISSION;
		return NBD_NONE;
	case OPT_ABORT:
		put_option_reply(w, option, REP_ACK, 0);
		s->state = NBD_CLOSED;
		return NBD_END;
	case OPT_LIST:
		if (len != 0) {
			put_option_reply(w, option, REP_ERR_INVALID, 0);
			return NBD_NONE;
		}
		put_option_reply(w, option, REP_SERVER, 4);
		wr_be(w, 0, 4); /* bytes of the name */
		put_option_reply(w, option, REP_ACK, 0);
		return NBD_NONE;
	case OPT_INFO:
		(void)take_info(s, option, data, w);
		return NBD_NONE;
	case OPT_GO:
		if (take_info(s, option, data, w))
			s->state = NBD_TRANSMISSION;
		return NBD_NONE;
	default: /* TLS, structured replies, metadata contexts: the client goes on without */
		put_option_reply(w, option, REP_ERR_UNSUP, 0);
		return NBD_NONE;
	}
}

static int take_request(struct nbd *s, struct rd *r, struct wr *w, struct nbd_request *out)
{
	uint64_t magic = rd_be(r, 4), flags = rd_be(r, 2), command = rd_be(r, 2);
	struct nbd_request q = { .cookie = rd_be(r, 8), .offset = rd_be(r, 8) };
	q.length = (uint32_t)rd_be(r, 4);

	if (magic != MAGIC_REQUEST)
		return -EPROTO;
	switch (command) {
	case CMD_READ:
		if (flags != 0 || q.length == 0 || q.length > NBD_READ_MAX ||
		    q.length % NBD_ALIGN || q.offset % NBD_ALIGN || q.length > s->size ||
		    q.offset > s->size - q.length)
			break;
		*out = q;
		return NBD_REQUEST;
	case CMD_WRITE: /* its data would be taken for requests; nobody may write here anyway */
		return -EPROTO;
	case CMD_DISC:
		s->state = NBD_CLOSED;
		return NBD_END;
	case CMD_FLUSH:
		nbd_put_reply(w, q.cookie, flags || q.offset || q.length ? EINVAL : 0);
		return NBD_NONE;
	case CMD_TRIM:
	case CMD_WRITE_ZEROES:
		nbd_put_reply(w, q.cookie, EPERM);
		return NBD_NONE;
	default:
		break;
	}
	nbd_put_reply(w, q.cookie, EINVAL);
	return NBD_NONE;
}

int nbd_take(struct nbd *s, const void *buf, size_t len, size_t *out_used, struct wr *reply,
             struct nbd_request *out)
{
	struct rd r = rd_of(buf, len);
	uint32_t flags;
	int ret;

	ASSERT(reply->left >= NBD_REPLY_MAX);
	switch (s->state) {
	case NBD_FLAGS:
		if (len < 4)
			return -EAGAIN;
		flags = (uint32_t)rd_be(&r, 4);
		if (!(flags & HS_FIXED_NEWSTYLE) || flags & ~(HS_FIXED_NEWSTYLE | HS_NO_ZEROES))
			return -EPROTO;
		s->no_zeroes = flags & HS_NO_ZEROES;
		s->state = NBD_OPTIONS;
		ret = NBD_NONE;
		break;
	case NBD_OPTIONS:
		if (len < OPTION_HEADER)
			return -EAGAIN;
		ret = take_option(s, &r, reply);
		break;
	case NBD_TRANSMISSION:
		if (len < REQUEST_BYTES)
			return -EAGAIN;
		ret = take_request(s, &r, reply, out);
		break;
	case NBD_CLOSED:
	default:
		return -EPROTO;
	}
	if (ret >= 0)
		*out_used = len - r.left;
	return ret;
}

/* The protocol knows few numbers; they are those of Linux. */
void nbd_put_reply(struct wr *w, uint64_t cookie, int error)
{
	if (error && error != EPERM && error != ENOMEM && error != EINVAL)
		error = EIO;
	wr_be(w, MAGIC_REPLY, 4);
	wr_be(w, (uint64_t)error, 4);
	wr_be(w, cookie, 8);
}
