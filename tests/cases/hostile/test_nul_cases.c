/* A NUL in a foreign text is a character like others: none of the sets of characters that a reader
 * compares with contains it. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/template/chat_template.h"
#include "cli/cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

TestSuite(nul_cases, .timeout = 60);

/* Renders a template of n bytes; returns its message if it is refused, else NULL. */
static const char *refusal(const char *text, size_t n)
{
    const lathe_template_input input = {0};
    lathe_template *tpl = NULL;
    lathe_rendering got = {0};
    lathe_status status = lathe_template_parse("t", text, (int64_t)n, &tpl);
    if (status == LATHE_OK)
        status = lathe_template_render(tpl, &input, &got);
    lathe_template_destroy(tpl);
    lathe_rendering_fini(&got);
    return status == LATHE_OK ? NULL : lathe_error_message();
}

/* Python: "unsupported format character", "unexpected '{' in field name", "embedded null
 * character". */
Test(nul_cases, templates)
{
#define CASE(text, message)                                                                        \
    {                                                                                              \
        text, sizeof text - 1, message                                                             \
    }
    static const struct {
        const char *text;
        size_t n;
        const char *message;
    } cases[] = {
        CASE("{{ '[%05\0]' % 3 }}", "that is none of"),
        CASE("{{ '%\0' % 3 }}", "that is none of"),
        CASE("{{ '%-\0d' % 3 }}", "that is none of"),
        CASE("{{ '%\0d' % 3 }}", "that is none of"),
        CASE("{{ '%.2\0' % 3 }}", "that is none of"),
        CASE("{{ '{a\0}'.format(1) }}", "no argument"),
        CASE("{{ strftime_now('%Y\0%d') }}", "with a NUL"),
        CASE("{{ 0\0FF }}", "U+0000"),
        CASE("{{ 0\0001 }}", "U+0000"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *message = refusal(cases[i].text, cases[i].n);
        cr_expect_not_null(message, "case %zu is taken", i);
        if (message)
            cr_expect_not_null(strstr(message, cases[i].message), "case %zu: %s", i, message);
    }
}

Test(nul_cases, is_in_no_set)
{
    cr_expect(lathe_is_one_of('b', "abc"));
    cr_expect_not(lathe_is_one_of('d', "abc"));
    cr_expect_not(lathe_is_one_of('\0', "abc"));
    cr_expect_not(lathe_is_one_of('\0', ""));
}

/* The command, on a template file that holds a NUL. */
Test(nul_cases, a_folder_s_template, .init = make_folder, .fini = remove_folder)
{
    put("chat.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n");
    cr_assert_eq(run("mkdir m && printf \"{{ '[%%05\\000]' %% 3 }}\" > m/chat_template.jinja"), 0);
    expect(LATHE " chat-template m/chat_template.jinja --show chat.jsonl 2>&1", 2, "none of %s");
}
