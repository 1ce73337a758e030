/* Gives names of parameters and of tensors in files. */
#include "model/family/tower_names.h"

#include <string.h>

static int begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

const char *lathe_text_tower_param(const lathe_model_config *config, const char *name, char *out,
                                   int64_t bytes)
{
    if (config->wrapper == NULL)
        return name;
    return lathe_text_tower_module(config->wrapper, config->plain_prefix, config->plain_head, name,
                                   out, bytes);
}

const char *lathe_text_tower_plain(const lathe_model_config *config, const char *name, char *out,
                                   int64_t bytes)
{
    if (config->wrapper == NULL)
        return name;
    if (begins(name, config->prefix))
        return lathe_text_tower_rename(name, config->prefix, config->plain_prefix, out, bytes);
    return lathe_text_tower_is_of(name, config->head)
               ? lathe_text_tower_rename(name, config->wrapper->names[0].head, "", out, bytes)
               : name;
}

const char *lathe_text_tower_file(const lathe_model_config *config, const char *name,
                                  int32_t layout, char *out, int64_t bytes)
{
    if (config == NULL || config->wrapper == NULL)
        return name;
    const lathe_tower_names *now = &config->wrapper->names[0];
    const lathe_tower_names *file = &config->wrapper->names[layout < 0 ? config->layout : layout];
    if (begins(name, now->prefix))
        return lathe_text_tower_rename(name, now->prefix, file->prefix, out, bytes);
    return lathe_text_tower_is_of(name, config->head)
               ? lathe_text_tower_rename(name, now->head, file->head, out, bytes)
               : name;
}

int32_t lathe_text_tower_carries(const lathe_model_config *config, const char *tensor)
{
    char head[LATHE_TENSOR_NAME];
    if (config->wrapper == NULL)
        return 0;
    const lathe_tower_names *file = &config->wrapper->names[config->layout];
    return !begins(tensor, file->prefix) &&
           !lathe_text_tower_is_of(
               tensor, lathe_text_tower_file(config, config->head, -1, head, (int64_t)sizeof head));
}
