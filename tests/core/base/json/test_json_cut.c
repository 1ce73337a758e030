/* A member is removed and the other bytes stay. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_cut.h"

static void expect_cut(const char *text, const char *want)
{
    int64_t from = 0, to = 0;
    char seen[256];
    const int64_t n = (int64_t)strlen(text);
    cr_assert_eq(lathe_json_cut(text, n, "x", &from, &to), 1, "%s", text);
    (void)snprintf(seen, sizeof seen, "%.*s%s", (int)from, text, text + to);
    cr_expect_str_eq(seen, want, "%s", text);
}

Test(json_cut, keeps_the_bytes_of_other_members)
{
    expect_cut("{\"x\": 1}", "{}");
    expect_cut(" { \"x\" : [1, {\"x\": 2}] , \"a\": 1e400 }", " { \"a\": 1e400 }");
    expect_cut("{\"a\": \"x\",\n \"x\": \"}\\\",\",\n \"b\": 2}\n", "{\"a\": \"x\",\n \"b\": 2}\n");
    expect_cut("{\"a\": {\"x\": 1}, \"x\": null\n}", "{\"a\": {\"x\": 1}\n}");
}

Test(json_cut, finds_no_member_of_members)
{
    int64_t from, to;
    const char *const without[] = {"{}", "[\"x\", 1]", "{\"a\": {\"x\": 1}, \"xx\": \"x\"}", ""};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
        cr_expect_eq(lathe_json_cut(without[i], (int64_t)strlen(without[i]), "x", &from, &to), 0);
}
