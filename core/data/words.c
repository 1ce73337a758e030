/* Counting the distinct pieces of a corpus. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/bpe_train.h"

static lathe_status count_piece(void *arg, const uint8_t *piece, int64_t n)
{
    lathe_words *words = arg;
    int32_t id = lathe__vocab_find(&words->pieces, piece, n);
    if (id < 0) {
        if (words->pieces.n == INT32_MAX)
            return lathe_error(LATHE_E_UNSUPPORTED, "more than 2^31 distinct words");
        id = (int32_t)words->pieces.n;
        if (id == words->capacity) {
            const int64_t capacity = words->capacity * 2 + 4096;
            int64_t *counts = realloc(words->counts, (size_t)capacity * sizeof *counts);
            if (!counts)
                return lathe_error(LATHE_E_NOMEM, "%lld distinct words", (long long)capacity);
            words->counts = counts;
            words->capacity = capacity;
        }
        LATHE_TRY(lathe__vocab_put(&words->pieces, id, piece, n, 1));
        words->counts[id] = 0;
    }
    words->counts[id]++;
    return LATHE_OK;
}

lathe_status lathe__words_count(lathe_words *words, const lathe_tokenizer *splits,
                                lathe_text_fn next, void *arg)
{
    lathe_splitter splitter;
    LATHE_TRY(lathe__splitter_init(&splitter, splits, count_piece, words));
    lathe_status status;
    for (;;) {
        const char *text = NULL;
        int64_t n = 0;
        status = next(arg, &text, &n);
        if (status != LATHE_OK || !text)
            break;
        status = lathe__splitter_run(&splitter, (const uint8_t *)text, n);
        if (status != LATHE_OK)
            break;
    }
    lathe__splitter_fini(&splitter);
    return status;
}

void lathe__words_fini(lathe_words *words)
{
    lathe__vocab_fini(&words->pieces);
    free(words->counts);
    memset(words, 0, sizeof *words);
}
