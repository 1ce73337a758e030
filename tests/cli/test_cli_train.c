/* Notes and refusals of lathe train before its first step. */
#include "training_case.h"

TestSuite(cli_train, .init = setup, .fini = remove_folder);

Test(cli_train, a_pipe_as_data_configuration_or_model_is_refused_at_once, .timeout = 60)
{
    cr_assert_eq(run("mkfifo pipe && mkdir model && mkfifo model/config.json"), 0);
    expect(LATHE " train run.toml --data.datasets '[{path = \"pipe\"}]' 2>&1", 2,
           "pipe is a named pipe (FIFO); expected a regular file or a folder");
    expect(LATHE " validate run.toml --data.datasets '[{path = \"pipe\"}]' 2>&1", 2,
           "pipe is a named pipe (FIFO); expected a regular file or a folder");
    expect(LATHE " train run.toml --data.datasets '[{path = \"/dev/zero\"}]' 2>&1", 2,
           "is a device");
    expect(LATHE " train run.toml --data.datasets '[{path = \"p*e\"}]' 2>&1", 2,
           "no file matches the pattern p*e"); /* a pattern matches only regular files */
    expect(LATHE " train pipe 2>&1", 2, "pipe: is a named pipe (FIFO); expected a regular file");
    expect(LATHE " eval model --data text.txt 2>&1", 2,
           "model/config.json: is a named pipe (FIFO); expected a regular file");
    expect(LATHE " train run.toml --tokenizer.path pipe 2>&1", 2, "is a named pipe (FIFO)");
}

/* Notes on the data appear at the first start of a run only. */
Test(cli_train, files_of_a_folder_that_are_left_out_are_reported_once)
{
    static const char train[] =
        LATHE " train run.toml --data.datasets '[{path = \"corpus\", type = \"jsonl\"}]'";
    char command[512];
    cr_assert_eq(run("mkdir -p corpus/deep && mkfifo corpus/pipe && ln -s nowhere corpus/link && "
                     "echo notes > corpus/notes.md && touch corpus/deep/.hidden"),
                 0);
    put_times("corpus/a.jsonl", "{\"text\": \"the wheel turns and the tool holds, so it is\"}\n",
              60);
    put_times("corpus/deep/b.jsonl", "{\"text\": \"\"}\n", 2);
    (void)snprintf(command, sizeof command, "%s --train.stop_after 2 2>&1", train);
    expect(command, 0,
           "corpus: 2 files are read; left out: 1 not named *.jsonl or *.ndjson "
           "(corpus/notes.md), 2 that are not regular files (corpus/link, corpus/pipe), 1 hidden "
           "(corpus/deep/.hidden)\n");
    cr_expect_not_null(
        strstr(output, "left out: 2 records have no text to learn: corpus/deep/b.jsonl:1, ..."),
        "%s", output);
    (void)snprintf(command, sizeof command, "%s 2>&1", train);
    expect(command, 0, "resumed from out/step-00000002");
    cr_expect_null(strstr(output, "left out"), "%s", output);
}

Test(cli_train, files_that_are_no_text_are_named_when_the_data_are_prepared)
{
    cr_assert_eq(run("mkdir corpus && printf 'a\\377b' > corpus/noise.bin && cp text.txt corpus"),
                 0);
    expect(LATHE " train run.toml --data.datasets '[{path = \"corpus\", type = \"text\"}]' 2>&1", 0,
           "corpus: left out because they are not UTF-8 text: corpus/noise.bin\n");
}

Test(cli_train, one_document_in_the_data_is_a_note_of_the_first_start_alone)
{
    expect(LATHE " train run.toml --train.stop_after 2 2>&1", 0,
           "the data is one document: validation takes its last tokens");
    expect(LATHE " train run.toml 2>&1", 0, "resumed from out/step-00000002");
    cr_expect_null(strstr(output, "one document"), "%s", output);
}

Test(cli_train, resuming_with_another_number_of_threads_is_reported)
{
    expect(LATHE " train run.toml --train.stop_after 2 2>&1", 0, "step-00000002");
    expect(LATHE " train run.toml --train.stop_after 4 2>&1", 0, "resumed from out/step-00000002");
    cr_expect_null(strstr(output, "the run continues with"), "%s", output);
    expect(LATHE " train run.toml --train.threads 2 2>&1", 0,
           "out/step-00000004/state/run.json was written with 1 thread, the run continues with 2: "
           "its numbers will differ in the last bits from those of the uninterrupted run; "
           "train.threads = 1 gives the same numbers");
}

