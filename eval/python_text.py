"""Python answers: does the text parse, does it do anything, and with which values."""

import ast
import warnings
from decimal import Decimal

from eval.facts import Facts, canonical, number, number_series

_DOES_SOMETHING = (
    *(ast.Call, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)


def python_facts(text: str) -> Facts | None:
    """What a python text says, or None if it is no python or does nothing (`make` is a name to python).

    Comments, docstrings and what is only printed are not counted.
    """
    tree = parsed(text)
    if tree is None or not any(isinstance(node, _DOES_SOMETHING) for node in ast.walk(tree)):
        return None
    reader = _Reader()
    try:
        reader.visit(tree)
    except (RecursionError, ValueError):
        return None  # A sum of a thousand terms, or a number too long to print: no answer to any row.
    return reader.facts()


def parsed(text: str) -> ast.Module | None:
    """The syntax tree, or None if the text is no python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None


class _Reader(ast.NodeVisitor):
    """Walks the tree once and collects the facts."""

    def __init__(self) -> None:
        self._pairs: list[tuple[str, str]] = []
        self._options: set[str] = set()
        self._values: list[str] = []
        self._series: list[tuple[Decimal, ...]] = []
        self._programs: list[str] = []

    def facts(self) -> Facts:
        return Facts(
            tuple(self._pairs),
            frozenset(self._options),
            tuple(self._values),
            tuple(self._series),
            tuple(self._programs),
        )

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self._programs += [alias.name for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._programs += [node.module or "", *(alias.name for alias in node.names)]

    def visit_Call(self, node: ast.Call) -> None:
        function = _dotted(node.func)
        if function == "print":
            # What is printed was not used; a call among the arguments was.
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                if not isinstance(argument, ast.Constant | ast.JoinedStr):
                    self.visit(argument)
            return
        if function:
            self._programs.append(function)
        self._numbers_together(node.args)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg is not None:
            self._named(node.arg, node.value)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assigned(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned(node.target, node.value)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._named(key.value, value)
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        self._numbers_together(node.elts)
        self.generic_visit(node)

    def visit_List(self, node: ast.List) -> None:
        self._numbers_together(node.elts)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        value = _literal(node)
        if value is None:
            self.generic_visit(node)
        else:
            self._values.append(value)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = _literal(node)
        if value is None:
            return
        self._values.append(value)
        if isinstance(node.value, str):
            words = value.split()
            self._values += words if len(words) > 1 else []
            numbers = number_series(value)
            self._series += [numbers] if len(numbers) > 1 else []

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._named(target.id, value)
        elif isinstance(target, ast.Attribute):
            self._named(target.attr, value)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            self._named(str(target.slice.value), value)

    def _named(self, name: str, value: ast.expr) -> None:
        self._options.add(canonical(name))
        text = _literal(value)
        if text is not None:
            self._pairs.append((canonical(name), text))

    def _numbers_together(self, nodes: list[ast.expr]) -> None:
        numbers = tuple(
            item for node in nodes if (text := _literal(node)) and (item := number(text)) is not None
        )
        if len(numbers) > 1 and len(numbers) == len(nodes):
            self._series.append(numbers)


def _literal(node: ast.expr) -> str | None:
    """The text of a number, string, True, False or None, or of a tuple or list of them; else None."""
    if isinstance(node, ast.Constant):
        return None if isinstance(node.value, bytes) or node.value is Ellipsis else str(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand)
        return f"-{inner}" if inner is not None and number(inner) is not None else None
    if isinstance(node, ast.Tuple | ast.List):
        items = [_literal(item) for item in node.elts]
        return ",".join(item for item in items if item is not None) if None not in items else None
    return None


def _dotted(node: ast.expr) -> str:
    """`nn.Linear` of the expression that is called; empty for anything but names and attributes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}".lstrip(".")
    return ""
