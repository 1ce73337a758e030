/* The C boundary around Apache Arrow's C++ library: a table of functions that a library of its own
 * exports (arrow_shim.cpp). The plugin opens that library for the first file, so a run without such
 * files never loads Arrow, and a Lathe that was built without Arrow says so only then.
 *
 * No exception passes this boundary. A function that fails returns a code below 0 and writes one
 * line to `why`. One thread at a time per file.
 */
#ifndef LATHE_READER_ARROW_SHIM_H
#define LATHE_READER_ARROW_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include "arrow_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SHIM_VERSION = 2 };
enum { SHIM_PARQUET = 1, SHIM_FILE = 2, SHIM_STREAM = 3 };
enum { SHIM_DAMAGED = -1, SHIM_TOO_LARGE = -2 }; /* TOO_LARGE: beyond the limit of its memory */

/* Rows of a file that follow each other: of one group of rows of a Parquet file, or of one record
 * batch. */
typedef struct arrow_rows {
    struct ArrowArray batch; /* a struct array with the chosen columns; the caller releases it */
    int64_t group, first;    /* number of the group, and of the first row in it; both from 0 */
} arrow_rows;

typedef struct arrow_shim {
    int32_t version, reserved; /* SHIM_VERSION, 0 */
    const char *arrow;         /* version of Apache Arrow */
    /* Opens a file of `bytes` bytes and exports the schema of all its columns, which the caller
     * releases. fd is borrowed; it is read with pread(). */
    int (*open)(int fd, int64_t bytes, int32_t format, void **out, struct ArrowSchema *out_schema,
                char *why, size_t why_bytes);
    /* Chooses columns by their index in the schema, in ascending order, and begins after row
     * `first` - 1 of a group. */
    int (*begin)(void *file, const int32_t *columns, int32_t n, int64_t group, int64_t first,
                 char *why, size_t why_bytes);
    /* Reads rows, at least one. Returns 1, or 0 at the end of the file. */
    int (*next)(void *file, arrow_rows *out, char *why, size_t why_bytes);
    void (*close)(void *file);
} arrow_shim;

/* The one symbol of the library. */
extern __attribute__((visibility("default"))) const arrow_shim lathe_arrow_shim;

#ifdef __cplusplus
}
#endif

#endif
