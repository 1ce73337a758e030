/* Checks the word of a command that names a model. */
#include "session/model_word.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"

/* Whether the name is that of a file of weights, which must not be read as TOML. */
static int is_weights(const char *path)
{
    static const char *const ends[] = {".safetensors", ".bin", ".pt", ".pth", ".onnx"};
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t n_end = strlen(ends[i]);
        if (n > n_end && strcmp(path + n - n_end, ends[i]) == 0)
            return 1;
    }
    return 0;
}

lathe_status lathe_model_word_check(const char *word)
{
    static const char expected[] =
        "expected the folder of a model (with config.json and "
        "*.safetensors), a GGUF file, a checkpoint, the folder of a run, "
        "or a run file (TOML)";
    char hint[LATHE_HUB_HINT];
    if (!lathe_path_exists(word))
        return lathe_error(LATHE_E_CONFIG, "%s: no such file or folder; %s%s", word, expected,
                           lathe_hub_hint(word, hint, sizeof hint));
    if (is_weights(word))
        return lathe_error(LATHE_E_CONFIG, "%s: a file of weights; %s: name the folder it is in",
                           word, expected);
    return LATHE_OK;
}

lathe_status lathe_model_word_check_weights(const char *word)
{
    char hint[LATHE_HUB_HINT];
    if (!lathe_path_exists(word))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: no such file or folder; expected the folder of a model, or a GGUF "
                           "file%s",
                           word, lathe_hub_hint(word, hint, sizeof hint));
    return lathe_path_is_model(word)
               ? LATHE_OK
               : lathe_error(LATHE_E_CONFIG, "%s: neither a folder nor a GGUF file", word);
}
