/* @NAME@, by hand. Run with the path of the .so. */
#include <lathe/renderer.h>
#include <lathe/kit/testing.h>

static char text[256], learnt[256];

static lathe_status put(void *ctx, const lathe_piece *piece)
{
    (void)ctx;
    strncat(text, piece->text.data, (size_t)piece->text.bytes);
    if (piece->trained)
        strncat(learnt, piece->text.data, (size_t)piece->text.bytes);
    return LATHE_OK;
}

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_renderer_v1 *const table = plugin->table;
    const lathe_chat_message messages[] = {
        {.role = LATHE_CHAT_USER, .role_name = {"user", 4}, .content = {"Hi", 2}},
        {.role = LATHE_CHAT_ASSISTANT, .role_name = {"assistant", 9}, .content = {"Ho", 2}},
    };
    lathe_conversation talk = {.size = (uint32_t)sizeof talk,
                               .n_messages = 2,
                               .messages = messages,
                               .eos = {"</s>", 4},
                               .thinking = -1};
    const lathe_piece_sink sink = {.size = (uint32_t)sizeof sink, .put = put};
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "", &self) == LATHE_OK);
    LATHE_CHECK(table->render(self, &talk, &sink) == LATHE_OK);
    LATHE_CHECK(strcmp(text, "User: Hi\nAssistant: Ho</s>\n") == 0);
    LATHE_CHECK(strcmp(learnt, "Ho</s>\n") == 0);
    talk.n_messages = 1;
    talk.prompt = 1;
    text[0] = '\0';
    LATHE_CHECK(table->render(self, &talk, &sink) == LATHE_OK);
    LATHE_CHECK(strcmp(text, "User: Hi\nAssistant: ") == 0);
    return lathe_test_failures != 0;
}
