/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser follows the state diagram that terminals share (the DEC parser as
 * described at vt100.net/emu/dec_ansi_parser), with UTF-8 decoded first, as
 * they do. Where terminals differ in what they take for a sequence it does not
 * matter: they only ever see what the put functions below write, and those
 * write one canonical form.
 */
#include "term/filter.h"

#include "base/vis.h"

enum { C_BEL = 7, C_BS = 8, C_HT, C_LF, C_VT, C_FF, C_CR, C_SO, C_SI };
enum { C_CAN = 0x18, C_SUB = 0x1a, C_ESC = 0x1b, C_DEL = 0x7f };

enum state {
	GROUND,
	UTF8,       /* inside a multi-byte character */
	ESCAPE,     /* behind ESC and its intermediates */
	CSI,        /* behind CSI, parameters */
	CSI_INTER,  /* behind a CSI's intermediate byte */
	OSC,        /* collecting, BEL and ST end it */
	OSC_ESC,    /* ESC inside of it */
	STRING,     /* DCS, APC, PM, SOS, title of screen: nothing kept, ST ends it */
	STRING_ESC, /* ESC inside of it */
};

enum kind { K_C0, K_ESC, K_CSI, K_OSC, K_STRING };

/* --- output --- */

static void put_str(struct wr *out, const char *s)
{
	wr_put(out, s, strlen(s));
}

static void put_byte(struct wr *out, uint8_t c)
{
	wr_put(out, &c, 1);
}

static void put_number(struct wr *out, unsigned v)
{
	uint8_t d[10];
	size_t n = sizeof(d);

	do {
		d[--n] = (uint8_t)('0' + v % 10);
		v /= 10;
	} while (v && n);
	wr_put(out, d + n, sizeof(d) - n);
}

/* CSI with an optional prefix, one number, an optional intermediate, and its final byte */
static void put_csi(struct wr *out, uint8_t prefix, unsigned v, uint8_t inter, uint8_t final)
{
	put_str(out, "\033[");
	if (prefix)
		put_byte(out, prefix);
	put_number(out, v);
	if (inter)
		put_byte(out, inter);
	put_byte(out, final);
}

static void put_mode(struct wr *out, unsigned number, bool on)
{
	put_csi(out, '?', number, 0, on ? 'h' : 'l');
}

static void put_link_end(struct wr *out)
{
	put_str(out, "\033]8;;\033\\");
}

/* --- DEC private modes that pass --- */

const struct term_filter_mode term_filter_modes[] = {
	{ 1, .name = "application cursor keys (DECCKM)" },
	{ 5, .name = "reverse video (DECSCNM), used by the flash of terminfo" },
	{ 6, .name = "origin mode (DECOM)" },
	{ 7, .rest = true, .name = "autowrap (DECAWM)" },
	{ 9, .answers = true, .name = "mouse, X10" },
	{ 12, .name = "blinking cursor" },
	{ 25, .rest = true, .name = "cursor shown (DECTCEM)" },
	{ 47, .alt = true, .name = "alternate screen" },
	{ 66, .name = "application keypad (DECNKM)" },
	{ 69, .name = "left and right margins (DECLRMM)" },
	{ 1000, .answers = true, .name = "mouse, clicks" },
	{ 1002, .answers = true, .name = "mouse, drags" },
	{ 1003, .answers = true, .name = "mouse, all motion" },
	{ 1004, .answers = true, .name = "focus reports" },
	{ 1005, .name = "mouse, UTF-8 coordinates" },
	{ 1006, .name = "mouse, SGR coordinates" },
	{ 1015, .name = "mouse, urxvt coordinates" },
	{ 1016, .name = "mouse, SGR pixels" },
	{ 1047, .alt = true, .name = "alternate screen, cleared" },
	{ 1048, .momentary = true, .name = "save and restore the cursor" },
	{ 1049, .alt = true, .name = "alternate screen, cleared, cursor saved" },
	{ 2004, .name = "bracketed paste" },
	{ 2026, .name = "synchronized output" },
	{ 2031, .answers = true, .name = "reports of a changed colour scheme" },
	{ 2048, .answers = true, .name = "reports of a changed window size" },
};
const size_t term_filter_n_modes = ARRAY_LEN(term_filter_modes);
_Static_assert(ARRAY_LEN(term_filter_modes) <= 64, "struct term_filter.modes has 64 bits");

static bool on_alternate(const struct term_filter *f)
{
	for (size_t i = 0; i < term_filter_n_modes; i++) {
		if (term_filter_modes[i].alt && f->modes >> i & 1)
			return true;
	}
	return false;
}

/* The kitty keyboard stack of one screen back to what the user had. */
static void put_keys_end(const struct term_filter *f, int screen, struct wr *out)
{
	if (f->keys_base[screen])
		put_csi(out, '<', MIN(f->keys[screen], (uint8_t)TERM_FILTER_KEYS_MAX) + 1u, 0, 'u');
}

static void put_modes(const struct term_filter *f, bool alt, bool to_rest, struct wr *out)
{
	for (size_t i = 0; i < term_filter_n_modes; i++) {
		const struct term_filter_mode *m = &term_filter_modes[i];

		if (m->alt == alt && f->modes >> i & 1)
			put_mode(out, m->number, m->rest == to_rest);
	}
}

static bool mode_is_set(const struct term_filter *f, unsigned number)
{
	for (size_t i = 0; i < term_filter_n_modes; i++) {
		if (term_filter_modes[i].number == number)
			return f->modes >> i & 1;
	}
	return false;
}

void term_filter_reset_seq(const struct term_filter *f, struct wr *out)
{
	bool origin = mode_is_set(f, 6);

	/* a write may have been cut in the middle of a sequence: CAN ends that */
	put_byte(out, C_CAN);
	if (f->link)
		put_link_end(out);
	/* each screen has a stack of its own, so that of the alternate goes while it is shown */
	if (on_alternate(f)) {
		put_keys_end(f, 1, out);
		put_modes(f, true, true, out);
	}
	put_keys_end(f, 0, out);
	if (f->modify_keys)
		put_str(out, "\033[>4m");
	put_modes(f, false, true, out);
	/* both DECSTBM and leaving origin mode move the cursor to the top */
	if (origin)
		put_str(out, "\033[r\033[9999H");
	else if (f->region)
		put_str(out, "\0337\033[r\0338");
	if (f->insert)
		put_str(out, "\033[4l");
	if (f->keypad)
		put_str(out, "\033>");
	if (f->cursor_style)
		put_str(out, "\033[0 q");
	if (f->charset)
		put_str(out, "\033)B");
	if (f->shifted)
		put_byte(out, C_SI);
	put_str(out, "\033(B\033[m\033[?25h");
}

