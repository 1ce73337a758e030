/* The keys of config.json that make a model a sequence classifier. */
#ifndef LATHE_MODEL_CLASSIFIER_H
#define LATHE_MODEL_CLASSIFIER_H

#include <jansson.h>

#include "model/hf_config.h"

/** Number of labels of the config.json `object`, as transformers reads it (id2label, num_labels, or
 *  2); 0: its architecture is not "...ForSequenceClassification". */
int32_t lathe__classifier_labels(const json_t *object);

/** Sets architectures, id2label, label2id and pad_token_id in `object` for config->n_labels. */
lathe_status lathe__classifier_write(const lathe_model_config *config, json_t *object);

#endif
