/* Ends all processes that a launcher has started together, without a word of the launcher.
 *
 * mpirun explains in 7 to 11 lines that a process has exited with a code, or has called MPI_Abort.
 * It says nothing when a process asks it through PMIx, the protocol between them, to end the job.
 */
#ifndef LATHE_PARALLEL_LAUNCHER_END_H
#define LATHE_PARALLEL_LAUNCHER_END_H

#include <stdint.h>

/** Asks the launcher to end the other processes with exit_code; this process then exits with it,
 * and what it prints on stderr until then is lost. 0: the launcher cannot be asked so. If it does
 * not answer within 10 s, SIGALRM ends this process. */
int32_t lathe__launcher_end(int32_t exit_code);

#endif
