/* Finds positions of a text that no piece, added token or normal form reaches across. */
#include "tokenizer/encode/text_cut.h"

#include <string.h>

#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/unicode/scanner.h"

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The expressions that have a scanner end a piece after a line end, and no piece that begins before
 * the line end continues after it: a letter continues letters, a space before it and (Llama 3,
 * Qwen2) one character that is not a line end. \s+(?!\S) looks one character ahead, which matters
 * only for two spaces or more. */
int32_t lathe__cuts_of(const lathe_tokenizer *tok)
{
    if (tok->kind == LATHE_TOKENIZER_BYTES)
        return LATHE_CUT_ANYWHERE;
    if (tok->kind != LATHE_TOKENIZER_BPE || tok->n_splits != 1 ||
        tok->scans[0] == LATHE_SCAN_NONE || tok->add_prefix_space)
        return LATHE_CUT_NONE;
    for (int64_t i = 0; i < tok->n_added; i++) {
        const lathe_added_token *added = &tok->added[i];
        if (memchr(added->content, '\n', (size_t)added->bytes) ||
            (added->lstrip && is_letter(added->content[0])))
            return LATHE_CUT_NONE;
    }
    return LATHE_CUT_LINES;
}

int64_t lathe__cut_after(int32_t cuts, const char *text, int64_t n, int64_t at)
{
    if (at >= n || cuts == LATHE_CUT_NONE)
        return n;
    if (cuts == LATHE_CUT_ANYWHERE)
        return at;
    for (at = at < 2 ? 2 : at; at < n; at++) {
        const char *end = memchr(text + at - 1, '\n', (size_t)(n - at));
        if (end == NULL)
            break;
        at = end - text + 1;
        if (is_letter(text[at]) && text[at - 2] > ' ' && text[at - 2] < 0x7f)
            return at;
    }
    return n;
}
