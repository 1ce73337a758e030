/* Lines that the user types, and Ctrl-C. */
#ifndef LATHE_CMD_INPUT_H
#define LATHE_CMD_INPUT_H

#include "base/buffer.h"

/** Standard input, line by line. SIGINT is blocked and read from a file descriptor: a handler would
 *  run on the stack of whatever thread it interrupts (cmd/line/stop_signals.h). */
typedef struct lathe_chat_input {
    int signals; /* file descriptor of SIGINT */
    int32_t has_ended;
    lathe_buffer data; /* bytes that are read and not yet given */
} lathe_chat_input;

enum {
    LATHE_CHAT_LINE = 0,
    LATHE_CHAT_END = 1,      /* of the input */
    LATHE_CHAT_INTERRUPT = 2 /* Ctrl-C */
};

/** Blocks SIGINT in this thread and in those that are made later. Call it before any is made. */
lathe_status lathe_chat_input_init(lathe_chat_input *input);
void lathe_chat_input_fini(lathe_chat_input *input);
/** Waits for a line, without its end; in `line`. *out_what: LATHE_CHAT_*. */
lathe_status lathe_chat_input_line(lathe_chat_input *input, lathe_buffer *line, int32_t *out_what);
/** 1 if Ctrl-C was pressed since the last call. */
int lathe_chat_input_interrupted(lathe_chat_input *input);

#endif
