/* Read-only memory maps of whole files, safe against files that shrink while they are mapped.
 *
 * Reading a page that the file no longer has, or that the disk cannot read, raises SIGBUS. The
 * command-line program installs a handler (app/bus_error.h) that calls lathe_map_fault: the page
 * becomes zeros, the map is marked as broken, and the reader continues until its next check, which
 * returns an error that names the file. A library must not install signal handlers, so a program
 * that uses liblathe without such a handler gets the SIGBUS, as with any memory map.
 *
 * A reader calls lathe_map_check or lathe_maps_check before it uses data that it read from a map.
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

/** Maps a file. Errors as from lathe_file_open. Any thread. */
lathe_status lathe_map_open(const char *path, lathe_map *out);
/** Announces random access: the kernel then reads only the missing page, not its neighbours. */
void lathe_map_scattered(const lathe_map *map);
void lathe_map_close(lathe_map *map);

/** Checks a map. LATHE_E_IO: the file is shorter than when it was mapped, or a page could not be
 *  read. If the check succeeds, all data read before it are the file's. Costs one stat, about a
 *  microsecond. Any thread. */
lathe_status lathe_map_check(const lathe_map *map);

/** Checks all maps. LATHE_E_IO: a map was found broken since the process began or since
 *  lathe_maps_forget; it may be closed by now. Costs one atomic load if all maps are intact. Any
 *  thread. */
lathe_status lathe_maps_check(void);

/** Clears the error of lathe_maps_check, for a program that has handled it. */
void lathe_maps_forget(void);

/** For a SIGBUS handler. Returns 1 if the address is in a map: then this page and those after it
 *  are now zeros, the map is marked as broken, and the instruction can be repeated.
 *  Async-signal-safe. */
int32_t lathe_map_fault(const void *address);

#endif
