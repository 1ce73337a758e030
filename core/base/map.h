/* Read-only memory maps of whole files, and what becomes of one whose file shrinks.
 *
 * A page of a map that the file no longer has, or that the disk cannot give, is a SIGBUS for
 * whoever touches it. The command installs a handler (app/bus_error.h) that asks lathe_map_fault:
 * the page becomes zeros, the map is marked broken, and the reader goes on to the next check, which
 * is an error that names the file. A library must not take a signal from its host: a program that
 * uses liblathe without such a handler gets the SIGBUS, as with any map.
 *
 * A reader that used a map calls lathe_map_check or lathe_maps_check before it believes what it
 * read.
 */
#ifndef LATHE_BASE_MAP_H
#define LATHE_BASE_MAP_H

#include <stdint.h>

#include "lathe/status.h"

/** A read-only memory map of a whole file. An empty file has data NULL and bytes 0. */
typedef struct lathe_map {
    const uint8_t *data;
    int64_t bytes;
} lathe_map;

/** Errors as of lathe_file_open. Any thread. */
lathe_status lathe_map_open(const char *path, lathe_map *out);
/** Says that the file will be read here and there: a page that is missing is fetched alone, without
 *  the ones around it. */
void lathe_map_scattered(const lathe_map *map);
void lathe_map_close(lathe_map *map);

/** LATHE_E_IO: the file is shorter than it was when it was mapped, or a page of it could not be
 *  read. What was read before a check that succeeds is what the file held. One stat, a
 *  microsecond. Any thread. */
lathe_status lathe_map_check(const lathe_map *map);

/** LATHE_E_IO: the same was found for any map since the process began, or since
 *  lathe_maps_forget; its file may be closed by now. An atomic load when all is well. Any
 *  thread. */
lathe_status lathe_maps_check(void);

/** Forgets what was found. For a host that has dealt with it. */
void lathe_maps_forget(void);

/** For a SIGBUS handler: 1 when the address lies in a map. Then the page and those after it are
 *  zeros now, the map is broken, and the instruction may be taken again. Async-signal-safe. */
int32_t lathe_map_fault(const void *address);

#endif
