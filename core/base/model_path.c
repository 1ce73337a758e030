/* Tells GGUF files from folders and from other files. */
#include "base/model_path.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

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

int32_t lathe_path_is_gguf(const char *path)
{
    static const char end[] = ".gguf";
    const size_t n = strlen(path), n_end = sizeof end - 1;
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) /* a pipe must not be opened */
        return 0;
    return (n > n_end && strcmp(path + n - n_end, end) == 0) || lathe_file_begins_as_gguf(path);
}

int32_t lathe_path_is_model(const char *path)
{
    return lathe_path_is_dir(path) || lathe_path_is_gguf(path);
}
