/* Reads the files of a model that name tokens. */
#include "files/gguf/token_files.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json/json.h"
#include "files/gguf/model_files.h"

static lathe_status load(lathe_arena *arena, const char *model, const char *name,
                         const char **place, json_t **out)
{
    char *text = NULL;
    int64_t n = 0;
    *place = lathe_model_place(arena, model, name);
    if (*place == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_model_has(model, name))
        return LATHE_OK;
    LATHE_TRY(lathe_model_read(model, name, 0, &text, &n));
    lathe_status status = lathe_json_load_with_nul(*place, text, n, out);
    free(text);
    if (status == LATHE_OK && !json_is_object(*out))
        status = lathe_error(LATHE_E_PARSE, "%s: not a JSON object", *place);
    return status;
}

static lathe_status load_all(lathe_arena *arena, const char *model, lathe_token_files *f)
{
    LATHE_TRY(load(arena, model, "tokenizer_config.json", &f->config_place, &f->config));
    if (json_object_get(f->config, "added_tokens_decoder"))
        return LATHE_OK; /* then transformers reads neither of the others */
    LATHE_TRY(load(arena, model, "special_tokens_map.json", &f->map_place, &f->map));
    return load(arena, model, "added_tokens.json", &f->added_place, &f->added);
}

lathe_status lathe_token_names_read(const char *model, lathe_token_names *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_token_files files = {0};
    *out = (lathe_token_names){NULL, NULL, -1};
    lathe_status status = load_all(&arena, model, &files);
    if (status == LATHE_OK)
        status = lathe_token_names_of(&files, out);
    json_decref(files.config);
    json_decref(files.map);
    json_decref(files.added);
    lathe_arena_fini(&arena);
    return status;
}
