/* The number of rows for tokens in a config.json, changed without touching other bytes. */
#ifndef LATHE_MODEL_CONFIG_RESIZE_H
#define LATHE_MODEL_CONFIG_RESIZE_H

#include <stdint.h>

#include "base/buffer.h"

/** Appends text[0, n), a config.json, with another vocab_size, which the text model of several has
 *  in text_config. All other bytes stay as they are: other numbers keep their digits. */
void lathe_config_text_resize(const char *text, int64_t n, int64_t rows, lathe_buffer *out);

#endif
