/* Splits text into the pieces whose bytes are merged: by a scanner if one is written for the
 * expression, else by the regular expressions of tokenizer.json through PCRE2, compiled to machine
 * code, with limits on time and memory. */
#include "tokenizer/encode/splitter.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode/char_class.h"
#include "tokenizer/unicode/scanner.h"

lathe_status lathe__split_compile(lathe_tokenizer *tok, const char *place, const char *pattern)
{
    if (tok->n_splits == LATHE_MAX_SPLITS)
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: more than %d splits", place, LATHE_MAX_SPLITS);
    tok->scans[tok->n_splits] = lathe__scan_of(pattern);
    int jit = 1;
    if (tok->scans[tok->n_splits] == LATHE_SCAN_NONE)
        LATHE_TRY(lathe__regex_compile(place, pattern, &tok->splits[tok->n_splits], &jit));
    tok->jit = jit && (tok->n_splits == 0 || tok->jit);
    tok->n_splits++;
    return LATHE_OK;
}

void lathe__splitter_init(lathe_splitter *splitter, const lathe_tokenizer *tok, lathe_piece_fn emit,
                          void *arg)
{
    memset(splitter, 0, sizeof *splitter);
    splitter->tok = tok;
    splitter->emit = emit;
    splitter->arg = arg;
    splitter->classes = lathe__char_classes();
}

void lathe__splitter_fini(lathe_splitter *splitter)
{
    lathe__matcher_fini(&splitter->matcher);
    free(splitter->prefixed);
    memset(splitter, 0, sizeof *splitter);
}

static lathe_status split(lathe_splitter *splitter, int32_t k, const uint8_t *text, int64_t n);

/* Like split, for a split that has a scanner. Its pieces are adjacent: no text lies between them.
 */
static lathe_status scan(lathe_splitter *splitter, int32_t k, const uint8_t *text, int64_t n)
{
    const int32_t which = splitter->tok->scans[k];
    const int last = k + 1 == splitter->tok->n_splits;
    for (int64_t at = 0, end; at < n; at = end) {
        end = lathe__scan(which, splitter->classes, text, n, at);
        LATHE_TRY(last ? splitter->emit(splitter->arg, text + at, end - at)
                       : split(splitter, k + 1, text + at, end - at));
    }
    return LATHE_OK;
}

/* Splits by expression k. Each part, matched or not, is split by expression k + 1 as a separate
 * text. */
static lathe_status split(lathe_splitter *splitter, int32_t k, const uint8_t *text, int64_t n)
{
    if (k == splitter->tok->n_splits)
        return splitter->emit(splitter->arg, text, n);
    if (splitter->tok->scans[k] != LATHE_SCAN_NONE)
        return scan(splitter, k, text, n);
    const lathe_expression e = {splitter->tok->splits[k], splitter->tok->jit, NULL};
    for (int64_t at = 0; at < n;) {
        int64_t begin, end;
        LATHE_TRY(
            lathe__matcher_find(&splitter->matcher, &e, PCRE2_NOTEMPTY, text, n, at, &begin, &end));
        if (begin < 0)
            begin = end = n;
        if (begin > at)
            LATHE_TRY(split(splitter, k + 1, text + at, begin - at));
        if (end > begin)
            LATHE_TRY(split(splitter, k + 1, text + begin, end - begin));
        at = end;
    }
    return LATHE_OK;
}

static lathe_status prefix_space(lathe_splitter *splitter, const uint8_t **text, int64_t *n)
{
    if (splitter->prefixed_capacity < *n + 1) {
        free(splitter->prefixed);
        splitter->prefixed_capacity = 0;
        splitter->prefixed = malloc((size_t)*n + 1);
        if (splitter->prefixed == NULL)
            return lathe_error(LATHE_E_NOMEM, "a text of %lld bytes", (long long)*n);
        splitter->prefixed_capacity = *n + 1;
    }
    splitter->prefixed[0] = ' ';
    memcpy(splitter->prefixed + 1, *text, (size_t)*n);
    *text = splitter->prefixed;
    *n += 1;
    return LATHE_OK;
}

lathe_status lathe__splitter_run(lathe_splitter *splitter, const uint8_t *text, int64_t n)
{
    if (n > 0 && splitter->tok->add_prefix_space && text[0] != ' ')
        LATHE_TRY(prefix_space(splitter, &text, &n));
    for (int64_t at = 0; at < n;) {
        const int64_t valid = lathe_utf8_prefix(text + at, n - at);
        if (valid > 0)
            LATHE_TRY(split(splitter, 0, text + at, valid));
        at += valid;
        if (at < n)
            LATHE_TRY(splitter->emit(splitter->arg, text + at++, 1));
    }
    return LATHE_OK;
}
