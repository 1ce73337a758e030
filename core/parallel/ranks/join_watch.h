/* Ends the process if the ranks do not meet in time. */
#ifndef LATHE_PARALLEL_JOIN_WATCH_H
#define LATHE_PARALLEL_JOIN_WATCH_H

typedef struct lathe_join_watch lathe_join_watch;

/** Starts a thread that ends the process with code 1 and a line on stderr unless
 *  lathe_join_watch_end() is called within `seconds`. For functions of engines that wait for other
 *  ranks and cannot be interrupted (MPI_Init). engine: its name; stays the caller's.
 *  Returns NULL, and watches nothing, if there is no memory or no thread. */
lathe_join_watch *lathe_join_watch_begin(const char *engine, double seconds);

/** NULL does nothing. */
void lathe_join_watch_end(lathe_join_watch *watch);

#endif
