/* Counts the distinct pieces of a corpus. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/splitter.h"
#include "tokenizer/train/bpe_train.h"

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
            if (counts == NULL)
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

/* Puts U+2581 for each space and before the text, and counts a piece from each U+2581 to the next.
 * `scratch` holds the rewritten text. */
static lathe_status count_metaspace(lathe_words *words, const uint8_t *text, int64_t n,
                                    lathe_buffer *scratch)
{
    static const char mark[] = LATHE_METASPACE;
    const int64_t n_mark = sizeof mark - 1;
    scratch->len = 0;
    if (n > 0 && text[0] != ' ' && (n < n_mark || memcmp(text, mark, (size_t)n_mark) != 0))
        lathe_buffer_puts(scratch, mark);
    for (int64_t i = 0; i < n;) {
        const uint8_t *space = memchr(text + i, ' ', (size_t)(n - i));
        int64_t end = space ? space - text : n;
        while (i < end) { /* the parts that are valid UTF-8 */
            const int64_t valid = lathe_utf8_prefix(text + i, end - i);
            lathe_buffer_append(scratch, text + i, valid);
            i += valid + (i + valid < end);
        }
        if (space) {
            lathe_buffer_puts(scratch, mark);
            i = end + 1;
        }
    }
    LATHE_TRY(scratch->status);
    const uint8_t *all = (const uint8_t *)scratch->data;
    for (int64_t i = 0, end; i < scratch->len; i = end) {
        const uint8_t *next = i + n_mark < scratch->len
                                  ? memmem(all + i + n_mark, (size_t)(scratch->len - i - n_mark),
                                           mark, (size_t)n_mark)
                                  : NULL;
        end = next ? next - all : scratch->len;
        LATHE_TRY(count_piece(words, all + i, end - i));
    }
    return LATHE_OK;
}

lathe_status lathe__words_count(lathe_words *words, const lathe_tokenizer *splits,
                                lathe_text_fn next, void *arg)
{
    lathe_splitter splitter;
    lathe_buffer scratch = LATHE_BUFFER_INIT;
    memset(&splitter, 0, sizeof splitter);
    if (splits)
        lathe__splitter_init(&splitter, splits, count_piece, words);
    lathe_status status;
    for (;;) {
        const char *text = NULL;
        int64_t n = 0;
        status = next(arg, &text, &n);
        if (status != LATHE_OK || text == NULL)
            break;
        status = splits ? lathe__splitter_run(&splitter, (const uint8_t *)text, n)
                        : count_metaspace(words, (const uint8_t *)text, n, &scratch);
        if (status != LATHE_OK)
            break;
    }
    lathe__splitter_fini(&splitter);
    lathe_buffer_fini(&scratch);
    return status;
}

void lathe__words_fini(lathe_words *words)
{
    lathe__vocab_fini(&words->pieces);
    free(words->counts);
    memset(words, 0, sizeof *words);
}
