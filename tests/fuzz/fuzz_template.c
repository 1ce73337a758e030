/* libFuzzer target: any bytes as a chat template. What it renders must be UTF-8, twice the same,
 * and its spans must lie inside it. */
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/utf8.h"
#include "chat/template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char values[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be \\u00e9.\"}, {\"role\": \"user\", "
    "\"content\":"
    " [{\"type\": \"text\", \"text\": \"a\\nb\"}]}, {\"role\": \"assistant\", \"content\": null,"
    " \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5, \"y\": [true, "
    "null]}}}]},"
    " {\"role\": \"tool\", \"content\": \" \\ud83d\\ude42 \"}], \"tools\": [{\"function\": "
    "{\"name\": \"f\"}}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"n\": -3}";

static void check(const lathe_rendering *r)
{
    if (lathe_utf8_prefix((const uint8_t *)r->text, r->bytes) != r->bytes)
        abort();
    for (int64_t i = 0; i < r->n_spans; i++)
        if (r->spans[i].begin < 0 || r->spans[i].begin > r->spans[i].end ||
            r->spans[i].end > r->bytes)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_template *tpl = NULL;
    json_t *variables = NULL;
    if (lathe_template_parse("fuzz", (const char *)data, (int64_t)size, &tpl) != LATHE_OK)
        return 0;
    if (lathe_json_load("values", values, sizeof values - 1, &variables) != LATHE_OK)
        abort();
    const lathe_template_input input = {variables, 1753000000, {100000, 8 << 20, 1 << 20, 0}};
    lathe_rendering once = {0}, twice = {0};
    const lathe_status status = lathe_template_render(tpl, &input, &once);
    if (lathe_template_render(tpl, &input, &twice) != status)
        abort();
    if (status == LATHE_OK) {
        check(&once);
        if (once.bytes != twice.bytes || memcmp(once.text, twice.text, (size_t)once.bytes) != 0)
            abort();
    }
    lathe_rendering_fini(&once);
    lathe_rendering_fini(&twice);
    json_decref(variables);
    lathe_template_destroy(tpl);
    return 0;
}
