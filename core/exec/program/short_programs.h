/* Programs for batches whose rows are shorter than data.seq_len (docs/design/025-short-rows.md).
 *
 * Rows of pairs, prompts and unpaired examples have one sequence each and padding after it. A batch
 * whose longest sequence has n tokens runs through the program of the smallest row length that is
 * at least n, so that little padding is computed. All ranks choose by the longest sequence of all
 * of them: they wait for each other anyway, and random numbers are keyed by the place in the rows.
 * Packed rows have one program.
 */
#ifndef LATHE_EXEC_SHORT_PROGRAMS_H
#define LATHE_EXEC_SHORT_PROGRAMS_H

#include "exec/program/programs.h"

/** Writes the row lengths below `row_tokens` that get programs, in ascending order; returns how
 *  many. They are the multiples of row_tokens / 8, rounded up to a multiple of 64. */
int32_t lathe__short_lengths(int64_t row_tokens, int64_t out[LATHE_MAX_SHORT]);

/** The program for a batch whose longest sequence has `longest` tokens: `whole`, a program of rows
 *  of data.seq_len tokens, or a shorter one. */
lathe_program *lathe__short_rows_pick(lathe_programs *programs, lathe_program *whole,
                                      int64_t longest);

#endif
