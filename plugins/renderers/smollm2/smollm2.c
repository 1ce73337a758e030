/* SmolLM2: ChatML with a default system message. */
#include "shared/turns.h"

static const char *const specials[] = {"<|im_start|>", "<|im_end|>", NULL};

static const turns_family variants[] = {
    {
        .marker = "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
        .default_system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
                          "trained by Hugging Face<|im_end|>\n",
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

TURNS_PLUGIN("smollm2", LATHE_RENDERER_EXTENDS, "SmolLM2: ChatML with its system message",
             "chat template of HuggingFaceTB/SmolLM2-135M-Instruct");
