# SPDX-License-Identifier: GPL-2.0-only
"""The house rules: one direction of imports, no stray imports, licences, advice in errors."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ndm_tcp import contract

from .conftest import ROOT

ALLOWED = {
    "datasets": {"datasets"},
    "training": {"datasets", "training"},
    "export": {"datasets", "training", "export"},
    "lab": {"datasets", "lab"},
    "paths": {"datasets", "lab", "paths"},
}
ASKED = {"training/derived.py": {"ndm_tcp.lab.paths", "ndm_tcp.lab.paths.truth"}}
"""One file of the training asks the lab one thing: which window a recorded path wanted."""


def imports(path: Path) -> set[str]:
    """Every module a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_data_flows_one_way(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        names = imports(path) - ASKED.get(str(path.relative_to(ROOT)), set())
        rooms = {name.split(".")[1] for name in names if name.startswith("ndm_tcp.")} & set(ALLOWED)
        assert rooms <= ALLOWED[room], f"{path.name} imports {rooms - ALLOWED[room]}"
        assert not names & {"tests", "notebooks", *ALLOWED}, path.name
        if room in ("datasets", "lab", "paths"):
            assert not any(n.split(".")[0] in ("torch", "onnx") for n in names), path.name


def modules() -> dict[str, Path]:
    """Every module of the package by its name; packages by theirs."""
    source = ROOT / "src" / "ndm_tcp"
    found = {f"ndm_tcp.{path.stem}": path for path in source.glob("*.py")}
    for room in ALLOWED:
        for path in (ROOT / room).rglob("*.py"):
            words = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(("ndm_tcp", *words)).removesuffix(".__init__")] = path
    return found


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports within functions and for type checkers count: they hide a circle, no more."""
    files = modules()
    assert len(files) > 100
    graph = {name: imports(path) & set(files) - {name} for name, path in files.items()}
    while leaves := {name for name, needs in graph.items() if not needs & set(graph)}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    inside = {name: sorted(needs & set(graph)) for name, needs in graph.items()}
    assert not inside, "these import each other, or what does"


LONGEST_FILE, LONGEST_FUNCTION = 500, 60
"""Lines; of a function in Python without its docstring."""
LONGER = {
    "tests/test_features.py": "real_features: the contract's formulas in one place, to be read",
}


def long_functions(path: Path) -> list[str]:
    """Functions of a Python or C file that are too long to be read at once."""
    text = path.read_text()
    found = []
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                doc = node.body[0] if ast.get_docstring(node, clean=False) else None
                lines = (node.end_lineno or 0) - node.lineno + 1
                if doc is not None:
                    lines -= (doc.end_lineno or 0) - doc.lineno + 1
                if lines > LONGEST_FUNCTION:
                    found.append(node.name)
        return found
    start, lines = 0, text.splitlines()
    for number, line in enumerate(lines):
        if line == "{":
            start = number
        elif line == "}" and number - start + 1 > LONGEST_FUNCTION:
            found.append(lines[start - 1])
    return found


def test_files_and_functions_are_short() -> None:
    words = ["git", "-C", ROOT, "ls-files", "*.py", "*.c", "*.h"]
    tracked = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    paths = [ROOT / name for name in tracked if "generated" not in Path(name).parts]
    long = {}
    for path in paths:
        if path.is_symlink() or not path.is_file():
            continue
        n = len(path.read_text().splitlines())
        functions = long_functions(path)
        if n > LONGEST_FILE or functions:
            long[str(path.relative_to(ROOT))] = (n, functions)
    assert set(long) <= set(LONGER), {k: v for k, v in long.items() if k not in LONGER}


def test_files_that_texts_name_exist() -> None:
    """But in the decisions, which say what was where on their day."""
    words = ["git", "-C", ROOT, "grep", "-nIoE"]
    words += [r"\b(datasets|training|export|lab)/[a-z_0-9/]+\.(py|c|h)\b"]
    words += ["--", ".", ":!docs/decisions"]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert len(found) > 20
    gone = [line for line in found if not (ROOT / line.split(":")[2]).is_file()]
    assert not gone


def test_the_contract_needs_only_the_standard_library() -> None:
    names = imports(ROOT / "src/ndm_tcp/contract.py") | imports(ROOT / "src/ndm_tcp/errors.py")
    roots = {name.split(".")[0] for name in names} - {"ndm_tcp"}
    assert roots <= sys.stdlib_module_names


def test_folders_stay_free_of_init_files() -> None:
    """With one, `import datasets` from the root would hide the package of that name."""
    for room in ALLOWED:
        assert not (ROOT / room / "__init__.py").exists()


def test_every_source_names_its_licence() -> None:
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "*.py", "*.c", "*.h", "*.sh", "Makefile", "*/Makefile"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(tracked) > 40
    for name in tracked:
        if (ROOT / name).is_symlink():
            continue
        head = (ROOT / name).read_text().splitlines()[:16]
        assert any("SPDX-License-Identifier:" in line for line in head), name


def test_the_contract_table_in_the_docs_is_current() -> None:
    text = (ROOT / "docs" / "contract.md").read_text()
    for i in contract.DENSE:
        assert f"| {i.index} | `{i.name}` | {i.meaning} | [{i.lo:g}, {i.hi:g}] |" in text
    for o in contract.OUTPUTS:
        assert f"| `{o.name}` | {o.meaning} | [{o.lo:g}, {o.hi:g}] |" in text


def test_commands_in_the_readme_exist() -> None:
    from ndm_tcp.cli import COMMANDS

    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    code = [
        line.strip().removeprefix("$ ")
        for block in text.split("```")[1::2]
        for line in block.splitlines()[1:]
    ]
    verbs = [line.split()[1:3] for line in code if line.startswith("ndm ")]
    assert verbs
    for words in verbs:
        assert tuple(words) in COMMANDS or tuple(words[:1]) in COMMANDS, words
    targets = [line.split()[1] for line in code if line.startswith("make ") and "-C" not in line]
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert f"\n{target}:" in makefile, target


ADVICE = re.compile(
    r"; |: this is a defect|expected |there are: |known: |must |at least |at most |name |write "
)
"""how a message says what to do"""


def without_advice(code: str) -> list[str]:
    """Messages of NdmError in Python code that do not say what to do.

    One that ends with a value passes on what another program or reader said.
    """
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "NdmError" and node.args:
            message = node.args[0]
            parts = message.values if isinstance(message, ast.JoinedStr) else [message]
            told = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
            text = "".join(map(str, told))
            passed_on = re.search(r"\{\}\W*$", text)
            if not passed_on and not ADVICE.search(text):
                found.append(text)
    return found


def test_every_user_error_says_what_to_do() -> None:
    assert without_advice('raise NdmError(f"{a}: gone")') == ["{}: gone"]
    assert not without_advice('NdmError(f"{a}: gone; run: b"); NdmError(f"{a}: {error}")')
    for room in ("src/ndm_tcp", *ALLOWED):
        for path in (ROOT / room).rglob("*.py"):
            assert not without_advice(path.read_text()), path


def test_nothing_that_a_package_index_has_is_in_the_tree() -> None:
    """And no large file but the recordings: once a downloaded wheel of 79 MB was committed."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    names = listed.stdout.rstrip("\0").split("\0")
    assert len(names) > 100
    packed = (".whl", ".deb", ".egg", ".tar", ".tar.gz", ".tgz", ".zip", ".so", ".o", ".ko")
    assert not [name for name in names if name.endswith(packed)]
    large = {name for name in names if (ROOT / name).stat().st_size > 4_000_000}
    assert large <= {"datasets/lab-rounds/core/rounds.parquet"}
