/* Files and folders: whole reads, memory maps, durable atomic writes, listings. Error messages
 * contain the path and the cause. */
#ifndef LATHE_BASE_FS_H
#define LATHE_BASE_FS_H

#include <stdio.h>

#include "base/arena.h"
#include "lathe/status.h"

/** Opens a regular file for reading and returns its size. A pipe, socket, device or folder gives
 *  LATHE_E_CONFIG at once, without waiting for it; so does a pointer of Git LFS. */
lathe_status lathe_file_open(const char *path, int *out_fd, int64_t *out_bytes);

/** lathe_file_open as a stream, for the caller to close; NULL after an error. */
lathe_status lathe_file_stream(const char *path, FILE **out);

/** Opens a regular file or a character device for appending, and creates a file that does not
 * exist. Anything else gives an error at once, as with lathe_file_open. */
lathe_status lathe_file_append(const char *path, int *out_fd);

/** Name of the file type in an st_mode, for messages: "a named pipe (FIFO)". */
const char *lathe_mode_text(uint32_t mode);

/** Reads a whole file into malloc'ed memory and adds a NUL. Refuses a file of more than limit
 *  bytes (0: no limit). */
lathe_status lathe_file_read(const char *path, int64_t limit, char **out_data, int64_t *out_bytes);

/** Writes path.tmp.PID, fsyncs it, renames it to path, fsyncs the folder. */
lathe_status lathe_file_write_atomic(const char *path, const void *data, int64_t bytes);

/** fsync of the folder that holds path. */
lathe_status lathe_file_sync_parent(const char *path);

/** fsync of a folder, so that renames in it are durable. */
lathe_status lathe_dir_sync(const char *path);
/** mkdir -p. */
lathe_status lathe_dir_create(const char *path);
/** Removes a folder and everything in it; a folder that does not exist is fine. Never follows
 *  links. */
lathe_status lathe_dir_remove(const char *path);
/** Sorted names of the entries of a folder, without "." and "..". */
lathe_status lathe_dir_list(const char *path, lathe_arena *arena, char ***out_names,
                            int64_t *out_n);
/** Sorted paths of the regular files below a folder, recursively. out_others gets the sorted
 *  paths of pipes, sockets, devices, links to folders and broken links. */
lathe_status lathe_dir_walk_all(const char *path, lathe_arena *arena, char ***out_paths,
                                int64_t *out_n, char ***out_others, int64_t *out_n_others);
/** Sorted paths of the regular files below a folder, recursively. */
lathe_status lathe_dir_walk(const char *path, lathe_arena *arena, char ***out_paths,
                            int64_t *out_n);

/** Sorted paths of the files that a pattern matches. * and ? match neither '/' nor a dot at the
 *  start of a name; ** matches any number of folders; if the pattern matches a folder, all files
 *  in it are returned. */
lathe_status lathe_path_glob(const char *pattern, lathe_arena *arena, char ***out_paths,
                             int64_t *out_n);

int lathe_path_exists(const char *path);
int lathe_path_is_dir(const char *path);
/** Returns dir + "/" + name; an absolute name is returned unchanged. */
char *lathe_path_join(lathe_arena *arena, const char *dir, const char *name);

#endif
