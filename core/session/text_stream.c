/* Cuts a text into pieces while it is generated. */
#include "session/text_stream.h"

#include <stdlib.h>
#include <string.h>

void lathe_text_stream_fini(lathe_text_stream *stream)
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

static void give(lathe_text_stream *stream, const char *text, int64_t n)
{
    const int64_t from = n > stream->n_given ? stream->n_given : n;
    const lathe_session_piece piece = {.size = (uint32_t)sizeof piece,
                                       .n_tokens = (int32_t)stream->ids.n,
                                       .text = text + from,
                                       .bytes = n - from};
    if (stream->fn != NULL && stream->fn(stream->arg, &piece) != 0)
        stream->ended = 1;
    stream->n_given = n > stream->n_given ? n : stream->n_given;
}

void lathe_text_stream_put(lathe_text_stream *stream, int32_t token)
{
    char *text = NULL;
    int64_t n = 0, bytes;
    if (stream->status != LATHE_OK || !lathe_tokenizer_token(stream->tokenizer, token, &bytes))
        return; /* ids of padding rows of the vocabulary have no text */
    stream->status = lathe_ids_append(&stream->ids, &token, 1);
    if (stream->status == LATHE_OK)
        stream->status = lathe_tokenizer_decode(stream->tokenizer, stream->ids.data, stream->ids.n,
                                                LATHE_DECODE_SKIP_SPECIAL, &text, &n);
    if (stream->status == LATHE_OK)
        n = before_stop(stream->how, text, n);
    if (stream->status == LATHE_OK)
        give(stream, text, whole_characters(text, n));
    free(text);
}

void lathe_text_stream_end(lathe_text_stream *stream, const char *text, int64_t n)
{
    if (n > stream->n_given)
        give(stream, text, n);
}