static void put_keys_again(const struct term_filter *f, int screen, struct wr *out)
{
	if (!f->keys_base[screen])
		return;
	for (size_t i = 0; i <= MIN(f->keys[screen], (uint8_t)TERM_FILTER_KEYS_MAX); i++)
		put_csi(out, '>', f->key_flags[screen][i], 0, 'u');
}

static void put_modify_level(unsigned level, struct wr *out)
{
	put_str(out, "\033[>4;");
	put_number(out, level);
	put_byte(out, 'm');
}

void term_filter_resume_seq(const struct term_filter *f, struct wr *out)
{
	put_keys_again(f, 0, out);
	if (on_alternate(f)) {
		put_modes(f, true, false, out);
		put_keys_again(f, 1, out);
	}
	if (f->modify_keys)
		put_modify_level(f->modify_keys - 1u, out);
	put_modes(f, false, false, out);
	if (f->insert)
		put_str(out, "\033[4h");
	if (f->keypad)
		put_str(out, "\033=");
}

bool term_filter_may_answer(const struct term_filter *f)
{
	for (size_t i = 0; i < term_filter_n_modes; i++) {
		if (term_filter_modes[i].answers && f->modes >> i & 1)
			return true;
	}
	return f->asked;
}

/* --- what is done with a sequence that is in the table --- */

static void put_c0(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	if (r->final == C_SO)
		f->shifted = true;
	else if (r->final == C_SI)
		f->shifted = false;
	put_byte(out, r->final);
}

static void put_esc(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	if (r->final == '=' || r->final == '>')
		f->keypad = r->final == '=';
	put_byte(out, C_ESC);
	if (r->inter)
		put_byte(out, r->inter);
	put_byte(out, r->final);
}

static void put_charset(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	if (r->inter == ')')
		f->charset = r->final != 'B';
	put_esc(f, r, out);
}

/*
 * RIS also wipes what is the user's: saved lines, palette, fonts of a console.
 * The guest gets what it means: everything it changed at rest, an empty screen.
 */
static void put_soft_reset(struct term_filter *f, const struct term_filter_rule *r UNUSED,
                           struct wr *out)
{
	term_filter_reset_seq(f, out);
	put_str(out, "\033[H\033[2J");
	bool asked = f->asked;
	*f = (struct term_filter){ .asked = asked };
}

static bool numbers_ok(const struct term_filter *f, const struct term_filter_rule *r)
{
	if (f->n_numbers > r->count || f->colon)
		return false;
	for (size_t i = 0; i < f->n_numbers && r->n_only; i++) {
		bool found = false;

		for (size_t k = 0; k < r->n_only; k++)
			found |= f->numbers[i] == r->only[k];
		if (!found)
			return false;
	}
	return true;
}

/* The sequence again from the row and the numbers; an omitted number stays omitted. */
static void put_again(const struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	put_str(out, "\033[");
	if (r->prefix)
		put_byte(out, r->prefix);
	for (size_t i = 0; i < f->n_numbers; i++) {
		if (i)
			put_byte(out, ';');
		if (f->given >> i & 1)
			put_number(out, f->numbers[i]);
	}
	if (r->inter)
		put_byte(out, r->inter);
	put_byte(out, r->final);
}

static void put_plain(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	if (numbers_ok(f, r))
		put_again(f, r, out);
}

static void put_query(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	if (!numbers_ok(f, r))
		return;
	f->asked = true;
	put_again(f, r, out);
}

/* as put_query(), where no number would mean something else */
static void put_query_of(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	if (f->n_numbers == 1 && f->given & 1)
		put_query(f, r, out);
}

static void put_region(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	if (!numbers_ok(f, r))
		return;
	f->region = f->numbers[0] > 1 || f->numbers[1] > 0;
	put_again(f, r, out);
}

static void put_margins(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	/* without mode 69 this is "save the cursor", and two numbers are ignored */
	if (numbers_ok(f, r))
		put_again(f, r, out);
}

static void put_repeat(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	/* behind anything else its meaning is open, and libvterm 0.1 never comes back */
	if (!f->after_ascii || !numbers_ok(f, r))
		return;
	f->numbers[0] = MIN(f->numbers[0], (uint16_t)TERM_FILTER_REPEAT_MAX);
	put_again(f, r, out);
}

static void put_fill(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	if (f->n_numbers && f->numbers[0] >= 0x20 && f->numbers[0] <= 0x7e)
		put_plain(f, r, out);
}

static void put_cursor_style(struct term_filter *f, const struct term_filter_rule *r,
                             struct wr *out)
{
	if (f->numbers[0] > 6 || !numbers_ok(f, r))
		return;
	f->cursor_style = f->numbers[0] != 0;
	put_again(f, r, out);
}

static void put_ansi_mode(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	for (size_t i = 0; i < f->n_numbers; i++) {
		if (f->numbers[i] != 4 || f->colon)
			continue;
		f->insert = r->final == 'h';
		put_csi(out, 0, 4, 0, r->final);
	}
}

/* one sequence for each mode that passes: the order is kept, and no list can hide one */
static void put_private_mode(struct term_filter *f, const struct term_filter_rule *r,
                             struct wr *out)
{
	bool on = r->final == 'h';

	if (f->colon)
		return;
	for (size_t i = 0; i < f->n_numbers; i++) {
		for (size_t k = 0; k < term_filter_n_modes; k++) {
			const struct term_filter_mode *m = &term_filter_modes[k];

			if (m->number != f->numbers[i])
				continue;
			if (m->alt && !on && on_alternate(f)) {
				put_keys_end(f, 1, out);
				f->keys[1] = 0;
				f->keys_base[1] = false;
				for (size_t a = 0; a < term_filter_n_modes; a++) {
					if (term_filter_modes[a].alt)
						f->modes &= ~(1ull << a);
				}
			}
			put_mode(out, m->number, on);
			f->modes &= ~(1ull << k);
			if (!m->momentary && on != m->rest)
				f->modes |= 1ull << k;
			break;
		}
	}
}

