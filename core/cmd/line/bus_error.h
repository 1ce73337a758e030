/* Handles SIGBUS, which a truncated mapped file or an unreadable disk causes. */
#ifndef LATHE_CMD_BUS_ERROR_H
#define LATHE_CMD_BUS_ERROR_H

/** Installs a handler of SIGBUS for the whole process. A missing page of a mapped file reads as
 *  zeros, and the next check (base/map.h) reports an error that names the file. Any other SIGBUS
 *  ends the process, as without a handler. */
void lathe_cli_take_bus_errors(void);

#endif
