/* Reads from a folder's manifest whether its model was trained on raw bytes. */
#include "checkpoint/state/folder_tokenizer.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/state/parents.h"
#include "files/gguf/model_files.h"
#include "files/safetensors/manifest.h"

/* 1: the "meta" of a manifest with these files says that the run read bytes, without a tokenizer.
 */
static int says_bytes(const json_t *meta, const json_t *files)
{
    const json_t *config = json_object_get(meta, "config");
    const json_t *tokenizer = json_object_get(config, "tokenizer");
    const char *made = json_string_value(json_object_get(meta, "tokenizer"));
    const char *path = json_string_value(json_object_get(tokenizer, "path"));
    if (made || path)
        return strcmp(path ? path : made, "bytes") == 0;
    /* a run that trained a tokenizer saves it, so here it is lost */
    return json_is_object(config) && !json_is_object(json_object_get(tokenizer, "train")) &&
           (json_object_get(files, "tokenizer.json") == NULL);
}

lathe_status lathe_folder_reads_bytes(const char *dir, lathe_arena *arena, int *out)
{
    json_t *manifest = NULL;
    *out = 0;
    const char *from = NULL;
    if (lathe_path_is_dir(dir))
        LATHE_TRY(lathe__manifest_folder(dir, arena, &from));
    if (from == NULL)
        return LATHE_OK;
    const lathe_status status = lathe_model_json(from, LATHE_MANIFEST_NAME, &manifest);
    if (status == LATHE_OK)
        *out = says_bytes(json_object_get(manifest, "meta"), json_object_get(manifest, "files"));
    else
        lathe_error_clear(); /* whoever reads the weights says that it is damaged */
    json_decref(manifest);
    return status == LATHE_E_NOMEM ? status : LATHE_OK;
}
