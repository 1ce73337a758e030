/* Uses the terminal as a full screen (alternate screen, no echo, no cursor) and restores it, also
 * at exit and after the signals below. */
#ifndef LATHE_VIEW_TERMINAL_H
#define LATHE_VIEW_TERMINAL_H

#include <stdint.h>

#include "lathe/status.h"

/** 1: stdout is a terminal that can show a screen (more than TERM=dumb). */
int lathe_terminal_is_screen(void);
/** 1: the locale's encoding is UTF-8. Sets LC_CTYPE from the environment, and no other category. */
int lathe_terminal_is_utf8(void);
/** 1: NO_COLOR is unset or empty. */
int lathe_terminal_has_colors(void);
/** Columns and rows of the terminal, else COLUMNS and LINES, else 100 by 30. */
void lathe_terminal_size(int32_t *out_width, int32_t *out_height);

/** Switches to full screen. From then on Ctrl-C, SIGTERM, SIGHUP and SIGQUIT are events; Ctrl-Z
 *  restores the terminal while the process is stopped. LATHE_E_NOMEM. */
lathe_status lathe_terminal_take(void);
/** Restores the terminal; does nothing if it was not taken. Also done at exit. */
void lathe_terminal_give_back(void);

enum {
    LATHE_EVENT_NONE = 0,
    LATHE_EVENT_QUIT = 1,  /* q, Q, Escape, end of input, or a signal */
    LATHE_EVENT_REDRAW = 2 /* resized, continued, or another key was pressed */
};

/** Waits at most `seconds` for an event. */
int32_t lathe_terminal_wait(double seconds);

/** Writes the whole text to the terminal. LATHE_E_IO: the terminal is gone. */
lathe_status lathe_terminal_write(const char *text, int64_t bytes);

#endif
