/* libFuzzer target: any bytes as a model.safetensors.index.json beside two shards. If it opens,
 * every tensor is where the index says. */
#include <string.h>

#include "base/fs.h"
#include "files/safetensors/safetensors.h"
#include "fuzz/fuzz_file.h"

static char folder[64];

static void put(const char *name, const void *data, size_t size)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

/* A shard with one tensor of two bytes. */
static void put_shard(const char *file, const char *tensor)
{
    uint8_t image[160] = {0};
    const int n =
        snprintf((char *)image + 8, sizeof image - 8,
                 "{\"%s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", tensor);
    image[0] = (uint8_t)n;
    put(file, image, 8 + (size_t)n + 2);
}

static void leave(void)
{
    (void)lathe_dir_remove(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_safetensors *set = NULL;
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "/tmp/lathe-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL || atexit(leave) != 0)
            abort();
        put_shard("a.safetensors", "x");
        put_shard("b.safetensors", "y");
    }
    put("model.safetensors.index.json", data, size);
    if (lathe_safetensors_open(folder, &set) != LATHE_OK)
        return 0;
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        const char *base = strrchr(t->file, '/');
        if (base == NULL ||
            strcmp(base + 1, t->name[0] == 'x' ? "a.safetensors" : "b.safetensors") != 0 ||
            strncmp(t->file, folder, strlen(folder)) != 0)
            abort();
    }
    lathe_safetensors_close(set);
    return 0;
}
