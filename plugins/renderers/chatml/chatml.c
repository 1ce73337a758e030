/* ChatML: <|im_start|>role, the content, <|im_end|>; no default system message. */
#include "shared/turns.h"

static const char *const specials[] = {"<|im_start|>", "<|im_end|>", NULL};

static const turns_family variants[] = {
    {
        .marker = "'<|im_start|>'",
        .absent = "You are",
        .system_begin = "<|im_start|>system\n",
        .system_end = "<|im_end|>\n",
        .user_begin = "<|im_start|>user\n",
        .user_end = "<|im_end|>\n",
        .answer_begin = "<|im_start|>assistant\n",
        .answer_end = "<|im_end|>\n",
        .specials = specials,
    },
    {
        .marker = "<|im_start|>",
        .absent = "You are",
        .system_begin = "<|im_start|>system\n",
        .system_end = "<|im_end|>\n",
        .user_begin = "<|im_start|>user\n",
        .user_end = "<|im_end|>\n",
        .answer_begin = "<|im_start|>assistant\n",
        .answer_end = "<|im_end|>\n",
        .specials = specials,
    },
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("chatml", LATHE_RENDERER_EXTENDS, "ChatML without a default system message",
             "ChatML of OpenAI, as in templates of Hugging Face");
