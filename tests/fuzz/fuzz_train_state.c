/* libFuzzer target: any bytes as the state/run.json of a checkpoint, for a run with an optimizer
 * and a scheduler but without tensors. A refused file leaves the run unchanged. */
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "checkpoint/state/train_state.h"
#include "fuzz/fuzz_file.h"
#include "run/state/run_saved.h"
#include "run/state/run_state.h"

static char folder[64], json[96];

static void leave(void)
{
    (void)lathe_dir_remove(folder);
}

static void put(const char *path, const void *data, size_t size)
{
    FILE *const file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void make_folder(void)
{
    static const uint8_t no_tensors[10] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    (void)snprintf(folder, sizeof folder, "/tmp/lathe-fuzz-XXXXXX");
    if (mkdtemp(folder) == NULL || atexit(leave) != 0)
        abort();
    (void)snprintf(json, sizeof json, "%s/state", folder);
    if (mkdir(json, 0777) != 0)
        abort();
    (void)snprintf(json, sizeof json, "%s/state/optimizer.safetensors", folder);
    put(json, no_tensors, sizeof no_tensors);
    (void)snprintf(json, sizeof json, "%s/state/run.json", folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lathe_plugin optimizer_plugin = {.name = "adamw"},
                              scheduler_plugin = {.name = "cosine"},
                              stage_plugin = {.name = "pretrain"};
    static const lathe_component optimizer = {.plugin = &optimizer_plugin},
                                 scheduler = {.plugin = &scheduler_plugin},
                                 stage = {.plugin = &stage_plugin};
    if (folder[0] == '\0')
        make_folder();
    put(json, data, size);
    lathe_run *const run = calloc(1, sizeof *run);
    if (run == NULL)
        return 0;
    run->parts.optimizer.component = &optimizer;
    run->parts.scheduler.component = &scheduler;
    run->parts.stage.component = &stage;
    run->at.step = 41;
    if (lathe__train_state_read(lathe__run_saved(run), folder, 0) != LATHE_OK && run->at.step != 41)
        abort();
    lathe_arena_fini(&run->arena);
    free(run);
    return 0;
}
