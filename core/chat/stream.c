/* Shows a text while it is generated. */
#include "chat/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"

void lathe_chat_stream_begin(lathe_chat_stream *stream)
{
    stream->ids.n = 0;
    stream->n_shown = 0;
    stream->status = LATHE_OK;
}

void lathe_chat_stream_fini(lathe_chat_stream *stream)
{
    lathe_ids_fini(&stream->ids);
}

/* Bytes of text[0, n) without a character at its end that lacks bytes. */
static int64_t whole_characters(const char *text, int64_t n)
{
    int64_t begin = n - 1;
    while (begin > 0 && n - begin < 4 && ((uint8_t)text[begin] & 0xc0) == 0x80)
        begin--;
    if (n == 0)
        return 0;
    const uint8_t first = (uint8_t)text[begin];
    const int64_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    return length > n - begin ? begin : n;
}

/* Bytes of text[0, n) before the first stop string, or before the end of the text that a stop
 * string may begin with. */
static int64_t before_stop(const lathe_sampling *how, const char *text, int64_t n)
{
    for (int64_t at = 0; at < n; at++)
        for (int32_t i = 0; i < how->n_stop; i++) {
            const int64_t length = (int64_t)strlen(how->stop[i]), rest = n - at;
            if (memcmp(text + at, how->stop[i], (size_t)(length < rest ? length : rest)) == 0)
                return at;
        }
    return n;
}

static void show(lathe_chat_stream *stream, const char *text, int64_t n)
{
    if (n <= stream->n_shown)
        return;
    if (stream->on_terminal)
        lathe_print_bytes(stdout, text + stream->n_shown, n - stream->n_shown);
    else
        lathe_print_raw(stdout, text + stream->n_shown, n - stream->n_shown);
    (void)fflush(stdout);
    stream->n_shown = n;
}

void lathe_chat_stream_put(lathe_chat_stream *stream, int32_t token)
{
    char *text = NULL;
    int64_t n = 0, bytes;
    if (stream->status != LATHE_OK || !lathe_tokenizer_token(stream->tokenizer, token, &bytes))
        return; /* ids of padding rows of the vocabulary have no text */
    stream->status = lathe_ids_append(&stream->ids, &token, 1);
    if (stream->status == LATHE_OK)
        stream->status = lathe_tokenizer_decode(stream->tokenizer, stream->ids.data, stream->ids.n,
                                                LATHE_DECODE_SKIP_SPECIAL, &text, &n);
    if (stream->status == LATHE_OK && stream->how)
        n = before_stop(stream->how, text, n);
    if (stream->status == LATHE_OK)
        show(stream, text, whole_characters(text, n));
    free(text);
}

void lathe_chat_stream_end(lathe_chat_stream *stream, const char *text, int64_t n)
{
    show(stream, text, n);
}
