/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter.h - what the guest may say to the user's terminal.
 *
 * Every byte that a guest prints on the user's terminal goes through this
 * state machine. It parses the stream as a terminal would (ECMA-48, DEC VT510,
 * xterm's ctlseqs, the kitty keyboard protocol), looks each complete control
 * sequence up in a const table and writes the permitted ones again from their
 * parsed values; nothing is forwarded as received. What is not in the table is
 * dropped whole. The table is term_filter_rules[] and stands in
 * docs/terminal.md with the reasons; a unit test keeps the two equal.
 *
 * The output only ever holds whole sequences, so the terminal is in its ground
 * state after each call, however the input was cut. Pure: no allocation, no
 * clock, no descriptor, and the state is this one struct of fixed size. The
 * other direction (keys and answers, host to guest) is not filtered.
 *
 *	uint8_t room[TERM_FILTER_ROOM_MIN];
 *	while (in.len) {
 *		struct wr w = wr_of(room, sizeof(room));
 *		size_t n = term_filter_run(&f, in, &w);
 *		write(1, room, sizeof(room) - w.left);
 *		in.p += n; in.len -= n;
 *	}
 */
#ifndef CLOCHE_TERM_FILTER_H
#define CLOCHE_TERM_FILTER_H

#include "base/span.h"

enum {
	TERM_FILTER_NUMBERS_MAX = 48,  /* parameters and sub-parameters of one CSI */
	TERM_FILTER_VALUE_MAX = 32767, /* of one parameter; a larger one is taken as this */
	TERM_FILTER_URL_MAX = 2000,    /* bytes of a hyperlink's address */
	TERM_FILTER_ID_MAX = 64,       /* bytes of a hyperlink's id= */
	TERM_FILTER_STRING_MAX = 2100, /* bytes of one OSC; a longer one is dropped whole */
	TERM_FILTER_KEYS_MAX = 8,      /* depth of the kitty keyboard stack, per screen */
	TERM_FILTER_REPEAT_MAX = 4096, /* of REP, "repeat the last character" */
	TERM_FILTER_ROOM_MIN = 2560,   /* room that one input byte may need in the output */
	TERM_FILTER_RESET_MAX = 512,   /* bytes of term_filter_reset_seq() and _resume_seq() */
	TERM_FILTER_EXPAND_MAX = 12,   /* output <= EXPAND * input + ROOM_MIN, over any stream */
};

/* Zero-initialised is a filter at the start of a stream. Fields are private. */
struct term_filter {
	uint8_t state;
	uint8_t prefix, inter; /* of the CSI or ESC sequence being read; 0: none */
	bool over;             /* a limit was passed: drop it at its end */
	uint8_t utf8[4], utf8_len, utf8_want;
	bool after_ascii; /* the last byte that came out was printable ASCII */
	uint8_t n_numbers;
	uint16_t numbers[TERM_FILTER_NUMBERS_MAX];
	uint64_t colon; /* bit i: number i was led in by ':' */
	uint64_t given; /* bit i: number i has digits */
	uint16_t string_len;
	uint8_t string[TERM_FILTER_STRING_MAX];
	/* what the guest changed and the end of the session must undo */
	uint64_t modes;    /* bit i: term_filter_modes[i] is not at its rest value */
	uint8_t keys[2];   /* entries pushed by the guest: main, alternate screen */
	bool keys_base[2]; /* our own entry lies below them */
	uint8_t key_flags[2][TERM_FILTER_KEYS_MAX + 1]; /* of the base entry and each above */
	uint8_t modify_keys; /* modifyOtherKeys level + 1; 0: untouched */
	bool region, charset, shifted, keypad, insert, link, cursor_style;
	bool asked; /* a query passed, so an answer may still come */
};

/*
 * term_filter_run() - filter @in into @out.
 * @out:	at least TERM_FILTER_ROOM_MIN bytes of room; never left `bad`
 *
 * Return: bytes of @in consumed. Fewer than all only when less than
 * TERM_FILTER_ROOM_MIN bytes of room are left: call again with more.
 */
size_t term_filter_run(struct term_filter *f, struct span in, struct wr *out) MUST_CHECK;

/*
 * term_filter_reset_seq() - append what brings the user's terminal back: mouse,
 * paste, focus and keyboard modes off, alternate screen left, attributes,
 * region, character sets and cursor at rest. Modes that the guest did not turn
 * on are left alone, apart from a short fixed part.
 *
 * At most TERM_FILTER_RESET_MAX bytes, only control sequences, no newline. Pure and reads
 * only plain fields of @f, so it may run in a signal handler over a half-made
 * update. Does not change @f: a resume after a stop can still ask for
 * term_filter_resume_seq(), which turns the same modes on again.
 */
void term_filter_reset_seq(const struct term_filter *f, struct wr *out);
void term_filter_resume_seq(const struct term_filter *f, struct wr *out);

/*
 * Whether the terminal may still send something that nobody typed: the answer
 * to a query, a mouse or focus report. Then wait and discard at the end
 * (term_tty_leave()).
 */
bool term_filter_may_answer(const struct term_filter *f);

/* The table of docs/terminal.md. What is in no row is dropped. */
enum term_verdict { TERM_PASS, TERM_CHANGE, TERM_DROP };

enum { TERM_RULE_ONLY_MAX = 4 };

struct term_filter_rule;
typedef void (*term_filter_put_fn)(struct term_filter *f, const struct term_filter_rule *r,
                                   struct wr *out);

struct term_filter_rule {
	const char *seq;  /* notation of the page: "CSI Ps A" */
	const char *name; /* mnemonic of the source */
	enum term_verdict verdict;
	const char *note; /* what passes of it, and why */
	/* looked up by: */
	uint8_t kind; /* enum of filter.c: C0, ESC, CSI, OSC, STRING */
	uint8_t prefix, inter, final;
	uint16_t osc;
	/* what it does when it passes: */
	term_filter_put_fn put; /* NULL: dropped */
	uint8_t count;          /* at most so many numbers */
	uint8_t n_only;         /* each one of only[], when not 0 */
	uint16_t only[TERM_RULE_ONLY_MAX];
};

struct term_filter_mode {
	uint16_t number;
	bool rest;      /* what the terminal is set to at the end */
	bool answers;   /* makes the terminal send by itself: mouse, focus */
	bool alt;       /* alternate screen: left before all else */
	bool momentary; /* nothing to undo */
	const char *name;
};

extern const struct term_filter_rule term_filter_rules[];
extern const size_t term_filter_n_rules;
extern const struct term_filter_mode term_filter_modes[]; /* DEC private modes that pass */
extern const size_t term_filter_n_modes;

#endif
