/* Tells GGUF files from folders and from other files. */
#include "base/model_path.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/utf8.h"

int32_t lathe_file_begins_as_gguf(const char *path)
{
    char magic[4] = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, magic, sizeof magic);
    (void)close(fd);
    return n == (ssize_t)sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
}

static int ends_in(const char *path, const char *end)
{
    const size_t n = strlen(path), n_end = strlen(end);
    return n > n_end && strcmp(path + n - n_end, end) == 0;
}

int32_t lathe_path_is_gguf(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) /* a pipe must not be opened */
        return 0;
    return ends_in(path, ".gguf") || (!ends_in(path, ".toml") && lathe_file_begins_as_gguf(path));
}

/* Whether text[0, n) may be one half of a Hub name. */
static int is_hub_word(const char *text, size_t n)
{
    if (n == 0 || n > 96 || text[0] == '.' || text[0] == '-')
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !lathe_is_one_of(text[i], "._-"))
            return 0;
    return 1;
}

/* A run file's paths are relative to its folder, so the name may have that before it; its own first
 * half is then a folder that does not exist. */
const char *lathe_hub_hint(const char *path, char *out, size_t capacity)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/'), *begin = slash;
    out[0] = '\0';
    if (slash == NULL || (size_t)(slash - path) >= sizeof parent || lathe_path_exists(path))
        return out;
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    while (begin > path && begin[-1] != '/')
        begin--;
    if (!is_hub_word(begin, (size_t)(slash - begin)) ||
        !is_hub_word(slash + 1, strlen(slash + 1)) || lathe_path_exists(parent) ||
        (begin == path + 1 && path[0] == '/'))
        return out;
    (void)snprintf(out, capacity, "; on the Hugging Face Hub? hf download %s --local-dir %s", begin,
                   path);
    return out;
}

int32_t lathe_folder_holds(const char *dir, const char *name)
{
    char path[PATH_MAX]; /* the system knows no longer ones */
    const int n = snprintf(path, sizeof path, "%s/%s", dir[0] != '\0' ? dir : ".", name);
    return n > 0 && n < (int)sizeof path && lathe_path_exists(path);
}

const char *lathe_adapters_hint(const char *path, char *out)
{
    char config[PATH_MAX], first[NAME_MAX + 1] = "";
    int n = 0;
    DIR *dir = opendir(path);
    out[0] = '\0';
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        const int bytes =
            snprintf(config, sizeof config, "%s/%s/adapter_config.json", path, e->d_name);
        if (e->d_name[0] == '.' || bytes < 0 || (size_t)bytes >= sizeof config ||
            !lathe_path_exists(config))
            continue;
        if (n++ == 0 || strcmp(e->d_name, first) < 0)
            (void)snprintf(first, sizeof first, "%s", e->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    if (n > 0)
        (void)snprintf(out, LATHE_HUB_HINT,
                       "; %d of its folders hold%s an adapter, such as %s/%s: name one of them", n,
                       n == 1 ? "s" : "", path, first);
    return out;
}

int32_t lathe_path_is_model(const char *path)
{
    return lathe_path_is_dir(path) || lathe_path_is_gguf(path);
}
