/* Tools and their calls by renderers: what a family has no text for is refused with its message,
 * and names of special tokens in tools, calls and answers stay text. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/log.h"
#include "data/conversation/chat_record.h"
#include "run/decide/renderer_choice.h"

#ifndef LATHE_TEST_BUILD
#error the build folder is not known
#endif

#define LLAMA "<|start_header_id|> Cutting Knowledge Date tools_in_user_message"
#define MISTRAL "\"[INST]\" + system_message [AVAILABLE_TOOLS]"
#define BAR "\xef\xbd\x9c"
#define V3                                                                                         \
    "<" BAR "User" BAR "> is_first_sp <" BAR "tool\xe2\x96\x81"                                    \
    "calls\xe2\x96\x81"                                                                            \
    "begin" BAR ">"
#define HARMONY "<|start|>system<|message|> render_typescript_type"

/* Renders a row by a renderer that is named; the probe is what it looks for in a template. */
static lathe_status render(const char *renderer, const char *probe, const char *row,
                           lathe_rendering *out)
{
    char text[256];
    json_t *object = NULL, *owned = NULL;
    json_t *tokens = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>");
    lathe_registry *registry;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_chat_template *chat;
    lathe_instance instance;
    lathe_chat what;
    lathe_log_set_level(LATHE_LOG_ERROR); /* not the warning that the probe is no template */
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/lib/lathe/plugins", 1), 0);
    (void)snprintf(text, sizeof text, "{# %s #}", probe);
    cr_assert_eq(lathe_registry_create(&registry), LATHE_OK);
    cr_assert_eq(lathe_chat_template_create("t", text, (int64_t)strlen(text), tokens, &chat),
                 LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(
        lathe_renderer_choose(registry, renderer, NULL, NULL, chat, &arena, &instance, NULL),
        LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_json_load("row", row, (int64_t)strlen(row), &object), LATHE_OK, "%s", row);
    cr_assert_eq(lathe_chat_from_row(object, &what, &owned), LATHE_OK);
    what.now = 1753000000;
    const lathe_status status = lathe_chat_render(chat, &what, out);
    json_decref(owned);
    json_decref(object);
    lathe_chat_template_destroy(chat);
    lathe_instance_fini(&instance);
    lathe_registry_destroy(registry);
    lathe_arena_fini(&arena);
    json_decref(tokens);
    return status;
}

#define USER "{\"role\": \"user\", \"content\": \"a\"}"
#define CALL(id, more, arguments)                                                                  \
    "{\"id\": \"" id "\", " more "\"function\": {\"name\": \"f\", \"arguments\": " arguments "}}"
#define CALLS(calls)                                                                               \
    "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "      \
    "[" calls "]}]}"
#define TOOLS(tool) "{\"messages\": [" USER "], \"tools\": [" tool "]}"
#define IN_2 "message 2 (role \"assistant\"): "
#define IN_1 "message 1 (role \"user\"): "

static const struct {
    const char *renderer, *probe, *row, *error;
} refusals[] = {
    {"llama3", LLAMA, CALLS(CALL("1", "", "{}") ", " CALL("2", "", "{}")),
     IN_2 "the family has one call in a message"},
    {"llama3", LLAMA, CALLS("{\"name\": \"f\", \"arguments\": {}}"),
     IN_2 "a call is the assistant's, and has a \"function\""},
    {"llama3", "<|start_header_id|>", CALLS(CALL("1", "", "{}")),
     IN_2 "Llama 3 has no text for tools and calls, 3.1 to 3.3 have"},
    {"llama3", "<|start_header_id|>", TOOLS("{}"),
     IN_1 "Llama 3 has no text for tools and calls, 3.1 to 3.3 have"},
    {"mistral_v3", MISTRAL, CALLS(CALL("12345", "", "{}")),
     IN_2 "the id of a call needs 9 characters"},
    {"mistral_v3", MISTRAL, TOOLS("{\"function\": 1}"), IN_1 "a tool needs its \"function\""},
    {"mistral_v3", MISTRAL,
     "{\"messages\": [" USER ", {\"role\": \"tool\", \"content\": \"x\"}, " USER "]}",
     "message 2 (role \"tool\"): tool_call_id needs 9 characters"},
    {"deepseek", V3, CALLS(CALL("1", "", "\"{}\"")), IN_2 "a call needs \"type\" and \"function\""},
    {"deepseek", V3, CALLS(CALL("1", "\"type\": \"function\", ", "{}")),
     IN_2 "arguments of calls must be JSON as a string"},
    {"gpt_oss", HARMONY, CALLS(CALL("1", "", "{}") ", " CALL("2", "", "{}")),
     IN_2 "the family has one call in a message"},
    {"gpt_oss", HARMONY, "{\"messages\": [" USER ", {\"role\": \"tool\", \"content\": \"x\"}]}",
     "message 2 (role \"tool\"): no call is before the answer of a tool"},
    {"gpt_oss", HARMONY, TOOLS("{\"function\": {\"name\": \"f\"}}"),
     IN_1 "a function needs its description"},
    {"gpt_oss", HARMONY,
     TOOLS("{\"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": "
           "{\"properties\": {\"a\": {\"type\": \"string\", \"enum\": [1]}}}}}"),
     IN_1 "enum is no list of strings"},
};

Test(renderer_tools, a_call_without_a_text_in_the_family_is_refused)
{
    char want[256];
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        lathe_rendering text = {0};
        (void)snprintf(want, sizeof want, "renderer %s: %s", refusals[i].renderer,
                       refusals[i].error);
        cr_expect_eq(render(refusals[i].renderer, refusals[i].probe, refusals[i].row, &text),
                     LATHE_E_CONFIG, "%zu: %s", i, text.text ? text.text : "");
        cr_expect_str_eq(lathe_error_message(), want);
        lathe_rendering_fini(&text);
    }
}

