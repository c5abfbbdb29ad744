"""Sizes of the package, against the limits that keep it readable.

    python -m tests.structure

Lines of code do not count blank lines, comments and docstrings. A public function is one that `relunmd` or a public
module of it exports; its parameters are the user's, and are not limited.
"""

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

import relunmd
from relunmd import comparison, datasets, plot

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "relunmd"
MOST_CODE, MOST_LINES, MOST_FUNCTION, MOST_PARAMETERS, MOST_LAYERS = 15_300, 400, 60, 8, 9
GOAL = 11_000
"""Lines of code that the package should have; it may not grow meanwhile."""
FILES = {
    "algorithm/three_block.py": 75,
    "algorithm/aggressive.py": 115,
    "loop/driver.py": 250,
}
OWN_ALGORITHM, MOST_OWN_LINES = ROOT / "examples" / "plot_own_algorithm.py", 26
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def docstring_lines(tree):
    """The lines of strings that stand alone: docstrings, also those of attributes."""
    alone = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return {line for node in alone if isinstance(node.value.value, str) for line in lines_of(node)}


def lines_of(node):
    return range(node.lineno, node.end_lineno + 1)


def code_lines(source, tree):
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {line for t in tokens if t.type not in _LAYOUT for line in range(t.start[0], t.end[0] + 1)}
    return len(code - docstring_lines(tree))


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def size(function):
    """Lines of a function, with its signature and without its docstring."""
    first = function.body[0]
    return len(lines_of(function)) - (len(lines_of(first)) if ast.get_docstring(function) else 0)


def parameters(function):
    names = [a.arg for a in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]]
    return len([name for name in names if name not in ("self", "cls")])


def exported():
    """The names that the package and its public modules export."""
    return {name for module in (relunmd, comparison, datasets, plot) for name in module.__all__}


def public(tree, function, names):
    """Whether a function is exported, is a method of an exported class, or is a command."""
    owners = {f: c.name for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for f in c.body}
    command = any("click" in ast.unparse(decorator) for decorator in function.decorator_list)
    return command or owners.get(function, function.name) in names


def measured():
    """Yield what is measured, its value and its limit."""
    total, names, long, known = 0, Counter(), [], exported()
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree, name = ast.parse(source), path.relative_to(PACKAGE).as_posix()
        total += code_lines(source, tree)
        if not path.name.startswith("__"):
            names[path.name] += 1
        long.append((source.count("\n"), MOST_LINES, f"lines of {name}"))
        for function in functions(tree):
            long.append((size(function), MOST_FUNCTION, f"lines of {function.name} in {name}"))
            if not public(tree, function, known):
                long.append((parameters(function), MOST_PARAMETERS, f"parameters of {function.name} in {name}"))
    yield f"lines of code (goal: {GOAL})", total, MOST_CODE
    for limit in (MOST_LINES, MOST_FUNCTION, MOST_PARAMETERS):
        over = [found for found in long if found[1] == limit]
        longest = max(over)
        yield f"most {longest[2]}", longest[0], limit
        yield from ((what, value, limit) for value, _, what in sorted(over, reverse=True)[1:] if value > limit)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    yield "import layers", max(len(contract.get("layers", [])) for contract in contracts), MOST_LAYERS
    repeated = [name for name, count in names.items() if count > 1]
    yield f"module names that occur twice {repeated or ''}", len(repeated), 0
    for name, limit in FILES.items():
        yield f"lines of {name}", (PACKAGE / name).read_text(encoding="utf-8").count("\n"), limit
    (own,) = [
        node for node in ast.parse(OWN_ALGORITHM.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)
    ]
    yield f"lines of class {own.name} in examples/{OWN_ALGORITHM.name}", len(lines_of(own)), MOST_OWN_LINES


def main():
    failed = False
    for what, value, limit in measured():
        failed |= value > limit
        print(f"{value:6}  of at most {limit:6}  {what}{'   TOO MUCH' if value > limit else ''}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
