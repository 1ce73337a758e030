/* Sets how the threads of the pool wait for each other. */
#ifndef LATHE_CMD_PATIENCE_H
#define LATHE_CMD_PATIENCE_H

/** Restarts the program with OMP_WAIT_POLICY=passive, unless the user chose a policy. The OpenMP
 *  runtime reads its environment before main, so the program cannot set it otherwise. Threads that
 *  spin at a barrier use the core that the thread they wait for needs: if other programs run on the
 *  machine, training is then slower by an order of magnitude. Returns if nothing was to be done, or
 *  if the restart failed. */
void lathe_cli_wait_patiently(char **argv);

#endif
