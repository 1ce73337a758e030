/* JSON by RFC 8259: a table of texts that must be accepted, with their values, and one of texts
 * that must be refused. Where the RFC leaves a choice, base/json/json.h states ours, and a row here
 * tests it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"

/* Bytes and their number, because some contain NUL. */
#define BYTES(text) text, sizeof(text) - 1

typedef struct accepted {
    const char *text;
    size_t bytes;
    const char *want; /* compact, sorted, ASCII */
} accepted;

typedef struct refused {
    const char *rule;
    const char *text;
    size_t bytes;
    const char *place; /* "line:column" that the message must contain; NULL: any place */
} refused;

static const accepted good[] = {
    /* any value is a text; white space is space, tab, line feed, carriage return */
    {BYTES("{}"), "{}"},
    {BYTES("[]"), "[]"},
    {BYTES("null"), "null"},
    {BYTES("true"), "true"},
    {BYTES("false"), "false"},
    {BYTES("\"s\""), "\"s\""},
    {BYTES("7"), "7"},
    {BYTES(" \t\r\n[ \n1\t,\r2 ]\n "), "[1,2]"},
    {BYTES("{ \"a\" : 1 , \"b\" : [ ] }"), "{\"a\":1,\"b\":[]}"},
    {BYTES("[[],[[]],{\"\":{}}]"), "[[],[[]],{\"\":{}}]"},
    {BYTES("[null,true,false,1,\"\"]"), "[null,true,false,1,\"\"]"},
    /* numbers */
    {BYTES("[0,-0,1,-1,10,123456789]"), "[0,0,1,-1,10,123456789]"},
    {BYTES("[9223372036854775807,-9223372036854775808]"),
     "[9223372036854775807,-9223372036854775808]"},
    {BYTES("[0.5,-0.5,1.25,100.0]"), "[0.5,-0.5,1.25,100.0]"},
    {BYTES("[1e2,1E2,1e+2,1E-2,25e-1]"), "[100.0,100.0,100.0,0.01,2.5]"},
    {BYTES("[0e0,0E+1,-0.0]"), "[0.0,0.0,-0.0]"},
    {BYTES("[1e-400]"), "[0.0]"},
    {BYTES("[0.00000000000000000000000000000000000000000000001]"), "[9.9999999999999997e-48]"},
    /* integers beyond 64 bits become reals */
    {BYTES("[9223372036854775808]"), "[9.2233720368547758e18]"},
    {BYTES("[-9223372036854775809,1]"), "[-9.2233720368547758e18,1]"},
    {BYTES("{\"9223372036854775808\":1000000000000000019884624838656}"),
     "{\"9223372036854775808\":1e30}"},
    {BYTES("[99999999999999999999999,\"99999999999999999999999\\\"\"]"),
     "[9.9999999999999992e22,\"99999999999999999999999\\\"\"]"},
    /* strings */
    {BYTES("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
    {BYTES("\"\\u0041\\u00e9\\u00E9\\u20ac\""), "\"A\\u00E9\\u00E9\\u20AC\""},
    {BYTES("\"\\ud83d\\ude00\\uDBFF\\uDFFF\""), "\"\\uD83D\\uDE00\\uDBFF\\uDFFF\""},
    {BYTES("\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\""), "\"\\u00E9 \\u20AC \\uD83D\\uDE00\""},
    {BYTES("\"\x7F /* no comment */ # [}\""), "\"\x7F /* no comment */ # [}\""},
    {BYTES("\"\\uFFFF\\u0001\\u001f\""), "\"\\uFFFF\\u0001\\u001F\""},
    {BYTES("{\"\\u0061\":1,\"a \":2,\"\xC3\xA9\":3,\"e\xCC\x81\":4}"),
     "{\"a\":1,\"a \":2,\"e\\u0301\":4,\"\\u00E9\":3}"},
};

static const refused bad[] = {
    {"empty text", BYTES(""), NULL},
    {"white space alone", BYTES(" \n "), NULL},
    {"array not closed", BYTES("[1"), NULL},
    {"array not opened", BYTES("1]"), "1:2"},
    {"object not closed", BYTES("{\"a\":1"), NULL},
    {"object closed as an array", BYTES("{\"a\":1]"), "1:7"},
    {"array closed as an object", BYTES("[1}"), "1:3"},
    {"bracket after the end", BYTES("[]]"), "1:3"},
    {"second value", BYTES("{} {}"), "1:4"},
    {"comma after the last element", BYTES("[1,]"), "1:4"},
    {"comma after the last member", BYTES("{\"a\":1,}"), "1:8"},
    {"comma first", BYTES("[,1]"), "1:2"},
    {"two commas", BYTES("[1,,2]"), "1:4"},
    {"no comma", BYTES("[1 2]"), "1:4"},
    {"colon for comma", BYTES("[\"a\":1]"), "1:5"},
    {"comma for colon", BYTES("{\"a\",1}"), "1:5"},
    {"two colons", BYTES("{\"a\"::1}"), "1:6"},
    {"no value", BYTES("{\"a\":}"), "1:6"},
    {"no key", BYTES("{:1}"), "1:2"},
    {"key that is a number", BYTES("{1:1}"), "1:2"},
    {"key without quotes", BYTES("{a:1}"), "1:2"},
    {"key in single quotes", BYTES("{'a':1}"), "1:2"},
    {"the same key twice", BYTES("{\"a\":1,\n\"a\":2}"), "2:3"},
    {"the same key and value twice", BYTES("{\"a\":1,\"a\":1}"), NULL},
    {"the same key, once escaped", BYTES("{\"a\":1,\"\\u0061\":2}"), NULL},
    {"the same key deeper", BYTES("[{\"b\":{\"a\":1,\"a\":2}}]"), NULL},
    {"literal in capitals", BYTES("[True]"), "1:5"},
    {"literal cut short", BYTES("[nul]"), "1:4"},
    {"literal too long", BYTES("[nulll]"), NULL},
    {"not a number", BYTES("[NaN]"), NULL},
    {"infinity", BYTES("[Infinity]"), NULL},
    {"minus infinity", BYTES("[-Infinity]"), NULL},
    {"plus sign", BYTES("[+1]"), "1:2"},
    {"minus alone", BYTES("[-]"), NULL},
    {"minus twice", BYTES("[--1]"), NULL},
    {"leading zero", BYTES("[01]"), NULL},
    {"minus, leading zero", BYTES("[-012]"), NULL},
    {"point first", BYTES("[.5]"), "1:2"},
    {"point last", BYTES("[5.]"), NULL},
    {"point before the exponent", BYTES("[5.e1]"), NULL},
    {"two points", BYTES("[1.2.3]"), NULL},
    {"exponent without digits", BYTES("[1e]"), NULL},
    {"exponent with a sign alone", BYTES("[1e+]"), NULL},
    {"exponent with a point", BYTES("[1e1.5]"), NULL},
    {"hexadecimal", BYTES("[0x10]"), NULL},
    {"letters behind", BYTES("[1a]"), NULL},
    {"sum", BYTES("[1+2]"), NULL},
    {"digits not of ASCII", BYTES("[\xEF\xBC\x91]"), "1:2"},
    {"real beyond a double", BYTES("[1e400]"), NULL},
    {"integer beyond a double", BYTES("[1e999999999]"), NULL},
    {"leading zeros, beyond 64 bits", BYTES("[00000000000000000000001]"), NULL},
    {"string not closed", BYTES("[\"a]"), NULL},
    {"string in single quotes", BYTES("['a']"), "1:2"},
    {"line feed inside a string", BYTES("[\"a\nb\"]"), NULL},
    {"tab inside a string", BYTES("[\"a\tb\"]"), NULL},
    {"control character inside a string", BYTES("[\"\x1f\"]"), NULL},
    {"escape of an unknown letter", BYTES("[\"\\a\"]"), NULL},
    {"escape with x", BYTES("[\"\\x41\"]"), NULL},
    {"escape of a quote alone", BYTES("[\"\\'\"]"), NULL},
    {"escape in capitals", BYTES("[\"\\U0041\"]"), NULL},
    {"escape at the end", BYTES("[\"\\\"]"), NULL},
    {"three hex digits", BYTES("[\"\\u00A\"]"), NULL},
    {"not a hex digit", BYTES("[\"\\u00g1\"]"), NULL},
    {"high surrogate alone", BYTES("[\"\\uD800\"]"), NULL},
    {"low surrogate alone", BYTES("[\"\\uDC00\"]"), NULL},
    {"surrogates in the wrong order", BYTES("[\"\\uDC00\\uD800\"]"), NULL},
    {"high surrogate, then a letter", BYTES("[\"\\uD800a\"]"), NULL},
    {"high surrogate twice", BYTES("[\"\\uD800\\uD800\\n\"]"), NULL},
    {"escaped NUL in a value", BYTES("[\"a\\u0000b\"]"), NULL},
    {"escaped NUL in a key", BYTES("{\"a\\u0000\":1}"), NULL},
    {"UTF-8: continuation alone", BYTES("[\"\x81\"]"), NULL},
    {"UTF-8: cut sequence", BYTES("[\"\xE2\x82\"]"), NULL},
    {"UTF-8: overlong in two", BYTES("[\"\xC0\xAF\"]"), NULL},
    {"UTF-8: overlong in three", BYTES("[\"\xE0\x80\xAF\"]"), NULL},
    {"UTF-8: overlong in four", BYTES("[\"\xF0\x80\x80\xAF\"]"), NULL},
    {"UTF-8: a surrogate", BYTES("[\"\xED\xA0\x80\"]"), NULL},
    {"UTF-8: above U+10FFFF", BYTES("[\"\xF4\x90\x80\x80\"]"), NULL},
    {"UTF-8: five bytes", BYTES("[\"\xF8\x88\x80\x80\x80\"]"), NULL},
    {"UTF-8: byte FF", BYTES("[\"\xFF\"]"), NULL},
    {"UTF-8: bad in a key", BYTES("{\"\xE9\":1}"), NULL},
    {"UTF-8: bad outside strings", BYTES("[\xE9]"), NULL},
    {"Latin-1", BYTES("[\"caf\xE9\"]"), NULL},
    {"UTF-16, little-endian", BYTES("[\0\"\0a\0\"\0]\0"), "1:2"},
    {"UTF-16, big-endian", BYTES("\0[\0]"), "1:1"},
    {"byte order mark", BYTES("\xEF\xBB\xBF{}"), "1:1"},
    {"byte order mark alone", BYTES("\xEF\xBB\xBF"), "1:1"},
    {"NUL between values", BYTES("[1,\n\0002]"), "2:1"},
    {"NUL inside a string", BYTES("[\"a\0b\"]"), "1:4"},
    {"NUL behind a backslash", BYTES("[\"\\\0\"]"), "1:4"},
    {"NUL behind the end", BYTES("{}\0"), "1:3"},
    {"comment of two slashes", BYTES("[1] // one"), "1:5"},
    {"comment between stars", BYTES("[1, /* two */ 2]"), "1:5"},
    {"comment of a hash", BYTES("# one\n[1]"), "1:1"},
    {"form feed as white space", BYTES("[\f]"), "1:2"},
    {"no-break space as white space", BYTES("[\xC2\xA0]"), "1:2"},
    {"escape outside strings", BYTES("[\\n]"), "1:2"},
    {"angle brackets", BYTES("<[]>"), "1:1"},
};

Test(json_conformance, what_is_valid_is_read_with_its_value)
{
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        json_t *root = NULL;
        cr_expect_eq(lathe_json_load("a.json", good[i].text, (int64_t)good[i].bytes, &root),
                     LATHE_OK, "%s: %s", good[i].text, lathe_error_message());
        char *got =
            json_dumps(root, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_SORT_KEYS);
        cr_expect(got != NULL && strcmp(got, good[i].want) == 0, "%s: %s, want %s", good[i].text,
                  got != NULL ? got : "nothing", good[i].want);
        free(got);
        json_decref(root);
    }
}

Test(json_conformance, what_is_invalid_is_refused_with_its_place)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *root = NULL;
        const lathe_status status =
            lathe_json_load("dir/a.json", bad[i].text, (int64_t)bad[i].bytes, &root);
        cr_expect_eq(status, LATHE_E_PARSE, "%s: accepted", bad[i].rule);
        cr_expect_null(root);
        const char *message = lathe_error_message();
        int line = 0, column = 0, end = 0;
        /* an empty text has no column */
        if (bad[i].bytes == 0)
            cr_expect_eq(sscanf(message, "dir/a.json:%d: %n", &line, &end), 1, "%s: %s",
                         bad[i].rule, message);
        else
            cr_expect_eq(sscanf(message, "dir/a.json:%d:%d: %n", &line, &column, &end), 2, "%s: %s",
                         bad[i].rule, message);
        cr_expect(line >= 1 && column >= 0 && end > 0 && message[end] != '\0', "%s: %s",
                  bad[i].rule, message);
        char place[32];
        snprintf(place, sizeof place, "%d:%d", line, column);
        if (bad[i].place != NULL)
            cr_expect_str_eq(place, bad[i].place, "%s: %s", bad[i].rule, message);
    }
}

