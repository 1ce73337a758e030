/* libFuzzer target: any bytes as the manifest.json of a folder with two small files: once as they
 * are, and once with the correct last line, because otherwise its check would hide everything
 * else. */
#include "base/fs.h"
#include "files/safetensors/manifest.h"
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

static void leave(void)
{
    (void)lathe_dir_remove(folder);
}

static void check(void)
{
    char *meta = NULL;
    if (lathe_manifest_verify(folder) != LATHE_OK)
        (void)lathe_manifest_meta(folder, &meta);
    else if (lathe_manifest_meta(folder, &meta) != LATHE_OK)
        abort();
    free(meta);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_buffer sealed = LATHE_BUFFER_INIT;
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "/tmp/lathe-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL || atexit(leave) != 0)
            abort();
        put("a", "abc", 3);
        put("b", "", 0);
    }
    put(LATHE_MANIFEST_NAME, data, size);
    check();
    lathe_buffer_append(&sealed, data, (int64_t)size);
    if (lathe_manifest_seal(&sealed) != LATHE_OK)
        abort();
    put(LATHE_MANIFEST_NAME, sealed.data, (size_t)sealed.len);
    lathe_buffer_fini(&sealed);
    check();
    return 0;
}
