/* Finds how much more memory this process may allocate. */
#include "base/host_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The files have a few kB. */
enum { TEXT_BYTES = 16384, PATH_BYTES = 1024 };

/* Names of the memory controller's files in version 1 and in version 2 of control groups. */
typedef struct group_files {
    const char *limit, *usage; /* files */
    const char *inactive;      /* a key in the file memory.stat */
} group_files;

static const group_files version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                      "total_inactive_file"};
static const group_files version_2 = {"memory.max", "memory.current", "inactive_file"};

/* Reads the beginning of a file in /proc or /sys, for which stat gives no size. 0: the file
 * cannot be read. */
static int read_text(const char *path, char *out, size_t capacity)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const size_t n = fread(out, 1, capacity - 1, file);
    out[n] = '\0';
    (void)fclose(file);
    return 1;
}

/* The number at `text` times `unit`; -1: not a number ("max"), or too large for 64 bits. */
static int64_t parse_number(const char *text, int64_t unit)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || errno != 0 || value < 0 || value > INT64_MAX / unit)
        return -1;
    return (int64_t)value * unit;
}

static int64_t read_number(const char *dir, const char *name)
{
    char path[PATH_BYTES + 64], text[64] = "";
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return read_text(path, text, sizeof text) ? parse_number(text, 1) : -1;
}

/* The number after "key " or "key:" at the beginning of a line; -1: no such line. */
static int64_t find_number(const char *text, const char *key, int64_t unit)
{
    const size_t n = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == ':'))
            return parse_number(line + n + 1, unit);
    }
    return -1;
}

/* Keeps the lowest limit, and what sets it. */
static void apply_limit(lathe_host_memory *out, int64_t available, const char *source)
{
    if (available >= out->available)
        return;
    out->available = available;
    out->is_address_space = 0;
    (void)snprintf(out->source, sizeof out->source, "%.191s", source);
}

/* Applies the limit of one control group. dir: its folder; shown: the same path without the
 * prefix `root`. */
static void read_group(const char *dir, const char *shown, const group_files *files,
                       lathe_host_memory *out)
{
    char path[PATH_BYTES + 64], text[TEXT_BYTES], source[PATH_BYTES + 64];
    const int64_t limit = read_number(dir, files->limit), usage = read_number(dir, files->usage);
    if (limit < 0 || usage < 0)
        return;
    (void)snprintf(path, sizeof path, "%s/memory.stat", dir);
    int64_t cache = read_text(path, text, sizeof text) ? find_number(text, files->inactive, 1) : 0;
    /* pages of files count as usage, but the kernel drops those that are not active first */
    cache = cache < 0 ? 0 : cache > usage ? usage : cache;
    const int64_t held = usage - cache;
    (void)snprintf(source, sizeof source, "%s/%s", shown, files->limit);
    apply_limit(out, limit > held ? limit - held : 0, source);
}

/* Applies the limits of a group and of all its parents. In a container its own group may be the
 * top folder: folders that do not exist are skipped. */
static void read_groups(const char *root, const char *top, const char *group,
                        const group_files *files, lathe_host_memory *out)
{
    char dir[PATH_BYTES];
    const size_t n_root = strlen(root), n_top = n_root + strlen(top);
    /* a path with ".." lies outside this container's name space: only the top applies */
    const char *inside = strstr(group, "..") != NULL ? "" : group;
    if ((size_t)snprintf(dir, sizeof dir, "%s%s%s", root, top, inside) >= sizeof dir)
        return;
    for (;;) {
        size_t n = strlen(dir);
        while (n > n_top && dir[n - 1] == '/')
            dir[--n] = '\0';
        read_group(dir, dir + n_root, files, out);
        char *slash = strrchr(dir, '/');
        if (n <= n_top || slash == NULL || slash < dir + n_top)
            return;
        *slash = '\0';
    }
}

/* Applies one limit of the process, less what the process uses already. 1: this is the lowest
 * limit so far. */
static int read_limit(int resource, const char *status, const char *key, const char *name,
                      lathe_host_memory *out)
{
    struct rlimit limit;
    const int64_t before = out->available;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > (rlim_t)INT64_MAX)
        return 0;
    const int64_t used = find_number(status, key, 1024), bytes = (int64_t)limit.rlim_cur;
    apply_limit(out, used < 0 ? bytes : bytes > used ? bytes - used : 0, name);
    return out->available < before;
}

void lathe_host_limits_read(const char *root, lathe_host_memory *out)
{
    char path[PATH_BYTES], text[TEXT_BYTES] = "";
    *out = (lathe_host_memory){.available = INT64_MAX};
    (void)snprintf(path, sizeof path, "%s/proc/self/status", root);
    if (!read_text(path, text, sizeof text))
        text[0] = '\0';
    (void)read_limit(RLIMIT_DATA, text, "VmData", "RLIMIT_DATA, ulimit -d", out);
    if (read_limit(RLIMIT_AS, text, "VmSize", "RLIMIT_AS, ulimit -v", out))
        out->is_address_space = 1;
}

void lathe_host_memory_read(const char *root, lathe_host_memory *out)
{
    char path[PATH_BYTES], text[TEXT_BYTES] = "";
    lathe_host_limits_read(root, out);
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (read_text(path, text, sizeof text)) {
        const int64_t free_bytes = find_number(text, "MemAvailable", 1024);
        if (free_bytes >= 0)
            apply_limit(out, free_bytes, "MemAvailable of /proc/meminfo");
    }
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_text(path, text, sizeof text))
        return;
    /* The lines read id:controllers:/group; in version 2 the id is 0 and controllers is empty. */
    char *at = NULL;
    for (char *line = strtok_r(text, "\n", &at); line != NULL; line = strtok_r(NULL, "\n", &at)) {
        const char *controllers = strchr(line, ':');
        const char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        if (strncmp(line, "0::", 3) == 0)
            read_groups(root, "/sys/fs/cgroup", group + 1, &version_2, out);
        else if (strncmp(controllers, ":memory:", 8) == 0)
            read_groups(root, "/sys/fs/cgroup/memory", group + 1, &version_1, out);
    }
}
