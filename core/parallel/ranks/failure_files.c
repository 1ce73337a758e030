/* Files in the launcher's folder of this job. */
#include "parallel/ranks/failure_files.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Open MPI 4 sets both for its processes, PMIx the first one. */
static int path_of(const char *name, int32_t rank, const char *end, char path[PATH_MAX])
{
    const char *dir = getenv("PMIX_SERVER_TMPDIR");
    if (dir == NULL)
        dir = getenv("OMPI_MCA_orte_jobfam_session_dir");
    if (dir == NULL || dir[0] != '/')
        return 0;
    return snprintf(path, PATH_MAX, "%s/lathe-%s-%d%s", dir, name, rank, end) < PATH_MAX;
}

int32_t lathe__failure_file_write(const char *name, int32_t rank, const void *bytes, int64_t n)
{
    char path[PATH_MAX], part[PATH_MAX];
    if (!path_of(name, rank, "", path) || !path_of(name, rank, ".part", part))
        return 0;
    const int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return 0;
    const int is_written = write(fd, bytes, (size_t)n) == (ssize_t)n;
    return close(fd) == 0 && is_written && rename(part, path) == 0;
}

int32_t lathe__failure_file_read(const char *name, int32_t rank, void *bytes, int64_t n)
{
    char path[PATH_MAX];
    if (!path_of(name, rank, "", path))
        return 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    const int is_read = read(fd, bytes, (size_t)n) == (ssize_t)n;
    (void)close(fd);
    return is_read;
}
