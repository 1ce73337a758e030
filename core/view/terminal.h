/* Uses the terminal as a full screen and always restores it: alternate screen, no echo, no
 * cursor. */
#ifndef LATHE_VIEW_TERMINAL_H
#define LATHE_VIEW_TERMINAL_H

#include <stdint.h>

#include "lathe/status.h"

/** 1: stdout shows what is drawn on it (a terminal that knows more than TERM=dumb). */
int lathe_terminal_is_screen(void);
/** 1: the locale's characters are UTF-8. Sets LC_CTYPE from the environment, nothing else. */
int lathe_terminal_is_utf8(void);
/** 1: NO_COLOR is unset or empty. */
int lathe_terminal_has_colors(void);
/** Columns and rows of the terminal; else COLUMNS and LINES; else 100 by 30. */
void lathe_terminal_size(int32_t *out_width, int32_t *out_height);

/** Takes the screen. From here on Ctrl-C, SIGTERM, SIGHUP and SIGQUIT are events; Ctrl-Z gives the
 *  screen back while the process is stopped. LATHE_E_IO. */
lathe_status lathe_terminal_take(void);
/** Restores the terminal; does nothing if it was not taken. Also done at exit. */
void lathe_terminal_give_back(void);

enum {
    LATHE_EVENT_NONE = 0,
    LATHE_EVENT_QUIT = 1,  /* q, Q, Escape, end of input, or a signal */
    LATHE_EVENT_REDRAW = 2 /* resized, continued, or a key that asks for it */
};

/** Waits at most so long for an event. */
int32_t lathe_terminal_wait(double seconds);

/** Writes all of it to the terminal. LATHE_E_IO: it is gone. */
lathe_status lathe_terminal_write(const char *text, int64_t bytes);

#endif
