/* libFuzzer target: any bytes as a tokenizer.json, and as text for an accepted tokenizer. Ids must
 * be tokens, and if nothing is rewritten the bytes must come back. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/encode/tokenizer_model.h"
#include "tokenizer/json/tokenizer_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const lathe_tokenizer *tok, const char *text, int64_t n)
{
    lathe_ids ids = {NULL, 0, 0};
    char *back = NULL;
    int64_t n_back = 0;
    if (lathe_tokenizer_encode(tok, text, n, 0, &ids) == LATHE_OK) {
        if (lathe_tokenizer_decode(tok, ids.data, ids.n, 0, &back, &n_back) != LATHE_OK)
            abort();
        int rewrites = tok->nfc || tok->add_prefix_space || tok->kind == LATHE_TOKENIZER_GENERAL;
        for (int64_t i = 0; i < tok->n_added; i++)
            rewrites |= tok->added[i].lstrip || tok->added[i].rstrip;
        if (!rewrites && (n_back != n || memcmp(back, text, (size_t)n) != 0))
            abort();
        free(back);
    }
    lathe_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_tokenizer *tok = NULL;
    char *json = malloc(size + 1);
    if (!json)
        return 0;
    memcpy(json, data, size);
    json[size] = 0;
    if (lathe__tokenizer_parse("fuzz", json, (int64_t)size, &tok) != LATHE_OK) {
        free(json);
        return 0;
    }
    const int64_t n = size < 512 ? (int64_t)size : 512;
    check_text(tok, (const char *)data + size - n, n);
    static const char mixed[] = " the  <m> \xc3\x89"
                                "e\xcc\x81 \xef\xac\x81 12 \xff\xe2\x82 "
                                "\xe2\x96\x81"
                                "x<0x41>\n";
    check_text(tok, mixed, sizeof mixed - 1);
    lathe_tokenizer_destroy(tok);
    return 0;
}
