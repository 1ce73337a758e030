/* Writes a shape as text, for dumps and errors. */
#ifndef LATHE_GRAPH_DESC_TEXT_H
#define LATHE_GRAPH_DESC_TEXT_H

#include "lathe/tensor.h"

/** Writes "bf16[4096,768]" into `text` of `capacity` bytes, cut if needed; returns text. */
const char *lathe_desc_text(const lathe_desc *d, char *text, int64_t capacity);

#endif
