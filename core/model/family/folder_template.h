/* Writes the chat template that a run was given into a folder of a model.
 *
 * transformers reads chat_template.jinja before chat_template of tokenizer_config.json, and other
 * programs (llama.cpp's converter) in the other order, so the folder gets the first and loses the
 * second. */
#ifndef LATHE_MODEL_FOLDER_TEMPLATE_H
#define LATHE_MODEL_FOLDER_TEMPLATE_H

#include "lathe/renderer.h"
#include "lathe/status.h"

/** Makes `text` the only chat template of the folder `dir`: writes chat_template.jinja, and
 *  additional_chat_templates/tool_use.jinja with the text `tools` (data NULL: none), and removes
 *  the folder's other templates. tokenizer_config.json keeps its other bytes. Nothing is done if
 *  text.data is NULL. */
lathe_status lathe_folder_template_write(lathe_chars text, lathe_chars tools, const char *dir);

/** Prepares `dir` for the tokenizer's files of `other`, which are then copied over its own. If
 *  `other` has a chat template, the template files of `dir` are removed. If not, and that of `dir`
 *  stands in its tokenizer_config.json, which will be replaced, it becomes chat_template.jinja. */
lathe_status lathe_folder_template_yield(const char *dir, const char *other);

#endif
