/* The folders that merge, convert and quantize write of folders of ten kinds compute what lathe
 * eval computes of the folder, or the command refuses the folder and says how it is done. */
#include "kinds_case.h"

TestSuite(kinds_written, .init = setup, .fini = remove_folder, .timeout = 200);

/* The losses differ where the wrong weights would be taken, so that the tests below can fail. */
Test(kinds_written, kinds_differ_from_what_a_wrong_choice_would_give)
{
    const double relora = loss_of("relora", 0);
    cr_expect(fabs(loss_of("average --weights training", 0) - loss_of("average", 0)) > 0.1);
    cr_expect(fabs(loss_of("free --weights training", 0) - loss_of("free", 0)) > 0.01);
    cr_assert_eq(run("cp -r relora/step-00000008 bare && rm bare/adapter_* bare/manifest.json"), 0);
    cr_expect(fabs(loss_of("bare", 0) - relora) > 0.01);
    expect_refusal(LATHE " eval plain --weights average --data other.txt 2>&1",
                   "weights \"average\": plain holds no averaged weights (--weights)");
    expect(LATHE " eval free --weights training --data other.txt 2>&1", 0,
           "was trained by an optimizer whose average is the model");
}

Test(kinds_written, one_word_merges_an_adapter_into_its_own_model)
{
    char command[512];
    for (int k = 0; k < N_KINDS; k++) {
        const struct kind *kind = &kinds[k];
        snprintf(command, sizeof command, LATHE " merge %s -o merged-of-%s-kind 2>&1", kind->name,
                 kind->name);
        if (!kind->has_adapter) {
            expect_refusal(command, strcmp(kind->name, "model.gguf") == 0
                                        ? "is no folder; expected the folder of an adapter"
                                        : "so it is not an adapter folder");
            continue;
        }
        const double want = loss_of(kind->name, kind->is_reward);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        snprintf(command, sizeof command, "merged-of-%s-kind", kind->name);
        expect_loss(command, kind, want);
    }
}

Test(kinds_written, an_adapter_is_merged_into_no_other_model_than_its_own)
{
    const double lora = loss_of("lora", 0);
    cr_assert_eq(run(LATHE " merge base lora -o a 2>&1"), 0, "%s", output);
    expect_loss("a", &kinds[1], lora);
    expect_refusal(LATHE " merge base relora -o b 2>&1",
                   "holds a whole model beside its adapter, which belongs to that model and not to "
                   "base");
    expect_refusal(LATHE " merge relora lora -o b 2>&1",
                   "relora/step-00000008 holds an adapter beside its model, and a whole model is "
                   "needed: lathe merge relora/step-00000008 -o OUT makes one of it");
    expect_refusal(LATHE " merge lora dora -o b 2>&1", "the model comes first, then the adapter");
    expect_refusal(LATHE " eval lora --model.path relora --data other.txt 2>&1",
                   "relora/step-00000008 holds an adapter of its own, which is part of that model");
    expect_refusal(LATHE " eval relora --model.path base --data other.txt 2>&1",
                   "holds a whole model beside its adapter");
    const double relora = loss_of("relora", 0);
    cr_assert_eq(run(LATHE " merge relora relora -o c 2>&1"), 0, "%s", output);
    expect_loss("c", &kinds[2], relora);
}

/* The model under an adapter is the average, too. */
Test(kinds_written, a_model_with_an_average_is_merged_into_as_it_is_evaluated)
{
    static const char *const models[] = {"average", "free", "quantized", "model.gguf"};
    char command[512];
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        snprintf(command, sizeof command, "lora --model.path %s", models[i]);
        const double want = loss_of(command, 0);
        snprintf(command, sizeof command, LATHE " merge %s lora -o under-%zu 2>&1", models[i], i);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        snprintf(command, sizeof command, "under-%zu", i);
        expect_loss(command, &kinds[1], want);
    }
    const double training = loss_of("lora --weights training --model.path average", 0);
    cr_assert_eq(run(LATHE " merge average lora --weights training -o other 2>&1"), 0, "%s",
                 output);
    expect_loss("other", &kinds[1], training);
    cr_expect(fabs(training - loss_of("lora --model.path average", 0)) > 0.1);
}

