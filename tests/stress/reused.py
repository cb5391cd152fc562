"""One compiled loop for thousands of runs: each goes through `s2pg.train`, but nothing is traced or compiled twice."""

import contextlib
from unittest import mock

import equinox as eqx

from s2pg.algorithms import Algorithm
from s2pg.envs import base
from s2pg.loops import DeviceLoop
from s2pg.runs import training


class Reused(DeviceLoop):
    """A loop that is prepared once."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self._shapes, self._prepared = super().shapes(), False

    def shapes(self):
        return self._shapes

    def prepare(self, loop, fresh=False):
        if not self._prepared:
            super().prepare(loop, fresh=True)
            self._prepared = True


def once(function, name):
    """The function with its results kept; `name` tells them apart, or is None of those that are not."""
    known = {}

    def found(*given, **named):
        if (key := name(*given)) is None:
            return function(*given, **named)
        if key not in known:
            known[key] = function(*given, **named)
        return known[key]

    return found


def _which_shape(function, *_):
    """What a shape is asked of: a piece of code, and the algorithm that it knows."""
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    known = [type(each) for each in held if isinstance(each, Algorithm)]
    return (function.__code__, *known) if known else None  # other libraries ask for shapes as well


@contextlib.contextmanager
def reusing(kind=Reused):
    """Gives all runs of an algorithm in this process the same loop of this kind: they have one setting."""
    loop = once(kind, lambda algorithm, env, seeds, chunk, *_: (type(algorithm), tuple(seeds), chunk))
    shape = once(eqx.filter_eval_shape, _which_shape)
    sizes = once(base.traced_sizes, type)
    with (
        mock.patch.object(training, "DeviceLoop", loop),
        mock.patch.object(eqx, "filter_eval_shape", shape),
        mock.patch.object(base, "traced_sizes", sizes),
    ):
        yield
