/* chat MODEL [TEXT...]: answers each TEXT, or each line of standard input, in one conversation.
 *
 * MODEL is what `lathe chat` takes: a folder, a checkpoint, an adapter, a GGUF file, a run file.
 * The answer is written while it is generated; Ctrl-C ends it, and what is there stays a message.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lathe/session.h>

static lathe_session *session;

static void on_interrupt(int number)
{
    (void)number;
    lathe_session_cancel(session); /* safe in a signal handler */
}

/* Writes a piece of the answer. A result other than 0 would end the answer. */
static int32_t write_piece(void *arg, const lathe_session_piece *piece)
{
    (void)arg;
    fwrite(piece->text, 1, (size_t)piece->bytes, stdout);
    fflush(stdout);
    return ferror(stdout) != 0;
}

static lathe_status answer(lathe_dialogue *dialogue, const char *text)
{
    lathe_sampling sampling = {.size = (uint32_t)sizeof sampling};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    lathe_status status = lathe_dialogue_sampling(dialogue, &sampling);
    if (status == LATHE_OK)
        status = lathe_dialogue_say(dialogue, text, (int64_t)strlen(text), &sampling, write_piece,
                                    NULL, &made);
    if (status == LATHE_OK)
        puts(made.finish == LATHE_FINISH_CANCELLED ? " [stopped]" : "");
    return status;
}

/* Answers the lines of standard input. */
static lathe_status converse(lathe_dialogue *dialogue)
{
    char *line = NULL;
    size_t capacity = 0;
    lathe_status status = LATHE_OK;
    while (status == LATHE_OK && !ferror(stdout) && getline(&line, &capacity, stdin) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0')
            status = answer(dialogue, line);
    }
    free(line);
    return status;
}

int main(int argc, char **argv)
{
    lathe_dialogue *dialogue = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: chat MODEL [TEXT...]\n");
        return 2;
    }
    const lathe_session_config config = {
        .size = (uint32_t)sizeof config, .purpose = LATHE_SESSION_GENERATE, .model = argv[1]};
    lathe_status status = lathe_session_open(&config, &session);
    if (status == LATHE_OK) {
        const struct sigaction action = {.sa_handler = on_interrupt};
        sigaction(SIGINT, &action, NULL);
        status = lathe_dialogue_create(session, &dialogue);
    }
    for (int i = 2; i < argc && status == LATHE_OK && !ferror(stdout); i++)
        status = answer(dialogue, argv[i]);
    if (argc == 2 && status == LATHE_OK)
        status = converse(dialogue);
    if (status != LATHE_OK)
        fprintf(stderr, "chat: %s\n", lathe_last_error());
    const int is_written = fflush(stdout) == 0 && !ferror(stdout);
    if (!is_written)
        fprintf(stderr, "chat: standard output cannot be written\n");
    lathe_dialogue_destroy(dialogue);
    lathe_session_close(session);
    return status == LATHE_OK && is_written ? 0 : 1;
}
