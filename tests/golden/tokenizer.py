"""Small byte-level BPE tokenizers trained by Hugging Face tokenizers, and what they make of tricky text.

data/tokenizer/corpus.txt   the training text; its sequences are the parts between blank lines
data/tokenizer/NAME.json    tokenizer.json as save() writes it, with the pre-tokenizer of a model family:
                            gpt2, prefix (gpt2 with add_prefix_space), llama3 (ignore_merges, BOS template),
                            qwen2 (NFC), twice (two splits), flags (gpt2 with added tokens of every flag)
data/tokenizer/cases.json   [{"text": ..., "NAME": [ids of encode(text, add_special_tokens=False)], ...}]
data/tokenizer/special.json {"NAME": ids of encode("Hello world") with special tokens}

Made with tokenizers 0.23.3:  python tests/golden/tokenizer.py
"""
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers import decoders, trainers

OUT = pathlib.Path(__file__).parent / "data" / "tokenizer"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = """\
The spindle turns the workpiece and the tool stays where it is. A chip curls away, thin and blue, and the
surface behind it is bright. Nobody who has turned a shaft forgets the sound of a dull tool: it sings, then
it chatters, then it tears. So one stops, takes the tool out, grinds it, and puts it back. The shaft doesn't
care which tool it was, only that the tool was sharp, and that it didn't move.

There are 12 tools in the box, numbered 1 to 12; numbers 3, 7 and 11 are for threads. In 1897 a set cost
24 shillings, in 1925 about 310, and today it's 4,500 or more. We've kept the old ones. They'll last another
100 years if they're oiled, and we'd rather oil them than buy new ones.

Die Drehbank läuft, das Werkstück dreht sich, und der Meißel steht still. Größe, Härte, Maß: alles zählt.
Der Lehrling übt; der Meister prüft. Être précis, c'est déjà être honnête; où est la règle? L'été, à
l'atelier, la fenêtre reste ouverte. El año pasado se hizo el eje; mañana se hará la tuerca.

Станок вращает деталь, а резец стоит на месте. Мастер смотрит на стружку и слушает. Резец острый, деталь
ровная, мастер доволен. Деталь готова.

車床轉動工件，刀具不動。工件是圓的，刀具是直的。師傅看工件，學生看師傅。旋盤は工作物を回し、刃物は動かない。
工作物は丸い。刃物はまっすぐだ。선반은 공작물을 돌리고 공구는 움직이지 않는다. 공구는 곧다.

for (int i = 0; i < n; i++) {
    turn(work[i], tool);
    if (work[i].size != want[i].size) {
        return error("size is %d, expected %d", work[i].size, want[i].size);
    }
}
\treturn 0;\t/* done */

😀 😀😀 👍🏽 👨‍👩‍👧 ok!!! ... --- === *** (a) [b] {c} <d> "e" 'f' `g` #h @i $j %k ^l &m
"""