/* Every proper prefix of a text with all kinds of values is refused; the whole text is accepted. */
Test(json_conformance, no_prefix_of_a_text_is_a_text)
{
    static const char text[] = "{\"a\":[1,-2.5e+3,true,null,\"x\\u00e9\\n\xC3\xA9\"],\"b\":{}}";
    json_t *root = NULL;
    for (size_t n = 0; n + 1 < sizeof text; n++) {
        cr_expect_eq(lathe_json_load("a.json", text, (int64_t)n, &root), LATHE_E_PARSE, "%zu", n);
        cr_expect_null(root);
    }
    cr_assert_eq(lathe_json_load("a.json", text, (int64_t)sizeof text - 1, &root), LATHE_OK);
    json_decref(root);
}

/* 256 levels are accepted and 257 are refused, for arrays, objects, and both in turn. */
Test(json_conformance, nests_to_256_levels_and_no_deeper)
{
    static const char *const open[] = {"[", "{\"k\":", "[{\"k\":"}, *const close[] = {"]", "}",
                                                                                      "}]"};
    static char text[8192];
    for (int kind = 0; kind < 3; kind++)
        for (int levels = 256; levels <= 258; levels += 2) {
            const int n = kind == 2 ? levels / 2 : levels;
            text[0] = '\0';
            for (int i = 0; i < n; i++)
                strcat(text, open[kind]);
            strcat(text, "1");
            for (int i = 0; i < n; i++)
                strcat(text, close[kind]);
            json_t *root = NULL;
            const lathe_status status =
                lathe_json_load("a.json", text, (int64_t)strlen(text), &root);
            cr_expect_eq(status, levels == 256 ? LATHE_OK : LATHE_E_PARSE, "%d levels, kind %d",
                         levels, kind);
            if (status != LATHE_OK)
                cr_expect_not_null(strstr(lathe_error_message(), "nested deeper than 256"));
            json_decref(root);
        }
}
