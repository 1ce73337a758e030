/* Every allocation in loading, encoding and decoding with a tokenizer fails in turn: a clean error,
 * and no leak. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "support/inject.h"
#include "tokenizer/json/tokenizer_json.h"

static const char text[] = " the  <m> \xc3\x89"
                           "e\xcc\x81 \xef\xac\x81 12 tthe \xff x  he";

/* Uses all functions of a tokenizer; copies the file's text. */
static lathe_status use(const char *json, int64_t n, lathe_ids *ids)
{
    lathe_tokenizer *tok = NULL;
    lathe_encoder *enc = NULL;
    char *copy = malloc((size_t)n + 1), *back = NULL;
    int64_t n_back = 0;
    cr_assert_not_null(copy);
    memcpy(copy, json, (size_t)n + 1);
    lathe_status status = lathe__tokenizer_parse("f.json", copy, n, &tok);
    if (status != LATHE_OK) {
        free(copy);
        return status;
    }
    status = lathe_encoder_create(tok, &enc);
    if (status == LATHE_OK)
        status = lathe_encoder_run(enc, text, sizeof text - 1, 0, ids);
    if (status == LATHE_OK)
        status = lathe_tokenizer_decode(tok, ids->data, ids->n, 0, &back, &n_back);
    free(back);
    lathe_encoder_destroy(enc);
    lathe_tokenizer_destroy(tok);
    return status;
}

static void fail_each(const char *name)
{
    if (inject_unsupported() != NULL)
        cr_skip("%s", inject_unsupported());
    char path[512], *json = NULL;
    int64_t n_json = 0, n_refused = 0;
    snprintf(path, sizeof path, LATHE_TEST_DATA "/%s", name);
    cr_assert_eq(lathe_file_read(path, 0, &json, &n_json), LATHE_OK, "%s", lathe_error_message());
    lathe_ids ids = {NULL, 0, 0}, want = {NULL, 0, 0};
    cr_assert_eq(lathe_ids_reserve(&ids, 1000), LATHE_OK);
    cr_assert_eq(use(json, n_json, &want), LATHE_OK, "%s", lathe_error_message());
    inject_arm(INJECT_MALLOC, 0, 0, ENOMEM);
    ids.n = 0;
    cr_assert_eq(use(json, n_json, &ids), LATHE_OK);
    const int64_t n = inject_disarm(), before = inject_live_blocks();
    cr_assert_gt(n, 100);
    for (int64_t i = 1; i <= 2 * n; i++) { /* one call fails; or that one and all later ones */
        ids.n = 0;
        inject_arm(INJECT_MALLOC, i > n ? i - n : i, i > n ? INT64_MAX : 1, ENOMEM);
        const lathe_status status = use(json, n_json, &ids);
        inject_disarm();
        cr_assert_eq(inject_live_blocks(), before, "%s: a leak when %s fails", name, inject_last());
        n_refused += i > n && status != LATHE_OK;
        if (status != LATHE_OK) {
            cr_assert_neq(*lathe_error_message(), 0, "%s: no message when %s fails", name,
                          inject_last());
            continue;
        }
        /* A table that cannot be read in place is read by the other reader; PCRE2 works without
         * machine code. */
        cr_assert_eq(ids.n, want.n, "%s: other ids when %s fails", name, inject_last());
        cr_assert_arr_eq(ids.data, want.data, (size_t)want.n * sizeof *want.data);
    }
    cr_expect_gt(n_refused, n * 9 / 10);
    lathe_ids_fini(&ids);
    lathe_ids_fini(&want);
    free(json);
}

Test(tokenizer_faults, every_allocation_with_sentencepiece_bpe)
{
    fail_each("fuzz/corpus/tokenizer/llama2.json");
}
Test(tokenizer_faults, every_allocation_with_unigram)
{
    fail_each("fuzz/corpus/tokenizer/unigram.json");
}
Test(tokenizer_faults, every_allocation_with_many_steps)
{
    fail_each("fuzz/corpus/tokenizer/steps.json");
}
