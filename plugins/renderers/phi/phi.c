/* Renders conversations in the chat format of Phi-3 and Phi-3.5, as their chat templates do. A
 * template that contains "im_sep" is one of Phi-4, which has another format. */
#include "shared/turns.h"

static const char *const specials[] = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", NULL};

static const turns_family variants[] = {
    {
        /* Phi-3.5 leaves out an empty system message. It is tried first, because its template also
         * contains the marker of Phi-3. */
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
        /* Phi-3 */
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
};

TURNS_TABLES(variants, NULL);

TURNS_PLUGIN("phi", 0, "Phi-3 and Phi-3.5",
             "chat templates of microsoft/Phi-3-mini and Phi-3.5-mini-instruct");
