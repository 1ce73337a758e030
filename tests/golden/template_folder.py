#!/usr/bin/env python3
"""Assembles the folder of real chat templates that renderers.py, chat_templates.py, renderer_tokens.py and
renderer_live.py read.

    template_folder.py FOLDER [--packages DIR] [NAME=MODEL ...]

Templates of others are not part of this repository. They come from packages of PyPI, with pip:

    *.jinja          llama.cpp's models/templates, in the source package of llama-cpp-python
    cpp_*.jinja      the templates in llama.cpp's tests/test-chat-template.cpp, in the same package
    py_*.jinja       those in llama_cpp/llama_chat_format.py, in the same package
    axolotl_*.jinja  those of the package axolotl (mistral_v2v3 is that of Mistral-7B-Instruct-v0.3)
    unsloth_*.jinja  those of unsloth/chat_templates.py: zephyr, vicuna, vicuna_old, alpaca, phi4
    trl_*.jinja      TRL's chat_templates, of the installed package trl
    llama2.jinja     LlamaTokenizer.default_chat_template of transformers 4.43.4, without a default system message
    NAME.jinja       chat_template.jinja of the folder MODEL, or chat_template of its tokenizer_config.json

renderer_tokens.py needs smollm2=FOLDER with HuggingFaceTB/SmolLM2-135M-Instruct (any size has the same template).
DIR keeps the downloaded packages (77 MB, 9 MB, 2 MB and 2 MB) for the next time; pip needs some minutes for the first.
"""
import ast
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

LLAMA_CPP = "llama-cpp-python==0.3.36"
CASE = r'/\* \.name= \*/ "([^"]*)",\s*(?://[^\n]*\s*)*/\* \.template_str=? \*/ (.*?),?\s*/\* \.expected'
AXOLOTL = "axolotl==0.21.0"
UNSLOTH = "unsloth==2026.10.9"
UNSLOTH_FAMILIES = ("zephyr", "vicuna", "vicuna_old", "alpaca", "phi4")
OLD_TRANSFORMERS = "transformers==4.43.4"


def package(requirement, packages, *options):
    """The path of a package's file, downloaded unless it is there."""
    name, version = requirement.split("==")
    found = glob.glob("%s/%s-%s*" % (packages, name.replace("-", "?"), version))
    if not found:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, requirement, "-d",
                        str(packages)], check=True)
        found = glob.glob("%s/%s-%s*" % (packages, name.replace("-", "?"), version))
    return found[0]


def slug(name):
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")


def text_of_literal(literal):
    """The text of a C++ string literal, or of several in a row."""
    return "".join(ast.literal_eval('"' + part + '"') for part in re.findall(r'"((?:[^"\\]|\\.)*)"', literal, re.S))


def of_llama_cpp(path):
    """(name, text) of the templates in the source package."""
    with tarfile.open(path) as archive:
        for member in archive:
            inner = member.name.split("/", 1)[-1]
            if inner.startswith("vendor/llama.cpp/models/templates/") and inner.endswith(".jinja"):
                yield os.path.basename(inner)[:-6], archive.extractfile(member).read().decode()
            elif inner == "vendor/llama.cpp/tests/test-chat-template.cpp":
                source = archive.extractfile(member).read().decode()
                for name, literal in re.findall(CASE, source, re.S):
                    if text_of_literal(literal):
                        yield "cpp_" + slug(name), text_of_literal(literal)
            elif inner == "llama_cpp/llama_chat_format.py":
                for node in ast.parse(archive.extractfile(member).read().decode()).body:
                    name = node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else ""
                    if name.endswith("_CHAT_TEMPLATE") and isinstance(node.value, ast.Constant):
                        yield "py_" + slug(name[:-len("_CHAT_TEMPLATE")].lower()), node.value.value


def of_old_transformers(path):
    with zipfile.ZipFile(path) as archive:
        source = archive.read("transformers/models/llama/tokenization_llama.py").decode()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "default_chat_template":
            text = next(n.value.value for n in ast.walk(node) if isinstance(n, ast.Assign) and n.targets[0].id == "template"
                        and isinstance(n.value, ast.Constant))
            yield "llama2", text.replace("USE_DEFAULT_PROMPT", "false").replace("DEFAULT_SYSTEM_MESSAGE", "")


def of_axolotl(path):
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".jinja"):
                yield "axolotl_" + os.path.basename(name)[:-6], archive.read(name).decode()


def of_unsloth(path):
    """The templates that are literals, with their default system messages in place of "{system_message}"."""
    with zipfile.ZipFile(path) as archive:
        source = archive.read("unsloth/chat_templates.py").decode()
    texts, systems = {}, {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name):
            texts[target.id] = node.value.value
        elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == "DEFAULT_SYSTEM_MESSAGE":
            systems[ast.literal_eval(target.slice)] = node.value.value
    for family in UNSLOTH_FAMILIES:
        text, system = texts[family + "_template"], systems.get(family)
        yield "unsloth_" + family, text.replace("{system_message}", system.replace("'", "\\'")) if system else text


def of_trl():
    import trl
    for path in sorted((pathlib.Path(trl.__file__).parent / "chat_templates").glob("*.jinja")):
        yield "trl_" + path.stem, path.read_text(encoding="utf-8")


def of_model(folder):
    own = pathlib.Path(folder) / "chat_template.jinja"
    if own.exists():
        return own.read_text(encoding="utf-8")
    return json.loads((pathlib.Path(folder) / "tokenizer_config.json").read_text())["chat_template"]


def assemble(folder, packages, models):
    """Writes the templates; returns {where from: number}."""
    folder.mkdir(parents=True, exist_ok=True)
    packages.mkdir(parents=True, exist_ok=True)
    counts = {}
    sources = [("llama.cpp", of_llama_cpp(package(LLAMA_CPP, packages, "--no-binary", ":all:"))), ("TRL", of_trl()),
               ("axolotl", of_axolotl(package(AXOLOTL, packages, "--only-binary", ":all:", "--python-version", "3.12"))),
               ("unsloth", of_unsloth(package(UNSLOTH, packages, "--only-binary", ":all:", "--python-version", "3.12"))),
               ("old transformers", of_old_transformers(package(OLD_TRANSFORMERS, packages))),
               ("models", ((name, of_model(path)) for name, path in models))]
    for where, templates in sources:
        for name, text in templates:
            (folder / (name + ".jinja")).write_text(text, encoding="utf-8", newline="")
            kind = where + "'s tests and examples" if name.startswith(("cpp_", "py_")) else where
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def main():
    arguments = sys.argv[1:]
    packages = None
    if "--packages" in arguments:
        at = arguments.index("--packages")
        packages = pathlib.Path(arguments[at + 1])
        del arguments[at:at + 2]
    models = [word.split("=", 1) for word in arguments[1:]]
    with tempfile.TemporaryDirectory() as temporary:
        counts = assemble(pathlib.Path(arguments[0]), packages or pathlib.Path(temporary), models)
    for where, n in counts.items():
        print("%-40s %3d templates" % (where, n))


if __name__ == "__main__":
    main()
