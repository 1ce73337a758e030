/* How the pool's threads wait for each other. */
#ifndef LATHE_APP_PATIENCE_H
#define LATHE_APP_PATIENCE_H

/** Starts the program anew with OMP_WAIT_POLICY=passive, unless the user chose a policy. The OpenMP
 *  runtime reads its environment before main, so this is the only way to set it from within.
 *  Threads that spin at a barrier for a thread that is not running hold the core it needs: on a
 *  machine that runs anything else, training then slows down by an order of magnitude. Returns when
 *  nothing was to be done or the program could not be started anew. */
void lathe_app_wait_patiently(char **argv);

#endif
