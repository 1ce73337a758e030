/* Zephyr, and models whose turns are written the same way (TinyLlama Chat, StableLM Zephyr): the
 * role, the content and eos_token. */
#include "shared/turns.h"

/* plain text in most tokenizers of the family, special tokens in some */
static const char *const specials[] = {"<|system|>", "<|user|>", "<|assistant|>", NULL};

#define TURNS                                                                                      \
    .system_begin = "<|system|>\n", .system_end = "\n", .user_begin = "<|user|>\n",                \
    .user_end = "\n", .answer_begin = "<|assistant|>\n", .answer_end = "\n", .specials = specials

static const turns_family variants[] = {
    {
        .marker = "<|user|>",
        .absent = "<|end|>",
        .flags = TURNS_EOS_TURN | TURNS_ASKED,
        TURNS,
    },
    {
        /* contents without spaces at their ends, user and assistant in turn */
        .marker = "'<|' + message['role'] + '|>\\n' + message['content'] | trim + eos_token",
        .flags = TURNS_EOS_TURN | TURNS_TRIM | TURNS_ALTERNATES | TURNS_SYSTEM_FIRST,
        TURNS,
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("zephyr", LATHE_RENDERER_EXTENDS, "Zephyr: <|user|> and eos_token",
             "chat template of HuggingFaceH4/zephyr-7b-beta");
