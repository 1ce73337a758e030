/* Phi-3, Phi-3.5 and Phi-4. */
#include "shared/turns.h"

static const char *const specials[] = {"<|system|>",   "<|user|>",   "<|assistant|>", "<|end|>",
                                       "<|im_start|>", "<|im_sep|>", "<|im_end|>",    NULL};

static const turns_family variants[] = {
    {
        .marker = "'system' and message['content']",
        .absent = "im_sep",
        .flags = TURNS_EOS_LAST | TURNS_SKIPS_EMPTY_SYSTEM,
        .system_begin = "<|system|>\n",
        .system_end = "<|end|>\n",
        .user_begin = "<|user|>\n",
        .user_end = "<|end|>\n",
        .answer_begin = "<|assistant|>\n",
        .answer_end = "<|end|>\n",
        .specials = specials,
    },
    {
        .marker = "<|end|>",
        .absent = "im_sep",
        .flags = TURNS_EOS_LAST,
        .system_begin = "<|system|>\n",
        .system_end = "<|end|>\n",
        .user_begin = "<|user|>\n",
        .user_end = "<|end|>\n",
        .answer_begin = "<|assistant|>\n",
        .answer_end = "<|end|>\n",
        .specials = specials,
    },
    {
        .marker = "<|im_sep|>",
        .system_begin = "<|im_start|>system<|im_sep|>",
        .system_end = "<|im_end|>",
        .user_begin = "<|im_start|>user<|im_sep|>",
        .user_end = "<|im_end|>",
        .answer_begin = "<|im_start|>assistant<|im_sep|>",
        .answer_end = "<|im_end|>",
        .specials = specials,
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("phi", 0, "Phi-3, Phi-3.5 and Phi-4",
             "chat templates of microsoft/Phi-3-mini, Phi-3.5-mini-instruct and phi-4");