static void put_modify_keys(struct term_filter *f, const struct term_filter_rule *r UNUSED,
                            struct wr *out)
{
	bool level = f->n_numbers == 2 && f->given >> 1 & 1;

	if (f->n_numbers < 1 || f->n_numbers > 2 || f->numbers[0] != 4 || f->colon ||
	    (level && f->numbers[1] > 3))
		return;
	if (level)
		put_modify_level(f->numbers[1], out);
	else
		put_str(out, "\033[>4m");
	f->modify_keys = level ? (uint8_t)(f->numbers[1] + 1) : 0;
}

/*
 * The kitty keyboard stack is shared with whatever the user's shell pushed. So
 * the first use lays an entry of our own at the bottom, all that the guest sets
 * or pops stays above it, and the end pops exactly that many.
 */
static void keys_base(struct term_filter *f, int screen, struct wr *out)
{
	if (f->keys_base[screen])
		return;
	f->keys_base[screen] = true;
	f->keys[screen] = 0;
	f->key_flags[screen][0] = 0;
	put_csi(out, '>', 0, 0, 'u');
}

static void put_keys_push(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	int s = on_alternate(f);

	if (!numbers_ok(f, r) || f->numbers[0] > 31)
		return;
	keys_base(f, s, out);
	/* terminals forget the oldest entry of a full stack, which is the user's */
	if (f->keys[s] == TERM_FILTER_KEYS_MAX)
		return;
	f->key_flags[s][++f->keys[s]] = (uint8_t)f->numbers[0];
	put_csi(out, '>', f->numbers[0], 0, 'u');
}

static void put_keys_pop(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	int s = on_alternate(f);
	unsigned n = f->n_numbers && f->given & 1 ? f->numbers[0] : 1;

	if (!numbers_ok(f, r) || !f->keys_base[s] || n == 0)
		return;
	if (f->keys[s])
		put_csi(out, '<', MIN(n, f->keys[s]), 0, 'u');
	if (n > f->keys[s]) { /* an emptied stack means no flags */
		put_str(out, "\033[=0;1u");
		f->key_flags[s][0] = 0;
	}
	f->keys[s] -= (uint8_t)MIN(n, f->keys[s]);
}

static void put_keys_set(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	int s = on_alternate(f);
	unsigned how = f->n_numbers > 1 && f->given & 2 ? f->numbers[1] : 1;
	unsigned flags = f->numbers[0];

	if (!numbers_ok(f, r) || flags > 31 || how < 1 || how > 3)
		return;
	keys_base(f, s, out);
	uint8_t *top = &f->key_flags[s][f->keys[s]];
	*top = (uint8_t)(how == 1 ? flags : how == 2 ? *top | flags : *top & ~flags);
	put_str(out, "\033[=");
	put_number(out, flags);
	put_byte(out, ';');
	put_number(out, how);
	put_byte(out, 'u');
}

/* --- SGR --- */

/* Plain attributes; 38, 48, 58 and 4 with a colon are read by sgr_colour() and sgr_group(). */
static bool sgr_plain(unsigned v)
{
	return v <= 9 || (v >= 21 && v <= 29 && v != 26) || (v >= 30 && v <= 37) || v == 39 ||
	       (v >= 40 && v <= 47) || v == 49 || (v >= 51 && v <= 55) || v == 59 ||
	       (v >= 73 && v <= 75) || (v >= 90 && v <= 97) || (v >= 100 && v <= 107);
}

static bool all_bytes(const uint16_t *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i] > 255)
			return false;
	}
	return true;
}

/* "38:5:n", "38:2:r:g:b", "38:2:[space]:r:g:b", "4:n"; @n numbers at @v. */
static bool sgr_group_ok(const struct term_filter *f, size_t at, size_t n)
{
	const uint16_t *v = f->numbers + at;

	if (n == 1)
		return sgr_plain(v[0]);
	if (v[0] == 4)
		return n == 2 && v[1] <= 5;
	if (v[0] != 38 && v[0] != 48 && v[0] != 58)
		return false;
	if (v[1] == 5)
		return n == 3 && v[2] <= 255;
	return v[1] == 2 && ((n == 5 && all_bytes(v + 2, 3)) || (n == 6 && all_bytes(v + 2, 4)));
}

/*
 * "38;5;n", "38;2;r;g;b" of separate numbers. Return: how many numbers it takes; all that
 * are left when it is no such form, since nobody can say where the next attribute begins.
 */
static size_t sgr_colour(const struct term_filter *f, size_t at, bool *out_ok)
{
	size_t left = f->n_numbers - at;
	const uint16_t *v = f->numbers + at;
	size_t need = left < 2 ? 0 : v[1] == 5 ? 3 : v[1] == 2 ? 5 : 0;
	bool form = need && need <= left;

	for (size_t i = at + 1; form && i <= at + need && i < f->n_numbers; i++)
		form = !(f->colon >> i & 1);
	*out_ok = form && all_bytes(v + 2, need - 2);
	return form ? need : left;
}

static void put_sgr(struct term_filter *f, const struct term_filter_rule *r UNUSED, struct wr *out)
{
	bool first = true;

	if (f->n_numbers == 0) {
		put_str(out, "\033[m");
		return;
	}
	for (size_t at = 0, n; at < f->n_numbers; at += n) {
		bool ok;

		for (n = 1; at + n < f->n_numbers && f->colon >> (at + n) & 1;)
			n++;
		unsigned v = f->numbers[at];
		if (n == 1 && (v == 38 || v == 48 || v == 58))
			n = sgr_colour(f, at, &ok);
		else
			ok = sgr_group_ok(f, at, n);
		if (!ok)
			continue;
		for (size_t i = at; i < at + n; i++) {
			if (first)
				put_str(out, "\033[");
			else
				put_byte(out, f->colon >> i & 1 ? ':' : ';');
			first = false;
			/* an omitted first number is 0; an omitted colour space stays omitted */
			if (f->given >> i & 1 || !(f->colon >> i & 1))
				put_number(out, f->numbers[i]);
		}
	}
	if (!first)
		put_byte(out, 'm');
}

