/* Checks the folder of another model of a run. */
#include "run/parts/other_model.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "checkpoint/state/model_folder.h"
#include "files/gguf/model_files.h"
#include "tokenizer/json/tokenizer_file.h"

lathe_status lathe__run_check_whole(const lathe_run *run, const char *section, const char *key,
                                    const char *folder, const char *what)
{
    char hint[LATHE_HUB_HINT];
    if (!lathe_path_is_model(folder))
        return lathe__run_refuse(run, section, key,
                                 lathe_path_exists(folder)
                                     ? "%s.%s: a file, expected a folder: %s%s"
                                     : "%s.%s: no such folder: %s%s",
                                 section, key, folder,
                                 lathe_hub_hint_of(lathe_config_written(run->config, folder),
                                                   folder, hint, sizeof hint));
    if (!lathe_folder_has_adapter(folder))
        return LATHE_OK;
    return lathe__run_refuse(
        run, section, key,
        "%s.%s = \"%s\" holds an adapter%s, and %s is a whole model; lathe merge %s -o OUT makes "
        "one of it",
        section, key, folder, lathe_model_has(folder, "config.json") ? " beside its model" : "",
        what, folder);
}

/* The first id whose token differs; -1: none. */
static int32_t first_other(const lathe_tokenizer *a, const lathe_tokenizer *b)
{
    const int64_t n_a = lathe_tokenizer_vocab_size(a), n_b = lathe_tokenizer_vocab_size(b);
    const int64_t n = n_a > n_b ? n_a : n_b;
    for (int32_t id = 0; id < n; id++) {
        int64_t in_a = 0, in_b = 0;
        const char *x = id < n_a ? lathe_tokenizer_token(a, id, &in_a) : NULL;
        const char *y = id < n_b ? lathe_tokenizer_token(b, id, &in_b) : NULL;
        if (!x != !y || in_a != in_b || (x && memcmp(x, y, (size_t)in_a) != 0))
            return id;
    }
    return -1;
}

/* Refuses a tokenizer that gives another text to an id, and a model that has no row for one of its
 * ids. Rows beyond the tokenizer's ids fill up an embedding, so their number may differ: Qwen2.5
 * has 151936 rows up to 3B and 152064 above, for one tokenizer of 151665. */
static lathe_status compare(const lathe_run *run, const char *section, const char *key,
                            const char *folder, const char *what, int64_t vocab)
{
    lathe_tokenizer *other = NULL;
    LATHE_TRY(lathe_tokenizer_load(folder, &other));
    const int32_t id = first_other(run->data.tokenizer, other);
    lathe_tokenizer_destroy(other);
    if (id >= 0)
        return lathe__run_refuse(
            run, section, key,
            "%s.%s = \"%s\": %s has another vocabulary: token %d differs; expected "
            "a model with the tokenizer of the run",
            section, key, folder, what, id);
    const int64_t n = lathe_tokenizer_vocab_size(run->data.tokenizer);
    if (vocab >= n)
        return LATHE_OK;
    return lathe__run_refuse(run, section, key,
                             "%s.%s = \"%s\": %s has %lld rows of vocabulary, fewer than the %lld "
                             "tokens of its tokenizer; expected a row for each token",
                             section, key, folder, what, (long long)vocab, (long long)n);
}

lathe_status lathe__run_check_vocabulary(const lathe_run *run, const char *section, const char *key,
                                         const char *folder, const char *what,
                                         const lathe_model_config *other, int32_t exact)
{
    if (run->data.tokenizer && lathe_model_has(folder, "tokenizer.json"))
        return compare(run, section, key, folder, what, other->vocab);
    if (exact && other->vocab != run->model.vocab)
        return lathe__run_refuse(
            run, section, key,
            "%s.%s = \"%s\": %s has a vocabulary of %lld tokens, and the model "
            "one of %lld, without tokenizers that could be compared; expected the same vocabulary",
            section, key, folder, what, (long long)other->vocab, (long long)run->model.vocab);
    return LATHE_OK;
}
