/* The data of a run: the tokenizer, the token shards of both splits, and a loader over each. */
#ifndef LATHE_DATA_RUN_DATA_H
#define LATHE_DATA_RUN_DATA_H

#include "data/loader.h"

typedef struct lathe_run_data {
    lathe_tokenizer *tokenizer;
    const char *tokenizer_dir; /* the folder of its files; NULL: raw bytes */
    lathe_shards *shards, *validation_shards;
    lathe_loader *loader, *validation; /* NULL: no such split */
    lathe_cursor validation_start;     /* the validation split begins here */
} lathe_run_data;

#endif
