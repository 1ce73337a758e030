/* SentencePiece's precompiled_charsmap: a double-array trie of characters to rewrite, and the texts
 * that replace them. Layout (little-endian): size of the trie in bytes as u32, the trie as u32
 * units, then the texts, each followed by a NUL. A value in the trie is the offset of a text.
 * Source: SentencePiece's normalizer and the unit format of Darts-clone. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/pipeline.h"

struct lathe_charsmap {
    uint8_t *blob;
    uint32_t *units;
    int64_t n_units;
    const char *texts; /* in blob; followed by a NUL */
    int64_t n_texts;
};

void lathe__charsmap_destroy(lathe_charsmap *map)
{
    if (map == NULL)
        return;
    free(map->blob);
    free(map->units);
    free(map);
}

static uint32_t read_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

lathe_status lathe__charsmap_create(const char *place, const char *base64, lathe_charsmap **out)
{
    lathe_charsmap *map = calloc(1, sizeof *map);
    const size_t n_text = strlen(base64);
    if (map)
        map->blob = malloc(n_text + 8);
    if (map == NULL || map->blob == NULL) {
        lathe__charsmap_destroy(map);
        return lathe_error(LATHE_E_NOMEM, "precompiled_charsmap");
    }
    const int64_t n = lathe_base64_decode(base64, (int64_t)strlen(base64), map->blob);
    const int64_t trie = n >= 4 ? (int64_t)read_u32(map->blob) : -1;
    if (trie < 4 || trie % 4 || trie > n - 4) {
        lathe__charsmap_destroy(map);
        return lathe_error(LATHE_E_PARSE,
                           "%s.precompiled_charsmap: expected base64 of a trie and its texts",
                           place);
    }
    map->n_units = trie / 4;
    map->units = malloc((size_t)trie);
    if (map->units == NULL) {
        lathe__charsmap_destroy(map);
        return lathe_error(LATHE_E_NOMEM, "precompiled_charsmap");
    }
    for (int64_t i = 0; i < map->n_units; i++)
        map->units[i] = read_u32(map->blob + 4 + 4 * i);
    map->texts = (const char *)map->blob + 4 + trie;
    map->n_texts = n - 4 - trie;
    map->blob[n] = 0;
    if (lathe_utf8_prefix((const uint8_t *)map->texts, map->n_texts) != map->n_texts) {
        lathe__charsmap_destroy(map);
        return lathe_error(LATHE_E_PARSE, "%s.precompiled_charsmap: its texts are not UTF-8",
                           place);
    }
    *out = map;
    return LATHE_OK;
}

/* A unit of Darts-clone: 8 bits of label with bit 31, bit 8 "a value follows", bit 9 and 22 bits of
 * offset. */
static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* Returns the replacement of the shortest key at the begin of text[0, n), NULL for no key. The
 * library that Hugging Face uses also takes the shortest, not the longest. */
static const char *look_up(const lathe_charsmap *map, const uint8_t *text, int64_t n)
{
    uint64_t at = offset_of(map->units[0]);
    for (int64_t i = 0; i < n && text[i]; i++) {
        at ^= text[i];
        if (at >= (uint64_t)map->n_units)
            return NULL;
        const uint32_t unit = map->units[at];
        if ((unit & (1u << 31 | 0xff)) != text[i])
            return NULL;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1))
            continue;
        if (at >= (uint64_t)map->n_units)
            return NULL;
        const uint32_t value = map->units[at] & 0x7fffffff;
        if (value >= (uint64_t)map->n_texts || (map->texts[value] & 0xc0) == 0x80)
            return NULL; /* no text begins there, or only the rest of a character does */
        return map->texts + value;
    }
    return NULL;
}

/* Rewrites one grapheme: as a whole if it is short and has a key, else character by character. */
static void rewrite(const lathe_charsmap *map, const uint8_t *text, int64_t n, lathe_buffer *out)
{
    const char *to = n < 6 ? look_up(map, text, n) : NULL;
    if (to) {
        lathe_buffer_puts(out, to);
        return;
    }
    int32_t len;
    for (int64_t i = 0; i < n; i += len) {
        lathe_utf8_at(text + i, n - i, &len);
        to = look_up(map, text + i, len);
        if (to)
            lathe_buffer_puts(out, to);
        else
            lathe_buffer_append(out, text + i, len);
    }
}

void lathe__charsmap_run(const lathe_charsmap *map, const uint8_t *text, int64_t n, int64_t max,
                         lathe_buffer *out)
{
    utf8proc_int32_t state = 0;
    int32_t last = -1, len;
    int64_t begin = 0;
    for (int64_t i = 0; i < n && out->len <= max; i += len) {
        const int32_t c = lathe_utf8_at(text + i, n - i, &len);
        if (last >= 0 && utf8proc_grapheme_break_stateful(last, c, &state)) {
            rewrite(map, text + begin, i - begin, out);
            begin = i;
        }
        last = c;
    }
    if (n > begin && out->len <= max)
        rewrite(map, text + begin, n - begin, out);
}
