/* libFuzzer target: any bytes as PEFT's adapter_config.json. What is accepted gives settings, each
 * with a key of a section and a value. */
#include <string.h>

#include "base/log.h"
#include "fuzz/fuzz_folder.h"
#include "run/folder/peft_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_setting_list settings = {0};
    json_t *peft = NULL;
    const char *fixed = NULL;
    if (fuzz_folder_make())
        lathe_log_set_level(LATHE_LOG_ERROR + 1);
    fuzz_folder_put("adapter_config.json", data, size);
    if (lathe_peft_config_read(fuzz_folder, &arena, &peft) == LATHE_OK) {
        if (!json_is_object(peft))
            abort();
        (void)lathe_peft_is_classifier(peft);
        (void)lathe_peft_is_reward(peft);
        if (lathe_settings_init(&settings, &arena) == LATHE_OK)
            (void)lathe_peft_config_settings(fuzz_folder, peft, &arena, &settings, &fixed);
    }
    json_decref(peft);
    lathe_arena_fini(&arena);
    return 0;
}
