/* Trains a tokenizer on datasets, and keeps it in the cache for the next run. */
#ifndef LATHE_DATA_LEARNED_TOKENIZER_H
#define LATHE_DATA_LEARNED_TOKENIZER_H

#include "base/arena.h"
#include "lathe/stage.h"
#include "plug/config_keys.h"
#include "tokenizer/encode/tokenizer.h"

/** The table tokenizer.train. The members are the rows of plug/keys_tokenizer_train.inc. */
typedef struct lathe_learning_settings {
#define KEY(key, c_type, member, ...) LATHE_KEY_MEMBER(c_type, member)
#define KEY_ALONE(...)
#include "plug/keys_tokenizer_train.inc"
#undef KEY
#undef KEY_ALONE
} lathe_learning_settings;

/** Reads tokenizer.train from a checked configuration; texts are borrowed from it. Returns 0 if it
 *  is unset; `out` is all zeros then. */
int lathe_learning_settings_read(const lathe_config *config, lathe_learning_settings *out);

/** Settings and sources for training a tokenizer. */
typedef struct lathe_learning {
    const char *where;           /* the run file, for messages */
    const lathe_config *config;  /* has tokenizer.train and data.datasets */
    const lathe_stage_v1 *stage; /* says which columns are texts; NULL: documents */
    const char *train;           /* JSON text of tokenizer.train, a part of the folder's name */
    const char *cache_dir;       /* trained tokenizers are in its folders tokenizer-<hash> */
} lathe_learning;

/** Loads the tokenizer from the cache, if one was trained with the same settings on files with the
 *  same content. Otherwise trains it and saves it there. *out_dir: its folder, in the arena. Errors
 *  as lathe_corpus_open and lathe_tokenizer_train. */
lathe_status lathe_tokenizer_learn(const lathe_learning *from, lathe_arena *arena,
                                   lathe_tokenizer **out, const char **out_dir);

#endif
