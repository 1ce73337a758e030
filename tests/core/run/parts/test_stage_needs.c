/* A stage's needs depend on its settings: a loss without a reference model holds none. */
#include "support/run_case.h"

static lathe_run *open_dpo(const char *setting)
{
    const char *const settings[] = {"model.model_type=llama",
                                    "model.vocab_size=64",
                                    "model.hidden_size=16",
                                    "model.num_hidden_layers=1",
                                    "model.num_attention_heads=2",
                                    "model.intermediate_size=32",
                                    "data.seq_len=16",
                                    "train.max_steps=2",
                                    "train.precision=fp32",
                                    "stage.name=dpo",
                                    setting,
                                    NULL};
    return open_run(LATHE_OPEN_PLAN, settings);
}

Test(stage_needs, a_loss_without_a_reference_plans_none)
{
    static const char *const frees[] = {"stage.loss_type=orpo", "stage.loss_type=simpo",
                                        "stage.loss_type=cpo", "stage.reference_free=true"};
    lathe_run *with = open_dpo("stage.loss_type=sigmoid");
    const int64_t weights = with->planned.by[LATHE_MEM_PARAMETERS];
    cr_assert_eq(with->params.has_reference, 1);
    for (size_t i = 0; i < sizeof frees / sizeof *frees; i++) {
        lathe_run *without = open_dpo(frees[i]);
        cr_expect_eq(without->params.has_reference, 0, "%s", frees[i]);
        cr_expect_eq(2 * without->params.n, with->params.n, "%s", frees[i]);
        cr_expect_lt(without->planned.by[LATHE_MEM_PARAMETERS], weights, "%s", frees[i]);
        lathe_run_close(without);
    }
    lathe_run_close(with);
}
