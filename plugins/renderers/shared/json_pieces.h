/* Pieces of JSON: texts of strings, strings of texts, and values over several lines. */
#ifndef LATHE_RENDERERS_SHARED_JSON_PIECES_H
#define LATHE_RENDERERS_SHARED_JSON_PIECES_H

#include "lathe/kit/json_text.h"
#include "shared/turns.h"

/** Puts the characters of a JSON string. */
static inline void json_put_plain(turns_out *out, lathe_chars string)
{
    lathe_chars inside = lathe_json_inside(string), part;
    char room[4];
    while ((part = lathe_json_part(&inside, room)).bytes > 0)
        turns_text(out, part);
}

static inline void json_put_escaped(turns_out *out, unsigned char c)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char escape[8];
    const char *known = c != '\0' ? strchr(from, c) : NULL;
    const int n = known != NULL ? snprintf(escape, sizeof escape, "\\%c", to[known - from])
                                : snprintf(escape, sizeof escape, "\\u%04x", c);
    turns_put(out, LATHE_PIECE_TEXT, escape, n);
}

/** Puts a text as a JSON string with its quotes, as the filter tojson of transformers. */
static inline void json_put_quoted(turns_out *out, lathe_chars text)
{
    int64_t first = 0;
    turns_mark(out, "\"");
    for (int64_t i = 0; i < text.bytes; i++) {
        const unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        turns_text(out, turns_cut(text, first, i));
        json_put_escaped(out, c);
        first = i + 1;
    }
    if (first < text.bytes)
        turns_text(out, turns_cut(text, first, text.bytes));
    turns_mark(out, "\"");
}

static inline void json_put_line(turns_out *out, int64_t depth)
{
    turns_put(out, LATHE_PIECE_TEXT, "\n", 1);
    for (int64_t i = 0; i < depth; i++)
        turns_put(out, LATHE_PIECE_TEXT, "    ", 4);
}

/** Puts a value over several lines, as tojson(indent=4): four spaces for each object or list that a
 *  line stands in. The value is written as tojson writes it. */
static inline void json_put_lines(turns_out *out, lathe_chars value)
{
    int64_t depth = 0, first = 0, i = 0;
    while (i < value.bytes) {
        const char c = value.data[i], next = i + 1 < value.bytes ? value.data[i + 1] : '\0';
        if (c == '"') {
            i += lathe_json_value_bytes(value.data + i, value.bytes - i);
        } else if ((c == '{' || c == '[') && (next == '}' || next == ']')) {
            i += 2;
        } else if (c == '{' || c == '[' || c == ',') {
            turns_text(out, turns_cut(value, first, i + 1));
            depth += c != ',';
            json_put_line(out, depth);
            i += c == ',' && next == ' ' ? 2 : 1;
            first = i;
        } else if (c == '}' || c == ']') {
            turns_text(out, turns_cut(value, first, i));
            depth -= depth > 0;
            json_put_line(out, depth);
            first = i++;
        } else {
            i++;
        }
    }
    if (first < value.bytes)
        turns_text(out, turns_cut(value, first, value.bytes));
}

#endif