/* --- OSC --- */

static struct span osc_payload(const struct term_filter *f)
{
	struct span s = span_of(f->string, f->string_len);

	while (s.len && s.p[0] != ';') {
		s.p++;
		s.len--;
	}
	if (s.len) {
		s.p++;
		s.len--;
	}
	return s;
}

static void put_osc_end(const struct term_filter *f, struct wr *out)
{
	/* the answer ends as the question did, and some programs look for just one of the two */
	put_str(out, f->state == OSC ? "\a" : "\033\\");
}

static void put_colour_query(struct term_filter *f, const struct term_filter_rule *r,
                             struct wr *out)
{
	if (!span_eq(osc_payload(f), span_str("?")))
		return;
	put_str(out, "\033]");
	put_number(out, r->osc);
	put_str(out, ";?");
	put_osc_end(f, out);
	f->asked = true;
}

static void put_palette_query(struct term_filter *f, const struct term_filter_rule *r UNUSED,
                              struct wr *out)
{
	struct span s = osc_payload(f);
	unsigned v = 0;
	size_t n = 0;

	for (; n < s.len && n < 3 && s.p[n] >= '0' && s.p[n] <= '9'; n++)
		v = v * 10 + (s.p[n] - '0');
	if (n == 0 || v > 255 || !span_eq(span_of(s.p + n, s.len - n), span_str(";?")))
		return;
	put_str(out, "\033]4;");
	put_number(out, v);
	put_str(out, ";?");
	put_osc_end(f, out);
	f->asked = true;
}

/* http or https, printable ASCII, a host, and no user@ that dresses up as one */
static bool url_ok(struct span u)
{
	static const char *const scheme[] = { "https://", "http://" };
	size_t host = 0;

	if (u.len > TERM_FILTER_URL_MAX)
		return false;
	for (size_t i = 0; i < u.len; i++) {
		if (u.p[i] <= 0x20 || u.p[i] >= 0x7f)
			return false;
	}
	for (size_t i = 0; i < ARRAY_LEN(scheme) && !host; i++) {
		size_t n = strlen(scheme[i]);
		size_t k = 0;

		while (k < n && k < u.len &&
		       (u.p[k] | (u.p[k] >= 'A' && u.p[k] <= 'Z' ? 0x20 : 0)) ==
		               (uint8_t)scheme[i][k])
			k++;
		if (k == n)
			host = n;
	}
	if (host == 0)
		return false;
	size_t end = host;
	while (end < u.len && !strchr("/?#\\", u.p[end])) {
		if (u.p[end] == '@')
			return false;
		end++;
	}
	return end > host;
}

