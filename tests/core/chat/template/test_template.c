/* The template interpreter: against jinja2 (tests/golden/chat_templates.py), its limits, its
 * errors. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "chat/template/chat_template.h"

enum { NOW = 1753000000 }; /* of the golden texts */

static lathe_status render(const char *text, const lathe_template_input *input,
                           lathe_rendering *out)
{
    lathe_template *tpl = NULL;
    memset(out, 0, sizeof *out);
    lathe_status status = lathe_template_parse("t", text, (int64_t)strlen(text), &tpl);
    if (status == LATHE_OK)
        status = lathe_template_render(tpl, input, out);
    lathe_template_destroy(tpl);
    return status;
}

static void gives(const char *text, const char *want)
{
    const lathe_template_input input = {0};
    lathe_rendering got;
    cr_assert_eq(render(text, &input, &got), LATHE_OK, "%s: %s", text, lathe_error_message());
    cr_expect_str_eq(got.text, want, "%s", text);
    lathe_rendering_fini(&got);
}

static void refuses(const char *text, const lathe_template_input *input, const char *message)
{
    lathe_rendering got;
    const lathe_status status = render(text, input, &got);
    cr_expect_neq(status, LATHE_OK, "%s", text);
    cr_expect(strstr(lathe_error_message(), message), "%s\nsays    %s\nwants %s", text,
              lathe_error_message(), message);
    lathe_rendering_fini(&got);
}

static void check_spans(const char *name, const lathe_rendering *got, json_t *want)
{
    cr_expect_eq((size_t)got->n_spans, json_array_size(want), "%s: spans", name);
    for (size_t i = 0; i < json_array_size(want) && i < (size_t)got->n_spans; i++) {
        json_t *span = json_array_get(want, i);
        const int64_t begin = json_integer_value(json_array_get(span, 0));
        const int64_t end = json_integer_value(json_array_get(span, 1));
        cr_expect_eq(got->spans[i].begin, begin < got->bytes ? begin : got->bytes, "%s", name);
        cr_expect_eq(got->spans[i].end, end < got->bytes ? end : got->bytes, "%s", name);
    }
}

static void check_case(json_t *c, json_t *tokens)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    json_t *text = json_object_get(c, "template"), *want = json_object_get(c, "text"), *owned;
    lathe_chat_template *chat = NULL;
    lathe_chat what;
    lathe_rendering got = {0};
    lathe_status status = lathe_chat_template_create(
        "t", json_string_value(text), (int64_t)json_string_length(text), tokens, &chat);
    cr_assert_eq(lathe_chat_from_row(json_object_get(c, "row"), &what, &owned), LATHE_OK);
    what.now = NOW;
    if (status == LATHE_OK)
        status = lathe_chat_render(chat, &what, &got);
    if (!want) {
        cr_expect_neq(status, LATHE_OK, "%s is refused by jinja2 and gives %s", name, got.text);
    } else {
        cr_assert_eq(status, LATHE_OK, "%s: %s", name, lathe_error_message());
        cr_expect((size_t)got.bytes == json_string_length(want) &&
                      memcmp(got.text, json_string_value(want), (size_t)got.bytes) == 0,
                  "%s\ngives %s\nwants %s", name, got.text, json_string_value(want));
        check_spans(name, &got, json_object_get(c, "generation"));
    }
    lathe_rendering_fini(&got);
    lathe_chat_template_destroy(chat);
    json_decref(owned);
}

Test(template, small_templates_render_as_in_jinja2)
{
    json_t *cases, *c;
    char *text = NULL;
    int64_t n = 0;
    size_t i;
    json_t *tokens = json_pack("{ssssssss}", "bos_token", "<s>", "eos_token", "</s>", "pad_token",
                               "<pad>", "unk_token", "<unk>");
    setenv("TZ", "UTC", 1);
    tzset();
    const char *path = LATHE_TEST_DATA "/golden/data/chat_templates.json";
    cr_assert_eq(lathe_file_read(path, 0, &text, &n), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_json_load_exact(path, text, n, 0, &cases), LATHE_OK, "%s",
                 lathe_error_message());
    free(text);
    cr_assert_gt(json_array_size(cases), 150);
    json_array_foreach(cases, i, c) check_case(c, tokens);
    json_decref(cases);
    json_decref(tokens);
}

/* 2^-44, whose shortest decimal is not the nearest of its length, and others,
 * as repr() of Python writes them. */
Test(template, numbers_have_the_shortest_text_that_is_read_as_them)
{
    gives("{{ 5.684341886080802e-14 }} {{ 5e-324 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 123456789.0 }} "
          "{{ 9007199254740993.0 }} {{ -9.5367431640625e-07 }}",
          "5.684341886080802e-14 5e-324 0.30000000000000004 1e+22 123456789.0 "
          "9007199254740992.0 -9.5367431640625e-07");
}

