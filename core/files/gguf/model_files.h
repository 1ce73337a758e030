/* The files of a model, which is named by the path of a folder or of a GGUF file.
 *
 * Everything above this room reads configuration, tokenizer, chat template and weights of a model
 * with these functions, so that a GGUF file is read wherever a folder is. A GGUF file is mapped,
 * and the text is made in memory.
 */
#ifndef LATHE_FILES_MODEL_FILES_H
#define LATHE_FILES_MODEL_FILES_H

#include <jansson.h>

#include "base/arena.h"
#include "files/safetensors/safetensors.h"
#include "lathe/status.h"

/** 1: the model has the text file `name` ("tokenizer.json"). Also 1 for a GGUF file that is
 * damaged, or for which there is no memory: reading it reports that. The answer is never 0 because
 * memory was missing. */
int32_t lathe_model_has(const char *model, const char *name);

/** Name of a model's file for messages, in the arena: "DIR/config.json", "FILE.gguf (config.json)".
 *  NULL: no memory. */
const char *lathe_model_place(lathe_arena *arena, const char *model, const char *name);

/** Reads a text file into malloc'ed memory and adds a NUL. limit: most bytes (0: any number). */
lathe_status lathe_model_read(const char *model, const char *name, int64_t limit, char **out,
                              int64_t *out_bytes);

/** Reads a text file as JSON. */
lathe_status lathe_model_json(const char *model, const char *name, json_t **out);

/** A text file of a model that was read; text NULL: the model has no such file. */
typedef struct lathe_model_text {
    const char *model, *name;
    char *text;
    int64_t bytes;
    struct lathe_model_text *next;
} lathe_model_text;

/** Texts of models' files, each read once: who decides a run by several plans sees one reading of
 *  each. Empty when all zeros. */
typedef struct lathe_model_texts {
    lathe_arena arena;
    lathe_model_text *list;
} lathe_model_texts;

/** The file of a model; it is read if the texts do not have it. limit: as lathe_model_read. */
lathe_status lathe_model_texts_read(lathe_model_texts *texts, const char *model, const char *name,
                                    int64_t limit, const lathe_model_text **out);

void lathe_model_texts_fini(lathe_model_texts *texts);

/** Copies a text file into the folder `to`; nothing is done if the model does not have it. */
lathe_status lathe_model_copy(const char *model, const char *name, const char *to);

/** Bytes of a text file; 0: the model does not have it. */
lathe_status lathe_model_bytes(const char *model, const char *name, int64_t *out);

/** Names ("tool_use") of the chat templates beside chat_template.jinja, in the arena: of
 *  additional_chat_templates/NAME.jinja. */
lathe_status lathe_model_templates(const char *model, lathe_arena *arena, char ***out,
                                   int64_t *out_n);

/** Name of the file of such a template, in the arena; NULL: no memory. */
const char *lathe_model_template_file(lathe_arena *arena, const char *name);

/** Opens the weights: of a folder as lathe_safetensors_open does, of a GGUF file as
 *  lathe_gguf_tensors does. */
lathe_status lathe_model_weights(const char *model, lathe_safetensors **out);

#endif
