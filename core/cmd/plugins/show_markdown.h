/* Writes the keys of a table as Markdown, for the READMEs of plugins and the documentation. */
#ifndef LATHE_CMD_SHOW_MARKDOWN_H
#define LATHE_CMD_SHOW_MARKDOWN_H

#include "base/buffer.h"
#include "lathe/schema.h"

/** Appends "| key | default | range | meaning |" and a row per field; a sentence if there are no
 *  fields. */
void lathe_show_markdown(const lathe_field *fields, int32_t n, lathe_buffer *out);

#endif
