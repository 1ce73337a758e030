/* The settings of LoRA under the keys of PEFT. */
#include "shared/lora.h"
#include "shared/peft_text.h"

int64_t lora_config_json(void *self, const char *base, char *out, int64_t capacity)
{
    const lora *l = self;
    peft_text t = {out, capacity, 0};
    peft_begin(&t, "LORA", base, &l->targets);
    peft_put(&t, "  \"r\": %lld,\n  \"lora_alpha\": %.17g,\n  \"lora_dropout\": %.17g,\n",
             (long long)l->r, l->alpha, l->dropout);
    peft_put(&t, "  \"use_rslora\": %s,\n", l->use_rslora ? "true" : "false");
    peft_put(&t, "  \"rank_pattern\": %s,\n", l->rank_json ? l->rank_json : "{}");
    peft_put(&t, "  \"alpha_pattern\": %s,\n", l->alpha_json ? l->alpha_json : "{}");
    if (l->lora_bias)
        peft_put(&t, "  \"lora_bias\": true,\n");
    peft_put(&t, "  \"use_dora\": %s,\n", l->use_dora ? "true" : "false");
    peft_put(&t, "  \"init_lora_weights\": %s,\n",
             l->pissa            ? "\"pissa\""
             : l->loftq_iter > 0 ? "\"loftq\""
             : l->mica           ? "\"mica\""
             : l->gaussian       ? "\"gaussian\""
                                 : "true");
    if (l->loftq_iter > 0) /* PEFT quantizes the base in the same steps when it loads the adapter */
        peft_put(&t, "  \"loftq_config\": {\"loftq_bits\": 4, \"loftq_iter\": %lld},\n",
                 (long long)l->loftq_iter);
    peft_end(&t, &l->targets);
    return t.n;
}
