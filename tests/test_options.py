"""Settings declared once: read off fields and arguments, parsed from text, held to their bounds."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pytest

from s2pg.errors import UserError
from s2pg.options import Option, argument_settings, check_fields, field_settings, option, redefine, required

if TYPE_CHECKING:
    from nowhere import Missing


@dataclasses.dataclass(frozen=True)
class Oven:
    trays: int = required("how many", low=1)
    heat: float = option(180.0, "in degrees", low=0, below=300)
    mode: str = option("fan", "how it heats", choices=("fan", "grill"))
    plain: int = 3


def bake(
    cake: "Missing", *, minutes: Annotated[int, Option("how long", above=0, high=90)] = 30, lid: "bool | None" = None
):
    pass


def test_a_field_says_its_default_its_type_its_meaning_and_its_bounds():
    found = field_settings(Oven)
    assert list(found) == ["trays", "heat", "mode"]
    assert (found["heat"].default, found["heat"].kind, found["heat"].option.help) == (180.0, float, "in degrees")
    assert found["trays"].required and found["trays"].kind is int


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("heat", "2e2", 200.0),
        ("heat", 7, 7.0),
        ("heat", np.float32(0.5), 0.5),
        ("trays", "3", 3),
        ("trays", 3.0, 3),
        ("trays", np.int64(2), 2),
        ("mode", "grill", "grill"),
    ],
)
def test_values_are_read_in_their_type(name, given, value):
    found = field_settings(Oven)[name].parse(name, given)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("heat", 300, "heat must be 0 or more and below 300, not 300"),
        ("heat", "hot", "heat must be float, not 'hot'"),
        ("heat", "1e999", "heat must be float"),
        ("heat", 10**400, "must be"),
        ("trays", 0, "trays must be 1 or more, not 0"),
        ("trays", True, "trays must be int, not True"),
        ("trays", "2.5", "trays must be int, not '2.5'"),
        ("mode", "gril", "unknown mode 'gril'; did you mean grill"),
    ],
)
def test_values_out_of_type_or_bounds_are_refused_in_one_line(name, given, told):
    with pytest.raises(UserError, match=told):
        field_settings(Oven)[name].parse(name, given)


def test_a_made_thing_is_held_to_its_bounds():
    check_fields(Oven(heat=20.0, trays=1), "an oven")
    with pytest.raises(UserError, match="trays of an oven must be 1 or more, not 0"):
        check_fields(Oven(heat=20.0, trays=0), "an oven")


def test_another_default_keeps_meaning_and_bounds():
    @dataclasses.dataclass(frozen=True)
    class Hotter(Oven):
        heat: float = redefine(Oven, "heat", 250.0)

    heat = field_settings(Hotter)["heat"]
    assert heat.default == 250.0 and heat.option is field_settings(Oven)["heat"].option


@pytest.mark.parametrize("maker", [bake, functools.partial(bake)])
def test_arguments_keep_their_bounds_beside_names_that_exist_for_type_checkers_only(maker):
    found = argument_settings(maker, keyword_only=True)
    assert found["minutes"].option.help == "how long" and found["minutes"].kind is int
    with pytest.raises(UserError, match="minutes must be above 0 and at most 90, not 91"):
        found["minutes"].parse("minutes", "91")


def test_what_is_left_open_has_no_bounds_to_keep():
    Option("", low=0).check("lid", None)
