/* Writes pieces of a text to standard output while it is generated. */
#ifndef LATHE_CMD_PRINT_PIECE_H
#define LATHE_CMD_PRINT_PIECE_H

#include "lathe/session.h"

/** Writes a piece at once. on_terminal: control characters are written as \xNN. */
void lathe_app_print_piece(const lathe_session_piece *piece, int32_t on_terminal);

#endif
