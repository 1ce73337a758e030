/* The files of a folder with their sizes and hashes: recorded in a manifest, and compared later. */
#ifndef LATHE_FILES_FILE_HASHES_H
#define LATHE_FILES_FILE_HASHES_H

#include <jansson.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "lathe/status.h"

/** How files are compared with a list. */
enum {
    LATHE_HASH_NONE = 0,   /* existence and size alone */
    LATHE_HASH_ALL = 1,    /* every byte is read */
    LATHE_HASH_UNKNOWN = 2 /* files that have not changed since they were hashed are not read again
                              (known_hashes.h) */
};

/** Receives one message per damaged file. */
typedef void (*lathe_damage_fn)(void *arg, const char *message);

/** Appends {"NAME": {"bytes", "sha256"}, ...} of the regular files in `dir`, not in folders below
 * it, whose name `take` accepts; if `dir` is a file, of that file. Files are hashed in parallel,
 * those that have not changed since they were hashed not again. LATHE_E_IO: one cannot be read. */
lathe_status lathe_files_list(const char *dir, int32_t (*take)(const char *name),
                              lathe_buffer *out);

/** Compares files of `dir` with a list of that form; how: LATHE_HASH_*. If `dir` is a file, it is
 *  compared with the only entry, whatever name that has.
 *  Reports every file that is missing or changed; returns the status of the first. LATHE_E_CORRUPT
 *  also for a list of another form. */
lathe_status lathe_files_compare(const char *dir, const json_t *list, int32_t how,
                                 lathe_damage_fn report, void *arg);

/* ---- for manifest.c ---- */

/* One file to hash. The error record is per thread, so the item keeps a worker's message. */
typedef struct lathe_hashed_file {
    const char *name; /* relative to the folder */
    const char *path;
    int64_t bytes; /* actual size; -1: there is no regular file */
    char hex[65];
    lathe_status status;
    char message[400];
    /* expected size, when verifying */
    int64_t want_bytes;
    const char *want_hex;
    lathe_file_part *parts; /* parts to read while hashing */
    int64_t n_parts;
} lathe_hashed_file;

/** Hashes the files, the largest first, and sorts them by path; how: LATHE_HASH_*. */
void lathe__files_hash(lathe_hashed_file *files, int64_t n, int32_t how);

/** Hashes all files; how: LATHE_HASH_ALL or UNKNOWN. An error names the first that cannot be read.
 */
lathe_status lathe__files_hash_all(lathe_hashed_file *files, int64_t n, int32_t how);

/** Appends the list without its closing brace; `gap` stands before each entry. */
void lathe__files_put(lathe_buffer *out, const lathe_hashed_file *files, int64_t n,
                      const char *gap);

/** Reads a list. LATHE_E_CORRUPT: it has another form, or a name leaves the folder. */
lathe_status lathe__files_of_json(const char *dir, json_t *list, lathe_arena *arena,
                                  lathe_hashed_file **out, int64_t *out_n);

/** Checks every file after lathe__files_hash. Returns the status of the first bad one by path, with
 *  its message; report: NULL, or gets every message. */
lathe_status lathe__files_check(const lathe_hashed_file *files, int64_t n, int32_t how,
                                lathe_damage_fn report, void *arg);

#endif
