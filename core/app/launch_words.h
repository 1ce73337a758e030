/* What mpirun itself says on its outputs, and what of it `lathe launch` passes on.
 *
 * mpirun tells that a process has exited, or that a signal has ended one, in a box:
 *
 *     --------------------------------------------------------------------------
 *     mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).
 *     --------------------------------------------------------------------------
 *
 * Boxes about the end of processes are not passed on, but noted: launch says in one line what no
 * rank can have said. Any other box becomes one line. Lines outside a box are passed on, except
 * those that count ended processes or repeat a box that was left out. */
#ifndef LATHE_APP_LAUNCH_WORDS_H
#define LATHE_APP_LAUNCH_WORDS_H

#include <stdint.h>
#include <stdio.h>

enum { LATHE_BOX_BYTES = 4096 };

typedef struct lathe_launch_words {
    /* How processes ended, as boxes say; -1: none said so. */
    int32_t killed_rank, signal; /* the first that a signal ended */
    int32_t exited_rank, code;   /* the first that exited with a code */
    int32_t n_told;              /* lines that were passed on */
    int32_t in_box;              /* 1: between two lines of dashes */
    int64_t n;                   /* bytes of the box so far, its lines with '\n' */
    char box[LATHE_BOX_BYTES];
    char last[LATHE_BOX_BYTES];  /* the last box that was passed on, as one line */
    char vague[LATHE_BOX_BYTES]; /* the first that only follows from others; "": none */
} lathe_launch_words;

void lathe_launch_words_init(lathe_launch_words *words);

/** Takes a line of mpirun, without its '\n', and prints to `to` what is to be passed on. */
void lathe_launch_words_line(lathe_launch_words *words, const char *line, FILE *to);

/** At the end of the output: prints what is left of a box that was not finished, and what was kept.
 */
void lathe_launch_words_end(lathe_launch_words *words, FILE *to);

#endif
