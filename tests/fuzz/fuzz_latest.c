/* libFuzzer target: any bytes as the `latest` of a folder of checkpoints. The path that it names
 * must be inside the folder. */
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "fuzz/fuzz_file.h"

static char folder[64], latest[96];

static void leave(void)
{
    (void)lathe_dir_remove(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *name = NULL, *path = NULL;
    int64_t step = 0;
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "/tmp/lathe-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL || atexit(leave) != 0)
            abort();
        (void)snprintf(latest, sizeof latest, "%s/step-00000007", folder);
        if (mkdir(latest, 0777) != 0)
            abort();
        (void)snprintf(latest, sizeof latest, "%s/latest", folder);
    }
    FILE *const file = fopen(latest, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    if (lathe_checkpoint_pointer(folder, "latest", &arena, &name) == LATHE_OK &&
        (name == NULL || strchr(name, '/') != NULL || !lathe_checkpoint_step(name, &step) ||
         step < 0))
        abort();
    if (lathe_checkpoint_resolve(&arena, latest, &path) == LATHE_OK &&
        strncmp(path, folder, strlen(folder)) != 0)
        abort();
    lathe_arena_fini(&arena);
    return 0;
}
