"""Splitting, compared with a real /bin/sh wherever the two must agree; refusals by what they name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core import words as w
from supervisor.core.words import Home, Literal, Variable, Word, WordsError, split
from supervisor.node.launch import expand
from supervisor.node.records import Refusal

ENV = {"HOME": "/home/me", "V": "value", "W": "two words", "EMPTY": "", "_x1": "under", "PATH": "/usr/bin:/bin"}
EXAMPLES = 2000 if os.environ.get("SUPERVISOR_TEST_FULL") else 200


def sh(text: str, folder: Path) -> list[str]:
    """The words that a real sh makes of the text, in a folder whose files a pattern could match."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"printf '%s\\0' x {text}\n"], cwd=folder, env=ENV, capture_output=True, check=True
    )
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[1:-1]


def ours(text: str) -> list[str]:
    """Our words, expanded by the program that expands them on the node."""
    return expand([w.to_wire(word) for word in split(f"x {text}")], ENV)[1:]


EQUAL_TO_SH = [
    "",
    "a",
    "  a   b\t c  ",
    "a\tb",
    "''",
    '""',
    "a '' b",
    "''a\"\"",
    "'a b' c",
    '"a b" c',
    "a'b c'd",
    "a\"b c\"d'e f'",
    r"a\ b",
    r"\a\b\\",
    r"\'",
    r"\"",
    r"\$V",
    r"\#a",
    r"\~/x",
    r"'a\b'",
    r'"a\b"',
    r'"a\\b"',
    r'"a\"b"',
    r'"a\$V"',
    r'"a\`b"',
    '"a\\\nb"',
    "'a\nb'",
    '"a\nb"',
    "a\\\nb",
    "a \\\n b",
    "a \\\n   --b \\\n   --c",
    "# all comment",
    "a # comment 'open",
    "a#b",
    "'#a'",
    "a\\\n#b",
    "a \\\n#b c",
    "$V",
    "${V}",
    "a$V",
    "a${V}b",
    '"$V"',
    '"$W"',
    '"a ${W} b"',
    "'$V'",
    "$V$V",
    "$_x1",
    "$\\\nV",
    "a$_x\\\n1",
    "${V}V",
    '"$EMPTY"',
    "a$EMPTY",
    "$",
    "a$",
    "$%",
    '"$"',
    '"a$ b"',
    "$/x",
    "$.x",
    "~",
    "~/",
    "~/m",
    "~/'a b'",
    "a ~",
    "~\\\n/m",
    "a~",
    "a/~/b",
    "--x=~/m",
    "--x ~/m",
    "'~/m'",
    '"~/m"',
    r"~\/m",
    "~'/m'",
    "~$V",
    '\'{"a": 1, "b": [2, 3]}\'',
    r'"{\"a\": 1}"',
    r"{\"a\":1}",
    "{}",
    "{a}",
    "a}",
    "]",
    "a]b",
    "!",
    "a!b",
    "%^+-=:@,./_",
    "A=b",
    "--a=b --c='d e'",
    "if then cd",
    "é“x”",
    "\u00a0",
    "a\vb\fc",
    "-",
    "--",
    "a\\\\\\\nb",
]


@pytest.mark.parametrize("text", EQUAL_TO_SH)
def test_words_are_those_of_a_real_sh(text: str, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert ours(text) == sh(text, tmp_path)


def _own_quoting(draw: st.DrawFn, text: str) -> str:
    """The text quoted in a random way, character by character or in runs, with continuations strewn in."""
    out = []
    while text:
        size = draw(st.integers(1, len(text)))
        run, text = text[:size], text[size:]
        styles = ["double"] + (["single"] if "'" not in run else []) + (["backslash"] if "\n" not in run else [])
        style = draw(st.sampled_from(styles))
        if style == "single":
            out.append(f"'{run}'")
        elif style == "backslash":
            out.append("".join("\\" + character for character in run))
        else:
            out.append('"' + "".join("\\" + c if c in '\\"$`' else c for c in run) + '"')
        if draw(st.integers(0, 4)) == 0:
            out.append("\\\n")
    return "".join(out) or "''"


TEXT = st.text(
    st.one_of(st.sampled_from(list(" \t\n'\"\\$`~#*?[]{}()<>|&;!=,a1-/")), st.characters(exclude_characters="\0\r")),
    max_size=12,
).filter(lambda text: not any(0xD800 <= ord(character) < 0xE000 for character in text))


@st.composite
def quoted_words(draw: st.DrawFn) -> tuple[list[str], str]:
    words = draw(st.lists(TEXT, max_size=6))
    quoted = [shlex.quote(word) if draw(st.booleans()) else _own_quoting(draw, word) for word in words]
    blanks = [draw(st.sampled_from([" ", "  ", "\t", " \\\n  "])) for _ in words]
    text = "".join(word + blank for word, blank in zip(quoted, blanks, strict=True))
    return words, text.removesuffix(blanks[-1]) if words else text  # not all blanks: the last word may end with one


@settings(max_examples=EXAMPLES, deadline=None)
@given(quoted_words())
def test_quoted_words_come_back_and_equal_what_sh_gives(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[str], str]
) -> None:
    words, text = case
    assert ours(text) == words
    assert sh(text, tmp_path_factory.getbasetemp()) == words


