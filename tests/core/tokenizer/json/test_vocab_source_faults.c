/* Every allocation of reading a vocabulary in another form fails in turn. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "files/gguf/model_files.h"
#include "support/inject.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/vocab_sources/"

Test(vocab_source_faults, missing_memory_leaves_nothing)
{
    static const char *const names[] = {"pieces", "t5", "tekken", "tiktoken_ids", "qwen2", "bert"};
    lathe_log_set_level(LATHE_LOG_ERROR + 1);
    if (inject_unsupported() != NULL)
        cr_skip("%s", inject_unsupported());
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        char path[512], *text = NULL;
        int64_t bytes = 0;
        snprintf(path, sizeof path, GOLDEN "%s", names[k]);
        cr_assert_eq(lathe_model_read(path, "tokenizer.json", 0, &text, &bytes), LATHE_OK);
        free(text);
        inject_arm(INJECT_MALLOC, 0, 0, ENOMEM);
        cr_assert_eq(lathe_model_read(path, "tokenizer.json", 0, &text, &bytes), LATHE_OK);
        const int64_t n = inject_disarm();
        free(text);
        const int64_t before = inject_live_blocks(), step = n / 150 + 1;
        for (int64_t i = 1; i <= n; i += i < 60 ? 1 : step) {
            inject_arm(INJECT_MALLOC, i, INT64_MAX, ENOMEM);
            const lathe_status status = lathe_model_read(path, "tokenizer.json", 0, &text, &bytes);
            inject_disarm();
            cr_expect_neq(status, LATHE_OK, "%s, allocation %lld of %lld", names[k], (long long)i,
                          (long long)n);
            free(text);
            text = NULL;
            cr_assert_eq(inject_live_blocks(), before, "%s: a leak at %lld", names[k],
                         (long long)i);
        }
    }
}
