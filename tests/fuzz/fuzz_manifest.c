/* libFuzzer target: any bytes as the manifest.json of a folder that holds two small files. */
#include "base/fs.h"
#include "fuzz/fuzz_file.h"
#include "io/manifest.h"

static char folder[64];

static void put(const char *name, const void *data, size_t size)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void leave(void)
{
    (void)lathe_dir_remove(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *meta = NULL;
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "/tmp/lathe-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL || atexit(leave) != 0)
            abort();
        put("a", "abc", 3);
        put("b", "", 0);
    }
    put(LATHE_MANIFEST_NAME, data, size);
    if (lathe_manifest_verify(folder) != LATHE_OK)
        (void)lathe_manifest_meta(folder, &meta);
    else if (lathe_manifest_meta(folder, &meta) != LATHE_OK)
        abort();
    free(meta);
    return 0;
}