/* the value of id= among "key=value" joined by ':', when it is short and plain */
static struct span link_id(struct span params)
{
	for (size_t at = 0, end; at < params.len; at = end + 1) {
		for (end = at; end < params.len && params.p[end] != ':';)
			end++;
		struct span one = span_of(params.p + at, end - at);
		if (one.len < 4 || memcmp(one.p, "id=", 3) != 0 || one.len - 3 > TERM_FILTER_ID_MAX)
			continue;
		bool ok = true;
		for (size_t i = 3; i < one.len; i++) {
			uint8_t c = one.p[i];

			ok &= (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
			      (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
		}
		if (ok)
			return span_of(one.p + 3, one.len - 3);
	}
	return (struct span){ 0 };
}

static void put_link(struct term_filter *f, const struct term_filter_rule *r UNUSED, struct wr *out)
{
	struct span s = osc_payload(f);
	size_t n = 0;

	while (n < s.len && s.p[n] != ';')
		n++;
	struct span url = n < s.len ? span_of(s.p + n + 1, s.len - n - 1) : (struct span){ 0 };
	/* what cannot be a link must also end the one before, or its text would join that */
	if (f->over || !url_ok(url)) {
		if (f->link)
			put_link_end(out);
		f->link = false;
		return;
	}
	struct span id = link_id(span_of(s.p, n));
	put_str(out, "\033]8;");
	if (id.len) {
		put_str(out, "id=");
		wr_put(out, id.p, id.len);
	}
	put_byte(out, ';');
	wr_put(out, url.p, url.len);
	put_str(out, "\033\\");
	f->link = true;
}

/* --- the table --- */

/* clang-format off */
#define C0(seq, name, verdict, byte, put, note) \
	{ seq, name, verdict, note, K_C0, 0, 0, byte, 0, put, 0, 0, { 0 } }
#define ESC(seq, name, verdict, inter, final, put, note) \
	{ seq, name, verdict, note, K_ESC, 0, inter, final, 0, put, 0, 0, { 0 } }
#define CSI(seq, name, verdict, prefix, inter, final, put, count, note) \
	{ seq, name, verdict, note, K_CSI, prefix, inter, final, 0, put, count, 0, { 0 } }
#define CSI_ONLY(seq, name, verdict, prefix, inter, final, put, count, note, n, ...) \
	{ seq, name, verdict, note, K_CSI, prefix, inter, final, 0, put, count, n, { __VA_ARGS__ } }
#define OSC(seq, name, verdict, number, put, note) \
	{ seq, name, verdict, note, K_OSC, 0, 0, 0, number, put, 0, 0, { 0 } }
#define STR(seq, name, byte, note) \
	{ seq, name, TERM_DROP, note, K_STRING, 0, 0, byte, 0, NULL, 0, 0, { 0 } }

const struct term_filter_rule term_filter_rules[] = {
	C0("NUL", "null", TERM_DROP, 0x00, NULL, "padding"),
	C0("ENQ", "answerback", TERM_DROP, 0x05, NULL, "the terminal answers with a string that the user configured"),
	C0("BEL", "bell", TERM_PASS, C_BEL, put_c0, ""),
	C0("BS", "backspace", TERM_PASS, C_BS, put_c0, ""),
	C0("HT", "tab", TERM_PASS, C_HT, put_c0, ""),
	C0("LF", "line feed", TERM_PASS, C_LF, put_c0, ""),
	C0("VT", "vertical tab", TERM_PASS, C_VT, put_c0, ""),
	C0("FF", "form feed", TERM_PASS, C_FF, put_c0, ""),
	C0("CR", "carriage return", TERM_PASS, C_CR, put_c0, ""),
	C0("SO", "LS1", TERM_PASS, C_SO, put_c0, "line drawing of older terminfo entries; undone at the end"),
	C0("SI", "LS0", TERM_PASS, C_SI, put_c0, ""),

	ESC("ESC 7", "DECSC", TERM_PASS, 0, '7', put_esc, ""),
	ESC("ESC 8", "DECRC", TERM_PASS, 0, '8', put_esc, ""),
	ESC("ESC D", "IND", TERM_PASS, 0, 'D', put_esc, ""),
	ESC("ESC E", "NEL", TERM_PASS, 0, 'E', put_esc, ""),
	ESC("ESC H", "HTS", TERM_PASS, 0, 'H', put_esc, ""),
	ESC("ESC M", "RI", TERM_PASS, 0, 'M', put_esc, ""),
	ESC("ESC =", "DECKPAM", TERM_PASS, 0, '=', put_esc, "undone at the end"),
	ESC("ESC >", "DECKPNM", TERM_PASS, 0, '>', put_esc, ""),
	ESC("ESC ( B", "SCS G0 ASCII", TERM_PASS, '(', 'B', put_charset, ""),
	ESC("ESC ( 0", "SCS G0 line drawing", TERM_PASS, '(', '0', put_charset, "undone at the end"),
	ESC("ESC ) B", "SCS G1 ASCII", TERM_PASS, ')', 'B', put_charset, ""),
	ESC("ESC ) 0", "SCS G1 line drawing", TERM_PASS, ')', '0', put_charset, "undone at the end"),
	ESC("ESC c", "RIS", TERM_CHANGE, 0, 'c', put_soft_reset, "becomes: what the guest changed at rest, screen erased; saved lines, palette and fonts are the user's"),
	ESC("ESC N", "SS2", TERM_DROP, 0, 'N', NULL, "no other sets than G0 and G1"),
	ESC("ESC O", "SS3", TERM_DROP, 0, 'O', NULL, "as above"),
	ESC("ESC n", "LS2", TERM_DROP, 0, 'n', NULL, "as above"),
	ESC("ESC o", "LS3", TERM_DROP, 0, 'o', NULL, "as above"),
	ESC("ESC Z", "DECID", TERM_DROP, 0, 'Z', NULL, "old form of DA1"),
	ESC("ESC l", "HP memory lock", TERM_DROP, 0, 'l', NULL, "locks lines of the screen"),
	ESC("ESC # 8", "DECALN", TERM_DROP, '#', '8', NULL, "test pattern"),
	ESC("ESC # 3", "DECDHL", TERM_DROP, '#', '3', NULL, "double height; 4, 5 and 6 likewise"),
	ESC("ESC % @", "leave UTF-8", TERM_DROP, '%', '@', NULL, "would make single bytes controls of the C1 set"),
	ESC("ESC % G", "enter UTF-8", TERM_DROP, '%', 'G', NULL, "it never left"),
	ESC("ESC SP F", "S7C1T", TERM_DROP, ' ', 'F', NULL, "form of answers"),
	ESC("ESC SP G", "S8C1T", TERM_DROP, ' ', 'G', NULL, "form of answers"),

	CSI("CSI Ps @", "ICH", TERM_PASS, 0, 0, '@', put_plain, 1, ""),
	CSI("CSI Ps A", "CUU", TERM_PASS, 0, 0, 'A', put_plain, 1, ""),
	CSI("CSI Ps B", "CUD", TERM_PASS, 0, 0, 'B', put_plain, 1, ""),
	CSI("CSI Ps C", "CUF", TERM_PASS, 0, 0, 'C', put_plain, 1, ""),
	CSI("CSI Ps D", "CUB", TERM_PASS, 0, 0, 'D', put_plain, 1, ""),
	CSI("CSI Ps E", "CNL", TERM_PASS, 0, 0, 'E', put_plain, 1, ""),
	CSI("CSI Ps F", "CPL", TERM_PASS, 0, 0, 'F', put_plain, 1, ""),
	CSI("CSI Ps G", "CHA", TERM_PASS, 0, 0, 'G', put_plain, 1, ""),
	CSI("CSI Ps ; Ps H", "CUP", TERM_PASS, 0, 0, 'H', put_plain, 2, ""),
	CSI("CSI Ps I", "CHT", TERM_PASS, 0, 0, 'I', put_plain, 1, ""),
	CSI_ONLY("CSI Ps J", "ED", TERM_CHANGE, 0, 0, 'J', put_plain, 1, "0, 1, 2; not 3: the saved lines above are the user's", 3, 0, 1, 2),
	CSI_ONLY("CSI Ps K", "EL", TERM_PASS, 0, 0, 'K', put_plain, 1, "0, 1, 2", 3, 0, 1, 2),
	CSI("CSI Ps L", "IL", TERM_PASS, 0, 0, 'L', put_plain, 1, ""),
	CSI("CSI Ps M", "DL", TERM_PASS, 0, 0, 'M', put_plain, 1, ""),
	CSI("CSI Ps P", "DCH", TERM_PASS, 0, 0, 'P', put_plain, 1, ""),
	CSI("CSI Ps S", "SU", TERM_PASS, 0, 0, 'S', put_plain, 1, ""),
	CSI("CSI Ps T", "SD", TERM_PASS, 0, 0, 'T', put_plain, 1, "one number; five start highlight tracking, which hangs a terminal"),
	CSI("CSI Ps X", "ECH", TERM_PASS, 0, 0, 'X', put_plain, 1, ""),
	CSI("CSI Ps Z", "CBT", TERM_PASS, 0, 0, 'Z', put_plain, 1, ""),
	CSI("CSI Ps `", "HPA", TERM_PASS, 0, 0, '`', put_plain, 1, ""),
	CSI("CSI Ps a", "HPR", TERM_PASS, 0, 0, 'a', put_plain, 1, ""),
	CSI("CSI Ps b", "REP", TERM_CHANGE, 0, 0, 'b', put_repeat, 1, "directly behind printable ASCII, at most 4096 times: a few bytes must not keep a terminal busy"),
	CSI_ONLY("CSI Ps c", "DA1", TERM_PASS, 0, 0, 'c', put_query, 1, "the answer is numbers", 1, 0),
	CSI_ONLY("CSI > Ps c", "DA2", TERM_PASS, '>', 0, 'c', put_query, 1, "the answer is numbers", 1, 0),
	CSI("CSI = Ps c", "DA3", TERM_DROP, '=', 0, 'c', NULL, 0, "answers with an id of the unit"),
	CSI("CSI Ps d", "VPA", TERM_PASS, 0, 0, 'd', put_plain, 1, ""),
	CSI("CSI Ps e", "VPR", TERM_PASS, 0, 0, 'e', put_plain, 1, ""),
	CSI("CSI Ps ; Ps f", "HVP", TERM_PASS, 0, 0, 'f', put_plain, 2, ""),
	CSI_ONLY("CSI Ps g", "TBC", TERM_PASS, 0, 0, 'g', put_plain, 1, "0, 3", 2, 0, 3),
	CSI("CSI Pm h", "SM", TERM_CHANGE, 0, 0, 'h', put_ansi_mode, 0, "4 (insert), undone at the end; not 2, which locks the keyboard, 12, 20"),
	CSI("CSI Pm l", "RM", TERM_CHANGE, 0, 0, 'l', put_ansi_mode, 0, "4"),
	CSI("CSI ? Pm h", "DECSET", TERM_CHANGE, '?', 0, 'h', put_private_mode, 0, "the modes of the second table, undone at the end"),
	CSI("CSI ? Pm l", "DECRST", TERM_CHANGE, '?', 0, 'l', put_private_mode, 0, "the modes of the second table"),
	CSI("CSI ? Pm s", "XTSAVE", TERM_DROP, '?', 0, 's', NULL, 0, "one slot, which may be in use"),
	CSI("CSI ? Pm r", "XTRESTORE", TERM_DROP, '?', 0, 'r', NULL, 0, "sets modes that the table does not see"),
	CSI("CSI Ps i", "MC", TERM_DROP, 0, 0, 'i', NULL, 0, "prints the screen"),
	CSI("CSI ? Ps i", "MC, DEC", TERM_DROP, '?', 0, 'i', NULL, 0, "prints the screen"),
	CSI("CSI Pm m", "SGR", TERM_CHANGE, 0, 0, 'm', put_sgr, 0, "known attributes and colours, 24 bit and colon forms included; others are left out one by one; reset at the end"),
	CSI("CSI > 4 ; Ps m", "modifyOtherKeys", TERM_CHANGE, '>', 0, 'm', put_modify_keys, 0, "resource 4, levels 0 to 3, undone at the end"),
	CSI_ONLY("CSI ? 4 m", "XTQMODKEYS", TERM_PASS, '?', 0, 'm', put_query_of, 1, "the answer is numbers", 1, 4),
	CSI_ONLY("CSI Ps n", "DSR, CPR", TERM_PASS, 0, 0, 'n', put_query_of, 1, "5, 6; the answer is numbers", 2, 5, 6),
	CSI_ONLY("CSI ? Ps n", "DSR, DEC", TERM_PASS, '?', 0, 'n', put_query_of, 1, "6 (position), 996 (dark or light); the answer is numbers", 2, 6, 996),
	CSI("CSI ! p", "DECSTR", TERM_PASS, 0, '!', 'p', put_plain, 0, "soft reset"),
	CSI("CSI Ps $ p", "DECRQM", TERM_PASS, 0, '$', 'p', put_query_of, 1, "the answer is numbers"),
	CSI("CSI ? Ps $ p", "DECRQM, DEC", TERM_PASS, '?', '$', 'p', put_query_of, 1, "the answer is numbers"),
	CSI("CSI Ps ; Ps \" p", "DECSCL", TERM_DROP, 0, '"', 'p', NULL, 0, "other emulation level, controls of 8 bits"),
	CSI("CSI > Ps p", "XTSMPOINTER", TERM_DROP, '>', 0, 'p', NULL, 0, "hides the mouse pointer"),
	CSI("CSI Ps SP q", "DECSCUSR", TERM_PASS, 0, ' ', 'q', put_cursor_style, 1, "0 to 6, undone at the end"),
	CSI("CSI > Ps q", "XTVERSION", TERM_DROP, '>', 0, 'q', NULL, 0, "answers with a string"),
	CSI("CSI Ps q", "DECLL", TERM_DROP, 0, 0, 'q', NULL, 0, "keyboard lights"),
	CSI("CSI Ps ; Ps r", "DECSTBM", TERM_PASS, 0, 0, 'r', put_region, 2, "undone at the end"),
	CSI("CSI Ps ; Ps s", "DECSLRM, SCOSC", TERM_PASS, 0, 0, 's', put_margins, 2, ""),
	CSI("CSI u", "SCORC", TERM_PASS, 0, 0, 'u', put_plain, 0, ""),
	CSI("CSI > Ps u", "kitty keyboard push", TERM_CHANGE, '>', 0, 'u', put_keys_push, 1, "flags 0 to 31, eight deep, above an entry of our own; popped at the end"),
	CSI("CSI < Ps u", "kitty keyboard pop", TERM_CHANGE, '<', 0, 'u', put_keys_pop, 1, "no more than the guest pushed: what lies below is the shell's"),
	CSI("CSI = Ps ; Ps u", "kitty keyboard set", TERM_CHANGE, '=', 0, 'u', put_keys_set, 2, "flags 0 to 31, how 1 to 3"),
	CSI("CSI ? u", "kitty keyboard query", TERM_PASS, '?', 0, 'u', put_query, 0, "the answer is numbers"),
	CSI_ONLY("CSI Ps t", "XTWINOPS", TERM_CHANGE, 0, 0, 't', put_query_of, 1, "14, 16, 18: sizes as numbers; not 20, 21 (the title as input), 22, 23 (title stack), 1 to 9 (window), 11, 13, 15, 19", 3, 14, 16, 18),
	CSI("CSI Pm SP t", "DECSWBV", TERM_DROP, 0, ' ', 't', NULL, 0, "volume of the bell"),
	CSI("CSI > Pm t", "XTSMTITLE", TERM_DROP, '>', 0, 't', NULL, 0, "form of titles"),
	CSI("CSI Pm $ x", "DECFRA", TERM_PASS, 0, '$', 'x', put_fill, 5, "with printable ASCII"),
	CSI("CSI Pm $ z", "DECERA", TERM_PASS, 0, '$', 'z', put_plain, 4, ""),
	CSI("CSI Pm * y", "DECRQCRA", TERM_DROP, 0, '*', 'y', NULL, 0, "reads the screen by checksums"),
	CSI("CSI Ps x", "DECREQTPARM", TERM_DROP, 0, 0, 'x', NULL, 0, "nobody needs it"),
	CSI("CSI Ps ; Ps \" v", "DECRQDE", TERM_DROP, 0, '"', 'v', NULL, 0, "nobody needs it"),
	CSI("CSI ? Pm S", "XTSMGRAPHICS", TERM_DROP, '?', 0, 'S', NULL, 0, "no graphics"),
	CSI("CSI Ps # S", "XTTITLEPOS", TERM_DROP, 0, '#', 'S', NULL, 0, "title stack"),
	CSI("CSI Pm # P", "XTPUSHCOLORS", TERM_DROP, 0, '#', 'P', NULL, 0, "the palette is the user's"),
	CSI("CSI Pm # Q", "XTPOPCOLORS", TERM_DROP, 0, '#', 'Q', NULL, 0, "the palette is the user's"),
	CSI("CSI Ps ' z", "DECELR", TERM_DROP, 0, '\'', 'z', NULL, 0, "locator reports"),

	OSC("OSC 0", "title and icon name", TERM_DROP, 0, NULL, "a title can be read back as input, and it speaks in the user's window list"),
	OSC("OSC 1", "icon name", TERM_DROP, 1, NULL, "as above"),
	OSC("OSC 2", "title", TERM_DROP, 2, NULL, "as above"),
	OSC("OSC 3", "X property", TERM_DROP, 3, NULL, "as above"),
	OSC("OSC 4", "palette", TERM_CHANGE, 4, put_palette_query, "one query (4;N;?); setting can make text invisible"),
	OSC("OSC 7", "directory", TERM_DROP, 7, NULL, "a new tab would open in a directory of the guest's choice"),
	OSC("OSC 8", "hyperlink", TERM_CHANGE, 8, put_link, "http and https, printable ASCII, at most 2000 bytes, no user@; id= cleaned; anything else ends the link"),
	OSC("OSC 9", "notification, progress", TERM_DROP, 9, NULL, "speaks outside of the terminal"),
	OSC("OSC 10", "foreground", TERM_CHANGE, 10, put_colour_query, "query only"),
	OSC("OSC 11", "background", TERM_CHANGE, 11, put_colour_query, "query only"),
	OSC("OSC 12", "cursor colour", TERM_CHANGE, 12, put_colour_query, "query only"),
	OSC("OSC 22", "pointer shape", TERM_DROP, 22, NULL, "not needed"),
	OSC("OSC 50", "font", TERM_DROP, 50, NULL, "reads and sets fonts"),
	OSC("OSC 52", "clipboard", TERM_DROP, 52, NULL, "writes and reads the user's clipboard"),
	OSC("OSC 99", "notification", TERM_DROP, 99, NULL, "speaks outside of the terminal"),
	OSC("OSC 104", "reset palette", TERM_DROP, 104, NULL, "nothing was set; likewise 110 to 119"),
	OSC("OSC 133", "shell marks", TERM_DROP, 133, NULL, "would pass guest text for a prompt of the user's shell"),
	OSC("OSC 633", "shell marks", TERM_DROP, 633, NULL, "as above"),
	OSC("OSC 777", "notification", TERM_DROP, 777, NULL, "speaks outside of the terminal"),
	OSC("OSC 1337", "files, clipboard, profile", TERM_DROP, 1337, NULL, "writes files and the clipboard"),

	STR("DCS", "DECRQSS, XTGETTCAP, sixel, DECUDK, tmux", 'P', "answers with strings, redefines keys, hides sequences"),
	STR("SOS", "string", 'X', "no use"),
	STR("PM", "privacy message", '^', "no use"),
	STR("APC", "kitty graphics, screen", '_', "reads files of the host by name"),
	STR("ESC k", "title of screen", 'k', "as OSC 2"),
};
/* clang-format on */
#undef C0
#undef ESC
#undef CSI
#undef CSI_ONLY
#undef OSC
#undef STR
const size_t term_filter_n_rules = ARRAY_LEN(term_filter_rules);

static const struct term_filter_rule *find(uint8_t kind, uint8_t prefix, uint8_t inter,
                                           uint8_t final, unsigned osc)
{
	for (size_t i = 0; i < term_filter_n_rules; i++) {
		const struct term_filter_rule *r = &term_filter_rules[i];

		if (r->final == final && r->kind == kind && r->prefix == prefix &&
		    r->inter == inter && r->osc == osc)
			return r;
	}
	return NULL;
}

static void apply(struct term_filter *f, const struct term_filter_rule *r, struct wr *out)
{
	size_t left = out->left;

	if (r && r->put)
		r->put(f, r, out);
	if (out->left != left)
		f->after_ascii = false;
}

/* --- the parser --- */

static void begin(struct term_filter *f, enum state state)
{
	f->state = state;
	f->prefix = f->inter = 0;
	f->over = false;
	f->n_numbers = 0;
	f->numbers[0] = f->numbers[1] = 0; /* rules may look at two that are not there */
	f->colon = f->given = 0;
	f->string_len = 0;
}

static void escape_byte(struct term_filter *f, uint8_t c, struct wr *out)
{
	if (c < 0x30) { /* intermediate */
		f->over |= f->inter != 0;
		f->inter = c;
		return;
	}
	if (f->inter == 0 && (c == '[' || c == ']')) {
		begin(f, c == '[' ? CSI : OSC);
		return;
	}
	if (f->inter == 0 && find(K_STRING, 0, 0, c, 0)) {
		begin(f, STRING);
		return;
	}
	f->state = GROUND;
	if (!f->over)
		apply(f, find(K_ESC, 0, f->inter, c, 0), out);
}

static void csi_byte(struct term_filter *f, uint8_t c, struct wr *out)
{
	if (c >= 0x40) {
		f->state = GROUND;
		if (!f->over)
			apply(f, find(K_CSI, f->prefix, f->inter, c, 0), out);
		return;
	}
	if (c < 0x30) {
		f->over |= f->state == CSI_INTER;
		f->inter = c;
		f->state = CSI_INTER;
		return;
	}
	if (f->state == CSI_INTER || (c >= '<' && (f->prefix || f->n_numbers))) {
		f->over = true;
		return;
	}
	if (c >= '<') {
		f->prefix = c;
		return;
	}
	if (f->n_numbers == 0) {
		f->n_numbers = 1;
		f->numbers[0] = 0;
	}
	size_t i = f->n_numbers - 1u;
	if (c <= '9') {
		unsigned v = f->numbers[i] * 10u + (c - '0');
		f->numbers[i] = (uint16_t)MIN(v, (unsigned)TERM_FILTER_VALUE_MAX);
		f->given |= 1ull << i;
		return;
	}
	if (f->n_numbers == TERM_FILTER_NUMBERS_MAX) {
		f->over = true;
		return;
	}
	i = f->n_numbers++;
	f->numbers[i] = 0;
	if (c == ':')
		f->colon |= 1ull << i;
}

static void osc_done(struct term_filter *f, struct wr *out)
{
	unsigned number = 0;
	size_t n = 0;

	while (n < f->string_len && n < 5 && f->string[n] >= '0' && f->string[n] <= '9')
		number = number * 10 + (f->string[n++] - '0');
	bool known = n && (n == f->string_len || f->string[n] == ';');
	const struct term_filter_rule *r = known ? find(K_OSC, 0, 0, 0, number) : NULL;
	/* an overlong hyperlink still ends the one before */
	if (r && (!f->over || r->put == put_link))
		apply(f, r, out);
	f->state = GROUND;
}

static void utf8_done(struct term_filter *f, struct wr *out)
{
	uint32_t cp = 0;

	f->state = GROUND;
	f->after_ascii = false;
	if (vis_utf8(span_of(f->utf8, f->utf8_len), &cp) != f->utf8_len)
		put_str(out, "\xef\xbf\xbd");
	else if (cp >= 0xa0) /* a C1 control in UTF-8 has the power of the single byte */
		wr_put(out, f->utf8, f->utf8_len);
}

/* @c may stand at place @len of a well-formed character (Unicode 15, table 3-7) */
static bool utf8_fits(const uint8_t *u, size_t len, uint8_t c)
{
	uint8_t low = 0x80, high = 0xbf;

	if (len == 1) {
		low = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
		high = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
	}
	return c >= low && c <= high;
}

static void ground_byte(struct term_filter *f, uint8_t c, struct wr *out)
{
	if (c < 0x80) {
		put_byte(out, c); /* printable: the caller took the controls */
		f->after_ascii = true;
		return;
	}
	f->utf8_want = c >= 0xc2 && c <= 0xdf   ? 2
	               : (c & 0xf0) == 0xe0     ? 3
	               : c >= 0xf0 && c <= 0xf4 ? 4
	                                        : 1;
	f->utf8[0] = c;
	f->utf8_len = 1;
	f->state = UTF8;
	if (f->utf8_want == 1)
		utf8_done(f, out);
}

static void one_byte(struct term_filter *f, uint8_t c, struct wr *out)
{
	if (f->state == UTF8) {
		if (utf8_fits(f->utf8, f->utf8_len, c)) {
			f->utf8[f->utf8_len++] = c;
			if (f->utf8_len == f->utf8_want)
				utf8_done(f, out);
			return;
		}
		f->utf8_len = 1; /* one mark for what was cut off, then @c anew */
		utf8_done(f, out);
	}
	if (f->state == OSC_ESC || f->state == STRING_ESC) {
		if (c == '\\') {
			if (f->state == OSC_ESC)
				osc_done(f, out);
			f->state = GROUND;
			return;
		}
		begin(f, ESCAPE); /* the string was given up for another sequence */
	}
	if (c == C_CAN || c == C_SUB) {
		f->state = GROUND;
		return;
	}
	if (c == C_ESC) {
		if (f->state == OSC)
			f->state = OSC_ESC;
		else if (f->state == STRING)
			f->state = STRING_ESC;
		else
			begin(f, ESCAPE);
		return;
	}
	if (f->state == STRING)
		return;
	if (f->state == OSC) {
		if (c == C_BEL)
			osc_done(f, out);
		else if (f->string_len < TERM_FILTER_STRING_MAX)
			f->string[f->string_len++] = c;
		else
			f->over = true;
		return;
	}
	if (c < 0x20) { /* acts at once, also in the middle of a sequence */
		apply(f, find(K_C0, 0, 0, c, 0), out);
		return;
	}
	if (c == C_DEL)
		return;
	if (c >= 0x80 && f->state != GROUND)
		f->state = GROUND; /* no sequence holds such a byte */
	if (f->state == ESCAPE)
		escape_byte(f, c, out);
	else if (f->state == CSI || f->state == CSI_INTER)
		csi_byte(f, c, out);
	else
		ground_byte(f, c, out);
}

size_t term_filter_run(struct term_filter *f, struct span in, struct wr *out)
{
	size_t i = 0;

	while (i < in.len && out->left >= TERM_FILTER_ROOM_MIN) {
		size_t n = 0;

		/* most of a stream is plain text */
		if (f->state == GROUND) {
			size_t most = MIN(in.len - i, out->left - TERM_FILTER_ROOM_MIN + 1);

			while (n < most && in.p[i + n] >= 0x20 && in.p[i + n] < C_DEL)
				n++;
		}
		if (n) {
			wr_put(out, in.p + i, n);
			f->after_ascii = true;
		} else {
			one_byte(f, in.p[i], out);
		}
		i += n ? n : 1;
	}
	ASSERT(!out->bad);
	return i;
}