Test(template, an_endless_loop_ends_at_the_limit_of_steps)
{
    const lathe_template_input input = {.limits = {.steps = 100000}};
    refuses("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            &input, "t:1:");
    refuses("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            &input, "takes more than 100000 steps");
}

Test(template, text_and_values_have_limits)
{
    const lathe_template_input memory = {.limits = {.memory_bytes = 1 << 20}};
    const lathe_template_input output = {.limits = {.output_bytes = 1000}};
    const lathe_template_input depth = {0};
    refuses("{{ 'x' * 9000000 }}", &memory, "t:1:8: the template takes more than 1 MiB of memory");
    refuses("{{ 'x' * 1001 }}", &output, "the rendered text is longer than 1000 bytes");
    refuses(
        "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}"
        "{{ n.x }}",
        &depth, "nested more than 1500 deep");
    refuses("{% set n = namespace() %}{% set n.n = n %}{{ [n] | tojson }}", &depth,
            "a value of type namespace cannot be written as JSON");
}

Test(template, deep_nesting_is_refused_when_it_is_parsed)
{
    const lathe_template_input input = {0};
    char text[4096] = "{{ ";
    memset(text + 3, '(', 300);
    refuses(text, &input, "expressions and blocks are nested more than 200 deep");
    memset(text + 3, '-', 3000);
    refuses(text, &input, "nested more than 200 deep");
    size_t n = 3;
    for (int i = 0; i < 900; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "1+");
    (void)snprintf(text + n, sizeof text - n, "1 }}");
    refuses(text, &input, "an expression of more than 400 operators");
    n = 0;
    for (int i = 0; i < 300; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "{%% if 1 %%}");
    refuses(text, &input, "nested more than 200 deep");
}

Test(template, a_text_that_grows_in_a_loop_takes_linear_memory)
{
    const lathe_template_input input = {.limits = {.memory_bytes = 16 << 20}};
    lathe_rendering got;
    cr_assert_eq(render("{% set n = namespace(s='', l=[]) %}{% for i in range(20000) %}"
                        "{% set n.s = n.s + 'abcdefgh' %}{% set n.l = n.l + [i] %}{% endfor %}"
                        "{{ n.s | length }} {{ n.l | length }} {{ n.l[12345] }}",
                        &input, &got),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(got.text, "160000 20000 12345");
    lathe_rendering_fini(&got);
    gives("{% set a = 'x' * 300 %}{% set b = a + '1' %}{% set c = a + '2' %}{% set d = b + '3' %}"
          "{{ b[-2:] }}{{ c[-2:] }}{{ d[-3:] }}{% set l = [1] %}{% set m = l + [2] %}"
          "{% set n = l + [3] %}{% set o = m + [4] %}{{ l }}{{ m }}{{ n }}{{ o }}",
          "x1x2x13[1][1, 2][1, 3][1, 2, 4]");
}

Test(template, a_range_may_be_wider_than_an_integer)
{
    gives("{% set r = range(-9000000000000000000, 9000000000000000000, 200000000000000) | list %}"
          "{{ r | length }} {{ r[1] }} {{ r[-1] }}",
          "90000 -8999800000000000000 8999800000000000000");
    gives("{{ range(9000000000000000000, -9000000000000000000, -200000000000000) | last }}",
          "-8999800000000000000");
}

Test(template, errors_name_line_column_and_construct)
{
    const lathe_template_input none = {0};
    refuses("a\n{% for x in y recursive %}", &none, "t:2:15: a recursive loop is not supported");
    refuses("{% include 'x' %}", &none, "t:1:4: the tag {% include %} is not supported");
    refuses("é {{ 1 | urlize }}", &none, "t:1:10: the filter 'urlize' is not supported");
    refuses("{{ x is nosuch }}", &none, "t:1:9: the test 'nosuch' is not supported");
    refuses("{{ cycler(1) }}", &none, "t:1:4: the function 'cycler' is not supported");
    refuses("{{ x[1, 2] }}", &none, "t:1:7: a tuple inside [ ] is not supported");
    refuses("{{ range(3) }}", &none,
            "t:1:9: a range cannot be printed; expected '| list' after it");
    refuses("{{ 9223372036854775807 + 1 }}", &none, "t:1:24: an integer beyond 64 bits");
    refuses("{{ 99999999999999999999 }}", &none, "t:1:4: a number that is no integer of 64 bits");
    refuses("{% if a %}\n{% endfor %}", &none, "t:2:4: {% endfor %} closes no open block");
    refuses("{{ '\\ud800' }}", &none, "t:1:4: a string with an escape that is no character");
    refuses("\xff", &none, "t: byte 1 of the template is not UTF-8");
    refuses("{{ (1] }}", &none, "t:1:6: expected ')', found ']'");
    refuses("{{ raise_exception('no\ntools') }}", &none, "t:1:4: the template refuses: no\ntools");
}

Test(template, the_date_is_the_caller_s)
{
    const lathe_template_input input = {.now = NOW};
    lathe_rendering got;
    setenv("TZ", "UTC", 1);
    tzset();
    cr_assert_eq(render("{{ strftime_now('%d %b %Y %H:%M') }}", &input, &got), LATHE_OK);
    cr_expect_str_eq(got.text, "20 Jul 2025 08:26");
    lathe_rendering_fini(&got);
    refuses("{{ strftime_now('%Q') }}", &input, "t:1:4: strftime_now with %Q is not supported");
}
