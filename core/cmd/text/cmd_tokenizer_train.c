/* lathe tokenizer train: learns a vocabulary from files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/new_folder.h"
#include "base/print.h"
#include "cmd/text/text_commands.h"
#include "tokenizer/json/tokenizer_file.h"
#include "tokenizer/train/tokenizer_train.h"
#include "tokenizer/unicode/scanner.h"

enum { MAX_SPECIALS = 256 };

/* The regular expression that the option gives: by the name of a known
 * pre-tokenizer, or directly. */
static const char *pattern_of(const char *text)
{
    static const struct {
        const char *name;
        int32_t scan;
    } known[] = {
        {"gpt2", LATHE_SCAN_NONE}, {"llama3", LATHE_SCAN_LLAMA3}, {"qwen2", LATHE_SCAN_QWEN2}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(text, known[i].name) == 0)
            return lathe__scan_pattern(
                known[i].scan); /* NULL: GPT-2's, which is part of ByteLevel */
    return text;
}

static lathe_status read_kind(const lathe_args *args, lathe_tokenizer_training *out)
{
    const char *kind = lathe_args_value(args, "--kind");
    out->byte_fallback = lathe_args_value(args, "--byte-fallback") != NULL;
    if (kind && strcmp(kind, "metaspace") == 0)
        out->kind = LATHE_TRAIN_METASPACE;
    else if (kind && strcmp(kind, "bpe") != 0)
        return lathe_error(LATHE_E_ARG,
                           "--kind is '%s'; expected bpe or metaspace; other kinds cannot be "
                           "trained, only read from a tokenizer.json",
                           kind);
    if (out->byte_fallback && out->kind != LATHE_TRAIN_METASPACE)
        return lathe_error(LATHE_E_ARG,
                           "--byte-fallback is for --kind metaspace; bpe always works on bytes");
    return LATHE_OK;
}

static lathe_status read_settings(const lathe_args *args, const char **specials,
                                  lathe_tokenizer_training *out)
{
    LATHE_TRY(read_kind(args, out));
    LATHE_TRY(lathe_args_int(args, "--vocab-size", 4, 1 << 24, 32000, &out->vocab_size));
    LATHE_TRY(lathe_args_int(args, "--min-frequency", 1, INT64_MAX, 2, &out->min_frequency));
    LATHE_TRY(lathe_args_int(args, "--max-token-length", 2, 1 << 20, 0, &out->max_token_length));
    const char *pattern = lathe_args_value(args, "--pattern");
    out->pattern = pattern ? pattern_of(pattern) : NULL;
    const char *special;
    while ((special = lathe_args_each(args, "--special", (int32_t)out->n_specials)) != NULL) {
        if (out->n_specials == MAX_SPECIALS)
            return lathe_error(LATHE_E_ARG, "more than %d special tokens", MAX_SPECIALS);
        specials[out->n_specials++] = special;
    }
    out->specials = out->n_specials ? specials : NULL;
    return LATHE_OK;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A model that was trained with the tokenizer of the folder could not be used any more. */
static lathe_status refuse_existing(const char *folder)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, folder, "tokenizer.json");
    lathe_status status = path ? LATHE_OK : LATHE_E_NOMEM;
    if (path && lathe_path_exists(path))
        status = lathe_error(LATHE_E_CONFIG,
                             "%s: exists already; remove it first, or choose another folder", path);
    lathe_arena_fini(&arena);
    return status;
}

/* Makes a new folder once before the work, so that an error comes early. */
static lathe_status check_writable(const char *folder)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *beside = NULL;
    lathe_status status = LATHE_OK;
    if (!lathe_path_is_dir(folder)) {
        status = lathe_new_folder_check(folder);
        if (status == LATHE_OK)
            status = lathe_new_folder_begin(&arena, folder, &beside);
        if (status == LATHE_OK)
            status = lathe_dir_remove(beside);
    }
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status save(const lathe_tokenizer *tok, const char *folder)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *as_folder = lathe_arena_printf(&arena, "%s/", folder);
    const lathe_status status = as_folder ? lathe_tokenizer_save(tok, as_folder) : LATHE_E_NOMEM;
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status train(const lathe_args *args)
{
    const char *specials[MAX_SPECIALS];
    lathe_tokenizer_training settings = {0};
    lathe_tokenizer *tok;
    int64_t skipped = 0;
    const char *folder = lathe_args_value(args, "--output");
    LATHE_TRY(read_settings(args, specials, &settings));
    if (!folder)
        return lathe_error(LATHE_E_ARG, "expected -o DIR, the folder to write to");
    LATHE_TRY(refuse_existing(folder));
    LATHE_TRY(check_writable(folder));
    const double begun = now();
    LATHE_TRY(lathe_tokenizer_train_files(&settings, args->words, args->n_words, &skipped, &tok));
    const double seconds = now() - begun;
    const lathe_status status = save(tok, folder);
    if (status == LATHE_OK) {
        const int64_t n = lathe_tokenizer_vocab_size(tok);
        lathe_print("%s/tokenizer.json: %lld tokens, %.1f s\n", folder, (long long)n, seconds);
        if (skipped > 0)
            lathe_print("%lld files left out: not UTF-8, or with a NUL in them\n",
                        (long long)skipped);
        if (n < settings.vocab_size)
            lathe_print("fewer than the %lld requested: no pair is left that occurs %lld times\n",
                        (long long)settings.vocab_size, (long long)settings.min_frequency);
    }
    lathe_tokenizer_destroy(tok);
    return status;
}

static int run(const lathe_args *args)
{
    const lathe_status status = train(args);
    return status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
}

static const lathe_option options[] = {
    {"-o, --output", "DIR",
     "folder for tokenizer.json and tokenizer_config.json; created if missing"},
    {"--vocab-size", "N", "size of the vocabulary, with special tokens and the 256 bytes (32000)"},
    {"--min-frequency", "N", "pairs that occur less often are not merged (2)"},
    {"--max-token-length", "N",
     "no token of N bytes or more, except those of two bytes (no limit)"},
    {"--pattern", "P", "how text is split before merging: gpt2, llama3, qwen2, or a regex (gpt2)"},
    {"--special", "TOKEN...",
     "a special token, once for each; they get the ids 0, 1, ... in order, and the first one ends "
     "a "
     "text (<|endoftext|>); with metaspace, unk, bos and eos come first"},
    {"--kind", "KIND",
     "bpe: merges bytes; metaspace: merges characters, as SentencePiece does (bpe)"},
    {"--byte-fallback", NULL,
     "metaspace: characters that are not in the vocabulary are encoded as bytes"},
};

const lathe_command lathe_cmd_tokenizer_train = {
    .name = "tokenizer train",
    .arguments = "FILE... -o DIR",
    .summary = "train a tokenizer on text",
    .details = "Each file is one text. Folders are read with everything below them, in the\n"
               "order of the names. The result is the same as that of Hugging Face's\n"
               "BpeTrainer for the same texts.",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = INT32_MAX,
    .run = run,
};
