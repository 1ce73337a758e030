/* lathe checkpoint ls|verify|diff|rm, and lathe eval of their folders. */
#include "training_case.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "files/safetensors/manifest.h"
#include "files/safetensors/safetensors.h"

TestSuite(cli_checkpoint, .init = setup, .fini = remove_folder);

/* The loss that `lathe eval` prints. */
static double loss_of(const char *arguments)
{
    char command[512];
    double loss = -1.0;
    (void)snprintf(command, sizeof command, LATHE " eval --json %s 2>/dev/null", arguments);
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    cr_assert_eq(sscanf(output, "{\"loss\": %lf", &loss), 1, "%s: %s", command, output);
    return loss;
}

/* If a run averages weights, its average is used for the run, its folder and its checkpoint. */
Test(cli_checkpoint, averaged_weights_are_used_and_reported_unless_others_are_requested)
{
    static const char *const words[] = {"run.toml --train.weight_average ema", "out",
                                        "out/step-00000006"};
    char arguments[320];
    put_times("valid.txt", "the part turns, the wheel is made\n", 30);
    expect(LATHE " train run.toml --train.weight_average ema --train.weight_average_decay 0.5 "
                 "--optimizer.lr 0.02 2>&1",
           0, "averaged weights");
    const double average = loss_of("out/step-00000006/average --data valid.txt");
    const double training = loss_of("out/step-00000006 --weights training --data valid.txt");
    cr_assert_gt(average > training ? average - training : training - average, 1e-3);
    for (int i = 0; i < 3; i++) {
        const char *const end = "--data valid.txt --data.seq_len 16 --train.precision fp32";
        (void)snprintf(arguments, sizeof arguments, "out/step-00000006/average %s", end);
        const double want = loss_of(arguments);
        (void)snprintf(arguments, sizeof arguments, "%s %s", words[i], end);
        cr_expect_eq(loss_of(arguments), want, "%s", arguments);
        (void)snprintf(arguments, sizeof arguments, "%s %s --weights average", words[i], end);
        cr_expect_eq(loss_of(arguments), want, "%s", arguments);
        (void)snprintf(arguments, sizeof arguments, "%s %s --weights training", words[i], end);
        cr_expect_neq(loss_of(arguments), want, "%s", arguments);
    }
    expect(LATHE " eval out --data valid.txt 2>&1", 0,
           "averaged weights, of out/step-00000006/average");
    expect(LATHE " generate run.toml --max-new-tokens 2 2>&1", 0,
           "averaged weights, of out/step-00000006/average");
    expect(LATHE " eval out --data valid.txt --weights best 2>&1", 2,
           "--weights: expected training or average, seen \"best\"");
    expect(LATHE " eval out/step-00000006/average --data valid.txt --weights average 2>&1", 2,
           "holds no averaged weights");
}

Test(cli_checkpoint, another_model_beside_a_run_or_a_folder_is_refused)
{
    expect(LATHE " train run.toml --train.max_steps 2 2>&1", 0, "checkpoint out/step-00000002");
    put_times("base.toml", strstr(run_file, "[tokenizer]"), 1);
    expect("sed -i '1i [model]\\npath = \"out/step-00000002\"' base.toml; " LATHE
           " train base.toml --train.max_steps 2 --checkpoint.dir two 2>&1",
           0, "checkpoint two/step-00000002");
    expect(LATHE " eval base.toml --checkpoint.dir two --model.path out/step-00000002 2>&1", 2,
           "the run file base.toml means its checkpoint, two/step-00000002, which holds the whole "
           "model");
    expect(LATHE " eval out --data text.txt --model.path two/step-00000002 2>&1", 2,
           "model.path and the folder out are given; expected only one of them");
}

Test(cli_checkpoint, going_back_needs_a_checkpoint_to_go_back_to)
{
    expect(LATHE " validate run.toml --train.on_nonfinite rewind 2>&1", 0, "");
    put_times("never.toml", run_file, 1);
    expect("sed -i 's/^every = 2/every = 0/; s/^max_steps/on_nonfinite = \"rewind\"\\nmax_steps/' "
           "never.toml; " LATHE " validate never.toml 2>&1",
           2, "never.toml:16:16: error: train.on_nonfinite = \"rewind\" needs checkpoint.every");
}

