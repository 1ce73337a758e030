/* TOML by version 1.0: a table of texts that must be accepted, with their trees, and one of texts
 * that must be refused, with the line of the error. One choice is ours: no NUL in keys and
 * strings. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/toml.h"

#define BYTES(text) text, sizeof(text) - 1

static lathe_arena arena;

static void teardown(void)
{
    lathe_arena_fini(&arena);
}

TestSuite(toml_conformance, .fini = teardown);

typedef struct accepted {
    /* the tree as JSON, with keys in the file's order; times are strings */
    const char *text, *want;
} accepted;

typedef struct refused {
    const char *rule;
    const char *text;
    size_t bytes;
    int line; /* line in the message */
} refused;

static const accepted good[] = {
    /* comments, white space, ends of line */
    {"# only a comment", "{}"},
    {"\n\r\n \t\n", "{}"},
    {"a = 1 # behind\r\n\tb\t=\t2\t", "{\"a\": 1, \"b\": 2}"},
    {"a = \"# none\" # one", "{\"a\": \"# none\"}"},
    {"# \t \xC3\xA9 \xF0\x9F\x98\x80\na=1", "{\"a\": 1}"},
    {"\xEF\xBB\xBF"
     "a = 1",
     "{\"a\": 1}"},
    /* keys */
    {"bare = 1\nA-_9 = 2\n123 = 3", "{\"bare\": 1, \"A-_9\": 2, \"123\": 3}"},
    {"\"a b\" = 1\n'c\\d' = 2\n\"\" = 3", "{\"a b\": 1, \"c\\\\d\": 2, \"\": 3}"},
    {"\"\\u00e9\" = 1", "{\"\xC3\xA9\": 1}"},
    {"a.b.c = 1\na.b.d = 2", "{\"a\": {\"b\": {\"c\": 1, \"d\": 2}}}"},
    {"a . \"b.c\" . 'd' = 1", "{\"a\": {\"b.c\": {\"d\": 1}}}"},
    {"3.14 = 1", "{\"3\": {\"14\": 1}}"},
    {"true = 1\ninf = 2\n1979-05-27 = 3", "{\"true\": 1, \"inf\": 2, \"1979-05-27\": 3}"},
    /* integers */
    {"a = [0, +0, -0, 42, +99, -17]", "{\"a\": [0, 0, 0, 42, 99, -17]}"},
    {"a = 1_000_000", "{\"a\": 1000000}"},
    {"a = [0xDEADBEEF, 0xdead_beef, 0o755, 0b1101, 0x00]",
     "{\"a\": [3735928559, 3735928559, 493, 13, 0]}"},
    {"a = [9223372036854775807, -9223372036854775808]",
     "{\"a\": [9223372036854775807, -9223372036854775808]}"},
    /* floating numbers */
    {"a = [1.0, -0.5, +3.25, 5e2, 1E6, -2E-2, 6.5e+1]",
     "{\"a\": [1.0, -0.5, 3.25, 500.0, 1000000.0, -0.02, 65.0]}"},
    {"a = 1_000.000_5", "{\"a\": 1000.0005}"},
    {"a = [inf, +inf, -inf, nan, -nan]", "{\"a\": [null, null, null, null, null]}"},
    {"a = [0.0, -0.0, 0e0]", "{\"a\": [0.0, -0.0, 0.0]}"},
    {"a = 3_0e1_0", "{\"a\": 300000000000.0}"},
    /* booleans, times */
    {"a = [true, false]", "{\"a\": [true, false]}"},
    {"a = 1979-05-27T07:32:00Z", "{\"a\": \"1979-05-27T07:32:00Z\"}"},
    {"a = 1979-05-27 00:32:00.5-07:00", "{\"a\": \"1979-05-27T00:32:00.5-07:00\"}"},
    {"a = [1979-05-27T07:32:00, 1979-05-27, 07:32:00]",
     "{\"a\": [\"1979-05-27T07:32:00\", \"1979-05-27\", \"07:32:00\"]}"},
    {"a = 2000-02-29", "{\"a\": \"2000-02-29\"}"},
    /* strings */
    {"a = \"\\b\\t\\n\\f\\r\\\"\\\\\"", "{\"a\": \"\\u0008\\t\\n\\u000c\\u000d\\\"\\\\\"}"},
    {"a = \"\\u20AC\\U0001F600\"", "{\"a\": \"\xE2\x82\xAC\xF0\x9F\x98\x80\"}"},
    {"a = '\\n \"as is\" \\'", "{\"a\": \"\\\\n \\\"as is\\\" \\\\\"}"},
    {"a = \"\"\"\nfirst\nlast\"\"\"", "{\"a\": \"first\\nlast\"}"},
    {"a = \"\"\"one \\\n\n   two \\   \n three\"\"\"", "{\"a\": \"one two three\"}"},
    {"a = \"\"\"\"two\"\" of \"\"\\\"\"\"\"\"", "{\"a\": \"\\\"two\\\"\\\" of \\\"\\\"\\\"\\\"\"}"},
    {"a = '''\nit's ''two'' \\n'''''", "{\"a\": \"it's ''two'' \\\\n''\"}"},
    {"a = [\"\", '', \"\"\"\"\"\", '''''']", "{\"a\": [\"\", \"\", \"\", \"\"]}"},
    {"a = \"\t\"", "{\"a\": \"\\t\"}"},
    /* arrays */
    {"a = []", "{\"a\": []}"},
    {"a = [ 1, # one\n 2\n , 3, # end\n ]", "{\"a\": [1, 2, 3]}"},
    {"a = [[1, 2], [\"x\"], {b = 1}, 1.5]", "{\"a\": [[1, 2], [\"x\"], {\"b\": 1}, 1.5]}"},
    /* tables */
    {"[a]\nb = 1\n[c]\n[a.d]", "{\"a\": {\"b\": 1, \"d\": {}}, \"c\": {}}"},
    {"[ a . \"b\" ] # c\nx = 1", "{\"a\": {\"b\": {\"x\": 1}}}"},
    {"[a.b]\n[a]\nc = 1", "{\"a\": {\"b\": {}, \"c\": 1}}"},
    {"[a]\nb.c = 1\n[a.d]", "{\"a\": {\"b\": {\"c\": 1}, \"d\": {}}}"},
    {"a = {}\nb = { c = 1, d.e = 2 }", "{\"a\": {}, \"b\": {\"c\": 1, \"d\": {\"e\": 2}}}"},
    {"[[a]]\nx = 1\n[[a]]\n[a.b]\ny = 2\n[[a.c]]\n[[a.c]]",
     "{\"a\": [{\"x\": 1}, {\"b\": {\"y\": 2}, \"c\": [{}, {}]}]}"},
};

