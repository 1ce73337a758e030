/* Wrappers whose text model can be of several families: the classes of transformers that make it
 * with AutoModel. A family lists them beside its own:
 *
 *     static const lathe_model_wrapper wrappers[] = {LATHE_AUTO_WRAPPERS};
 *     LATHE_DECODER_FAMILY_IN_WRAPPERS(llama, types, defaults, wrappers, NULL, 0, read, ...);
 *
 * Their heads are plain products with lm_head, whatever the family scales or caps.
 *
 *   Source  transformers 5.24, configuration_*.py of each (AutoConfig in sub_configs_defaults), and
 *           conversion_mapping.py for the names of files. */
#ifndef LATHE_KIT_WRAPPERS_H
#define LATHE_KIT_WRAPPERS_H

#include "../model.h"

/** Names in files as most wrappers have them: the modules of transformers 5, and the older layout
 *  that save_pretrained still writes for many of them. */
static const lathe_tower_names lathe_language_model_names[] = {
    {"model.language_model.", ""}, {"language_model.model.", "language_model."}};

/** Names in files of the Idefics line. */
static const lathe_tower_names lathe_text_model_names[] = {{"model.text_model.", ""}};

/** One wrapper: `class_name` in transformers, the names of its files, LATHE_WRAPPER_* and the inner
 *  model_type where the file names none. */
#define LATHE_AUTO_WRAPPER(type, class_name, names_of_files, if_unnamed, its_flags)                \
    {                                                                                              \
        .model_type = type, .architecture = class_name, .text_key = "text_config",                 \
        .assumed = if_unnamed, .names = names_of_files,                                            \
        .n_names = (int32_t)(sizeof(names_of_files) / sizeof(names_of_files)[0]),                  \
        .flags = its_flags                                                                         \
    }

/** All of them. */
#define LATHE_AUTO_WRAPPERS                                                                        \
    LATHE_AUTO_WRAPPER("llava", "LlavaForConditionalGeneration", lathe_language_model_names,       \
                       "llama", LATHE_WRAPPER_TIED_BY_TEXT),                                       \
        LATHE_AUTO_WRAPPER("llava_next", "LlavaNextForConditionalGeneration",                      \
                           lathe_language_model_names, "llama", 0),                                \
        LATHE_AUTO_WRAPPER("llava_next_video", "LlavaNextVideoForConditionalGeneration",           \
                           lathe_language_model_names, "llama", LATHE_WRAPPER_TIED_BY_TEXT),       \
        LATHE_AUTO_WRAPPER("llava_onevision", "LlavaOnevisionForConditionalGeneration",            \
                           lathe_language_model_names, "qwen2", LATHE_WRAPPER_TIED_BY_TEXT),       \
        LATHE_AUTO_WRAPPER("vipllava", "VipLlavaForConditionalGeneration",                         \
                           lathe_language_model_names, "llama", 0),                                \
        LATHE_AUTO_WRAPPER("video_llava", "VideoLlavaForConditionalGeneration",                    \
                           lathe_language_model_names, "llama", 0),                                \
        LATHE_AUTO_WRAPPER("internvl", "InternVLForConditionalGeneration",                         \
                           lathe_language_model_names, "qwen2", LATHE_WRAPPER_TIED),               \
        LATHE_AUTO_WRAPPER("lighton_ocr", "LightOnOcrForConditionalGeneration",                    \
                           lathe_language_model_names, "qwen3", LATHE_WRAPPER_TIED),               \
        LATHE_AUTO_WRAPPER("mistral3", "Mistral3ForConditionalGeneration",                         \
                           lathe_language_model_names, "mistral", LATHE_WRAPPER_TIED),             \
        LATHE_AUTO_WRAPPER("idefics2", "Idefics2ForConditionalGeneration", lathe_text_model_names, \
                           "mistral", 0),                                                          \
        LATHE_AUTO_WRAPPER("idefics3", "Idefics3ForConditionalGeneration", lathe_text_model_names, \
                           "llama", 0),                                                            \
        LATHE_AUTO_WRAPPER("smolvlm", "SmolVLMForConditionalGeneration", lathe_text_model_names,   \
                           "llama", 0)

#endif
