/* Runs a fuzz target over files, without a fuzzer, so that earlier findings stay tested. */
#include <stdio.h>

#include "base/error.h"
#include "base/fs.h"
#include "fuzz/fuzz_file.h"

int main(int argc, char **argv)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    int64_t n = 0;
    char **paths = NULL;
    if (argc != 2 || lathe_dir_walk(argv[1], &arena, &paths, &n) != LATHE_OK) {
        (void)fprintf(stderr, "usage: %s CORPUS\n%s\n", argv[0], lathe_error_message());
        return 2;
    }
    for (int64_t i = 0; i < n; i++) {
        char *data = NULL;
        int64_t bytes = 0;
        (void)printf("%s\n", paths[i]);
        (void)fflush(stdout); /* the last line names the file that crashes */
        if (lathe_file_read(paths[i], 0, &data, &bytes) != LATHE_OK)
            return 2;
        (void)LLVMFuzzerTestOneInput((const uint8_t *)data, (size_t)bytes);
        free(data);
    }
    lathe_arena_fini(&arena);
    return n > 0 ? 0 : 2;
}
