/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - what is going on, one line a phase.
 *
 * On a terminal that can redraw there is one line, replaced in place, with the
 * time once a phase is slower than 0.3 s; it is gone when the work is done. On
 * anything else each phase is a plain line, and one more with its time when it
 * was slower than that. Whoever else is about to write to the same terminal
 * (log, prompt, guest) calls term_progress_stop() first.
 */
#ifndef CLOCHE_TERM_PROGRESS_H
#define CLOCHE_TERM_PROGRESS_H

#include "base/util.h"

enum {
	TERM_PROGRESS_TEXT_MAX = 256,
	TERM_PROGRESS_PHASES_MAX = 32, /* remembered for a table of timings */
	TERM_PROGRESS_SLOW_MS = 300,
	TERM_PROGRESS_TICK_MS = 100, /* redraws at most this often */
};

struct term_phase {
	char text[TERM_PROGRESS_TEXT_MAX]; /* made visible */
	uint64_t took_ns;
};

struct term_progress {
	int fd;      /* borrowed; -1: silent */
	bool redraw; /* a line replaced in place */
	bool running, shown;
	uint64_t (*now_ns)(void *);
	void *now_arg;
	uint64_t start_ns, drawn_ns;
	char detail[TERM_PROGRESS_TEXT_MAX];
	struct term_phase phase[TERM_PROGRESS_PHASES_MAX];
	size_t n_phases; /* finished ones; phase[n_phases] is the running one */
};

/* @now_ns: NULL for CLOCK_MONOTONIC. Whether to redraw is decided here from @fd. */
void term_progress_init(struct term_progress *p, int fd, uint64_t (*now_ns)(void *), void *arg);

/* Begin a phase ("boot the microVM"); ends the one before. */
void term_progress_phase(struct term_progress *p, const char *fmt, ...) PRINTF_FMT(2, 3);

/* A detail behind the phase ("12 000 files"), terminals only. */
void term_progress_detail(struct term_progress *p, const char *fmt, ...) PRINTF_FMT(2, 3);

/* From a timer every TERM_PROGRESS_TICK_MS: shows the time of a slow phase. */
void term_progress_tick(struct term_progress *p);

/* End the running phase and take the line off the terminal. Safe to repeat. */
void term_progress_end(struct term_progress *p);

/* Take the line off before another writer; the phase goes on, the next tick draws it again. */
void term_progress_stop(struct term_progress *p);

/* A line of its own (a warning, a result) between two states of the progress line. */
void term_progress_line(struct term_progress *p, const char *fmt, ...) PRINTF_FMT(2, 3);

#endif
