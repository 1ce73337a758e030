/* Files in the launcher's folder of this job, through which ranks of one host that have not joined
 * a group share why they fail. The launcher removes the folder when the job ends. */
#ifndef LATHE_PARALLEL_FAILURE_FILES_H
#define LATHE_PARALLEL_FAILURE_FILES_H

#include <stdint.h>

/** Writes a file of a rank atomically. Returns 0 if there is no such folder, or it cannot be
 * written.
 */
int32_t lathe__failure_file_write(const char *name, int32_t rank, const void *bytes, int64_t n);
/** Reads it; 0: it is not there, or is shorter. */
int32_t lathe__failure_file_read(const char *name, int32_t rank, void *bytes, int64_t n);

#endif
