/* libFuzzer target: any bytes as the "meta" of a checkpoint's manifest, with the correct last line,
 * read as a lineage. */
#include <jansson.h>

#include "base/fs.h"
#include "checkpoint/lineage/lineage.h"
#include "files/safetensors/manifest.h"
#include "fuzz/fuzz_file.h"

static char folder[64];

static void leave(void)
{
    (void)lathe_dir_remove(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    char path[128];
    json_t *node = NULL;
    int64_t n = 0;
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "/tmp/lathe-fuzz-XXXXXX");
        if (mkdtemp(folder) == NULL || atexit(leave) != 0)
            abort();
    }
    lathe_buffer_puts(&text,
                      "{\n  \"format\": \"lathe-manifest\",\n  \"version\": 2,\n  \"meta\": ");
    lathe_buffer_append(&text, data, (int64_t)size);
    lathe_buffer_puts(&text, ",\n  \"files\": {\n  },\n");
    if (lathe_manifest_seal(&text) != LATHE_OK)
        abort();
    (void)snprintf(path, sizeof path, "%s/%s", folder, LATHE_MANIFEST_NAME);
    if (lathe_file_write_atomic(path, text.data, text.len) != LATHE_OK)
        abort();
    lathe_buffer_fini(&text);
    if (lathe_lineage_read(folder, 1, &node, &n) == LATHE_OK)
        json_decref(node);
    return 0;
}
