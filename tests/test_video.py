"""Films come out whole, at one size, and the strip beneath shows the state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from s2pg.errors import UserError
from s2pg.io.video import EMPTY, MARGIN, TALLEST_ROW, heat, rgb, units, with_state, write

BLUE, WHITE, RED = [33, 102, 172], [247, 247, 247], [178, 24, 43]
FRAME = np.zeros((21, 2 * MARGIN + 40, 3), np.uint8)


def film(number: int = 4) -> list[np.ndarray]:
    return [np.full((21, 31, 3), 60 * i, np.uint8) for i in range(number)]


def test_colours_run_from_blue_over_white_to_red_and_clip():
    np.testing.assert_array_equal(heat(np.array([-7.0, -1.0, 0.0, 1.0, 7.0])), [BLUE, BLUE, WHITE, RED, RED])


def test_units_flatten_any_state():
    np.testing.assert_array_equal(units((np.ones((1, 2)), {"c": np.zeros(1)})), [1.0, 1.0, 0.0])
    assert units(()).shape == (0,)


def test_the_strip_has_a_row_per_unit_and_fills_from_the_left():
    first, second = np.array([1.0, -1.0]), np.array([-1.0, 0.0])
    picture = with_state(FRAME, second, [first], max_steps=4)  # ten pixels a step
    strip = picture[len(FRAME) + MARGIN : -MARGIN, MARGIN:-MARGIN]
    assert strip.shape == (2 * TALLEST_ROW, 40, 3)
    upper, lower = strip[0], strip[-1]
    np.testing.assert_array_equal([upper[0], upper[9], upper[10], upper[19]], [RED, RED, BLUE, BLUE])
    np.testing.assert_array_equal([lower[0], lower[10]], [BLUE, WHITE])
    assert (strip[:, 21:] == EMPTY).all()
    np.testing.assert_array_equal(picture[: len(FRAME)], FRAME)


@pytest.mark.parametrize("size", [0, 1, 3, 200])
def test_all_frames_of_an_episode_have_one_size(size: int):
    states = list(np.zeros((6, size)))
    shapes = {with_state(FRAME, z, states[:i], max_steps=5).shape for i, z in enumerate(states)}  # the last scrolls
    assert len(shapes) == 1
    assert shapes.pop()[0] >= len(FRAME) + max(size, TALLEST_ROW)


def test_without_a_state_the_strip_is_grey():
    strip = with_state(FRAME, (), [(), ()], max_steps=5)[len(FRAME) + MARGIN : -MARGIN, MARGIN:-MARGIN]
    assert (strip == EMPTY).all()


def test_any_picture_becomes_rgb():
    np.testing.assert_array_equal(rgb(np.array([[1.0, 0.0]])), [[[255] * 3, [0] * 3]])
    assert rgb(np.zeros((2, 2, 4), np.uint8)).shape == (2, 2, 3)


def test_a_gif_loops_for_ever_at_its_speed(tmp_path: Path):
    from PIL import Image

    path = tmp_path / "new" / "film.gif"
    write(film(), path, fps=10)
    with Image.open(path) as image:
        assert (image.info["loop"], image.info["duration"], getattr(image, "n_frames", 1)) == (0, 100, 4)
        assert image.size == (31, 21)
        image.seek(3)
        assert np.abs(np.asarray(image.convert("RGB"), float) - 180).max() < 8
    assert list(path.parent.iterdir()) == [path]


def test_an_mp4_is_padded_to_even_sides(tmp_path: Path):
    import imageio_ffmpeg

    path = tmp_path / "film.mp4"
    write(iter(film()), path)
    command = f"{imageio_ffmpeg.get_ffmpeg_exe()} -v error -i {path} -f rawvideo -pix_fmt rgb24 -"
    raw = subprocess.run(command.split(), check=True, capture_output=True).stdout
    shots = np.frombuffer(raw, np.uint8).reshape(4, 22, 32, 3)
    assert np.abs(shots.mean((1, 2, 3)) - [0, 60, 120, 180]).max() < 8
    assert list(tmp_path.iterdir()) == [path]


def test_mistakes_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"cannot film a.avi: the name must end in .gif or .mp4"):
        write(film(), tmp_path / "a.avi")
    with pytest.raises(UserError, match="there are no frames"):
        write([], tmp_path / "a.gif")
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    for name in ("a.gif", "a.mp4"):
        with pytest.raises(UserError, match=r"films need \w+, which is not installed: pip install .s2pg\[video\]."):
            write(film(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_film_that_breaks_off_leaves_the_old_one(tmp_path: Path):
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")

    def broken():
        yield film()[0]
        raise RuntimeError("the environment fell over")

    with pytest.raises(RuntimeError, match="fell over"):
        write(broken(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
