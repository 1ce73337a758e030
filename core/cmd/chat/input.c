/* Lines that the user types, and Ctrl-C. */
#include "cmd/chat/input.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"

lathe_status lathe_chat_input_init(lathe_chat_input *input)
{
    sigset_t set;
    *input = (lathe_chat_input){.signals = -1, .data = LATHE_BUFFER_INIT};
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) == 0)
        input->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return input->signals >= 0
               ? LATHE_OK
               : lathe_error(LATHE_E_IO, "cannot read signals: %s", strerror(errno));
}

void lathe_chat_input_fini(lathe_chat_input *input)
{
    if (input->signals >= 0)
        (void)close(input->signals);
    lathe_buffer_fini(&input->data);
}

int lathe_chat_input_interrupted(lathe_chat_input *input)
{
    struct signalfd_siginfo info;
    int any = 0;
    while (read(input->signals, &info, sizeof info) == (ssize_t)sizeof info)
        any = 1;
    return any;
}

/* Takes the first line out of the data; the rest without a line end if the input has ended. */
static int take_line(lathe_chat_input *input, lathe_buffer *line)
{
    lathe_buffer *data = &input->data;
    const char *end = data->len > 0 ? memchr(data->data, '\n', (size_t)data->len) : NULL;
    if (!end && !(input->has_ended && data->len > 0))
        return 0;
    const int64_t n = end ? end - data->data : data->len;
    const int64_t used = end ? n + 1 : n;
    line->len = 0;
    lathe_buffer_append(line, data->data, n > 0 && data->data[n - 1] == '\r' ? n - 1 : n);
    memmove(data->data, data->data + used, (size_t)(data->len - used));
    data->len -= used;
    return 1;
}

static lathe_status read_more(lathe_chat_input *input)
{
    char bytes[4096];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return lathe_error(LATHE_E_IO, "cannot read standard input: %s", strerror(errno));
    if (n == 0)
        input->has_ended = 1;
    if (n > 0)
        lathe_buffer_append(&input->data, bytes, n);
    return input->data.status;
}

lathe_status lathe_chat_input_line(lathe_chat_input *input, lathe_buffer *line, int32_t *out_what)
{
    for (;;) {
        if (take_line(input, line)) {
            *out_what = LATHE_CHAT_LINE;
            return line->status;
        }
        if (input->has_ended) {
            *out_what = LATHE_CHAT_END;
            return LATHE_OK;
        }
        struct pollfd wait[2] = {{STDIN_FILENO, POLLIN, 0}, {input->signals, POLLIN, 0}};
        if (poll(wait, 2, -1) < 0 && errno != EINTR)
            return lathe_error(LATHE_E_IO, "cannot wait for input: %s", strerror(errno));
        if (lathe_chat_input_interrupted(input)) {
            *out_what = LATHE_CHAT_INTERRUPT;
            return LATHE_OK;
        }
        if (wait[0].revents)
            LATHE_TRY(read_more(input));
    }
}
