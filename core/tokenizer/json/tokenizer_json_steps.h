/* Reads tokenizer.json's normalizer, pre_tokenizer and decoder into lists of steps. */
#ifndef LATHE_TOKENIZER_TOKENIZER_JSON_STEPS_H
#define LATHE_TOKENIZER_TOKENIZER_JSON_STEPS_H

#include "base/json/json.h"
#include "tokenizer/encode/pipeline.h"

/* node: NULL and null give no steps. */
lathe_status lathe__read_normalizer(const char *place, const json_t *node,
                                    lathe_pipeline *pipeline);
lathe_status lathe__read_pre_tokenizer(const char *place, const json_t *node,
                                       lathe_pipeline *pipeline);
lathe_status lathe__read_decoder(const char *place, const json_t *node, lathe_pipeline *pipeline);

#endif
