/* Lists of token ids, and the flags of the functions that make and read them. */
#ifndef LATHE_TOKENIZER_TOKEN_IDS_H
#define LATHE_TOKENIZER_TOKEN_IDS_H

#include <stdint.h>

#include "lathe/status.h"

/** A growing list of token ids; all zeros is empty. Appending functions keep its contents. */
typedef struct lathe_ids {
    int32_t *data;
    int64_t n, capacity;
} lathe_ids;

lathe_status lathe_ids_reserve(lathe_ids *ids, int64_t n_more);
lathe_status lathe_ids_append(lathe_ids *ids, const int32_t *data, int64_t n);
void lathe_ids_fini(lathe_ids *ids);

/* Flags of encoding. */
enum {
    LATHE_ENCODE_ADD_SPECIAL = 1, /* adds the tokens that the post-processor's template puts before
                                   * and after a text */
    LATHE_ENCODE_NO_ADDED = 2,    /* added tokens in the text are plain text */
    LATHE_ENCODE_BEGIN = 4 /* adds the template's tokens before the text, unless the text begins
                            * with them: for a text that is to be continued. With
                            * LATHE_ENCODE_ADD_SPECIAL also those after it, unless it ends with
                            * them: for a text that may have been written with its tokens */
};

/* Flags of decoding. */
enum { LATHE_DECODE_SKIP_SPECIAL = 1 /* special tokens give no text */ };

#endif
