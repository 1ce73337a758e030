/* Oniguruma's expressions translated to PCRE2's dialect. test_tokenizer_features compares the
 * matches with Hugging Face's splits; this file tests refusals and their messages. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/unicode/regex.h"

static void refused(const char *pattern, lathe_status code, const char *says)
{
    pcre2_code *re = NULL;
    int jit = 0;
    cr_expect_eq(lathe__regex_compile("f.json: place", pattern, &re, &jit), code, "%s", pattern);
    const char *message = lathe_error_message();
    cr_expect(strstr(message, "f.json: place") && strstr(message, pattern), "%s", message);
    cr_expect(strstr(message, says), "\"%s\" lacks \"%s\"", message, says);
}

Test(regex, what_the_two_dialects_do_not_share_is_refused)
{
    static const char *const cases[][2] = {
        {"a\\1", "\\1"},       {"(?<n>a)", "(?<n"},      {"[a&&]", "]"},
        {"[[:alpha:]]", "[:"}, {"[[a]-z]", "]-"},        {"[a-[b]]", "[b"},
        {"a{2}?", "{2}?"},     {"\\Ka", "\\K"},          {"\\R", "\\R"},
        {"\\X", "\\X"},        {"(?x) a", "(?x"},        {"a(?i)b", "(?i)"},
        {"\\xe9", "\\xe9"},    {"[&&a]", "&&"},          {"\\pL", "\\pL"},
        {"\\p{Nope}", "Nope"}, {"\\p{a.b}", "\\p{a.b}"}, {"a)", ")"},
        {"\\", "\\"},          {"\\C", "\\C"},           {"\\g<1>", "\\g"},
        {"(?#c)a", "(?#"},     {"*a", "quantifier"},     {"\\x{110000}", "code point"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i][0], LATHE_E_UNSUPPORTED, cases[i][1]);
    refused("(a", LATHE_E_PARSE, "\"(\" is not closed");
    refused("[a", LATHE_E_PARSE, "\"[\" is not closed");
    refused("[]", LATHE_E_PARSE, "\"[\" is not closed"); /* "]" is a character there */
}

Test(regex, classes_that_intersect_are_rewritten)
{
    static const char *const cases[][2] = {
        {"[a&&b]", "(?:(?=[a])[b])"},
        {"[a-z&&[^aeiou]]+", "(?:(?=[a-z])[^aeiou])+"},
        {"[a&&b&&c]", "(?:(?=(?:(?=[a])[b]))[c])"},
        {"[^a&&b]", "(?:(?!(?:(?=[a])[b]))\\p{Any})"}, /* "^" negates the whole class */
        {"[ab&&[c]d]", "(?:(?=[ab])[cd])"},            /* "&&" binds weaker than the union */
        {"[a[^b]]", "(?:[a]|[^b])"},
        {"[^[^b]]", "[b]"},
        {"[a[b&&c]]", "(?:[a]|(?:(?=[b])[c]))"},
        {"[a-&&[-b]]", "(?:(?=[a\\-])[\\-b])"},
        {"[a&b]", "[a&b]"},
        {"[a[-b]]", "[a\\-b]"}, /* not a range from the outer to the inner class */
        {"[x\\H]", "(?:[x]|[^0-9a-fA-F])"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = NULL;
        cr_assert_eq(lathe__regex_translate("place", cases[i][0], &out), LATHE_OK, "%s",
                     lathe_error_message());
        cr_expect_str_eq(out, cases[i][1], "%s: %s", cases[i][0], out);
        free(out);
    }
}

Test(regex, what_is_rewritten)
{
    static const char *const cases[][2] = {
        {"a{1,3}+b", "(?:a{1,3})+b"},       {"(ab){2}+", "(?:(?:ab){2})+"},
        {"x{,2}y{z", "x{0,2}y\\{z"},        {"[a[bc]d]", "[abcd]"},
        {"\\p{Han}", "\\p{sc:Han}"},        {"\\p{^Lu}", "\\P{Lu}"},
        {"(?m:a).(?i:b)", "(?s:a).(?i:b)"}, {"\\u00e9\\h", "\\x{00e9}[0-9a-fA-F]"},
        {"\\v[\\b]", "\\x0b[\\x08]"},       {"\\d[\\D]", "\\p{Nd}[\\P{Nd}]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = NULL;
        cr_assert_eq(lathe__regex_translate("place", cases[i][0], &out), LATHE_OK, "%s",
                     lathe_error_message());
        cr_expect_str_eq(out, cases[i][1]);
        free(out);
    }
}
