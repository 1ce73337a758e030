# Lines of seeded words: the text that the runs of tests/bits train on, or with -v pairs=1 preference pairs.
# The generator is exact in double precision, so that every awk writes the same bytes.
function next_random(n) {
    state = (state * 69069 + 12345) % 4294967296
    return int(state / 65536) % n
}

function sentence(n,    i, text) {
    text = word[1 + next_random(n_words)]
    for (i = 1; i < n; i++)
        text = text " " word[1 + next_random(n_words)]
    return text
}

BEGIN {
    state = seed
    n_words = split("the a lathe turns one piece of work with whatever tool sits in its post and model that " \
                    "learns to write text by small steps large red blue old new", word, " ")
    for (line = 0; line < lines; line++) {
        if (!pairs)
            print sentence(5 + next_random(9)) "."
        else
            printf "{\"prompt\": \"%s \", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", sentence(3 + next_random(4)),
                sentence(2 + next_random(5)), sentence(2 + next_random(5))
    }
}
