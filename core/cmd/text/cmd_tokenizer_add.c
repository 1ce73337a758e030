/* lathe tokenizer add: adds tokens to a model, with rows for them. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/text/text_commands.h"
#include "cmd/text/tokenizer_open.h"
#include "model/convert/vocab_growth.h"
#include "plug/registry.h"

static lathe_status read_growth(const lathe_args *args, lathe_vocab_growth *out)
{
    const char *init = lathe_args_value(args, "--init");
    int64_t seed = 0;
    *out = (lathe_vocab_growth){.tokens = (const char *const *)args->words + 1,
                                .n = args->n_words - 1,
                                .are_plain = lathe_args_value(args, "--plain") != NULL};
    if (init && strcmp(init, "noise") == 0)
        out->init = LATHE_GROWTH_NOISE;
    else if (init && strcmp(init, "mean") != 0)
        return lathe_error(LATHE_E_ARG, "--init is '%s'; expected mean or noise", init);
    LATHE_TRY(lathe_args_int(args, "--seed", 0, INT64_MAX, 0, &seed));
    out->seed = (uint64_t)seed;
    return lathe_args_int(args, "--pad-to-multiple-of", 1, 1 << 20, 1, &out->multiple_of);
}

static lathe_status add(const lathe_args *args)
{
    const char *folder = lathe_args_value(args, "--output");
    lathe_model_source source = {NULL, NULL};
    lathe_vocab_growth growth;
    lathe_vocab_grown grown;
    LATHE_TRY(read_growth(args, &growth));
    if (folder == NULL)
        return lathe_error(LATHE_E_ARG, "expected -o DIR, the folder to write to");
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *model = NULL;
    lathe_status status = lathe_app_tokenizer_place(args->words[0], &arena, &model);
    if (status == LATHE_OK)
        status = lathe_registry_create(&source.registry);
    if (status == LATHE_OK)
        status = lathe_vocab_grow(&source, model, folder, &growth, NULL, &grown);
    lathe_registry_destroy(source.registry);
    lathe_arena_fini(&arena);
    LATHE_TRY(status);
    lathe_print("%s: %lld token%s added", folder, (long long)grown.n_added,
                grown.n_added == 1 ? "" : "s");
    if (grown.n_known > 0)
        lathe_print(", %lld known before", (long long)grown.n_known);
    lathe_print("; vocab_size %lld, before %lld\n", (long long)grown.rows,
                (long long)grown.rows_before);
    return LATHE_OK;
}

static int run(const lathe_args *args)
{
    const lathe_status status = add(args);
    return status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
}

static const lathe_option options[] = {
    {"-o, --output", "DIR", "folder for the model with the tokens; it must not exist, or be empty"},
    {"--plain", NULL, "the tokens are not special: texts without special tokens keep them"},
    {"--init", "HOW",
     "first values of new rows: mean (of all old rows), or noise (mean, plus a little of each "
     "column's spread) (mean)"},
    {"--seed", "N", "seed of the noise (0)"},
    {"--pad-to-multiple-of", "N", "the number of rows becomes a multiple of N (1)"},
};

const lathe_command lathe_cmd_tokenizer_add = {
    .name = "tokenizer add",
    .arguments = "MODEL [TOKEN...] -o DIR",
    .summary = "add tokens to a model",
    .details = "Each token becomes an added token of tokenizer.json: one that the vocabulary has\n"
               "keeps its id, others get the next ones. Where the model has too few rows, its\n"
               "embedding and head get more. All else is copied. Without a token,\n"
               "--pad-to-multiple-of alone adds rows.",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = INT32_MAX,
    .run = run,
};