Test(cli_train, data_that_changed_are_named_by_their_file)
{
    put_times("other.txt", "chips fly off and the part spins on, as the feed is slow\n", 60);
    static const char train[] = LATHE " train run.toml --data.datasets '[{path = \"text.txt\"}, "
                                      "{path = \"other.txt\"}]' 2>&1";
    char command[512];
    (void)snprintf(command, sizeof command, "%s --train.stop_after 2", train);
    expect(command, 0, "step-00000002");
    cr_assert_eq(run("echo 'one line more' >> other.txt"), 0);
    expect(train, 2,
           "out/step-00000002 cannot be resumed, because the data changed since it was written: "
           "other.txt has 3434 bytes; it had 3420 when the checkpoint was written; put the data "
           "back as they were");
    expect(LATHE " train run.toml 2>&1", 2, "other.txt does not exist any more");
    expect(LATHE " train run.toml --data.datasets '[{path = \"text.txt\"}, "
                 "{path = \"run.toml\", type = \"text\"}]' 2>&1",
           2, "run.toml is new (");
}

Test(cli_train, a_disk_that_the_checkpoints_will_fill_is_reported_before_the_first_step)
{
    static const char many[] = " run.toml --train.max_steps 1000000000000 --checkpoint.every 1";
    char command[256];
    (void)snprintf(command, sizeof command, LATHE " plan%s 2>&1", many);
    expect(command, 0,
           "1000000000000 checkpoints over the run (checkpoint.keep_last = 0 keeps all) take ");
    cr_expect_not_null(strstr(output, " are free in out: not enough; set checkpoint.keep_last to "),
                       "%s", output);
    (void)snprintf(command, sizeof command, LATHE " plan%s --json 2>&1", many);
    expect(command, 0, "\"at_a_time\": 1000000000000, \"bytes_free\": ");
    cr_expect_not_null(strstr(output, "\"fit\": false"), "%s", output);
    static const char says[] = "warning: the disk will be full: 1000000000000 checkpoints";
    (void)snprintf(command, sizeof command, LATHE " validate%s 2>&1", many);
    expect(command, 0, says);
    (void)snprintf(command, sizeof command, LATHE " train%s --train.stop_after 1 2>&1", many);
    expect(command, 0, says);
    /* the checkpoint that the run has by now is not counted twice */
    (void)snprintf(command, sizeof command, LATHE " validate%s 2>&1", many);
    expect(command, 0, says);
    expect(LATHE " plan run.toml --checkpoint.keep_last 2 2>&1", 0,
           "3 checkpoints at a time (checkpoint.keep_last = 2, plus the one being written) take ");
    cr_expect_null(strstr(output, "not enough"), "%s", output);
}

/* No disk holds the weights of this model. */
Test(cli_train, a_disk_without_room_for_one_checkpoint_is_refused_before_the_first_step)
{
    static const char huge[] = " run.toml --model.hidden_size 262144 --model.head_dim 128 "
                               "--model.intermediate_size 2097152 --train.memory_limit 1000000";
    static const char *const commands[] = {"validate", "train"};
    char command[256];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(command, sizeof command, LATHE " %s%s 2>&1", commands[i], huge);
        expect(command, 2, ": error: no checkpoint fits on the disk: one takes ");
        cr_expect_not_null(
            strstr(output, " are free in out: make room, or choose another checkpoint.dir"), "%s",
            output);
    }
    expect("ls -d out 2>&1", 2, "out");
}

/* run.json says what trained the run, not what a start without a step was given. */
Test(cli_train, a_start_without_a_step_leaves_the_record_of_the_run, .timeout = 60)
{
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000006");
    cr_assert_eq(run("cp out/run.json before.json"), 0);
    expect(LATHE " train run.toml --optimizer.lr 0.9 --train.max_steps 5 2>&1", 0,
           "nothing to do: step 6 of 5");
    expect("cmp out/run.json before.json && echo same", 0, "same");
    /* after a kill between the last checkpoint and the end, the run is finished all the same */
    cr_assert_eq(run("sed -i '/\"end\": /d' out/run.json"), 0);
    expect(LATHE " train run.toml --optimizer.lr 0.9 2>&1", 0, "nothing to do: step 6 of 6");
    expect("grep -c '\"end\": \"finished\"' out/run.json", 0, "1");
    cr_expect_neq(run("grep '\"lr\": 0.9' out/run.json"), 0, "%s", output);
    /* going back is recorded: it moves checkpoints */
    expect(LATHE " train run.toml --checkpoint.resume out/step-00000004 --train.max_steps 4 2>&1",
           0, "nothing to do: step 4 of 4");
    expect("cat out/run.json", 0, "\"abandoned\"");
}

/* A text needs the weights and the tokenizer of the checkpoint, not what they were trained on. */
Test(cli_train, generating_from_a_run_file_needs_no_data, .timeout = 60)
{
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000006");
    cr_assert_eq(run("mv text.txt moved.txt"), 0);
    expect(LATHE " generate run.toml --prompt the --max-new-tokens 2 2>/dev/null", 0, "the");
    expect(LATHE " eval run.toml 2>&1", 2, "data.datasets: no such file or folder: text.txt");
    expect(LATHE " train run.toml 2>&1", 2, "data.datasets: no such file or folder: text.txt");
}