static const refused bad[] = {
    /* bytes and comments */
    {"byte outside UTF-8", BYTES("a = \"\xE9\""), 1},
    {"cut UTF-8 sequence", BYTES("a = 1\n# \xE2\x82\n"), 2},
    {"overlong UTF-8", BYTES("a = \"\xC0\xAF\""), 1},
    {"surrogate in UTF-8", BYTES("a = \"\xED\xA0\x80\""), 1},
    {"UTF-16",
     BYTES("\xFF\xFE"
           "a\0"),
     1},
    {"byte order mark inside",
     BYTES("a = 1\n\xEF\xBB\xBF"
           "b = 2"),
     2},
    {"control character in a comment", BYTES("a = 1\n# \x01"), 2},
    {"DEL in a comment", BYTES("# \x7F"), 1},
    {"NUL in a comment", BYTES("# \0"), 1},
    {"carriage return alone", BYTES("a = 1\rb = 2"), 1},
    {"carriage return in a comment", BYTES("# a\rb"), 1},
    /* keys */
    {"no key", BYTES("= 1"), 1},
    {"no value", BYTES("a ="), 1},
    {"no equals sign", BYTES("a 1"), 1},
    {"key alone", BYTES("a = 1\nb"), 2},
    {"two equals signs", BYTES("a == 1"), 1},
    {"two on a line", BYTES("a = 1 b = 2"), 1},
    {"value on the next line", BYTES("a =\n1"), 1},
    {"bare key with a space", BYTES("a b = 1"), 1},
    {"bare key with other letters", BYTES("\xC3\xA9 = 1"), 1},
    {"bare key with a mark", BYTES("a! = 1"), 1},
    {"key in three quotes", BYTES("\"\"\"a\"\"\" = 1"), 1},
    {"key over two lines", BYTES("\"a\nb\" = 1"), 1},
    {"quoted key not closed", BYTES("\"a = 1"), 1},
    {"dot first", BYTES(".a = 1"), 1},
    {"dot last", BYTES("a. = 1"), 1},
    {"two dots", BYTES("a..b = 1"), 1},
    {"the same key twice", BYTES("a = 1\nb = 2\na = 3"), 3},
    {"the same key, once quoted", BYTES("a = 1\n\"a\" = 2"), 2},
    {"the same key, once dotted", BYTES("a.b = 1\na.b = 2"), 2},
    {"dotted key through a value", BYTES("a = 1\na.b = 2"), 2},
    {"dotted key over a table", BYTES("a.b = 1\na = 2"), 2},
    /* integers */
    {"leading zero", BYTES("a = 01"), 1},
    {"leading zero behind a sign", BYTES("a = -01"), 1},
    {"two signs", BYTES("a = ++1"), 1},
    {"sign alone", BYTES("a = +"), 1},
    {"underscore first", BYTES("a = _1"), 1},
    {"underscore last", BYTES("a = 1_"), 1},
    {"two underscores", BYTES("a = 1__0"), 1},
    {"underscore behind the prefix", BYTES("a = 0x_1"), 1},
    {"prefix alone", BYTES("a = 0x"), 1},
    {"prefix in capitals", BYTES("a = 0XFF"), 1},
    {"sign before a prefix", BYTES("a = +0x1"), 1},
    {"digit outside its base", BYTES("a = 0b12"), 1},
    {"octal eight", BYTES("a = 0o8"), 1},
    {"letters behind", BYTES("a = 1a"), 1},
    {"binary point", BYTES("a = 0x1.8p0"), 1},
    /* floating numbers */
    {"point first", BYTES("a = .5"), 1},
    {"point last", BYTES("a = 5."), 1},
    {"point before the exponent", BYTES("a = 5.e1"), 1},
    {"two points", BYTES("a = 1.2.3"), 1},
    {"exponent alone", BYTES("a = 1e"), 1},
    {"exponent twice", BYTES("a = 1e2e3"), 1},
    {"exponent with a point", BYTES("a = 1e2.3"), 1},
    {"underscore beside the point", BYTES("a = 1_.5"), 1},
    {"leading zero of a real", BYTES("a = 03.5"), 1},
    {"infinity in capitals", BYTES("a = Inf"), 1},
    {"word for nan", BYTES("a = NaN"), 1},
    {"infinity written out", BYTES("a = infinity"), 1},
    /* booleans and times */
    {"true in capitals", BYTES("a = True"), 1},
    {"true cut short", BYTES("a = tru"), 1},
    {"true with letters behind", BYTES("a = truer"), 1},
    {"bare word", BYTES("a = adamw"), 1},
    {"month 13", BYTES("a = 2024-13-01"), 1},
    {"day 0", BYTES("a = 2024-01-00"), 1},
    {"29 February", BYTES("a = 2023-02-29"), 1},
    {"29 February 1900", BYTES("a = 1900-02-29"), 1},
    {"hour 24", BYTES("a = 24:00:00"), 1},
    {"minute 60", BYTES("a = 00:60:00"), 1},
    {"second 61", BYTES("a = 00:00:61"), 1},
    {"no seconds", BYTES("a = 2024-01-01T07:32"), 1},
    {"one digit of a month", BYTES("a = 2024-1-01"), 1},
    {"year of five digits", BYTES("a = 12024-01-01"), 1},
    {"T without a time", BYTES("a = 2024-01-01T"), 1},
    {"offset of 24 hours", BYTES("a = 2024-01-01T00:00:00+24:00"), 1},
    {"offset of a date", BYTES("a = 2024-01-01Z"), 1},
    {"point without a fraction", BYTES("a = 07:32:00."), 1},
    /* strings */
    {"not closed", BYTES("a = \"x\nb = 1"), 1},
    {"literal not closed", BYTES("a = 'x"), 1},
    {"three quotes not closed", BYTES("a = \"\"\"x\""), 1},
    {"six quotes too many", BYTES("a = \"\"\"x\"\"\"\"\"\""), 1},
    {"line feed inside", BYTES("a = 'x\ny'"), 1},
    {"control character inside", BYTES("a = \"\x1f\""), 1},
    {"control character in three quotes", BYTES("a = '''\n\x0b'''"), 2},
    {"DEL inside", BYTES("a = \"\x7f\""), 1},
    {"unknown escape", BYTES("a = \"\\q\""), 1},
    {"escape of version 1.1: e", BYTES("a = \"\\e\""), 1},
    {"escape of version 1.1: x", BYTES("a = \"\\x41\""), 1},
    {"escape of a slash", BYTES("a = \"\\/\""), 1},
    {"three hex digits", BYTES("a = \"\\u00e\""), 1},
    {"seven hex digits", BYTES("a = \"\\U0001F60\""), 1},
    {"surrogate escaped", BYTES("a = \"\\uD800\""), 1},
    {"above U+10FFFF", BYTES("a = \"\\U00110000\""), 1},
    {"backslash before the end", BYTES("a = \"x\\\""), 1},
    {"text behind a closing backslash", BYTES("a = \"\"\"x \\ y\n\"\"\""), 1},
    {"NUL, raw", BYTES("a = \"x\0y\""), 1},
    {"NUL, escaped", BYTES("\na = \"x\\u0000y\""), 2},
    {"NUL, escaped, in a key", BYTES("\"a\\u0000\" = 1"), 1},
    {"two strings", BYTES("a = \"x\" \"y\""), 1},
    /* arrays */
    {"array not closed", BYTES("a = [1,"), 1},
    {"array closed twice", BYTES("a = [1]]"), 1},
    {"no comma", BYTES("a = [1 2]"), 1},
    {"two commas", BYTES("a = [1,,2]"), 1},
    {"comma alone", BYTES("a = [,]"), 1},
    {"key in an array", BYTES("a = [b = 1]"), 1},
    /* tables */
    {"header without a name", BYTES("[]"), 1},
    {"header not closed", BYTES("[a\nb = 1"), 1},
    {"header with an empty part", BYTES("[a..b]"), 1},
    {"header and more", BYTES("[a] b = 1"), 1},
    {"header over two lines", BYTES("[a.\nb]"), 1},
    {"table twice", BYTES("[a]\n[b]\n[a]"), 3},
    {"table over a value", BYTES("a = 1\n[a]"), 2},
    {"table over a dotted key", BYTES("a.b = 1\n[a]"), 2},
    {"table over a dotted key within", BYTES("[a]\nb.c = 1\n[a.b]"), 3},
    {"table through a value", BYTES("a = 1\n[a.b]"), 2},
    {"dotted key into a table made by a header", BYTES("[a.b]\nc = 1\n[a]\nb.d = 2"), 4},
    {"array of tables over a table", BYTES("[a]\n[[a]]"), 2},
    {"table over an array of tables", BYTES("[[a]]\n[a]"), 2},
    {"array of tables over an array", BYTES("a = []\n[[a]]"), 2},
    {"brackets apart", BYTES("[ [a]]"), 1},
    {"one bracket of two closed", BYTES("[[a]"), 1},
    {"inline table, comma last", BYTES("a = {b = 1,}"), 1},
    {"inline table, no comma", BYTES("a = {b = 1 c = 2}"), 1},
    {"inline table over lines", BYTES("a = {\nb = 1}"), 1},
    {"inline table not closed", BYTES("a = {b = 1"), 1},
    {"inline table, key twice", BYTES("a = {b = 1, b = 2}"), 1},
    {"inline table, key extended", BYTES("a = {b = 1, b.c = 2}"), 1},
    {"inline table extended by a key", BYTES("a = {b = 1}\na.c = 2"), 2},
    {"inline table extended by a header", BYTES("a = {}\n[a.b]"), 2},
    {"array of inline tables extended", BYTES("a = [{}]\n[[a]]"), 2},
};

