/* The list of names of fields. */
#include "data/records/record_keys.h"

#include <assert.h>
#include <string.h>

#include "plug/suggest.h"

static const lathe_record_key keys[] = {
    /* names of the columns (LATHE_COLUMN_*), in their order */
    {"text", LATHE_RECORD_IS_COLUMN},
    {"prompt", LATHE_RECORD_IS_COLUMN},
    {"chosen", LATHE_RECORD_IS_COLUMN},
    {"rejected", LATHE_RECORD_IS_COLUMN},
    {"completion", LATHE_RECORD_IS_COLUMN},
    {"completions", LATHE_RECORD_IS_COLUMN},
    {LATHE_RECORD_MESSAGES, LATHE_RECORD_IS_TALK},
    {LATHE_RECORD_SHAREGPT, LATHE_RECORD_IS_TALK},
    {LATHE_RECORD_SYSTEM, LATHE_RECORD_IS_SYSTEM | LATHE_RECORD_IS_ALPACA},
    {"tools", LATHE_RECORD_IS_BESIDE},
    {"documents", LATHE_RECORD_IS_BESIDE},
    {"chat_template_kwargs", LATHE_RECORD_IS_BESIDE},
    {LATHE_RECORD_INSTRUCTION, LATHE_RECORD_IS_ALPACA},
    {LATHE_RECORD_INPUT, LATHE_RECORD_IS_ALPACA},
    {LATHE_RECORD_OUTPUT, LATHE_RECORD_IS_ALPACA},
    {LATHE_RECORD_HISTORY, LATHE_RECORD_IS_ALPACA},
    {LATHE_RECORD_KTO_TAG, LATHE_RECORD_IS_INPUT},
    {"label", LATHE_RECORD_IS_FOREIGN}, /* a stage may have an input of this name */
    {"answer", LATHE_RECORD_IS_FOREIGN},
    {"assistant", LATHE_RECORD_IS_FOREIGN},
    {"conversation", LATHE_RECORD_IS_FOREIGN},
    {"context", LATHE_RECORD_IS_FOREIGN},
    {"function", LATHE_RECORD_IS_FOREIGN},
    {"functions", LATHE_RECORD_IS_FOREIGN},
    {"problem", LATHE_RECORD_IS_FOREIGN},
    {"query", LATHE_RECORD_IS_FOREIGN},
    {"question", LATHE_RECORD_IS_FOREIGN},
    {"response", LATHE_RECORD_IS_FOREIGN},
    {"responses", LATHE_RECORD_IS_FOREIGN},
    {"solution", LATHE_RECORD_IS_FOREIGN},
    {"system_prompt", LATHE_RECORD_IS_FOREIGN},
    {"user", LATHE_RECORD_IS_FOREIGN},
    /* marks that only messages have here */
    {"weight", LATHE_RECORD_IS_FOREIGN},
    {"train", LATHE_RECORD_IS_FOREIGN},
    {"trainable", LATHE_RECORD_IS_FOREIGN},
    {"loss", LATHE_RECORD_IS_FOREIGN},
    {"loss_mask", LATHE_RECORD_IS_FOREIGN},
    /* of rows that lathe chat-template --show reads; training decides it by the stage */
    {"add_generation_prompt", LATHE_RECORD_IS_FOREIGN},
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };
_Static_assert((int)N_KEYS <= (int)LATHE_MAX_RECORD_KEYS, "room for all keys");

const lathe_record_key *lathe_record_key_get(int32_t i)
{
    return i < N_KEYS ? &keys[i] : NULL;
}

uint32_t lathe_record_key_where(const char *name)
{
    for (int32_t i = 0; i < N_KEYS; i++)
        if (strcmp(keys[i].name, name) == 0)
            return keys[i].where;
    return 0;
}

/* Short names have too many neighbours: "test" is no misspelt "text". */
const char *lathe_record_key_near(const char *name)
{
    const uint32_t parts = LATHE_RECORD_IS_COLUMN | LATHE_RECORD_IS_TALK | LATHE_RECORD_IS_SYSTEM |
                           LATHE_RECORD_IS_BESIDE;
    for (int32_t i = 0; i < N_KEYS; i++) {
        const size_t n = strlen(keys[i].name);
        if ((keys[i].where & parts) && n >= 6 && strcmp(keys[i].name, name) != 0 &&
            lathe_edit_distance(name, keys[i].name) <= (n >= 8 ? 2 : 1))
            return keys[i].name;
    }
    return NULL;
}

/* Keys of messages with words of the model, or for it, under names that templates read. */
static const char *const words_of_messages[] = {
    "reasoning_content",
    "reasoning",
    "thinking",
    "thoughts",
    "reasoning_details",
    "tools",
    "documents",
    "functions",
    "images",
    "image",
    "videos",
    "audio",
    "tool_result",
    "text",
    "prefix",
};

int lathe_record_key_means(const char *name)
{
    const size_t n = sizeof LATHE_RECORD_OF_MESSAGES - 1;
    if (strncmp(name, LATHE_RECORD_OF_MESSAGES, n) != 0)
        return lathe_record_key_where(name) != 0 || lathe_record_key_near(name) != NULL;
    for (size_t i = 0; i < sizeof words_of_messages / sizeof *words_of_messages; i++)
        if (strcmp(words_of_messages[i], name + n) == 0)
            return 1;
    return 0;
}

json_t *lathe_record_take(const json_t *row, lathe_record_uses *uses, const char *name)
{
    json_t *value = json_object_get(row, name);
    if (value != NULL)
        lathe_record_use(uses, name);
    return value;
}

void lathe_record_use(lathe_record_uses *uses, const char *name)
{
    for (int32_t i = 0; uses && i < uses->n; i++)
        if (strcmp(uses->names[i], name) == 0)
            return;
    assert(!uses || uses->n < LATHE_MAX_USES);
    if (uses)
        uses->names[uses->n++] = name;
}

void lathe_record_unuse(lathe_record_uses *uses, const char *name)
{
    for (int32_t i = 0; uses && i < uses->n; i++)
        if (strcmp(uses->names[i], name) == 0) {
            uses->names[i] = uses->names[--uses->n];
            return;
        }
}

int lathe_record_is_used(const lathe_record_uses *uses, const lathe_json_string *name)
{
    for (int32_t i = 0; i < uses->n; i++)
        if (lathe_json_is(name, uses->names[i], (int64_t)strlen(uses->names[i])))
            return 1;
    return 0;
}
