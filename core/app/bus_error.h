/* SIGBUS: a mapped file that became shorter, or a disk that cannot be read. */
#ifndef LATHE_APP_BUS_ERROR_H
#define LATHE_APP_BUS_ERROR_H

/** Handles SIGBUS for the whole process: a page of a mapped file that is gone reads as zeros, and
 *  the next check (base/map.h) is an error that names the file. Any other SIGBUS ends the process,
 *  as without a handler. */
void lathe_app_take_bus_errors(void);

#endif
