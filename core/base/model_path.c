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
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

const char *lathe_hub_hint_of(const char *written, const char *path, char *out, size_t capacity)
{
    char parent[PATH_MAX];
    const char *slash = strchr(written, '/'), *last = strrchr(path, '/');
    out[0] = '\0';
    if (slash == NULL || !is_hub_word(written, (size_t)(slash - written)) ||
        !is_hub_word(slash + 1, strlen(slash + 1)))
        return out;
    if (last == NULL || (size_t)(last - path) >= sizeof parent || lathe_path_exists(path))
        return out;
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(last - path), path);
    if (!lathe_path_exists(parent))
        (void)snprintf(out, capacity, "; on the Hugging Face Hub? hf download %s --local-dir %s",
                       written, path);
    return out;
}

const char *lathe_hub_hint(const char *path, char *out, size_t capacity)
{
    return lathe_hub_hint_of(path, path, out, capacity);
}

int32_t lathe_folder_holds(const char *dir, const char *name)
{
    char path[PATH_MAX]; /* the system knows no longer ones */
    const int n = snprintf(path, sizeof path, "%s/%s", dir[0] != '\0' ? dir : ".", name);
    return n > 0 && n < (int)sizeof path && lathe_path_exists(path);
}

/* Tells of the folders in `path` that have the file `name`. what: "an adapter". */
static const char *hint_of(const char *path, const char *name, const char *what, char *out)
{
    char config[PATH_MAX], first[NAME_MAX + 1] = "";
    int n = 0;
    DIR *dir = opendir(path);
    out[0] = '\0';
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        const int bytes = snprintf(config, sizeof config, "%s/%s/%s", path, e->d_name, name);
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
                       "; %d of its folders hold%s %s, such as %s/%s: name one of them", n,
                       n == 1 ? "s" : "", what, path, first);
    return out;
}

const char *lathe_adapters_hint(const char *path, char *out)
{
    return hint_of(path, "adapter_config.json", "an adapter", out);
}

const char *lathe_models_hint(const char *path, char *out)
{
    return lathe_adapters_hint(path, out)[0] != '\0' ? out
                                                     : hint_of(path, "config.json", "a model", out);
}

int32_t lathe_path_is_model(const char *path)
{
    return lathe_path_is_dir(path) || lathe_path_is_gguf(path);
}