Test(cli_checkpoint, ls_shows_steps_marks_and_damage)
{
    expect(LATHE " train run.toml --checkpoint.keep_best 1 2>&1", 0,
           "checkpoint out/step-00000006");
    expect(LATHE " checkpoint ls out", 0, "eval_loss");
    cr_assert(strstr(output, "latest") && strstr(output, "best"), "%s", output);
    cr_assert_null(strstr(output, "damaged"), "%s", output);
    cr_assert_eq(truncate("out/step-00000004/model.safetensors", 99), 0);
    expect(LATHE " checkpoint ls out", 0, "step-00000004/model.safetensors: 99 bytes");
    cr_assert_eq(run(LATHE " checkpoint ls out --json"), 0);
    json_t *all = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_eq(json_array_size(all), 3, "%s", output);
    for (size_t i = 0; i < 3; i++) {
        const json_t *c = json_array_get(all, i);
        cr_assert_eq(json_integer_value(json_object_get(c, "step")), 2 * (json_int_t)i + 2);
        cr_assert(json_is_real(json_object_get(c, "loss")));
        cr_assert(json_is_real(json_object_get(c, "value")));
        cr_assert_eq(json_is_true(json_object_get(c, "latest")), i == 2);
        cr_assert_eq(json_is_string(json_object_get(c, "damage")), i == 1);
        cr_assert_gt(json_integer_value(json_object_get(c, "bytes")), 1000);
    }
    json_decref(all);
    expect(LATHE " checkpoint ls nowhere 2>&1", 2, "nowhere: no such folder");
    expect(LATHE " checkpoint ls . 2>&1", 2, "neither a checkpoint nor a folder with any");
}

Test(cli_checkpoint, verify_names_every_damaged_file)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    expect(LATHE " checkpoint verify out", 0, "whole    out/step-00000006");
    cr_assert_eq(run("printf x | dd of=out/step-00000002/model.safetensors bs=1 seek=700 "
                     "conv=notrunc 2>&1 && rm out/step-00000002/state/run.json"),
                 0);
    expect(LATHE " checkpoint verify out", 1, "out/step-00000002/state/run.json: missing");
    cr_assert(strstr(output, "out/step-00000002/model.safetensors: its content changed"), "%s",
              output);
    cr_assert(strstr(output, "whole    out/step-00000004"), "%s", output);
    expect(LATHE " checkpoint verify out/step-00000004", 0, "whole");
    expect(LATHE " checkpoint verify out/step-00000002", 1, "damaged");
    cr_assert_eq(run("echo '{}' > out/step-00000004/manifest.json"), 0);
    expect(LATHE " checkpoint verify out/step-00000004", 1, "manifest.json: truncated");
}

/* A checkpoint whose bytes match its manifest, with a NaN in the last norm. */
Test(cli_checkpoint, verify_names_tensors_that_are_not_finite)
{
    lathe_safetensors *set = NULL;
    char *meta = NULL;
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    cr_assert_eq(lathe_safetensors_open("out/step-00000004", &set), LATHE_OK);
    const int64_t at = lathe_safetensors_find(set, "model.norm.weight")->offset + 8;
    const int32_t dtype = lathe_safetensors_find(set, "model.norm.weight")->desc.dtype;
    lathe_safetensors_close(set);
    const float nan32 = NAN;
    const uint16_t nan16 = 0x7fc0;
    const size_t size = (size_t)lathe_dtype_bytes(dtype);
    FILE *f = fopen("out/step-00000004/model.safetensors", "r+");
    cr_assert(f && fseek(f, at, SEEK_SET) == 0 &&
              fwrite(size == 4 ? (const void *)&nan32 : &nan16, size, 1, f) == 1 && fclose(f) == 0);
    cr_assert_eq(lathe_manifest_meta("out/step-00000004", &meta), LATHE_OK);
    cr_assert_eq(lathe_manifest_write("out/step-00000004", meta), LATHE_OK);
    free(meta);
    expect(LATHE " checkpoint verify out", 1,
           "not finite  out/step-00000004/model.safetensors: 'model.norm.weight' holds 1 of 32 "
           "values that are not finite, the first nan at ");
    cr_assert_not_null(strstr(output, "whole    out/step-00000006"), "%s", output);
    cr_assert_null(strstr(output, "whole    out/step-00000004"), "%s", output);
}

