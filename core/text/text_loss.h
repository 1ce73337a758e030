/* Bytes of text that a tokenizer has no token for: how many an encoder met, and which. */
#ifndef LATHE_TEXT_TEXT_LOSS_H
#define LATHE_TEXT_TEXT_LOSS_H

#include "base/buffer.h"
#include "lathe/status.h"

/** What encoding lost. All zeros: nothing. */
typedef struct lathe_text_loss {
    int64_t n_dropped; /* bytes that left no token */
    int64_t n_unknown; /* bytes that became the unknown token */
    int64_t of[256];   /* both, by the value of the byte */
} lathe_text_loss;

static inline int64_t lathe_text_loss_total(const lathe_text_loss *loss)
{
    return loss->n_dropped + loss->n_unknown;
}

/** Counts n bytes as lost; is_unknown: the unknown token stands for them. */
void lathe_text_loss_count(lathe_text_loss *loss, const uint8_t *bytes, int64_t n, int is_unknown);

/** Adds the counts of `more`. */
void lathe_text_loss_add(lathe_text_loss *loss, const lathe_text_loss *more);

/** Appends which bytes were lost, as "0x04 (12), 0xf1 (3)": the most frequent eight, then the
 *  number of other values. */
void lathe_text_loss_list(const lathe_text_loss *loss, lathe_buffer *out);

/** Warns with the counts and the byte values; `what` names the data. Nothing lost: no warning. */
void lathe_text_loss_warn(const lathe_text_loss *loss, const char *what);

#endif