Test(toml_conformance, what_is_valid_is_read_as_its_tree)
{
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        lathe_toml_node *root = NULL;
        const lathe_status status =
            lathe_toml_load("run.toml", good[i].text, (int64_t)strlen(good[i].text), &arena, &root);
        cr_expect_eq(status, LATHE_OK, "%s: %s", good[i].text, lathe_error_message());
        if (status != LATHE_OK)
            continue;
        lathe_buffer text = LATHE_BUFFER_INIT;
        lathe_toml_json(root, &text);
        cr_expect_str_eq(text.data, good[i].want, "%s: %s", good[i].text, text.data);
        lathe_buffer_fini(&text);
    }
}

Test(toml_conformance, what_is_invalid_is_refused_with_its_line)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lathe_toml_node *root = NULL;
        const lathe_status status =
            lathe_toml_load("dir/run.toml", bad[i].text, (int64_t)bad[i].bytes, &arena, &root);
        cr_expect_eq(status, LATHE_E_PARSE, "%s: accepted", bad[i].rule);
        cr_expect_null(root);
        int line = 0, column = 0, end = 0;
        const char *message = lathe_error_message();
        cr_expect_eq(sscanf(message, "dir/run.toml:%d:%d: %n", &line, &column, &end), 2, "%s: %s",
                     bad[i].rule, message);
        cr_expect(end > 0 && message[end] != '\0' && column >= 1, "%s: %s", bad[i].rule, message);
        cr_expect_eq(line, bad[i].line, "%s: %s", bad[i].rule, message);
    }
}
