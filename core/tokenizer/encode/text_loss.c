/* Counts the bytes of text for which a tokenizer has no token. */
#include "tokenizer/encode/text_loss.h"

#include "base/log_once.h"

enum { LISTED = 8 };

void lathe_text_loss_count(lathe_text_loss *loss, const uint8_t *bytes, int64_t n, int is_unknown)
{
    for (int64_t i = 0; i < n; i++)
        loss->of[bytes[i]]++;
    if (is_unknown)
        loss->n_unknown += n;
    else
        loss->n_dropped += n;
}

void lathe_text_loss_add(lathe_text_loss *loss, const lathe_text_loss *more)
{
    loss->n_dropped += more->n_dropped;
    loss->n_unknown += more->n_unknown;
    for (int32_t i = 0; i < 256; i++)
        loss->of[i] += more->of[i];
}

void lathe_text_loss_list(const lathe_text_loss *loss, lathe_buffer *out)
{
    int32_t n_values = 0;
    uint8_t listed[256] = {0};
    for (int32_t i = 0; i < 256; i++)
        n_values += loss->of[i] > 0;
    for (int32_t k = 0; k < n_values && k < LISTED; k++) {
        int32_t max = -1;
        for (int32_t i = 0; i < 256; i++)
            if (!listed[i] && loss->of[i] > (max < 0 ? 0 : loss->of[max]))
                max = i;
        listed[max] = 1;
        lathe_buffer_printf(out, "%s0x%02x (%lld)", k ? ", " : "", (unsigned)max,
                            (long long)loss->of[max]);
    }
    if (n_values > LISTED)
        lathe_buffer_printf(out, " and %d other values", n_values - LISTED);
}

void lathe_text_loss_warn(const lathe_text_loss *loss, const char *what)
{
    const long long dropped = loss->n_dropped, unknown = loss->n_unknown;
    lathe_buffer list = LATHE_BUFFER_INIT;
    if (dropped + unknown == 0)
        return;
    lathe_text_loss_list(loss, &list);
    const char *const values = list.data ? list.data : "";
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&text, "%s: the tokenizer has no token for %lld bytes of the text", what,
                        dropped + unknown);
    if (dropped && unknown)
        lathe_buffer_printf(&text, ": %lld were left out, %lld became its unknown token: %s",
                            dropped, unknown, values);
    else
        lathe_buffer_printf(&text, ", which %s: %s",
                            dropped ? "were left out" : "became its unknown token", values);
    lathe_log_once(LATHE_LOG_WARN, text.data ? text.data : "");
    lathe_buffer_fini(&text);
    lathe_buffer_fini(&list);
}
