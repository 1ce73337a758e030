/* libFuzzer target: any bytes as a generation_config.json. Every key that may be used has a value
 * with which the sampler works. */
#include <math.h>

#include "base/log.h"
#include "fuzz/fuzz_folder.h"
#include "model/family/generation_config.h"

static int usable(const lathe_generation_config *c, int32_t key)
{
    return lathe_generation_config_use(c, key) == LATHE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lathe_generation_config c;
    if (fuzz_folder_make())
        lathe_log_set_level(LATHE_LOG_ERROR + 1);
    fuzz_folder_put("generation_config.json", data, size);
    if (lathe_generation_config_load(fuzz_folder, &c) != LATHE_OK)
        return 0;
    if (!c.is_present || c.n_eos < 0 || c.n_eos > LATHE_MAX_EOS)
        abort();
    if (usable(&c, LATHE_GENERATION_TEMPERATURE) &&
        !(c.temperature >= 0 && isfinite(c.temperature)))
        abort();
    if (usable(&c, LATHE_GENERATION_TOP_P) && !(c.top_p > 0 && c.top_p <= 1))
        abort();
    if (usable(&c, LATHE_GENERATION_MIN_P) && !(c.min_p >= 0 && c.min_p <= 1))
        abort();
    if (usable(&c, LATHE_GENERATION_REPETITION_PENALTY) &&
        !(c.repetition_penalty > 0 && isfinite(c.repetition_penalty)))
        abort();
    if (usable(&c, LATHE_GENERATION_TOP_K) && c.top_k < 0)
        abort();
    if ((usable(&c, LATHE_GENERATION_MAX_NEW_TOKENS) && c.max_new_tokens < 0) ||
        (usable(&c, LATHE_GENERATION_MAX_LENGTH) && c.max_length < 0))
        abort();
    return 0;
}
