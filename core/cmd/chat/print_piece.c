/* Writes pieces of a text. */
#include "cmd/chat/print_piece.h"

#include <stdio.h>

#include "base/print.h"

void lathe_app_print_piece(const lathe_session_piece *piece, int32_t on_terminal)
{
    if (piece->bytes == 0)
        return;
    if (on_terminal)
        lathe_print_bytes(stdout, piece->text, piece->bytes);
    else
        lathe_print_raw(stdout, piece->text, piece->bytes);
    (void)fflush(stdout);
}