HAND = [
    "", " ", "  ", "a", "Hello world", "Hello  world", "   leading", "trailing   ", "\n", "\n\n", " \n ",
    "a\n\nb", "a \n b", "tabs\t\tand\tspaces \t ", "line\r\nline\r\n\r\n", "\r", "it's we'll I'D THEY'RE don'T 'tis '",
    "o'clock's'll've", "the spindle turns", "workpiece", "unspindleable", "x1y22z333 4444 55555 123456789",
    "3.14159 1,000,000 0x1F ½ ² ٣٤٥ १२३ Ⅷ", "straße Größe ÜBUNG", "e\u0301te\u0301 \u00e9t\u00e9", "A\u030a \u212b \u00c5",
    "a\u0315\u0300\u05ae\u0300\u0062 \u0061\u0300\u0315", "\u1100\u1161\u11a8 \uac01 \uac00\u11a8", "\u0958 \u0f73 \u2126 \ufb01",
    "車床轉動工件。", "旋盤は工作物を回し", "공작물을 돌리고", "Станок вращает", "مرحبا بالعالم", "שלום עולם", "สวัสดีชาวโลก",
    "हिन्दी में", "😀", "👨‍👩‍👧‍👦 family", "👍🏽👍🏿", "🇩🇪🇫🇷", "a😀b", "\u200d\u200b\ufeff", "\u00a0\u00a0nbsp\u00a0",
    "\u2003em\u2003space\u3000ideographic", "\u180emvs\u180e \u180e", "\u0085nel\u0085", "\u2028ls\u2029ps",
    "\u0001\u0002\u001f\u007f\u0080\u009f", "\ufffd\uffff\U0010ffff", "<|endoftext|>", "a<|endoftext|>b",
    "<|endoftext|><|endoftext|>", "<|endoftext", " <|endoftext|> ", "'\u017f 'ſ K'\u212a", "if(x){y=z;}// done",
    "!!!???...,,,;;;:::", "a" * 40, " " * 50 + "x", "ab" * 40, "0" * 20, "\n" * 10 + " " * 5 + "y", "-" * 33,
    "<mask> and <mask>", "  <mask>  x", "<left>", "x  <left>  y", "x  <right>  y", "<both>\n<both> \t<both>z",
    "word tool word", "toolword word", "wordword word.word _word word1 éword", "cafe\u0301 caf\u00e9 xcafe\u0301x",
    "<a><ab><abc><abcd", "mixed <mask>word<right> <both> word",
]

POOL = (list("abcdefghij   \t\n'.,-!0123456789ABst") + ["'s", "'LL", " the", "tool", "é", "e\u0301", "ß", "車", "床", "は", "공",
        "😀", "\u200d", "\u0300", "\u0315", "\u00a0", "\u3000", "\r\n", "Ж", "ш", "½", "٣", "\u05d0", "<mask>", "<left>",
        "<right>", "<both>", "word", "<|endoftext|>", "<a>", "<ab>", "\u0001", "\u2028", "\U0001f1e9"])


def byte_level(tok, specials=("<|endoftext|>",), size=512):
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=list(specials), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(CORPUS.split("\n\n"), trainer)
    return tok


def splits(*patterns):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] +
                                   [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "corpus.txt").write_text(CORPUS)
    toks = {}

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    toks["gpt2"] = byte_level(t)

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    toks["prefix"] = byte_level(t)

    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = splits(LLAMA3)
    toks["llama3"] = t = byte_level(t, ("<|begin_of_text|>", "<|endoftext|>"))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[("<|begin_of_text|>", 0)])])

    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = splits(QWEN2)
    toks["qwen2"] = byte_level(t)
    # Vocabulary entries that no merge makes: only ignore_merges finds them.
    j = json.loads(toks["llama3"].to_str())
    j["model"]["vocab"]["Hello"] = len(j["model"]["vocab"])
    toks["llama3"] = Tokenizer.from_str(json.dumps(j))

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = splits(r"\p{N}{1,2}", r"[a-z]+|\s+(?!\S)|[^\s]")
    toks["twice"] = byte_level(t)

    t = Tokenizer.from_str(toks["qwen2"].to_str())
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<left>", lstrip=True, normalized=False)])
    t.add_tokens([AddedToken("<right>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True),
                  AddedToken("word", single_word=True), AddedToken("cafe\u0301", normalized=True), AddedToken("<a>"),
                  AddedToken("<ab>"), AddedToken("<abc>", normalized=False)])
    toks["flags"] = t

    for name, t in toks.items():
        t.save(str(OUT / f"{name}.json"))
    rng = random.Random(7)
    texts = HAND + ["".join(rng.choice(POOL) for _ in range(rng.randrange(1, 30))) for _ in range(120)]
    cases = [{"text": text, **{name: t.encode(text, add_special_tokens=False).ids for name, t in toks.items()}}
             for text in texts]
    with open(OUT / "cases.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
    with open(OUT / "special.json", "w") as f:
        json.dump({name: t.encode("Hello world").ids for name, t in toks.items()}, f)
        f.write("\n")


if __name__ == "__main__":
    main()
