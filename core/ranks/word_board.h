/* Files in the launcher's folder of this job, by which ranks of one host that have not joined each
 * other tell why they fail. The launcher removes the folder when the job ends. */
#ifndef LATHE_RANKS_WORD_BOARD_H
#define LATHE_RANKS_WORD_BOARD_H

#include <stdint.h>

/** Writes a file of a rank at once. Returns 0 if there is no such folder, or it cannot be written.
 */
int32_t lathe__board_put(const char *name, int32_t rank, const void *bytes, int64_t n);
/** Reads it; 0: it is not there, or has another length. */
int32_t lathe__board_get(const char *name, int32_t rank, void *bytes, int64_t n);

#endif