PIECES = [*"ab \t'\"\\$~#={}/", "$V", "${V}", '"$V"', "~/", "\\\n"]
RAW = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
BARE_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*\n")


@settings(max_examples=EXAMPLES, deadline=None)
@given(RAW)
def test_unquoted_text_is_refused_or_equals_sh(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Random text: either we refuse it, or sh makes the same words of it. Never a third thing."""
    try:
        mine = ours(text)
    except (WordsError, Refusal):  # Refusal: a name that is not set, which sh takes for nothing
        return
    if BARE_NEWLINE.search(text) or ("#" in text and "\n" in text):
        return  # a bare newline ends a command in sh and is a blank here
    assert mine == sh(text, tmp_path_factory.getbasetemp())


@settings(max_examples=EXAMPLES)
@given(st.text(max_size=60))
def test_nothing_but_words_error_is_raised(text: str) -> None:
    for function in (split, lambda given: [w.path_word(given)]):
        try:
            found = function(text)
        except WordsError as error:
            assert 0 <= error.position <= len(text)
            assert str(error).isprintable()
        else:
            assert all(word.parts for word in found)


def test_a_newline_is_a_blank_and_comments_end_with_their_line() -> None:
    text = "\nrun --a 1   # the first\n  --b 2\r\n# --c 3\n  --d 'x\ny'\n"
    assert w.texts(split(text)) == ["run", "--a", "1", "--b", "2", "--d", "x\ny"]


def test_a_value_is_never_split_nor_dropped() -> None:
    """The one wanted difference from sh."""
    assert ours("$W") == ["two words"]
    assert ours("a $EMPTY b") == ["a", "", "b"]


def test_parts_wire_and_display() -> None:
    words = split("""~/py -m "a ${X}b" '$Y'""")
    assert words == [
        Word((Home(), Literal("/py"))),
        Word((Literal("-m"),)),
        Word((Literal("a "), Variable("X"), Literal("b"))),
        Word((Literal("$Y"),)),
    ]
    assert [w.to_wire(word) for word in words] == [
        [["home"], ["lit", "/py"]],
        [["lit", "-m"]],
        [["lit", "a "], ["var", "X"], ["lit", "b"]],
        [["lit", "$Y"]],
    ]
    assert w.texts(words) == ["~/py", "-m", "a ${X}b", "$Y"]
    assert [word.is_literal for word in words] == [False, True, False, True]
    assert w.variables(split("a $X ${X} $Z")) == ("X", "Z")
    assert w.to_wire(split("x ''")[1]) == [["lit", ""]]


REFUSED = [
    ("a ; b", ";", 2, "shell = true"),
    ("a | tee log", "|", 2, "shell = true"),
    ("a && b", "&", 2, "shell = true"),
    ("nohup a &", "&", 8, "leave `&` and nohup out"),
    ("a < b", "<", 2, "shell = true"),
    ("a > log", ">", 2, "`log` under [launch]"),
    ("a 2>&1", ">", 3, "`log` under [launch]"),
    ("a $(date)", "$(", 2, "shell = true"),
    ('a "$(date)"', "$(", 3, "shell = true"),
    ("a `date`", "`", 2, "shell = true"),
    ('a "`date`"', "`", 3, "shell = true"),
    ("a *.gguf", "*", 2, "quotes"),
    ("a x?", "?", 3, "quotes"),
    ("a [x]", "[", 2, "quotes"),
    ("a (b)", "(", 2, "quotes"),
    ("a b)", ")", 3, "quotes"),
    ("a {b,c}", "{", 2, "single quotes"),
    ("a x{1..3}", "{", 3, "single quotes"),
    ("""a {"x":1,"y":2}""", "{", 2, "single quotes"),
    ("a ${V:-x}", "${", 2, "${NAME}"),
    ("a ${#V}", "${", 2, "${NAME}"),
    ("a ${1}", "${", 2, "${NAME}"),
    ("a ${}", "${", 2, "${NAME}"),
    ("a ${V", "${", 2, "${NAME}"),
    ('a "${V:-x}"', "${", 3, "${NAME}"),
    ("a $1", "$1", 2, "single quotes"),
    ("a $@", "$@", 2, "single quotes"),
    ("a $?", "$?", 2, "single quotes"),
    ("a $$", "$$", 2, "single quotes"),
    ("a $'x'", "$'", 2, "single quotes"),
    ("a ~bob/m", "~b", 2, "write it out"),
    ("a ~+", "~+", 2, "write it out"),
    ("V=1 run", "V=", 0, "env = { V = … } under [launch]"),
    ("V+=1 run", "V+=", 0, "env = { V = … } under [launch]"),
    ("cd /x", "cd", 0, "`cwd` under [launch]"),
    ("export V=1", "export", 0, "`env` under [launch]"),
    ("source x.sh", "source", 0, "login_env"),
    (". x.sh", ".", 0, "login_env"),
    ("exec run", "exec", 0, "leave it out"),
    ("! run", "!", 0, "shell = true"),
    ("{ run", "{", 0, "shell = true"),
    ("a 'b", "'", 2, "never closed"),
    ('a "b', '"', 2, "never closed"),
    ('a "b\\', '"', 2, "never closed"),
    ("a \\", "\\", 2, "last character"),
    ("a \\  \n b", "\\", 2, "last character of its line"),
    ("a\rb", "\r", 1, "carriage return"),
    ("a\0b", "\0", 1, "cannot be part"),
    ("a '\0'", "\0", 2, "cannot be part"),
    ('a "\0"', "\0", 3, "cannot be part"),
]


@pytest.mark.parametrize(("text", "character", "position", "advice"), REFUSED)
def test_what_needs_a_shell_is_refused_by_name_and_place(text: str, character: str, position: int, advice: str) -> None:
    with pytest.raises(WordsError) as caught:
        split(text)
    assert (caught.value.character, caught.value.position) == (character, position)
    assert advice in str(caught.value)


@pytest.mark.parametrize("text", [text for text, _, _, _ in REFUSED if "\0" not in text and "'b" not in text])
def test_the_same_text_in_single_quotes_is_one_word(text: str) -> None:
    assert w.texts(split(f"x {shlex.quote(text)}")) == ["x", text]


def test_the_place_is_told_by_line_and_character() -> None:
    with pytest.raises(WordsError) as caught:
        split("run --a\n  --b x | tee\n")
    assert (caught.value.line, caught.value.column) == (2, 9)
    assert "`|` (line 2 of the text, character 9)" in str(caught.value)
    with pytest.raises(WordsError, match=r"`\|` \(character 5\)"):
        split("run | tee\n")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("x --x=~/m", "~ stays as it is"),
        ("x A=~/m", "~ stays as it is"),
        ("x '~/m'", "it is quoted"),
        ('x {"a":1}', "quotes inside the braces are gone"),
        ("x –port", "typographic dash"),
        ("x “a”", "typographic quote"),
        ("x a\u00a0b", "U+00A0"),
    ],
)
def test_what_may_not_be_meant_is_said(text: str, note: str) -> None:
    assert note in w.warnings(split(text))[0]


@pytest.mark.parametrize("text", ["x ~/m", "x '--x=~/m'", "x '{\"a\":1}'", "x 'a–b'", "x $HOME/m", "x a=b:c", "x {}"])
def test_what_is_plain_has_no_note(text: str) -> None:
    assert w.warnings(split(text)) == []


def test_a_path_takes_home_and_variables_and_nothing_else() -> None:
    assert w.path_word("~/a b/$V/x*'y'") == Word((Home(), Literal("/a b/"), Variable("V"), Literal("/x*'y'")))
    assert w.path_word("/a").text == "/a"
    for text in ("~bob/x", "/a/$(x)", "/a/${V:-x}"):
        with pytest.raises(WordsError):
            w.path_word(text)


def test_a_megabyte_is_split_in_linear_time() -> None:
    """Each of these made a quadratic reader hang for minutes; a tenth of it would have taken seconds."""
    size = 300_000
    for text in ("x " + "{" * size, "x " + "a" * size, 'x "' + "a$b," * (size // 4) + '"', "x " + "a{" * (size // 2)):
        assert len(split(text)) == 2
