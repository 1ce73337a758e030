/* The keys of config.json that make a model a sequence classifier. */
#ifndef LATHE_MODEL_CLASSIFIER_H
#define LATHE_MODEL_CLASSIFIER_H

#include <jansson.h>

#include "lathe/status.h"

/** Number of labels of the config.json `object`, as transformers reads it (id2label, num_labels, or
 *  2); 0: its architecture is not "...ForSequenceClassification". */
int32_t lathe__classifier_labels(const json_t *object);

/** Sets architectures, id2label and label2id in `object` for a classifier of n_labels, and
 *  pad_token_id if pad is at least 0. architecture: that of the language model,
 *  "LlamaForCausalLM". */
lathe_status lathe__classifier_write(const char *architecture, int32_t n_labels, int32_t pad,
                                     json_t *object);

#endif
