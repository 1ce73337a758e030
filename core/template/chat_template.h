/* The chat template of a model's folder: conversations to text, and which parts of it are learnt.
 *
 * Text and parts are those of transformers' apply_chat_template (5.24): the template sees messages,
 * tools, documents (none where there are none), add_generation_prompt, the special tokens of the
 * folder and the row's chat_template_kwargs.
 */
#ifndef LATHE_TEMPLATE_CHAT_TEMPLATE_H
#define LATHE_TEMPLATE_CHAT_TEMPLATE_H

#include "lathe/renderer.h"
#include "template/template.h"

/** Immutable once made: any number of threads may render. */
typedef struct lathe_chat_template lathe_chat_template;

/** One conversation; the JSON is borrowed, NULL where there is none. */
typedef struct lathe_chat {
    json_t *messages;  /* array of objects */
    json_t *tools;     /* array */
    json_t *documents; /* array */
    json_t *variables; /* object: chat_template_kwargs */
    int32_t add_generation_prompt;
    int32_t reserved; /* 0 */
    int64_t now;      /* for strftime_now; 0: the present */
} lathe_chat;

/** Loads the template of `path`: a file *.jinja (no special tokens then), or a folder, in this
 * order: chat_template.jinja (with additional_chat_templates/tool_use.jinja), chat_template of
 *  tokenizer_config.json (one text, or a list of {name, template}). The special tokens are those of
 *  tokenizer_config.json and special_tokens_map.json.
 *  Errors  LATHE_E_NOT_FOUND: the folder has no template; LATHE_E_PARSE, LATHE_E_UNSUPPORTED with
 *          file, line and column. */
lathe_status lathe_chat_template_load(const char *path, lathe_chat_template **out);
/** As lathe_chat_template_load, for a renderer that the user named: the folder need not have a
 *  template. */
lathe_status lathe_chat_template_load_any(const char *path, lathe_chat_template **out);
/** 1 when the folder has a chat template. */
int lathe_chat_template_exists(const char *folder);
/** A template from text; tokens (borrowed, may be NULL): an object of special tokens. */
lathe_status lathe_chat_template_create(const char *name, const char *text, int64_t bytes,
                                        json_t *tokens, lathe_chat_template **out);
void lathe_chat_template_destroy(lathe_chat_template *chat);

/** Gives variables to all conversations, as data.chat_template_kwargs does; those of a row replace
 *  them. json: the text of an object. LATHE_E_CONFIG: it is none. Call it before any thread
 *  renders. */
lathe_status lathe_chat_template_set_variables(lathe_chat_template *chat, const char *json);

/** A renderer that renders instead of the template. Borrowed for the template's lifetime. */
typedef struct lathe_chat_renderer {
    const lathe_renderer_v1 *table;
    void *self;
    const char *name, *version;
    int32_t is_strict; /* 1: what it refuses is an error; 0: the template renders that */
    int32_t reserved;  /* 0 */
} lathe_chat_renderer;

/** Lets a renderer render. The hash is then that of template, tokens, renderer and version. */
lathe_status lathe_chat_template_serve(lathe_chat_template *chat,
                                       const lathe_chat_renderer *renderer);
/** The renderer's name; NULL: the template renders. */
const char *lathe_chat_template_renderer(const lathe_chat_template *chat);
/** Fills in what the folder's template tells a renderer; borrowed from the template. */
void lathe_chat_template_probe(const lathe_chat_template *chat, lathe_renderer_probe *out);
/** Compares a renderer with the template on conversations of each kind: text, and what is learnt.
 *  *out_same = 1: where it serves them they are equal, and it serves a plain one. why: the first
 *  difference, or how many it serves. */
lathe_status lathe_chat_template_compare(const lathe_chat_template *chat,
                                         const lathe_chat_renderer *renderer, int *out_same,
                                         char *why, int64_t why_bytes);

/** 64 hexadecimal digits: SHA-256 of the template's text, the special tokens and the variables for
 *  all conversations. */
const char *lathe_chat_template_hash(const lathe_chat_template *chat);
/** 1 when the parts that are learnt are marked with {% generation %}. */
int lathe_chat_template_marks(const lathe_chat_template *chat);
/** 1 when the text can depend on the date. */
int lathe_chat_template_reads_clock(const lathe_chat_template *chat);

/** Reads a row of a dataset: "messages", and where it has them "tools" (an array, or its JSON as a
 *  string), "documents", "chat_template_kwargs", "add_generation_prompt". `place` begins messages.
 *  *owned (free with json_decref, may be NULL) keeps what was parsed from a string. */
lathe_status lathe_chat_from_row(const char *place, json_t *row, lathe_chat *out, json_t **owned);

/** The text of the conversation; spans: its {% generation %} blocks. Errors as
 *  lathe_template_render, and LATHE_E_CONFIG for messages that are no list of objects. */
lathe_status lathe_chat_render(const lathe_chat_template *chat, const lathe_chat *what,
                               lathe_rendering *out);

/** The text of the conversation; spans: what is learnt. Where the template marks it, its
 *  {% generation %} blocks; else, for each message of the assistant, what it adds to the prompt of
 * the messages before it, as TRL finds a completion. LATHE_E_CONFIG: no such part can be found,
 * since the template writes earlier turns otherwise once later ones follow; the message is named.
 */
lathe_status lathe_chat_render_training(const lathe_chat_template *chat, const lathe_chat *what,
                                        lathe_rendering *out);

/** *out = 1: the prompts at successive turns of the assistant are prefixes of each other and of the
 *  whole text, so that turns can share what was computed for the ones before. */
lathe_status lathe_chat_extends(const lathe_chat_template *chat, const lathe_chat *what, int *out);

#endif
