/* The chat template of a model's folder: turns conversations into text, and finds the parts of the
 * text that training learns.
 *
 * The results are those of transformers' apply_chat_template (5.24). The template sees messages,
 * tools and documents (`none` if absent), add_generation_prompt, the special tokens of the folder
 * and the row's chat_template_kwargs.
 */
#ifndef LATHE_CHAT_CHAT_TEMPLATE_H
#define LATHE_CHAT_CHAT_TEMPLATE_H

#include "chat/template/template.h"
#include "lathe/renderer.h"

/** Immutable once made: any number of threads may render. */
typedef struct lathe_chat_template lathe_chat_template;

/** One conversation. The JSON is borrowed; a member is NULL if the conversation lacks it. */
typedef struct lathe_chat {
    json_t *messages;  /* array of objects */
    json_t *tools;     /* array */
    json_t *documents; /* array */
    json_t *variables; /* object: chat_template_kwargs */
    int32_t add_generation_prompt;
    int32_t reserved; /* 0 */
    int64_t now;      /* for strftime_now, seconds since 1970; 0: the present */
} lathe_chat;

/** Loads the template of `path`: a file *.jinja, then without special tokens, or a model's folder.
 *  In a folder the first of these is taken: chat_template.jinja (with
 *  additional_chat_templates/tool_use.jinja), or chat_template of tokenizer_config.json (one text,
 *  or a list of {name, template}). The special tokens are those of tokenizer_config.json and
 *  special_tokens_map.json.
 *  Errors  LATHE_E_NOT_FOUND: the folder has no template; LATHE_E_PARSE, LATHE_E_UNSUPPORTED with
 *          file, line and column. */
lathe_status lathe_chat_template_load(const char *path, lathe_chat_template **out);
/** Like lathe_chat_template_load, for a renderer that the user named: the folder need not have a
 *  template. */
lathe_status lathe_chat_template_load_any(const char *path, lathe_chat_template **out);
/** Like lathe_chat_template_load, but the special tokens are those of the folder `tokens` (NULL:
 *  none), whatever folder the template is in. */
lathe_status lathe_chat_template_load_for(const char *path, const char *tokens,
                                          lathe_chat_template **out);
/** A template from text; tokens (borrowed, may be NULL): an object of special tokens. */
lathe_status lathe_chat_template_create(const char *name, const char *text, int64_t bytes,
                                        json_t *tokens, lathe_chat_template **out);
void lathe_chat_template_destroy(lathe_chat_template *chat);

/** Sets variables for all conversations, as data.chat_template_kwargs does; those of a row have
 *  priority. json: the text of a JSON object; LATHE_E_CONFIG if it is something else. Call it
 *  before any thread renders. */
lathe_status lathe_chat_template_set_variables(lathe_chat_template *chat, const char *json);

/** A renderer that renders instead of the template. Borrowed for the template's lifetime. */
typedef struct lathe_chat_renderer {
    const lathe_renderer_v1 *table;
    void *self;
    const char *name, *version;
    int32_t is_strict; /* 1: a refused conversation is an error; 0: the template renders it */
    int32_t reserved;  /* 0 */
} lathe_chat_renderer;

/** Makes a renderer write the conversations instead of the template. The hash then depends on the
 *  renderer's name and version, too. */
lathe_status lathe_chat_template_serve(lathe_chat_template *chat,
                                       const lathe_chat_renderer *renderer);
/** The name of the renderer that writes the conversations; NULL: the template does. */
const char *lathe_chat_template_renderer(const lathe_chat_template *chat);
/** Fills in what the folder's template tells a renderer; borrowed from the template. */
void lathe_chat_template_probe(const lathe_chat_template *chat, lathe_renderer_probe *out);
/** Passes each special token that the renderer writes for plain conversations to `take`, by its
 *  name, again for each place. learnt: training learns it, as the end of an answer. A folder
 * without an eos_token has one of the name "eos_token" here. Without a renderer there are none. An
 * error of `take` ends it. */
lathe_status lathe_chat_template_tokens(const lathe_chat_template *chat,
                                        lathe_status (*take)(void *ctx, lathe_chars name,
                                                             int learnt),
                                        void *ctx);
/** Compares a renderer with the template on conversations of each kind: the texts, and the parts
 *  that are learnt. *out_same = 1 if it renders a plain conversation, and if all that it renders is
 *  equal; it may refuse other conversations. why: the first difference, or how many conversations
 *  it renders. */
lathe_status lathe_chat_template_compare(const lathe_chat_template *chat,
                                         const lathe_chat_renderer *renderer, int *out_same,
                                         char *why, int64_t why_bytes);

/** 64 hexadecimal digits: SHA-256 of the template's text, the special tokens and the variables for
 *  all conversations. */
const char *lathe_chat_template_hash(const lathe_chat_template *chat);
/** The text of the template as it was read (of_tools 1: of the one for conversations with tools);
 *  borrowed; data NULL: none. */
lathe_chars lathe_chat_template_text(const lathe_chat_template *chat, int of_tools);
/** 1 when the parts that are learnt are marked with {% generation %}. */
int lathe_chat_template_marks(const lathe_chat_template *chat);
/** 1 when the text can depend on the date. */
int lathe_chat_template_reads_clock(const lathe_chat_template *chat);

/** Reads a row of a dataset: "messages", and the optional keys "tools" (an array, or its JSON as a
 *  string), "documents", "chat_template_kwargs", "add_generation_prompt". *owned holds the values
 *  that were parsed from strings; free it with json_decref (it may be NULL). The caller gives
 * errors their place. */
lathe_status lathe_chat_from_row(json_t *row, lathe_chat *out, json_t **owned);

/** Key i of a row that the template gets beside the messages ("tools", ...); NULL: there are no
 *  more. */
const char *lathe_chat_row_key(int32_t i);

/** Renders the conversation; spans: its {% generation %} blocks.
 *  Errors  those of lathe_template_render; LATHE_E_CONFIG: messages is not a list of objects. */
lathe_status lathe_chat_render(const lathe_chat_template *chat, const lathe_chat *what,
                               lathe_rendering *out);

/** Reads whether a message is to be learnt: LATHE_CHAT_LEARN, _MUTE, or _UNMARKED where it says
 *  nothing. Its keys are those of other trainers: weight (OpenAI, mistral-finetune), train and
 *  trainable (axolotl), loss (ms-swift), loss_mask (verl). */
enum { LATHE_CHAT_UNMARKED = 0, LATHE_CHAT_LEARN = 1, LATHE_CHAT_MUTE = 2 };
lathe_status lathe_chat_message_mark(const json_t *message, size_t number, int *out);
/** Key i of the marks; NULL: there are no more. */
const char *lathe_chat_mark_key(int32_t i);

/** Renders the conversation; spans: the parts that training learns. If the template has
 *  {% generation %} blocks, these are the parts. Otherwise a part is the text that a message of the
 *  assistant adds to the prompt of the messages before it, as TRL finds a completion.
 *  Parts of messages that are marked not to be learnt are left out.
 *  LATHE_E_CONFIG, with the number of the message: it has no such part, because the template writes
 *  an earlier turn differently once later ones follow. */
lathe_status lathe_chat_render_training(const lathe_chat_template *chat, const lathe_chat *what,
                                        lathe_rendering *out);

/** *out = 1: the prompt of each turn of the assistant is a prefix of the next one's, and the last
 *  is a prefix of the whole text. A later turn can then reuse what was computed for an earlier one.
 */
lathe_status lathe_chat_extends(const lathe_chat_template *chat, const lathe_chat *what, int *out);

#endif
