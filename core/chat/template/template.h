/* Chat templates: an interpreter for the subset of Jinja that they are written in, with the
 * settings of transformers (trim_blocks, lstrip_blocks, the sandbox in which a template cannot
 * change values).
 *
 * A template is parsed once and immutable from then on: any number of threads may render it. A
 * render takes JSON values and gives text. It reads no file and no environment; steps, depth,
 * memory and output are bounded. docs/chat-templates.md lists what the subset has.
 *
 * Differences from jinja2 that a template can see: integers beyond 64 bits can be written
 * and compared, but not computed with, and numbers in templates have 64 bits; a printed generator,
 * function or namespace is an error (Python prints its address).
 */
#ifndef LATHE_CHAT_TEMPLATE_H
#define LATHE_CHAT_TEMPLATE_H

#include <jansson.h>

#include "lathe/status.h"

typedef struct lathe_template lathe_template;

/** Limits of one render; 0 takes the default. */
typedef struct lathe_template_limits {
    int64_t steps;        /* nodes visited, and bytes worked on / 32; default 2^26 */
    int64_t memory_bytes; /* of all values; default 512 MiB */
    int64_t output_bytes; /* default 64 MiB */
    int32_t depth;        /* nested expressions, blocks and macro calls; default 1500 */
} lathe_template_limits;

/** Input of a render. All zeros: no variables, the present time, the default limits. */
typedef struct lathe_template_input {
    json_t *variables; /* borrowed object; NULL: none */
    int64_t now; /* seconds since 1970 for strftime_now, shown in local time; 0: the present */
    lathe_template_limits limits;
} lathe_template_input;

/** Bytes [begin, end) of a rendered text. */
typedef struct lathe_template_span {
    int64_t begin, end;
} lathe_template_span;

/** A rendered text. All zeros: empty. */
typedef struct lathe_rendering {
    char *text; /* UTF-8, a NUL after it; may hold NUL */
    int64_t bytes;
    /* The text inside {% generation %} blocks, as transformers' return_assistant_tokens_mask finds
     * it: a block inside a macro counts from where the macro's text is put. */
    lathe_template_span *spans;
    int64_t n_spans;
    /* Where special tokens begin, if a renderer wrote the text: their names elsewhere in it are
     * ordinary text. A template cannot tell the two apart; has_tokens is then 0. */
    int64_t *tokens;
    int64_t n_tokens;
    int32_t has_tokens;
    int32_t is_marked; /* 1: the template marks what is learnt ({% generation %}) */
} lathe_rendering;

void lathe_rendering_fini(lathe_rendering *rendering);

/** Parses text[0, bytes). `name` stands for the template in messages: "name:line:column: ...".
 *  Errors  LATHE_E_PARSE: not UTF-8, or not Jinja. LATHE_E_UNSUPPORTED: Jinja that the subset
 *          lacks; the message names the construct. */
lathe_status lathe_template_parse(const char *name, const char *text, int64_t bytes,
                                  lathe_template **out);
void lathe_template_destroy(lathe_template *tpl);

/** 1 when the template has a {% generation %} block. */
int lathe_template_has_generation(const lathe_template *tpl);
/** 1 when the template reads or sets a variable of this name. */
int lathe_template_mentions(const lathe_template *tpl, const char *variable);

/** Renders. *out must be empty; on success the caller frees it with lathe_rendering_fini.
 *  Errors  LATHE_E_CONFIG: the template refuses the values (raise_exception) or cannot use them
 *          (an undefined value, a wrong type); LATHE_E_UNSUPPORTED: a construct that the subset
 *          lacks, or a limit; each with line and column. LATHE_E_NOMEM. */
lathe_status lathe_template_render(const lathe_template *tpl, const lathe_template_input *input,
                                   lathe_rendering *out);

#endif
