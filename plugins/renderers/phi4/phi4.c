/* Phi-4: <|im_start|>role<|im_sep|>, the content, <|im_end|>. */
#include "shared/turns.h"

static const char *const specials[] = {"<|im_start|>", "<|im_sep|>", "<|im_end|>", NULL};

static const turns_family variants[] = {
    {
        .marker = "'<|im_start|>assistant<|im_sep|>' + message['content']",
        .system_begin = "<|im_start|>system<|im_sep|>",
        .system_end = "<|im_end|>",
        .user_begin = "<|im_start|>user<|im_sep|>",
        .user_end = "<|im_end|>",
        .answer_begin = "<|im_start|>assistant<|im_sep|>",
        .answer_end = "<|im_end|>",
        .specials = specials,
    },
    {
        /* the first template of Phi-4: each question is followed by a prompt */
        .marker = "<|im_end|><|im_start|>assistant<|im_sep|>",
        .system_begin = "<|im_start|>system<|im_sep|>",
        .system_end = "<|im_end|>",
        .user_begin = "<|im_start|>user<|im_sep|>",
        .user_end = "<|im_end|><|im_start|>assistant<|im_sep|>",
        .answer_begin = "",
        .answer_end = "<|im_end|>",
        .specials = specials,
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("phi4", LATHE_RENDERER_EXTENDS, "Phi-4", "chat template of microsoft/phi-4");
