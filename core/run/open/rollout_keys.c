/* Checks the keys of [generate] against a stage that writes the completions it learns from. */
#include "run/open/rollout_keys.h"

#include "run/parts/iteration.h"

void lathe__rollout_keys_warn(const lathe_run *run)
{
    static const char *const keys[] = {"max_new_tokens", "temperature", "top_k",
                                       "top_p",          "min_p",       "repetition_penalty",
                                       "stop",           "stop_tokens"};
    if (run->parts.stage.component == NULL || !lathe__run_iterates(run) ||
        run->set.sample_every > 0)
        return;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const lathe_value *value = lathe_config_get(run->config, "generate", keys[i]);
        if (value && value->is_explicit)
            lathe__run_warn(run, "generate", keys[i],
                            "generate.%s has no effect on this training: stage \"%s\" decides how "
                            "its completions are sampled (lathe show stage/%s); the key is for "
                            "generate.every and lathe generate",
                            keys[i], run->parts.stage.component->plugin->name,
                            run->parts.stage.component->plugin->name);
    }
}