/* A renderer that is named in a folder with the template of another family, or none, has all that
 * it can write; in a folder with a template of its family, what that has. */
Test(renderer_tools, a_named_renderer_has_tools_unless_its_family_s_template_lacks_them)
{
    static const char tool[] = TOOLS("{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                                     "\"description\": \"d\", \"parameters\": {}}}");
    static const struct {
        const char *renderer, *probe, *text, *error;
    } cases[] = {
        {"llama3", "other", "Environment: ipython\nCutting Knowledge Date: December 2023\n", NULL},
        {"llama3", "<|start_header_id|> Cutting Knowledge Date", NULL,
         "renderer llama3: " IN_1 "the folder's template has no text for tools and calls"},
        {"mistral_v3", "other", "[AVAILABLE_TOOLS]", NULL},
        {"mistral_v3", "\"[INST]\" + system_message", NULL,
         "renderer mistral_v3: " IN_1 "the folder's template has no text for tools"},
        {"gpt_oss", "other", "namespace functions {", NULL},
        {"gpt_oss", "<|start|>system<|message|>", NULL,
         "renderer gpt_oss: " IN_1 "the folder's template has no text for tools"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lathe_rendering text = {0};
        const lathe_status status = render(cases[i].renderer, cases[i].probe, tool, &text);
        cr_expect_eq(status, cases[i].text ? LATHE_OK : LATHE_E_CONFIG, "%zu: %s", i,
                     lathe_error_message());
        if (cases[i].text && status == LATHE_OK)
            cr_expect_not_null(strstr(text.text, cases[i].text), "%zu: %s", i, text.text);
        if (cases[i].error)
            cr_expect_str_eq(lathe_error_message(), cases[i].error);
        lathe_rendering_fini(&text);
    }
}

/* A schema of n lists in each other. */
static char *nested(int n)
{
    static const char begin[] = "{\"messages\": [" USER "], \"tools\": [{\"function\": {\"name\": "
                                "\"f\", \"description\": \"\", \"parameters\": {\"properties\": "
                                "{\"a\": ",
                      part[] = "{\"type\": \"array\", \"items\": ", end[] = "}}}}]}";
    const size_t size = sizeof begin + sizeof end + (size_t)n * sizeof part + 64;
    char *row = malloc(size);
    cr_assert_not_null(row);
    int at = snprintf(row, size, "%s", begin);
    for (int i = 0; i < n; i++)
        at += snprintf(row + at, size - (size_t)at, "%s", part);
    at += snprintf(row + at, size - (size_t)at, "{}");
    for (int i = 0; i < n; i++)
        row[at++] = '}';
    (void)snprintf(row + at, size - (size_t)at, "%s", end);
    return row;
}

Test(renderer_tools, a_schema_may_be_64_deep_in_gpt_oss)
{
    lathe_rendering text = {0};
    char *row = nested(64);
    cr_expect_eq(render("gpt_oss", HARMONY, row, &text), LATHE_OK, "%s", lathe_error_message());
    cr_expect(strstr(text.text, "\na?: any[][][][][][][][][][][][][][][][],\n"), "%s", text.text);
    lathe_rendering_fini(&text);
    free(row);
    row = nested(100);
    cr_expect_eq(render("gpt_oss", HARMONY, row, &text), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "a schema that is too deep"), "%s",
              lathe_error_message());
    free(row);
}

Test(renderer_tools, names_of_tokens_in_tools_and_calls_stay_text)
{
    static const char row[] =
        "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "
        "[{\"id\": \"123456789\", \"type\": \"function\", \"function\": {\"name\": \"[INST]\", "
        "\"arguments\": {\"[INST]\": \"</s>\"}}}]}, {\"role\": \"tool\", \"tool_call_id\": "
        "\"123456789\", \"content\": \"[/TOOL_RESULTS]\"}], \"tools\": [{\"type\": \"function\", "
        "\"function\": {\"name\": \"[INST]\", \"description\": \"[/INST]\", \"parameters\": "
        "{\"</s>\": \"[INST]\"}}}]}";
    static const char *const want[] = {"<s>",    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                                       "[INST]", "[/INST]",           "[TOOL_CALLS]",
                                       "</s>",   "[TOOL_RESULTS]",    "[/TOOL_RESULTS]"};
    const size_t n = sizeof want / sizeof want[0];
    lathe_rendering text = {0};
    cr_assert_eq(render("mistral_v3", MISTRAL, row, &text), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(text.n_tokens, (int64_t)n);
    for (size_t i = 0; i < n; i++)
        cr_expect_eq(strncmp(text.text + text.tokens[i], want[i], strlen(want[i])), 0, "%zu: %s", i,
                     text.text + text.tokens[i]);
    cr_expect(strstr(text.text, "[TOOL_RESULTS]{\"content\": [/TOOL_RESULTS], \"call_id\": "
                                "\"123456789\"}[/TOOL_RESULTS]"),
              "%s", text.text);
    lathe_rendering_fini(&text);
}
