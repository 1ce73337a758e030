/* The class of transformers that reads the vocabulary of a folder: it decides how a text is split,
 * where the files do not say so. */
#ifndef LATHE_FILES_VOCAB_CLASS_H
#define LATHE_FILES_VOCAB_CLASS_H

#include <jansson.h>

#include "lathe/status.h"

enum {
    LATHE_CLASS_OTHER = 0,   /* a class that Lathe does not convert */
    LATHE_CLASS_GENERIC = 1, /* TokenizersBackend: follows the file */
    LATHE_CLASS_LLAMA,
    LATHE_CLASS_GEMMA,
    LATHE_CLASS_T5,
    LATHE_CLASS_XLM_ROBERTA,
    LATHE_CLASS_GPT2,
    LATHE_CLASS_QWEN2,
    LATHE_CLASS_GPT_NEOX,
    LATHE_CLASS_ROBERTA,
    LATHE_CLASS_BERT
};

/** The class that AutoTokenizer of transformers 5.24 takes, from tokenizer_config.json and
 *  config.json (NULL: there is none). *out_name: its name as the folder or transformers has it,
 *  borrowed. */
int32_t lathe_vocab_class(const json_t *tokenizer_config, const json_t *config,
                          const char **out_name);

/** The class that is registered for a model_type; -1: the type is not registered. */
int32_t lathe_vocab_class_of_type(const char *model_type);

/** The special tokens that the class names where tokenizer_config.json does not: the text of
 *  "bos_token", say; NULL: none. */
const char *lathe_vocab_class_token(int32_t which, const char *key);

#endif
