/* Compares the tokenizer of a run with that of the model it begins with. */
#include "run/folder/other_tokenizer.h"

#include <string.h>

#include "files/gguf/model_files.h"
#include "tokenizer/json/tokenizer_file.h"

/* Whether the id has the same text in both. */
static int is_same(const lathe_tokenizer *a, const lathe_tokenizer *b, int32_t id)
{
    int64_t in_a = 0, in_b = 0;
    const char *x = lathe_tokenizer_token(a, id, &in_a);
    const char *y = id < lathe_tokenizer_vocab_size(b) ? lathe_tokenizer_token(b, id, &in_b) : NULL;
    return x == NULL || (y && in_a == in_b && memcmp(x, y, (size_t)in_a) == 0);
}

lathe_status lathe__other_tokenizer_warn(const lathe_run *run)
{
    const char *model = run->set.model_path, *own = run->set.tokenizer_path;
    lathe_tokenizer *of_model = NULL;
    if (model == NULL || own == NULL || run->data.tokenizer == NULL ||
        !lathe_model_has(model, "tokenizer.json"))
        return LATHE_OK;
    LATHE_TRY(lathe_tokenizer_load(model, &of_model));
    const int64_t n = lathe_tokenizer_vocab_size(of_model);
    int64_t n_other = 0;
    for (int32_t id = 0; id < n; id++)
        n_other += !is_same(of_model, run->data.tokenizer, id);
    lathe_tokenizer_destroy(of_model);
    if (n_other > 0)
        lathe__run_warn(
            run, "tokenizer", "path",
            "tokenizer.path = \"%s\" is not the tokenizer of the model %s: %lld of the "
            "model's %lld tokens have another text in it or none, so what the model has "
            "learnt of them is lost; remove the key to use the model's own",
            own, model, (long long)n_other, (long long)n);
    return LATHE_OK;
}
