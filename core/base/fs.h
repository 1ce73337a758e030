/* Files and folders: whole reads, maps, durable atomic writes, listings. Errors name path and
 * cause. */
#ifndef LATHE_BASE_FS_H
#define LATHE_BASE_FS_H

#include "base/arena.h"
#include "base/map.h"
#include "lathe/status.h"

/** Opens a regular file for reading and tells its size. LATHE_E_CONFIG: a pipe, socket, device or folder, which
 *  is never waited for. */
lathe_status lathe_file_open(const char *path, int *out_fd, int64_t *out_bytes);

/** "a named pipe (FIFO)": what an st_mode stands for. */
const char *lathe_mode_text(uint32_t mode);

/** Reads a whole file into malloc'ed memory with a NUL behind it. Refuses more than limit bytes (0:
 * none). */
lathe_status lathe_file_read(const char *path, int64_t limit, char **out_data, int64_t *out_bytes);

/** Writes beside (path.tmp.PID), fsyncs, renames over path, fsyncs the folder. */
lathe_status lathe_file_write_atomic(const char *path, const void *data, int64_t bytes);

/** Writes a file that a user named. A symbolic link is followed, and its target is replaced atomically as above.
 *  What is no regular file (a device, a pipe) is written to and keeps its place; a folder is refused. */
lathe_status lathe_file_write_output(const char *path, const void *data, int64_t bytes);

/** fsync of the folder that holds path. */
lathe_status lathe_file_sync_parent(const char *path);

/** fsync of a folder, so that renames in it are durable. */
lathe_status lathe_dir_sync(const char *path);
/** mkdir -p. */
lathe_status lathe_dir_create(const char *path);
/** Removes a folder and all in it; a missing one is fine. Never follows links. */
lathe_status lathe_dir_remove(const char *path);
/** Sorted names of the entries of a folder, without "." and "..". */
lathe_status lathe_dir_list(const char *path, lathe_arena *arena, char ***out_names,
                            int64_t *out_n);
/** Sorted paths of the regular files below a folder, recursively, and of what is neither a regular file nor a folder:
 *  pipes, sockets, devices, links to folders and links that lead nowhere. */
lathe_status lathe_dir_walk_all(const char *path, lathe_arena *arena, char ***out_paths,
                                int64_t *out_n, char ***out_others, int64_t *out_n_others);
/** Sorted paths of the regular files below a folder, recursively. */
lathe_status lathe_dir_walk(const char *path, lathe_arena *arena, char ***out_paths,
                            int64_t *out_n);

/** The files that a pattern matches, sorted. * and ? do not match '/' nor a dot at a name's start; **
 *  stands for any number of folders; of a folder that matches, all files count. */
lathe_status lathe_path_glob(const char *pattern, lathe_arena *arena, char ***out_paths,
                             int64_t *out_n);

int lathe_path_exists(const char *path);
int lathe_path_is_dir(const char *path);
/** dir + "/" + name; an absolute name stays as it is. */
char *lathe_path_join(lathe_arena *arena, const char *dir, const char *name);

#endif
