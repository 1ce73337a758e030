/* Zephyr: <|user|>, the content and eos_token, each turn on its own lines. */
#include "shared/turns.h"

static const char *const specials[] = {NULL};

static const turns_family variants[] = {
    {
        .marker = "<|user|>",
        .absent = "<|end|>",
        .flags = TURNS_EOS_TURN | TURNS_ASKED,
        .system_begin = "<|system|>\n",
        .system_end = "\n",
        .user_begin = "<|user|>\n",
        .user_end = "\n",
        .answer_begin = "<|assistant|>",
        .lead = "\n",
        .answer_end = "\n",
        .specials = specials,
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("zephyr", LATHE_RENDERER_EXTENDS, "Zephyr",
             "chat template of HuggingFaceH4/zephyr-7b-beta");
