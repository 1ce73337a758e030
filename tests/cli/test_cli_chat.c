/* lathe chat: lines of a pipe are answered in turn, commands change the conversation. */
#include "cli_case.h"

#include <signal.h>
#include <sys/stat.h>

#include "support/terminal.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define CHAT LATHE " chat base --temperature 0 --max-new-tokens 8 --data.seq_len 64 "

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 2\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.02\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 12\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put("base.toml", base_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000012");
    cr_assert_eq(run("mv first/step-00000012 base"), 0);
    put("base/chat_template.jinja",
        "{% for m in messages %}{{ m.content }}\n{% endfor %}{{ 'the' if add_generation_prompt }}");
}

TestSuite(cli_chat, .init = setup, .fini = remove_folder, .timeout = 120);

/* The conversation that the lines leave. */
static void leaves(const char *lines, const char *want)
{
    char command[1024];
    put("lines.txt", lines);
    cr_assert_eq(run(CHAT "< lines.txt 2>&1 >/dev/null; cut -c1-4000 saved.json"), 0, "%s", output);
    (void)command;
    cr_expect(strstr(output, want), "%s: %s", lines, output);
}

Test(cli_chat, a_line_is_answered_as_generate_does)
{
    char answer[4096];
    put("talk.json", "[{\"role\": \"user\", \"content\": \"the cat\"}]");
    cr_assert_eq(run(LATHE " generate base --messages talk.json --temperature 0 --max-new-tokens 8 "
                           "--data.seq_len 64 2>/dev/null"),
                 0);
    cr_assert_lt(strlen(output), sizeof answer);
    strcpy(answer, output);
    cr_assert_eq(run("echo 'the cat' | " CHAT "2>/dev/null"), 0, "%s", output);
    cr_expect_str_eq(output, answer);
}

Test(cli_chat, commands_change_the_conversation)
{
    leaves("/system be brief\na\n/undo\n/save saved.json\n",
           "{\"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}]}");
    leaves("/system be brief\na\n/clear\n/save saved.json\n",
           "{\"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}]}");
    leaves("//a\n/save saved.json\n",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"/a\"}, {\"role\": \"assistant\"");
    leaves("a\nb\n/undo\n/save saved.json\n/quit\nc\n",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\"");
    cr_expect_null(strstr(output, "\"b\""), "%s", output);
}

Test(cli_chat, refusals_say_what_to_do)
{
    expect("echo /x | " CHAT "2>&1", 2,
           "lathe chat: unknown command /x; expected /system, /clear, /undo, /save, /adapter, "
           "/quit or /help");
    expect("echo /undo | " CHAT "2>&1", 2, "lathe chat: /undo: there is no question to drop");
    expect("echo /save | " CHAT "2>&1", 2, "lathe chat: /save FILE: name a file");
    cr_assert_eq(run("rm base/chat_template.jinja"), 0);
    expect(
        "echo a | " CHAT "2>&1", 2,
        "base: a conversation needs a chat template: base has none; expected chat_template.jinja");
}

Test(cli_chat, a_prompt_that_is_too_long_is_refused)
{
    put_times("long.txt", "the cat sat on the mat ", 40);
    expect(CHAT "< long.txt 2>&1", 2, "the context holds");
}

/* On a terminal Ctrl-C drops the line that is being typed, as often as it comes. */
Test(cli_chat, ctrl_c_drops_an_unfinished_line)
{
    static const char *const chat[] = {
        LATHE, "chat", "base", "--temperature", "0", "--max-new-tokens", "8", "--data.seq_len",
        "64",  NULL};
    static terminal tty;
    terminal_start(&tty, 24, 100, chat);
    size_t at = terminal_await(&tty, 0, "> ");
    for (int i = 0; i < 2; i++) {
        terminal_type(&tty, i ? "a h" : "the c");
        at = terminal_await(&tty, at,
                            i ? "a h" : "the c"); /* a Ctrl-C drops what was typed before it */
        terminal_type(&tty, "\003");
        at = terminal_await(&tty, at, "(Ctrl-D or /quit ends)");
        at = terminal_await(&tty, at, "> ");
    }
    terminal_type(&tty, "the cat\n");
    at = terminal_await(&tty, at, "the cat\r\n");
    at = terminal_await(&tty, at, "> ");
    terminal_type(&tty, "/save saved.json\n");
    at = terminal_await(&tty, at, "2 messages in saved.json");
    (void)terminal_await(&tty, at, "> ");
    terminal_type(&tty, "\004");
    cr_expect_eq(terminal_wait(&tty), 0, "%s", tty.text);
    terminal_close(&tty);
    cr_assert_eq(run("cat saved.json"), 0);
    cr_expect_not_null(strstr(output, "[{\"role\": \"user\", \"content\": \"the cat\"}"), "%s",
                       output);
}

Test(cli_chat, ctrl_c_ends_a_chat_in_a_pipe)
{
    /* The signal is sent until the program, which may not be ready for the first, has ended. */
    expect(
        "sh -c 'mkfifo typed; exec 3<>typed; " LATHE
        " chat base --data.seq_len 64 <typed 2>/dev/null & p=$!; while sleep 0.3 && kill -INT $p "
        "2>/dev/null; do :; done; wait $p'",
        130, "");
}
