"""Expressions of pages and claims: a small part of Python, parsed and walked, never run by `eval`.

A metric's name is a function of settings; what it gives is a `Number`, which counts as its mean.
"""

import ast
import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hardsight.names import unknown_name
from hardsight_studies.engine.rows import Number

Names = Mapping[str, Any]
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip


class NotMeasuredError(ValueError):
    """An expression is about runs of which there is no row."""


def evaluate(text: str, names: Names, other: Callable[[str], Any] | None = None) -> Any:
    """The value of an expression; what is not allowed in one is an error that shows it.

    `other` says what a name is that is none of `names`: a metric, on a page.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise ValueError(f"expression must be readable; got {text.strip()!r}: {problem}") from None
    return _Walk(names, other).value(tree)


def plain(value: Any) -> Any:
    """A `Number` as its mean, everything else as it is."""
    return value.mean if isinstance(value, Number) else value


def difference(first: Number, second: Number) -> Number:
    """First minus second: paired over the seeds that both have; of the means, where they share none."""
    mine, theirs = (dict(zip(one.seeds, one.values, strict=False)) for one in (first, second))
    shared = [seed for seed in mine if seed in theirs]
    if not shared:
        return Number(first.mean - second.mean)
    return Number.of({seed: mine[seed] - theirs[seed] for seed in shared})


def interval(number: Number | Sequence[Any]) -> Number:
    """The mean with its 95 % t-interval over seeds; of a list, over its members, such as data sets."""
    from scipy.stats import t

    if not isinstance(number, Number):
        number = Number.of({at: float(plain(one)) for at, one in enumerate(number)})
    if number.sd is None or number.count < 2:
        raise ValueError(f"interval must be of several seeds; got {number.count}")
    half = float(t.ppf(0.975, number.count - 1)) * number.sd / math.sqrt(number.count)
    return Number(number.mean, number.sd, number.count, number.values, number.seeds,
                  number.mean - half, number.mean + half)  # fmt: skip


def pooled(numbers: Sequence[Number]) -> Number:
    """The mean of several numbers with its 95 % interval over seeds alone: the numbers themselves count as fixed.

    Their variances are added, with Satterthwaite's degrees of freedom.
    """
    from scipy.stats import t

    if not numbers or any(one.sd is None or one.count < 2 for one in numbers):
        raise ValueError(f"pooled must be of numbers of several seeds each; got {[one.count for one in numbers]}")
    mean = statistics.fmean(one.mean for one in numbers)
    parts = [(one.sd or 0.0) ** 2 / one.count / len(numbers) ** 2 for one in numbers]
    total, squares = sum(parts), sum(part**2 / (one.count - 1) for part, one in zip(parts, numbers, strict=True))
    half = float(t.ppf(0.975, total**2 / squares)) * math.sqrt(total) if total else 0.0
    return Number(mean, low=mean - half, high=mean + half)


def _end(which: str) -> Callable[[Number], float]:
    def end(number: Number) -> float:
        value = getattr(number, which)
        if value is None:
            raise ValueError(f"{which} must be of an interval: this number has none")
        return float(value)

    return end


def _means(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with Numbers, also those in a list, taken as their means."""

    def of_means(*arguments: Any) -> Any:
        return function(*([plain(one) for one in a] if isinstance(a, list | tuple) else plain(a) for a in arguments))

    return of_means


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "difference": difference,
    "interval": interval,
    "pooled": pooled,
    "low": _end("low"),
    "high": _end("high"),
    "sd": lambda number: number.sd,
    "count": lambda number: number.count,
    "mean": _means(lambda values: statistics.fmean(values) if isinstance(values, list) else values),
    "min": _means(min),
    "max": _means(max),
    "sum": _means(sum),
    "abs": _means(abs),
    "round": _means(round),
    "sorted": _means(sorted),
    "len": len,
    "all": all,
    "any": any,
}


class _Walk:
    """The value of each allowed kind of node; `names` are what the text may name."""

    def __init__(self, names: Names, other: Callable[[str], Any] | None) -> None:
        self.names, self.other = names, other

    def value(self, node: ast.AST) -> Any:
        """The value of a node."""
        visit = getattr(self, f"_{type(node).__name__.lower()}", None)
        if visit is None:
            raise ValueError(f"expression must not hold {ast.unparse(node)!r} ({type(node).__name__})")
        return visit(node)

    def _constant(self, node: ast.Constant) -> Any:
        if not isinstance(node.value, str | int | float | None):
            raise ValueError(f"expression must not hold {ast.unparse(node)!r}")
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        if self.other is None:
            raise unknown_name("a name in an expression", node.id, self.names, "names")
        return self.other(node.id)

    def _list(self, node: ast.List | ast.Tuple) -> list[Any]:
        return [self.value(one) for one in node.elts]

    _tuple = _list

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        operation = _UNARY.get(type(node.op))
        if operation is None:
            raise ValueError(f"expression must not hold {ast.unparse(node)!r}")
        return operation(plain(self.value(node.operand)))

    def _binop(self, node: ast.BinOp) -> Any:
        operation = _BINARY.get(type(node.op))
        if operation is None:
            raise ValueError(f"expression must not hold {ast.unparse(node)!r}")
        left, right = plain(self.value(node.left)), plain(self.value(node.right))
        if not all(isinstance(one, int | float) for one in (left, right)):
            raise ValueError(f"expression must compute with numbers alone; got {ast.unparse(node)!r}")
        return operation(left, right)

    def _boolop(self, node: ast.BoolOp) -> Any:
        wanted = isinstance(node.op, ast.Or)
        found: Any = not wanted
        for one in node.values:
            found = self.value(one)
            if bool(plain(found)) == wanted:
                break
        return found

    def _compare(self, node: ast.Compare) -> bool:
        left = plain(self.value(node.left))
        for comparison, following in zip(node.ops, node.comparators, strict=True):
            right = plain(self.value(following))
            if type(comparison) not in _COMPARED:
                raise ValueError(f"expression must not hold {ast.unparse(node)!r}")
            if not _COMPARED[type(comparison)](left, right):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if plain(self.value(node.test)) else node.orelse)

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name):
            raise ValueError(f"expression must call functions by name; got {ast.unparse(node)!r}")
        function = self._name(node.func)
        if not callable(function) or any(one.arg is None for one in node.keywords):
            raise ValueError(f"expression must call functions with named settings; got {ast.unparse(node)!r}")
        arguments = [self.value(one) for one in node.args]
        try:
            return function(*arguments, **{str(one.arg): self.value(one.value) for one in node.keywords})
        except (TypeError, AttributeError) as problem:
            raise ValueError(f"expression cannot be computed: {ast.unparse(node)!r}: {problem}") from None

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        return self._looped(node.elt, node.generators, self.names)

    _generatorexp = _listcomp

    def _looped(self, body: ast.expr, loops: Sequence[ast.comprehension], names: Names) -> list[Any]:
        if not loops:
            return [_Walk(names, self.other).value(body)]
        first, *rest = loops
        if not isinstance(first.target, ast.Name):
            raise ValueError(f"expression must loop over single names; got {ast.unparse(first.target)!r}")
        found: list[Any] = []
        for one in _Walk(names, self.other).value(first.iter):
            inner = {**names, first.target.id: one}
            if all(plain(_Walk(inner, self.other).value(condition)) for condition in first.ifs):
                found += self._looped(body, rest, inner)
        return found