Test(cli_checkpoint, diff_tells_keys_counters_and_tensors)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    expect(LATHE " train run.toml --checkpoint.dir other --optimizer.lr 0.01 2>&1", 0,
           "step-00000006");
    expect(LATHE " checkpoint diff out/step-00000004 out/step-00000004", 0, "0 of ");
    expect(LATHE " checkpoint diff out/step-00000004 out", 1, "  4 -> 6\n");
    cr_assert(strstr(output, "\nstate\n") && strstr(output, "\nweights: 12 of 12 tensors differ\n"),
              "%s", output);
    cr_assert(strstr(output, " differ, |b-a| at most "), "%s", output);
    cr_assert_not_null(strstr(output, "and 2 with smaller changes; --all shows them"), "%s",
                       output);
    expect(LATHE " checkpoint diff out/step-00000004 out --all", 1, "model.embed_tokens.weight");
    cr_assert_null(strstr(output, "smaller changes"), "%s", output);
    expect(LATHE " checkpoint diff out other", 1, "\nconfig\n");
    cr_assert(strstr(output, "optimizer.lr") && strstr(output, "-> 0.01\n"), "%s", output);
    cr_assert_null(strstr(output, "4 -> 6"), "%s", output);
    expect(LATHE " checkpoint diff out nowhere 2>&1", 2, "nowhere");
}

Test(cli_checkpoint, ls_shows_what_a_run_left_when_it_went_back_and_rm_removes_it)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    expect(LATHE " train run.toml --checkpoint.resume out/step-00000002 --train.stop_after 4 2>&1",
           0,
           "branch 1: 2 checkpoints of the branch before (step-00000004 to step-00000006) moved to "
           "out/abandoned/branch-1");
    expect(LATHE " checkpoint ls out", 0, "abandoned by branch 1\n");
    cr_expect_not_null(strstr(output, "  latest\n"), "%s", output);
    expect(LATHE " checkpoint ls out --json", 0, "out/abandoned/branch-1/step-00000006");
    cr_expect_not_null(strstr(output, "\"abandoned\": 1}"), "%s", output);
    cr_expect_not_null(strstr(output, "\"abandoned\": null}"), "%s", output);
    expect(LATHE " report out -o page.html && cat page.html", 0,
           "branch 1 begins; moved to abandoned/: ");
    expect(LATHE " checkpoint rm out --abandoned", 0,
           "removed out/abandoned/branch-1/step-00000006\n");
    expect(LATHE " checkpoint ls out", 0, "  latest\n");
    cr_expect_null(strstr(output, "abandoned"), "%s", output);
    expect(LATHE " checkpoint rm out 2>&1", 2, "expected steps, --keep-last N or --abandoned");
}

Test(cli_checkpoint, rm_spares_the_latest)
{
    expect(LATHE " train run.toml 2>&1", 0, "step-00000006");
    expect(LATHE " checkpoint rm out 6 2>&1", 1, "is the latest");
    cr_assert_eq(access("out/step-00000006/manifest.json", R_OK), 0);
    expect(LATHE " checkpoint rm out 3 2>&1", 2, "no checkpoint of step 3");
    expect(LATHE " checkpoint rm out 2 --keep-last 1 2>&1", 2, "expected steps, --keep-last N or");
    expect(LATHE " checkpoint rm out 2 2>&1", 0, "removed out/step-00000002");
    expect(LATHE " checkpoint rm out 6 --force 2>&1", 0, "removed out/step-00000006");
    expect("cat out/latest", 0, "step-00000004");
    expect(LATHE " train run.toml 2>&1", 0, "resumed from out/step-00000004");
    expect(LATHE " checkpoint rm out --keep-last 1 2>&1", 0, "removed out/step-00000004");
    expect("ls out | grep -c ^step-", 0, "1");
}
