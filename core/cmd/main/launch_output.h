/* Filters the output of mpirun: which of its own messages `lathe launch` prints.
 *
 * mpirun reports in a box that a process has exited, or that a signal has ended one:
 *
 *     --------------------------------------------------------------------------
 *     mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).
 *     --------------------------------------------------------------------------
 *
 * Such boxes are remembered: `lathe launch` prints one line for an end that no rank could report.
 * Any other box becomes one line of at most three paragraphs, and one that repeats the last is
 * dropped. Lines outside a box are printed, except those that count ended processes or point to a
 * box. Messages that only follow from another error are kept, and the one that says most is printed
 * at the end if nothing else was. mpirun 4.1 sometimes loses its boxes: in 60 jobs that MPI_Init
 * refused, the first box was missing 8 times, and once there were only lines with ORTE_ERROR_LOG.
 */
#ifndef LATHE_CMD_LAUNCH_OUTPUT_H
#define LATHE_CMD_LAUNCH_OUTPUT_H

#include <stdint.h>
#include <stdio.h>

enum { LATHE_BOX_BYTES = 4096 };

/* Kinds of messages that follow from another error, from the one that says least to the one that
 * says most. */
typedef enum lathe_launch_vagueness {
    LATHE_LAUNCH_NOT_VAGUE = 0,
    LATHE_LAUNCH_OWN_ERROR,  /* ORTE_ERROR_LOG: a place in the source of mpirun */
    LATHE_LAUNCH_ABORTED,    /* that an error ended a rank */
    LATHE_LAUNCH_CALL_FAILED /* a box with the call that failed */
} lathe_launch_vagueness;

typedef struct lathe_launch_output {
    /* How processes ended, as boxes say; killed_rank, exited_rank: -1 if none does. */
    int32_t killed_rank, signal; /* the first that a signal ended */
    int32_t exited_rank, code;   /* the first that exited with a code */
    int32_t n_told;              /* lines that were passed on */
    int32_t in_box;              /* 1: between two lines of dashes */
    int32_t is_cut; /* 1: the box was too long, and its last dashes are still to come */
    int64_t n;      /* bytes of the box so far, its lines with '\n' */
    char box[LATHE_BOX_BYTES];
    char last[LATHE_BOX_BYTES];  /* the last box that was passed on, as one line */
    char vague[LATHE_BOX_BYTES]; /* the first message of the kind vague_says; "": none */
    lathe_launch_vagueness vague_says;
} lathe_launch_output;

void lathe_launch_output_init(lathe_launch_output *output);

/** Takes a line of mpirun, without its '\n', and prints to `to` what is to be passed on. */
void lathe_launch_output_line(lathe_launch_output *output, const char *line, FILE *to);

/** At the end of the output: prints what is left of a box that was not finished, and what was kept.
 */
void lathe_launch_output_end(lathe_launch_output *output, FILE *to);

#endif