Test(kinds_written, a_gguf_file_has_the_weights_that_are_evaluated)
{
    char command[512];
    for (int k = 0; k < N_KINDS; k++) {
        const struct kind *kind = &kinds[k];
        const int is_file = strcmp(kind->name, "model.gguf") == 0;
        snprintf(command, sizeof command, LATHE " convert %s -o made-%d%s --type f32 2>&1",
                 kind->name, k, is_file ? "" : ".gguf");
        if (kind->has_adapter == 2 || kind->is_reward) {
            expect_refusal(command, kind->has_adapter ? "lathe merge" : "sequence classifier");
            continue;
        }
        if (kind->has_adapter)
            continue; /* an adapter becomes a GGUF adapter, or says why not: test_cli_convert */
        const double want = loss_of(kind->name, 0);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        snprintf(command, sizeof command, "made-%d%s", k, is_file ? "" : ".gguf");
        expect_loss(command, kind, want);
    }
    const double training = loss_of("average --weights training", 0);
    cr_assert_eq(run(LATHE " convert average --weights training -o t.gguf --type f32 2>&1"), 0);
    expect_loss("t.gguf", &kinds[3], training);
}

/* Quantizing the folder gives the bytes that quantizing its weights alone gives. */
Test(kinds_written, a_quantized_folder_is_made_of_the_weights_that_are_evaluated)
{
    char command[1024];
    for (int k = 0; k < N_KINDS; k++) {
        const struct kind *kind = &kinds[k];
        snprintf(command, sizeof command, LATHE " quantize %s --quant.name nf4 -o q-%d 2>&1",
                 kind->name, k);
        if (kind->has_adapter || kind->is_reward || strcmp(kind->name, "quantized") == 0) {
            expect_refusal(command, kind->has_adapter ? "lathe merge"
                                    : kind->is_reward ? "sequence classifier"
                                                      : "already quantized");
            continue;
        }
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        if (!kind->has_average)
            continue;
        snprintf(command, sizeof command,
                 LATHE " quantize %s/step-00000008/average --quant.name nf4 -o w-%d 2>&1 && " LATHE
                       " quantize %s --weights training --quant.name nf4 -o t-%d 2>&1 && "
                       "cmp q-%d/model.safetensors w-%d/model.safetensors && "
                       "! cmp -s q-%d/model.safetensors t-%d/model.safetensors",
                 kind->name, k, kind->name, k, k, k, k, k);
        cr_expect_eq(run(command), 0, "%s: %s", command, output);
    }
}

/* The rounding of the last bits of bf16 moves a loss by 4e-6 of it at least here, and sums in
 * another order by 3e-7. */
static void expect_same_loss(const char *model, const struct kind *k, double want)
{
    const double got = loss_of(model, k->is_reward);
    cr_expect(fabs(got - want) < 1e-6 * (1.0 + want), "%s of %s: loss %.9g, expected %.9g", model,
              k->name, got, want);
}

/* A run in fp32 whose checkpoints are bf16 has fp32 masters in state/. The folder means what other
 * programs load, model.safetensors; the run file means the run, with the masters. */
Test(kinds_written, a_folder_that_rounds_is_its_rounded_weights_for_every_command)
{
    char command[1024];
    for (int k = 0; k < N_KINDS; k++) {
        const struct kind *kind = &kinds[k];
        if (!kind->settings || kind->has_adapter == 1)
            continue; /* adapters are not rounded */
        snprintf(command, sizeof command,
                 LATHE
                 " train kind.toml --checkpoint.dir b-%d --checkpoint.save_dtype bf16 %s 2>&1",
                 k, kind->settings);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        snprintf(command, sizeof command, "b-%d", k);
        const double rounded = loss_of(command, kind->is_reward);
        snprintf(command, sizeof command, "kind.toml --checkpoint.dir b-%d %s", k, kind->settings);
        const double masters = loss_of(command, kind->is_reward);
        cr_expect(kind->is_reward || fabs(masters - rounded) > 3e-6 * (1.0 + rounded),
                  "%s: the masters give %.9g, the rounded weights %.9g", kind->name, masters,
                  rounded);
        snprintf(command, sizeof command,
                 LATHE " train still.toml --checkpoint.dir w-%d --model.path b-%d "
                       "--checkpoint.save_dtype fp32 %s 2>&1",
                 k, k, kind->is_reward ? PAIRS : "");
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        snprintf(command, sizeof command, "w-%d", k);
        expect_same_loss(command, kind, rounded);
        if (kind->is_reward && !kind->has_adapter)
            continue; /* neither merged nor converted */
        snprintf(command, sizeof command, LATHE " %s b-%d -o x-%d%s 2>&1",
                 kind->has_adapter ? "merge --checkpoint.save_dtype fp32" : "convert --type f32", k,
                 k, kind->has_adapter ? "" : ".gguf");
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        snprintf(command, sizeof command, "x-%d%s", k, kind->has_adapter ? "" : ".gguf");
        expect_same_loss(command, kind, rounded);
    }
}
