"""The shape of the source itself: how much is overridden, where labels are asked for, how wide listings are."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import s2pg
from s2pg.config.labels import LABELS

SOURCE = Path(s2pg.__file__).parent
MOST_OVERRIDES = 5


def classes():
    """Every class that the package defines."""
    found = {}
    for module in pkgutil.walk_packages(s2pg.__path__, "s2pg."):
        if module.name != "s2pg.__main__":
            for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if cls.__module__.startswith("s2pg.") and not getattr(cls, "_is_protocol", False):
                    found[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return found


def is_method(value):
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def overrides(found):
    """`Class.method` for each method that takes the place of a concrete one of a base class of the same package."""
    packages = {cls.__module__.partition(".")[0] for cls in found}
    for cls in found:
        for name, value in vars(cls).items():
            # Constructors are not called through a base class, and dataclasses write some methods themselves.
            if not is_method(value) or (name.startswith("__") and name != "__call__"):
                continue
            for base in cls.__mro__[1:]:
                before = vars(base).get(name) if base.__module__.partition(".")[0] in packages else None
                if is_method(before):
                    if not getattr(before, "__isabstractmethod__", False):
                        yield f"{cls.__name__}.{name}"
                    break


def test_the_counter_of_overrides_counts():
    class Base:
        def kept(self): ...
        def changed(self): ...

    class Child(Base):
        def changed(self): ...
        def new(self): ...

    assert list(overrides([Base, Child])) == ["Child.changed"]


def test_few_concrete_methods_are_overridden():
    found = sorted(set(overrides(classes().values())))
    assert len(found) <= MOST_OVERRIDES, found


def label_comparisons(text):
    """Lines that compare something with a memory label or the stem of one."""
    stems = {*LABELS, *(pattern.partition("-")[0] for pattern in LABELS)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare | ast.match_case):
            constants = {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}
            if constants & stems:
                yield node.lineno if isinstance(node, ast.Compare) else node.pattern.lineno


def test_the_counter_of_label_comparisons_counts():
    assert list(label_comparisons("x = 1\nif kind == 'bptt' or kind in ('none',): pass")) == [2, 2]


def test_labels_are_asked_for_in_their_table_alone():
    # The theory's estimators have labels of their own.
    files = [path for path in SOURCE.rglob("*.py") if path.parent.name != "theory" and path.name != "labels.py"]
    found = [f"{path}:{line}" for path in files for line in label_comparisons(path.read_text())]
    assert len(files) > 100 and not found, found
