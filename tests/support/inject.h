/* Failure injection: makes Lathe's Nth call of write, fsync, rename, mkdir, malloc, ... fail.
 *
 * Linked into tests named test_*_faults.c, whose own definitions of these libc functions come
 * before libc's in every shared library of the process. Only calls by liblathe, its plugins and the
 * libraries that it links (jansson, OpenSSL, PCRE2, toml++, utf8proc, libstdc++) are counted and
 * fail; calls by the test, Criterion, libgomp, oneDNN and libc itself succeed. Calls by a plugin
 * that is loaded after inject_arm() also succeed. Calls of all threads share one count.
 *
 *     inject_arm(INJECT_DISK, 0, 0, 0);          // counts only
 *     save(run);
 *     const int64_t n = inject_disarm();
 *     for (int64_t i = 1; i <= n; i++) {
 *         inject_arm(INJECT_DISK, i, 1, ENOSPC); // the i-th call fails
 *         status = save(run);
 *         inject_disarm();
 *         ...                                    // inject_last() says which call it was
 *     }
 */
#ifndef LATHE_TEST_INJECT_H
#define LATHE_TEST_INJECT_H

#include <stdint.h>

/* Sets of calls. A failing write writes half of its bytes first; a failing close closes the file.
 * fprintf and fputs write to stdio's buffer and fail at the next fflush or fclose. */
enum {
    INJECT_WRITE = 1 << 0,   /* write pwrite fwrite */
    INJECT_SYNC = 1 << 1,    /* fsync fdatasync */
    INJECT_RENAME = 1 << 2,  /* rename renameat */
    INJECT_MKDIR = 1 << 3,   /* mkdir mkdirat */
    INJECT_OPEN = 1 << 4,    /* open openat fopen opendir fdopendir */
    INJECT_CLOSE = 1 << 5,   /* close fclose fflush */
    INJECT_SIZE = 1 << 6,    /* ftruncate posix_fallocate */
    INJECT_REMOVE = 1 << 7,  /* unlink unlinkat rmdir */
    INJECT_READ = 1 << 8,    /* read pread fread */
    INJECT_MAP = 1 << 9,     /* mmap */
    INJECT_MALLOC = 1 << 10, /* malloc calloc realloc aligned_alloc posix_memalign strdup strndup */
    INJECT_DISK = INJECT_WRITE | INJECT_SYNC | INJECT_RENAME | INJECT_MKDIR | INJECT_OPEN |
                  INJECT_CLOSE | INJECT_SIZE,
    INJECT_LOAD = INJECT_OPEN | INJECT_READ | INJECT_MAP,
};

/** Why injection is impossible in this build (a sanitizer with its own malloc), or NULL. */
const char *inject_unsupported(void);

/** From now on counts the `calls`, and makes call number `first` (from 1; 0: none) and the
 *  following n - 1 fail with errno = error. n INT64_MAX: all following calls fail, as on a full
 *  disk. */
void inject_arm(uint32_t calls, int64_t first, int64_t n, int error);

/** Stops counting and failing; returns the number of calls counted. */
int64_t inject_disarm(void);

/** Like inject_arm(calls, 0, 0, 0), and notes from which place in the program each call comes: its
 *  stack of up to INJECT_FRAMES callers. */
void inject_arm_places(uint32_t calls);
enum { INJECT_FRAMES = 16 };

/** After inject_disarm(): writes the numbers of the first and the last call from each place, in
 *  ascending order, to out; returns how many there are. Calls between them take the same way
 * through the program. out: room for as many numbers as inject_disarm() returned. */
int64_t inject_places(int64_t *out);

/** How many calls failed since inject_arm(). */
int64_t inject_failed(void);

/** The first call that failed: "fsync, call 3, from liblathe.so.0+0x1f2a0" (for addr2line). With
 * INJECT_TRACE in the environment each one's stack goes to stderr. */
const char *inject_last(void);

/** The library that made the first call that failed. */
enum { INJECT_NOWHERE, INJECT_IN_LATHE, INJECT_IN_JANSSON, INJECT_IN_LIBSTDCXX, INJECT_IN_ANOTHER };
int inject_last_library(void);
/** The set of the first call that failed: INJECT_CLOSE, ...; 0: none failed. */
uint32_t inject_last_set(void);

/** Number of live heap blocks in the process. An action that fails twice leaks if the number after
 *  the second time differs from the number after the first. */
int64_t inject_live_blocks(void);

/** Returns the live heap bytes of the process, and starts recording their maximum. */
int64_t inject_peak_begin(void);
int64_t inject_peak_bytes(void);

#endif
