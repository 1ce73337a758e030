/* Counts the bytes of text for which a tokenizer has no token, by value. */
#ifndef LATHE_TOKENIZER_TEXT_LOSS_H
#define LATHE_TOKENIZER_TEXT_LOSS_H

#include "base/buffer.h"
#include "lathe/status.h"

/** The bytes that encoding lost. All zeros: none. */
typedef struct lathe_text_loss {
    int64_t n_dropped; /* bytes that gave no token */
    int64_t n_unknown; /* bytes that became the unknown token */
    int64_t of[256];   /* both counts together, by the value of the byte */
} lathe_text_loss;

static inline int64_t lathe_text_loss_total(const lathe_text_loss *loss)
{
    return loss->n_dropped + loss->n_unknown;
}

/** Counts n bytes as lost; is_unknown 1: they became the unknown token. */
void lathe_text_loss_count(lathe_text_loss *loss, const uint8_t *bytes, int64_t n, int is_unknown);

/** Adds the counts of `more`. */
void lathe_text_loss_add(lathe_text_loss *loss, const lathe_text_loss *more);

/** Appends the lost bytes with their counts, "0x04 (12), 0xf1 (3)": the eight most frequent, then
 *  the number of other values. */
void lathe_text_loss_list(const lathe_text_loss *loss, lathe_buffer *out);

/** Logs a warning, once per process, with the counts and the byte values if bytes were lost; `what`
 * names the data. */
void lathe_text_loss_warn(const lathe_text_loss *loss, const char *what);

#endif
